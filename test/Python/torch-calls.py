# REQUIRES: numpy, torch
# RUN: %venv_torch %s
"""What is computed otherwise in each call, but not by buffers and torch's generator, is refused by name: a step would do in each what it did in
the first."""
import collections
import functools
import itertools
import os
import random
import sys
import warnings

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))
from against_torch import agree, mlp  # noqa: E402
from tiny import refused, trainc  # noqa: E402

torch.manual_seed(2)
torch.set_default_dtype(torch.float64)
Unsupported, HERE = trainc.UnsupportedError, "torch-calls.py:"
x, y = torch.randn(4, 6), torch.tensor([0, 2, 1, 1])
step = 0


def ce(m, x, y):
    return F.cross_entropy(m(x), y)


def export(m=None, loss=ce):
    m = m or mlp()
    return trainc.torch.export(m, (x, y), loss, torch.optim.SGD(m.parameters(), 0.1))


def trained(m, loss=ce):
    agree(m, [(x, y)], loss, lambda p: torch.optim.SGD(p, 0.1), updates=6, bar=1e-9, parameters=1e-9)


def attributes():
    """What a model counts in numbers, lists and plain tensors would stay as it was at the export; in a buffer it counts. What is only
    written, and what is kept after the first call, is as in PyTorch."""
    class Model(nn.Module):
        def __init__(self, scale):
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3))
            self.scale, self.calls, self.seen, self.table, self.plain = scale, 0, [], {"calls": 0}, torch.ones(())
            self.register_buffer("counted", torch.zeros(()))
            self.tally, self.queue = collections.Counter(), collections.deque(maxlen=5)
            self.numbers, self.ids = itertools.count(), set()
            self.rate, self.places = 1.0, torch.tensor([0, 1, 2])
            self.kept, self.begins, self.alias = None, True, self.inner[0].weight.detach()

        def forward(self, x):
            return self.inner(x) * self.scale(self)

    def number(m):
        m.calls += 1
        return min(1.0, m.calls / 4)

    def appended(m):
        m.seen.append(m.calls)
        return len(m.seen)

    def entry(m):
        m.table["calls"] += 1
        return m.table["calls"]

    def tallied(m):
        m.tally["calls"] += 1
        return m.tally["calls"]

    def queued(m):
        m.queue.append(1)
        return len(m.queue)

    def next_number(m):
        return next(m.numbers) + 1.0

    def collected(m):
        m.ids.add(len(m.ids))
        return len(m.ids)

    def toggled(m):
        m.calls = 1 - m.calls
        return m.calls + 1.0

    def plain(m):
        m.plain = m.plain * 0.5
        return m.plain

    def rewritten(m):
        m.plain = torch.tensor(m.plain.item() + 1)
        return min(1.0, m.plain.item() / 4)

    def rotated(m):
        first, *others = m.places.tolist()
        m.places = torch.tensor([*others, first])
        return m.inner[0].weight[others[0], 0] * 2

    def asked(m):
        scale = 2.0 if m.kept is not None and m.kept.item() > 1.0 else 1.0
        m.kept = m.inner[0].weight.detach().sum()
        return scale

    def asked_of_plain(m):
        scale = 2.0 if m.plain.item() > 2.0 else 1.0
        m.plain = m.inner[0].weight.detach().sum()
        return scale

    def looked_at(m):
        m.plain = m.inner[0].weight.detach().sum()
        return 1.0

    def periodic(m):
        m.calls += 1
        return 2.0 if m.calls % 16 == 0 else 1.0

    def periodic_entry(m):
        m.table["calls"] = (m.table["calls"] + 1) % 7
        return 2.0 if m.table["calls"] == 6 else 1.0

    def warmed_up(m):
        m.calls += 1
        return 1.0 if m.calls / 1000 >= 1.0 else 0.5

    def within(m):
        m.calls += 1
        return 2.0 if m.calls > 300 and not m.calls >= 400 and m.calls % 10 == 3 else 1.0

    def decayed(m):
        m.rate *= 0.99
        return 1.0 if m.rate > 0.1 else 2.0

    def chosen(m):
        m.calls += 1
        return 2.0 if int(m.calls) > 5000 else 1.0

    def reported(m):
        m.calls += 1
        m.rate *= 0.5
        if m.calls % 100 == 0 or m.rate < 1e-3:
            m.seen.append(f"{m.calls}: {m.rate}")
        return 1.0

    def counted(m):
        m.counted += 1
        return min(1.0, m.counted.item() / 4)

    def written(m):
        m.calls, m.last = m.calls + 1, m.inner[0].weight.sum()
        return 1.0

    def cached(m):
        if m.table.get("length", 0) < 3:
            m.table["length"], m.cosines = 3, torch.arange(3.0).cos()
        return m.cosines

    def counted_and_cached(m):
        m.calls, m.last = m.calls + 1, m.inner[0].weight.sum()
        m.seen.append(m.last)
        return cached(m)

    def remembered(m):
        before, m.kept = m.kept, m.inner[0].weight.detach().sum()
        return 1.0 if before is None else before

    def first(m):
        return m.table.setdefault("first", m.inner[0].weight.detach().sum())

    def latest(m):
        m.queue.append(m.inner[0].weight.detach().sum())
        return sum(m.queue)

    def oldest(m):
        m.seen.append(m.inner[0].weight.detach().sum())
        return m.seen[0]

    def begun(m):
        if m.begins:
            m.begins = False
            with torch.no_grad():
                m.counted.copy_(m.inner[0].weight.sum())
        return m.counted

    def begun_with(m):
        weights = torch.tensor([1.0, 1.0, 1.0] if m.begins else [0.5, 2.0, 1.0])
        m.begins = False
        return weights

    def moved(m):
        with torch.no_grad():
            m.counted.add_(1)
        return m.kept

    for scale, name in [(number, "calls"), (appended, "seen"), (entry, "table"), (toggled, "calls"), (tallied, "tally"), (queued, "queue"),
                        (next_number, "numbers"), (collected, "ids"), (plain, "plain"), (rewritten, "plain"), (rotated, "places"),
                        (periodic, "calls"), (periodic_entry, "table"), (warmed_up, "calls"), (within, "calls"), (decayed, "rate"),
                        (chosen, "calls")]:
        with refused(Unsupported, f"{name} of Model changes in each call", "register_buffer"), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*assigned during export")
            export(Model(scale))
    for scale, name in [(remembered, "kept"), (first, "table"), (oldest, "seen"), (latest, "queue"), (asked, "kept"), (asked_of_plain, "plain")]:
        with refused(Unsupported, f"{name} of Model is computed by one call and read by the next", "register_buffer"):
            export(Model(scale))
    for scale in (begun, begun_with):
        with refused(Unsupported, "begins of Model changes in the first call", "a call of the model before the export"):
            export(Model(scale))
        called = Model(scale)
        called(x)
        trained(called)
    with refused(Unsupported, "alias of Model is in the memory of inner.0.weight", "clone()"):
        export(Model(lambda m: m.alias.sum()))
    shared = Model(moved)
    shared.kept = shared.counted
    with refused(Unsupported, "kept of Model is in the memory of counted", "clone()"):
        export(shared)
    for scale in (counted, written, looked_at, reported, cached, counted_and_cached):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*assigned during export")
            trained(Model(scale))


