# REQUIRES: numpy
# RUN: %python %s
"""Parameters of one update with two multipliers of the learning rate, or rates of their own, each move by theirs."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "Inputs"))
from updates import Adam, Problem, Sgd, reference  # noqa: E402

SHAPES = [(7, 5), (1,), (130, 257), (4097,)]


def main():
    for kind, rule in (("sgd", Sgd), ("adam", Adam)):
        rates = {"whole": 0.01, "tenth": 0.001, "own": 0.03}
        optimizers = f"""train.optimizer @whole = {kind}<lr = 0.01>
train.optimizer @tenth = {kind}<lr = 0.01, lr_multiplier = 0.1>
train.optimizer @own = {kind}<lr = 0.03>"""
        groups = ["tenth", "whole", "own", "tenth"]
        parameters = {f"p{i}": (shape, group) for i, (shape, group) in enumerate(zip(SHAPES, groups))}
        problem = Problem(optimizers, parameters, "clip(global_norm<3.0>)")
        rules = {n: rule(rates[group]) for n, (_, group) in parameters.items()}
        problem.check(kind, *reference(problem, rules, "global_norm", 3.0))


if __name__ == "__main__":
    main()
