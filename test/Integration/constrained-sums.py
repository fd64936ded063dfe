# REQUIRES: numpy
# RUN: %python %s
"""Sums over ranks that a `train.constrain` splits: of one dimension or of two, over some of the ranks that have terms or over all,
in the order of the mesh and in another; what is split is gathered again. Losses, gradient norms and parameters are those of one
rank.
"""
import os
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))

from ranks import compile_module, mesh_option, run, same  # noqa: E402
from report import check  # noqa: E402

ROWS, WIDTH, OUT = 8, 24, 12
RNG = np.random.default_rng(5)
DATA = [dict(x=RNG.normal(size=(ROWS, WIDTH)).astype("f")) for _ in range(3)]

# How the first layer's weight is split, and its output.
CASES = [("[data, model]", "[data, model]"), ("[model, data]", "[model, data]"), ("[model, data]", "[data, model]"),
         ("[data, model]", "[], [model, data]"), ("[data, model]", "[data], [model]"), ("[data, model]", "[model], [data]"),
         ("[model, data]", "[], [data]"), ("[data]", "[data]"), ("[model]", "[], [model]")]


def rows_over(weight):
    """The axis over which the rows of the input are split: that over which the weight is not, if any."""
    return next((axis for axis in ("data", "model") if axis not in weight), None)


def module(weight, output):
    hidden, rows = f"tensor<{ROWS}x{OUT}xf32>", rows_over(weight)
    return f"""
train.mesh @mesh(data = 1, model = 1)
train.optimizer @o = adamw<lr = 0.01>
train.param @up : tensor<{WIDTH}x{OUT}xf32> init(normal<0.3>) optimizer(@o) split({weight})
train.param @bias : tensor<{OUT}xf32> init(normal<0.3>) optimizer(@o)
train.param @down : tensor<{OUT}x5xf32> init(normal<0.3>) optimizer(@o)
train.step @step(%x: tensor<{ROWS}x{WIDTH}xf32> {f"split([{rows}])" if rows else ""}) clip(global_norm<0.5>) {{
  %up = train.read @up : tensor<{WIDTH}x{OUT}xf32>
  %bias = train.read @bias : tensor<{OUT}xf32>
  %down = train.read @down : tensor<{OUT}x5xf32>
  %h = nn.linear %x, %up, %bias : tensor<{ROWS}x{WIDTH}xf32>, tensor<{WIDTH}x{OUT}xf32>, tensor<{OUT}xf32>
  %c = train.constrain %h split({output}) : {hidden}
  %g = nn.tanh %c : {hidden}
  %w = train.constrain %g split([]) : {hidden}
  %y = nn.linear %w, %down : {hidden}, tensor<{OUT}x5xf32>
  %t = nn.tanh %y : tensor<{ROWS}x5xf32>
  %s = nn.reduce sum %t dims [0, 1] : tensor<{ROWS}x5xf32>
  train.yield loss(%s) : tensor<f32>
}}
"""


def training(axis):
    """With the rows of the input split over `axis`."""
    def work(rank):
        results = []
        for inputs in DATA:
            if rank.ranks > 1 and axis:
                place = rank.rank // 2 if axis == "data" else rank.rank % 2
                inputs = {name: np.ascontiguousarray(np.split(value, 2)[place]) for name, value in inputs.items()}
            result = rank.trainer.step(**inputs)
            results.append((result.window_loss, result.grad_norm))
        return np.array(results), rank.tensors()
    return work


def main():
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        for weight, output in CASES:
            text, work = module(weight, output), training(rows_over(weight))
            one, = run(work, compile_module(text, os.path.join(folder, "one.so")), 1)
            path = compile_module(text, os.path.join(folder, "some.so"), mesh_option(dict(data=2, model=2)))
            results = run(work, path, 4)
            what = f"weight split({weight}), output split({output})"
            bad += check(f"{what}: ranks agree", all(np.array_equal(results[0][0], r[0]) and same(results[0][1], r[1])
                                                     for r in results))
            bad += check(f"{what}: as one rank", np.allclose(one[0], results[0][0], rtol=1e-5) and all(
                np.allclose(value, results[0][1][key], rtol=1e-5, atol=1e-6) for key, value in one[1].items()))
    sys.exit(bad != 0)


if __name__ == "__main__":
    main()
