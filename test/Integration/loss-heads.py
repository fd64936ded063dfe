# REQUIRES: numpy
# RUN: %python %s
"""Losses and gradients of linear_cross_entropy over several chunks of rows are those of the definition, computed by NumPy in f64:
of each element type, with smoothing, ignored rows, weights, a window, a weight that an embedding or another head reads too; memory
does not grow with the number of rows. Computed targets outside of the classes, on processors and on the GPU of tests, whose logits
have columns behind the classes: such a row counts, and has no loss and no gradient."""
import os
import re
import subprocess
import sys
import tempfile

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(ROOT, "test", "Integration", "Inputs")]

from common import BUILD, RUNTIME_LIBRARY, compile_module, largest, tool  # noqa: E402
from report import check  # noqa: E402
from trainc_ctypes import Runtime, Trainer  # noqa: E402

for variable, name in (("TRAINC_LIBCUDA", "cuda"), ("TRAINC_LIBCUBLASLT", "cublaslt")):
    os.environ[variable] = os.path.join(BUILD, "lib", f"libtrainc_fake_{name}.so")
ROWS, SIZE, CLASSES = 1100, 24, 4096  # chunks of 576 and 524 rows


def module(element="f32", joined=True, transposed=True, smoothing=0.0, ignored=-100, weights=False, bias=False, cast=False, tied=False,
           second=None, accumulate=1, rows=ROWS):
    """`joined`: the source says nn.linear_cross_entropy; else a product, with `cast` a cast, and nn.cross_entropy. `second`: the scale
    of what another head of the same weight sees, whose loss is added."""
    wide = "f64" if element == "f64" else "f32"
    table = f"tensor<{CLASSES}x{SIZE}x{wide}>" if transposed else f"tensor<{SIZE}x{CLASSES}x{wide}>"
    cell = f"tensor<{SIZE}x{SIZE}x{wide}>"
    flag = " transpose_weight" if transposed else ""
    attributes = f"{{ignore_index = {ignored} : i64, label_smoothing = {smoothing!r} : f64}}"
    with_weights = (" weights %r", f", tensor<{rows}xf32>") if weights else ("", "")
    with_bias = (" bias %b", f" bias tensor<{CLASSES}x{element}>") if bias else ("", "")
    body, ty = [], lambda text: text.replace(f"x{wide}>", f"x{element}>")
    if element != wide:
        body = [f"%a2 = nn.cast %a to {element} : {cell}", f"%w2 = nn.cast %w to {element} : {table}"]
        body += [] if tied else [f"%x2 = nn.cast %x to {element} : tensor<{rows}x{SIZE}x{wide}>"]
    x = "%x2" if body and not tied else "%x"
    a, w = ("%a2", "%w2") if body else ("%a", "%w")
    if tied:
        body += [f"%x = nn.embedding {w}, %y : {ty(table)}, tensor<{rows}xi32>"]
    hidden = f"tensor<{rows}x{SIZE}x{element}>"
    body += [f"%h = nn.matmul {x}, {a} : {hidden}, {ty(cell)}"]
    head = len(body)
    if joined:
        body += [f"%loss, %n = nn.linear_cross_entropy %h, {w}, %y{with_bias[0]}{with_weights[0]}{flag} {attributes} : "
                 f"tensor<{rows}x{SIZE}x{element}>, {ty(table)}, tensor<{rows}xi32>{with_bias[1]}{with_weights[1]}"]
    else:
        body += [f"%l = nn.matmul %h, {w}{' transpose_rhs' if transposed else ''} : tensor<{rows}x{SIZE}x{element}>, {ty(table)}"]
        logits = "%l", element
        if cast:
            body += [f"%c = nn.cast %l to {wide} : tensor<{rows}x{CLASSES}x{element}>"]
            logits = "%c", wide
        body += [f"%loss, %n = nn.cross_entropy {logits[0]}, %y{with_weights[0]} {attributes} : "
                 f"tensor<{rows}x{CLASSES}x{logits[1]}>, tensor<{rows}xi32>{with_weights[1]}"]
    if second:
        body += [re.sub(r"%(h|l|c|loss|n)\b", r"%\1_2", line) for line in body[head:]]
        body.insert(head, f"%s = nn.constant dense<{second}> : tensor<{element}>\n%h_2 = nn.mul %h, %s : {hidden}, tensor<{element}>")
        body += [f"%both = nn.add %loss, %loss_2 : tensor<{wide}>, tensor<{wide}>"]
    inputs = ([] if tied else [f"%x: tensor<{rows}x{SIZE}x{wide}>"]) + [f"%y: tensor<{rows}xi32>"] + (
        [f"%r: tensor<{rows}xf32>"] if weights else [])
    return "\n".join([
        "train.optimizer @o = sgd<lr = 1.0>",
        f"train.param @a : {cell} init(normal<0.3>) optimizer(@o)",
        f"train.param @w : {table} init(normal<0.3>) optimizer(@o)",
        *([f"train.param @b : tensor<{CLASSES}x{wide}> init(normal<0.3>) optimizer(@o)"] if bias else []),
        f"train.step @step({', '.join(inputs)}) accumulate({accumulate}) {{",
        f"%a = train.read @a : {cell}", f"%w = train.read @w : {table}",
        *([f"%b = train.read @b : tensor<{CLASSES}x{wide}>"] if bias else []), *body,
        f"train.yield loss(%{'both' if second else 'loss'}) weight(%n) : tensor<{wide}>, tensor<{wide}>", "}"])


