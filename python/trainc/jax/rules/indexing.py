"""Gathers and scatters: by rows of a matrix, whose number is made of all indices."""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from ...dimensions import rows_of
from ...emit import FLOATS, Value, lowest
from ..translate import Translator, Unsupported, is_known, rule


def _mode(mode: Any) -> str:
    """"clip", or "fill": what is outside is filled, or dropped."""
    name = str(getattr(mode, "name", mode)).rsplit(".", 1)[-1].lower()
    return {"clip": "clip", "fill_or_drop": "fill", "promise_in_bounds": "clip"}.get(name) or _refused(name)


def _refused(name: str) -> str:
    raise Unsupported(f"the mode {name} of an index: expected clip, fill or drop")


class _Rows:
    """How an operand is a matrix of rows: of its dimensions `indexed` are looked up by a vector of the indices' last dimension, from where on
    `sizes` elements are taken, and `batch` go along with dimensions of the indices. The others, `window`, are in the row. `of` is the shape of
    the indices, `inner` are the dimensions of what each takes: those of which it takes a part, and the window."""

    def __init__(self, t: Translator, shape: Sequence[int], indices: Any, indexed: Sequence[int], batch: Sequence[int],
                 batch_of_indices: Sequence[int], sizes: Mapping[int, int]):
        self.t, self.shape, self.places = t, tuple(shape), t.value(indices)
        if self.places.dtype != "i64":
            self.places = t.value(self.places, "i32")
        self.indexed, self.batch = list(indexed), list(batch)
        parts = [d for d in sizes if sizes[d] != (1 if d in indexed else shape[d])]
        looked = [*indexed, *(d for d in parts if d not in indexed)]
        self.window = [d for d in range(len(shape)) if d not in (*looked, *batch)]
        self.order = [*self.batch, *looked, *self.window]
        self.inner = [*parts, *self.window]
        self.count = math.prod(shape[d] for d in (*batch, *looked))
        self.width = math.prod(shape[d] for d in self.window)
        self.of = self.places.shape[:-1]
        b, dtype, taken = t.b, "i32" if math.prod(shape) < 1 << 31 else "i64", [sizes[d] for d in parts]
        row, self.inside = b.splat(0, (), dtype), None
        self.all = (*self.of, *taken)
        for d, e in zip(batch, batch_of_indices):
            row = b.binary("add", b.binary("mul", row, b.splat(shape[d], (), dtype)), b.iota(e, self.all, dtype))
        for i, d in enumerate(looked):
            index = b.splat(0, (), dtype)
            if d in indexed:  # in the type of the indices, as some may not be numbers of i32
                zero, last = (b.splat(n, (), self.places.dtype) for n in (0, shape[d] - sizes.get(d, 1)))
                index = b.reshape(b.slice_dim(self.places, self.places.rank - 1, i, 1), [*self.of, *[1] * len(parts)])
                is_inside = b.binary("and", b.compare("ge", index, zero), b.compare("le", index, last))
                self.inside = is_inside if self.inside is None else b.binary("and", self.inside, is_inside)
                index = b.cast(b.binary("min", b.binary("max", index, zero), last), dtype)
            if d in parts:
                index = b.binary("add", index, b.iota(len(self.of) + parts.index(d), self.all, dtype))
            row = b.binary("add", b.binary("mul", row, b.splat(shape[d], (), dtype)), index)
            self.index = index
        self.row = b.broadcast(row, self.all)

    def matrix(self, x: Value) -> Value:
        return self.t.b.reshape(self.t.b.transpose(x, self.order), [self.count, self.width])

    def back(self, matrix: Value) -> Value:
        x = self.t.b.reshape(matrix, [self.shape[d] for d in self.order])
        return self.t.b.transpose(x, [self.order.index(d) for d in range(len(self.shape))])

    def inside_in(self, *shape: int) -> Value:
        """Whether each row is inside, in this shape."""
        return self.t.b.reshape(self.t.b.broadcast(self.inside, self.all), shape)


