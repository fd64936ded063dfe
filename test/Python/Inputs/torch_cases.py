"""Every operation that the PyTorch export has a rule for, as functions of parameters. Those of PyTorch's default type are made when they run."""
import math

import torch
import torch.nn.functional as F
import transformers.integrations.moe  # noqa: F401  its operations

L, A, GROUPED = torch.linalg, torch.ops.aten, torch.ops.transformers.grouped_mm_fallback

# (function, shapes of its parameters). Inputs have no ties and stay away from corners: those are in torch-traps.py.
S, M, V = (3, 4), (4, 5), (4,)
X4, W4 = (2, 4, 7, 6), (6, 2, 3, 3)
X5, W5 = (2, 4, 5, 6, 4), (6, 2, 3, 3, 2)
SIGNS, LABELS = torch.tensor([1, -1, 1]), torch.tensor([[3, 0, -1, 1], [-1, 2, 1, 0], [0, 1, 2, 3]])
GRIDS = [("bilinear", "zeros", False), ("bilinear", "border", True), ("bilinear", "reflection", False), ("nearest", "reflection", True), ("bicubic", "border", False)]
ids = torch.tensor([[0, 2, 1], [3, 3, 0]])

FLOAT32_INSIDE, BELOW_FLOAT32 = "with float32 inside", "below the range of float32"


def shifted(x):
    """Matrices whose triangles have inverses that are not large."""
    return x + 4 * torch.eye(x.shape[-1], dtype=x.dtype)


def exchanged(x):
    """Matrices whose elimination exchanges rows."""
    return shifted(x).roll(1, -1)


def covariance(x):
    return x @ x.mT + torch.eye(x.shape[-1], dtype=x.dtype)


def positive(x):
    return x.abs() + 0.5


def near_multiples(x):
    return torch.fmod(x, 0.1).double() + torch.remainder(x, 0.1) + torch.remainder(x, -0.1) + x // 0.1 + torch.div(x, -0.1, rounding_mode="floor")


