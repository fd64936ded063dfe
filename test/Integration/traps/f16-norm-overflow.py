# REQUIRES: numpy
# RUN: %python %s
"""Gradients in f16 whose squares, sum of squares and norm are above 65504, the largest f16: the norm is still right,
the clip too, and no update is skipped. What does not fit into f16 on the way to a gradient is an infinity, and
skips."""
import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "Inputs"))
from updates import UNFUSED, equal, largest, module, parameters_of, trainer  # noqa: E402

PRODUCT = """train.optimizer @o = sgd<lr = 0.5>
train.param @w : tensor<64x300xf32> init(zeros) optimizer(@o)
train.step @step(%x: tensor<1x64xf32>, %t: tensor<1x300xf32>) clip(global_norm<1.0>) precision(compute = f16) {
  %w = train.read @w : tensor<64x300xf32>
  %y = nn.matmul %x, %w : tensor<1x64xf32>, tensor<64x300xf32>
  %p = nn.mul %y, %t : tensor<1x300xf32>, tensor<1x300xf32>
  %s = nn.reduce sum %p dims [0, 1] : tensor<1x300xf32>
  train.yield loss(%s) : tensor<f32>
}
"""
SIZE = 20000


def check(what, result, norm, parameters, want, bar):
    error = largest(np.linalg.norm(parameters[n] - w) / np.linalg.norm(w) for n, w in want.items())
    print(f"{what}: norm {result.grad_norm:.6g} of {norm:.6g}, parameters off by {error:.1e}")
    if not (result.updated and norm > 65504 and abs(result.grad_norm / norm - 1) < bar and error < bar):
        sys.exit(f"{what}: updated {result.updated}")


def main():
    rng = np.random.default_rng(2)
    for options in ((), (UNFUSED,)):
        x, t = rng.uniform(50, 100, (1, 64)), rng.uniform(50, 150, (1, 300))
        with trainer(PRODUCT, *options) as run:
            result = run.step(x=x, t=t)
            gradient = x.T @ t
            norm = np.linalg.norm(gradient)
            # Each factor and the product are rounded to f16.
            check("products in f16", result, norm, parameters_of(run), {"w": -0.5 * gradient / norm}, 2e-3)
            before = parameters_of(run)
            t[0, 7] = 60000  # what w's gradient multiplies fits into f16; the product need not
            result = run.step(x=x, t=t)
            gradient = x.T @ t
            norm = np.linalg.norm(gradient)
            check("products above 65504", result, norm,
                  {"w": parameters_of(run)["w"] - before["w"]}, {"w": -0.5 * gradient / norm}, 2e-3)
            before = parameters_of(run)
            t[0, 7] = 70000
            result = run.step(x=x, t=t)
            if result.finite or not equal(before, parameters_of(run)):
                sys.exit("a gradient that is infinite in f16 was not seen")
        text = module("train.optimizer @o = sgd<lr = 0.5>", [("p", (SIZE,), "f16", "o")], "clip(global_norm<1.0>)")
        with trainer(text, *options) as run:
            start = rng.standard_normal(SIZE).astype(np.float16).astype(np.float64)
            gradient = (rng.choice([-1, 1], SIZE) * rng.uniform(500, 2000, SIZE)).astype(np.float16).astype(np.float64)
            run.write("p", start)
            result = run.step(gp=gradient)
            norm = np.linalg.norm(gradient)
            check("parameters in f16", result, norm, parameters_of(run), {"p": start - 0.5 * gradient / norm}, 1e-3)


if __name__ == "__main__":
    main()
