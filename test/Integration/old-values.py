# REQUIRES: numpy
# RUN: %python %s
"""What a step reads of a buffer before it writes there is what stood there before, however it is written: two buffers swapped, a history,
outputs from before, sums in place beside other readers. What it reads behind a write is the value written, with its gradient; and of what it
writes twice the last value stays; on processors with and without optimizations, and on the GPU of tests."""
import os
import sys
import tempfile

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(ROOT, "test", "Integration", "Inputs")]

from common import BUILD, RUNTIME_LIBRARY, compile_module, largest  # noqa: E402
from report import check  # noqa: E402
from trainc_ctypes import Runtime, Trainer  # noqa: E402

for variable, name in (("TRAINC_LIBCUDA", "cuda"), ("TRAINC_LIBCUBLASLT", "cublaslt")):
    os.environ[variable] = os.path.join(BUILD, "lib", f"libtrainc_fake_{name}.so")

N, STEPS = 16, 3
T = f"tensor<{N}x{N}xf32>"
MODULE = f"""
train.optimizer @o = sgd<lr = 0.5>
train.param @w : {T} init(normal<0.3>) optimizer(@o)
train.buffer @g : {T} init(normal<0.3>)
train.buffer @h : {T} init(normal<0.3>)
train.step @step(%x: {T}, %y: {T})OUTPUTS {{
  %w = train.read @w : {T}
  %g = train.read @g : {T}
  %h = train.read @h : {T}
BODY
  %p = nn.matmul %x, %w : {T}, {T}
  %loss, %n = nn.mse %p, %y : {T}, {T}
WRITES
  train.yield YIELDEDloss(%loss) weight(%n) : TYPEStensor<f32>, tensor<f32>
}}
"""
OPERATIONS = {"add": "nn.add %{}, %{} : {T}, {T}", "sub": "nn.sub %{}, %{} : {T}, {T}", "dot": "nn.matmul %{}, %{} : {T}, {T}",
              "read": "train.read @{} : {T}", "softmax": "nn.softmax %{} dim {} : {T}"}
# Values, as name: (operation, operands), and writes among them; what is written to which buffer at the end, in order; outputs.
CASES = {
    "history": ({}, [("x", "g"), ("g", "h")], []),
    "history, the other way": ({}, [("g", "h"), ("x", "g")], []),
    "swap": ({}, [("g", "h"), ("h", "g")], []),
    "butterfly": ({"s": ("add", "g", "h"), "d": ("sub", "g", "h")}, [("s", "h"), ("d", "g")], ["g", "h", "s"]),
    "output from before": ({}, [("x", "g")], ["g"]),
    "sum in place": ({"m": ("dot", "x", "y"), "s": ("add", "g", "m")}, [("s", "g")], ["s"]),
    "sum and output from before": ({"m": ("dot", "x", "y"), "s": ("add", "g", "m")}, [("s", "g")], ["s", "g"]),
    "sum beside another reader": ({"k": ("read", "g"), "m": ("dot", "x", "y"), "r": ("sub", "k", "y"), "s": ("add", "g", "m")},
                                  [("s", "g"), ("r", "h")], []),
    "sum of its own product": ({"k": ("read", "g"), "m": ("dot", "k", "y"), "s": ("add", "g", "m")}, [("s", "g")], []),
    "sums of two products, the later first": ({"a": ("dot", "x", "y"), "b": ("dot", "y", "x"), "c": ("add", "b", "a"),
                                              "s": ("add", "g", "c")}, [("s", "g")], []),
    "two softmaxes": ({"s": ("softmax", "g", 1), "!": ("write", "s", "g"), "r": ("read", "g"), "t": ("softmax", "r", 0)},
                      [("t", "g")], ["s"]),
    "two products": ({"m": ("dot", "x", "y"), "!": ("write", "m", "g"), "r": ("read", "g"), "q": ("dot", "r", "y")}, [("q", "g")], []),
    "a sum to two, then its product to one": ({"s": ("add", "g", "x"), "!": ("write", "s", "g"), "m": ("dot", "s", "y")},
                                              [("s", "h"), ("m", "g")], []),
    "a value that the next one does not need": ({"s": ("softmax", "g", 1), "!": ("write", "s", "g"), "t": ("softmax", "x", 0),
                                                 "m": ("dot", "s", "t")}, [("m", "h"), ("t", "g")], []),
    "a product added to another buffer's copy": ({"!": ("write", "h", "g"), "r": ("read", "g"), "m": ("dot", "x", "y"),
                                                 "s": ("add", "r", "m")}, [("s", "g")], []),
    "a product added to an input's copy": ({"!": ("write", "x", "g"), "r": ("read", "g"), "m": ("dot", "x", "y"), "s": ("add", "r", "m")},
                                           [("s", "g")], []),
    "shift by products": ({"m": ("dot", "g", "h")}, [("m", "g"), ("g", "h")], ["h"]),
}
# Two scalars, each of which takes what the other was.
SCALARS = """
train.optimizer @o = sgd<lr = 0.1>
train.param @a : tensor<4xf32> init(ones) optimizer(@o)
train.buffer @g : tensor<f32> init(constant<3.0>)
train.buffer @h : tensor<f32> init(constant<5.0>)
train.step @step(%x: tensor<4xf32>) {
  %a = train.read @a : tensor<4xf32>
  %g = train.read @g : tensor<f32>
  %h = train.read @h : tensor<f32>
  %n = nn.neg %h : tensor<f32>
  %e = nn.exp %n : tensor<f32>
  %s = nn.add %g, %e : tensor<f32>, tensor<f32>
  train.write %n to @g : tensor<f32>
  train.write %s to @h : tensor<f32>
  %z = nn.mul %x, %a : tensor<4xf32>, tensor<4xf32>
  %l = nn.reduce sum %z dims [0] : tensor<4xf32>
  train.yield loss(%l) : tensor<f32>
}
"""
# The loss is (5 w + w) 4, of the value that was there before the step 3 + w.
NEW = """
train.optimizer @o = sgd<lr = 1.0>
train.param @w : tensor<4xf32> init(constant<2.0>) optimizer(@o)
train.buffer @g : tensor<4xf32> init(constant<3.0>)
train.step @step(%x: tensor<4xf32>) {
  %w = train.read @w : tensor<4xf32>
  %m = nn.mul %w, %x : tensor<4xf32>, tensor<4xf32>
  train.write %m to @g : tensor<4xf32>
  %q = train.recompute -> tensor<4xf32> {
    %r = train.read @g : tensor<4xf32>
    %a = nn.add %r, %w : tensor<4xf32>, tensor<4xf32>
    train.yield %a : tensor<4xf32>
  }
  %s = nn.reduce sum %q dims [0] : tensor<4xf32>
  train.yield loss(%s) : tensor<f32>
}
"""
CONFIGURATIONS = {"": [], "--reference": ["--reference"], "unfused": ["--disable-pass=fuse-kernels"], "cuda": ["--target=cuda", "--cuda-arch=host"]}