def definition(a, w, b, batches, transposed=True, smoothing=0.0, ignored=-100, tied=False, second=None, **_):
    """(loss, gradients of a, w and the bias) of the mean over all batches, in f64."""
    if second:
        first, other = (definition(a * scale, w, b, batches, transposed, smoothing, ignored, tied) for scale in (1.0, second))
        return tuple(one + scale * another for one, another, scale in zip(first, other, (1.0, second, 1.0, 1.0)))
    da, dw, db, loss, count = np.zeros_like(a), np.zeros_like(w), np.zeros_like(b), 0.0, 0.0
    table = w if transposed else w.T
    for x, y, r in batches:
        x = table[y] if tied else x
        logits = x @ a @ table.T + b
        top = logits.max(1, keepdims=True)
        lp = logits - top - np.log(np.exp(logits - top).sum(1, keepdims=True))
        counts = np.where(y != ignored, r.astype(float), 0.0)
        target = np.full_like(lp, smoothing / CLASSES)
        target[np.arange(len(y)), np.where(y == ignored, 0, y)] += 1 - smoothing
        loss += (counts * -(target * lp).sum(1)).sum()
        count += counts.sum()
        g = counts[:, None] * (np.exp(lp) - target)
        table_gradient = g.T @ (x @ a)
        da += x.T @ g @ table
        db += g.sum(0)
        if tied:
            np.add.at(table_gradient, y, g @ table @ a.T)
        dw += table_gradient if transposed else table_gradient.T
    return loss / count, da / count, dw / count, db / count


def measured(text, folder, batches, *options):
    """(loss, gradients of the parameters), and their values before."""
    path = compile_module(text, os.path.join(folder, "head.so"), *options)
    with Trainer(Runtime(RUNTIME_LIBRARY), path, threads=2, seed=1) as trainer:
        parameters = re.findall(r"train.param @(\w)", text)
        before = [trainer.read(name).copy() for name in parameters]
        names = re.findall(r"%(\w): ", text.split("train.step")[1].split("{")[0])
        for batch in batches:
            result = trainer.step(**{name: value for name, value in zip("xyr", batch) if name in names})
        loss = result.window_loss
        after = [trainer.read(name) for name in parameters]
    return (loss, *(b - a for a, b in zip(after, before))), before


def workspace(text, folder, *options):
    path = os.path.join(folder, "m.mlir")
    with open(path, "w") as f:
        f.write(text)
    commands = subprocess.run([tool("trainc"), path, "--stop-after=commands", *options, "-o", "-"], capture_output=True, text=True,
                              check=True).stdout
    return int(re.search(r"workspace\((\d+)\)", commands).group(1))


OUTSIDE = """
train.optimizer @o = sgd<lr = 1.0>
train.param @w : tensor<101x16xf32> init(normal<0.3>) optimizer(@o)
train.step @step(%x: tensor<12x16xf32>, %t: tensor<12xi32>) {{
  %w = train.read @w : tensor<101x16xf32>
  %one = nn.constant dense<1> : tensor<i32>
  %y = nn.sub %t, %one : tensor<12xi32>, tensor<i32>
  %loss, %n = nn.linear_cross_entropy %x, %w, %y transpose_weight {{ignore_index = {0} : i64}} :
    tensor<12x16xf32>, tensor<101x16xf32>, tensor<12xi32>
  train.yield loss(%loss) weight(%n) : tensor<f32>, tensor<f32>
}}
"""


