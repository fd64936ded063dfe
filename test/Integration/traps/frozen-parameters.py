# REQUIRES: numpy
# RUN: %python %s
"""Frozen parameters have no gradient, no state and no part in the norm, and keep their bits; others train."""
import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "Inputs"))
from updates import Adam, Problem, parameters_of, reference, stored, trainer  # noqa: E402

PARAMETERS = {"a": ((7, 5), "frozen"), "b": ((130, 27), "o"), "c": ((4097,), "frozen"), "d": ((3,), "o")}


def main():
    problem = Problem("train.optimizer @o = adam<lr = 0.01, weight_decay = 0.1> ema(0.9)", PARAMETERS,
                      "clip(global_norm<3.0>)")
    rules = {n: Adam(0.01, weight_decay=0.1) for n in "bd"}
    problem.check("frozen beside trained", *reference(problem, rules, "global_norm", 3.0))
    with trainer(problem.text("f32")) as t:
        for role in ("gradient", "state"):
            if names := {name for r, name, _ in t.tensors if r == role} - {"b", "d"}:
                sys.exit(f"{sorted(names)} have a {role}")
        before = parameters_of(t)
        gradients = {f"g{n}": g for n, g in problem.gradients[0].items()}
        gradients["gc"] = np.full(4097, np.inf)  # of no gradient: no reason to skip
        gradients["ga"] = np.full((7, 5), np.nan)
        result = t.step(**gradients)
        after = parameters_of(t)
        moved = {n for n in after if not np.array_equal(before[n], after[n])}
        if not result.updated or moved != {"b", "d"}:
            sys.exit(f"updated {result.updated}, moved {sorted(moved)}")
        if b'"a"' not in stored(t) or b"optimizer/a" in stored(t):
            sys.exit("a checkpoint holds the frozen parameter, and no state of it")


if __name__ == "__main__":
    main()
