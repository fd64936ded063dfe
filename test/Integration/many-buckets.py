# REQUIRES: numpy
# RUN: %python %s
"""More buckets than collectives may be in flight (`TRAINC_MAX_IN_FLIGHT`): steps have the bits of those of few buckets, in every mode,
in windows of one and two; gathers of a list are in flight as far as passes may leave them; more of them are refused."""
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))

from ranks import ROOT, batches, compile_module, example, run, same  # noqa: E402
from common import tool  # noqa: E402
from report import check  # noqa: E402

LAYERS = 40  # each has a bucket for its weight, and one for its bias
SHAPES = dict(x=((8, 16), "f"), y=((8,), "i"))


def limit():
    with open(os.path.join(ROOT, "runtime", "include", "trainc", "step_abi.h")) as f:
        return int(re.search(r"#define TRAINC_MAX_IN_FLIGHT (\d+)", f.read())[1])


def training(rank):
    results = [rank.step(**batch) for batch in batches(SHAPES, 6, vocabulary=10)]
    return [(r.window_loss, r.grad_norm) for r in results if r.closed], rank.tensors()


def steps(folder, micro_steps):
    model = example("mlp", "--batch", 8, "--inputs", 16, "--hidden", *[16] * LAYERS, "--accumulate", micro_steps, "--clip", 1.0)
    bad = 0
    for mode in ("none", "optimizer", "gradients", "parameters"):
        name, options = f"windows of {micro_steps}, {mode}", ("--mesh=data=2", f"--shard={mode}")
        expected = run(training, compile_module(model, os.path.join(folder, "few.so"), *options), 2)
        found = run(training, compile_module(model, os.path.join(folder, "many.so"), *options, "--disable-pass=train-coalesce"), 2)
        bad += check(f"{name}: the bits of few buckets", all(a[0] == b[0] and same(a[1], b[1]) for a, b in zip(found, expected)),
                     [losses for losses, _ in (*found, *expected)])
    return bad


def gathers(count, apart):
    """The text of a list of so many gathers, each with a kernel after it; they are waited for at once, or, each of its own bucket, at the end."""
    tokens = [f"  %t{i} = train.start all_gather(%x) outs(%b{i}) over [\"data\"] : memref<16xf32> from memref<8xf32> -> !train.token\n"
              for i in range(count)]
    if not apart:
        tokens = [token.replace("(%x) ", " ").replace(" from memref<8xf32>", "") for token in tokens]
    waits = [f"  train.wait %t{i}\n" for i in range(count)]
    launch = "  train.launch @k(%x) outs(%y : memref<8xf32>) : (memref<8xf32>) -> ()\n"
    arena = "".join(f"  train.slice @s{i} : tensor<16xf32>\n  train.span @b{i}\n" for i in range(count))
    return f"""
train.mesh @mesh(data = 2)
{"".join(f"train.bucket @b{i} [@s{i}] elements(16) offsets([0])" + chr(10) for i in range(count))}
train.arena @m master {{
{arena}}}
train.kernel @k(%x: tensor<8xf32>) inplace [-1] {{
  %0 = nn.neg %x : tensor<8xf32>
  train.return %0 : tensor<8xf32>
}}
train.list @update of @step "apply" () workspace(32) {{
  %x = train.address input 0 : memref<8xf32>
  %y = train.address workspace 0 : memref<8xf32>
{"".join(f"  %b{i} = train.address @m::@b{i} : memref<16xf32>" + chr(10) for i in range(count))}
{"".join(t + ("" if apart else w) + launch for t, w in zip(tokens, waits))}{"".join(waits) if apart else ""}  train.return
}}
"""


def passes(text, *options):
    return subprocess.run([tool("trainc-opt"), *options], input=text, capture_output=True, text=True)


def most_in_flight(text):
    now = most = 0
    for line in text.splitlines():
        now += ("train.start" in line) - ("train.wait" in line)
        most = max(most, now)
    return most


def main():
    most = limit()
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        for micro_steps in (1, 2):
            bad += steps(folder, micro_steps)
    done = passes(gathers(2 * most, False), "--train-defer-gather")
    bad += check("gathers in flight", most_in_flight(done.stdout) == most - 8, done.stderr or most_in_flight(done.stdout))
    done = passes(gathers(most, True), "--train-verify-form=form=3")
    bad += check("as many as may be", done.returncode == 0, done.stderr)
    done = passes(gathers(most + 1, True), "--train-verify-form=form=3")
    bad += check("one more is refused", f"expects at most {most} collectives in flight (P5)" in done.stderr, done.stderr)
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
