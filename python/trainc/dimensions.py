"""Along dimensions: scans, the largest, elements by an index, convolutions. Made of the dialect's operations, what front ends share."""
from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence

from .emit import Builder, Value
from .functions import log1p_exp


# Scans.

def scanned(b: Builder, combine: Callable[[Value, Value], Value], x: Value, dim: int, neutral: float | None = None) -> Value:
    """Each element combined with all before it: first with one, then with two more, with four (Hillis and Steele). The first are combined
    with `neutral`, or with themselves."""
    dim = dim % x.rank if x.rank else 0
    step = 1
    while x.rank and step < x.shape[dim]:
        before = b.slice_dim(x, dim, 0, x.shape[dim] - step)
        if neutral is None:
            before = b.concat([b.slice_dim(x, dim, 0, step), before], dim)
        else:
            before = b.pad(before, [step if i == dim else 0 for i in range(x.rank)], [0] * x.rank, value=neutral)
        x = combine(before, x)
        step *= 2
    return x


def cumsum(b: Builder, x: Value, dim: int) -> Value:
    return scanned(b, functools.partial(b.binary, "add"), x, dim, 0)


def cumprod(b: Builder, x: Value, dim: int) -> Value:
    return scanned(b, functools.partial(b.binary, "mul"), x, dim, 1)


def cumulative_extremum(b: Builder, kind: str, x: Value, dim: int) -> Value:
    """Of `kind` "max" or "min"."""
    return scanned(b, functools.partial(b.binary, kind), x, dim)


def logcumsumexp(b: Builder, x: Value, dim: int) -> Value:
    def combine(p: Value, q: Value) -> Value:
        """max(p, q) + log(1 + exp(-|p - q|)), the difference of equal infinities 0."""
        difference = b.select(b.compare("eq", p, q), b.like(0, p), b.binary("sub", p, q))
        return b.binary("add", b.binary("max", p, q), log1p_exp(b, b.unary("neg", b.unary("abs", difference))))

    return scanned(b, combine, x, dim, -math.inf)


# The largest and the smallest.

def argument(b: Builder, x: Value, dim: int, largest: bool, keep: bool = False) -> Value:
    """The index, i32, of the first of the largest or of the smallest."""
    if not largest:  # -1 - x is exact for the smallest integer, too
        x = b.binary("sub", b.like(-1, x), x) if x.dtype.startswith("i") else b.unary("neg", x)
    return b.argmax(x, dim, keep)


def topk(b: Builder, x: Value, k: int, dim: int, largest: bool = True) -> tuple[Value, Value]:
    """The largest and their indices, i32: the maximum k times, each time without those before; of many, of the smallest and of integers,
    sorted."""
    if k > 8 or not largest or x.dtype.startswith("i"):
        values, indices = b.sort(x, dim, largest)
        return b.slice_dim(values, dim, 0, k), b.slice_dim(indices, dim, 0, k)
    rest, free, values, indices = b.unary("stop_gradient", x), b.splat(1, x.shape, "i32"), [], []
    places, lowest = b.iota(dim, x.shape, "i32"), b.like(-math.inf, x)
    for _ in range(k):
        index = b.argmax(rest, dim, True)
        if indices:  # where nothing larger is left, any that is free
            ended = b.compare("eq", b.gather(rest, index, dim), lowest)
            index = b.select(ended, b.argmax(free, dim, True), index)
        values.append(b.gather(x, index, dim))
        indices.append(index)
        taken = b.compare("eq", places, index)
        rest, free = b.select(taken, lowest, rest), b.select(taken, b.like(0, free), free)
    return b.concat(values, dim), b.concat(indices, dim)


# Elements by an index.

def rows_of(b: Builder, x: Value, dim: int, index: Value) -> Value:
    """x with dimension `dim` replaced by the elements that `index`, of any shape, names."""
    order = [dim] + [i for i in range(x.rank) if i != dim]
    moved = b.transpose(x, order)
    rest = moved.shape[1:]
    if x.dtype.startswith("i"):
        flat = b.reshape(index, [index.type.elements, *[1] * len(rest)])
        taken = b.gather(moved, b.broadcast(flat, [index.type.elements, *rest]), 0)
    else:
        taken = b.embedding(b.reshape(moved, [moved.shape[0], math.prod(rest)]), index)
    taken = b.reshape(taken, [*index.shape, *rest])
    # The index's dimensions go where `dim` was.
    k = index.rank
    back = [k + i for i in range(dim)] + list(range(k)) + [k + i for i in range(dim, len(rest))]
    return b.transpose(taken, back)


