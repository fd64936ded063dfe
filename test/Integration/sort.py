# REQUIRES: numpy
# RUN: %python %s
"""Sorts against NumPy's stable sort: ties, NaN, infinities and zeros of both signs, every dimension and type, sizes around
powers of two; on processors, by definitions, and on the GPU of tests.
"""
import os
import sys
import tempfile

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench"))

from common import BUILD, RUNTIME_LIBRARY, compile_module  # noqa: E402
from trainc_ctypes import Runtime, Trainer  # noqa: E402

for variable, name in (("TRAINC_LIBCUDA", "cuda"), ("TRAINC_LIBCUBLASLT", "cublaslt")):
    os.environ[variable] = os.path.join(BUILD, "lib", f"libtrainc_fake_{name}.so")

RNG = np.random.default_rng(5)
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0]
TYPES = {"f64": np.float64, "f32": np.float32, "bf16": np.float32, "f16": np.float32, "i8": np.int8, "i64": np.int64}
SHAPES = [((1,), 0), ((2,), 0), ((9,), 0), ((64, 3), 0), ((5, 129), 1), ((3, 17, 4), 1), ((700, 7), 1), ((2, 5000), 1)]
# Options, the device, shapes: without the longest on GPUs, where each element is compared with all others.
RUNS = [([], b"cpu", SHAPES), (["--target=cuda,cpu", "--cuda-arch=host"], b"cuda", SHAPES[:-1]), (["--reference"], b"cpu", SHAPES)]


def values_of(element, shape):
    """Few different ones, so that there are ties."""
    if element.startswith("i"):
        return RNG.integers(-5, 6, shape).astype(TYPES[element])
    return RNG.choice([*SPECIAL, *np.arange(-8, 9) / 4], shape).astype(TYPES[element])


def sorted_by_numpy(x, dim, descending):
    """(values, indices, positions) of a stable sort; descending is ascending from behind, of which ties turn round."""
    if not descending:
        indices = np.argsort(x, dim, kind="stable")
    else:
        last = x.shape[dim] - 1
        indices = np.flip(last - np.argsort(np.flip(x, dim), dim, kind="stable"), dim)
    return np.take_along_axis(x, indices, dim), indices, np.argsort(indices, dim)


def module(element, cases):
    inputs, lines, results = [], [], []
    for i, (shape, dim, descending) in enumerate(cases):
        dims = "x".join(map(str, shape))
        given = "f32" if element in ("bf16", "f16") else element
        inputs.append(f"%g{i}: tensor<{dims}x{given}>")
        lines.append(f"  %x{i} = nn.cast %g{i} to {element} : tensor<{dims}x{given}>")
        lines.append(f"  %r{i}:3 = nn.sort %x{i} dim {dim}{' descending' * descending} : tensor<{dims}x{element}>")
        results += [(f"%r{i}#{k}", f"tensor<{dims}x{e}>", f"{i}.{k}") for k, e in enumerate((element, "i32", "i32"))]
    names, types, labels = zip(*results)
    quoted = ", ".join(f'"{label}"' for label in labels)
    return f"""
train.optimizer @o = sgd<lr = 0.0>
train.param @w : tensor<f32> init(zeros) optimizer(@o)
train.step @step() {{
  %w = train.read @w : tensor<f32>
  train.yield loss(%w) : tensor<f32>
}}
train.eval @eval({", ".join(inputs)}) -> ({quoted}) {{
""" + "\n".join(lines) + f"""
  train.yield {", ".join(names)} : {", ".join(types)}
}}
"""


def main():
    runtime = Runtime(RUNTIME_LIBRARY)
    with tempfile.TemporaryDirectory() as folder:
        for element in TYPES:
            for options, device, shapes in RUNS:
                cases = [(*case, descending) for case in shapes for descending in (False, True)]
                given = {f"g{i}": values_of(element, shape) for i, (shape, _, _) in enumerate(cases)}
                path = compile_module(module(element, cases), os.path.join(folder, "sort.so"), *options)
                with Trainer(runtime, path, device=device) as trainer:
                    results = trainer.eval("eval", **given)
                for i, (shape, dim, descending) in enumerate(cases):
                    want = sorted_by_numpy(given[f"g{i}"], dim, descending)
                    for k, what in enumerate(("values", "indices", "positions")):
                        got = results[f"{i}.{k}"]
                        same = np.array_equal(got, want[k], equal_nan=k == 0 and not element.startswith("i"))
                        if not same or (k == 0 and not np.array_equal(np.signbit(got), np.signbit(want[k]))):
                            raise SystemExit(f"{what} of {element} {shape} along {dim}, descending {descending},"
                                             f" {options} on {device.decode()}: {got.ravel()[:9]}, expected {want[k].ravel()[:9]}")


if __name__ == "__main__":
    main()
