"""Sums, means, extrema and what is made of them."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from ...emit import Value
from ..translate import Translator, Unsupported, rule

A = torch.ops.aten


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


@rule(A.mean.default, A.mean.dim)
def mean(t: Translator, x: Value, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
    x = t.value(x, t.out.dtype)
    dims = dims_of(x, dim)
    return t.b.binary("div", t.b.reduce("sum", x, dims, keepdim), t.b.like(count_of(x, dims), x))


def variance(t: Translator, x: Value, dims: Sequence[int], correction: float, keepdim: bool) -> tuple[Value, Value]:
    """(variance, mean)"""
    count = count_of(x, dims)
    if count <= correction:
        raise Unsupported(f"the variance of {count} elements with correction {correction}")
    average = t.b.binary("div", t.b.reduce("sum", x, dims, True), t.b.like(count, x))
    centred = t.b.binary("sub", x, average)
    squares = t.b.reduce("sum", t.b.binary("mul", centred, centred), dims, keepdim)
    shape = squares.shape
    return t.b.binary("div", squares, t.b.like(count - correction, x)), t.b.reshape(average, shape)


@rule(A.var.correction, A.std.correction)
def var(t: Translator, x: Value, dim: Any = None, *, correction: Any = 1, keepdim: bool = False) -> Value:
    squared, _ = variance(t, x, dims_of(x, dim), 1 if correction is None else correction, keepdim)
    return _root(t, squared) if "std" in str(t.node.target) else squared


def _root(t: Translator, squares: Value) -> Value:
    """Of 0 the root's gradient is infinite, and that of what PyTorch makes of it is 0."""
    zero = t.b.compare("eq", squares, t.b.like(0, squares))
    return t.b.select(zero, t.b.like(0, squares), t.b.unary("sqrt", t.b.select(zero, t.b.like(1, squares), squares)))


@rule(A.var_mean.correction)
def var_mean(t: Translator, x: Value, dim: Any = None, *, correction: Any = 1, keepdim: bool = False) -> tuple[Value, Value]:
    return variance(t, x, dims_of(x, dim), 1 if correction is None else correction, keepdim)


@rule(A.amax.default, A.amin.default)
def extremum(t: Translator, x: Value, dim: Any = None, keepdim: bool = False) -> Value:
    return t.b.reduce("max" if "amax" in str(t.node.target) else "min", x, dims_of(x, dim), keepdim)


@rule(A.max.default, A.min.default)
def extremum_of_all(t: Translator, x: Value) -> Value:
    return t.b.reduce("max" if ".max." in str(t.node.target) else "min", x, dims_of(x, None))


def _arg(t: Translator, x: Value, dim: int, largest: bool, keep: bool) -> Value:
    if not largest:  # -1 - x is exact for the smallest integer, too
        x = t.b.binary("sub", t.b.like(-1, x), x) if x.dtype.startswith("i") else t.b.unary("neg", x)
    return t.b.argmax(x, dim, keep)


