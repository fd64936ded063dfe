# REQUIRES: torch
# RUN: %venv_torch %s
"""What a forward does beside its result: gradients that it turns off in a region of autocast, buffers that other entries read, tensors
that it changes in place by functions whose name does not say so, tensors that functions give back as they are."""
import copy
import os
import sys

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))
from against_torch import agree, distance, trainc  # noqa: E402
from tiny import refused  # noqa: E402

torch.manual_seed(3)
torch.set_default_dtype(torch.float64)
Unsupported, HERE = trainc.UnsupportedError, "torch-effects.py:"
x = torch.randn(5, 4)


def sgd(parameters, rate=0.1):
    return torch.optim.SGD(parameters, rate)


def squared(m, x):
    return m(x).square().mean()


class Layers(nn.Module):
    """With the forward that is given."""

    def __init__(self, function):
        super().__init__()
        self.a, self.b, self.teacher = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4).requires_grad_(False)
        self.register_buffer("count", torch.ones(()))
        self.register_buffer("mean", torch.zeros(4))
        self.function = function

    def forward(self, x):
        return self.function(self, x)


def regions_of_autocast():
    """torch.export forgets `no_grad` within autocast; enabled=False, so that results are compared in float64."""
    def target(m, x):
        with torch.no_grad():
            h = m.a(x)
        return m.b(x) + h

    def parts(m, x):
        k = m.b(x)
        with torch.no_grad():
            values, places = m.a(x).max(1)
            left, right = (k * values[:, None]).chunk(2, 1)
            with torch.enable_grad():
                h = m.a(x * 2)
        return torch.cat([left, right], 1) * k + (h - values.view(-1, 1)).sin() * places[:, None]

    def inferred(m, x):
        with torch.inference_mode():
            h = m.a(x)
        return m.b(x) + h.clone()

    def follows(m, x):
        """What is computed without gradients changes a teacher in place."""
        row = m.teacher.bias[1:]
        with torch.no_grad():
            for mine, other in zip(m.teacher.parameters(), m.a.parameters()):
                mine.lerp_(other, 0.3)
            torch.add(m.mean, m.b(x).mean(0), out=m.mean)
        return m.a(x) - m.teacher(x * 2) + m.b(x) * m.mean + row.sum()

    def sampled(m, x):
        return torch.distributions.Normal(m.a(x), 1e-300).sample() + m.b(x)

    def within(function):
        def forward(m, x):
            with torch.autocast("cpu", torch.bfloat16, enabled=False):
                return function(m, x).square().mean()

        return forward

    for function in (target, parts, inferred, follows, sampled):
        agree(Layers(within(function)), (x,), optimizer=sgd)

    def distilled(m, x):
        with torch.no_grad():
            target = m.a(x)
        return F.mse_loss(m.b(x).float(), target.float())

    model = Layers(distilled).float()
    exported = trainc.torch.export(model, (x.float(),), optimizer=sgd(model.parameters()), precision="autocast")
    assert exported.frozen == ["a.weight", "a.bias"], exported.frozen


def written_without_gradient():
    """What `no_grad` writes through a view, which its region does not return, has no gradient."""
    def row(m, x):
        h = m.a(x)
        with torch.no_grad():
            m.teacher.weight[0] = 0.9 * m.teacher.weight[0] + 0.1 * h.mean(0)
        return h @ m.teacher.weight + h

    def rows(m, x):
        with torch.no_grad():
            m.teacher.weight[:2].lerp_(m.a.weight[:2], 0.3)
            m.mean[1:].mul_(0.9).add_(m.b(x)[0, 1:], alpha=0.1)
        return m.a(x) * m.mean - m.teacher(x) + m.b(x)

    def before(m, x):
        h, view = m.a(x), m.mean[1:]
        with torch.no_grad():
            m.mean.copy_(h[0])
        return h * torch.cat([view, view[:1]])

    def local(m, x):
        h, rows = m.a(x), torch.zeros(5, 4)
        with torch.no_grad():
            for i in range(5):
                rows[i] = h[i]
        return h * rows

    for function in (row, rows, before, local):
        agree(Layers(function), [(x,), (x * 2 + 1,), (x - 3,)], squared, sgd)


