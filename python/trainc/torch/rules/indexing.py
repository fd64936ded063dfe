"""Elements by computed indices."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from ... import dimensions, functions
from ...dimensions import rows_of
from ...emit import Value, broadcast_shape
from ..translate import TORCH_DTYPES, Translator, Unsupported, rule, unrepeated
from .reductions import as_row

A = torch.ops.aten


def _positive(t: Translator, index: Value, size: int) -> Value:
    """PyTorch counts negative indices from the end."""
    below = t.b.compare("lt", index, t.b.like(0, index))
    return t.b.select(below, t.b.binary("add", index, t.b.like(size, index)), index)


@rule(A.gather.default)
def gather(t: Translator, x: Value, dim: int, index: Any, sparse_grad: bool = False) -> Value:
    index = t.value(index)
    if x.rank == 0:
        return t.b.reshape(x, index.shape)
    dim %= x.rank
    # Along other dimensions the index may be smaller.
    sizes = [n if i == dim else m for i, (n, m) in enumerate(zip(x.shape, index.shape))]
    return t.b.gather(t.b.slice(x, [0] * x.rank, sizes), index, dim)


@rule(A.index_select.default)
@as_row
def index_select(t: Translator, x: Value, dim: int, index: Any) -> Value:
    index = t.value(index)
    return rows_of(t.b, x, dim % x.rank, t.b.reshape(index, [index.type.elements]))  # one index may have no dimension


def _joined(t: Translator, x: Value, indices: Sequence[Any]) -> tuple[Value, int, Value]:
    """Of x[..., i, j, ...] with integer tensors in neighbouring dimensions: x with these as one, which that is, and the index into it."""
    places = [i for i, v in enumerate(indices) if v is not None]
    given = [t.value(indices[i]) for i in places]
    if any(v.dtype == "i1" for v in given):
        raise Unsupported("an index by a mask, whose result's size depends on data: use torch.where")
    if math.prod(x.shape) >= 2**31:
        raise Unsupported("an index into 2^31 elements or more")
    shape = broadcast_shape(*(v.shape for v in given))
    joined = None
    for place, v in zip(places, given):
        v = _positive(t, t.b.cast(v, "i64"), x.shape[place])
        joined = v if joined is None else t.b.binary("add", t.b.binary("mul", joined, t.b.like(x.shape[place], v)), v)
    joined = t.b.broadcast(joined, shape)
    first, last = places[0], places[-1]
    return t.b.reshape(x, [*x.shape[:first], math.prod(x.shape[first:last + 1]), *x.shape[last + 1:]]), first, joined


def _in_front(x: Value, indices: Sequence[Any]) -> list[int] | None:
    """Of x[i, :, j, ...] the order of dimensions with which the indices are in front, as in the result; None if they are neighbours."""
    places = [i for i, v in enumerate(indices) if v is not None]
    if places[-1] - places[0] < len(places):
        return None
    return places + [i for i in range(x.rank) if i not in places]


@rule(A.index.Tensor)
def index(t: Translator, x: Value, indices: Sequence[Any]) -> Value:
    if order := _in_front(x, indices):
        x, indices = t.b.transpose(x, order), [v for v in indices if v is not None]
    return _along_ranges(t, x, indices) or rows_of(t.b, *_joined(t, x, indices))


def _range_dim(index: Any, size: int) -> int | None:
    """The dimension, from the end, along which a known index is 0, 1, ..., size - 1; None of any other."""
    if not isinstance(index, torch.Tensor) or index.dtype == torch.bool or size == 1:
        return None
    once = unrepeated(index)
    if once.numel() != size or size not in once.shape or not torch.equal(once.reshape(-1), torch.arange(size, dtype=index.dtype)):
        return None
    return once.shape.index(size) - index.dim()


def _along_ranges(t: Translator, x: Value, indices: Sequence[Any]) -> Value | None:
    """x[i, j, k] where all but one are ranges along dimensions of their own, along which elements stay where they are, as in
    x[arange(n), last]; None where there is nothing of this."""
    given = [v for v in indices if v is not None]
    dims = [_range_dim(v, n) for v, n in zip(given, x.shape)]
    place_of = {d: place for place, d in enumerate(dims) if d is not None}
    others = [place for place, d in enumerate(dims) if d is None]
    if indices[0] is None or not place_of or len(others) > 1 or len(place_of) + len(others) < len(given):
        return None
    shape, rest = broadcast_shape(*(tuple(v.shape) for v in given)), x.shape[len(given):]
    ranged = sorted(place_of)
    free = [d for d in range(-len(shape), 0) if d not in place_of]
    x = t.b.transpose(x, [*(place_of[d] for d in ranged), *others, *range(len(given), x.rank)])
    if not others:
        spread = [shape[d] if d in place_of else 1 for d in range(-len(shape), 0)]
        return t.b.broadcast(t.b.reshape(x, [*spread, *rest]), [*shape, *rest])
    lead, count = [shape[d] for d in ranged], math.prod(shape[d] for d in free)
    index = t.value(given[others[0]])
    if index.dtype == "i1" or (rest and count > 1):  # many rows are better taken whole
        return None
    index = t.b.broadcast(_positive(t, t.b.cast(index, "i64"), x.shape[len(lead)]), shape)
    order = [len(shape) + d for d in ranged + free]
    index = t.b.reshape(t.b.transpose(index, order), [*lead, count, *[1] * len(rest)])
    taken = t.b.gather(x, t.b.broadcast(index, [*lead, count, *rest]), len(lead))
    taken = t.b.reshape(taken, [*lead, *(shape[d] for d in free), *rest])
    return t.b.transpose(taken, [*(order.index(i) for i in range(len(shape))), *range(len(shape), taken.rank)])


@rule(A.index_put.default)
def index_put(t: Translator, x: Any, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Value:
    """x with x[..., i, j, ...] = values, of equal indices the last one, or += values."""
    x, values = t.value(x), t.value(values)
    if any(v is not None and t.value(v).dtype == "i1" for v in indices):
        return _put_by_mask(t, x, indices, values, accumulate)
    if order := _in_front(x, indices):
        moved = index_put(t, t.b.transpose(x, order), [v for v in indices if v is not None], values, accumulate)
        return t.b.transpose(moved, sorted(range(x.rank), key=order.__getitem__))
    flat, dim, joined = _joined(t, x, indices)
    # The indexed dimension comes first, values are [indices, rest].
    order = [dim, *(i for i in range(flat.rank) if i != dim)]
    moved = t.b.transpose(flat, order)
    count, rest = joined.type.elements, moved.shape[1:]
    values = t.b.broadcast(values, [*flat.shape[:dim], *joined.shape, *flat.shape[dim + 1:]])
    k = joined.rank
    values = t.b.transpose(values, [*range(dim, dim + k), *range(dim), *range(dim + k, values.rank)])
    values, joined = t.b.reshape(values, [count, *rest]), t.b.reshape(joined, [count])
    if accumulate:
        spread = t.b.broadcast(t.b.reshape(joined, [count, *[1] * len(rest)]), values.shape)
        moved = t.b.binary("add", moved, t.b.scatter_add(spread, values, 0, moved.shape[0]))
    else:
        last = _last(t, joined, 0, moved.shape[0])
        rows = rows_of(t.b, values, 0, t.b.binary("max", last, t.b.like(0, last)))
        written = t.b.compare("ge", last, t.b.like(0, last))
        moved = t.b.select(t.b.reshape(written, [moved.shape[0], *[1] * len(rest)]), rows, moved)
    back = sorted(range(flat.rank), key=order.__getitem__)
    return t.b.reshape(t.b.transpose(moved, back), x.shape)


def _put_by_mask(t: Translator, x: Value, indices: Sequence[Any], values: Value, accumulate: bool) -> Value:
    """x with x[..., mask, ...] = values, the same wherever the mask is true, or += values."""
    (place, mask), *others = [(i, t.value(v)) for i, v in enumerate(indices) if v is not None]
    if others:
        raise Unsupported("an assignment by a mask and other indices: use torch.where")
    behind = x.rank - place - mask.rank
    along = values.rank - behind - 1  # the dimension that counts what the mask selects
    if values.type.elements == 1:
        values = t.b.reshape(values, ())
    elif along >= 0 and values.shape[along] == 1:
        values = t.b.reshape(values, [*values.shape[:along], *[1] * mask.rank, *values.shape[along + 1:]])
    elif along >= 0:
        raise Unsupported("an assignment by a mask of elements that differ: use torch.where or masked_scatter")
    if accumulate:
        values = t.b.binary("add", x, values)
    return t.b.select(t.b.reshape(mask, [*mask.shape, *[1] * behind]), values, x)


@rule(A.masked_scatter.default)
def masked_scatter(t: Translator, x: Value, mask: Value, source: Value) -> Value:
    """x with source's elements, in order, where the mask is true."""
    shape = t.out.shape
    flat = t.b.cast(t.b.reshape(t.b.broadcast(mask, shape), [t.out.elements]), "i64")
    before = dimensions.cumsum(t.b, flat, 0)
    place = t.b.binary("max", t.b.binary("sub", before, t.b.like(1, before)), t.b.like(0, before))
    taken = t.b.reshape(rows_of(t.b, t.b.reshape(source, [source.type.elements]), 0, place), shape)
    return t.b.select(mask, taken, t.b.broadcast(x, shape))


