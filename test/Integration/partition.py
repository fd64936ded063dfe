# REQUIRES: numpy
# RUN: %python %s
"""What all ranks compute together is what one rank computes: losses, weights, gradients, buffers and evaluations in f64.

usage: partition.py [--random N] [--seed S] [--show NUMBER] [MODEL ...]

The programs of the ranks run side by side in one evaluation (Inputs/side_by_side.py), collectives being sums: whole models
on several meshes, and N random modules whose inputs are split at random. Errors are relative to the largest element, of
gradients to that of all of them.
Many random modules cannot be split as they are (an axis may meet a slice, a window or a maximum); these must be refused by
messages that say so. Dropout's masks are compared
in real steps, each rank's program being one of its own, for evaluations have none.
"""
import argparse
import os
import random
import re
import sys
import tempfile

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, *folder) for folder in
                (["bench"], ["test", "Integration", "Inputs"], ["test", "Fuzz", "Inputs"])]

import valid  # noqa: E402
from common import RUNTIME_LIBRARY, Failed, compile_module, generate, run, tool  # noqa: E402
from side_by_side import Mesh, entries, evaluation, output_names, parse_inputs  # noqa: E402
from trainc_ctypes import Runtime, Trainer  # noqa: E402

TOLERANCE = 1e-12
F64 = ["--type", "f64", "--optimizer", "sgd"]
GPT = ["--layers", 2, "--width", 12, "--heads", 3, "--vocab", 17, "--batch", 4, "--seq", 6, *F64]
BATCH_NORM = """
train.mesh @mesh(host = 1, data = 1)
train.optimizer @o = sgd<lr = 0.1>
train.param @conv : tensor<3x2x3x3xf64> init(normal<0.3>) optimizer(@o)
train.param @scale : tensor<3xf64> init(normal<1.0, 0.1>) optimizer(@o)
train.param @shift : tensor<3xf64> init(normal<0.1>) optimizer(@o)
train.param @fc : tensor<75x4xf64> init(normal<0.1>) optimizer(@o)
train.buffer @mean : tensor<3xf64> init(zeros)
train.buffer @var : tensor<3xf64> init(ones)
train.step @step(%x: tensor<8x2x5x5xf64> split([host, data]), %y: tensor<8xi32> split([host, data])) {
BODY
  train.write %m1 to @mean : tensor<3xf64>
  train.write %v1 to @var : tensor<3xf64>
  %loss, %count = nn.cross_entropy %logits, %y : tensor<8x4xf64>, tensor<8xi32>
  train.yield loss(%loss) weight(%count) : tensor<f64>, tensor<f64>
}
train.eval @eval(%x: tensor<8x2x5x5xf64> split([data], [])) -> ("logits", "mean") {
EVAL_BODY
  %mean = nn.reduce sum %logits dims [0] : tensor<8x4xf64>
  train.yield %logits, %mean : tensor<8x4xf64>, tensor<4xf64>
}
"""
BODY = """
  %w = train.read @conv : tensor<3x2x3x3xf64>
  %s = train.read @scale : tensor<3xf64>
  %b = train.read @shift : tensor<3xf64>
  %m = train.read @mean : tensor<3xf64>
  %v = train.read @var : tensor<3xf64>
  %fc = train.read @fc : tensor<75x4xf64>
  %c = nn.conv2d %x, %w padding [1, 1, 1, 1] : tensor<8x2x5x5xf64>, tensor<3x2x3x3xf64>
  %n, %m1, %v1 = nn.batch_norm %c, %s, %b, %m, %v MODE
      : tensor<8x3x5x5xf64>, tensor<3xf64>, tensor<3xf64>, tensor<3xf64>, tensor<3xf64>
  %r = nn.relu %n : tensor<8x3x5x5xf64>
  %flat = nn.reshape %r : tensor<8x3x5x5xf64> to tensor<8x75xf64>
  %logits = nn.linear %flat, %fc : tensor<8x75xf64>, tensor<75x4xf64>
"""
DROPOUT = """
train.mesh @mesh(host = 1, data = 1)
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<3x8xf64> init(normal<0.5>) optimizer(@o)
train.step @step(%x: tensor<8x4x3xf64> split([data], [host])) {
  %w = train.read @w : tensor<3x8xf64>
  %h = nn.linear %x, %w : tensor<8x4x3xf64>, tensor<3x8xf64>
  %a = nn.dropout %h rate 0.5 : tensor<8x4x8xf64>
  %d = train.recompute -> tensor<8x4x8xf64> {
    %t = nn.transpose %a [1, 0, 2] : tensor<8x4x8xf64>
    %u = nn.dropout %t rate 0.25 : tensor<4x8x8xf64>
    %v = nn.dropout %w rate 0.25 : tensor<3x8xf64>
    %e = nn.matmul %u, %v transpose_rhs : tensor<4x8x8xf64>, tensor<3x8xf64>
    %f = nn.matmul %e, %w : tensor<4x8x3xf64>, tensor<3x8xf64>
    %g = nn.transpose %f [1, 0, 2] : tensor<4x8x8xf64>
    train.yield %g : tensor<8x4x8xf64>
  }
  %q = nn.mul %d, %a : tensor<8x4x8xf64>, tensor<8x4x8xf64>
  %loss = nn.reduce sum %q dims [0, 1, 2] : tensor<8x4x8xf64>
  train.yield loss(%loss) : tensor<f64>
}
"""
# Sums over the batch that are not of losses, also in a region that is computed again; a loss that no input splits.
SUMS = """
train.mesh @mesh(host = 1, data = 1)
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4x4xf64> init(normal<0.5>) optimizer(@o)
train.param @table : tensor<8x4xf64> init(normal<0.5>) optimizer(@o)
train.buffer @seen : tensor<4xi32> init(zeros)
train.step @step(%x: tensor<8x4xf64> split([data, host]), %i: tensor<8x4xi32> split([data], [host])) {
  %w = train.read @w : tensor<4x4xf64>
  %t = train.read @table : tensor<8x4xf64>
  %y = nn.add %x, %t : tensor<8x4xf64>, tensor<8x4xf64>
  %g = train.recompute -> tensor<4x4xf64> {
    %z = nn.linear %y, %w : tensor<8x4xf64>, tensor<4x4xf64>
    %h = nn.matmul %z, %y transpose_lhs : tensor<8x4xf64>, tensor<8x4xf64>
    %u = nn.tanh %h : tensor<4x4xf64>
    %v = nn.matmul %u, %h : tensor<4x4xf64>, tensor<4x4xf64>
    train.yield %v : tensor<4x4xf64>
  }
  %p = nn.linear %y, %g : tensor<8x4xf64>, tensor<4x4xf64>
  %a = nn.reduce sum %p dims [0, 1] : tensor<8x4xf64>
  %q = nn.mul %w, %w : tensor<4x4xf64>, tensor<4x4xf64>
  %b = nn.reduce sum %q dims [0, 1] : tensor<4x4xf64>
  %c = nn.mul %a, %b : tensor<f64>, tensor<f64>
  %loss = nn.sub %c, %b : tensor<f64>, tensor<f64>
  %old = train.read @seen : tensor<4xi32>
  %n = nn.reduce sum %i dims [0] : tensor<8x4xi32>
  %m = nn.reduce sum %n dims [0] keep : tensor<4xi32>
  %new = nn.add %old, %m : tensor<4xi32>, tensor<1xi32>
  train.write %new to @seen : tensor<4xi32>
  train.yield loss(%loss) : tensor<f64>
}
"""
MODELS = {
    "mlp": lambda: generate("mlp", "--batch", 12, *F64),
    "cnn": lambda: generate("cnn", "--batch", 4, *F64),
    "gpt": lambda: generate("gpt", *GPT, "--context", 8),
    "gpt-recompute": lambda: generate("gpt", *GPT, "--context", 8, "--recompute"),
    "llama": lambda: generate("llama", "--layers", 2, "--width", 24, "--heads", 4, "--kv-heads", 2, "--vocab", 17,
                              "--batch", 4, "--seq", 6, *F64),
    "batch-norm": lambda: BATCH_NORM.replace("EVAL_BODY", BODY.replace("MODE", "")).replace(
        "BODY", BODY.replace("MODE", "training")),
    "sums": lambda: SUMS,
}
MESHES = [dict(host=1, data=4), dict(host=2, data=2)]
RANDOM_MESHES = [dict(host=1, data=2), dict(host=3, data=1), dict(host=2, data=2), dict(host=2, data=4)]
# What may stand against splitting a random module.
REFUSALS = re.compile(r"cannot be done in parts|annotations are in conflict|needs a sum of i64|value that all ranks have")


