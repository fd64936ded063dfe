"""Shapes: what moves elements and computes nothing."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.sharding import NamedSharding

from ...dimensions import flip
from ...emit import Value
from ..translate import Translator, Unsupported, is_known, rule


@rule("reshape")
def reshape(t: Translator, x: Value, *, new_sizes: Sequence[int], dimensions: Any = None) -> Value:
    return t.b.reshape(x if dimensions is None else t.b.transpose(x, dimensions), new_sizes)


@rule("squeeze", "expand_dims")
def squeeze(t: Translator, x: Value, *, dimensions: Sequence[int]) -> Value:
    return t.b.reshape(x, t.out.shape)


@rule("broadcast_in_dim")
def broadcast_in_dim(t: Translator, x: Value, *, shape: Sequence[int], broadcast_dimensions: Sequence[int]) -> Value:
    inner = [1] * len(shape)
    for d, n in zip(broadcast_dimensions, x.shape):
        inner[d] = n
    return t.b.broadcast(t.b.reshape(x, inner), shape)


@rule("transpose")
def transpose(t: Translator, x: Value, *, permutation: Sequence[int]) -> Value:
    return t.b.transpose(x, permutation)


@rule("rev")
def reverse(t: Translator, x: Value, *, dimensions: Sequence[int]) -> Value:
    return flip(t.b, x, dimensions)


@rule("slice")
def slice_(t: Translator, x: Value, *, start_indices: Sequence[int], limit_indices: Sequence[int], strides: Sequence[int] | None) -> Value:
    return t.b.slice(x, start_indices, t.out.shape, strides or [1] * x.rank)


@rule("split")
def split(t: Translator, x: Value, *, sizes: Sequence[int], axis: int) -> list[Value]:
    begins = np.cumsum([0, *sizes]).tolist()
    return [t.b.slice_dim(x, axis, begin, int(size)) for begin, size in zip(begins, sizes)]


@rule("unstack")
def unstack(t: Translator, x: Value, *, axis: int) -> list[Value]:
    return [t.b.reshape(t.b.slice_dim(x, axis, i, 1), t.out.shape) for i in range(x.shape[axis])]


@rule("concatenate")
def concatenate(t: Translator, *parts: Any, dimension: int) -> Value:
    return t.b.concat([t.value(x) for x in parts if 0 not in x.shape], dimension)


@rule("tile")
def tile(t: Translator, x: Value, *, reps: Sequence[int]) -> Value:
    spread = t.b.reshape(x, [n for size in x.shape for n in (1, size)])
    return t.b.reshape(t.b.broadcast(spread, [n for rep, size in zip(reps, x.shape) for n in (rep, size)]), t.out.shape)


@rule("stack")
def stack(t: Translator, *parts: Value, axis: int) -> Value:
    return t.b.concat([t.b.reshape(x, [*x.shape[:axis], 1, *x.shape[axis:]]) for x in parts], axis)


@rule("pad")
def pad(t: Translator, x: Any, filler: Any, *, padding_config: Sequence[tuple[int, int, int]]) -> Value:
    """Borders below 0 cut off."""
    if 0 in x.shape:
        return t.b.broadcast(t.value(filler), t.out.shape)
    x = t.value(x)
    low, high, interior = (list(map(int, side)) for side in zip(*padding_config))
    grown = [max(0, n) for n in low], [max(0, n) for n in high]
    number = np.asarray(filler).item() if is_known(filler) else None
    if number is not None and (not isinstance(number, int) or int(float(number)) == number):  # borders are of f64
        x = t.b.pad(x, *grown, interior, float(number))
    else:
        inside = t.b.pad(t.b.splat(True, x.shape, "i1"), *grown, interior)
        x = t.b.select(inside, t.b.pad(x, *grown, interior), t.value(filler))
    return t.b.slice(x, [max(0, -n) for n in low], t.out.shape)


@rule("dynamic_slice")
def dynamic_slice(t: Translator, x: Value, *begins: Any, slice_sizes: Sequence[int]) -> Value:
    """A begin outside is the nearest one for which the slice is inside."""
    for d, (begin, size) in enumerate(zip(begins, slice_sizes)):
        if size == x.shape[d]:
            continue
        if is_known(begin):
            x = t.b.slice_dim(x, d, min(max(int(begin), 0), x.shape[d] - size), size)
            continue
        shape = [size if i == d else 1 for i in range(x.rank)]
        places = t.b.binary("add", _within(t, begin, x.shape[d] - size), t.b.iota(d, shape, "i32"))
        x = t.b.gather(x, t.b.broadcast(places, [size if i == d else n for i, n in enumerate(x.shape)]), d)
    return x


@rule("dynamic_update_slice")
def dynamic_update_slice(t: Translator, x: Value, update: Value, *begins: Any) -> Value:
    if all(map(is_known, begins)):
        low = [min(max(int(begin), 0), n - m) for begin, n, m in zip(begins, x.shape, update.shape)]
        high = [n - m - b for n, m, b in zip(x.shape, update.shape, low)]
        inside = t.b.pad(t.b.splat(True, update.shape, "i1"), low, high)
        return t.b.select(inside, t.b.pad(update, low, high), x)
    inside = t.b.splat(True, (), "i1")
    for d, begin in enumerate(begins):
        n, m = x.shape[d], update.shape[d]
        shape = [n if i == d else 1 for i in range(x.rank)]
        place = t.b.binary("sub", t.b.iota(d, shape, "i32"), _within(t, t.value(begin), n - m))
        here = t.b.binary("and", t.b.compare("ge", place, t.b.like(0, place)), t.b.compare("lt", place, t.b.like(m, place)))
        inside = t.b.binary("and", inside, here)
        place = t.b.binary("min", t.b.binary("max", place, t.b.like(0, place)), t.b.like(m - 1, place))
        update = t.b.gather(update, t.b.broadcast(place, [n if i == d else k for i, k in enumerate(update.shape)]), d)
    return t.b.select(inside, update, x)


def _within(t: Translator, begin: Value, last: int) -> Value:
    if begin.rank:
        raise Unsupported(f"a begin of shape {begin.shape}: expected a number")
    begin = begin if begin.dtype == "i64" else t.b.cast(begin, "i32")
    return t.b.cast(t.b.binary("min", t.b.binary("max", begin, t.b.like(0, begin)), t.b.like(last, begin)), "i32")


@rule("iota")
def iota(t: Translator, *, dtype: Any, shape: Sequence[int], dimension: int) -> Value:
    return t.b.iota(dimension, shape, t.out.dtype)


@rule("sharding_constraint")
def constrained(t: Translator, x: Any, *, sharding: Any, unconstrained_dims: Any, layout: Any = None, context_mesh: Any = None) -> Any:
    """Without ranks it says nothing."""
    if is_known(x) or not t.ranks.mesh or x.rank == 0:
        return x
    if unconstrained_dims:
        raise Unsupported(f"a constraint that leaves dimensions {', '.join(map(str, sorted(unconstrained_dims)))} open: expected axes or None")
    if not isinstance(sharding, NamedSharding):
        raise Unsupported(f"a constraint by {type(sharding).__name__}: expected a NamedSharding or a PartitionSpec")
    return t.b.constrain(x, t.ranks.checked(sharding.spec, x.rank, "a constraint"))


@rule("reshard")
def resharded(t: Translator, x: Any, *, dst_sharding: Any, concrete_mesh: Any = None) -> Any:
    return constrained(t, x, sharding=dst_sharding, unconstrained_dims=())