class Center(nn.Module):
    """A loss with a mean of its own of what it has seen, which it `moves`."""

    def __init__(self, moves):
        super().__init__()
        self.register_buffer("center", torch.zeros(3))
        self.moves, self.calls = moves, 0

    def forward(self, result, y):
        loss = F.cross_entropy(result - self.center, y)
        with torch.no_grad():
            self.moves(self, result.mean(0))
        return loss


def losses():
    """What a loss keeps from call to call outside of the model."""
    def counts(m, x, y):
        global step
        step += 1
        return ce(m, x, y) * step

    def around():
        calls, table = 0, [0]

        def loss(m, x, y):
            nonlocal calls
            calls += 1
            return ce(m, x, y) * calls

        def noted(m, x, y):
            table[0] += 1
            return ce(m, x, y) * table[0]

        def logged(m, x, y):
            table[0] += 1
            return ce(m, x, y)

        return loss, noted, logged

    class Loss:
        def __init__(self):
            self.calls = 0

        def __call__(self, m, x, y):
            self.calls += 1
            return ce(m, x, y) * self.calls

    def centered(moves):
        center = Center(moves)
        return lambda m, x, y: center(m(x), y)

    def assigns(self, mean):
        self.center = (self.center + mean) / 2

    def averages(m, x, y):
        with torch.no_grad():
            for old, new in zip(teacher.parameters(), m.parameters()):
                old.lerp_(new, 0.1)
        return (m(x) - teacher(x)).square().mean()

    teacher = mlp()
    loss, noted, logged = around()
    for function, *said in [(counts, "step of "), (loss, "calls of loss()"), (noted, "table of noted()"), (Loss(), "calls of Loss"), (Loss().__call__, "calls of Loss"),
                            (functools.partial(Loss()), "calls of Loss"), (centered(assigns), "center of Center"),
                            (centered(lambda self, mean: self.center.lerp_(mean, 0.5)), HERE, "shape [3]", "lerp_"),
                            (averages, HERE, "no buffer of the model", "old.lerp_")]:
        with refused(Unsupported, "changes in", "each call", "register_buffer", *said):
            export(loss=function)
    for function in (logged, centered(lambda self, mean: setattr(self, "calls", self.calls + 1))):
        trained(mlp(), function)


