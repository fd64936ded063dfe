# REQUIRES: torch
# RUN: %venv_torch %s
"""Every rule of the PyTorch export: value and gradient of each operation in float64 against PyTorch's."""
import os
import sys

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))
from against_torch import agree, trainc  # noqa: E402
from torch_cases import CASES, FLOAT32_INSIDE, REPLACED  # noqa: E402
from trainc.torch.translate import RULES  # noqa: E402

torch.manual_seed(11)
torch.set_default_dtype(torch.float64)
A = torch.ops.aten


class Cases(nn.Module):
    """The sum of all results of a group, each weighted at random so that no gradient cancels."""

    def __init__(self, cases):
        super().__init__()
        self.functions = [case[0] for case in cases]
        self.x = nn.ModuleList(nn.ParameterList(torch.randn(shape) for shape in case[1:]) for case in cases)

    def forward(self, seed):
        total = seed.sum() * 0
        for i, (function, parameters) in enumerate(zip(self.functions, self.x)):
            result = function(*parameters)
            weights = torch.linspace(-1, 2, result.numel()).cos().view(result.shape)
            total = total + (result * weights).sum() * (1 + i / 7)
        return total


class Integers(nn.Module):
    """Of values that are not known at export."""

    def forward(self, n):
        return (n % 3 + n % -3 + (n.int() * 65000 % 70000) + (n.int() * -65000) // 70000 + A.remainder(n, n - 5) + n // 3
                + A.floor_divide(n, -2) + ((n > 1) & True) + ((n > 2) | False) + ((n < 3) ^ True)
                + torch.div(n, 2, rounding_mode="floor") + torch.div(n, 2, rounding_mode="trunc") + F.one_hot(n.abs() % 4, 4).argmax(-1) + n.clamp(-2, 3) + n.abs() + n.sign() + torch.fmod(n, 4)
                + (n == 3) + (n > 2) + n.to(torch.int32) + (n.int() * 26000) % 70000 + (n.int() * 26000) // -70000 + n.argmin(1, keepdim=True)
                + (n + torch.iinfo(n.dtype).min + 7).min(1, keepdim=True).indices + n.topk(2).values.sum() + n.topk(3, largest=False).values.sum()
                + 2 ** n + (-1) ** n + n ** (n % 4) + n ** 9 + (n & 7) + torch.relu(n) + n.isinf() + n.isnan() + torch.bucketize(n, torch.tensor([-3, 0, 4]))
                + n.scatter_reduce(1, n.abs() % 6, 2 * n, "amax") + n.scatter_reduce(1, n.abs() % 6, 2 * n, "amin", include_self=False)).double()


def extremes(n):
    a, b = n > 0, n > 3
    narrow, byte = n.to(torch.int8), (n % 256).to(torch.int16).to(torch.int8)
    return (torch.maximum(a, b), torch.minimum(a, b), a.max(), b.min(), a.amax(1), b.amin(0), *a.max(1), *b.min(0), a.sign(), narrow == 258, byte < 300,
            *n.median(1), n.median(), *n.kthvalue(2), *(n % 4).cummax(1), *n.cummin(0), *b.cummax(1))


def ends(x):
    """What has no finite value, or no gradient."""
    edges = x.new_tensor([-1.0, 0.0, 1.0])
    signed = x.new_tensor([0.0, 2.0, torch.inf, -0.0, -2.0, -torch.inf])
    return (torch.atan2(signed[:, None], signed), x.atan2(x.flip(1)),
            x[:, :1].var(1), x.var(1, correction=5), x.copysign(0 * x.sign()), x.cumsum(1), x.logcumsumexp(1), torch.fmax(x, x.flip(1)), torch.fmin(x, x.flip(1)),
            torch.bucketize(x, edges, right=True, out_int32=True), torch.searchsorted(edges.expand(2, 3).contiguous(), x), torch.bucketize(x[0, 0], edges),
            torch.searchsorted(edges.flip(0), x, side="right", sorter=torch.tensor([2, 1, 0])), x.asinh(), x.acosh(), x.atanh(), x.log2(), x.log10(), x.lgamma(),
            *x.median(1), *x.nanmedian(1), x.median(), x.nanmedian(), *x.kthvalue(4), x.digamma(), *x.cummax(1), *x.cummin(0))


def rounded_once(x):
    p = x.abs()
    return [x / 0.3, x * 0.1, torch.add(x, x.flip(0), alpha=0.375), torch.rsub(x, x.flip(0), alpha=3), torch.div(x, 0.03, rounding_mode="trunc"), x ** 5,
            x.exp2(), x.tan(), x.atan(), p.log10(), F.mish(x), F.selu(x), F.hardswish(x), F.glu(x), x.var(1), x.norm(dim=1), p[:, 1:].mean(1), p.cumsum(1)]


