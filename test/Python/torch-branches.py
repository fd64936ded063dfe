# REQUIRES: torch
# RUN: %venv_torch %s
"""Branches on values that go one way whatever the values are, and those that are refused."""
import os
import sys

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))
from against_torch import agree, trainc  # noqa: E402
from tiny import refused  # noqa: E402
from trainc.torch.branches import expected_by  # noqa: E402

torch.manual_seed(3)
torch.set_default_dtype(torch.float64)


class Asked:
    """A condition that is answered as the export does."""

    def __bool__(self):
        asking = sys._getframe(1)
        answer = expected_by(asking.f_code, asking.f_lasti)
        if answer is None:
            raise LookupError
        return answer

    item = __bool__


def conditions():
    """However a condition is written, it does not come to its `raise`."""
    t = Asked()

    def by_function():
        with torch.no_grad():
            if t.item():
                raise ValueError
        if bool(t) or any([t, t]):
            raise ValueError(f"{t!r}")

    def in_loops():
        for i in range(3):
            if t and i or (not t and i):
                raise ValueError
            if i == 1 and t:
                raise ValueError
        while not t:
            raise ValueError

    def elsewhere():
        if t:
            text = "else"
            raise ValueError(text)
        elif t:
            raise ValueError
        else:
            return 1

    def at_end():
        if not t or (t and t):
            raise ValueError

    for function in by_function, in_loops, elsewhere, at_end:
        function()


def dropped_layers():
    """A layer that is dropped at a rate of 0 is not; at another rate that is a branch on what is drawn."""
    class Dropped(nn.Module):
        def __init__(self, rate):
            super().__init__()
            self.fc, self.rate = nn.Linear(4, 4), rate

        def forward(self, x):
            drawn = torch.rand([])
            return x.mean() if drawn < self.rate or (self.training and torch.rand(()) < self.rate) else self.fc(x).square().mean()

    agree(Dropped(0.0), (torch.randn(5, 4),))
    with refused(trainc.UnsupportedError, "drawn < self.rate"):
        trainc.torch.export(Dropped(0.1), (torch.randn(5, 4),))


def checks():
    """A check that raises an error is not part of the step; another branch on values is still refused."""
    def checked(m, x):
        y = m(x)
        if torch.isnan(y).any().item():
            raise ValueError(f"NaN: {y}")
        assert torch.isfinite(y).all(), "infinite"
        if not (y < 1e9).all() or x.max() > 1e9 and x.min() < 0:
            raise ValueError("large")
        if (y > 1e9).any():
            text = "large"
            raise ValueError(text)
        with torch.no_grad():
            if y.min() > 1e9:
                raise ValueError("large")
        if (x < 1e9).all():
            return F.gaussian_nll_loss(y, x, y.square() + 0.1, full=True, eps=0.5)
        raise ValueError("large")

    def branch(m, x):
        return m(x).sum() if (x > 0).all() else m(x).mean()

    def counted(m, x):
        if (x > 0).all():
            x = x + 1
        assert (x < 9).all()
        return m(x).mean()

    def caught(m, x):
        try:
            if (x > 0).all():
                raise ValueError
        except ValueError:
            x = 2 * x
        return m(x).mean()

    agree(nn.Linear(4, 4), (torch.randn(5, 4),), checked)
    for function in branch, counted, caught:
        with refused(trainc.UnsupportedError, "(x > 0).all()"):
            trainc.torch.export(nn.Linear(4, 4), (torch.randn(5, 4),), function)


if __name__ == "__main__":
    for case in conditions, dropped_layers, checks:
        case()
        print(f"{case.__name__}: ok", flush=True)
