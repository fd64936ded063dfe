# REQUIRES: torch
# RUN: %venv_torch %s
"""Rows that a mask selects, x[mask]: losses, norms and parameters as PyTorch's; what has no fixed shape is refused."""
import os
import sys

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))
from against_torch import agree, trainc  # noqa: E402
from tiny import refused  # noqa: E402

torch.manual_seed(5)
torch.set_default_dtype(torch.float64)
x, tokens = torch.randn(6, 8), torch.randint(0, 20, (3, 7))
COUNT = int((x[:, 0] > 0).sum())
labels = tokens.masked_fill(tokens < 5, -100)


class Tagger(nn.Module):
    """The loss of active tokens alone, as models of transformers have it."""

    def __init__(self, loss):
        super().__init__()
        self.embed, self.head, self.loss = nn.Embedding(20, 8), nn.Linear(8, 20), loss

    def forward(self, tokens, labels):
        return self.loss(self, self.embed(tokens), labels)


def active(m, h, y):
    chosen = y != -100
    flat = m.head(h).view(-1, 20)
    return (F.cross_entropy(m.head(h)[chosen], y[chosen]) + F.cross_entropy(m.head(h[chosen]), y[chosen], label_smoothing=0.1, reduction="sum") / chosen.sum()
            + F.cross_entropy(flat[chosen.view(-1)], y.view(-1)[chosen.view(-1)], reduction="none").square().mean())


def written_twice(m, h, y):
    """Masks of the same operands are one."""
    flat, both = m.head(h).view(-1, 20), (y != -100) & (y > 8)
    return (F.cross_entropy(flat[y.view(-1) != -100], y.view(-1)[y.view(-1) != -100])
            + F.cross_entropy(m.head(h)[both], y[(y != -100) & (y > 8)]))


def reductions(m, x):
    y, rows = m(x), m(x)[x[:, 0] < 0.5]
    return (y[x < 0].mean() + (rows.sum(0) * torch.arange(8.0)).sum() + rows.softmax(-1).square().mean(0).max() + rows.max(-1).values.sum() / rows.shape[0]
            + rows.std(1).mean() + rows.sum() / rows.numel() + (1 - rows.abs()).max() + rows.amin())


def losses(m, x):
    chosen = x > 0
    y, z = m(x)[chosen], x[chosen]
    return (F.mse_loss(y, z, reduction="sum") + F.binary_cross_entropy_with_logits(y, z.sigmoid()) + F.smooth_l1_loss(y, z, beta=0.5)
            + F.kl_div(m(x)[x[:, 0] > 0].log_softmax(-1), x[x[:, 0] > 0].softmax(-1), reduction="batchmean"))


def logarithms(m, x):
    """What is not selected has no gradient that is NaN."""
    y = m(x)
    return y[y > 0].log().mean() + (y[y > 0.1] - 0.1).sqrt().sum()


def shapes(m, x):
    rows, given = m(x)[x[:, 0] < 1], x[x[:, 0] < 1]
    return ((rows[given[:, 1] < 0] - 0.5).square().sum() + rows[:, 2:5].mean() + (rows * given).view(-1, 2, 4).mean(1).sum() + rows[..., 1].sum()
            + rows.view(-1, 4).softmax(-1)[:, 0].sum() + rows.reshape(rows.size(0), -1).mean() + rows.unsqueeze(1).squeeze(1).flatten().mean())


def joined(m, x):
    chosen = x[:, 0] < 1
    rows, given, kind = m(x)[chosen], x[chosen], x[chosen].argmax(-1)
    pairs = torch.cat([rows, given], dim=-1).sin() * torch.stack([given, rows], 1).flatten(1).cos()
    return (pairs.mean() - rows.log_softmax(-1).gather(1, kind.unsqueeze(1)).mean() + (F.one_hot(kind, 8) * rows).sum()
            + ((rows.argmax(-1) == kind).to(x.dtype).mean() + 1) * rows.mean())


def assigned(m, x):
    y, chosen, z = m(x), x[:, 0] < 0, torch.zeros(6, 8)
    z[chosen] = F.layer_norm(y[chosen], (8,)) @ torch.eye(8) * 2
    return (z + 0.1 * y).square().mean() + y.masked_select(x > 0).square().mean() + torch.masked_select(y, x[:, :1] > 0).sum() / 10


def as_many(m, x):
    """Rows from elsewhere, as many as are selected."""
    chosen, z = x[:, 0] > 0, m(x) * 1
    rows = torch.linspace(-1, 1, COUNT * 8).view(COUNT, 8)
    z[chosen] = rows * z[:1]
    z[~chosen, :] += rows.sum()
    return z.square().mean() + (m(x)[chosen] * rows).sum() + (rows[:, :1] - m(x)[chosen]).sin().mean() + (x[:, 0][chosen] * rows[:, 0]).sum()


def changed(m, x):
    """A mask that changes behind its use."""
    chosen = x > 0
    given = x[chosen]
    chosen[0] = False
    return given.mean() + m(x)[chosen.logical_not()].mean()


for loss in active, written_twice:
    agree(Tagger(loss), (tokens, labels))
    print(f"{loss.__name__}: ok", flush=True)
def places(m, x):
    """Indices of what is not zero, and counts as numbers."""
    y, z = m(x), x.view(2, 3, 8)
    first = (x[:, 0] > 0).nonzero().squeeze(1)
    i, j = torch.where(z[..., 1] > 0)
    return (y[first].square().mean() + y[torch.nonzero(x[:, 1] < 0, as_tuple=True)[0]].sum() / (x[:, 1] < 0).sum().item()
            + (y.view(2, 3, 8)[i, j] * z[i, j]).sum() / i.numel() + first.to(x.dtype).mean() * y.mean())


for loss in reductions, losses, logarithms, shapes, joined, assigned, as_many, changed, places:
    agree(nn.Linear(8, 8), (x,), loss)
    print(f"{loss.__name__}: ok", flush=True)


def other_mask(m, x):
    chosen, other = x > 0, x > 0
    other[0] = False
    return (m(x)[chosen] - x[other]).sum()


REFUSED = {
    "operands of two masks": other_mask,
    "sort": lambda m, x: m(x)[x > 0].sort()[0].sum(),
    "cat": lambda m, x: torch.cat([m(x)[x > 0], x[x > 0]]).sum(),
    "len()": lambda m, x: m(x)[x > 0].sum() / len(x[x > 0]),
    "T": lambda m, x: (m(x)[x > 0].T @ x[x > 0]).sum(),
    "a result": lambda m, x: (m(x).sum(), {"rows": x[x > 0]}),
    "cross_entropy with other labels": lambda m, x: F.cross_entropy(m(x)[x[:, 0] > 0], torch.zeros(3, dtype=torch.long))}
for name, function in REFUSED.items():
    with refused(trainc.UnsupportedError, f"TypeError: {name}", "rows that a mask selects"):
        trainc.torch.export(nn.Linear(8, 8), (x,), function)
print(f"{len(REFUSED)} refused")
