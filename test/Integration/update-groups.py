# REQUIRES: numpy
# RUN: %python %s
"""Trains parameters of many groups, by one update for all and by one for each, in every layout of the state, from the
start and from a checkpoint, and compares all that is stored, bitwise.

Groups differ in rule, numbers, clip and average, parameters in element type and size; one is frozen. A gradient that is
not finite, in the third update, must leave everything as it was. What goes wrong in such mixtures elsewhere is tested
one by one in traps/.
"""
import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))
from updates import UNCOALESCED, UNFUSED, load, module, parameters_of, stored, trainer  # noqa: E402

UPDATES, BAD = 6, 2
OPTIMIZERS = """train.schedule @lr = warmup_linear<peak = 0.05, warmup = 3.0, total = 20.0>
train.optimizer @decayed = adamw<lr = @lr, weight_decay = 0.1> ema(0.9)
train.optimizer @plain = adamw<lr = @lr, weight_decay = 0.0, lr_multiplier = 0.5> ema(0.5)
train.optimizer @unclipped = adamw<lr = 0.02> clip(false)
train.optimizer @layer = lamb<lr = 0.01, weight_decay = 0.02>
train.optimizer @layers = lamb<lr = 0.03, weight_decay = 0.01>
train.optimizer @ratio = lars<lr = 0.5>
train.optimizer @descent = sgd<lr = 0.1>
"""
# name, shape, element, optimizer
PARAMETERS = [("a", (7, 5), "f32", "decayed"), ("b", (1,), "f32", "plain"), ("c", (130, 257), "f32", "layer"),
              ("d", (33,), "f32", "frozen"), ("e", (400, 300), "f32", "decayed"), ("f", (65,), "bf16", "plain"),
              ("g", (40,), "bf16", "decayed"), ("h", (19, 3), "f64", "descent"), ("i", (4097,), "f32", "unclipped"),
              ("j", (8192,), "f32", "layers"), ("k", (31,), "bf16", "layers"), ("l", (5, 5), "f32", "ratio"),
              ("m", (64,), "f32", "descent")]
VARIANTS = [UNFUSED, UNCOALESCED, *(f"--align-size={n}" for n in (8, 16, 64, 4096))]
CLIPS = ["", "clip(global_norm<3.0>)", "clip(param_norm<2.0>)", "clip(value<0.5>)"]


def train(text, options=(), start=None):
    """What the updates report, what is stored in the end; `start` is a checkpoint."""
    rng = np.random.default_rng(5)
    seen = []
    with trainer(text, *options) as t:
        if start:
            load(t, start)
        for i in range(UPDATES):
            gradients = {f"g{n}": rng.standard_normal(s) * 0.1 for n, s, _, _ in PARAMETERS}
            before = parameters_of(t)
            if i == BAD:
                gradients["gj"][77] = np.inf
            result = t.step(**gradients)
            after = parameters_of(t)
            moved = {n for n in after if not np.array_equal(before[n], after[n])}
            expected = set() if i == BAD else {n for n, *_, o in PARAMETERS if o != "frozen"}
            if (i > 0 or start) and moved != expected:
                sys.exit(f"update {i + 1} changed {sorted(moved)}, expected {sorted(expected)}")
            seen.append((result.grad_norm, result.clip_factor, result.finite))
        return repr(seen), stored(t)


def main():
    for clip in CLIPS:
        text = module(OPTIMIZERS, PARAMETERS, clip)
        want = train(text)
        again = train(text, start=want[1])
        for option in VARIANTS:
            for run, of in ((train(text, (option,)), want), (train(text, (option,), want[1]), again)):
                if run[0] != of[0]:
                    sys.exit(f"{clip} {option}: norms differ: {run[0]} and {of[0]}")
                if run[1] != of[1]:
                    sys.exit(f"{clip} {option}: what is stored differs")
            print(f"{clip or 'no clip'} {option}: equal")


if __name__ == "__main__":
    main()