def near_multiples_of_each(x):
    """Also where the quotient is beyond 2^29, and where all of a number is left."""
    n = torch.arange(-5.0, 7.0).view(3, 4) + 0 * x.detach()
    numbers = 0.1 * n, 0.1 * (2 ** 40 * n + 3), (0.1 * n).float(), (0.1 * n).bfloat16()
    beyond = torch.tensor([torch.inf, -torch.inf, 5.5, -1e300])
    return x * sum(near_multiples(v) for v in numbers) + torch.fmod(x, beyond + x) + sum(
        f(x, beyond).clamp(-7, 7) for f in (torch.fmod, torch.remainder, lambda x, y: x * (x.detach() // y)))


def at_infinity(x):
    low, high = x - torch.inf, x + torch.inf
    return (low.expm1() + F.elu(low) + F.celu(low) + F.selu(low) + F.softplus(low) + F.logsigmoid(high) + low.atan() - 2 * high.atan() + 1 / high.log1p()
            + 1 / high.asinh() + ((0 * x).float() + 3e38).log1p() * x)


def at_powers(x):
    n = torch.arange(12.0).view(3, 4) + 0 * x.detach()
    twos, tens = 2 ** (5 * n - 29), 10 ** n
    return x * sum(2 * y + y.floor() for y in (twos.log2(), tens.log10(), twos.float().log2(), (0.1 * n + 1).log2())) + (x * tens).abs().log10() + (x * tens).abs().log2()


def emptied(x):
    """With assignments to nothing, as in masks of windows that are not shifted."""
    y = x * 1
    y[-2:0, 1:3] = 5.0
    y[3:] = x[:0]
    return y


def of_one(x, row, place):
    """A tensor without dimensions as a row of one element."""
    return (x.index_select(0, row) + x.index_select(0, place) + x.index_add(0, row, 2 * x) + x.scatter(0, place, 2 * x) + x.scatter(0, row, 3.0)
            + x.scatter_add(0, place, x * x) + x.scatter_reduce(0, place, 2 * x, "amax") + x.detach().scatter(0, row, 3.0, reduce="add") + x.unfold(0, 1, 1))


def scattered(x, source):
    index = torch.tensor([[0, 2, 0], [3, 3, 1]])
    return (x.scatter(1, index, source, reduce="add") + x.scatter(1, index, source, reduce="multiply")
            + x.scatter(0, index % 3, 2.0, reduce="add") + x.scatter(0, index % 3, 2.0, reduce="multiply"))


def ignoring(x):
    y, weight = torch.tensor([1, -100, 3]), torch.arange(1.0, 5.0)
    return F.cross_entropy(x, y, weight) + F.cross_entropy(x, y, reduction="none") + F.nll_loss(x.log_softmax(1), y)


def grouped(x, weights, transposed):
    """The products of rows 0 and 1, of none, and of 2 to 4; row 5 is behind all."""
    ends = torch.tensor([2, 2, 5])
    return GROUPED(x, weights, ends) + GROUPED(x, transposed.transpose(1, 2), ends.int())


def selected_losses(x, y):
    """Of rows that a mask selects: with weights, and reduced by arguments that are deprecated."""
    rows, weights = y[:, 0] > -1, torch.arange(12.0).view(3, 4)
    x, y, weights, labels = x[rows], y[rows], weights[rows], torch.tensor([1, 0, 3])[rows]
    return (sum(f(x, y, weight=weights) + f(x, y, weight=weights, reduction="sum") for f in (F.l1_loss, F.mse_loss)) + F.mse_loss(x, y, reduce=False).sum()
            + F.smooth_l1_loss(x, y, size_average=False) + F.cross_entropy(x, labels, reduce=False).mean() + F.nll_loss(x, labels, size_average=False))


def by_integers(x):
    """Of integers that are not known at export."""
    n = (3 * x).long()
    x = x + 0.1 * x.detach() * n.scatter_reduce(1, n.abs() % 4, 2 * n - 1, "mean")
    edges = torch.tensor([-3, 0, 4])
    return x * ((n & 7) + ((n > 1) & True) + ((n > 2) | False) + ((n < 3) ^ True) + F.one_hot(n.abs() % 4, 4).argmax(-1)
                + torch.bucketize(n, edges) + torch.searchsorted(edges, n, right=True))


CASES = {
    "integers": [
        (by_integers, S), (lambda x: (x[0].broadcast_to(3, 4) + x[:1].expand_as(x)).to("cpu") + A.to.dtype_layout(x, dtype=x.dtype), S),
        (lambda x, w: F.grouped_mm(x.sign().float(), w.sign().float(), offs=torch.tensor([2, 2, 6]).int()).to(x.dtype) * x[:, :8], (6, 16), (3, 16, 8)),
    ],
    "experts": [
        (grouped, (6, 3), (3, 3, 2), (3, 2, 3)),
        (lambda x: x * torch.histc(x.detach(), 4, -1, 1) + x * torch.histc(x.detach(), 4) + x * torch.histc(0 * x.detach() + 2, 4), S),
    ],
    "arithmetic": [
        (lambda x, y: x + 2 * y, S, S), (lambda x, y: torch.add(x, y, alpha=3), S, V), (lambda x, y: torch.sub(x, y, alpha=0.5), S, S),
        (lambda x: 1 - x, S), (lambda x, y: torch.rsub(x, y, alpha=2), S, S), (lambda x: torch.rsub(x, 2.0, alpha=3), S), (lambda x, y: x * y * 1.5, S, (3, 1)),
        (lambda x, y: x / positive(y) / 3, S, S), (lambda x: 2.0 / positive(x), S), (lambda x: -x, S), (lambda x: positive(x).reciprocal(), S),
        (lambda x: x.square() + x ** 3 + x ** 0 + x ** 7, S), (lambda x: positive(x) ** -1 + positive(x) ** -2 + positive(x) ** 0.5 + positive(x) ** -0.5, S),
        (lambda x: positive(x) ** 1.7, S), (lambda x, y: positive(x) ** y, S, S), (lambda x: 1.5 ** x, S), (lambda x, y: torch.maximum(x, y) - torch.minimum(x, y), S, S),
        (lambda x, y: torch.fmax(x, y) - 2 * torch.fmin(x, y) + torch.hypot(x, y) + torch.copysign(x, y.detach()) + 2 * torch.copysign(y, -1.0) + x * y.signbit(), S, S),
        (lambda x: A.div.Tensor_mode(x, 2.0, rounding_mode=None) + A.div.Scalar_mode(x, 2.0, rounding_mode=None), S),
    ],
    "functions": [
        *((lambda x, f=f: f(x), S) for f in (torch.exp, torch.sin, torch.cos, torch.tanh, torch.erf, torch.sigmoid, torch.sinh, torch.cosh, torch.expm1, torch.exp2)),
        *((lambda x, f=f: f(positive(x)), S) for f in (torch.log, torch.sqrt, torch.rsqrt, torch.log2, torch.log10, torch.log1p)),
        (lambda x: (0.99 * x.sin()).asin() + torch.asin(1e-6 * x) * 1e6, S), (lambda x: (0.99 * x.sin()).acos() + torch.acos(1 - 1e-6 * positive(x)) * 1e3, S),
        (lambda x: torch.atan(3 * x) + torch.atan(1e-6 * x) * 1e6 + torch.atan(1e6 * x), S),
        (lambda x, y: torch.atan2(x, y) + torch.atan2(1e-6 * x, 2 * y[:1]) * 1e6 + torch.atan2(x, 1e-6 * y[:, :1]), S, S),
        (lambda x: x.asinh() + torch.acosh(1 + positive(x)) + torch.atanh(0.99 * x.sin()) + torch.asinh(1e-9 * x) * 1e9 + torch.asinh(1e30 * x), S),
        (lambda x: x.lgamma() + x.digamma() + torch.lgamma(30 * positive(x)) + torch.digamma(12 + x) + torch.lgamma(1e9 * positive(x)) / 1e9, S),
        (lambda x, y: torch.sinc(x) + torch.sinc(x - x.detach()) + (x - x.detach()).xlogy(positive(y)) + torch.xlogy(2.0, positive(y)) + torch.xlogy(x - x.detach(), 2.0), S, S),
        (lambda x, y: x.xlogy(positive(y)) + torch.xlogy(0 * x.detach(), y) + torch.special.xlog1py(x - x.detach(), positive(y)) + torch.special.xlog1py(2.0, positive(y)) + torch.special.xlog1py(x, 2.0), S, S),
        (lambda x: x.erfc() + torch.erfc(2 * positive(x)).log() + torch.sinh(1e-9 * x) * 1e9, S), (at_infinity, S), (at_powers, S),
        (lambda x: x * ((0 * x.detach()).long() + torch.arange(4)).tan() + x * ((0 * x.detach()).long() + torch.arange(4)).sinh(), S),
        (lambda x: x * torch.log1p(0 * x.detach() - 1).exp(), S), (lambda x: torch.log1p(1e-9 * x) * 1e9 + torch.expm1(1e-9 * x) * 1e9, S), (lambda x: (x / 4).tan(), S), (lambda x: x.sign() * x + A.sgn(x) * x, S), (lambda x: x.abs(), S),
    ],
    "drawn": [
        (lambda x, y: torch.normal(x, 0.0) + torch.normal(x, 0 * y) + torch.normal(2.0, 0 * y) + x * y, S, S),
    ],
    "whole numbers": [
        (lambda x: x * (x.floor() + x.ceil() + (4 * x).round() + (3 * x).trunc()) + x.frac(), S), (lambda x: x * (torch.arange(12.0).view(3, 4) / 2 - 3).round() + x * x.round(decimals=2) + x * (99 * x).round(decimals=-1), S),
        (lambda x, y: torch.remainder(3 * x, 0.7) + torch.remainder(x, y) + torch.fmod(3 * x, 0.7) + torch.fmod(x, y), S, S),
        (lambda x, y: x * (torch.div(x, y, rounding_mode="floor") + torch.div(x, y, rounding_mode="trunc") + x.detach() // 0.3), S, S),
        (near_multiples_of_each, S),
    ],
    "activations": [
        *((lambda x, f=f: f(x), S) for f in (
            F.relu, F.silu, F.gelu, lambda x: F.gelu(x, approximate="tanh"), F.hardtanh, F.relu6, F.leaky_relu, F.rrelu, F.elu, F.celu, F.selu,
            F.softplus, lambda x: F.softplus(x, 2.0, 0.3), F.logsigmoid, F.mish, lambda x: F.threshold(x, 0.2, 0.1), lambda x: F.glu(x, -1),
            F.hardsigmoid, F.hardswish, lambda x: A.hardtanh(x, -0.5, 0.3))),
        (lambda x, w: F.prelu(x, w), S, V), (lambda x, w: F.prelu(x, w), S, (1,)), (lambda x, w: F.prelu(x, w) + F.prelu(x[0, 0], w), S, ()),
        (lambda x: x.clamp(-0.3, 0.4) + x.clamp(min=-0.2) + x.clamp_max(0.1) + x.clamp_min(-0.1), S),
        (lambda x, y: x.clamp(y - 1, y + 1) + torch.clamp_min(x, y) + torch.clamp_max(x, y), S, S),
    ],
    # PyTorch computes celu's alpha and its inverse in float32.
    FLOAT32_INSIDE: [(lambda x: F.celu(x, 0.7), S)],
    BELOW_FLOAT32: [(lambda x: torch.erfc(4 * positive(x)).log(), S)],
    "logic": [
        (lambda x, y: torch.where(x > y, x, y) + torch.where((x < 0.1) & (y >= 0), x, 2.0) + torch.where((x <= 0) | ~(y > 0), 1.0, y), S, S),
        (lambda x, y: x * ((x == y) ^ (x != 3)).to(x.dtype) + x * torch.logical_xor(x > 0, y > 0) + torch.where(torch.logical_not(x > 0), 1.0, 2.0) * x, S, S),
        (lambda x, y: x.masked_fill(y > 0, 3.0) + x.masked_fill(y > 0, torch.tensor(2.0)), S, S), (lambda x: x * (torch.isnan(x) | torch.isinf(x)), S),
        (lambda x: x * (x > 0).any() + x * (x > -9).all() + x * (x > 0).any(0) * (x > 1).all(1, keepdim=True) + x * A.any.dims(x > 0, [0, 1]) * A.all.dims(x > 0, [0]), S),
        (lambda x: torch.where(x > 0, x, torch.tensor(1.0)), S), (lambda x: A.where.ScalarSelf(x > 0, 1.0, x) + A.where.ScalarOther(x > 0, x, 1.0), S),
        (lambda x: x * A.where.Scalar(x > 0, 1.0, 2.0), S), (lambda x: x * torch.logical_and(x > 0, x < 1) + x * torch.logical_or(x > 0, x < -1), S),
        (lambda x: x * torch.any(x > 0, dim=()) + x * torch.all(x > 0, dim=()), S),
        (lambda x: x * ((x > 0) + (x > 1)) * ((x > -5) * (x > -6)), S),
    ],
    "shapes": [
        (lambda x: x.view(2, 6).reshape(12).unsqueeze(0).squeeze(0).flatten().unflatten(0, (4, 3)), S), (lambda x: x[None].squeeze().permute(1, 0).t().transpose(0, 1), S),
        (lambda x: x.unsqueeze(1).squeeze(1) + A.squeeze.dims(x[None], [0]), S), (lambda x: x[:, None].expand(3, 5, 4) + x[:, None].broadcast_to(3, 5, 4), S),
        (lambda x, y: x[:, None].expand_as(y), S, (3, 2, 4)), (lambda x: x[1:, ::2].sum() + x[-1] + x.narrow(1, 1, 2).sum() + x.select(0, -2), S),
        (lambda x, y: torch.cat([x, y], 1).sum(1) + torch.stack([x, x], -1).sum((1, 2)), S, (3, 2)), (lambda x: sum(p.sum() * (i + 1) for i, p in enumerate(x.split(3, 1))), S),
        (lambda x: sum(p.sum() * (i + 1) for i, p in enumerate(x.split([1, 3], 1) + x.chunk(2, 1) + x.unbind(0))), S), (lambda x: x.repeat(2, 1, 3) * 2, S),
        (lambda x: F.pad(x, (1, 2, 0, 3), value=0.5) * 2, S), (lambda x: F.pad(x, (-1, 2, -1, 0)), S), (lambda x: F.pad(x, (1, 0), value=-torch.inf).amax(1) + F.pad(x, (0, 2), value=torch.inf).amin(1), S), (lambda x: x.triu() + x.tril(-1) * 2, (4, 4)),
        (lambda x: x.clone().contiguous().detach() * x + x.float().double() + x.type_as(x), S),
        (lambda x: x + torch.zeros_like(x) + torch.ones_like(x) * 2 + torch.full_like(x, 3) + x.new_zeros(4) + x.new_ones(4) + x.new_full((4,), 2.0), S),
        (lambda x, y: torch.broadcast_tensors(x, y)[1] * x, S, V), (lambda x: x.flip(0, 1) * torch.arange(4.0) + x.roll(1, 1) * torch.arange(4.0) + x.roll(5), S),
        (lambda x: x.unfold(1, 2, 1).sum(-1) * torch.arange(3.0), S), (lambda x: x.as_strided((3,), (5,), 1) * 2, S),
        (lambda x: x.diagonal().sum() + x.diagonal(-1) + x.view(3, 2, 2).diagonal(1, 2, 0).sum() + x.sum() * (x > 0).diagonal(1)[:2].sum(), S),
        (lambda x, y: torch.diagonal_scatter(x, y, -1) + torch.diagonal_scatter(x[:, None], y[None], 1, 2, 0)[:, 0], S, (2,)),
        (lambda x: x.sum() * F.pad(x > 0, (1, 2)) + x.mean() * F.pad(x > 0, (-1, 4), value=True), S),
        (lambda x: x * torch.slice_scatter(x > 0, x[:, :2] > 1, 1, step=2), S),
        (lambda x: A.lift_fresh_copy(x) + A.alias(x), S), (lambda x: x.to("cpu") + A.to.device(x, torch.device("cpu"), x.dtype) + x.t().contiguous().sum(0), (3, 3)),
    ],
    "shapes, decomposed": [
        (lambda x: emptied(x) + torch.cat([x[3:], x]) + x[:, 4:].sum() + x.diagonal(9).sum(), S),
        (lambda x: x.clone().fill_diagonal_(2.0).view(2, 8).reshape(16)[None].expand(3, 16) * x.to(torch.float64).sum(), (4, 4)),
    ],
    "reductions": [
        (lambda x: x.sum() + x.sum(0) + x.mean() + x.mean(1, keepdim=True) + x.amax(1, keepdim=True) + x.amin((0, 1)), S), (lambda x: x.max() - x.min(), S),
        (lambda x: x.var() + x.std(1, keepdim=True) + x.var(0, unbiased=False) + torch.var_mean(x, 0)[0] + torch.var_mean(x, 1, keepdim=True)[1], S),
        (lambda x: sum(torch.std_mean(x, 1)) + torch.std_mean(x - x.detach(), 1)[0] + torch.std_mean(x, 1, correction=0, keepdim=True)[0][:, 0], S),
        (lambda x: x.max(1).values + x.min(1).values + x.max(0, keepdim=True).values.sum(), S), (lambda x: x * x.argmax(1, keepdim=True) + x * x.argmin() + x * x.argmax(), S),
        (lambda x: x.prod() + x.prod(1, keepdim=True), S), (lambda x: x.softmax(1) + x.log_softmax(0) + F.softmin(x, 1), S), (lambda x: x.logsumexp(1) + x.logsumexp((0, 1)), S),
        (lambda x: x.norm() + x.norm(dim=1) + torch.linalg.vector_norm(x, 1) + torch.linalg.vector_norm(x, float("inf"), 1), S), (lambda x: (0 * x).norm() + x.sum(), S), (lambda x: x.sum() + (0 * x).std(1) + (0 * x).std(), S),
        (lambda x: x.gather(1, x.masked_fill(torch.arange(4) > 0, -torch.inf).topk(4).indices.sort().values), S), (lambda x: x.topk(2, largest=False).values, S),
        (lambda x: x.median() + x.median(1).values + x.median(0, keepdim=True).values.sum() + x.nanmedian() + x.nanmedian(1).values + x.kthvalue(2).values, S),
        (lambda x: torch.cat((x, 2 * x - x.detach())).median() + x.kthvalue(3, 0, keepdim=True).values + x.sum().median(0).values + x.sum().kthvalue(1).values, S),
        (lambda x, y: torch.dist(x, y) + torch.dist(x, y[0], 3) + torch.dist(x, y, torch.inf) + torch.dist(x, x), S, S),
        (lambda x, y: torch.cdist(x, y) + torch.cdist(x, x) + torch.cdist(x[None], torch.stack((y, 2 * y)), p=3.0)[1] + torch.cdist(x, y, p=torch.inf), S, S),
        (lambda x, y: torch.cdist(x, y, p=1.0) + torch.cdist(torch.cat([x] * 10), torch.cat([y] * 10))[:3, :3] + torch.cdist(x, y, p=0.0), S, S),
        (lambda x: x.cumsum(1) * torch.arange(4.0) + x.cumsum(0), S), (lambda x: x * (x > 0).cumsum(1), S),
        (lambda x: (x * (x > -0.5)).cumprod(1) + x.cumprod(0) + x.logcumsumexp(1), S),
        (lambda x: x.cummax(1).values + x.cummin(0).values + x * x.cummax(0).indices + x * x.cummin(-1).indices + x.sum().cummax(0).values, S),
        (lambda x: torch.linalg.vector_norm(x, 3) + x.norm(0.5, 1) + x.norm(0, 1) + x.norm(-torch.inf, 0).sum() + x.norm(-1.5) + F.relu(x).norm(1.5, dim=1), (3, 3)),
        (lambda x: torch.stack([x.sum().softmax(0), x.mean().log_softmax(0), *x.sum().max(0), x.sum().argmin(0), x.sum().cumsum(0), x.sum().logcumsumexp(0)]), S), (lambda x: x.topk(2, 1).values * torch.tensor([1.0, 3.0]), S),
        (lambda x: x.sort(1).values * torch.arange(4.0) + torch.sort(x, stable=True, dim=0, descending=True).values * torch.arange(12.0).view(3, 4), S),
        (lambda x: x * x.argsort(1) + x * x.argsort(0, descending=True) + x * torch.argsort(x, stable=True), S), (lambda x: x.topk(9, 0).values * torch.arange(9.0)[:, None], (11, 2)),
        (lambda x: x.topk(9, largest=False).values * torch.arange(9.0), (2, 70)), (lambda x: x.sum() * torch.tensor(3.0).sort().values, S),
        (lambda x: A._softmax(x, 1, False) + A._log_softmax(x, 1, False) + A._safe_softmax(x, 1) + A._safe_softmax(x.masked_fill(torch.arange(4) == 2, -torch.inf), 0), S),
    ],
    "layers": [
        (lambda x, w, b: F.linear(x, w, b) + F.linear(x, w), S, (5, 4), (5,)), (lambda x, w: F.linear(x, w), V, (5, 4)), (lambda x, w: F.linear(x, w), S, V),
        (lambda x, y: x @ y + torch.mm(x, y), S, M), (lambda x, y: x.t() @ y.t(), S, (5, 3)), (lambda x, y: torch.bmm(x, y) + x @ y, (2, 3, 4), (2, 4, 5)), (lambda x, y: x @ y, (2, 1, 3, 4), (5, 4, 2)),
        (lambda x, y: x @ y + torch.mv(x, y), S, V), (lambda x, y: x @ y + torch.dot(x, y), V, V), (lambda x, y: x @ y, V, M),
        (lambda b, x, y: torch.addmm(b, x, y) + torch.addmm(b, x, y, beta=0.5, alpha=2) + torch.addmm(b, x, y, beta=0), (5,), S, M),
        (lambda b, x, y: torch.addbmm(b, x, y) + torch.addbmm(b, x, y, beta=0.5, alpha=2), (3, 5), (2, 3, 4), (2, 4, 5)), (lambda x, y: torch.ldexp(x, y), S, (4,)),
        (lambda x, w: x.cov() + torch.cov(x, correction=0, fweights=torch.tensor([1, 2, 1, 3]), aweights=w.abs()) + x.corrcoef() + torch.cov(x[0]) + x[0].corrcoef(), S, (4,)),
        (lambda b, x, y: torch.baddbmm(b, x, y), (2, 3, 5), (2, 3, 4), (2, 4, 5)), (lambda x, y: torch.einsum("ij,jk->ik", x, y), S, M),
        (lambda x, w, y: A._trilinear(x, w, y, [1, 3], [0], [1, 2], [2, 3]), S, (2, 4, 5), (3, 5)),  # F.bilinear
        (lambda w: F.embedding_bag(torch.tensor([[1, 5], [6, 2]]), torch.cat([w, w.detach()]), mode="max"), M),
        (lambda w: F.embedding(ids, w) + F.embedding(ids, w, padding_idx=3), M), (lambda w: F.embedding_bag(ids, w) + F.embedding_bag(ids, w, mode="sum") + F.embedding_bag(ids, w, mode="max"), M),
        (lambda w, p: F.embedding_bag(ids, w, mode="sum", per_sample_weights=p), M, (2, 3)),
        (lambda w, p: sum(F.embedding_bag(ids, w, mode=mode, padding_idx=3) for mode in ("sum", "mean", "max")) + F.embedding_bag(ids, w, mode="sum", padding_idx=0, per_sample_weights=p), M, (2, 3)),
        (lambda w: sum(F.embedding_bag(ids.view(-1), w, torch.tensor([0, 2, 2, 3, 6]), mode=mode, padding_idx=1) + F.embedding_bag(ids.view(-1), w, torch.tensor([0, 0, 1, 5, 5, 6]), mode=mode, include_last_offset=True)
                       for mode in ("sum", "mean", "max")), M),
        (lambda x, w, b: F.layer_norm(x, (4,), w, b) + F.layer_norm(x, (4,)) * 2 + F.rms_norm(x, (4,), w) + F.rms_norm(x, (4,), eps=0.1), S, V, V),
        (lambda x, w, b: F.layer_norm(x, (2, 4), w, b), (3, 2, 4), (2, 4), (2, 4)), (lambda x, w, b: A.native_layer_norm(x, [4], w, b, 1e-5)[0], S, V, V),
        (lambda x, w, b: F.group_norm(x, 2, w, b) + F.group_norm(x, 4) + F.instance_norm(x, weight=w, bias=b), X4, V, V),
        (lambda x, w, b: A.native_group_norm(x, w, b, 2, 4, 42, 2, 1e-5)[0], X4, V, V),
        (lambda x, w, b: F.batch_norm(x, None, None, w, b, True) + F.batch_norm(x, torch.zeros(4), torch.ones(4), w, b, False), X4, V, V),
        (lambda x: F.dropout(x, 0.5, False) + F.dropout(x, 1.0) + A.native_dropout(x, 0.0, True)[0] + F.dropout2d(x, 0.0), X4),
    ],
    "matrices": [
        (lambda x: L.inv(exchanged(x)), (4, 4)), (lambda x: torch.inverse(exchanged(x)) + exchanged(x).inverse(), (3, 5, 5)), (lambda x: L.slogdet(exchanged(x)).logabsdet + torch.slogdet(shifted(x))[1] + exchanged(x).slogdet()[0], (3, 4, 4)),
        (lambda x: L.det(exchanged(x)) + torch.det(shifted(x)) + exchanged(x).det(), (3, 4, 4)), (lambda x: torch.logdet(covariance(x)) + covariance(x).logdet(), (4, 4)),
        (lambda x, b: L.solve(exchanged(x), b), (4, 4), (4, 3)), (lambda x, b: L.solve(exchanged(x), b), (4, 4), (4,)), (lambda x, b: L.solve(exchanged(x), b), (3, 4, 4), (3, 4)),
        (lambda x, b: L.solve(exchanged(x), b, left=False), (2, 4, 4), (2, 3, 4)), (lambda x, b: L.solve_triangular(shifted(x), b, upper=True, left=False), (2, 4, 4), (2, 3, 4)),
        (lambda x, b: L.solve_triangular(shifted(x), b, upper=True) + L.solve_triangular(shifted(x), b, upper=False) + L.solve_triangular(x / 2, b, upper=False, unitriangular=True), (4, 4), (4, 3)),
        (lambda x: L.cholesky(covariance(x)) + L.cholesky(covariance(x), upper=True) + L.cholesky_ex(covariance(x)).L, (2, 4, 4)), (lambda x: L.cholesky(x + x.mT + 9 * torch.eye(4)), (4, 4)),
        (lambda x: L.cholesky(covariance(x) + x.detach().triu(1)) + L.cholesky(covariance(x) + x.detach().tril(-1), upper=True), (4, 4)),  # each reads one triangle
        (lambda x, b: torch.cholesky_solve(b, L.cholesky(covariance(x))) + b.cholesky_solve(L.cholesky(covariance(x)).mT, upper=True), (4, 4), (4, 2)),
        (lambda m, x: torch.distributions.MultivariateNormal(m, covariance(x)).log_prob(torch.ones(4, dtype=x.dtype)), (4,), (4, 4)),
        (lambda m, x: torch.distributions.MultivariateNormal(m, scale_tril=L.cholesky(covariance(x))).log_prob(torch.ones(5, 4, dtype=x.dtype)), (4,), (4, 4)),
    ],
    "attention": [
        (lambda q, k, v: F.scaled_dot_product_attention(q, k, v) + F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3), *[(2, 3, 5, 4)] * 3),
        (lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m), (2, 3, 5, 4), (2, 3, 6, 4), (2, 3, 6, 4), (5, 6)),
        (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, torch.arange(30).view(5, 6) % 4 != 1), (2, 3, 5, 4), (2, 3, 6, 4), (2, 3, 6, 4)),
        (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), (2, 3, 5, 4), (2, 3, 5, 4), (2, 3, 5, 6)),
        (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, torch.ones(5, 5).bool().tril() & ~torch.ones(5, 5).bool().tril(-3)), *[(2, 3, 5, 4)] * 3),
        (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, torch.ones(5, 7).bool().tril(2) & ~torch.ones(5, 7).bool().tril(-1)), (2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 6)),
        (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, torch.arange(30).view(5, 6) // 6 != 2), (2, 3, 5, 4), (2, 3, 6, 4), (2, 3, 6, 5)),
        (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, torch.zeros(5, 6).index_fill(0, torch.tensor(2), -torch.inf)), (2, 3, 5, 4), (2, 3, 6, 4), (2, 3, 6, 5)),
        (lambda q, k, v: F.scaled_dot_product_attention(q, k, v), (2, 5, 4), (2, 6, 4), (2, 6, 4)),
        (lambda q, k, v: F.scaled_dot_product_attention(q, k, v), (5, 4), (6, 4), (6, 4)),
        (lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m), (2, 3, 1, 5, 4), (2, 1, 2, 6, 4), (3, 1, 6, 4), (2, 1, 1, 5, 6)),
        (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True), (2, 6, 5, 4), (2, 3, 5, 4), (2, 2, 5, 4)),
        (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True), (2, 4, 5, 4), (2, 2, 5, 4), (2, 2, 5, 4)),
        (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True, attn_mask=torch.zeros(5, 5)), (2, 4, 5, 4), (2, 2, 5, 4), (2, 2, 5, 3)),
    ],
    "images": [
        (lambda x, w, b: F.conv2d(x, w, b, (2, 1), (1, 2), (1, 2), 2) + F.conv2d(x, w, None, (2, 1), (1, 2), (1, 2), 2), X4, W4, (6,)), (lambda x, w: F.conv2d(x, w, padding="same", groups=2), X4, W4),
        (lambda x, w: F.conv2d(x, w, padding="valid", groups=2), X4, W4), (lambda x, w, b: F.conv1d(x, w, b, 2, 1), (2, 4, 9), (6, 4, 3), (6,)), (lambda x, w: F.conv1d(x, w, padding="same"), (2, 4, 9), (6, 4, 4)),
        (lambda x, w, b: F.conv_transpose2d(x, w, b, 2, 1, 1, 2, 1), X4, (4, 3, 3, 3), (6,)), (lambda x, w: F.conv_transpose2d(x, w, stride=3, padding=2, dilation=2), X4, (4, 3, 2, 2)),
        (lambda x, w, b: F.conv_transpose1d(x, w, b, 2, 1), (2, 4, 5), (4, 3, 4), (3,)), (lambda x, w: A.convolution(x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 2), X4, W4),
        (lambda x: F.max_pool2d(x, 3, 2, 1) + F.max_pool2d(x, (3, 3), (2, 2), (1, 1)), X4), (lambda x: F.max_pool2d(x, 2, 2, ceil_mode=True), X4), (lambda x: F.max_pool1d(x, 3, 2), (2, 4, 9)),
        (lambda x, g: sum(F.grid_sample(x, 1.3 * g.tanh(), *o) for o in GRIDS), X4, (2, 3, 4, 2)),
        (lambda x: F.avg_pool2d(x, 3, 2, 1) + F.avg_pool2d(x, 3, 2, 1, count_include_pad=False) + F.avg_pool2d(x, 3, 2, 1, divisor_override=5), X4),
        (lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False, divisor_override=5) + F.avg_pool2d(x, 3, 2, 1, True, divisor_override=5).sum(), X4), (lambda x: F.avg_pool1d(x, 3, 2), (2, 4, 9)),
        (lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), X4),
        (lambda x: x.mean() * (A.max_pool2d_with_indices(x, [3, 3], [2, 2], [1, 1])[1].sum(2) + A.adaptive_max_pool2d(x, [7, 3])[1].sum(2)), X4),
        (lambda x: F.adaptive_avg_pool2d(x, (3, 2)) + F.adaptive_avg_pool2d(x, 1), X4), (lambda x: F.adaptive_avg_pool1d(x, 4), (2, 4, 9)), (lambda x: F.adaptive_max_pool2d(x, (1, 3)), X4),
        (lambda x: F.adaptive_max_pool1d(x, 3) + F.adaptive_max_pool1d(x, 4).sum(), (2, 4, 9)), (lambda x: F.adaptive_max_pool2d(x.relu(), (3, 4)), X4),
        (lambda x: F.max_unpool2d(*F.max_pool2d(x, 3, 2, return_indices=True), 3, 2, output_size=(7, 6)) + F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2, output_size=(7, 6)).sum(), X4),
        (lambda x: x.mean() * F.adaptive_max_pool2d(x.relu(), (3, 4), return_indices=True)[1], X4), (lambda x: F.interpolate(x, scale_factor=2) + F.interpolate(x, (14, 12), mode="nearest-exact"), X4),
        (lambda x: sum(F.interpolate(x, scale_factor=1.1, mode=m) for m in ("nearest", "nearest-exact", "bilinear")), X4),
        (lambda x: F.interpolate(x, scale_factor=2.04) + F.interpolate(x, scale_factor=2.04, mode="nearest-exact"), X4),
        (lambda x: F.interpolate(x.detach(), 41, mode="nearest-exact") * x.sum(), (1, 2, 8)),
        (lambda x: F.interpolate(x, (5, 9)), X4), (lambda x: F.interpolate(x, (5, 9), mode="nearest-exact"), X4), (lambda x: F.interpolate(x, 13) + F.interpolate(x, 13, mode="nearest-exact"), (2, 4, 9)), (lambda x: F.interpolate(x, (10, 4), mode="bilinear"), X4),
        (lambda x: sum(F.interpolate(x, size, mode="bilinear", align_corners=c).sin().sum((2, 3)) for size in ((14, 18), (13, 3), (21, 1))
                       for c in (True, False)), X4),
        (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True), X4), (lambda x: F.interpolate(x, 5, mode="linear"), (2, 4, 9)), (lambda x: F.pixel_shuffle(x, 2), X4),
    ],
    "volumes": [
        (lambda x, w, b: F.conv3d(x, w, b, (1, 2, 1), (2, 1, 0), (2, 1, 1), 2) + F.conv3d(x, w, None, (1, 2, 1), (2, 1, 0), (2, 1, 1), 2), X5, W5, (6,)),
        (lambda x, w: F.conv3d(x, w, padding="same", groups=2), X5, W5), (lambda x, w: F.conv3d(x, w, stride=2, padding=(1, 1, 0), groups=2), X5, W5),
        (lambda x, w, b: F.conv3d(x, w, b, (2, 3, 2)), X5, (3, 4, 2, 3, 2), (3,)), (lambda x, w: F.conv3d(x[0], w, stride=(2, 1, 1)), X5, (3, 4, 1, 1, 1)),
        (lambda x, w: A.convolution(x, w, None, [1, 1, 1], [1, 1, 1], [1, 1, 1], False, [0, 0, 0], 2), X5, W5),
        (lambda x, w, b: F.conv_transpose3d(x, w, b, 2, 1, 1, 2, 1), X5, (4, 3, 3, 2, 3), (6,)),
        (lambda x, g: sum(F.grid_sample(x, 1.3 * g.tanh(), *o) for o in GRIDS if o[0] != "bicubic"), X5, (2, 2, 3, 2, 3)),
        (lambda x: F.adaptive_max_pool3d(x, (2, 1, 3)) * F.adaptive_max_pool3d(x.relu(), (2, 1, 3), return_indices=True)[1], X5),
        (lambda x: F.max_pool3d(x, 3, 2, 1) + F.max_pool3d(x, (3, 3, 3), (2, 2, 2), (1, 1, 1)), X5), (lambda x: F.max_pool3d(x, 2, ceil_mode=True) + F.max_pool3d(x.relu(), 2, ceil_mode=True), X5),
        (lambda x: F.avg_pool3d(x, 3, 2, 1) + F.avg_pool3d(x, 3, 2, 1, count_include_pad=False) + F.avg_pool3d(x, 3, 2, 1, divisor_override=5), X5),
        (lambda x: F.avg_pool3d(x, 3, 2, (1, 1, 0), ceil_mode=True) + F.avg_pool3d(x, 3, 2, (1, 1, 0), ceil_mode=True, count_include_pad=False), X5),
        (lambda x: F.adaptive_avg_pool3d(x, (3, 2, 3)) + F.adaptive_avg_pool3d(x, 1) + A._adaptive_avg_pool3d(x, [1, 2, 1]), X5),
        (lambda x: F.interpolate(x, scale_factor=2) + F.interpolate(x, (10, 12, 8), mode="nearest-exact"), X5), (lambda x: F.interpolate(x, (7, 5, 9)) + F.interpolate(x, (7, 5, 9), mode="nearest-exact"), X5),
        (lambda x: F.interpolate(x, (7, 5, 4), mode="trilinear") + F.interpolate(x, (7, 5, 4), mode="trilinear", align_corners=True), X5),
        (lambda x: A.upsample_nearest3d(x, [10, 12, 8]) + A._upsample_nearest_exact3d(x, [10, 12, 8]) + A.upsample_trilinear3d(x, [10, 12, 8], False), X5),
        (lambda x, w, b: F.group_norm(x, 2, w, b) + F.instance_norm(x, weight=w, bias=b) + F.batch_norm(x, None, None, w, b, True) + F.dropout3d(x, 0.0), X5, V, V),
        (lambda x: F.pad(x, (1, 2, 0, 1, 2, 0)), X5), (lambda x: F.pad(x, (1, 2, 0, 1, 2, 0), "reflect") + F.pad(x, (1, 2, 0, 1, 2, 0), "replicate"), X5),
    ],
    # Overloads that the functions above do not call in this version of PyTorch.
    "overloads": [
        (lambda x: A.add.Scalar(x, 2.0, 3.0) + A.sub.Scalar(x, 0.5, 2.0) + A.mul.Scalar(x, 3.0) + A.div.Scalar(x, 3.0), S),
        (lambda x, y: x * (x.ge(y) ^ x.le(y)) + x * (x.lt(y) | x.ne(y)) + x * A.eq.Scalar(x, 1.0), S, S),
        (lambda x: A._adaptive_avg_pool2d(x, [3, 2]) + A.max_pool2d_with_indices(x, [3, 3], [2, 2], [1, 1])[0].sum(), X4),
        (lambda x: A.upsample_nearest2d(x, [14, 12]) + A._upsample_nearest_exact2d(x, [14, 12]) + A.upsample_bilinear2d(x, [14, 12], False), X4),
        (lambda x: A.upsample_nearest1d(x, [13]) + A._upsample_nearest_exact1d(x, [13]) + A.upsample_linear1d(x, [13], True), (2, 4, 9)),
        (lambda x: sum(p.sum() * (i + 1) for i, p in enumerate(A.split_with_sizes_copy(x, [1, 3], 1))), S),
        (lambda x, y: A.copy(x.detach(), y.detach()) * x + A.lift_fresh_copy(x), S, V),
        (lambda x, w, b: A._native_batch_norm_legit_functional(x, w, b, torch.zeros(4), torch.ones(4), True, 0.1, 1e-5)[0], X4, V, V),
    ],
    "losses": [
        (lambda x, y: F.mse_loss(x, y) + F.mse_loss(x, y, reduction="sum") + F.mse_loss(x, y, reduction="none"), S, S), (lambda x, y: F.l1_loss(x, y) + F.l1_loss(x, y, reduction="sum"), S, S),
        (lambda x, y: sum(f(x, y, weight=torch.arange(12.0).view(3, 4)) for f in (F.l1_loss, F.mse_loss, F.huber_loss)), S, S),
        (selected_losses, S, S),
        (lambda x, y: F.smooth_l1_loss(x, y) + F.smooth_l1_loss(x, y, beta=0.3) + F.smooth_l1_loss(x, y, beta=0.0) + F.huber_loss(x, y, delta=0.7), S, S),
        (lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid()) + F.binary_cross_entropy_with_logits(x, y.sigmoid().detach(), reduction="sum"), S, S),
        (lambda x, w: F.binary_cross_entropy_with_logits(x, (x > 0).to(x.dtype), weight=w.abs().detach(), pos_weight=w.abs().detach() + 1), S, V),
        (lambda x: F.binary_cross_entropy(x.sigmoid(), (x > 0.2).to(x.dtype)) + F.binary_cross_entropy(x.sigmoid(), (x > 0.2).to(x.dtype), torch.arange(4.0), reduction="sum"), S),
        (lambda x, y: F.binary_cross_entropy(x.sigmoid(), y.sigmoid()), S, S), (lambda x: F.cross_entropy(x, torch.tensor([1, -100, 3]), label_smoothing=1.0), S),
        (lambda x: F.cross_entropy(x, (x > 0).float(), torch.arange(4, dtype=torch.float32)), S),
        (lambda x, y: F.kl_div(x.log_softmax(1), y.softmax(1), reduction="batchmean") + F.kl_div(x.log_softmax(1), y.log_softmax(1), log_target=True), S, S),
        (lambda x: F.cross_entropy(x, torch.tensor([1, 0, 3])) + F.cross_entropy(x, torch.tensor([1, -100, 3]), reduction="sum"), S), (lambda x: F.cross_entropy(x, torch.tensor(2)), V),
        (lambda x, y: F.cross_entropy(x, y.softmax(1)) + F.cross_entropy(x, y.softmax(1), weight=torch.arange(4.0), label_smoothing=0.1, reduction="sum"), S, S),
        (lambda x: F.cross_entropy(x, torch.tensor([1, 0, 3]), torch.arange(1.0, 5.0), reduction="none"), S), (lambda x: F.nll_loss(x.log_softmax(1), torch.tensor([1, 0, 3]), torch.arange(1.0, 5.0)), S),
        (lambda x: F.nll_loss(x.log_softmax(1), torch.zeros(2, 7, 6, dtype=torch.long), reduction="sum"), X4), (lambda x: A.nll_loss_forward(x, torch.tensor([1, 0, 3]), None, 1, -100)[0], S),
        (lambda x: A.nll_loss2d_forward(x, torch.zeros(2, 7, 6, dtype=torch.long), None, 1, -100)[0] + A.nll_loss2d(x, torch.zeros(2, 7, 6, dtype=torch.long)), X4),
        (lambda x: F.cross_entropy(x, torch.tensor([1, 0, 3]), label_smoothing=1e-05), S), (lambda x: ignoring(x.masked_fill(torch.arange(4) == 0, -torch.inf)), S),
        (lambda x, w: F.linear_cross_entropy(x, w, torch.tensor([1, 0, 3]), options=torch.nn.LinearCrossEntropyOptions(batch_chunk_size=2)), S, (5, 4)),
        (lambda x: A.nll_loss(x, torch.tensor([1, 0, 3])) + A.nll_loss_nd(x, torch.tensor([1, 0, 3])), S),
        *((lambda x, y, f=f: f(x, y) + f(x, y, reduction="sum") + f(x, y, reduction="none").square().sum(), S, S) for f in (
            lambda x, y, **o: F.cosine_embedding_loss(x, y, SIGNS, 0.1, **o), lambda x, y, **o: F.hinge_embedding_loss(x, SIGNS.view(3, 1).expand(3, 4), 0.5, **o) * y.sum(),
            lambda x, y, **o: F.margin_ranking_loss(x, y, SIGNS[:, None], 0.3, **o), lambda x, y, **o: F.soft_margin_loss(x, y.detach().sign(), **o) * y.sum(),
            lambda x, y, **o: F.multi_margin_loss(x, torch.tensor([1, 0, 3]), 1, 0.7, torch.arange(1.0, 5.0).to(x.dtype), **o) + F.multi_margin_loss(y, torch.tensor([2, 0, 3]), 2, **o),
            lambda x, y, **o: F.multilabel_margin_loss(x, LABELS, **o) * F.multilabel_margin_loss(y[0], LABELS[2]), lambda x, y, **o: F.poisson_nll_loss(x, y.exp().detach(), **o),
            lambda x, y, **o: F.multilabel_soft_margin_loss(x, (y > 0).to(x.dtype), torch.arange(1.0, 5.0).to(x.dtype), **o) * y.sum(),
            lambda x, y, **o: F.poisson_nll_loss(x.exp(), y.exp(), log_input=False, full=True, **o), lambda x, y, **o: F.triplet_margin_loss(x, y, x.flip(0), 0.7, 1.5, swap=True, **o),
            lambda x, y, **o: F.triplet_margin_with_distance_loss(x, y, y.flip(0), distance_function=lambda a, b: (a - b).abs().sum(-1), **o))),
    ],
    "functional": [
        (lambda x, y: F.pairwise_distance(x, y) + F.pairwise_distance(x, y, 1.0, keepdim=True) + F.pairwise_distance(x, y[0], math.inf) + F.cosine_similarity(x, y, 0).sum(), S, S),
        (lambda x: F.normalize(x) + F.normalize(x, 1.0, 0) + F.normalize(x, math.inf, (0, 1)), S), (lambda x: F.hardshrink(x) + F.softshrink(x, 0.3) * F.tanhshrink(x) + F.softsign(x), S),
        (lambda x: F.lp_pool2d(x, 2, (2, 3), 2) + F.lp_pool2d(x, 1, 3, 1, ceil_mode=True).sum() + F.lp_pool1d(x[0].abs(), 3.0, 2).sum(), X4), (lambda x: F.lp_pool3d(x, 2.0, 2), X5),
        (lambda x: F.local_response_norm(x, 3, 0.1, 0.5, 2.0) + F.local_response_norm(x, 2), X4), (lambda x: F.pixel_unshuffle(x[..., :6, :], 2) * 2, X4),
        (lambda x: F.channel_shuffle(x, 2) * torch.arange(4)[:, None, None], X4), (lambda x: F.feature_alpha_dropout(x, 0.5, False) + F.alpha_dropout(x, 0.5, False), S),
        (lambda x, y, w: F.conv_tbc(x, y, w, 1), (5, 2, 3), (3, 3, 4), V), (lambda x: F.max_pool1d_with_indices(x, 2)[0] + F.threshold_(x * 2, 0.1, -1.0)[:, ::2], S),
    ],
    "indices": [
        (lambda x: of_one(x.sum(), torch.tensor([0]), torch.tensor(0)), S), (lambda x: x.gather(1, torch.tensor([[0, 3], [1, 1]])) * 2 + x.sum().gather(0, torch.tensor([0])) + x.sum().gather(0, torch.tensor(0)), S), (lambda x: x.index_select(1, torch.tensor([3, 0, 0])), S), (lambda x: x[ids % 3] * 2 + x[:, ids].sum(), S),
        (lambda x: x[torch.tensor([0, -1]), torch.tensor([1, 2])], S), (lambda x: x[torch.arange(2), torch.tensor([-1, 2])], X4),
        (lambda x: x[torch.arange(7), :, torch.tensor([1, 1, 3, 0, -2, 2, 3])] + x[torch.arange(7)[:, None], torch.arange(4).expand(7, 4)][..., 1], (7, 4, 4)),
        (lambda x: x[torch.arange(2)[:, None, None, None], torch.arange(7), torch.tensor([[[3]], [[-1]]]), torch.arange(4)[:, None]], (2, 7, 4, 4)),
        (lambda x: x[torch.arange(3)[:, None], torch.tensor([[0, -1], [2, 2], [1, 3]])] * x[torch.arange(4) % 3, torch.arange(4)][:2] + x[torch.arange(3), torch.tensor([1, 0, -1])][:2], S),
        (lambda x: x[torch.arange(4)[:, None], torch.arange(4)].diagonal(), (4, 4, 3)), (lambda x: x[:, :, torch.tensor([0, 2]), torch.tensor([1, 1])], X4),
        (lambda x: x[:, torch.tensor([[0], [2]]), :, torch.tensor([1, 5])] * 2, X4),
        (lambda x, y: A.index_put(x, [torch.tensor([0, 1]), None, torch.tensor([[6], [1]])], y), X4, (2, 2, 4, 6)),
        (lambda x, y: x.index_select(1, torch.tensor(1)) * y, (3, 3), (3, 3)),
        (lambda x, y: x.scatter_add(1, torch.tensor([[0, 1], [3, 3]]), y), S, (2, 2)), (lambda x, y: x.index_add(0, torch.tensor([2, 0]), y, alpha=2), S, (2, 4)),
        (lambda x, y: x.scatter(1, torch.tensor([[0, 2, 1], [3, 0, 1]]), y) * 2 + x.scatter(0, ids % 3, 2.5), S, (2, 3)), (lambda x: x.scatter(-1, torch.tensor([[1], [0], [3]]), 0.5), S),
        *((lambda x, y, r=r, i=i: x.scatter_reduce(1, torch.tensor([[0, 2, 0], [3, 3, 1]]), y, r, include_self=i), S, (2, 3)) for r in ("sum", "prod", "mean", "amax", "amin") for i in (True, False)),
        (lambda x, y: x.index_put((torch.tensor([0, 2, 1]),), y) + x.index_put((torch.tensor([0, 2, 0]),), y, accumulate=True), S, (3, 4)),
        (lambda x, y: x.index_put((torch.tensor([0, 2]), torch.tensor([1, -1])), y) + A.index_put.default(x, [None, torch.tensor([[0, 2], [1, 1]])], y[:, None], True), S, (2,)),
        (lambda x: x.index_put((x > 0,), torch.tensor(2.0)) + x.index_put((x[:, 0] > 0,), torch.tensor(2.0)), S),
        (lambda x, y: A.index_put(x, [None, x[0, :, 0] > 0], y) + A.index_put(x, [x[:, :, 0] > 0], y[0, 0]), (2, 3, 4), (2, 1, 4)),
        (lambda x, y: A.index_put(x, [x[:, :, 0] > 0], y, True), (2, 3, 4), (1, 4)),
        (lambda x, y: x.masked_scatter(x > 0, y) + x[:1].masked_scatter(x > 0.5, y), S, (5, 3)),
        (lambda x, y: scattered(x.detach(), y.detach()) * x, S, (2, 3)),
        (lambda x: x.scatter_reduce(1, ids, x.gather(1, ids), "amax", include_self=False), S),
        (lambda x: x @ F.one_hot(torch.tensor([1, 0, 3, 2]), 4).to(x.dtype), S), (lambda x, y: torch.slice_scatter(x, y, 1, 1, 3) + torch.select_scatter(x, y[:, 0], 1, 0), S, (3, 2)),
        (lambda x, y: torch.slice_scatter(x, y, 1, 1, 4, 2) + torch.slice_scatter(x, y, 1, step=2), S, (3, 2)),
        (lambda x, y: A.as_strided_scatter(x.detach(), y, [3], [5], 0) * x, S, (3,)),  # PyTorch's gradient of x is at the wrong places
    ],
}

# What torch.export replaces before the rules see it, what draws at random alone, which is in torch-random.py, and what is of derivatives, in torch-derivatives.py.
REPLACED = """upsample_bilinear2d.default dropout.default rand.default rand_like.default uniform.default randn.default randn.generator rand.generator randn_like.default normal_functional.default
    normal.float_float bernoulli.p bernoulli.default exponential.default
    randint.default randint_like.default randint.low randint_like.low_dtype convolution_backward.default""".split()
