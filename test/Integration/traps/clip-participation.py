# REQUIRES: numpy
# RUN: %python %s
"""A group with clip(false) is left out of the norm and of the scaling, with every kind of clip; NaN in it still
skips."""
import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "Inputs"))
from updates import Adam, Problem, Sgd, equal, parameters_of, reference, trainer  # noqa: E402

OPTIMIZERS = """train.optimizer @clipped = adam<lr = 0.01>
train.optimizer @free = adam<lr = 0.01> clip(false)
train.optimizer @other = sgd<lr = 0.1> clip(false)"""
PARAMETERS = {"a": ((7, 5), "free"), "b": ((130, 257), "clipped"), "c": ((5000,), "other"), "d": ((3,), "clipped")}


def main():
    for kind, limit in (("global_norm", 3.0), ("param_norm", 2.0), ("value", 0.5)):
        problem = Problem(OPTIMIZERS, PARAMETERS, f"clip({kind}<{limit}>)")
        rules = {"a": Adam(0.01), "b": Adam(0.01), "c": Sgd(0.1), "d": Adam(0.01)}
        problem.check(kind, *reference(problem, rules, kind, limit, left_out="ac"))
        with trainer(problem.text("f32")) as t:
            before = parameters_of(t)
            gradients = {f"g{n}": g.copy() for n, g in problem.gradients[0].items()}
            gradients["gc"][4321] = np.nan
            result = t.step(**gradients)
            if result.finite or result.skipped != 1 or not equal(before, parameters_of(t)):
                sys.exit(f"{kind}: NaN in a group out of the clip was not seen")


if __name__ == "__main__":
    main()
