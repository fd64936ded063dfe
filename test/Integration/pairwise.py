# REQUIRES: numpy
# RUN: %python %s
"""Trains a small model by every pair of optimizer, clip, length of a window, precision and recomputation: the loss is
finite and falls; one update for all parameters in arenas and one for each, and 1 and 2 threads, give the same bits.

usage: pairwise.py [--all]
"""
import argparse
import itertools
import math
import os
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "examples"), os.path.join(ROOT, "test", "Integration", "Inputs")]

from trainc_text import Module  # noqa: E402
from updates import UNCOALESCED, UNFUSED, UNHOISTED, stored, trainer  # noqa: E402

# Element type of the parameters, clauses of the step.
PRECISIONS = {
    "f32": ("f32", ""),
    "bf16 compute": ("f32", "precision(compute = bf16)"),
    "f16 compute, loss scale": ("f32", "precision(compute = f16) loss_scale(1024.0)"),
    "bf16 parameters": ("bf16", ""),
    "bf16 without masters": ("f32", "precision(compute = bf16, master = bf16, rounding = stochastic)"),
    "f16 without masters": ("f32", "precision(compute = f16, master = f16) loss_scale(1024.0)"),
}
# Rates by which eight updates of the model help, also where a parameter keeps 8 bits.
OPTIMIZERS = {
    "sgd": "lr = 0.2", "momentum": "lr = 0.1", "adam": "lr = 0.02", "adamw": "lr = 0.02", "nadam": "lr = 0.02",
    "radam": "lr = 0.1", "adamax": "lr = 0.02", "adagrad": "lr = 0.1", "adadelta": "lr = 10.0", "rmsprop": "lr = 0.01",
    "lion": "lr = 0.01", "lamb": "lr = 0.05", "lars": "lr = 1.0, trust_coefficient = 0.05",
}
CLIPS = {"no clip": "", "global norm": "clip(global_norm<1.0>)", "parameter norm": "clip(param_norm<0.5>)",
         "value": "clip(value<0.1>)"}
WINDOWS = [1, 4]
RECOMPUTE = [False, True]
AXES = [list(OPTIMIZERS), list(CLIPS), WINDOWS, list(PRECISIONS), RECOMPUTE]
STEPS, BATCH, SIZES = 8, 6, (8, 13, 5)


def module(optimizer, clip, window, precision, recompute):
    element, clauses = PRECISIONS[precision]
    m = Module(element)
    m.lines.append(f"train.optimizer @optimizer = {optimizer}<{OPTIMIZERS[optimizer]}>")
    n_in, n_hidden, n_out = SIZES
    m.linear("up", n_in, n_hidden, init="normal<0.4>")
    m.norm("norm", n_hidden)
    m.linear("down", n_hidden, n_out, init="normal<0.4>")

    def cast(body, x, to):
        return x if x.element == to else body.op(f"nn.cast {x.name} to {to} : {x.type}", (x.shape, to))

    def loss(body, x, y):
        x = cast(body, x, element)

        def hidden(body):
            h = body.pointwise("gelu", body.linear(x, "up"), " tanh")
            return body.norm("layer_norm", h, "norm")

        h = body.recompute(hidden) if recompute else hidden(body)
        return body.cross_entropy(cast(body, body.linear(h, "down"), "f32"), y)

    m.step([("x", (BATCH, n_in), "f32"), ("y", (BATCH,), "i32")], loss,
           f" accumulate({window}) {CLIPS[clip]} {clauses}")
    return str(m)


def train(text, *options, threads=2):
    rng = np.random.default_rng(9)
    x, y = rng.standard_normal((BATCH, SIZES[0])), rng.integers(0, SIZES[-1], BATCH)
    with trainer(text, *options, threads=threads) as t:
        return [t.step(x=x, y=y).loss for _ in range(STEPS)], stored(t)


def complaint(combination):
    text = module(*combination)
    losses, state = want = train(text)
    if not all(map(math.isfinite, losses)):
        return f"loss is not finite: {losses}"
    if not losses[-1] < losses[0]:
        return f"loss does not fall: {losses[0]} to {losses[-1]}"
    if train(text, threads=1) != want:
        return "1 thread and 2 threads differ"
    if train(text, UNCOALESCED, UNFUSED, UNHOISTED) != want:
        return "differs from one update for each parameter"
    return None


def pairwise(axes):
    """Combinations in which every pair of values of two axes occurs, greedily."""
    def pairs(combination):
        return set(itertools.combinations(enumerate(combination), 2))

    everything = {c: pairs(c) for c in itertools.product(*axes)}
    missing = set().union(*everything.values())
    while missing:
        best = max(everything, key=lambda c: len(everything[c] & missing))
        missing -= everything[best]
        yield best


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--all", action="store_true", help="all combinations instead of all pairs")
    combinations = list(itertools.product(*AXES) if p.parse_args().all else pairwise(AXES))
    bad = 0
    with ThreadPoolExecutor(2) as pool:
        for combination, why in zip(combinations, pool.map(complaint, combinations)):
            if why:
                bad += 1
                print(f"{', '.join(map(str, combination))}: {why}", flush=True)
    print(f"{len(combinations)} combinations, {bad} bad")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