def outside(ignored, folder):
    """How far off the loss and the gradient of each device are, with targets on both sides of the classes."""
    rng = np.random.default_rng(9)
    x, y = rng.standard_normal((12, 16)).astype(np.float32), np.array([-100, -2, 0, 8, 100, 101, 110, 127, 128, 130, 200, ignored])
    path = compile_module(OUTSIDE.format(ignored), os.path.join(folder, "outside.so"), "--target=cuda,cpu", "--cuda-arch=host")
    errors = []
    for device in (b"cpu", b"cuda"):
        with Trainer(Runtime(RUNTIME_LIBRARY), path, threads=1, seed=1, device=device) as trainer:
            before = trainer.read("w").astype(float)
            loss = trainer.step(x=x, t=(y + 1).astype(np.int32)).loss
            gradient = before - trainer.read("w")
        lp = x @ before.T
        lp -= np.log(np.exp(lp).sum(1, keepdims=True))
        target, counts = np.arange(101) == y[:, None], y != ignored
        wanted = -(target * lp)[counts].sum() / counts.sum()
        slope = (np.exp(lp) * target.any(1, keepdims=True) - target)[counts].T @ x[counts] / counts.sum()
        errors += [abs(loss - wanted), np.abs(gradient - slope).max()]
    return errors


CASES = {
    "f32": {}, "f64": dict(element="f64"), "bf16": dict(element="bf16"), "f16": dict(element="f16"),
    "product and loss": dict(joined=False), "bf16, widened": dict(element="bf16", joined=False, cast=True),
    "weight as it is": dict(transposed=False), "smoothing": dict(element="f64", smoothing=0.1),
    "ignored rows": dict(element="f64", ignored=7), "weights": dict(element="f64", weights=True, ignored=7, smoothing=0.1),
    "bias": dict(element="f64", bias=True, accumulate=2, smoothing=0.1),
    "window": dict(element="f64", accumulate=3), "window, bf16": dict(element="bf16", accumulate=2),
    "tied": dict(element="f64", tied=True, accumulate=2),
    "two of one weight": dict(element="f64", second=0.5, transposed=False), "two alike": dict(element="f64", second=1.0),
    "two products of one weight": dict(joined=False, second=0.5, accumulate=2), "two products, bf16": dict(element="bf16", joined=False, second=0.5),
}
# Relative to the largest: what a unit in the last place of each type makes of such sums.
BARS = {"f64": 1e-13, "f32": 2e-5, "bf16": 2e-2, "f16": 3e-3}


def main():
    bad = 0
    for name, case in CASES.items():
        rng, element = np.random.default_rng(5), case.get("element", "f32")
        batches = []
        for _ in range(case.get("accumulate", 1)):
            y = rng.integers(0, CLASSES, ROWS)
            y[::9] = case.get("ignored", y[0])
            x = rng.standard_normal((ROWS, SIZE))
            if element == "bf16":
                x = (x.astype(np.float32).view(np.uint32) & 0xffff0000).view(np.float32)
            elif element == "f16":
                x = x.astype(np.float16).astype(np.float32)
            r = rng.random(ROWS).astype(np.float32) if case.get("weights") else np.ones(ROWS)
            batches.append((x, y, r))
        with tempfile.TemporaryDirectory() as folder:
            found, before = measured(module(**case), folder, batches)
        a, w, b = (*(value.astype(float) for value in before), np.zeros(CLASSES))[:3]
        wanted = definition(a, w, b, batches, **case)
        errors = [abs(np.asarray(one) - other).max() / abs(np.asarray(other)).max() for one, other in zip(found, wanted)]
        text = ", ".join(f"{error:.1e}" for error in errors)
        bad += check(f"{name}: loss and gradients off by {text} (bar {BARS[element]:.0e})", largest(errors) <= BARS[element])
    for ignored in (-100, -1, 8, 110, 127, 128, 200):
        with tempfile.TemporaryDirectory() as folder:
            errors = outside(ignored, folder)
        bad += check(f"computed targets outside of the classes, {ignored} is ignored: off by {max(errors):.1e} (bar 1e-06)", largest(errors) <= 1e-6)
    with tempfile.TemporaryDirectory() as folder:
        few, many = (workspace(module(rows=rows), folder) for rows in (2048, 8192))
    bad += check(f"workspace of 2048 and 8192 rows: {few} and {many} bytes", many - few <= 4 * 6144 * (3 * SIZE + 8))
    apart = module(joined=False, rows=8192)
    rng, left_out = np.random.default_rng(7), "--disable-pass=train-form-loss-heads"
    batches = [(rng.standard_normal((8192, SIZE)), rng.integers(0, CLASSES, 8192), np.ones(8192))]
    with tempfile.TemporaryDirectory() as folder:
        whole = workspace(apart, folder, left_out)
        losses = [measured(apart, folder, batches, *options)[0][0] for options in ((), (left_out,))]
    bad += check(f"without heads: losses {losses[0]} and {losses[1]}, workspace {whole} bytes",
                 losses[0] == losses[1] and whole - many >= 4 * CLASSES * (8192 - 1024))
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
