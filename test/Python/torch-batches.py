# REQUIRES: torch
# RUN: %venv_torch %s
"""Batches with dicts, tuples and constants are called as they are given to the export; of several steps the one that fits is taken."""
import collections
import os
import sys

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))
from against_torch import trainc  # noqa: E402
from tiny import refused  # noqa: E402

torch.manual_seed(7)
x, y, other = torch.randn(4, 3), torch.randn(4, 2), torch.randn(4, 3)
Pair = collections.namedtuple("Pair", "x y")
model = nn.Linear(3, 2)


def mse(m, x, y, scale=1.0):
    return F.mse_loss(m(x), y) * scale


class Named(nn.Linear):
    def __init__(self):
        super().__init__(3, 2)

    def forward(self, model, known, function, args):
        return {"loss": F.mse_loss(super().forward(model), known) * function * args}


def steps(batch, loss, **options):
    return trainc.torch.export(model, batch, loss, torch.optim.SGD(model.parameters(), 0.0), **options).step(threads=1)


def value(step, *batch, **named):
    return step(*batch, **named).loss


def same(a, b):
    assert abs(a - b.item()) < 1e-6, (a, b)


def nested():
    """Inputs have the names of the leaves, by which they may be given, too."""
    want = mse(model, other, y)
    for batch, again, names, loss in [
            (({"x": x, "y": y},), ({"y": y, "x": other},), ["b_x", "b_y"], lambda m, b: mse(m, b["x"], b["y"])),
            ((Pair(x, y),), (Pair(other, y),), ["b_x", "b_y"], lambda m, b: mse(m, b.x, b.y)),
            (([x, {"a b": (y, None)}],), ([other, {"a b": (y, None)}],), ["b_0", "b_1_a_b_0"], lambda m, b: mse(m, b[0], b[1]["a b"][0])),
            (Pair(x, y), Pair(other, y), ["b", "y"], lambda m, b, y: mse(m, b, y)),
            ((x, Pair(y, 2.0)), (other, Pair(y, 2.0)), ["b", "p_x"], lambda m, b, p: mse(m, b, p.x, p.y / 2))]:
        exported = trainc.torch.export(model, batch, loss, torch.optim.SGD(model.parameters(), 0.0), evals={"e": loss})
        assert list(exported.inputs["step"]) == names
        with exported.step(threads=1) as step:
            same(value(step, *batch), mse(model, x, y))
            same(value(step, *again), want)
            same(step.eval("e", *again)["e"], want)
            same(value(step, **dict(zip(names, (other, y)))), want)
    with steps(({"x": x, "y": y},), lambda m, b: mse(m, b["x"], b["y"])) as step:
        for call, *said in [(lambda: step({"x": x}), "input b_y is missing"),
                            (lambda: step({"x": x, "y": y, "z": y}), "no input b_z: expected b_x, b_y"),
                            (lambda: step(x), "no input b: expected b_x, b_y"), (lambda: step({"x": [x], "y": y}), "no input b_x_0"),
                            (lambda: step({"x": x, "y": y}, 1), "takes b, each once, got 2 by position"),
                            (lambda: step({"x": x.double(), "y": y}), "input b_x of step", "float64")]:
            with refused(trainc.InvalidArgumentError, *said):
                call()
    # Of a dict an item that is a list, and names that are none of the language.
    batch = dict(x=x, y=y, ids=["a", "b"])
    batch["the scale"] = torch.tensor(3.0)
    with steps(batch, lambda m, x, y, **rest: mse(m, x, y, rest["the scale"])) as step:
        same(value(step, **batch), 3 * mse(model, x, y))
        with refused(trainc.InvalidArgumentError, "ids_1 of step is a constant: expected 'b', got 'c'"):
            step(**{**batch, "ids": ["a", "c"]})
    # Names that our own functions have, too.
    named = Named()
    batch = dict(model=x, known=y, function=torch.tensor(2.0), args=torch.tensor(3.0))
    for precision in (None, "autocast"):
        exported = trainc.torch.export(named, batch, None, torch.optim.SGD(named.parameters(), 0.0), precision=precision)
        with exported.step(threads=1) as step:
            assert abs(value(step, **batch) - named(**batch)["loss"].item()) < (0.1 if precision else 1e-6)


def nested_shapes():
    batches = [({"x": x[:n], "y": y[:n]},) for n in (4, 2)]
    with steps(batches[0], lambda m, b: mse(m, b["x"], b["y"]), shapes=batches[1:]) as step:
        for batch in batches * 2:
            same(value(step, *batch), mse(model, *batch[0].values()))
        with refused(trainc.InvalidArgumentError, "no step takes inputs of shapes dict"):
            step({"x": x[:3], "y": y[:3]})


