# REQUIRES: numpy
# RUN: %python %s
"""Decay of some groups and not of others, decoupled and coupled; coupled decay is added after the clip, which does
not see it."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "Inputs"))
from updates import Adam, Problem, Sgd, reference  # noqa: E402

WEIGHT, BIAS = (33, 130), (130,)


def main():
    for kind, rule in (("sgd", Sgd), ("momentum", lambda lr, **k: Sgd(lr, 0.9, **k)), ("adam", Adam)):
        for decay in ("weight_decay", "l2"):
            optimizers = f"""train.optimizer @decayed = {kind}<lr = 0.01, {decay} = 0.3>
train.optimizer @half = {kind}<lr = 0.01, {decay} = 0.15>
train.optimizer @plain = {kind}<lr = 0.01>
train.optimizer @zero = {kind}<lr = 0.01, {decay} = 0.0>"""
            parameters = {"a": (WEIGHT, "decayed"), "b": (BIAS, "plain"), "c": (WEIGHT, "half"), "d": (BIAS, "zero")}
            problem = Problem(optimizers, parameters, "clip(global_norm<3.0>)")
            rules = {"a": rule(0.01, **{decay: 0.3}), "b": rule(0.01), "c": rule(0.01, **{decay: 0.15}),
                     "d": rule(0.01)}
            problem.check(f"{kind} {decay}", *reference(problem, rules, "global_norm", 3.0))


if __name__ == "__main__":
    main()
