# REQUIRES: torch
# RUN: %venv_torch %s
"""Random forwards that move and replace buffers, write in place and through views, detach and leave gradients out: losses, buffers and
parameters of three updates against PyTorch's. `torch-programs.py FIRST END` tries other seeds."""
import linecache
import os
import random
import sys

import torch
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))
from against_torch import UPDATES, agree  # noqa: E402

torch.set_default_dtype(torch.float64)
FIRST, END = map(int, sys.argv[1:] or (0, 60))
TOGETHER = 15  # programs of one module
x = 1.3 * torch.linspace(-1, 1, 12).reshape(4, 3).sin()

HEAD = """class Program(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.l = nn.Linear(3, 3)
        self.register_buffer("a", torch.linspace(-1, 1, 3))
        self.register_buffer("b", torch.linspace(0, 1, 3))
        self.register_buffer("c", torch.linspace(-1, 2, 12).reshape(4, 3))
        self.register_buffer("n", torch.tensor(0))

    def forward(self, x):
        v0 = self.l(x)
"""


class Writer:
    """The source of a program. Variables and the buffer `c` are 4 x 3, `a` and `b` rows."""

    def __init__(self, seed):
        self.random, self.lines, self.depth = random.Random(seed), [], 2
        self.variables = ["x", "v0"]

    def line(self, text):
        self.lines.append("    " * self.depth + text)

    def variable(self):
        return self.random.choice(self.variables)

    def buffer(self):
        return self.random.choice(["self.a", "self.b", "self.c"])

    def row(self):
        return self.random.choice(["self.a", "self.b"])

    def index(self, end=4):
        return self.random.randrange(end)

    def define(self, value, *more):
        name = f"v{len(self.variables) - 1}"
        for text in (f"{name} = {value}", *(m.format(name) for m in more)):
            self.line(text)
        self.variables.append(name)

    def value(self):
        v, w = self.variable(), self.variable()
        return self.random.choice([
            f"{v} + {w}", f"{v} * {w}", f"torch.tanh({v})", f"{v} - 0.5 * {self.buffer()}", f"{v}.detach() * {w}", f"self.l({v})",
            f"{v} * {self.row()}", f"torch.sin({v} + {w})", f"{v}.clone()", f"{v} * (self.n / 10)", f"{v} * self.l.weight.data.norm()",
            f"checkpoint(lambda t: torch.tanh(self.l(t)) * t, {v}, use_reentrant=False)"])

    def region(self):
        self.line(self.random.choice(["with torch.no_grad():", "with torch.enable_grad():"]))
        self.depth += 1
        for _ in range(self.random.randrange(1, 4)):
            self.statement()
        self.line("pass")
        self.depth -= 1

    def inferred(self):
        value = self.value()
        self.line("with torch.inference_mode():")
        self.line(f"    inferred = {value}")
        self.define("inferred.clone()")

    def statement(self):
        v, detached = self.variable(), f"{self.variable()}.detach()"
        row, i, j = self.row(), self.index(), self.index(3)
        kinds = [
            lambda: self.define(self.value()), lambda: self.define(self.value()), lambda: self.define(self.value()),
            lambda: self.line(f"{self.buffer()}.mul_(0.7).add_({detached}.mean(0), alpha=0.1)"),
            lambda: self.line(f"{row}.copy_({detached}[{i}])"),
            lambda: self.line(f"{row} = {row} * 0.8 + {detached}.mean(0)"),
            lambda: self.line("self.a, self.b = self.b, self.a"),
            lambda: self.line(f"self.c[{i}] = {detached}[{self.index()}]"),
            lambda: self.line(f"self.c.t()[{j}].mul_(0.5)"),
            lambda: self.line(f"self.c[self.c < 0] += {row}.square().sum()"),
            lambda: self.line("self.n += 1"),
            lambda: self.define(f"{v}.clone()", f"{{}}[{i}] = {self.variable()}[{self.index()}] * 2"),
            lambda: self.define(f"{v} * 1.0", f"{{}}[:, {j}].mul_(0.5)"),
            lambda: self.define(f"{v} * 1.0", f"{{}}.add_({self.variable()})"),
            lambda: self.define(f"{v} * 1.0", "{0}[{0}.detach() > 0] = 0.1"),
            lambda: self.define(f"{v} * 2", "{}.detach_()"),
            lambda: (self.line("self.l.weight.requires_grad_(False)"), self.define(f"self.l({v})"), self.line("self.l.weight.requires_grad_(True)")),
            self.inferred, *[self.region] * 2 * (self.depth < 4)]
        self.random.choice(kinds)()

    def source(self):
        for _ in range(self.random.randrange(5, 15)):
            self.statement()
        used = self.random.sample(self.variables, min(3, len(self.variables)))
        self.line(f"return ({' + '.join(used)} + 0.1 * self.l(x)).square().mean()")
        return HEAD + "\n".join(self.lines)


def program(seed):
    source, file = Writer(seed).source(), f"program-{seed}.py"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    names = {"torch": torch, "nn": nn, "checkpoint": torch.utils.checkpoint.checkpoint}
    exec(compile(source, file, "exec"), names)
    return names["Program"], source


def sgd(parameters):
    return torch.optim.SGD(parameters, 0.1)


def grows(model):
    """Whether training by PyTorch leaves the range of comparisons."""
    optimizer, losses = sgd(model.parameters()), []
    for _ in range(UPDATES):
        optimizer.zero_grad()
        losses.append(model(x))
        losses[-1].backward()
        optimizer.step()
    return max(losses) >= 1e6


class Sum(nn.Module):
    def __init__(self, programs):
        super().__init__()
        self.programs = nn.ModuleList(p() for p in programs)

    def forward(self, x):
        return sum(p(x) for p in self.programs)


def differences(cases):
    """Of (seed, program, source): those that differ alone, too."""
    try:
        agree(Sum(made for _, made, _ in cases), (x,), optimizer=sgd, parameters=1e-9)
    except AssertionError as error:
        if len(cases) > 1:
            return [d for case in cases for d in differences([case])] or [f"programs {[seed for seed, *_ in cases]} together: {error}"]
        return [f"program {cases[0][0]}: {error}\n{cases[0][2]}"]
    return []


cases = []
for seed in range(FIRST, END):
    made, source = program(seed)
    try:
        skipped = grows(made())
    except RuntimeError as error:  # what PyTorch itself refuses
        assert "modified by an inplace operation" in str(error) or "in-place" in str(error), (seed, error, source)
        continue
    if not skipped:
        cases.append((seed, made, source))
assert len(cases) > 0.7 * (END - FIRST), len(cases)
different = [d for i in range(0, len(cases), TOGETHER) for d in differences(cases[i:i + TOGETHER])]
print("\n\n".join(different))
assert not different, f"{len(different)} of {len(cases)} programs differ"
print(f"{len(cases)} programs agree")