@rule("gather")
def gather(t: Translator, x: Value, indices: Any, *, dimension_numbers: Any, slice_sizes: Sequence[int], mode: Any, unique_indices: bool,
           fill_value: Any = None) -> Value:
    n = dimension_numbers
    batch, indexed = list(n.operand_batching_dims), list(n.start_index_map)
    window = [d for d in range(x.rank) if d not in (*n.collapsed_slice_dims, *batch)]
    if not indexed and not batch and tuple(slice_sizes) == x.shape == t.out.shape:  # x[...]
        return x
    sizes = {d: slice_sizes[d] for d in range(x.rank) if d not in batch}
    is_inside = _is_inside(indices, x, indexed, sizes)
    if is_inside and np.asarray(indices).ndim == 1 and not batch:  # one place
        begins = dict(zip(indexed, np.asarray(indices).tolist()))
        return t.b.reshape(t.b.slice(x, [begins.get(d, 0) for d in range(x.rank)], slice_sizes), t.out.shape)
    rows = _Rows(t, x.shape, indices, indexed, batch, n.start_indices_batching_dims, sizes)
    if len(indexed) == 1 and rows.width == 1 and rows.of == rows.all and list(n.start_indices_batching_dims) == list(range(len(batch))):
        given = t.b.cast(x, "i8") if x.dtype == "i1" else x
        outer = [x.shape[d] for d in batch]
        places = t.b.reshape(rows.index, [*outer, math.prod(rows.of) // math.prod(outer)])
        taken = t.b.gather(t.b.reshape(t.b.transpose(given, rows.order), [*outer, x.shape[indexed[0]]]), places, len(batch))
        taken = t.b.cast(t.b.reshape(taken, [*rows.of, 1]), x.dtype)
    else:
        taken = rows_of(t.b, rows.matrix(x), 0, rows.row)
    if _mode(mode) == "fill" and not is_inside and indexed:
        filler = _filler(fill_value, t.equation.outvars[0].aval.dtype)
        taken = t.b.select(rows.inside_in(*rows.all, 1), taken, t.b.splat(filler, (), x.dtype))
    # Dimensions of the indices, then of what each takes in the operand's order, with those of size 1 that were looked up.
    k = len(rows.of)
    taken = t.b.reshape(taken, [*rows.of, *(sizes[d] for d in rows.inner)])
    taken = t.b.transpose(taken, [*range(k), *(k + i for i in np.argsort(rows.inner).tolist())])
    taken = t.b.reshape(taken, [*rows.of, *(sizes[d] for d in window)])
    offsets = list(n.offset_dims)
    others = [d for d in range(taken.rank) if d not in offsets]
    return t.b.transpose(taken, np.argsort([*others, *offsets]).tolist())


def _filler(value: Any, dtype: Any) -> Any:
    """JAX's own is NaN, the lowest number, or of types without a sign the largest."""
    if value is not None:
        return np.asarray(value).item()
    if jax.numpy.issubdtype(dtype, jax.numpy.floating):
        return math.nan
    return True if dtype == bool else np.iinfo(dtype).max if dtype.kind == "u" else np.iinfo(dtype).min


def _is_inside(indices: Any, x: Value, indexed: Sequence[int], sizes: Mapping[int, int]) -> bool:
    """Whether indices are known, and what they take inside."""
    if not is_known(indices):
        return False
    places = np.asarray(indices)
    return all(0 <= places[..., i].min() and places[..., i].max() <= x.shape[d] - sizes.get(d, 1) for i, d in enumerate(indexed))


# By what updates are combined with what is there.
KINDS = {"scatter-add": "add", "scatter-sub": "sub", "scatter-max": "max", "scatter-min": "min", "scatter-mul": "mul"}


@rule("scatter", *KINDS)
def scatter(t: Translator, x: Value, indices: Any, updates: Value, *, dimension_numbers: Any, mode: Any, unique_indices: bool,
            update_jaxpr: Any = None, update_consts: Any = ()) -> Value:
    """Sums, products or extrema; or of several updates of one place the last, as JAX's on CPUs."""
    if x.dtype == "i1":
        x, updates = t.b.cast(x, "i8"), t.b.cast(updates, "i8")
    n = dimension_numbers
    batch, indexed = list(n.operand_batching_dims), list(n.scatter_dims_to_operand_dims)
    window = [d for d in range(x.rank) if d not in (*n.inserted_window_dims, *batch)]
    offsets = list(n.update_window_dims)
    sizes = {d: 1 for d in n.inserted_window_dims} | {d: updates.shape[offsets[i]] for i, d in enumerate(window)}
    kind = KINDS.get(t.equation.primitive.name)
    if not kind and update_jaxpr is not None and update_jaxpr.outvars[0] is not update_jaxpr.invars[1]:
        raise Unsupported("a function of what is there, x.at[i].apply(f): expected x.at[i].set(f(x[i]))")
    if not indexed and not batch and updates.shape == x.shape:  # x[...]
        return t.b.binary(kind, x, updates) if kind else updates
    is_inside = _mode(mode) == "clip" or _is_inside(indices, x, indexed, sizes)
    if is_known(indices) and np.asarray(indices).size == len(indexed) and not batch and kind in (None, "add", "sub"):
        parts = [d for d in window if sizes[d] != (1 if d in indexed else x.shape[d])]
        if parts:
            return _box(t, x, np.asarray(indices).reshape(-1).tolist(), updates, indexed, sizes, offsets, is_inside)
    rows = _Rows(t, x.shape, indices, indexed, batch, n.scatter_indices_batching_dims, sizes)
    others = [d for d in range(updates.rank) if d not in offsets]
    values = t.b.transpose(updates, [*others, *offsets])
    k = len(rows.of)
    values = t.b.reshape(values, [*rows.of, *(sizes[d] for d in sorted(rows.inner))])
    values = t.b.transpose(values, [*range(k), *(k + sorted(rows.inner).index(d) for d in rows.inner)])
    count = rows.row.type.elements
    values, row, keep = t.b.reshape(values, [count, rows.width]), t.b.reshape(rows.row, [count, 1]), None
    if not is_inside and indexed:
        keep = rows.inside_in(count, 1)
    if kind in ("max", "min", "mul"):
        return _combined(t, x, rows, row, values, keep, kind)
    if kind:
        values = values if keep is None else t.b.select(keep, values, t.b.like(0, values))
        sums = t.b.scatter_add(t.b.broadcast(row, values.shape), values, 0, rows.count)
        return t.b.binary(kind, x, rows.back(sums))
    return _replaced(t, x, rows, row, values, keep, unique_indices)


def _is_of(t: Translator, rows: _Rows, row: Value, width: int) -> Value:
    """[rows, updates]: which update is of which row."""
    if row.shape[0] * rows.count * width > 1 << 26:
        raise Unsupported(f"{row.shape[0]} updates of {rows.count} rows that may be the same: say unique_indices=True, or add")
    return t.b.compare("eq", t.b.transpose(row, [1, 0]), t.b.iota(0, [rows.count, 1], row.dtype))


def _combined(t: Translator, x: Value, rows: _Rows, row: Value, values: Value, keep: Value | None, kind: str) -> Value:
    """Every row and all updates, of which those of other rows are neutral."""
    neutral = {"max": lowest(x.dtype), "min": -lowest(x.dtype) - (x.dtype not in FLOATS), "mul": 1}[kind]
    mine = _is_of(t, rows, row, values.shape[1])
    mine = mine if keep is None else t.b.binary("and", mine, t.b.transpose(keep, [1, 0]))
    mine = t.b.reshape(mine, [*mine.shape, 1])
    spread = t.b.select(mine, t.b.reshape(values, [1, *values.shape]), t.b.like(neutral, values))
    before = t.b.reshape(rows.matrix(x), [rows.count, 1, rows.width])
    return rows.back(t.b.reduce("prod" if kind == "mul" else kind, t.b.concat([before, spread], 1), [1]))


def _replaced(t: Translator, x: Value, rows: _Rows, row: Value, values: Value, keep: Value | None, unique: bool) -> Value:
    """The number of the last update of each row, which is looked up."""
    count = values.shape[0]
    number = t.b.binary("add", t.b.iota(0, [count, 1], "i32"), t.b.splat(1, (), "i32"))
    if keep is not None:
        number = t.b.select(keep, number, t.b.splat(0, (), "i32"))
    if not unique and count > 1:
        mine = _is_of(t, rows, row, 1)
        last = t.b.reduce("max", t.b.select(mine, t.b.transpose(number, [1, 0]), t.b.splat(0, (), "i32")), [1])
    else:
        last = t.b.reshape(t.b.scatter_add(row, number, 0, rows.count), [rows.count])
    is_updated = t.b.reshape(t.b.compare("gt", last, t.b.splat(0, (), "i32")), [rows.count, 1])
    at = t.b.binary("max", t.b.binary("sub", last, t.b.splat(1, (), "i32")), t.b.splat(0, (), "i32"))
    return rows.back(t.b.select(is_updated, rows_of(t.b, values, 0, at), rows.matrix(x)))


def _box(t: Translator, x: Value, places: Sequence[int], updates: Value, indexed: Sequence[int], sizes: Mapping[int, int], offsets: Sequence[int],
         is_kept: bool) -> Value:
    """One box of known place, as of x.at[1:3].set(y); one that is not inside is moved there if it is kept."""
    if not is_kept:
        return x
    begin = {d: min(max(place, 0), x.shape[d] - sizes[d]) for d, place in zip(indexed, places)}
    shape = [sizes[d] for d in range(x.rank)]
    low = [begin.get(d, 0) for d in range(x.rank)]
    high = [n - b - s for n, b, s in zip(x.shape, low, shape)]
    update = t.b.reshape(t.b.transpose(updates, [*(d for d in range(updates.rank) if d not in offsets), *offsets]), shape)
    if kind := KINDS.get(t.equation.primitive.name):
        return t.b.binary(kind, x, t.b.pad(update, low, high))
    return t.b.select(t.b.pad(t.b.splat(True, shape, "i1"), low, high), t.b.pad(update, low, high), x)
