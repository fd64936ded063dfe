"""Elements by computed indices."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from ...emit import Value, broadcast_shape
from ..translate import Translator, Unsupported, rule

A = torch.ops.aten


def _positive(t: Translator, index: Value, size: int) -> Value:
    """PyTorch counts negative indices from the end."""
    below = t.b.compare("lt", index, t.b.like(0, index))
    return t.b.select(below, t.b.binary("add", index, t.b.like(size, index)), index)


@rule(A.gather.default)
def gather(t: Translator, x: Value, dim: int, index: Any, sparse_grad: bool = False) -> Value:
    index = t.value(index)
    dim %= max(x.rank, 1)
    # Along other dimensions the index may be smaller.
    sizes = [n if i == dim else m for i, (n, m) in enumerate(zip(x.shape, index.shape))]
    return t.b.gather(t.b.slice(x, [0] * x.rank, sizes), index, dim)


@rule(A.index_select.default)
def index_select(t: Translator, x: Value, dim: int, index: Any) -> Value:
    dim %= x.rank
    return _rows(t, x, dim, t.value(index))


def _rows(t: Translator, x: Value, dim: int, index: Value) -> Value:
    """x with dimension `dim` replaced by the elements that `index`, of any shape, names."""
    order = [dim] + [i for i in range(x.rank) if i != dim]
    moved = t.b.transpose(x, order)
    rest = moved.shape[1:]
    if x.dtype.startswith("i"):
        flat = t.b.reshape(index, [index.type.elements, *[1] * len(rest)])
        taken = t.b.gather(moved, t.b.broadcast(flat, [index.type.elements, *rest]), 0)
    else:
        taken = t.b.embedding(t.b.reshape(moved, [moved.shape[0], math.prod(rest)]), index)
    taken = t.b.reshape(taken, [*index.shape, *rest])
    # The index's dimensions go where `dim` was.
    k = index.rank
    back = [k + i for i in range(dim)] + list(range(k)) + [k + i for i in range(dim, len(rest))]
    return t.b.transpose(taken, back)


@rule(A.index.Tensor)
def index(t: Translator, x: Value, indices: Sequence[Any]) -> Value:
    """x[..., i, j, ...] with integer tensors in neighbouring dimensions: one index into them joined."""
    places = [i for i, v in enumerate(indices) if v is not None]
    given = [t.value(indices[i]) for i in places]
    if any(v.dtype == "i1" for v in given):
        raise Unsupported("an index by a mask, whose result's size depends on data: use torch.where")
    if places != list(range(places[0], places[-1] + 1)):
        raise Unsupported("indices in dimensions that are not neighbours")
    if math.prod(x.shape) >= 2**31:
        raise Unsupported("an index into 2^31 elements or more")
    shape = broadcast_shape(*(v.shape for v in given))
    joined = None
    for place, v in zip(places, given):
        v = _positive(t, t.b.cast(v, "i64"), x.shape[place])
        joined = v if joined is None else t.b.binary("add", t.b.binary("mul", joined, t.b.like(x.shape[place], v)), v)
    joined = t.b.broadcast(joined, shape)
    first, last = places[0], places[-1]
    flat = t.b.reshape(x, [*x.shape[:first], math.prod(x.shape[first:last + 1]), *x.shape[last + 1:]])
    return _rows(t, flat, first, joined)


@rule(A.scatter_add.default)
def scatter_add(t: Translator, x: Any, dim: int, index: Any, source: Any) -> Value:
    """x + the sums of source's elements by index."""
    x, index, source = t.value(x), t.value(index), t.value(source)
    dim %= x.rank
    source = t.b.slice(source, [0] * source.rank, index.shape)
    sums = t.b.scatter_add(index, source, dim, x.shape[dim])
    high = [0 if i == dim else n - m for i, (n, m) in enumerate(zip(x.shape, sums.shape))]
    return t.b.binary("add", x, t.b.pad(sums, [0] * x.rank, high))


@rule(A.index_add.default)
def index_add(t: Translator, x: Any, dim: int, index: Any, source: Any, *, alpha: float = 1) -> Value:
    x, index, source = t.value(x), t.value(index), t.value(source)
    dim %= x.rank
    spread = t.b.reshape(index, [1] * dim + [index.type.elements] + [1] * (x.rank - dim - 1))
    if alpha != 1:
        source = t.b.binary("mul", source, t.b.like(alpha, source))
    return t.b.binary("add", x, t.b.scatter_add(t.b.broadcast(spread, source.shape), source, dim, x.shape[dim]))


