"""Convolutions, pooling and resizing, of [N, C, H, W]; those of sequences are the same with H = 1, those of volumes are made of planes."""
from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch

from ...dimensions import convolved, flip, rows_of
from ...emit import Value, compute_type
from ..translate import Translator, Unsupported, rule
from .reductions import mean_of

A = torch.ops.aten


def _pairs(values: Any, n: int) -> list[int]:
    values = list(values) if isinstance(values, list | tuple) else [values]
    return values * n if len(values) == 1 else values


def _both(padding: Sequence[int]) -> list[int]:
    """Low and high padding of each dimension, which are equal."""
    return [p for p in padding for _ in range(2)]


def _same(kernel: Sequence[int], dilations: Sequence[int]) -> list[int]:
    """Low and high padding of each dimension so that sizes stay; the odd one is behind, as in PyTorch."""
    totals = [d * (k - 1) for k, d in zip(kernel, dilations)]
    return [n for total in totals for n in (total // 2, total - total // 2)]


def _dims(t: Translator) -> int:
    """Over how many dimensions the operation goes, by its name."""
    return next(n for n in (1, 2, 3) if f"{n}d" in str(t.node.target))


@rule(A.conv1d.default, A.conv2d.default, A.conv3d.default, A.conv1d.padding, A.conv2d.padding, A.conv3d.padding)
def conv(t: Translator, x: Value, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1) -> Value:
    weight = t.value(weight)
    n = weight.rank - 2
    strides, dilations = _pairs(stride, n), _pairs(dilation, n)
    if padding == "same":
        borders = _same(weight.shape[2:], dilations)
    else:
        borders = _both(_pairs(0 if padding == "valid" else padding, n))
    return _convolved(t, x, weight, bias, strides, borders, dilations, groups)


def _convolved(t: Translator, x: Value, weight: Value, bias: Any, strides: list[int], borders: list[int], dilations: list[int],
               groups: int) -> Value:
    return convolved(t.b, x, weight, t.value(bias) if bias is not None else None, strides, borders, dilations, groups)


@rule(A.convolution.default)
def convolution(t: Translator, x: Value, weight: Any, bias: Any, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
                transposed: bool, output_padding: Sequence[int], groups: int) -> Value:
    if transposed:
        return _transposed(t, x, t.value(weight), bias, list(stride), list(padding), list(dilation), list(output_padding), groups)
    return conv(t, x, weight, bias, list(stride), list(padding), list(dilation), groups)


@rule(A.conv_transpose1d.default, A.conv_transpose2d.input, A.conv_transpose3d.input)
def conv_transpose(t: Translator, x: Value, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
                   groups: int = 1, dilation: Any = 1) -> Value:
    weight = t.value(weight)
    n = weight.rank - 2
    return _transposed(t, x, weight, bias, *(_pairs(v, n) for v in (stride, padding, dilation, output_padding)), groups)


def _transposed(t: Translator, x: Value, weight: Value, bias: Any, strides: list[int], padding: list[int], dilations: list[int],
                extra: list[int], groups: int) -> Value:
    """The convolution of x, spread by the strides, with the flipped weight: [in, out / g, ...] becomes [out, in / g, ...]."""
    n = weight.rank - 2
    if n not in (1, 2, 3):
        raise Unsupported(f"a transposed convolution over {n} dimensions: expected 1 to 3")
    inputs, outputs = weight.shape[:2]
    flipped = flip(t.b, weight, range(2, weight.rank))
    parts = t.b.reshape(flipped, [groups, inputs // groups, *flipped.shape[1:]])
    parts = t.b.transpose(parts, [0, 2, 1, *range(3, n + 3)])
    kernel = t.b.reshape(parts, [groups * outputs, inputs // groups, *flipped.shape[2:]])
    full = [d * (k - 1) for d, k in zip(dilations, weight.shape[2:])]
    low = [f - p for f, p in zip(full, padding)]
    high = [f - p + e for f, p, e in zip(full, padding, extra)]
    batch = [0] * (x.rank - n)
    cut = [max(-v, 0) for v in low], [max(-v, 0) for v in high]
    x = t.b.pad(x, batch + [max(v, 0) for v in low], batch + [max(v, 0) for v in high], batch + [s - 1 for s in strides])
    if any(cut[0] + cut[1]):
        offsets = batch + cut[0]
        x = t.b.slice(x, offsets, [m - o - h for m, o, h in zip(x.shape, offsets, batch + cut[1])])
    return _convolved(t, x, kernel, bias, [1] * n, [0] * (2 * n), dilations, groups)


def _weight_gradient(t: Translator, x: Value, gradient: Value, shape: Sequence[int], strides: list[int], padding: list[int], dilations: list[int],
                     groups: int) -> Value:
    """A convolution of x with the result's gradient as weight, where the batch is what is summed over."""
    space = range(3, x.rank + 1)
    x = t.b.transpose(t.b.reshape(x, [x.shape[0], groups, x.shape[1] // groups, *x.shape[2:]]), [2, 1, 0, *space])
    x = t.b.reshape(x, [x.shape[0], x.shape[1] * x.shape[2], *x.shape[3:]])
    gradient = t.b.transpose(gradient, [1, 0, *range(2, gradient.rank)])
    result = _convolved(t, x, gradient, None, dilations, _both(padding), strides, groups)
    result = t.b.transpose(result, [1, 0, *range(2, result.rank)])
    return t.b.slice(result, [0] * result.rank, shape)  # behind are windows that the strides did not reach


@rule(A.convolution_backward.default)
def convolution_backward(t: Translator, gradient: Value, x: Value, weight: Value, bias: Any, stride: Sequence[int], padding: Sequence[int],
                         dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int,
                         wanted: Sequence[bool]) -> tuple[Value | None, ...]:
    """Gradients of x, weight and bias, of a derivative in the loss: the compiler derives them again."""
    n = weight.rank - 2
    strides, borders, dilations = (_pairs(v, n) for v in (stride, padding, dilation))
    of_x = of_weight = of_bias = None
    if wanted[0] and transposed:
        of_x = _convolved(t, gradient, weight, None, strides, _both(borders), dilations, groups)
    elif wanted[0]:
        extra = [m - ((o - 1) * s - 2 * p + d * (k - 1) + 1)
                 for m, o, s, p, d, k in zip(x.shape[2:], gradient.shape[2:], strides, borders, dilations, weight.shape[2:])]
        of_x = _transposed(t, gradient, weight, None, strides, borders, dilations, extra, groups)
    if wanted[1]:
        of_weight = _weight_gradient(t, *((gradient, x) if transposed else (x, gradient)), weight.shape, strides, borders, dilations, groups)
    if wanted[2]:
        of_bias = t.b.reduce("sum", gradient, [0, *range(2, n + 2)])
    return of_x, of_weight, of_bias


# Pooling.

def _pooled(t: Translator, kind: str, x: Value, window: list[int], strides: list[int], borders: list[int], counted: bool = True) -> list[Value]:
    """Pooling over the last dimensions: values, and of max_pool2d over one or two where they were. Volumes by planes, then by depth."""
    n, outer = len(window), x.shape[:-len(window)]
    if n == 3:
        planes = _pooled(t, kind, t.b.cast(x, compute_type(x.dtype)), window[1:], strides[1:], borders[2:], counted)[0]
        columns = t.b.reshape(planes, [*outer, x.shape[-3], math.prod(planes.shape[-2:])])
        values = _pooled(t, kind, columns, [window[0], 1], [strides[0], 1], [*borders[:2], 0, 0], counted)[0]
        return [t.b.cast(t.b.reshape(values, [*values.shape[:-1], *planes.shape[-2:]]), x.dtype)]
    ones = [1] * (2 - n)
    plane = t.b.reshape(x, [math.prod(outer[:-1]), outer[-1], *ones, *x.shape[-n:]])
    results = t.b.pool2d(kind, plane, ones + window, ones + strides, [0] * (4 - 2 * n) + borders, counted)
    return [t.b.reshape(v, [*outer, *v.shape[-n:]]) for v in results]


def _windows(kernel: Any, stride: Any, padding: Any, n: int) -> tuple[list[int], list[int], list[int]]:
    window = _pairs(kernel, n)
    strides = _pairs(stride, n) if stride not in ([], (), None) else window
    return window, strides, _both(_pairs(padding, n))


def _ceiled(x: Value, window: list[int], strides: list[int], padding: list[int], out: Sequence[int]) -> list[int]:
    """Padding with which the last windows of ceil_mode fit."""
    padding, n = list(padding), len(window)
    for i in range(n):
        needed = (out[i - n] - 1) * strides[i] + window[i] - x.shape[i - n] - padding[2 * i]
        padding[2 * i + 1] = max(padding[2 * i + 1], needed)
    return padding


@rule(A.max_pool3d.default, A.max_pool2d.default, A.max_pool1d.default, A.max_pool2d_with_indices.default)
def max_pool(t: Translator, x: Value, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False) -> Any:
    n = _dims(t)
    if set(_pairs(dilation, n)) != {1}:
        raise Unsupported("max pooling with dilation")
    window, strides, borders = _windows(kernel, stride, padding, n)
    if ceil_mode:
        borders = _ceiled(x, window, strides, borders, t.out.shape)
        if any(b >= w for b, w in zip(borders, _both(window))):
            raise Unsupported("max pooling in ceil_mode whose last window lies in the padding")
    values, *places = _pooled(t, "max_pool2d", x, window, strides, borders)
    return (values, t.b.cast(places[0], "i64")) if "indices" in str(t.node.target) else values


@rule(A.avg_pool3d.default, A.avg_pool2d.default, A.avg_pool1d.default)
def avg_pool(t: Translator, x: Value, kernel: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False,
             count_include_pad: bool = True, divisor_override: int | None = None) -> Value:
    n = _dims(t)
    window, strides, borders = _windows(kernel, stride, padding, n)
    out = t.out.shape
    counted = count_include_pad or bool(divisor_override)
    if ceil_mode:
        if count_include_pad and not divisor_override:  # the padding counts, but not what ceil_mode adds to it
            outer = [0] * (x.rank - n)
            x, borders, counted = t.b.pad(x, outer + borders[::2], outer + borders[1::2]), [0] * 2 * n, False
        borders = _ceiled(x, window, strides, borders, out)
    result, = _pooled(t, "avg_pool2d", x, window, strides, borders, counted or not any(borders))
    if divisor_override:
        result = t.b.binary("mul", result, t.b.like(math.prod(window) / divisor_override, result))
    return result


@rule(A.adaptive_avg_pool3d.default, A._adaptive_avg_pool3d.default, A.adaptive_avg_pool2d.default, A._adaptive_avg_pool2d.default,
      A.adaptive_avg_pool1d.default, wide=True)
def adaptive_avg_pool(t: Translator, x: Value, size: Any) -> Value:
    """Window i of n in a dimension of m goes from floor(i m / n) to ceil((i + 1) m / n)."""
    out = t.out.shape
    for dim in range(x.rank - _dims(t), x.rank):
        x = _adaptive(t, x, dim, out[dim])
    return x


def _adaptive(t: Translator, x: Value, dim: int, n: int) -> Value:
    m = x.shape[dim]
    if n == m:
        return x
    if m % n == 0:
        shape = [*x.shape[:dim], n, m // n, *x.shape[dim + 1:]]
        return mean_of(t, t.b.reshape(x, shape), [dim + 1], False)
    windows = [(i * m // n, -(-(i + 1) * m // n)) for i in range(n)]
    return t.b.concat([mean_of(t, t.b.slice_dim(x, dim, a, b - a), [dim], True) for a, b in windows], dim)


@rule(A.adaptive_max_pool3d.default, A.adaptive_max_pool2d.default, A.adaptive_max_pool1d.default)
def adaptive_max_pool(t: Translator, x: Value, size: Any) -> tuple[Value, Value]:
    """Windows as those of adaptive_avg_pool; the first of equal values is taken."""
    n, outer = _dims(t), x.shape[:-_dims(t)]
    given, out = x.shape[-n:], t.out.shape[-n:]
    if n < 3 and not any(m % k for m, k in zip(given, out)):
        window = [m // k for m, k in zip(given, out)]
        values, places = _pooled(t, "max_pool2d", x, window, window, [0] * 2 * n)
        return values, t.b.cast(places, "i64")
    grid = torch.arange(math.prod(given)).view(given)
    spans = ([slice(i * m // k, -(-(i + 1) * m // k)) for i in range(k)] for m, k in zip(given, out))
    windows = [grid[span].flatten() for span in itertools.product(*spans)]
    longest = max(map(len, windows))
    places = t.value(torch.stack([torch.cat([w, w[-1:].expand(longest - len(w))]) for w in windows]))
    taken = rows_of(t.b, t.b.reshape(x, [*outer, grid.numel()]), len(outer), places)
    index = t.b.argmax(taken, taken.rank - 1, True)
    results = (t.b.gather(v, index, taken.rank - 1) for v in (taken, t.b.broadcast(places, taken.shape)))
    values, at = (t.b.reshape(v, [*outer, *out]) for v in results)
    return values, at


# Resizing.

def _progressions(places: list[int], shares: list[float], k: int) -> list[tuple[int, int]] | None:
    """Of each of k sequences side by side of which places consist the first and the step, where they are regular. At 0 with a share of 0 it
    may begin with -1, where that element is, too."""
    found = []
    for r in range(k):
        part = places[r::k]
        step = part[-1] - part[-2]
        first = part[-1] - step * (len(part) - 1)
        begins = part[0] == first or (first, part[0], shares[r]) == (-1, 0, 0)
        if step < 1 or not begins or part[1:] != list(range(first + step, part[-1] + 1, step)):
            return None
        found.append((first, step))
    return found


def _mixed(t: Translator, a: Value, b: Value, shares: torch.Tensor) -> Value:
    """a (1 - share) + b share"""
    a, b = (t.b.binary("mul", x, t.value(share, x.dtype)) for x, share in ((a, 1 - shares), (b, shares)))
    return t.b.binary("add", a, b)


def _interpolated(t: Translator, x: Value, dim: int, at: torch.Tensor) -> Value:
    """x at places of a dimension, linear between its elements and as the nearest one beyond them. No product with a matrix, which would round
    to bf16, and make NaN of an infinity elsewhere: by slices where places are regular, else by rows."""
    n, m = x.shape[dim], len(at)
    low = at.floor().clamp(-1, n - 1)
    shares, low = (at - low).clamp(0, 1), low.long()
    for k in range(1, min(16, m // 2) + 1):
        if m % k == 0 and (parts := _progressions(low.tolist(), shares.tolist(), k)):
            return _by_slices(t, x, dim, parts, low, shares)
    order = [dim] + [i for i in range(x.rank) if i != dim]
    rows = t.b.transpose(x, order)
    table = t.b.reshape(rows, [n, x.type.elements // n])
    result = _mixed(t, *(t.b.embedding(table, t.value(i.clamp(0, n - 1))) for i in (low, low + 1)), shares.view(-1, 1))
    return t.b.transpose(t.b.reshape(result, [m, *rows.shape[1:]]), [order.index(i) for i in range(x.rank)])


def _by_slices(t: Translator, x: Value, dim: int, parts: list[tuple[int, int]], low: torch.Tensor, shares: torch.Tensor) -> Value:
    """The same by the progressions of the lower elements."""
    n, m, k, b = x.shape[dim], len(low), len(parts), t.b
    before, behind, rest = x.shape[:dim], x.shape[dim + 1:], [1] * (x.rank - dim - 1)
    x = b.concat([b.slice_dim(x, dim, 0, 1), x, b.slice_dim(x, dim, n - 1, 1)], dim)
    begins = dict.fromkeys((begin + i, step) for begin, step in parts for i in (1, 2))
    slices = {(begin, step): b.slice_dim(x, dim, begin, m // k, step) for begin, step in begins}
    results = []
    for r, (begin, step) in enumerate(parts):
        share = shares[r::k].clone()
        if begin < low[r]:  # of two elements that are one
            share[0] = 0.5
        result = _mixed(t, slices[begin + 1, step], slices[begin + 2, step], share.view(-1, *rest))
        results.append(b.reshape(result, [*before, m // k, 1, *behind]))
    return b.reshape(b.concat(results, dim + 1), [*before, m, *behind])


def _source(n: int, m: int, scale: float | None) -> torch.Tensor:
    """Where output i of m lies in n: (i + 1/2) n / m - 1/2, rounded once; or by a scale."""
    i = torch.arange(m, dtype=torch.float64)
    return (i + 0.5) / scale - 0.5 if scale and n * scale != m else ((2 * i + 1) * n - m) / (2 * m)


def _scales(scales: Sequence[Any], n: int) -> list[float | None]:
    given = [s for s in scales if isinstance(s, float | int) and not isinstance(s, bool)]
    listed = next((list(s) for s in scales if isinstance(s, list | tuple)), given)
    return [*listed] if len(listed) == n else [None] * n


@rule(A.upsample_nearest2d.vec, A.upsample_nearest2d.default, A.upsample_nearest1d.vec, A.upsample_nearest1d.default,
      A._upsample_nearest_exact1d.vec, A._upsample_nearest_exact1d.default, A._upsample_nearest_exact2d.vec,
      A._upsample_nearest_exact2d.default, A.upsample_nearest3d.vec, A.upsample_nearest3d.default, A._upsample_nearest_exact3d.vec,
      A._upsample_nearest_exact3d.default)
def upsample_nearest(t: Translator, x: Value, size: Any, *scales: Any) -> Value:
    """Copies: a product with a matrix would round to bf16, and make NaN of an infinity elsewhere."""
    given, dtype = x.shape, torch.float64 if x.dtype == "f64" else torch.float32  # in which PyTorch computes places
    for dim in range(2, x.rank):
        n, m = x.shape[dim], t.out.shape[dim]
        places = torch.arange(n, dtype=dtype).view([n if i == dim else 1 for i in range(x.rank)])
        at = t.node.target(places.expand(1, 1, *given[2:]), size, *scales).movedim(dim, -1).reshape(-1, m)[0].long()
        if m % n == 0 and torch.equal(at, torch.arange(n).repeat_interleave(m // n)):  # every element the same number of times
            split = t.b.reshape(x, [*x.shape[:dim + 1], 1, *x.shape[dim + 1:]])
            spread = t.b.broadcast(split, [*x.shape[:dim + 1], m // n, *x.shape[dim + 1:]])
            x = t.b.reshape(spread, [*x.shape[:dim], m, *x.shape[dim + 1:]])
        else:
            x = rows_of(t.b, x, dim, t.value(at))
    return x


@rule(A.upsample_bilinear2d.vec, A.upsample_bilinear2d.default, A.upsample_linear1d.vec, A.upsample_linear1d.default,
      A.upsample_trilinear3d.vec, A.upsample_trilinear3d.default, wide=True)
def upsample_linear(t: Translator, x: Value, size: Any, align_corners: bool, *scales: Any) -> Value:
    x = t.b.kept(x) if x.dtype == "f32" else x  # as in PyTorch's autocast
    for dim, scale in zip(range(2, x.rank), _scales(scales, x.rank - 2)):
        n, m = x.shape[dim], t.out.shape[dim]
        if n == m:  # whatever the scale
            continue
        at = torch.arange(m, dtype=torch.float64) * (n - 1) / max(m - 1, 1) if align_corners else _source(n, m, scale)
        x = _interpolated(t, x, dim, at)
    return x
