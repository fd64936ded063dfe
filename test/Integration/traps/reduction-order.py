# REQUIRES: numpy
# RUN: %python %s
"""The order of additions in the norm is the documented one, bit by bit, fused or not, in every layout, for any number
of threads: squares in f64 by fused multiply-adds in 32 lanes over blocks of 4096 elements counted from the start of each
parameter, lanes halved, blocks in 32 lanes of f64, then parameters in the order of the module."""
import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "Inputs"))
from updates import UNCOALESCED, UNFUSED, module, trainer  # noqa: E402

PARAMETERS = [("a", (7, 5), "f32", "x"), ("b", (3, 100001), "f32", "y"), ("c", (4096,), "f32", "x"),
              ("d", (4097,), "f32", "y"), ("e", (1,), "f32", "x"), ("f", (65, 129), "f64", "z")]
OPTIMIZERS = """train.optimizer @x = sgd<lr = 0.1>
train.optimizer @y = sgd<lr = 0.2>
train.optimizer @z = sgd<lr = 0.2>"""
BLOCK, LANES = 4096, 32


def halve(lanes):
    while len(lanes) > 1:
        lanes = lanes[:len(lanes) // 2] + lanes[len(lanes) // 2:]
    return lanes[0]


def in_lanes(values, add, zero):
    lanes = np.full(LANES, zero)
    for i in range(0, len(values), LANES):
        row = values[i:i + LANES]
        lanes[:len(row)] = add(lanes[:len(row)], row)
    return halve(lanes)


def fma(total, value):
    """value² + total, rounded once."""
    high = value * value
    splitter = value * 134217729.0
    head = splitter - (splitter - value)
    tail = value - head
    low = ((head * head - high) + 2 * head * tail) + tail * tail  # value² = high + low
    if not low.any():
        return total + high
    total = total.astype(np.longdouble)
    return (total + high + low).astype(np.float64)


def square_sum(gradient):
    g = gradient.ravel().astype(np.float64)
    blocks = [in_lanes(g[i:i + BLOCK], fma, np.float64(0)) for i in range(0, len(g), BLOCK)]
    if len(blocks) == 1:
        return blocks[0]
    return in_lanes(np.array(blocks, np.float64), np.add, np.float64(0))


def main():
    rng = np.random.default_rng(6)
    text = module(OPTIMIZERS, PARAMETERS)
    for step in range(2):
        gradients = {n: (rng.standard_normal(s) * 10.0**step).astype(e.replace("f", "float"))
                     for n, s, e, _ in PARAMETERS}
        total = None
        for n, *_ in PARAMETERS:
            total = square_sum(gradients[n]) if total is None else total + square_sum(gradients[n])
        want = float(np.sqrt(total))
        for options in ((), (UNFUSED,), (UNCOALESCED,), ("--align-size=8",), ("--align-size=4096",), ("--reference",)):
            for threads in (1, 2):
                with trainer(text, *options, threads=threads) as t:
                    got = t.step(**{f"g{n}": g for n, g in gradients.items()}).grad_norm
                if got != want:
                    sys.exit(f"{options}, {threads} threads: the norm is {got.hex()}, in the order {want.hex()}")
        print(f"norm {want.hex()}: equal")


if __name__ == "__main__":
    main()
