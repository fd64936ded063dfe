"""Sums, means, extrema and what is made of them."""
from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ... import dimensions
from ...emit import Value
from ...functions import isnan, with_gradient
from ..translate import Translator, rule

A = torch.ops.aten


def as_row(function: Callable[..., Any]) -> Callable[..., Any]:
    """Has a rule take a tensor without dimensions as a row of one element, as PyTorch does; its results have the shape of the first."""

    @functools.wraps(function)
    def on_row(t: Translator, x: Any, *args: Any, **kwargs: Any) -> Any:
        x = t.value(x)
        if x.rank:
            return function(t, x, *args, **kwargs)
        args = tuple(a[None] if isinstance(a, torch.Tensor) and a.dim() == 0 else t.b.reshape(a, [1]) if isinstance(a, Value) and a.rank == 0 else a
                     for a in args)
        result = function(t, t.b.reshape(x, [1]), *args, **kwargs)
        return tuple(t.b.reshape(r, t.out.shape) for r in result) if isinstance(result, tuple) else t.b.reshape(result, t.out.shape)

    return on_row


def dims_of(x: Value, dim: Any) -> list[int]:
    """All dimensions for None and []."""
    if dim is None or dim == []:
        return list(range(x.rank))
    return sorted(d % x.rank if x.rank else 0 for d in (dim if isinstance(dim, list | tuple) else [dim])) if x.rank else []


def count_of(x: Value, dims: Sequence[int]) -> int:
    return math.prod(x.shape[d] for d in dims)