def _chosen(t: Translator, index: Value, dim: int, size: int) -> Value:
    """Whether index k along `dim` is j, which has a dimension behind that."""
    apart = t.b.reshape(index, [*index.shape[:dim + 1], 1, *index.shape[dim + 1:]])
    places = t.b.iota(dim + 1, [size if i == dim + 1 else 1 for i in range(apart.rank)], index.dtype)
    return t.b.compare("eq", apart, places)


def _last(t: Translator, index: Value, dim: int, size: int) -> Value:
    """Of each place along `dim` the last index that names it, i32, or -1."""
    chosen = _chosen(t, index, dim, size)
    numbers = t.b.iota(dim, [n if i == dim else 1 for i, n in enumerate(chosen.shape)], "i32")
    return t.b.reduce("max", t.b.select(chosen, numbers, t.b.like(-1, numbers)), [dim])


def _within(t: Translator, x: Value, part: Value, value: float) -> Value:
    """`part` in x's shape, with `value` behind its ends."""
    return t.b.pad(part, [0] * x.rank, [n - m for n, m in zip(x.shape, part.shape)], value=value)


@rule(A.scatter.src, A.scatter.value)
@as_row
def scatter(t: Translator, x: Any, dim: int, index: Any, source: Any) -> Value:
    """x with source's elements where indices say, of equal ones the last."""
    x, index = t.value(x), t.value(index)
    dim %= x.rank
    last = _last(t, index, dim, x.shape[dim])
    written = _within(t, x, last, -1)
    if isinstance(source, int | float):
        values = t.b.like(source, x)
    else:
        source = t.b.slice(t.value(source), [0] * x.rank, index.shape)
        values = _within(t, x, t.b.gather(source, t.b.binary("max", last, t.b.like(0, last)), dim), 0)
    return t.b.select(t.b.compare("ge", written, t.b.like(0, written)), values, x)