@rule(A.max.dim, A.min.dim)
def extremum_and_index(t: Translator, x: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    """The value at one index, as PyTorch: ties do not share the gradient."""
    dim %= x.rank
    index = _arg(t, x, dim, ".max." in str(t.node.target), True)
    value = t.b.gather(x, index, dim)
    index = t.b.cast(index, "i64")
    if keepdim:
        return value, index
    shape = [n for i, n in enumerate(x.shape) if i != dim]
    return t.b.reshape(value, shape), t.b.reshape(index, shape)


@rule(A.argmax.default, A.argmin.default)
def argument(t: Translator, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    flat = t.b.reshape(x, [x.type.elements]) if dim is None else x
    index = _arg(t, flat, 0 if dim is None else dim % x.rank, "argmax" in str(t.node.target), keepdim and dim is not None)
    return t.b.reshape(t.b.cast(index, "i64"), t.out.shape)


@rule(A.prod.default, A.prod.dim_int)
def product(t: Translator, x: Value, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
    return t.b.reduce("prod", t.value(x, t.out.dtype), dims_of(x, dim), keepdim)


@rule(A.any.default, A.any.dim, A.any.dims, A.all.default, A.all.dim, A.all.dims)
def any_or_all(t: Translator, x: Value, dim: Any = None, keepdim: bool = False) -> Value:
    kind = "max" if ".any." in str(t.node.target) else "min"
    as_bytes = t.b.cast(t.b.cast(x, "i1"), "i8")
    return t.b.cast(t.b.reduce(kind, as_bytes, dims_of(x, dim), keepdim), "i1")


@rule(A.softmax.int, A._softmax.default, A.log_softmax.int, A._log_softmax.default)
def softmax(t: Translator, x: Value, dim: int, *_: Any, **__: Any) -> Value:
    x = t.value(x, t.out.dtype)
    return t.b.softmax(x, dim % x.rank, "log" in str(t.node.target)) if x.rank else t.b.softmax(t.b.reshape(x, [1]), 0)


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
    dims = dims_of(x, dim)
    highest = t.b.unary("stop_gradient", t.b.reduce("max", x, dims, True))
    finite = t.b.compare("lt", t.b.unary("abs", highest), t.b.like(math.inf, x))
    highest = t.b.select(finite, highest, t.b.like(0, x))
    logarithm = t.b.unary("log", t.b.reduce("sum", t.b.unary("exp", t.b.binary("sub", x, highest)), dims, True))
    result = t.b.binary("add", logarithm, highest)
    return result if keepdim else t.b.reshape(result, t.out.shape)


@rule(A.linalg_vector_norm.default)
def vector_norm(t: Translator, x: Value, ord: float = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
    x = t.value(x, t.out.dtype)
    dims = dims_of(x, dim)
    if ord == 1:
        return t.b.reduce("sum", t.b.unary("abs", x), dims, keepdim)
    if ord == math.inf:
        return t.b.reduce("max", t.b.unary("abs", x), dims, keepdim)
    if ord != 2:
        raise Unsupported(f"a norm of order {ord}: expected 1, 2 or infinity")
    return _root(t, t.b.reduce("sum", t.b.binary("mul", x, x), dims, keepdim))


@rule(A.cumsum.default)
def cumsum(t: Translator, x: Value, dim: int, dtype: Any = None) -> Value:
    """The product with a triangle of ones."""
    x = t.value(x, t.out.dtype)
    if not x.rank:
        return x
    dim %= x.rank
    if x.dtype.startswith("i"):
        return _cumsum_of_integers(t, x, dim)
    order = [i for i in range(x.rank) if i != dim] + [dim]
    moved = t.b.transpose(x, order)
    n = x.shape[dim]
    ones = t.value(torch.ones(n, n, dtype=torch.bool).triu())
    rows = t.b.reshape(moved, [max(x.type.elements // n, 1), n])
    sums = t.b.reshape(t.b.matmul(rows, t.b.cast(ones, x.dtype)), moved.shape)
    return t.b.transpose(sums, [order.index(i) for i in range(x.rank)])


def _cumsum_of_integers(t: Translator, x: Value, dim: int) -> Value:
    n = x.shape[dim]
    kept = torch.ones(n, n, dtype=torch.bool).tril()  # [result, summand]
    spread = t.b.reshape(x, [*x.shape[:dim], 1, *x.shape[dim:]])
    mask = t.b.reshape(t.value(kept), [n, n, *[1] * (x.rank - dim - 1)])
    return t.b.reduce("sum", t.b.select(mask, spread, t.b.like(0, x)), [dim + 1])


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


@rule(A.topk.default)
def topk(t: Translator, x: Value, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Value, Value]:
    """The maximum k times, each time without those before; of many, of the smallest and of integers, sorted."""
    if x.rank == 0:
        return x, t.b.splat(0, (), "i64")
    dim %= x.rank
    if k > 8 or not largest or x.dtype.startswith("i"):
        values, indices = t.b.sort(x, dim, largest)
        return t.b.slice_dim(values, dim, 0, k), t.b.cast(t.b.slice_dim(indices, dim, 0, k), "i64")
    rest, free, values, indices = t.b.unary("stop_gradient", x), t.b.splat(1, x.shape, "i32"), [], []
    places, lowest = t.b.iota(dim, x.shape, "i32"), t.b.like(-math.inf, x)
    for _ in range(k):
        index = t.b.argmax(rest, dim, True)
        if indices:  # where nothing larger is left, any that is free
            ended = t.b.compare("eq", t.b.gather(rest, index, dim), lowest)
            index = t.b.select(ended, t.b.argmax(free, dim, True), index)
        values.append(t.b.gather(x, index, dim))
        indices.append(index)
        taken = t.b.compare("eq", places, index)
        rest, free = t.b.select(taken, lowest, rest), t.b.select(taken, t.b.like(0, free), free)
    return t.b.concat(values, dim), t.b.cast(t.b.concat(indices, dim), "i64")