def draws():
    for draw in (random.random, lambda: torch.from_numpy(np.random.rand(3)), np.random.standard_normal):
        with refused(Unsupported, "drawn by Python's random or by numpy.random", "torch.rand"):
            export(loss=lambda m, x, y: ce(m, x, y) + (m(x) * draw()).sum())

    generators = np.random.default_rng(0), random.Random(0)
    for draw in (lambda: generators[0].standard_normal(), lambda: generators[1].random()):
        with refused(Unsupported, "generators of ", "changes in each call"):
            export(loss=lambda m, x, y: ce(m, x, y) * draw())

    for draw, said in [(lambda: np.random.default_rng().random(), "numpy.random"), (lambda: np.random.RandomState().rand(), "numpy.random"),
                       (lambda: random.Random().random(), "Python's random")]:
        with refused(Unsupported, f"a generator of {said} without a seed", "torch.rand", HERE):
            export(loss=lambda m, x, y: ce(m, x, y) * draw())
    for draw in (lambda: np.random.default_rng(1).random(), lambda: random.Random(1).random()):
        trained(mlp(), lambda m, x, y: ce(m, x, y) * draw())

    manual_seed = torch.random.manual_seed

    def seeded(m, x, y):
        torch.manual_seed(0)
        return ce(m, x + torch.randn_like(x), y)

    def forked(m, x, y):
        with torch.random.fork_rng():
            noise = torch.randn_like(x)
        return ce(m, x + noise, y) + torch.randn_like(x).mean()

    def generator(m, x, y):
        torch.default_generator.manual_seed(0)
        return ce(m, x + torch.randn_like(x), y)

    def imported(m, x, y):
        manual_seed(0)
        return ce(m, x + torch.randn_like(x), y)

    def put_back(m, x, y):
        state = torch.get_rng_state()
        noise = torch.randn_like(x)
        torch.set_rng_state(state)
        return ce(m, x + noise, y) + torch.randn_like(x).mean()

    def own(m, x, y):
        return ce(m, x + torch.randn(x.shape, generator=torch.Generator().manual_seed(0)), y)

    for loss, said in [(seeded, "torch.manual_seed(0)"), (imported, "manual_seed(0)"), (forked, "with torch.random.fork_rng()"),
                       (generator, "torch.default_generator.manual_seed(0)"), (put_back, "torch.set_rng_state(state)"),
                       (own, "generator of its own")]:
        with refused(Unsupported, HERE, said):
            export(loss=loss)


def data():
    """Of what is read by `.data` there is no gradient, and what is changed by it is changed; so are buffers in a region that only writes."""
    class Model(nn.Module):
        def __init__(self, scale):
            super().__init__()
            self.inner, self.scale = nn.Linear(6, 3), scale
            self.register_buffer("mean", torch.zeros(3))

        def forward(self, x):
            return self.scale(self, self.inner(x))

    def clamps(m, result):
        m.inner.weight.data.clamp_(-0.1, 0.1)
        return result

    def sets(m, result):
        m.inner.weight.data = m.inner.weight.data / 2
        return result

    def moves(m, result):
        m.mean.data.lerp_(result.data.mean(0), 0.1)
        return result - m.mean

    def follows(m, result):
        used = result - m.mean
        with torch.no_grad():  # which returns nothing
            m.mean.mul_(0.9).add_(result.mean(0), alpha=0.1)
        return used

    for scale, *said in [(clamps, "changed in place", "inner.weight"), (sets, HERE, ".data is set", "m.inner.weight.data =")]:
        with refused(Unsupported, *said):
            export(Model(scale))
    for scale in (lambda m, result: result * m.inner.weight.data.norm(), moves, follows):
        trained(Model(scale))