def form(text, folder, *options):
    """{entry: (head, statements)} of the module with its gradients."""
    path = os.path.join(folder, "source.mlir")
    with open(path, "w") as f:
        f.write(text)
    return entries(run([tool("trainc"), path, "--stop-after=gradients", "-o", "-", *options]).stdout)


def mesh_option(axes):
    return "--mesh=" + ",".join(f"{a}={n}" for a, n in axes.items())


def values(rng, shape, element, bound):
    if element.startswith("f"):
        return rng.standard_normal(shape)
    return rng.integers(0, 2 if element == "i1" else bound, shape)


def without_dropout(head, body):
    """An evaluation has no dropout, which becomes its operand, and none inside attention."""
    body = [re.sub(r"nn\.dropout (%\S+) .* : (\S+)", r"nn.stop_gradient \1 : \2", s) for s in body]
    return head, [re.sub(r"(nn\.\w*attention.*) dropout \S+ site \d+", r"\1", s) for s in body]


def compare(what, got, want, largest=0.0):
    got, want = np.float64(got), np.float64(want)
    if got.shape != want.shape:
        raise SystemExit(f"{what}: shape {got.shape}, expected {want.shape}")
    scale = np.nanmax(np.abs(want), initial=largest) or 1.0
    with np.errstate(invalid="ignore"):
        error = np.max(np.where(np.isnan(want) & np.isnan(got) | (got == want), 0, np.abs(got - want)), initial=0) / scale
    if not error <= TOLERANCE:
        raise SystemExit(f"{what}: error {error:.1e}, expected at most {TOLERANCE:.0e}")
    return error