def module(values, writes, outputs):
    def operation(kind, *operands):
        return OPERATIONS[kind].format(*operands, T=T)

    def write(value, buffer):
        return f"  train.write %{value} to @{buffer} : {T}"

    names = [f"old_{name}" for name in outputs]
    return (MODULE.replace("BODY", "\n".join(write(*value[1:]) if value[0] == "write" else f"  %{name} = {operation(*value)}"
                                             for name, value in values.items()))
            .replace("WRITES", "\n".join(write(*pair) for pair in writes))
            .replace("OUTPUTS", " -> (%s)" % ", ".join(f'"{n}"' for n in names) if names else "")
            .replace("YIELDED", "".join(f"%{name}, " for name in outputs)[:-2] + " " if names else "").replace("TYPES", f"{T}, " * len(names)))


def expected(buffers, batch, values, writes, outputs):
    """The buffers and outputs of a step, in f64."""
    def softmax(a, dim):
        powers = np.exp(a)
        return powers / powers.sum(dim, keepdims=True)

    seen, state = {**buffers, **batch}, dict(buffers)
    for name, (kind, *operands) in values.items():
        a, b = seen.get(operands[0]), seen.get(operands[-1])
        if kind == "write":
            state[operands[1]] = a
        else:
            seen[name] = (state[operands[0]] if kind == "read" else softmax(a, operands[1]) if kind == "softmax" else
                          a @ b if kind == "dot" else a + b if kind == "add" else a - b)
    return {**state, **{buffer: seen[value] for value, buffer in writes}}, [seen[name] for name in outputs]


def error(found, wanted):
    return abs(found - wanted).max() / (abs(wanted).max() + 1)


def check_scalars(configuration, options):
    g, h = 3.0, 5.0
    with tempfile.TemporaryDirectory() as folder:
        path = compile_module(SCALARS, os.path.join(folder, "m.so"), *options)
        with Trainer(Runtime(RUNTIME_LIBRARY), path, threads=2, seed=1) as trainer:
            for _ in range(STEPS):
                trainer.step(x=np.ones(4, np.float32))
                g, h = -h, g + np.exp(-h)
            worst = largest(error(trainer.read(b, "buffer"), np.asarray(wanted)) for b, wanted in (("g", g), ("h", h)))
    return check(f"scalars {configuration}: off by {worst:.1e}", worst < 1e-5)


def check_new(configuration, options):
    with tempfile.TemporaryDirectory() as folder:
        path = compile_module(NEW, os.path.join(folder, "m.so"), *options)
        with Trainer(Runtime(RUNTIME_LIBRARY), path, threads=2, seed=1) as trainer:
            loss = trainer.step(x=np.full(4, 5, np.float32)).loss
            gradient, kept = 2 - trainer.read("w"), trainer.read("g", "buffer")
    return check(f"gradient of a new value {configuration}: {gradient} of loss {loss}", loss == 48 and (gradient == 6).all() and (kept == 10).all())


def main():
    bad = sum(check_scalars(*item) + check_new(*item) for item in CONFIGURATIONS.items())
    for name, case in CASES.items():
        for configuration, options in CONFIGURATIONS.items():
            rng, worst = np.random.default_rng(3), 0.0
            with tempfile.TemporaryDirectory() as folder:
                path = compile_module(module(*case), os.path.join(folder, "m.so"), *options)
                with Trainer(Runtime(RUNTIME_LIBRARY), path, threads=2, seed=1) as trainer:
                    buffers = {b: trainer.read(b, "buffer").astype(float) for b in ("g", "h")}
                    for _ in range(STEPS):
                        batch = {k: rng.standard_normal((N, N), np.float32) / 4 for k in ("x", "y")}
                        trainer.step(**batch)
                        buffers, outputs = expected(buffers, batch, *case)
                        found = trainer.outputs() if case[2] else {}
                        worst = largest([worst, *(error(trainer.read(b, "buffer"), buffers[b]) for b in buffers),
                                     *(error(found[f"old_{n}"], wanted) for n, wanted in zip(case[2], outputs))])
            bad += check(f"{name} {configuration}: off by {worst:.1e}", worst < 1e-5)
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
