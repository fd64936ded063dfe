"""What a call of a step costs more when its inputs have another shape than those of the call before.

usage: timing_shapes.py

A tiny model with five shapes of inputs, on one thread: rounds in which each shape is called many times in a row, and rounds in which
each call has the next shape, take turns. What else runs only adds to a round, so the figure is the difference of the shortest ones;
that of the medians stands beside it. Runs in .venv-torch.
"""
import os
import sys
import time
from statistics import median

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "python"))
os.environ.setdefault("TRAINC_BUILD", os.path.join(ROOT, "build"))

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import trainc.torch  # noqa: E402

SHAPES = [(4, 4), (4, 8), (4, 12), (4, 16), (3, 12)]  # examples, length
ROUNDS, CALLS, BAR = 40, 500, 5.0  # rounds, calls of each shape in a round, microseconds


def tokens(shape):
    return torch.randint(11, shape), torch.randint(5, shape)


def loss(model, ids, tags):
    return F.cross_entropy(model(ids).flatten(0, 1), tags.flatten())


def microseconds(step, batches):
    begin = time.perf_counter()
    for ids, tags in batches:
        step(ids, tags)
    return (time.perf_counter() - begin) / len(batches) * 1e6


def main():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Embedding(11, 8), nn.Linear(8, 5))
    batches = [tokens(shape) for shape in SHAPES]
    exported = trainc.torch.export(model, batches[0], loss, torch.optim.SGD(model.parameters(), 0.1), shapes=batches[1:])
    orders = {"in a row": [batch for batch in batches for _ in range(CALLS)], "in turn": batches * CALLS}
    took = {name: [] for name in orders}
    with exported.step(threads=1) as step:
        for _ in range(ROUNDS):
            for name, order in orders.items():
                took[name].append(microseconds(step, order))
    more, usual = (least(took["in turn"]) - least(took["in a row"]) for least in (min, median))
    print(f"another of {len(SHAPES)} shapes in each call: {more:.2f} us more (at most {BAR:g}), median {usual:.2f}, of"
          f" {min(took['in a row']):.1f} us")
    sys.exit(more > BAR)


if __name__ == "__main__":
    main()
