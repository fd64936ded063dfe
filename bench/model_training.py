#!/usr/bin/env python3
"""Trains a CNN on the digits, and a GPT-2 and an ERNIE on a text, 500 updates from 3 seeds, by trainc and by PyTorch.

usage: model_training.py [--updates N] [--seeds N]

Of a seed both sides have the same start and batches, but other draws of dropout. Prints a line of JSON: of each model and side the
last losses, the mean of the last 50, by seed. Runs in .venv-torch.
"""
import argparse
import copy
import json
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(ROOT, "python"), os.path.join(ROOT, "examples", "pytorch")]

import numpy as np  # noqa: E402
import text as text_example  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import trainc.torch  # noqa: E402

LAST, BATCH = 50, 32


def digits():
    x, y = (torch.from_numpy(np.load(os.path.join(ROOT, "examples", "data", f"digits_train_{name}.npy"))) for name in "xy")
    x, y = x.reshape(-1, 1, 8, 8), y.long()
    net = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1),
                        nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(512, 10))

    def batch():
        chosen = torch.randint(len(x), (BATCH,))
        return dict(x=x[chosen].contiguous(), y=y[chosen])
    return net, batch, lambda m, x, y: F.cross_entropy(m(x), y)


def of_text(name):
    with open(os.path.join(ROOT, "docs", "Language.md"), "rb") as f:
        tokens = torch.tensor(list(f.read()))
    return text_example.MODELS[name]().train(), lambda: text_example.batch_of(tokens, name != "gpt2"), None


MODELS = {"cnn": digits, "gpt2": lambda: of_text("gpt2"), "ernie": lambda: of_text("ernie")}


def optimizer_of(model):
    return torch.optim.AdamW(model.parameters(), 1e-3)


def trained(build, seed, updates):
    """(last loss of trainc, of PyTorch)"""
    torch.manual_seed(seed)
    model, batch, loss = build()
    batches = [batch() for _ in range(updates)]
    theirs = copy.deepcopy(model)
    with trainc.torch.export(model, batches[0], loss, optimizer_of(model)).step(seed=seed) as step:
        ours = [step(**b).loss for b in batches]
    optimizer, losses = optimizer_of(theirs), []
    for b in batches:
        value = loss(theirs, **b) if loss else theirs(**b).loss
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return [sum(values[-LAST:]) / LAST for values in (ours, losses)]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--updates", type=int, default=500)
    p.add_argument("--seeds", type=int, default=3)
    a = p.parse_args()
    found = {}
    for name, build in MODELS.items():
        ours, theirs = zip(*(trained(build, seed, a.updates) for seed in range(a.seeds)))
        found[name] = dict(trainc=ours, torch=theirs)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