@rule(A.scatter.reduce, A.scatter.value_reduce)
@as_row
def scatter_combined(t: Translator, x: Any, dim: int, index: Any, source: Any, *, reduce: str) -> Value:
    x, index = t.value(x), t.value(index)
    if isinstance(source, int | float):
        source = t.b.splat(source, index.shape, x.dtype)
    return scatter_reduce(t, x, dim, index, source, {"add": "sum", "multiply": "prod"}[reduce])


@rule(A.scatter_reduce.two)
@as_row
def scatter_reduce(t: Translator, x: Any, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True) -> Value:
    """The sum, product, mean or extremum of those of source's elements that an index sends to a place, and of x's there."""
    if reduce == "sum" and include_self:
        return scatter_add(t, x, dim, index, source)
    x, index, source = t.value(x), t.value(index), t.value(source)
    dim %= x.rank
    source = t.b.slice(source, [0] * x.rank, index.shape)
    chosen = _chosen(t, index, dim, x.shape[dim])
    spread = t.b.reshape(source, [*source.shape[:dim + 1], 1, *source.shape[dim + 1:]])
    dtype = TORCH_DTYPES[x.dtype]
    low, high = (torch.iinfo(dtype).min, torch.iinfo(dtype).max) if x.dtype.startswith("i") else (-math.inf, math.inf)
    neutral = {"sum": 0, "mean": 0, "prod": 1, "amax": low, "amin": high}[reduce]
    kind = {"mean": "sum", "amax": "max", "amin": "min"}.get(reduce, reduce)
    count = _within(t, x, t.b.reduce("sum", t.b.cast(chosen, "i32"), [dim]), 0)
    terms = t.b.select(chosen, spread, t.b.like(neutral, x))

    def reduced(own: Value) -> Value:
        part = t.b.slice(own, [0] * x.rank, [n if i == dim else m for i, (n, m) in enumerate(zip(x.shape, index.shape))])
        return t.b.reduce(kind, t.b.concat([t.b.reshape(part, [*part.shape[:dim], 1, *part.shape[dim:]]), terms], dim), [dim])

    own = x
    if not include_self:
        replaced = t.b.compare("gt", count, t.b.like(0, count))
        own = t.b.select(replaced, t.b.like(neutral, x), x)
        if reduce in ("amax", "amin") and not x.dtype.startswith("i"):  # in PyTorch's gradient an equal element of x has a share
            extreme = t.b.unary("stop_gradient", _within(t, x, reduced(own), neutral))
            equal = t.b.compare("eq", extreme, x)
            own = t.b.select(replaced, t.b.select(equal, extreme, t.b.like(neutral, x)), x)
    result = reduced(own)
    if reduce == "mean":
        total = t.b.slice(count, [0] * x.rank, result.shape)
        total = t.b.binary("add", total, t.b.like(1, total)) if include_self else t.b.binary("max", total, t.b.like(1, total))
        total = t.b.cast(total, x.dtype)
        result = functions.floored_quotient(t.b, result, total) if x.dtype.startswith("i") else t.b.binary("div", result, total)
    if result.shape == x.shape:
        return result
    inside = t.value(torch.zeros(x.shape, dtype=torch.bool).index_put(tuple(
        torch.arange(n).view([-1 if i == d else 1 for i in range(x.rank)]) for d, n in enumerate(result.shape)), torch.tensor(True)))
    return t.b.select(inside, _within(t, x, result, 0), x)


