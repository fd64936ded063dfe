#!/usr/bin/env python3
"""A CNN of PyTorch on the digits, trained by a compiled step: a DataLoader, a progress bar, an evaluation, a plot of the loss.

usage: digits.py [EPOCHS]      writes digits.pt, the trained state_dict, and digits.svg, if matplotlib is installed
"""
import pathlib
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm

import trainc.torch

DATA = pathlib.Path(__file__).parents[1] / "data"
EPOCHS, BATCH = int(sys.argv[1]) if len(sys.argv) > 1 else 20, 32


def load(part):
    x, y = (torch.from_numpy(np.load(DATA / f"digits_{part}_{name}.npy")) for name in "xy")
    return TensorDataset(x.reshape(-1, 1, 8, 8), y.long())


torch.manual_seed(0)
train, test = load("train"), load("test")
loader = DataLoader(train, BATCH, shuffle=True)
model = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1),
                      nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(512, 10))

example = train[:BATCH]
last = train[: len(train) % BATCH or BATCH]  # the last batch of an epoch is shorter
exported = trainc.torch.export(model, example, loss=lambda m, x, y: F.cross_entropy(m(x), y),
                               optimizer=torch.optim.AdamW(model.parameters(), 1e-3), clip_grad_norm=1.0, shapes=[last],
                               evals={"logits": (lambda m, x: m(x), (test[:][0],))})
losses = []
with exported.step() as step:
    for epoch in (bar := tqdm(range(EPOCHS))):
        for x, y in loader:
            losses.append(step(x, y).loss)
        right = (step.eval("logits", test[:][0])["logits"].argmax(1) == test[:][1]).float().mean().item()
        bar.set_postfix(loss=losses[-1], accuracy=right)
    model.load_state_dict(step.state_dict(as_torch=True), strict=False)
torch.save(model.state_dict(), "digits.pt")
print(f"first loss {losses[0]:.4f}, last loss {losses[-1]:.4f}, accuracy {right:.4f}")
try:
    from matplotlib import pyplot
except ImportError:
    sys.exit()
pyplot.plot(losses)
pyplot.savefig("digits.svg")