def constants():
    """Steps of one shape that differ in constants; without one the first is taken."""
    def masked(m, x, y, mask):
        return mse(m, x if mask is None else x * mask, y)

    some, mask = [dict(x=x, y=y, mask=None), dict(x=x, y=y, mask=torch.ones(4, 3))], torch.randint(0, 2, (4, 3)).float()
    for batches in (some, some[::-1]):
        with steps(batches[0], masked, shapes=batches[1:]) as step:
            for given in (mask, None, mask, mask, None):
                same(value(step, x=x, y=y, mask=given), masked(model, x, y, given))
            same(value(step, x=x, y=y), mse(model, x, y))
    with steps((x, y, 1.0), mse, shapes=[(x, y, 2.0)]) as step:
        for scale in (2.0, 1.0, torch.tensor(2.0), torch.tensor(2.0).numpy(), 1):
            same(value(step, x, y, scale), mse(model, x, y, float(scale)))
        step(x, y, 2.0)
        same(value(step, x, y), mse(model, x, y))
        with refused(trainc.InvalidArgumentError, "no step takes inputs of shapes (4, 3), (4, 2), 3.0", "scale = 1.0", "scale = 2.0"):
            step(x, y, 3.0)
    for constant, *wrong in [(True, 1, 1.0, torch.tensor(1)), (1, True, torch.tensor(True), torch.tensor(True).numpy())]:
        with steps((x, y, constant), lambda m, x, y, scale: mse(m, x, y, 5.0 if scale is True else scale)) as step:
            same(value(step, x, y, torch.tensor(constant)), mse(model, x, y, 5.0 if constant is True else 1.0))
            for given in wrong:
                with refused(trainc.InvalidArgumentError, f"scale of step is a constant: expected {constant}, got"):
                    step(x, y, given)
    # Of two steps the second has one item more.
    def weighed(m, x, y, w=None):
        return mse(m, x, y) if w is None else ((m(x) - y).square() * w).mean()

    for batches in ([(x, y), (x, y, mask[:, :1])], [dict(x=x, y=y), dict(x=x, y=y, w=mask[:, :1])]):
        with steps(batches[0], weighed, shapes=batches[1:]) as step:
            for batch in batches * 2:
                args, named = ((), batch) if isinstance(batch, dict) else (batch, {})
                same(value(step, *args, **named), weighed(model, *args, **named))
            with refused(trainc.InvalidArgumentError, "no step takes inputs of shapes (4, 3), (4, 2), v: (4, 1)"):
                step(x, y, v=mask[:, :1])
    with steps(some[0], masked) as step:
        for wrong in (mask, mask.numpy(), mask[0, 0], "text", 0):
            with refused(trainc.InvalidArgumentError, "mask of step is a constant: expected None, got"):
                step(x, y, wrong)


def unread():
    """A step may depend on the shape of what it does not read."""
    def scaled(m, x, y, extra):
        return mse(m, x, y) * extra.shape[0]

    two, seven, bad = torch.randn(2, 5), torch.randn(7, 5), trainc.InvalidArgumentError
    with steps((x, y, two), scaled, evals={"e": (lambda m, x, b: m(x) * len(b["extra"]), (x, {"extra": two}))}) as step:
        for given in (two, two.numpy(), torch.randn(2, 5)):
            same(value(step, x, y, given), 2 * mse(model, x, y))
        same(value(step, x, y), 2 * mse(model, x, y))
        torch.testing.assert_close(step.eval("e", x, {"extra": two})["e"], 2 * model(x).detach())
        for wrong, got in ((seven, "(7, 5)"), (two[0].numpy(), "(5,)"), (None, "NoneType"), (1.0, "()")):
            with refused(bad, "extra of step is no input, but the step may depend on its shape: expected (2, 5)", f"got {got}; it may be left out"):
                step(x, y, extra=wrong)
        with refused(bad, "b_extra of e", "expected (2, 5), got (7, 5)"):
            step.eval("e", x, {"extra": seven})
    with steps((x, y, two), scaled, shapes=[(x, y, seven)]) as step:
        for given in (seven, two, seven):
            same(value(step, x, y, given), len(given) * mse(model, x, y))
        with refused(bad, "no step takes inputs of shapes (4, 3), (4, 2), (3, 5)", "extra: [2, 5]", "extra: [7, 5]"):
            step(x, y, seven[:3])

    def remembering(m, x, y, memory):
        return mse(m, x, y) + (m(memory).square().mean() if len(memory) else 0)

    with steps((x, y, x[:0]), remembering, shapes=[(x, y, x[:2])]) as step:
        for memory in (other[:2], x[:0], other[2:]):
            same(value(step, x, y, memory), remembering(model, x, y, memory))
    # Of the examples there may be fewer, where their loss is given for each.
    with steps((x, y, torch.arange(4)), lambda m, x, y, numbers: (m(x) - y).square().mean(1)) as step:
        for n in 4, 3, 1:
            same(value(step, x[:n], y[:n], torch.arange(n)), mse(model, x[:n], y[:n]))
            same(value(step, x[:n], y[:n], torch.arange(4)), mse(model, x[:n], y[:n]))
        for numbers in (torch.arange(2), torch.arange(5)):
            with refused(bad, "numbers of step is no input", f"expected (4,), got ({len(numbers)},)"):
                step(x[:3], y[:3], numbers)


def said():
    """What of a batch is no input is said, and calls go on to take it."""
    batch = dict(x=x, y=y, junk=torch.randn(3), none=None, k=3.0, text="a" * 99)
    exported = trainc.torch.export(model, batch, lambda m, x, y, k, **rest: mse(m, x, y, k), torch.optim.SGD(model.parameters(), 0.0),
                                   evals={"e": lambda m, x, **rest: m(x)})
    for words in ("not read: junk", "constant: none = None", "constant: k = 3.0", "constant: text = 'aaa"):
        assert repr(exported).count(words) == 1 and f"of the example batch, {words}" in exported.report(), exported
    assert "not read: y" not in repr(exported) and "a" * 40 not in repr(exported)
    with exported.step(threads=1) as step:
        same(value(step, **batch), mse(model, x, y, 3))
        same(value(step, x=x, y=y), mse(model, x, y, 3))


for test in (nested, nested_shapes, constants, unread, said):
    if not sys.argv[1:] or test.__name__ in sys.argv[1:]:
        test()
        print(f"{test.__name__}: ok", flush=True)