def join(outputs, split, mesh):
    """The tensor of which each rank has what is in `outputs`."""
    shape = [n * mesh.parts(axes) for n, axes in zip(outputs[0].shape, split)]
    whole = np.full(shape, np.nan)
    for rank, part in enumerate(outputs):
        starts = [n * mesh.index(rank, axes) for n, axes in zip(part.shape, split)]
        place = tuple(slice(s, s + n) for s, n in zip(starts, part.shape))
        known = whole[place]
        if not (np.isnan(known) | np.isclose(known, part, rtol=TOLERANCE, atol=TOLERANCE)).all():
            raise SystemExit("ranks that have the same part differ")
        whole[place] = part
    return whole


def output_splits(head, name, rank):
    """The axes of each dimension of an output."""
    match = re.search(r"output_splits = (\[.*\])", head)
    if not match:
        return [[]] * rank
    text = match[1].replace('"', "")
    depth, parts, start = 0, [], 0
    for i, c in enumerate(text):
        depth += (c == "[") - (c == "]")
        if depth == 2 and c == "[":
            start = i
        if depth == 1 and c == "]":
            parts.append(text[start:i + 1])
        if depth == 0:
            break
    number = output_names(head).index(name)
    axes = [[a for a in part.split(", ") if a] for part in re.findall(r"\[([^][]*)\]", parts[number][1:-1])]
    return axes + [[]] * (rank - len(axes))


