# REQUIRES: numpy
# RUN: %python %s
"""The second moment of a centered rmsprop is a difference that rounding must not make negative: its root would be NaN."""
import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "Inputs"))
from updates import WAYS, module, trainer  # noqa: E402


def main():
    rng = np.random.default_rng(3)
    gradients = rng.standard_normal((3, 20_000)).astype(np.float32)
    for decay in 0.9, 0.99:
        rule = f"train.optimizer @o = rmsprop<lr = 0.01, decay = {decay}, centered = true, bias_correction = true>"
        for options in WAYS:
            with trainer(module(rule, [("a", (20_000,), "f32", "o")]), *options) as t:
                for gradient in gradients:
                    t.step(ga=gradient)
                found = t.read("a")
            if not np.isfinite(found).all():
                sys.exit(f"decay {decay}, {options}: {np.isnan(found).sum()} are NaN")


if __name__ == "__main__":
    main()