@rule(A.one_hot.default)
def one_hot(t: Translator, x: Value, classes: int = -1) -> Value:
    size = t.out.shape[-1]
    equal = t.b.compare("eq", t.b.reshape(x, [*x.shape, 1]), t.b.cast(t.b.iota(0, (size,), "i64"), x.dtype))
    return t.b.cast(equal, "i64")


@rule(A.flip.default)
def flip(t: Translator, x: Value, dims: Sequence[int]) -> Value:
    for dim in dims:
        dim %= x.rank
        x = _rows(t, x, dim, t.value(torch.arange(x.shape[dim] - 1, -1, -1)))
    return x


@rule(A.roll.default)
def roll(t: Translator, x: Value, shifts: Sequence[int], dims: Sequence[int] = ()) -> Value:
    if not dims:
        return t.b.reshape(_rolled(t, t.b.reshape(x, [x.type.elements]), shifts[0], 0), x.shape)
    for shift, dim in zip(shifts, dims):
        x = _rolled(t, x, shift, dim % x.rank)
    return x


def _rolled(t: Translator, x: Value, shift: int, dim: int) -> Value:
    n = x.shape[dim]
    shift %= n
    if not shift:
        return x
    return t.b.concat([t.b.slice_dim(x, dim, n - shift, shift), t.b.slice_dim(x, dim, 0, n - shift)], dim)


@rule(A.unfold.default)
def unfold(t: Translator, x: Value, dim: int, size: int, step: int) -> Value:
    """Windows along a dimension: strided slices, one per element of a window, in a new last dimension."""
    dim %= x.rank
    count = (x.shape[dim] - size) // step + 1
    parts = [t.b.slice_dim(x, dim, i, count, step) for i in range(size)]
    return t.b.concat([t.b.reshape(p, [*p.shape, 1]) for p in parts], x.rank)


@rule(A.slice_scatter.default)
def slice_scatter(t: Translator, x: Any, source: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Value:
    x, source = t.value(x), t.value(source)
    dim %= x.rank
    begin, stop, step = slice(start, end, step).indices(x.shape[dim])
    if step != 1:
        raise Unsupported(f"an assignment to a slice of step {step}")
    return _between(t, x, source, dim, begin, stop)


@rule(A.select_scatter.default)
def select_scatter(t: Translator, x: Any, source: Any, dim: int, index: int) -> Value:
    x = t.value(x)
    dim %= x.rank
    index %= x.shape[dim]
    source = t.b.reshape(t.value(source), [1 if i == dim else n for i, n in enumerate(x.shape)])
    return _between(t, x, source, dim, index, index + 1)


def _between(t: Translator, x: Value, source: Value, dim: int, begin: int, end: int) -> Value:
    parts = [t.b.slice_dim(x, dim, 0, begin)] if begin else []
    parts.append(source)
    if end < x.shape[dim]:
        parts.append(t.b.slice_dim(x, dim, end, x.shape[dim] - end))
    return t.b.concat(parts, dim)


# Views by strides, of memory in row-major order, whose places are known.

def _places(t: Translator, x: Value, size: Sequence[int], stride: Sequence[int], offset: int | None) -> torch.Tensor:
    source = t.node.args[0]
    if isinstance(source, torch.fx.Node) and not source.meta["val"].is_contiguous():
        raise Unsupported("as_strided of memory that is not in row-major order")
    return torch.arange(x.type.elements).as_strided(size, stride, offset or 0)


@rule(A.as_strided.default)
def as_strided(t: Translator, x: Value, size: Sequence[int], stride: Sequence[int], offset: int | None = None) -> Value:
    places = _places(t, x, size, stride, offset)
    return t.b.reshape(_rows(t, t.b.reshape(x, [x.type.elements]), 0, t.value(places.reshape(-1))), size)


@rule(A.as_strided_scatter.default)
def as_strided_scatter(t: Translator, x: Value, source: Value, size: Sequence[int], stride: Sequence[int], offset: int | None = None) -> Value:
    """x with source at these places: where an element is one of them, it is taken by a constant index."""
    places = _places(t, x, size, stride, offset).reshape(-1)
    if len(places.unique()) < len(places):
        raise Unsupported("as_strided_scatter to places that overlap")
    index = torch.zeros(x.type.elements, dtype=torch.long)
    index[places] = torch.arange(len(places))
    written = torch.zeros(x.type.elements, dtype=torch.bool)
    written[places] = True
    values = _rows(t, t.b.reshape(source, [source.type.elements]), 0, t.value(index))
    return t.b.reshape(t.b.select(t.value(written), values, t.b.reshape(x, [x.type.elements])), x.shape)
