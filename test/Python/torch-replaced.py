# REQUIRES: torch
# RUN: %venv_torch %s
"""What is captured as other functions of the same value: CTC, running statistics, numbers that are drawn."""
import os
import sys
import warnings

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))
from against_torch import agree, trainc  # noqa: E402

torch.manual_seed(1)
torch.set_default_dtype(torch.float64)
x, y = torch.randn(12, 3, 8), torch.randint(1, 5, (3, 4))
y[0] = torch.tensor([2, 2, 1, 1])  # equal labels have a blank between
steps, counts = torch.tensor([12, 9, 10]), torch.tensor([4, 2, 3])
padded = torch.where(torch.arange(4) < counts[:, None], y, -100)
in_a_row = torch.cat([labels[:count] for labels, count in zip(y, counts)])


def ctc(**options):
    return lambda m, x, y, steps, counts: F.ctc_loss(m(x).log_softmax(-1), y, steps, counts, **options).sum()


CTC = {
    "mean": (ctc(), x, y, steps, counts),
    "sum": (ctc(reduction="sum", blank=3), x, torch.where(y == 3, 0, y), steps, counts),
    "none": (ctc(reduction="none"), x, y, steps, counts),
    "labels in a row": (ctc(), x, in_a_row, steps, counts),
    "too short": (ctc(zero_infinity=True), x, y, torch.tensor([3, 9, 1]), counts),
    "no labels": (lambda m, x, y: F.ctc_loss(m(x).log_softmax(-1), y, (12, 10, 9), (4, 1, 0)), x, y),
    "one example": (lambda m, x, y: F.ctc_loss(m(x).log_softmax(-1)[:, 0], y[0], torch.tensor(12), torch.tensor(4)), x, y),
    # As models of transformers have it.
    "selected": (lambda m, x, y: F.ctc_loss(m(x).log_softmax(-1), y.masked_select(y >= 0), torch.full((3,), 12), (y >= 0).sum(-1)), x, padded)}
for name, (loss, *batch) in CTC.items():
    agree(nn.Linear(8, 5), tuple(batch), loss)
    print(f"CTC, {name}: ok", flush=True)


class Activated(nn.BatchNorm2d):
    def forward(self, input):
        return F.relu(super().forward(input))


images = torch.randn(6, 3, 4, 5)
for norm in (nn.BatchNorm2d(4, momentum=None), Activated(4, momentum=None), nn.SyncBatchNorm(4, momentum=None),
             nn.InstanceNorm2d(4, affine=True, track_running_stats=True), nn.InstanceNorm2d(4, track_running_stats=True).eval()):
    model = nn.Sequential(nn.Conv2d(3, 4, 1, bias=False), norm)
    agree(model, (images,), lambda m, x: (m(x).sin() * torch.arange(5.0)).sum())
    assert "forward" not in vars(norm)
    print(f"{type(norm).__name__}: ok", flush=True)


class Again(nn.Module):
    """A norm whose statistics PyTorch moves again where it computes the region again, and one outside."""

    def __init__(self):
        super().__init__()
        self.outer, self.inner = nn.BatchNorm1d(8), nn.BatchNorm1d(8)
        self.register_buffer("calls", torch.zeros(()))

    def region(self, x):
        self.calls = self.calls + 1
        return self.inner(x).sin()

    def forward(self, x):
        return checkpoint(self.region, self.outer(x), use_reentrant=False)


with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    model = Again()
    trainc.torch.export(model, (x[0],), lambda m, x: m(x).square().mean(), torch.optim.SGD(model.parameters(), 0.1))
assert [str(w.message).split(". ")[0] for w in said] == [
    "changed within torch.utils.checkpoint: calls, inner.running_mean, inner.running_var, inner.num_batches_tracked"], list(map(str, said))
print("again: ok", flush=True)

weights = torch.tensor([0.0, 1.0, 2.0, 0.0, 3.0])


def drawn(m, x):
    return {"permutation": torch.randperm(50, dtype=torch.int32), "rows": torch.multinomial(input=weights.expand(6000, 5), num_samples=1),
            "again": weights.multinomial(num_samples=6000, replacement=True), "three": weights.expand(20, 5).multinomial(3),
            "one of two": torch.distributions.Categorical(weights.expand(20, 5)).sample()}


model = nn.Linear(8, 5)
exported = trainc.torch.export(model, (x,), lambda m, x: m(x).mean() + torch.randperm(3).double().mean(), torch.optim.SGD(model.parameters(), 0.1), evals={"drawn": drawn})
with exported.step() as step:
    result = {name: torch.as_tensor(value).long() for name, value in step.eval("drawn", x).items()}
    step(x)
    later = torch.as_tensor(step.eval("drawn", x)["permutation"]).long()
assert result["permutation"].sort().values.equal(torch.arange(50)) and later.sort().values.equal(torch.arange(50))
assert not result["permutation"].equal(torch.arange(50)) and not later.equal(result["permutation"])
for name in "rows", "again":
    share = torch.bincount(result[name].flatten(), minlength=5) / 6000
    assert bool(((share - weights / 6).abs() < 0.03).all()), (name, share)
assert all(row.sort().values.equal(torch.tensor([1, 2, 4])) for row in result["three"]), result["three"]
assert result["one of two"].shape == (20,) and bool((weights[result["one of two"]] > 0).all())
print("drawn: ok")
