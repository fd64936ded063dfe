# REQUIRES: numpy
# RUN: %python %s
"""Compares the draws of nn.random with those of its definition in NumPy: shapes, types, steps, gradients and evals, on
processors and on the GPU of tests; and that a window behind a skipped one does not draw that one's numbers again.

The gradient of a parameter of ones that is multiplied by the draws is the draws.
"""
import os
import sys
import tempfile

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench"))

from common import BUILD, RUNTIME_LIBRARY, compile_module  # noqa: E402
from oracle.philox import bernoulli, dropout, normal, uniform  # noqa: E402
from trainc_ctypes import Runtime, Trainer  # noqa: E402

for variable, name in (("TRAINC_LIBCUDA", "cuda"), ("TRAINC_LIBCUBLASLT", "cublaslt")):
    os.environ[variable] = os.path.join(BUILD, "lib", f"libtrainc_fake_{name}.so")

SEED, ACCUMULATE = (1 << 40) + 3, 2
SHAPES = {"a": (7, 13), "b": (1, 1), "c": (2, 1, 3, 5), "d": (1031,)}
BITS = {"f64": 32, "f32": 24, "bf16": 8, "f16": 11}
KINDS = {"uniform": uniform, "normal": normal, "bernoulli p 0.3": bernoulli}


def cases():
    return [(f"{name}_{kind.split()[0]}", kind, "x".join(map(str, shape))) for kind in KINDS for name, shape in SHAPES.items()]


def module(element):
    params, lines, total, read = [], [], [], []
    for name, kind, dims in cases():
        params.append(f"train.param @{name} : tensor<{dims}x{element}> init(ones) optimizer(@o)")
        lines += [f"  %{name} = train.read @{name} : tensor<{dims}x{element}>", f"  %r_{name} = nn.random {kind} : tensor<{dims}x{element}>",
                  f"  %p_{name} = nn.mul %{name}, %r_{name} : tensor<{dims}x{element}>, tensor<{dims}x{element}>",
                  f"  %s_{name} = nn.reduce sum %p_{name} dims [{', '.join(map(str, range(dims.count('x') + 1)))}] : tensor<{dims}x{element}>",
                  f"  %l_{name} = nn.cast %s_{name} to f64 : tensor<{element}>"]
        total.append(f"%l_{name}")
    loss = total[0]
    for i, term in enumerate(total[1:]):
        lines.append(f"  %t{i} = nn.add {loss}, {term} : tensor<f64>, tensor<f64>")
        loss = f"%t{i}"
    for i, (name, kind, dims) in enumerate(cases()):
        read.append(f"  %e{i} = nn.random {kind} : tensor<{dims}x{element}>")
    results = ", ".join(f"%e{i}" for i in range(len(read)))
    types = ", ".join(f"tensor<{dims}x{element}>" for _, _, dims in cases())
    names = ", ".join(f'"{name}"' for name, _, _ in cases())
    return "\n".join(["train.optimizer @o = sgd<lr = 0.0>", *params, f"train.step @step() accumulate({ACCUMULATE}) {{", *lines,
                      f"  train.yield loss({loss}) : tensor<f64>", "}", f"train.eval @eval() -> ({names}) {{", *read,
                      f"  train.yield {results} : {types}", "}"])


def drawn(element, kind, dims, *where):
    shape, bits = tuple(map(int, dims.split("x"))), BITS[element]
    if kind.startswith("bernoulli"):
        return bernoulli(shape, 0.3, SEED, *where)
    return KINDS[kind](shape, bits if kind == "uniform" else max(bits, 24), SEED, *where)


def compare(trainer, element, what):
    bar = {"f64": 1e-14, "f32": 1e-6, "bf16": 2**-8, "f16": 2**-11}[element]

    def check(name, got, want, scale):
        wrong = ~np.isclose(got, want, rtol=bar, atol=bar * scale)
        if wrong.any():
            raise SystemExit(f"{what}, {name}: {wrong.sum()} of {wrong.size} draws differ, {got[wrong][:3]}, expected {want[wrong][:3]}")

    for step in range(2 * ACCUMULATE):
        update, micro_step = divmod(step, ACCUMULATE)
        trainer.step()
        for site, (name, kind, dims) in enumerate(cases()):
            want = sum(drawn(element, kind, dims, site, update, m) for m in range(micro_step + 1))
            check(f"{name}, micro-step {step}", trainer.read(name, role="gradient"), want, 4 * (micro_step + 1))
    for _ in range(2):
        results = trainer.eval("eval")
        for site, (name, kind, dims) in enumerate(cases(), len(cases())):
            check(f"eval of {name}", results[name], drawn(element, kind, dims, site, 2, 0), 4)


SKIPPING = """train.optimizer @o = sgd<lr = 0.0>
train.param @w : tensor<7x13xf32> init(ones) optimizer(@o)
train.step @step(%factor: tensor<f32>) -> ("noise", "dropped") accumulate(2) {
  %w = train.read @w : tensor<7x13xf32>
  %noise = nn.random uniform : tensor<7x13xf32>
  %d = nn.dropout %w rate 0.25 : tensor<7x13xf32>
  %l = nn.reduce sum %d dims [0, 1] : tensor<7x13xf32>
  %s = nn.mul %l, %factor : tensor<f32>, tensor<f32>
  train.yield %noise, %d loss(%s) : tensor<7x13xf32>, tensor<7x13xf32>, tensor<f32>
}
train.eval @eval() -> ("noise") {
  %noise = nn.random uniform : tensor<7x13xf32>
  train.yield %noise : tensor<7x13xf32>
}
"""


def compare_skipped(trainer, what):
    """Windows are counted whether they are skipped or not."""
    def check(name, got, want):
        if not np.array_equal(got, want.astype(np.float32)):
            raise SystemExit(f"{what}, {name}: {got[0, :3]}, expected {want[0, :3]}")

    for window, factor in enumerate((1, np.inf, np.inf, 1, 1)):
        for micro_step in range(2):
            where = window, micro_step
            result = trainer.step(factor=np.float32(factor))
            outputs = trainer.outputs()
            check(f"noise of {where}", outputs["noise"], uniform((7, 13), 24, SEED, 0, *where))
            check(f"dropout of {where}", outputs["dropped"], dropout((7, 13), 0.25, SEED, 1, *where).astype(np.float32))
        check(f"eval behind window {window}", trainer.eval("eval")["noise"], uniform((7, 13), 24, SEED, 2, window + 1, 0))
    if (result.update, result.skipped) != (3, 2):
        raise SystemExit(f"{what}: {result.skipped} windows skipped, expected 2")


def main():
    runtime = Runtime(RUNTIME_LIBRARY)
    with tempfile.TemporaryDirectory() as folder:
        for element in BITS:
            path = compile_module(module(element), os.path.join(folder, f"{element}.so"), "--target=cuda,cpu", "--cuda-arch=host")
            for device in (b"cpu", b"cuda"):
                with Trainer(runtime, path, seed=SEED, device=device) as trainer:
                    compare(trainer, element, f"{element} on {device.decode()}")
        path = compile_module(SKIPPING, os.path.join(folder, "skipping.so"), "--target=cuda,cpu", "--cuda-arch=host")
        for device in (b"cpu", b"cuda"):
            with Trainer(runtime, path, seed=SEED, device=device) as trainer:
                compare_skipped(trainer, f"skipped windows on {device.decode()}")


if __name__ == "__main__":
    main()
