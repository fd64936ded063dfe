# REQUIRES: numpy
# RUN: %python %s
"""A state that is saved from one layout, in the middle of a window, is loaded into any other and goes on with the same
bits."""
import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "Inputs"))
from updates import UNCOALESCED, UNFUSED, load, module, stored, trainer  # noqa: E402

OPTIMIZERS = """train.schedule @lr = warmup_linear<peak = 0.05, warmup = 3.0, total = 20.0>
train.optimizer @o = adamw<lr = @lr> ema(0.9)
train.optimizer @layer = lamb<lr = 0.01, weight_decay = 0.02>"""
PARAMETERS = [("a", (7, 5), "f32", "o"), ("b", (1,), "f32", "layer"), ("c", (130, 27), "f32", "layer"),
              ("d", (33,), "f32", "frozen"), ("e", (65,), "bf16", "o"), ("f", (9,), "f64", "wide")]
WIDE = "\ntrain.optimizer @wide = sgd<lr = 0.1, momentum = 0.9>"
LAYOUTS = [(), (UNCOALESCED,), (UNFUSED,), (UNFUSED, UNCOALESCED), ("--align-size=8",), ("--align-size=64",),
           ("--align-size=4096",)]
K, FIRST, SECOND = 3, 7, 8  # micro-steps; the first part ends in a window


def train(t, steps):
    return [(r.loss, r.closed and r.grad_norm, r.update) for r in
            (t.step(**{f"g{n}": np.random.default_rng([i, len(n), *map(ord, n)]).standard_normal(s)
                       for n, s, *_ in PARAMETERS}) for i in steps)]


def main():
    text = module(OPTIMIZERS + WIDE, PARAMETERS, f"accumulate({K}) clip(global_norm<1.0>)")
    halves, whole = set(), None
    for options in LAYOUTS:
        with trainer(text, *options) as t:
            train(t, range(FIRST))
            half = stored(t)
            seen = train(t, range(FIRST, FIRST + SECOND))
            whole = whole or (seen, stored(t))
            if (seen, stored(t)) != whole:
                sys.exit(f"{options}: other bits than in the default layout")
            halves.add(half)
    if len(halves) != 1:
        sys.exit("checkpoints of different layouts differ")
    for options in LAYOUTS:
        with trainer(text, *options) as t:
            load(t, half)
            if (train(t, range(FIRST, FIRST + SECOND)), stored(t)) != whole:
                sys.exit(f"{options}: a loaded state goes on with other bits")
        print(f"{' '.join(options) or 'default'}: equal")


if __name__ == "__main__":
    main()
