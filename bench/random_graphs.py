#!/usr/bin/env python3
"""Draws random graphs of PyTorch's operations, exports them 20 to a module, and compares values and gradients with PyTorch's.

usage: random_graphs.py [--graphs N] [--seed S]

Types, shapes with broadcasting and operations are drawn by hypothesis; a module that fails is made as small as it gets. Of 500 graphs
or more each module also has some of the operations of test/Python/Inputs/torch_cases.py, and each rule of the export must have been used. Inputs are
normal numbers, without ties. In float64 losses and gradients are within 1e-9 of PyTorch's; in float32 no farther from float64 than
4 times PyTorch's own float32, and 1e-6.
"""
import argparse
import itertools
import os
import sys
import warnings

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(ROOT, "python"), os.path.join(ROOT, "bench"), os.path.join(ROOT, "test", "Python", "Inputs")]
os.environ.setdefault("TRAINC_BUILD", os.path.join(ROOT, "build"))

import hypothesis  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import nn  # noqa: E402
from torch_cases import BELOW_FLOAT32, CASES, FLOAT32_INSIDE, REPLACED  # noqa: E402

import trainc.torch  # noqa: E402
from trainc.torch.translate import RULES  # noqa: E402

TOGETHER = 20
# 20 of one group each: one operation that torch.export is to decompose makes it decompose the whole module.
OPERATIONS = [cases[i:i + TOGETHER] for group, cases in CASES.items() if group not in (FLOAT32_INSIDE, BELOW_FLOAT32) for i in range(0, len(cases), TOGETHER)]
WIDE, TIMES, NARROW = 1e-9, 4, 1e-6


def positive(x):
    return x.abs() + 0.5


UNARY = [
    torch.tanh, torch.sigmoid, torch.sin, torch.cos, torch.erf, F.relu, F.silu, F.gelu, lambda x: F.gelu(x, approximate="tanh"), F.elu, F.selu,
    F.softplus, F.mish, F.logsigmoid, F.leaky_relu, F.hardswish, F.hardsigmoid, F.hardtanh, F.relu6, torch.neg, torch.abs, torch.square,
    lambda x: torch.exp(x.clamp(-3, 3)), lambda x: torch.expm1(x.clamp(-3, 3)), lambda x: torch.log(positive(x)), lambda x: torch.log1p(x.abs()),
    lambda x: torch.sqrt(positive(x)), lambda x: torch.rsqrt(positive(x)), lambda x: positive(x).reciprocal(), lambda x: positive(x) ** 1.5,
    lambda x: x.clamp(-1.1, 0.9), lambda x: x.clamp(min=-0.3), lambda x: x.masked_fill(x > 1, 0.5), lambda x: torch.where(x > 0.2, x, 2 * x),
    lambda x: x * (x > 0), lambda x: x.floor() * x, lambda x: torch.remainder(x, 0.7), lambda x: x.detach() * x, lambda x: x.double().to(x.dtype),
    lambda x: x - 1.5, lambda x: 2 - x, lambda x: x / 3, lambda x: 1 / positive(x), lambda x: torch.full_like(x, 2.0) * x, lambda x: x.clone()]
BINARY = [
    torch.add, torch.sub, torch.mul, torch.maximum, torch.minimum, lambda x, y: x / positive(y), lambda x, y: torch.add(x, y, alpha=0.5),
    lambda x, y: positive(x) ** y.clamp(-2, 2), lambda x, y: torch.where(x > y, x, y * 2), lambda x, y: x * (x < y), lambda x, y: torch.lerp(x, y, 0.3),
    lambda x, y: torch.addcmul(x, x, y, value=0.5), lambda x, y: torch.addcdiv(x, y, positive(x), value=0.3)]
REDUCED = [
    torch.sum, torch.mean, torch.amax, torch.amin, lambda x, dim, keepdim: torch.logsumexp(x, dim, keepdim),
    lambda x, dim, keepdim: torch.linalg.vector_norm(x, 2, dim, keepdim)]