@rule(A.sum.default, A.sum.dim_IntList)
def total(t: Translator, x: Value, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
    return t.b.reduce("sum", t.value(x, t.out.dtype), dims_of(x, dim), keepdim)


def mean_of(t: Translator, x: Value, dims: Sequence[int], keepdim: bool) -> Value:
    return t.b.binary("mul", t.b.reduce("sum", x, dims, keepdim), t.b.like(1 / count_of(x, dims), x))


@rule(A.mean.default, A.mean.dim, wide=True)
def mean(t: Translator, x: Value, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
    x = t.value(x, t.out.dtype)
    dims = dims_of(x, dim)
    return t.b.binary("div", t.b.reduce("sum", x, dims, keepdim), t.b.like(count_of(x, dims), x))


def variance(t: Translator, x: Value, dims: Sequence[int], correction: float, keepdim: bool) -> tuple[Value, Value]:
    """(variance, mean)"""
    count = count_of(x, dims)
    average = t.b.binary("div", t.b.reduce("sum", x, dims, True), t.b.like(count, x))
    centred = t.b.binary("sub", x, average)
    squares = t.b.reduce("sum", t.b.binary("mul", centred, centred), dims, keepdim)
    shape = squares.shape
    return t.b.binary("div", squares, t.b.like(max(count - correction, 0), x)), t.b.reshape(average, shape)


@rule(A.var.correction, A.std.correction, wide=True)
def var(t: Translator, x: Value, dim: Any = None, *, correction: Any = 1, keepdim: bool = False) -> Value:
    squared, _ = variance(t, x, dims_of(x, dim), 1 if correction is None else correction, keepdim)
    return _root(t, squared) if "std" in str(t.node.target) else squared


def _root(t: Translator, powers: Value, order: float = 2) -> Value:
    """Of 0 the root's gradient is infinite, and that of what PyTorch makes of it is 0."""
    zero = t.b.compare("eq", powers, t.b.like(0, powers))
    powers = t.b.select(zero, t.b.like(1, powers), powers)
    root = t.b.unary("sqrt", powers) if order == 2 else t.b.binary("pow", powers, t.b.like(1 / order, powers))
    return t.b.select(zero, t.b.like(0, powers), root)


@rule(A.var_mean.correction, wide=True)
def var_mean(t: Translator, x: Value, dim: Any = None, *, correction: Any = 1, keepdim: bool = False) -> tuple[Value, Value]:
    return variance(t, x, dims_of(x, dim), 1 if correction is None else correction, keepdim)


@rule(A.std_mean.correction, wide=True)
def std_mean(t: Translator, x: Value, dim: Any = None, *, correction: Any = 1, keepdim: bool = False) -> tuple[Value, Value]:
    squared, average = var_mean(t, x, dim, correction=correction, keepdim=keepdim)
    return _root(t, squared), average


@rule(A.amax.default, A.amin.default)
def extremum(t: Translator, x: Value, dim: Any = None, keepdim: bool = False) -> Value:
    return _extreme(t, "max" if "amax" in str(t.node.target) else "min", x, dims_of(x, dim), keepdim)


def _extreme(t: Translator, kind: str, x: Value, dims: Sequence[int], keep: bool = False) -> Value:
    return t.b.cast(t.b.reduce(kind, _comparable(t, x), dims, keep), x.dtype)


def _comparable(t: Translator, x: Value) -> Value:
    """Booleans as bytes, which have an order."""
    return t.b.cast(x, "i8") if x.dtype == "i1" else x


@rule(A.max.default, A.min.default)
def extremum_of_all(t: Translator, x: Value) -> Value:
    return _extreme(t, "max" if ".max." in str(t.node.target) else "min", x, dims_of(x, None))


@rule(A.max.dim, A.min.dim)
def extremum_and_index(t: Translator, x: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    """The value at one index, as PyTorch: ties do not share the gradient."""
    if x.rank == 0:
        return x, t.b.splat(0, (), "i64")
    dim %= x.rank
    bits = _comparable(t, x)
    index = dimensions.argument(t.b, bits, dim, ".max." in str(t.node.target), True)
    value = t.b.cast(t.b.gather(bits, index, dim), x.dtype)
    index = t.b.cast(index, "i64")
    if keepdim:
        return value, index
    shape = [n for i, n in enumerate(x.shape) if i != dim]
    return t.b.reshape(value, shape), t.b.reshape(index, shape)


@rule(A.argmax.default, A.argmin.default)
def argument(t: Translator, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    flat = t.b.reshape(x, [x.type.elements]) if dim is None or x.rank == 0 else x
    index = dimensions.argument(t.b, flat, 0 if dim is None else dim % flat.rank, "argmax" in str(t.node.target), keepdim and dim is not None)
    return t.b.reshape(t.b.cast(index, "i64"), t.out.shape)


@rule(A.prod.default, A.prod.dim_int)
def product(t: Translator, x: Value, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
    return t.b.reduce("prod", t.value(x, t.out.dtype), dims_of(x, dim), keepdim)


@rule(A.any.default, A.any.dim, A.any.dims, A.all.default, A.all.dim, A.all.dims)
def any_or_all(t: Translator, x: Value, dim: Any = None, keepdim: bool = False) -> Value:
    kind = "max" if ".any." in str(t.node.target) else "min"
    if isinstance(dim, list | tuple) and not dim:  # not all of them, as elsewhere
        return t.b.cast(x, "i1")
    return _extreme(t, kind, t.b.cast(x, "i1"), dims_of(x, dim), keepdim)


@rule(A.softmax.int, A._softmax.default, A.log_softmax.int, A._log_softmax.default)
@as_row
def softmax(t: Translator, x: Value, dim: int, *_: Any, **__: Any) -> Value:
    return t.b.softmax(t.value(x, t.out.dtype), dim % x.rank, "log" in str(t.node.target))


@rule(A._safe_softmax.default)
def safe_softmax(t: Translator, x: Value, dim: int, dtype: Any = None) -> Value:
    """0 where all are -infinity."""
    x = t.value(x, t.out.dtype)
    hidden = t.b.compare("eq", t.b.reduce("max", t.b.unary("stop_gradient", x), [dim % x.rank], True), t.b.like(-math.inf, x))
    zero = t.b.like(0, x)
    return t.b.select(hidden, zero, t.b.softmax(t.b.select(hidden, zero, x), dim % x.rank))


@rule(A.logsumexp.default)
def logsumexp(t: Translator, x: Value, dim: Any, keepdim: bool = False) -> Value:
    """m + log(sum(exp(x - m))), m the maximum, a constant; 0 in its place where it is infinite."""
    x = t.value(x, t.out.dtype)
    dims = dims_of(x, dim)
    highest = t.b.unary("stop_gradient", t.b.reduce("max", x, dims, True))
    finite = t.b.compare("lt", t.b.unary("abs", highest), t.b.like(math.inf, x))
    highest = t.b.select(finite, highest, t.b.like(0, x))
    logarithm = t.b.unary("log", t.b.reduce("sum", t.b.unary("exp", t.b.binary("sub", x, highest)), dims, True))
    result = t.b.binary("add", logarithm, highest)
    return result if keepdim else t.b.reshape(result, t.out.shape)


@rule(A.linalg_vector_norm.default, wide=True)
def vector_norm(t: Translator, x: Value, ord: float = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
    x = t.value(x, t.out.dtype)
    dims = dims_of(x, dim)
    if ord == 2:
        return _root(t, t.b.reduce("sum", t.b.binary("mul", x, x), dims, keepdim))
    size = t.b.unary("abs", x)
    if math.isinf(ord):
        return t.b.reduce("max" if ord > 0 else "min", size, dims, keepdim)
    if ord == 1:
        return t.b.reduce("sum", size, dims, keepdim)
    zero = t.b.compare("eq", x, t.b.like(0, x))
    if ord == 0:
        return t.b.reduce("sum", t.b.cast(t.b.unary("not", zero), x.dtype), dims, keepdim)
    power = t.b.binary("pow", t.b.select(zero, t.b.like(1, x), size), t.b.like(ord, x))
    power = t.b.select(zero, t.b.like(0 if ord > 0 else math.inf, x), power)
    return _root(t, t.b.reduce("sum", power, dims, keepdim), ord)


@rule(A.dist.default, wide=True)
def dist(t: Translator, a: Any, b: Any, p: float = 2) -> Value:
    return vector_norm(t, t.b.binary("sub", *t.pair(a, b)), p)


@rule(A.cumsum.default, wide=True)
def cumsum(t: Translator, x: Value, dim: int, dtype: Any = None) -> Value:
    return dimensions.cumsum(t.b, t.value(x, t.out.dtype), dim)


@rule(A.cumprod.default, wide=True)
def cumprod(t: Translator, x: Value, dim: int, dtype: Any = None) -> Value:
    return dimensions.cumprod(t.b, t.value(x, t.out.dtype), dim)


@rule(A.logcumsumexp.default, wide=True)
def logcumsumexp(t: Translator, x: Value, dim: int) -> Value:
    return dimensions.logcumsumexp(t.b, x, dim)


@rule(A.cummax.default, A.cummin.default)
@as_row
def running_extremum(t: Translator, x: Value, dim: int) -> tuple[Value, Value]:
    """The extremum so far and where it stands, of equal ones the last; after a NaN, NaN."""
    dim, bits = dim % x.rank, _comparable(t, x)
    so_far = dimensions.cumulative_extremum(t.b, "max" if ".cummax." in str(t.node.target) else "min", bits, dim)
    is_one = t.b.binary("or", t.b.compare("eq", bits, so_far), t.b.compare("ne", bits, bits))
    places = t.b.select(is_one, t.b.iota(dim, x.shape, "i32"), t.b.splat(0, x.shape, "i32"))
    places = dimensions.cumulative_extremum(t.b, "max", places, dim)
    return t.b.cast(t.b.gather(bits, places, dim), x.dtype), t.b.cast(places, "i64")


def bucket_of(t: Translator, x: Value, boundaries: Value, right: bool, out: str) -> Value:
    """How many boundaries are below x, with `right` not above it; of NaN all."""
    dtype = t.promoted(x, boundaries)
    beyond = t.b.compare("gt" if right else "ge", t.b.reshape(t.value(boundaries, dtype), [*boundaries.shape[:-1], 1, boundaries.shape[-1]]),
                         t.b.reshape(t.value(x, dtype), [*x.shape, 1]))
    return t.b.reduce("sum", t.b.cast(t.b.unary("not", beyond), out), [beyond.rank - 1])


@rule(A.bucketize.Tensor)
def bucketize(t: Translator, x: Value, boundaries: Value, out_int32: bool = False, right: bool = False) -> Value:
    return t.b.reshape(bucket_of(t, x, boundaries, right, t.out.dtype), t.out.shape)


@rule(A.searchsorted.Tensor)
def searchsorted(t: Translator, rows: Value, x: Value, *, out_int32: bool = False, right: bool = False, side: str | None = None,
                 sorter: Any = None) -> Value:
    if sorter is not None:
        rows = t.b.gather(rows, t.value(sorter), rows.rank - 1)
    return bucketize(t, x, rows, right=right or side == "right")


@rule(A.histc.default)
def histc(t: Translator, x: Value, bins: int = 100, min: float = 0, max: float = 0) -> Value:
    """How many elements each of equal parts of [min, max] has, of which the last has its end; where they are equal, of the elements' range."""
    flat = t.b.reshape(x, [x.type.elements])
    low, high = t.b.splat(min, [1], x.dtype), t.b.splat(max, [1], x.dtype)
    if min == max:
        low, high = (t.b.reduce(kind, flat, [0], True) for kind in ("min", "max"))
        one, are_equal = t.b.like(1, low), t.b.compare("eq", low, high)
        low, high = t.b.select(are_equal, t.b.binary("sub", low, one), low), t.b.select(are_equal, t.b.binary("add", high, one), high)
    part = t.b.binary("div", t.b.binary("mul", t.b.binary("sub", flat, low), t.b.like(bins, flat)), t.b.binary("sub", high, low))
    part = t.b.binary("min", t.b.unary("floor", part), t.b.like(bins - 1, flat))
    within = t.b.binary("and", t.b.compare("ge", flat, low), t.b.compare("le", flat, high))
    mine = t.b.compare("eq", part, t.b.iota(0, [bins, 1], x.dtype))
    return t.b.reduce("sum", t.b.cast(t.b.binary("and", mine, within), x.dtype), [1])


@rule(A.sort.default)
def sort(t: Translator, x: Value, dim: int = -1, descending: bool = False) -> tuple[Value, Value]:
    """Stable, which PyTorch's need not be; a NaN is the largest in both."""
    if x.rank == 0:
        return x, t.b.splat(0, (), "i64")
    values, indices = t.b.sort(x, dim % x.rank, descending)
    return values, t.b.cast(indices, "i64")


@rule(A.sort.stable)
def stable_sort(t: Translator, x: Value, *, stable: bool | None = None, dim: int = -1, descending: bool = False) -> tuple[Value, Value]:
    return sort(t, x, dim, descending)


@rule(A.argsort.default)
def argsort(t: Translator, x: Value, dim: int = -1, descending: bool = False) -> Value:
    return sort(t, x, dim, descending)[1]


@rule(A.argsort.stable)
def stable_argsort(t: Translator, x: Value, *, stable: bool, dim: int = -1, descending: bool = False) -> Value:
    return sort(t, x, dim, descending)[1]


@rule(A.kthvalue.default)
def kth_value(t: Translator, x: Value, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Value, Value]:
    values, indices = sort(t, x, dim)
    if x.rank:
        values, indices = (t.b.slice_dim(v, dim % x.rank, k - 1, 1) for v in (values, indices))
    return t.b.reshape(values, t.out.shape), t.b.reshape(indices, t.out.shape)


def _median(t: Translator, x: Value, dim: int) -> tuple[Value, Value]:
    """(value, index), `dim` kept, of the lower of two in the middle; of `median` the first NaN, which sort puts behind what is ordered."""
    values, indices = t.b.sort(x, dim, False)
    ordered = t.b.reduce("sum", t.b.cast(t.b.unary("not", isnan(t.b, x)), "i64"), [dim], True)
    last = t.b.binary("max", t.b.binary("sub", ordered, t.b.like(1, ordered)), t.b.like(0, ordered))
    place = t.b.binary("div", last, t.b.like(2, ordered))
    if "nanmedian" not in str(t.node.target):
        place = t.b.select(t.b.compare("lt", ordered, t.b.like(x.shape[dim], ordered)), ordered, place)
    return t.b.gather(values, place, dim), t.b.cast(t.b.gather(indices, place, dim), "i64")


@rule(A.median.dim, A.nanmedian.dim)
@as_row
def median(t: Translator, x: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    value, index = _median(t, x, dim % x.rank)
    return t.b.reshape(value, t.out.shape), t.b.reshape(index, t.out.shape)


@rule(A.median.default, A.nanmedian.default)
def median_of_all(t: Translator, x: Value) -> Value:
    """Elements that are equal to it share the gradient."""
    flat = t.b.reshape(x, [x.type.elements])
    value, _ = _median(t, flat, 0)
    if not x.dtype.startswith("i"):
        value, stopped, zero = t.b.unary("stop_gradient", value), t.b.unary("stop_gradient", flat), t.b.like(0, flat)
        is_equal = t.b.binary("or", t.b.compare("eq", stopped, value), t.b.binary("and", isnan(t.b, stopped), isnan(t.b, value)))
        share = t.b.binary("div", t.b.like(1, x), t.b.reduce("sum", t.b.cast(is_equal, x.dtype), [0], True))
        moved = with_gradient(t.b, zero, (t.b.select(is_equal, flat, zero), share))
        value = t.b.binary("add", value, t.b.reduce("sum", moved, [0], True))
    return t.b.reshape(value, [])


@rule(A._cdist_forward.default)
def cdist(t: Translator, a: Value, b: Value, p: float, compute_mode: int | None) -> Value:
    """Norms of differences, also where PyTorch takes those of order 2 from a product. Each of equal maxima has the whole gradient."""
    a = t.b.reshape(a, [*a.shape[:-1], 1, a.shape[-1]])
    b = t.b.reshape(b, [*b.shape[:-2], 1, *b.shape[-2:]])
    difference = t.b.binary("sub", a, b)
    if not math.isinf(p):
        return vector_norm(t, difference, p, -1)
    size, zero = t.b.unary("abs", difference), t.b.like(0, difference)
    largest = t.b.reduce("max", t.b.unary("stop_gradient", size), [size.rank - 1], True)
    is_largest = t.b.compare("eq", size, largest)
    moved = with_gradient(t.b, zero, (t.b.select(is_largest, size, zero), t.b.like(1, zero)))
    return t.b.reshape(t.b.binary("add", largest, t.b.reduce("sum", moved, [size.rank - 1], True)), t.out.shape)


@rule(A.topk.default)
def topk(t: Translator, x: Value, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Value, Value]:
    if x.rank == 0:
        return x, t.b.splat(0, (), "i64")
    values, indices = dimensions.topk(t.b, x, k, dim % x.rank, largest)
    return values, t.b.cast(indices, "i64")