def check(name, text, axes, folder, bounds=None):
    """Compares the ranks of a mesh with one rank; the largest error."""
    mesh, one = Mesh(axes), Mesh(dict.fromkeys(axes, 1))
    alone, local = form(text, folder, mesh_option(one.axes)), form(text, folder, mesh_option(axes))
    parts, meant = [text], {}
    for entry, (head, body) in alone.items():
        ranks_head = local[entry][0]
        single, wanted = evaluation(f"one_{entry}", *without_dropout(head, body), one)
        several, got = evaluation(f"ranks_{entry}", *without_dropout(*local[entry]), mesh)
        parts += [single, several]
        meant[entry] = parse_inputs(head), ranks_head, wanted, got
    library = compile_module("\n".join(parts), os.path.join(folder, "both.so"), "-O1")
    rng, worst = np.random.default_rng(7), 0.0
    with Trainer(Runtime(RUNTIME_LIBRARY), library, threads=2, seed=3) as trainer:
        for entry, (inputs, head, wanted, got) in meant.items():
            given = {x: values(rng, shape, element, (bounds or {}).get(x) or 4) for x, shape, element, _ in inputs}
            want, have = (trainer.eval(f"{kind}_{entry}", **given) for kind in ("one", "ranks"))
            want = {n.removesuffix("@0"): v for n, v in want.items()}
            # One rank may leave the weight out; it is 1 then.
            if entry == "step":
                want.setdefault("weight", np.float64(1.0))
            names = list(dict.fromkeys(n.rsplit("@", 1)[0] for n in got))
            if set(names) != set(want):
                raise SystemExit(f"{name} {axes}: outputs {names} of {entry}, expected {list(want)}")
            # One gradient or all may be 0 but for rounding (of what a norm takes away; of logits that are all equal).
            largest = max([np.nanmax(np.abs(v), initial=0) for n, v in want.items() if n.startswith("grad.")],
                          default=0)
            largest = max(largest, 1e-3 * np.nan_to_num(np.abs(want.get("loss", 0)), posinf=0))
            for n in names:
                if n in have:
                    value = have[n]
                else:
                    each = [have[f"{n}@{rank}"] for rank in range(len(mesh.ranks))]
                    value = join(each, output_splits(head, n, each[0].ndim) if not n.startswith("buffer.")
                                 else [[]] * each[0].ndim, mesh)
                worst = max(worst, compare(f"{name} {axes}: {n} of {entry}", value, want[n],
                                           largest if n.startswith("grad.") else 0.0))
    return worst


def alone(head, body, mesh, rank):
    """The statements of one rank as those of a program of its own."""
    def position(match):
        return f"nn.constant dense<{mesh.index(rank, re.findall(r'[a-z]+', match[1]))}> : tensor<i64>"

    return [re.sub(r"train\.process_index over (\[.*?\]) : tensor<i64>", position, s) for s in body]


def check_dropout(axes, folder):
    """Every rank's step, run alone, draws its part of the whole's masks."""
    path = os.path.join(folder, "dropout.mlir")
    with open(path, "w") as f:
        f.write(DROPOUT)
    passes = ",".join(["train-assign-random", f"train-set-mesh{{axes={','.join(f'{a}={n}' for a, n in axes.items())}}}",
                       "train-partition"])
    text = run([tool("trainc-opt"), path, f"--pass-pipeline=builtin.module({passes})"]).stdout
    head, body = entries(text)["step"]
    mesh, rng = Mesh(axes), np.random.default_rng(2)
    x = rng.standard_normal((8, 4, 3))
    runtime = Runtime(RUNTIME_LIBRARY)

    def step(module, x):
        library = compile_module(module, os.path.join(folder, "step.so"))
        with Trainer(runtime, library, seed=(1 << 40) + 5) as trainer:
            result = trainer.step(x=x)
            return result.loss * result.weight, result.weight, trainer.read("w", "gradient") * (
                trainer.scalar("read_scale") * trainer.scalar("weight_sum"))

    want = step(DROPOUT, x)
    (_, shape, _, split), = parse_inputs(head)
    total = [0.0, 0.0, 0.0]
    for rank in range(len(mesh.ranks)):
        place = tuple(slice(n * mesh.index(rank, a), n * (mesh.index(rank, a) + 1)) for n, a in zip(shape, split))
        types = "x".join(map(str, shape))
        module = "\n".join([DROPOUT.split("train.step")[0], f"train.step @step(%x: tensor<{types}xf64>) {{",
                            *alone(head, body, mesh, rank), "}"])
        total = [a + b for a, b in zip(total, step(module, x[place]))]
    return max(compare(f"dropout {axes}: {what}", got, w)
               for what, got, w in zip(("loss", "weight", "gradient"), total, want))


