# REQUIRES: numpy
# RUN: %python %s
"""The clip sees the average of a window, not its sum and not the micro-steps; with average = false it sees the sum.
Of weights below 0 it sees the size."""
import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "Inputs"))
from updates import Problem, Sgd, clip_factors, largest, module, trainer  # noqa: E402

K, LIMIT = 4, 3.0
PARAMETERS = {"a": ((7, 5), "o"), "b": ((130, 27), "o"), "c": ((1,), "o")}


def windows(problem, kind, average, order):
    """(parameters, norms) after each micro-step; `order` is "clip last" or what must differ from it."""
    p, rules, norm = dict(problem.start), {n: Sgd(0.1, 0.9) for n in PARAMETERS}, 0.0
    seen, norms = [], []
    divisor = K if average else 1
    for i, gradients in enumerate(problem.gradients):
        if i % K == K - 1:
            parts = problem.gradients[i - K + 1:i + 1]

            def clipped(g):
                factors = clip_factors(g, kind, LIMIT)[1]
                return {n: np.clip(v, -LIMIT, LIMIT) if kind == "value" else v * factors[n] for n, v in g.items()}

            if order == "clip each":
                parts = [clipped(g) for g in parts]
            total = {n: sum(g[n] for g in parts) for n in PARAMETERS}
            if order == "clip the sum":
                total = clipped(total)
            total = {n: g / divisor for n, g in total.items()}
            norm = clip_factors(total)[0]
            if order == "clip last":
                total = clipped(total)
            p = {n: rules[n](p[n], g) for n, g in total.items()}
        seen.append(p)
        norms.append(norm)
    return seen, norms


def main():
    for kind in ("global_norm", "param_norm", "value"):
        for average in (True, False):
            clauses = f"accumulate({K}{'' if average else ', average = false'}) clip({kind}<{LIMIT}>)"
            problem = Problem("train.optimizer @o = momentum<lr = 0.1>", PARAMETERS, clauses, steps=3 * K, size=4.0)
            want, norms = windows(problem, kind, average, "clip last")
            for other in ["clip each"] + ["clip the sum"] * average:
                different = windows(problem, kind, average, other)[0]
                if largest(np.abs(different[-1][n] - want[-1][n]).max() for n in PARAMETERS) < 1e-3:
                    sys.exit(f"{clauses}: the data does not tell the orders apart")
            problem.check(clauses, want, norms)
    for clip in "global_norm", "param_norm":
        text = module("train.optimizer @o = sgd<lr = 1.0>", [("a", (2,), "f64", "o")], f"clip({clip}<1.0>)").replace(
            "{", "{\n%n = nn.constant dense<-1.0> : tensor<f64>", 1)
        with trainer(text.replace(") : tensor<f64>\n}", ") weight(%n) : tensor<f64>, tensor<f64>\n}")) as t:
            start = t.read("a")
            result = t.step(ga=[30.0, 40.0])
            moved = t.read("a") - start
        if not np.allclose(moved, [0.6, 0.8]) or not np.isclose(result.grad_norm, 50.0):
            sys.exit(f"{clip}, a weight of -1: moved by {moved}, norm {result.grad_norm}")


if __name__ == "__main__":
    main()
