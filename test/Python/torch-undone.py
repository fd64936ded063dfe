# REQUIRES: torch
# RUN: %venv_torch %s
"""What a forward keeps for later calls while it is captured is put back: PyTorch's model is as before."""
import collections
import functools
import os
import sys

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))
from against_torch import trainc  # noqa: E402

torch.manual_seed(3)
torch.set_default_dtype(torch.float64)
x, y = torch.randn(4, 6), torch.tensor([0, 2, 1, 1])
made, table, kept = {}, None, collections.deque(maxlen=2)


def cosines():
    return torch.arange(3.0).cos()


@functools.lru_cache
def cached(n):
    return [torch.arange(n).cos()]


class Holder:
    of_class, value = {}, None

    def __call__(self):
        self.value = cosines() if self.value is None else self.value
        return self.value


class Model(nn.Module):
    shared = None

    def __init__(self, form):
        super().__init__()
        self.fc, self.form, self.cache, self.none, self.holder = nn.Linear(6, 3), form, {}, None, Holder()

    def forward(self, x):
        return self.fc(x) * self.form(self)


def by_attribute(m):
    if not hasattr(m, "new"):
        m.new = cosines()
    return m.new


def by_none(m):
    m.none = cosines() if m.none is None else m.none
    return m.none


def by_dict(m):
    return m.cache.setdefault("table", cosines()) if "table" not in m.cache else m.cache["table"]


def by_class(m):
    if Model.shared is None:
        Model.shared = cosines()
    if "table" not in Holder.of_class:
        m.holder.of_class["table"] = cosines()
    return (Model.shared + Holder.of_class["table"]) / 2


def by_global(m):
    global table
    if table is None:
        table = cosines()
    return made["table"] if "table" in made else made.setdefault("table", table)


def by_default(m, cache=[]):  # noqa: B006
    if not cache:
        cache.append(cosines())
    return cache[0]


def to_be_seen(m):
    kept.append(m.fc.weight)
    m.cache["weight"], m.seen = m.fc.weight * 2, m.fc.weight.sum()
    return cosines()


def loss(m, x, y):
    return F.cross_entropy(m(x), y)


for form in by_attribute, by_none, by_dict, by_class, by_global, by_default, lambda m: cached(3)[0], lambda m: m.holder(), to_be_seen:
    m = Model(form)
    before = {name: value for name, value in vars(m).items() if not name.startswith("_")}
    expected = F.cross_entropy(m.fc(x) * cosines(), y)
    for _ in range(2):
        exported = trainc.torch.export(m, (x, y), loss, torch.optim.SGD(m.parameters(), 0.1), evals={"logits": lambda m, x, y: m(x)},
                                       shapes=[(x[:2], y[:2])])
    assert {name: value for name, value in vars(m).items() if not name.startswith("_")} == before and not m.cache and not made, form
    assert table is None and not kept and Model.shared is None and not Holder.of_class and m.holder.value is None, form
    with exported.step(threads=1) as step:
        assert torch.allclose(torch.as_tensor(step(x, y).loss), expected), form
    weight, optimizer = m.fc.weight.detach().clone(), torch.optim.SGD(m.parameters(), 0.1)
    for i in range(2):
        value = loss(m, x, y)
        assert type(value) is torch.Tensor and (i or torch.equal(value, expected)), (form, value)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    assert not torch.equal(m.fc.weight, weight), form
    made.clear(), kept.clear(), Holder.of_class.clear()
    table = Model.shared = None
    print(f"{form.__name__}: ok", flush=True)