def random_case(seed):
    """(text, mesh, bounds) of a random module whose inputs are split at random, or None."""
    rng = random.Random(f"partition {seed}")
    module = valid.module(f"partition {seed}")
    # Nothing that f64 for f32 breaks; draws have sites, which two copies in one module may not share; no rank has all of a
    # gradient that is given.
    if module.narrow or re.search(r"precision|arith.(truncf|extf)|nn.random|gradient\(@|train.constrain", module.text):
        return None
    text = re.sub(r" split\([^)]*\)|train.mesh.*\n", "", module.text).replace("f32", "f64")
    axes = rng.choice(RANDOM_MESHES)
    lines = []
    for line in text.splitlines():
        if re.match(r"train\.(step|eval) ", line):
            def annotate(match):
                if rng.random() < 0.35:
                    return match[0]
                free, split = [a for a, n in axes.items() if n > 1], []
                for n in [int(n) for n in match[1].split("x") if n]:
                    here, left = [], n
                    while free and left % axes[free[0]] == 0 and rng.random() < 0.8:
                        left //= axes[free[0]]
                        here.append(free.pop(0))
                    split.append(f"[{', '.join(here)}]")
                return match[0] + (f" split({', '.join(split)})" if any(s != "[]" for s in split) else "")
            head, clauses = line.split(")", 1)
            line = re.sub(r"tensor<((?:\d+x)*)\w+>", annotate, head) + ")" + clauses
        lines.append(line)
    bounds = {name: bound for inputs in module.inputs.values() for name, (_, _, bound) in inputs.items() if bound}
    return "\n".join(["train.mesh @mesh(host = 1, data = 1)", *lines, ""]), axes, bounds


def check_random(count, seed):
    """Random modules until `count` of them were compared."""
    compared = refused = number = 0
    worst = 0.0
    while compared < count:
        number += 1
        case = random_case(f"{seed} {number}")
        if not case:
            continue
        text, axes, bounds = case
        used = [a for a, n in axes.items() if n > 1]
        step = next(line for line in text.splitlines() if line.startswith("train.step"))
        if not all(re.search(rf"[\[ ]{a}[\],]", step) for a in used):
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                form(text, folder, mesh_option(axes))
            except Failed as error:
                if not REFUSALS.search(str(error)):
                    raise SystemExit(f"random module {seed} {number}: {error}") from None
                refused += 1
                continue
            worst = max(worst, check(f"random module {seed} {number}", text, axes, folder, bounds))
            compared += 1
    print(f"{compared} random modules, {refused} that cannot be split: {worst:.1e}", flush=True)
    if refused > 5 * compared:
        raise SystemExit("too few random modules can be split")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--random", type=int, default=20)
    p.add_argument("--seed", default="1")
    p.add_argument("--show", metavar="NUMBER")
    p.add_argument("models", nargs="*", metavar="MODEL")
    o = p.parse_args()
    if o.show:
        case = random_case(f"{o.seed} {o.show}")
        print(case and f"// {mesh_option(case[1])}\n{case[0]}")
        return
    for model in o.models or MODELS:
        text = MODELS[model]()
        for axes in MESHES:
            with tempfile.TemporaryDirectory() as folder:
                print(f"{model:14} {mesh_option(axes):22} {check(model, text, axes, folder):.1e}", flush=True)
    if not o.models:
        for axes in MESHES:
            with tempfile.TemporaryDirectory() as folder:
                print(f"{'dropout':14} {mesh_option(axes):22} {check_dropout(axes, folder):.1e}", flush=True)
        check_random(o.random, o.seed)


if __name__ == "__main__":
    main()