def written_past_gradients():
    """What `.detach()` or `.data` is made of has no gradient of what is written through it."""
    def chained(m, x):
        h = m.a(x)
        m.mean.data.mul_(0.9).add_(h.mean(0), alpha=0.1)
        return h - m.mean

    def copied(m, x):
        h = m.a(x)
        m.mean.data[1:].copy_(h.mean(0)[1:])
        m.teacher.weight.data[0] = 0.5 * m.teacher.weight.data[0] + 0.5 * h.mean(0)
        return h * m.mean - m.teacher(x)

    def local(m, x):
        h, z = m.a(x), torch.zeros(5, 4)
        view = z.detach()
        view.copy_(h)
        view += h
        with torch.no_grad():
            kept = view.sum()
        return h * z + view.detach() * kept

    for function in (chained, copied, local):
        agree(Layers(function), [(x,), (x * 2 + 1,), (x - 3,)], squared, sgd)

    def read(m, x):
        view = m.mean.detach()
        view[1:] = m.a(x)[0, 1:]
        return view * m.b(x)

    with refused(Unsupported, "what has a gradient is written to a tensor of .detach()", HERE, "return view * m.b(x)"):
        trainc.torch.export(Layers(read), (x,), squared)


def turned_on():
    """By inference_mode(False)."""
    def forward(m, x):
        with torch.no_grad():
            target = m.b(x)
            with torch.inference_mode(False):
                h = m.a(x)
        with torch.inference_mode(False):
            return h * target + m.b(h.detach())

    assert not agree(Layers(forward), (x,), squared).frozen


def turned_off():
    """A parameter that asks for no gradient in the end has none, before that, too; one that asks for it again has."""
    def left(m, x):
        h = m.b(m.a(x))
        m.b.requires_grad_(False)
        return h + m.b(m.a(x))

    def again(m, x):
        m.b.requires_grad_(False)
        h = m.b(m.a(x))
        m.b.requires_grad_(True)
        return h + m.b(x)

    def penalized(m, x):
        z = x.clone().requires_grad_()
        slope, = torch.autograd.grad(left(m, z).sum(), z, create_graph=True)
        return slope * m.a(x)

    for function, frozen in ((left, ["b.weight", "b.bias"]), (again, []), (penalized, ["b.weight", "b.bias"])):
        model = Layers(function)
        exported = trainc.torch.export(model, (x,), squared, sgd(model.parameters()))
        reference = copy.deepcopy(model)
        assert exported.frozen == frozen, exported.frozen
        squared(reference, x).backward()
        with exported.step(threads=1) as step:
            step(x)
            for name, p in reference.named_parameters():
                if p.grad is not None:
                    assert distance(step.read(name, as_torch=True), (p - 0.1 * p.grad).detach()) <= 1e-9, name


def changed_for_others():
    """A buffer that one entry changes is compiled into no other one, whatever its type is and in whatever order they are exported."""
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 3), nn.Linear(4, 3)
            self.register_buffer("n", torch.zeros((), dtype=torch.long))
            self.register_buffer("ready", torch.tensor(False))
            self.register_buffer("mean", torch.zeros(4), persistent=False)

        def forward(self, x):
            if self.training:
                self.n += 1
                self.mean.lerp_(x.mean(0), 0.1)
                self.ready.fill_(True)
            return self.a(torch.where(self.ready, x - self.mean, x)) * self.n

    model = Counts()
    exported = trainc.torch.export(model, (x,), squared, sgd(model.parameters(), 0.0), shapes=[(x[:3],)], evals={"y": lambda m, x: m(x)})
    with exported.step(threads=1) as step:
        for batch in (x, x[:3], x):
            assert abs(step(batch).loss - squared(model, batch).item()) <= 1e-12
        model.eval()
        assert distance(step.eval("y", x)["y"], model(x).detach()) <= 1e-12

    def first(m, x):
        return (m.a(x) * (1 + m.n)).square().mean()

    def second(m, x):
        m.n += 1
        return (m.b(x) * m.n).square().mean()

    model = Counts()
    Trains = trainc.torch.Trains
    exported = trainc.torch.export(model, trains={"first": Trains((x,), first, sgd(model.a.parameters(), 0.0)),
                                                  "second": Trains((x,), second, sgd(model.b.parameters(), 0.0))})
    with exported.step(threads=1) as step:
        for _ in range(3):
            for name, loss in (("first", first), ("second", second)):
                assert abs(step.train(name, x).loss - loss(model, x).item()) <= 1e-12