hit = set()
for group, cases in CASES.items():
    exported = agree(Cases(cases), (torch.ones(1),), optimizer=lambda p: torch.optim.SGD(p, 1.0), updates=1,
                     **dict.fromkeys(("bar", "parameters"), 1e-7 if group == FLOAT32_INSIDE else 1e-9))
    hit |= {operation for operation, _ in exported.log}
    print(f"{group}: {len(cases)} cases, ok", flush=True)

b = torch.tensor([[0, 3, 200], [255, 128, 127]], dtype=torch.uint8)
x = torch.tensor([[-1.0, 0.0, 1.0, 0.3], [torch.inf, 2.0, -torch.inf, torch.nan]])
narrow = (3 * torch.randn(8, 8)).bfloat16()
n = torch.tensor([[-7, -5, -3, -1, 0, 2], [9, 3, 4, 6, 1, 8]])
rows, matrices, of_rows = torch.randn(6, 16).float(), torch.randn(3, 16, 8).float(), torch.tensor([2, 2, 6]).int()
n_exported = trainc.torch.export(nn.Linear(1, 1), (torch.ones(1, 1),), lambda m, x: m(x).sum(), evals={
    "integers": (lambda m, n: Integers()(n), (n,)), "extremes": (lambda m, n: extremes(n), (n,)), "bytes": (lambda m, b: (b < -1, b == 256, b >= 511, b < 300, b < 99.5), (b,)),
    "groups": (lambda m, x, w, ends: F.grouped_mm(x, w, offs=ends), (rows, matrices, of_rows)), "ends": (lambda m, x: ends(x), (x,)), "narrow": (lambda m, x: rounded_once(x), (narrow,))})
with n_exported.step() as step:
    torch.testing.assert_close(*step.eval("integers", n).values(), Integers()(n), rtol=0, atol=0)
    for name, given, wanted in (("extremes", n, extremes(n)), ("bytes", b, (b < -1, b == 256, b >= 511, b < 300, b < 99.5))):
        assert all(map(torch.equal, step.eval(name, given).values(), wanted)), name
    torch.testing.assert_close(*step.eval("groups", rows, matrices, of_rows).values(), F.grouped_mm(rows, matrices, offs=of_rows))
    torch.testing.assert_close(tuple(step.eval("ends", x).values()), ends(x), equal_nan=True)
    for i, (got, wanted) in enumerate(zip(step.eval("narrow", narrow).values(), rounded_once(narrow.double()))):
        # Half of the last bit: more than one rounding goes beyond.
        assert got.dtype == torch.bfloat16 and bool(((got - wanted).abs() <= 1.01 * 2 ** (wanted.abs().log2().floor() - 8)).all()), (i, got, wanted)
hit |= {operation for operation, _ in n_exported.log}

missed = {str(operation) for operation in RULES} - hit
assert missed == {f"aten.{name}" for name in REPLACED}, missed ^ {f"aten.{name}" for name in REPLACED}
print(f"{len(hit)} operations, {len(missed)} more replaced by torch.export")

# Functions that are finite where exp is not, and their gradients.
for dtype, given in ((torch.float32, [31.9, 32.1, 88.0, 89.0, -89.3, -70.0, 0.5, -0.3]),
                     (torch.float64, [255.9, 256.1, 709.0, 710.4, -710.4, -3.0])):
    at = torch.tensor(given, dtype=dtype)
    scale = 1 / at.double().cosh()  # gradients are 1 + tanh(x)
    hyperbolic = nn.Module()
    hyperbolic.at = nn.Parameter(at.clone())
    with trainc.torch.export(hyperbolic, (scale.to(dtype),), lambda m, s: ((m.at.cosh() + m.at.sinh()) * s).sum(),
                             torch.optim.SGD(hyperbolic.parameters(), 1.0),
                             evals={"values": lambda m, s: (m.at.cosh(), m.at.sinh(), s)}).step() as step:
        for got, function in zip(step.eval("values", scale.to(dtype)).values(), (torch.cosh, torch.sinh)):
            torch.testing.assert_close(got, function(at.double()).to(dtype), rtol=1e-6 if dtype is torch.float32 else 1e-13, atol=0)
        step(scale.to(dtype))
        moved = at.double() - step.state_dict(as_torch=True)["at"].double()
        torch.testing.assert_close(moved, 1 + at.double().tanh(), rtol=1e-5, atol=1e-5)