ALONG = [
    torch.softmax, torch.log_softmax, torch.cumsum, lambda x, dim: x.flip(dim), lambda x, dim: x.roll(1, dim), lambda x, dim: torch.cat([x, x * 2], dim),
    lambda x, dim: torch.stack([x, -x], dim), lambda x, dim: x.chunk(2, dim)[0], lambda x, dim: x.narrow(dim, 0, 1 + x.shape[dim] // 2),
    lambda x, dim: x.select(dim, -1), lambda x, dim: x.unsqueeze(dim), lambda x, dim: x.transpose(0, dim), lambda x, dim: F.layer_norm(x, x.shape[dim:]),
    lambda x, dim: x.repeat_interleave(2, dim), lambda x, dim: x.index_select(dim, torch.tensor([0, x.shape[dim] - 1])),
    lambda x, dim: x.max(dim).values, lambda x, dim: x.var(dim, unbiased=False), lambda x, dim: x.unflatten(dim, (1, -1))]
WHOLE = [
    lambda x: x.flatten(), lambda x: x.reshape(-1, 1), lambda x: F.pad(x, (1, 2)), lambda x: x[None], lambda x: x.squeeze(), lambda x: x[..., ::2],
    lambda x: x.permute(*reversed(range(x.dim()))), lambda x: x.tril() if x.dim() > 1 else x, lambda x: x.expand(2, *x.shape),
    lambda x: F.rms_norm(x, x.shape[-1:])]
CASTS = [torch.bool, torch.int8, torch.int16, torch.int32, torch.int64]


def fails(function, *types, **more):
    """Whether an operation has no values of these types in PyTorch."""
    try:
        function(*(torch.ones(2, 2, dtype=dtype) for dtype in types), **more)
        return False
    except (RuntimeError, TypeError):
        return True


# (operation, types), of which operands are cast to floats first. A captured operation does not always fail where one that is run does.
FLOATS_ONLY = {(function, types) for table, count, more in ((UNARY, 1, {}), (WHOLE, 1, {}), (BINARY, 2, {}), (ALONG, 1, dict(dim=0)),
                                                            (REDUCED, 1, dict(dim=0, keepdim=True)))
               for function in table for types in itertools.product([*CASTS, torch.float32], repeat=count) if fails(function, *types, **more)}


@st.composite
def graphs(draw):
    """A function of two parameters, as a list of steps on a list of values, and the parameters' shapes."""
    sizes = st.integers(1, 5)
    shape = draw(st.lists(sizes, min_size=1, max_size=4))
    other = [n if draw(st.booleans()) else 1 for n in shape][draw(st.integers(0, len(shape) - 1)):]
    steps = []
    for _ in range(draw(st.integers(1, 8))):
        kind = draw(st.sampled_from(["unary", "unary", "binary", "binary", "reduced", "along", "whole", "product", "cast"]))
        table = dict(unary=UNARY, binary=BINARY, reduced=REDUCED, along=ALONG, whole=WHOLE, product=[None], cast=CASTS)[kind]
        steps.append((kind, draw(st.sampled_from(table)), draw(st.integers(0, 9)), draw(st.integers(0, 9)), draw(st.integers(0, 3)), draw(st.booleans())))
    return steps, tuple(shape), tuple(other)


def fits(x):
    return x.numel() <= 4000 and 0 < x.dim() <= 5


def run(steps, x, y):
    """The values of the steps that can be done, summed up: each takes earlier values by number."""
    values = [x, y]
    for kind, function, first, second, dim, keep in steps:
        a, b = values[first % len(values)], values[second % len(values)]
        types = tuple(torch.float32 if v.is_floating_point() else v.dtype for v in ((a, b) if kind == "binary" else (a,)))
        if (function, types) in FLOATS_ONLY or kind == "product":
            a, b = a.to(x.dtype), b.to(x.dtype)
        if kind == "unary":
            made = function(a)
        elif kind == "binary":
            try:
                torch.broadcast_shapes(a.shape, b.shape)
            except RuntimeError:
                b = a * 0.5
            made = function(a, b)
        elif kind == "reduced":
            made = function(a, dim=dim % a.dim(), keepdim=keep)
        elif kind == "along":
            made = function(a, dim % a.dim())
        elif kind == "whole":
            made = function(a)
        elif kind == "cast":
            made = (a * 2).to(function)
        else:
            made = a @ (b if a.dim() > 1 and b.dim() > 1 and a.shape[-1] == b.shape[-2] and a.shape[:-2] == b.shape[:-2] else a.transpose(-1, -2) if a.dim() > 1 else a)
        # The mean, as a sum of products may cancel.
        values.append(made if fits(made) and made.numel() else (made.to(x.dtype).sum() / max(made.numel(), 1)).reshape(1))
    return sum((v * torch.linspace(0.5, 1.5, v.numel(), dtype=x.dtype).reshape(v.shape)).mean() for v in values)


class Graphs(nn.Module):
    """The sum of random graphs and of operations, each with parameters of its own."""

    def __init__(self, drawn, operations, dtype, seed):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)

        def parameters(shapes):
            return nn.ParameterList(torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes)

        self.steps = [steps for steps, *_ in drawn]
        self.x, self.y = parameters(x for _, x, _ in drawn), parameters(y for _, _, y in drawn)
        self.functions = [function for function, *_ in operations]
        self.given = nn.ModuleList(parameters(shapes) for _, *shapes in operations)

    def forward(self, scale):
        each = [run(steps, x, y) for steps, x, y in zip(self.steps, self.x, self.y)]
        for function, given in zip(self.functions, self.given):
            made = function(*given).to(scale.dtype)
            each.append((made * torch.linspace(-1, 2, made.numel()).cos().view(made.shape)).sum())
        return sum(each) * scale, {"each": torch.stack(each)}


