# REQUIRES: numpy
# RUN: %python %s
"""Groups without parameters, clips without gradients, one parameter alone, everything else frozen: no division by 0."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "Inputs"))
from updates import Adam, Problem, Sgd, reference  # noqa: E402

UNUSED = """train.schedule @unused = cosine<init = 0.1, steps = 10.0>
train.optimizer @nobody = lamb<lr = @unused> ema(0.9)
"""


def main():
    adam, free = "train.optimizer @o = adam<lr = 0.01>", "train.optimizer @o = sgd<lr = 0.1> clip(false)"
    for kind, limit in (("global_norm", 0.5), ("param_norm", 0.5), ("value", 0.5)):
        clip = f"clip({kind}<{limit}>)"
        problem = Problem(UNUSED + adam, {"a": ((7, 5), "o"), "b": ((4097,), "o")}, clip)
        problem.check(f"{kind}, a group without parameters",
                      *reference(problem, {"a": Adam(0.01), "b": Adam(0.01)}, kind, limit), ["f64"])
        problem = Problem(UNUSED + free, {"a": ((7, 5), "o"), "b": ((4097,), "o")}, clip)
        # Where nothing takes part, the norm that is reported is that of all.
        problem.check(f"{kind}, a clip without gradients", *reference(problem, {"a": Sgd(0.1), "b": Sgd(0.1)}), ["f64"])
        problem = Problem(UNUSED + adam, {"a": ((), "o"), "b": ((4097,), "frozen")}, clip)
        problem.check(f"{kind}, one number", *reference(problem, {"a": Adam(0.01)}, kind, limit))


if __name__ == "__main__":
    main()
