# REQUIRES: numpy
# RUN: %python %s
"""Trains models with less and less memory (trainc --memory-limit): values are computed again, and not a bit changes.

The workspace stays below the limit down to the smallest that trainc says it can do; below that it refuses.
"""
import json
import os
import re
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench"))

from common import RUNTIME_LIBRARY, compile_module, generate, run, tool  # noqa: E402
from trainc_ctypes import DTYPES, Runtime, Trainer, shape_of  # noqa: E402

GPT = ["gpt", "--layers", 2, "--width", 48, "--heads", 3, "--batch", 3, "--seq", 40]
LLAMA = ["llama", "--layers", 2, "--width", 48, "--heads", 4, "--batch", 2, "--seq", 32]
# Halves of what is computed again, as views, and what they are joined to.
HALVES = """
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<64x64xf32> init(normal<0.1>) optimizer(@o)
train.param @s : tensor<64xf32> init(normal<0.1>) optimizer(@o)
train.step @step(%x: tensor<256x64xf32>, %y: tensor<256x64xf32>) {
  %w = train.read @w : tensor<64x64xf32>
  %s = train.read @s : tensor<64xf32>
  %xs = nn.mul %x, %s : tensor<256x64xf32>, tensor<64xf32>
  %h = nn.silu %xs : tensor<256x64xf32>
  %a = nn.slice %h offsets [0, 0] sizes [128, 64] : tensor<256x64xf32>
  %b = nn.slice %h offsets [128, 0] sizes [128, 64] : tensor<256x64xf32>
  %a1 = nn.matmul %a, %w : tensor<128x64xf32>, tensor<64x64xf32>
  %a2 = nn.tanh %a1 : tensor<128x64xf32>
  %b1 = nn.matmul %b, %w : tensor<128x64xf32>, tensor<64x64xf32>
  %b2 = nn.tanh %b1 : tensor<128x64xf32>
  %c = nn.concat %a2, %b2 dim 0 : tensor<128x64xf32>, tensor<128x64xf32>
  %c1 = nn.matmul %c, %w : tensor<256x64xf32>, tensor<64x64xf32>
  %loss, %n = nn.mse %c1, %y : tensor<256x64xf32>, tensor<256x64xf32>
  train.yield loss(%loss) weight(%n) : tensor<f32>, tensor<f32>
}
"""
CASES = [
    [HALVES],
    [*GPT, "--dropout", 0.1],
    [*GPT, "--dropout", 0.1, "--bf16", "--accumulate", 2],
    [*GPT, "--dropout", 0.1, "--recompute"],
    LLAMA,
    [*LLAMA, "--bf16"],
    ["cnn", "--batch", 8],
]

# What may be left of the workspace that trainc takes without a limit; None: the least it finds.
PARTS = [0.9, 0.8, 0.7, None]
UPDATES = 5


def random_inputs(trainer, numbers):
    """Of the step: small integers, or normal values."""
    step = trainer.descriptor.entries[trainer.entries["step"]]
    ports = [step.inputs[i] for i in range(step.num_inputs)]
    return {port.name.decode(): numbers.integers(0, 10, shape_of(port)) if DTYPES[port.dtype] == np.int32
            else numbers.standard_normal(shape_of(port)) for port in ports}


def train(library, window):
    """Losses, norms and the checkpoint of a few updates."""
    numbers, rows = np.random.default_rng(3), []
    with Trainer(Runtime(RUNTIME_LIBRARY), library, threads=2, seed=9) as trainer:
        for _ in range(UPDATES * window):
            result = trainer.step(**random_inputs(trainer, numbers))
            rows.append((result.loss, result.grad_norm))
        state = os.path.join(os.path.dirname(library), "state")
        trainer.save(state)
    with open(state, "rb") as f:
        return rows, f.read()


def report(source, *options):
    return json.loads(run([tool("trainc"), source, "--memory-report=json", *options]).stdout)


def check(case, folder, *options):
    text = case[0] if case == [HALVES] else generate(*case)
    case, library = ["halves"] if case == [HALVES] else case, os.path.join(folder, "model.so")
    window = 2 if "--accumulate" in case else 1
    wanted = train(compile_module(text, library, *options), window)
    source = os.path.join(folder, "model.mlir")
    plain = report(source, *options)
    workspace = next(a["bytes"] for a in plain["arenas"] if a["name"] == "workspace")
    arenas = plain["total"] - workspace
    refused = run([tool("trainc"), source, "--memory-report", f"--memory-limit={arenas + 1}", *options], check=False)
    least = int(re.search(r"a memory limit of at least (\d+) bytes", refused.stderr).group(1))
    lines = []
    for part in PARTS:
        limit = least if part is None else int(arenas + part * workspace)
        if limit < least:
            continue
        option = f"--memory-limit={limit}"
        got = train(compile_module(text, library, option, *options), window)
        small = report(source, option, *options)
        step = small["entries"][0]
        what = f"{(limit - arenas) / workspace:.2f} of the workspace, {step['recomputed']} values again"
        if got != wanted:
            raise SystemExit(f"{case}: {what}: other losses or another checkpoint")
        if small["total"] > limit:
            raise SystemExit(f"{case}: {what}: {small['total']} bytes, the limit is {limit}")
        if not step["recomputed"] or not step["saved"]:
            raise SystemExit(f"{case}: {what}: expected values to be computed again")
        lines.append(" ".join([*map(str, case), *options, ":", what]))
    return lines


def check_apart(case, options=()):
    with tempfile.TemporaryDirectory() as folder:
        return check(case, folder, *options)


def main():
    jobs = [(case, ()) for case in CASES] + [(CASES[0], ("--disable-pass=fuse-kernels",))]
    with ThreadPoolExecutor(2) as executor:
        for lines in executor.map(check_apart, *zip(*jobs)):
            print(*lines, sep="\n", flush=True)


if __name__ == "__main__":
    main()
