# REQUIRES: torch
# RUN: %venv_torch %s
"""Branches on values that go one way whatever the values are, and those that are refused."""
import os
import sys
import warnings

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

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


class Encoder(nn.Module):
    """Layers that are left out, as models of transformers write it."""
    def __init__(self, rate, form, layer=nn.Linear):
        super().__init__()
        self.layers, self.layerdrop, self.form = nn.ModuleList(layer(4, 4) for _ in range(2)), rate, form

    def forward(self, x):
        for layer in self.layers:
            drop = False
            if self.training and self.layerdrop > 0.0 and self.form != "above":
                drawn = torch.rand([])
                if self.form == "continue" and drawn < self.layerdrop:
                    continue
                drop = self.form == "kept" and drawn <= self.layerdrop
                if self.form == "flag" and drawn < self.layerdrop:
                    drop = True
            if self.form == "above":
                if not self.training or torch.rand([]) > self.layerdrop:
                    x = layer(x)
            elif not drop:
                x = layer(x)
        return x


def left_out():
    """A layer has its input as result as often as its rate says, and then no gradient."""
    x, optimizer = torch.randn(5, 4), torch.optim.SGD
    for form in ("continue", "flag", "kept", "above"):
        model = Encoder(0.25, form)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            exported = trainc.torch.export(model, (x,), lambda m, x: (m(x).square().mean(), {"y": m(x)}), optimizer(model.parameters(), 1e-30))
        assert any("LayerDrop: the gradient" in str(w.message) for w in said), form
        first, second = model.layers
        results = [second(first(x)), second(x), first(x), x]
        seen = [0] * 4
        with exported.step(threads=1) as step:
            for _ in range(400):
                y = step(x).outputs["y"]
                seen[next(i for i, result in enumerate(results) if torch.allclose(y, result, rtol=1e-9))] += 1
        assert abs(seen[1] + seen[3] - 100) < 40 and abs(seen[2] + seen[3] - 100) < 40 and 8 < seen[3] < 50, (form, seen)
    model = Encoder(1.0, "flag")
    exported = trainc.torch.export(model, (x,), lambda m, x: (m(x) * m.layers[0].bias).sum(), optimizer(model.parameters(), 0.1))
    before = {name: p.clone() for name, p in model.state_dict().items()}
    with exported.step() as step:
        step(x)
        after = step.state_dict(as_torch=True)
    assert [name for name in before if not torch.equal(before[name], after[name])] == ["layers.0.bias"]


def not_left_out():
    """What is more than its input elsewhere, and what changes more than the result."""
    def layer(*sizes):
        return nn.Sequential(nn.Linear(*sizes), nn.BatchNorm1d(4))

    class Several(nn.Linear):
        def forward(self, x):
            return super().forward(x), x.mean()

    class Unused(Encoder):
        def forward(self, x):
            return x.mean() * 2 if torch.rand([]) < self.layerdrop else x.mean()

    class Normed(Encoder):
        def forward(self, x):
            for layer in self.layers:
                if torch.rand([]) < self.layerdrop:
                    continue
                x = layer(self.norm(x))
            return x

    normed = Normed(0.1, "")
    normed.norm = nn.LayerNorm(4)
    for model, said in ((normed, "LayerDrop before LayerNorm, which is not a layer of the loop"),
                        (Encoder(0.1, "flag", layer), "LayerDrop of Sequential, which has running statistics"),
                        (Encoder(0.1, "flag", Several), "LayerDrop of Several, which gives more than its input"),
                        (Unused(0.1, ""), "LayerDrop without a layer behind it")):
        with refused(trainc.UnsupportedError, said):
            trainc.torch.export(model, (torch.randn(5, 4),), lambda m, x: m(x).mean(), torch.optim.SGD(model.parameters(), 0.1))


def behind():
    """What follows a layer up to the branch's end is left out with it; what follows for both is not."""
    class Pair(nn.Linear):
        def forward(self, x):
            return super().forward(x), None

    class Written(nn.Module):
        def __init__(self, lines, layer):
            super().__init__()
            text = "def forward(self, x):\n    for layer in self.layers:\n" + "".join(f"        {line}\n" for line in lines)
            self.layers, self.layerdrop, made = nn.ModuleList(layer(4, 4) for _ in range(2)), 0.5, {"torch": torch, "checkpoint": checkpoint}
            exec(text + "    return x", made)
            self.run = made["forward"]

        def forward(self, x):
            return self.run(self, x)

    x, go_on = torch.randn(5, 4), ["if torch.rand([]) < self.layerdrop: continue"]
    once, pair = (lambda layer, x: layer(x)), (lambda layer, x: layer(x)[0])
    for layer, lines, one, after in (
            (nn.Linear, [*go_on, "h = layer(x)", "x = h"], once, None),
            (nn.Linear, [*go_on, "r = x", "x = checkpoint(layer, x, use_reentrant=False)"], once, None),
            (Pair, [*go_on, "x, _ = layer(x)"], pair, None), (Pair, [*go_on, "out = layer(x)", "x = out[0]"], pair, None),
            (Pair, [*go_on, "if x is None: out = None", "else: out = layer(x)", "x = out[0]", "for i in range(3): out = i"], pair, None),
            (Pair, ["drop = torch.rand([]) < self.layerdrop", "if not drop or x is None:", "    out = layer(x)", "    x = out[0]",
                    "if drop: out = (None, None)", "x = torch.tanh(x)"], pair, torch.tanh),
            (Pair, ["drop = torch.rand([]) < self.layerdrop", "if drop: a = None", "else: x, a = layer(x)", "x = torch.tanh(x)"], pair, torch.tanh)):
        model, after = Written(lines, layer), after or (lambda x: x)
        first, second = (lambda x, m=m: one(m, x) for m in model.layers)
        results = [after(b(after(a(x)))) for a in (first, lambda x: x) for b in (second, lambda x: x)]
        exported = trainc.torch.export(model, (x,), lambda m, x: (m(x).square().mean(), {"y": m(x)}), torch.optim.SGD(model.parameters(), 1e-30))
        with exported.step(threads=1) as step:
            seen = {next(i for i, y in enumerate(results) if torch.allclose(got, y, rtol=1e-9)) for got in (step(x).outputs["y"] for _ in range(60))}
        assert seen == {0, 1, 2, 3}, (lines, seen)
    for lines in ([*go_on, "x = x + layer(x)"], [*go_on, "h = layer(x)", "x = x + h"], [*go_on, "x = torch.tanh(layer(x))"],
                  [*go_on, "x = layer(x)", "x = torch.tanh(x)"], [*go_on, "r = x", "x = layer(x)", "if self.training: x = x + r"],
                  ["if torch.rand([]) > self.layerdrop:", "    x = layer(x)", "    x = torch.tanh(x)"], [*go_on, "x = (lambda x: layer(x) + x)(x)"],
                  ["h = x", *go_on, "h = layer(h)", "x = x + h"], [*go_on, "x = layer(x)[0]"]):
        model = Written(lines, nn.Linear)
        with refused(trainc.UnsupportedError, "LayerDrop of Linear, of whose result forward computes something before"):
            trainc.torch.export(model, (x,), lambda m, x: m(x).square().mean(), torch.optim.SGD(model.parameters(), 0.1))


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
    for case in conditions, dropped_layers, left_out, not_left_out, behind, checks:
        case()
        print(f"{case.__name__}: ok", flush=True)