def progression(b: Builder, begin: int, step: int, dim: int, shape: Sequence[int], dtype: str) -> Value:
    """The integers begin + step i along a dimension."""
    result = b.iota(dim, shape, dtype)
    if step != 1:
        result = b.binary("mul", result, b.splat(step, (), dtype))
    return b.binary("add", result, b.splat(begin, (), dtype)) if begin else result


def flip(b: Builder, x: Value, dims: Iterable[int]) -> Value:
    for dim in dims:
        dim %= x.rank
        n = x.shape[dim]
        x = rows_of(b, x, dim, progression(b, n - 1, -1, 0, [n], "i64") if n > 1 else b.splat(0, [1], "i64"))
    return x


# Convolutions.

def convolved(b: Builder, x: Value, weight: Value, bias: Value | None, strides: list[int], borders: list[int], dilations: list[int],
              groups: int) -> Value:
    """Of [N, C, ...], or without N, over 1 to 3 dimensions; `borders` are the low and the high padding of each."""
    n = weight.rank - 2
    if n not in (1, 2, 3):
        raise ValueError(f"a convolution over {n} dimensions: expected 1 to 3")
    single = x.rank == n + 1  # without a batch
    if single:
        x = b.reshape(x, [1, *x.shape])
    out = [x.shape[0], weight.shape[0], *((m + borders[2 * i] + borders[2 * i + 1] - dilations[i] * (k - 1) - 1) // strides[i] + 1
                                          for i, (m, k) in enumerate(zip(x.shape[2:], weight.shape[2:])))]
    if n == 1:
        x, weight = (b.reshape(v, [*v.shape[:2], 1, v.shape[2]]) for v in (x, weight))
        strides, dilations, borders = [1, *strides], [1, *dilations], [0, 0, *borders]
    if n == 3:
        x = _with_planes(b, x, weight.shape[2], out[2], strides[0], dilations[0], borders[:2])
        weight = b.reshape(weight, [weight.shape[0], weight.shape[1] * weight.shape[2], *weight.shape[3:]])
        strides, dilations, borders = strides[1:], dilations[1:], borders[2:]
    result = b.conv2d(x, weight, bias, strides, borders, dilations, groups)
    if n == 3:
        result = b.transpose(b.reshape(result, [out[0], out[2], *result.shape[1:]]), [0, 2, 1, 3, 4])
    return b.reshape(result, out[1:] if single else out)


def _with_planes(b: Builder, x: Value, count: int, depth: int, stride: int, dilation: int, borders: list[int]) -> Value:
    """[N, C, D, H, W] as [N depth, C count, H, W]: for each plane of a convolution's result, the planes of x that the weight meets."""
    n, c, _, h, w = x.shape
    x = b.pad(x, [0, 0, borders[0], 0, 0], [0, 0, borders[1], 0, 0])
    if count == stride and dilation == 1:  # each plane is met once
        x = b.transpose(b.reshape(b.slice_dim(x, 2, 0, depth * count), [n, c, depth, count, h, w]), [0, 2, 1, 3, 4, 5])
    else:
        x = b.transpose(x, [0, 2, 1, 3, 4])
        met = [b.slice_dim(x, 1, i * dilation, depth, stride) for i in range(count)]
        x = b.concat([b.reshape(planes, [n, depth, c, 1, h, w]) for planes in met], 3)
    return b.reshape(x, [n * depth, c * count, h, w])


def product(b: Builder, x: Value, y: Value, bias: Value | None = None) -> Value:
    """The matrix product; operands that are transposed in the last two dimensions are read so."""
    flags, operands = [], []
    for v in (x, y):
        source, order = b.moved(v)
        swapped = tuple(order) == (*range(v.rank - 2), v.rank - 1, v.rank - 2)
        flags.append(swapped)
        operands.append(source if swapped else v)
    return b.matmul(*operands, bias, transpose_lhs=flags[0], transpose_rhs=flags[1])