def by_torch(module, scale):
    """The values of the graphs, and the gradients by name."""
    loss, each = module(scale)
    loss.backward()
    gradients = {name: torch.zeros_like(p).double() if p.grad is None else p.grad.double() for name, p in module.named_parameters()}
    return {"values": each["each"].detach().double(), **gradients}


used = set()  # operations


def by_trainc(module, scale):
    before = {name: p.detach().double().clone() for name, p in module.named_parameters()}
    exported = trainc.torch.export(module, (scale,), lambda m, s: m(s), torch.optim.SGD(module.parameters(), 1.0))
    with exported.step(threads=1) as step:
        each = step(scale).outputs["each"].double()
        after = step.state_dict(as_torch=True)
    used.update(operation for operation, _ in exported.log)
    return {"values": each, **{name: p - after[name].double() if name in after else torch.zeros_like(p) for name, p in before.items()}}


def distance(got, want):
    size = float(torch.linalg.vector_norm(want))
    return float(torch.linalg.vector_norm(got - want)) / max(size, 1.0)


def check(drawn, operations, seed):
    found = []
    for dtype in torch.float64, torch.float32:
        torch.set_default_dtype(dtype)  # of the constants of operations
        module, scale = Graphs(drawn, operations, dtype, seed), torch.ones((), dtype=dtype)
        found.append((by_torch(module, scale), by_trainc(module, scale)))
    (right, ours), (theirs, narrow) = found
    for key, want in right.items():
        for name, got, bar in ("float64", ours, WIDE), ("float32", narrow, TIMES * distance(theirs[key], want) + NARROW):
            assert distance(got[key], want) <= bar, f"{key} in {name}: {distance(got[key], want):.1e}, expected at most {bar:.1e}"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--graphs", type=int, default=2000)
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    warnings.simplefilter("ignore")
    count, operations = 0, OPERATIONS if a.graphs >= TOGETHER * len(OPERATIONS) else [[]]

    @hypothesis.seed(a.seed)
    @hypothesis.settings(max_examples=-(-a.graphs // TOGETHER), deadline=None, database=None, suppress_health_check=list(hypothesis.HealthCheck))
    @hypothesis.given(st.lists(graphs(), min_size=TOGETHER, max_size=TOGETHER), st.integers(0, 2**31))
    def test(drawn, seed):
        nonlocal count
        check(drawn, operations[count // TOGETHER % len(operations)], seed)
        count += len(drawn)

    test()
    missed = sorted({str(operation) for operation in RULES} - used - {f"aten.{name}" for name in REPLACED}) if operations is OPERATIONS else []
    print(f"{count} graphs agree, {len(used)} operations" + f"; not used: {', '.join(missed)}" * bool(missed))
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