@rule(A.scatter_add.default)
@as_row
def scatter_add(t: Translator, x: Any, dim: int, index: Any, source: Any) -> Value:
    """x + the sums of source's elements by index."""
    x, index, source = t.value(x), t.value(index), t.value(source)
    dim %= x.rank
    source = t.b.slice(source, [0] * source.rank, index.shape)
    sums = t.b.scatter_add(index, source, dim, x.shape[dim])
    high = [0 if i == dim else n - m for i, (n, m) in enumerate(zip(x.shape, sums.shape))]
    return t.b.binary("add", x, t.b.pad(sums, [0] * x.rank, high))


@rule(A.index_add.default)
@as_row
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
    return dimensions.flip(t.b, x, dims)


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
@as_row
def unfold(t: Translator, x: Value, dim: int, size: int, step: int) -> Value:
    """Windows along a dimension: strided slices, one per element of a window, in a new last dimension."""
    dim %= x.rank
    count = (x.shape[dim] - size) // step + 1
    parts = [t.b.slice_dim(x, dim, i, count, step) for i in range(size)]
    return t.b.concat([t.b.reshape(p, [*p.shape, 1]) for p in parts], x.rank)


@rule(A.slice_scatter.default)
def slice_scatter(t: Translator, x: Any, source: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Value:
    x = t.value(x)
    if isinstance(source, torch.Tensor) and not source.numel():
        return x
    source, dim = t.value(source), dim % x.rank
    begin, stop, step = slice(start, end, step).indices(x.shape[dim])
    if step == 1:
        return _between(t, x, source, dim, begin, stop)
    n, count = x.shape[dim], source.shape[dim]

    def along(size: int) -> list[int]:
        return [size if i == dim else 0 for i in range(x.rank)]

    spread = t.b.pad(source, along(begin), along(n - 1 - begin - (count - 1) * step), along(step - 1))
    written = torch.zeros(n, dtype=torch.bool)
    written[begin:stop:step] = True
    return t.b.select(t.value(written.reshape([n if i == dim else 1 for i in range(x.rank)])), spread, x)


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
    if isinstance(source, torch.fx.Node) and offset is not None and source.meta["val"].storage_offset():
        raise Unsupported("as_strided of a view that does not begin where its memory does, from which the offset counts")
    if (offset or 0) + sum((n - 1) * s for n, s in zip(size, stride)) >= x.type.elements:
        raise Unsupported("as_strided of memory beyond the tensor")
    return torch.arange(x.type.elements).as_strided(size, stride, offset or 0)


@rule(A.as_strided.default)
def as_strided(t: Translator, x: Value, size: Sequence[int], stride: Sequence[int], offset: int | None = None) -> Value:
    places = _places(t, x, size, stride, offset)
    return t.b.reshape(rows_of(t.b, t.b.reshape(x, [x.type.elements]), 0, t.value(places.reshape(-1))), size)


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
    values = rows_of(t.b, t.b.reshape(source, [source.type.elements]), 0, t.value(index))
    return t.b.reshape(t.b.select(t.value(written), values, t.b.reshape(x, [x.type.elements])), x.shape)