def aliased():
    """A constant in the memory of what any entry changes, parameters among them, would not follow it."""
    def counts(m, x):
        if m.training:
            with torch.no_grad():
                m.mean.add_(1)
            return m.a(x)
        return m.a(x) * 0 + m.other

    def follows(m, x):
        with torch.no_grad():
            m.teacher.weight.lerp_(m.a.weight, 0.3)
        return m.a(x) - F.linear(x, m.other)

    def evaluated(m, x):
        return follows(m, x) * 0 + m.b(x) if m.training else F.linear(x, m.other)

    def is_read(m, x):
        return m.a(x) + m.other

    for function, other, name in ((counts, lambda m: m.mean, "mean"), (counts, lambda m: m.mean[:1], "mean"),
                                  (follows, lambda m: m.teacher.weight.detach(), "teacher.weight"),
                                  (evaluated, lambda m: m.teacher.weight.detach(), "teacher.weight")):
        model = Layers(function)
        model.other = other(model)
        with refused(Unsupported, f"other of Layers is in the memory of {name}", "clone()"):
            trainc.torch.export(model, (x,), squared, sgd(model.parameters()), evals={"y": lambda m, x: m(x)})
    model = Layers(is_read)
    model.other = model.mean
    agree(model, (x,), squared, sgd)


def changed_in_8_bits():
    """What a step changes in place is not stored in 8 bits, where an eval alone would multiply by it."""
    def follows(m, x):
        with torch.no_grad():
            m.teacher.weight.lerp_(m.a.weight, 0.5)
        return F.mse_loss(m.a(x), m.teacher(m.b(x)))

    model = Layers(follows)
    with refused(trainc.UnsupportedError, "stores nothing in 8 bits", "teacher.weight: the forward changes it in place"):
        trainc.torch.export(model, (x,), optimizer=sgd(model.parameters(), 0.0), frozen="int8", evals={"y": lambda m, x: m.teacher(x)})


def changed_by_evals():
    """An eval changes nothing."""
    def counted(m, x):
        if not m.training:
            m.count += 1
        return m.a(x)

    model = Layers(counted)
    with refused(Unsupported, "eval 'y' changes count", "expected a change in training alone"):
        trainc.torch.export(model, (x,), squared, evals={"y": lambda m, x: m(x)})


def numbers():
    """item() is the number that was there."""
    def biased(m, x):
        t = m.count.item()
        m.count += 1
        return (m.a(x) * (1 - 0.9 ** t)).square().mean()

    def of_input(m, x):
        total = x.sum()
        t = total.item()
        total.mul_(3)
        return (m.a(x) * t).square().mean() + 0 * total

    for function in (biased, of_input):
        agree(Layers(function), (x,))


def replaced():
    """A result in the memory of a buffer that is replaced has the values from before."""
    def old(m, x):
        old = m.mean
        m.mean = 0.5 * old + 0.5 * x.mean(0)
        return m.a(x - m.mean).square().mean(), {"old": old, "part": old[1:], "new": m.mean}

    model = Layers(old)
    reference = copy.deepcopy(model)
    with trainc.torch.export(model, (x,), lambda m, x: m(x), sgd(model.parameters(), 0.0)).step(threads=1) as step:
        for _ in range(3):
            outputs = step(x).outputs
            torch.testing.assert_close(outputs, reference(x)[1])


def normal():
    """The gradients of `torch.normal` are zeros: what has no other is decayed."""
    agree(nn.Linear(4, 3), (x,), lambda m, x: torch.normal(m(x), 0.0).square().mean())


def zeros():
    """What is filled has zeros as its gradient; what functions draw or count like another tensor has none, so that no optimizer decays it."""
    class Filled(nn.Module):
        def __init__(self, function):
            super().__init__()
            self.fc, self.p, self.function = nn.Linear(4, 3), nn.Parameter(torch.rand(3) + 0.1), function

        def forward(self, x):
            return self.function(self.fc(x), self.p)

    def rows(h, p):
        scaled = p * 2
        scaled[:] = 0.5
        return h + scaled

    for function in (lambda h, p: h + (p * 2).fill_(0.5), lambda h, p: h * (p * 2).zero_() + h, rows):
        assert not agree(Filled(function), (x,), squared).frozen
    for function in (lambda h, p: h + 0 * torch.randint_like(p, 5), lambda h, p: h + torch.histc(p, 3, 0, 1)):
        assert agree(Filled(function), (x,), squared).frozen == ["p"]