def gradients():
    """Regions, parameters and tensors that leave gradients out, and memory that is changed past a gradient, which is refused."""
    def inferred(m, x, y):
        with torch.inference_mode():
            scale = m(x)
        return ce(m, x, y) * scale.clone().square().mean()

    def partly(m, x, y):
        """Of a discriminator of which the generator's loss asks no gradient."""
        m[2].requires_grad_(False)
        off = ce(m, x, y)
        assert not m[2].weight.requires_grad
        m[2].requires_grad_(True)
        return off + (m(x) * m[2].weight.norm()).square().mean()

    def cut(m, x, y):
        result = m(x)
        cut = result * 2
        cut.detach_()
        return F.cross_entropy(result * cut, y)

    for loss in (inferred, partly, cut):
        trained(mlp(), loss)

    def past(change):
        def loss(m, x, y):
            result = m(x)
            change(result)
            return F.cross_entropy(result, y)

        return loss

    def under_no_grad(result):
        with torch.no_grad():
            result[0] = 3.0

    for change, said in [(under_no_grad, "result[0] = 3.0"), (lambda r: r.detach().clamp_(-1, 1), "clamp_"), (lambda r: r.data[:, 1].mul_(2), "mul_(2)")]:
        with refused(Unsupported, HERE, "past its gradient", said):
            export(loss=past(change))
    frozen = mlp()
    frozen[0].requires_grad_(False)
    with refused(Unsupported, HERE, "requires_grad of a frozen parameter", "m.requires_grad_()"):
        export(frozen, lambda m, x, y: ce(m.requires_grad_(), x, y))


def buffers():
    """What replaces a buffer is its value in the next call."""
    class Model(nn.Module):
        def __init__(self, moves):
            super().__init__()
            self.inner, self.moves = nn.Linear(6, 3), moves
            self.register_buffer("mean", torch.zeros(3))
            self.register_buffer("other", torch.ones(3))

        def forward(self, x):
            result = self.inner(x)
            self.moves(self, result)
            return result - self.mean[:3]

    def replaces(m, result):
        m.mean = m.mean * 0.9 + result.detach().mean(0)
        with torch.no_grad():
            m.mean = m.mean / 2
            m.mean[1] += 1

    def swaps(m, result):
        m.mean, m.other = m.other + result.detach()[0], m.mean

    for moves in (replaces, swaps):
        m = Model(moves)
        own = dict(m.named_buffers())
        trained(m)
        assert all(own[name] is buffer for name, buffer in m.named_buffers())

    def grows(m, result):
        m.mean = torch.cat([m.mean, result.detach()[0]])

    def removed(m, result):
        m.other = None

    def parameter(m, result):
        m.inner.weight = nn.Parameter(m.inner.weight * 2)

    def first(make):
        """What the first call makes of a buffer that is none."""
        def moves(m, result):
            if m.lazy is None:
                m.lazy = make(result)
            m.mean = m.lazy * 0.5

        m = Model(moves)
        m.register_buffer("lazy", None)
        return m

    trained(first(lambda result: torch.arange(3.0).cos()))
    of_data = first(lambda result: result.detach().mean(0))
    with refused(Unsupported, "lazy of Model", "none", "a call of the model before the export"):
        export(of_data)
    of_data(x)
    trained(of_data)

    class Registers(nn.Module):
        """A buffer, a parameter or a module that the first call makes."""
        def __init__(self, make, moves=False):
            super().__init__()
            self.inner, self.make, self.moves = nn.Linear(6, 3), make, moves

        def forward(self, x):
            if not hasattr(self, "made"):
                self.make(self, x)
            if self.moves:
                self.made += 1
            return self.inner(x) * (self.made if isinstance(self.made, torch.Tensor) else 1 + self.made(x))

    def of_input(m, x):
        m.register_buffer("made", x.detach().mean(0)[:3])

    def cosines(m, x):
        m.register_buffer("made", torch.arange(3.0).cos(), persistent=False)

    for make in (of_input, lambda m, x: m.register_buffer("made", torch.bernoulli(torch.full((3,), 0.5))),
                 lambda m, x: setattr(m, "made", nn.Parameter(torch.randn(3)))):
        with refused(Unsupported, "made of Registers", "none", "a call of the model before the export"):
            export(Registers(make))
    with refused(Unsupported, "of Linear", "none", "a call of the model before the export"):
        export(Registers(lambda m, x: setattr(m, "made", nn.Linear(6, 3))))
    with refused(Unsupported, "changes in place in each call", "register_buffer"):
        export(Registers(cosines, moves=True))
    trained(Registers(cosines))
    called = Registers(of_input)
    called(x)
    trained(called)

    for moves, *said in [(grows, "mean of Model", "shape [3]", "shape [6]"), (removed, "other of Model", "none"), (parameter, "weight of Linear")]:
        with refused(Unsupported, "is replaced in each call", *said):
            export(Model(moves))


for test in (attributes, losses, draws, data, gradients, buffers):
    if sys.argv[1:] and test.__name__ not in sys.argv[1:]:
        continue
    test()
    print(f"{test.__name__}: ok", flush=True)