def in_place():
    """By `inplace=True`, wherever it stands, and by `out=`."""
    def known_out(m, x):
        known = torch.zeros(4)
        torch.mul(x[0], 2, out=known)
        return m.a(x).square().mean() * (1 + known.abs().sum().item())

    def known_drop(m, x, share=1.0):
        known = torch.ones(4)
        F.dropout(known, share, True, True)
        return m.a(x).square().mean() * (2.0 if known.sum() > 0 else 1.0)

    def known_relu(m, x):
        known = torch.tensor([-1.0, 2.0])
        F.relu(known[:1], True)
        return m.a(x).square().mean() * (2.0 if known.sum() > 1.5 else 1.0)

    def hidden(m, x):
        return (nn.Dropout(1.0, inplace=True)(m.a(x)) + nn.ReLU(inplace=True)(m.b(x)) + nn.ELU(inplace=True)(m.b(2 * x))).square().mean()

    for function in (known_out, known_drop, known_relu, hidden):
        agree(Layers(function), (x,))
    with refused(Unsupported, "known.sum() > 0", HERE):
        trainc.torch.export(Layers(lambda m, x: known_drop(m, x, 0.5)), (x,))

    def detached(change):
        def forward(m, x):
            h = m.a(x)
            change(h.detach())
            return h.sum() + m.b(x).square().sum()

        return forward

    for change, name in ((nn.ReLU(inplace=True), "relu"), (lambda h: F.hardtanh(h, -1.0, 1.0, True), "hardtanh"), (nn.Dropout(0.5, True), "dropout"),
                         (lambda h: torch.mul(h, 2, out=h), "mul")):
        with refused(Unsupported, f"{name} changes a tensor past its gradient", "x + (changed - x).detach()", HERE):
            trainc.torch.export(Layers(detached(change)), (x,))
    kept = torch.randn(4)
    with refused(Unsupported, "a tensor of shape [4]", "changes in place in each call", HERE):
        trainc.torch.export(Layers(lambda m, x: (m.a(x) * F.relu(kept, inplace=True)).sum()), (x,))


def itself_without_gradient():
    """What gives a tensor itself, as `x.double()` of float64 does, is a node of its own in a graph: the tensor would be without a gradient from a
    metric under no_grad on."""
    class Metric(nn.Module):
        def __init__(self, function):
            super().__init__()
            self.a, self.b, self.function = nn.Linear(4, 4), nn.Linear(4, 4), function

        def forward(self, x):
            h = self.a(x)
            with torch.no_grad():
                t = self.function(h)
                size = self.function(self.b.weight).norm()
            return (self.b(h) * t).square().mean() + 0 * size

    for function in (lambda h: h.double(), lambda h: h.to("cpu"), lambda h: h.type_as(h), lambda h: h.flatten(1), lambda h: F.dropout(h, 0.5, False),
                     lambda h: torch.broadcast_tensors(h, h[:1])[0], lambda h: h.sum_to_size(h.shape), lambda h: torch.as_tensor(h)):
        assert not agree(Metric(function), (torch.randn(5, 4),)).frozen
    for function in (lambda h: 2 * h, lambda h: h.view_as(h), lambda h: h.clone()):
        assert agree(Metric(function), (torch.randn(5, 4),), optimizer=lambda p: torch.optim.SGD(p, 0.1)).frozen == []


TESTS = [regions_of_autocast, written_without_gradient, written_past_gradients, turned_on, turned_off, changed_for_others, aliased,
         changed_in_8_bits, changed_by_evals, numbers, replaced, normal, zeros, in_place, itself_without_gradient]

if __name__ == "__main__":
    for test in [test for test in TESTS if not sys.argv[1:] or test.__name__ in sys.argv[1:]]:
        test()
        print(f"{test.__name__}: ok", flush=True)
