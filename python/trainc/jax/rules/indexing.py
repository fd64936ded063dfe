"""Gathers and scatters: by rows of a matrix, whose number is made of all indices."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...emit import FLOATS, Value
from ..translate import Translator, Unsupported, is_known, rule


def _mode(mode: Any) -> str:
    """"clip", "fill" (what is outside is filled, or dropped) or "inside"."""
    name = str(getattr(mode, "name", mode)).rsplit(".", 1)[-1].lower()
    return {"clip": "clip", "fill_or_drop": "fill", "promise_in_bounds": "clip"}.get(name) or _refused(name)


def _refused(name: str) -> str:
    raise Unsupported(f"the mode {name} of an index: expected clip, fill or drop")


class _Rows:
    """How an operand is a matrix of rows: of its dimensions `indexed` are looked up by a vector of the indices' last dimension, and `batch`
    go along with dimensions of the indices. The others, `window`, are in the row."""

    def __init__(self, t: Translator, shape: Sequence[int], indices: Any, indexed: Sequence[int], batch: Sequence[int],
                 batch_of_indices: Sequence[int]):
        self.t, self.shape, self.places = t, tuple(shape), t.value(indices, "i32" if math.prod(shape) < 1 << 31 else "i64")
        self.indexed, self.batch = list(indexed), list(batch)
        self.window = [d for d in range(len(shape)) if d not in (*indexed, *batch)]
        self.order = [*self.batch, *self.indexed, *self.window]
        self.count = math.prod(shape[d] for d in (*batch, *indexed))
        self.width = math.prod(shape[d] for d in self.window)
        self.of = self.places.shape[:-1]
        b = t.b
        dtype = self.places.dtype
        row, self.inside = b.splat(0, (), dtype), None
        for d, e in zip(batch, batch_of_indices):
            row = b.binary("add", b.binary("mul", row, b.splat(shape[d], (), dtype)), b.iota(e, self.of, dtype))
        for i, d in enumerate(indexed):
            index = b.reshape(b.slice_dim(self.places, self.places.rank - 1, i, 1), self.of)
            zero, last = b.splat(0, (), dtype), b.splat(shape[d] - 1, (), dtype)
            is_inside = b.binary("and", b.compare("ge", index, zero), b.compare("le", index, last))
            self.inside = is_inside if self.inside is None else b.binary("and", self.inside, is_inside)
            index = b.binary("min", b.binary("max", index, zero), last)
            row = b.binary("add", b.binary("mul", row, b.splat(shape[d], (), dtype)), index)
            self.index = index
        self.row = b.broadcast(row, self.of)

    def matrix(self, x: Value) -> Value:
        return self.t.b.reshape(self.t.b.transpose(x, self.order), [self.count, self.width])

    def back(self, matrix: Value) -> Value:
        x = self.t.b.reshape(matrix, [self.shape[d] for d in self.order])
        return self.t.b.transpose(x, [self.order.index(d) for d in range(len(self.shape))])


@rule("gather")
def gather(t: Translator, x: Value, indices: Any, *, dimension_numbers: Any, slice_sizes: Sequence[int], mode: Any, unique_indices: bool,
           fill_value: Any = None) -> Value:
    n = dimension_numbers
    batch, indexed = list(n.operand_batching_dims), list(n.start_index_map)
    window = [d for d in range(x.rank) if d not in (*n.collapsed_slice_dims, *batch)]
    if not indexed and not batch and tuple(slice_sizes) == x.shape == t.out.shape:  # x[...]
        return x
    partial = [d for d in range(x.rank) if d not in batch and slice_sizes[d] != (1 if d in indexed else x.shape[d])]
    if partial:
        return _windows(t, x, indices, dimension_numbers, slice_sizes, mode, fill_value)
    if is_known(indices) and np.asarray(indices).ndim == 1 and not batch and _is_inside(t, indices, x, indexed):  # one place
        begins = dict(zip(indexed, np.asarray(indices).tolist()))
        return t.b.reshape(t.b.slice(x, [begins.get(d, 0) for d in range(x.rank)], slice_sizes), t.out.shape)
    rows = _Rows(t, x.shape, indices, indexed, batch, n.start_indices_batching_dims)
    is_mask = x.dtype == "i1"
    given = t.b.cast(x, "i8") if is_mask else x
    if len(indexed) == 1 and rows.width == 1 and list(n.start_indices_batching_dims) == list(range(len(batch))):
        sizes = [x.shape[d] for d in batch]
        places = t.b.reshape(rows.index, [*sizes, math.prod(rows.of) // math.prod(sizes)])
        taken = t.b.gather(t.b.reshape(t.b.transpose(given, rows.order), [*sizes, x.shape[indexed[0]]]), places, len(batch))
        taken = t.b.reshape(taken, [*rows.of, 1])
    else:
        taken = t.b.embedding(rows.matrix(given), rows.row)
    taken = t.b.cast(taken, "i1") if is_mask else taken
    if _mode(mode) == "fill" and not _is_inside(t, indices, x, indexed):
        inside = t.b.reshape(rows.inside, [*rows.of, 1])
        taken = t.b.select(inside, taken, t.b.splat(_filler(fill_value, x.dtype), (), x.dtype))
    # Dimensions of the indices, then of the window with those of size 1 that were looked up.
    sizes = [1 if d in indexed else x.shape[d] for d in window]
    taken = t.b.reshape(taken, [*rows.of, *sizes])
    offsets = list(n.offset_dims)
    others = [d for d in range(taken.rank) if d not in offsets]
    order = [0] * taken.rank
    for i, d in enumerate([*others, *offsets]):
        order[d] = i
    return t.b.transpose(taken, order)


def _windows(t: Translator, x: Value, indices: Any, n: Any, slice_sizes: Sequence[int], mode: Any, fill_value: Any) -> Value:
    """A slice whose begin is looked up: of one place alone."""
    places = t.value(indices, "i32")
    if math.prod(places.shape[:-1]) != 1 or n.operand_batching_dims or len(n.start_index_map) != 1 or _mode(mode) == "fill" and not is_known(indices):
        raise Unsupported("slices of several places: expected one begin for each, or rows")
    d = n.start_index_map[0]
    begin = t.b.reshape(places, [])
    last = t.b.splat(x.shape[d] - slice_sizes[d], (), "i32")
    begin = t.b.binary("min", t.b.binary("max", begin, t.b.splat(0, (), "i32")), last)
    shape = [slice_sizes[d] if i == d else 1 for i in range(x.rank)]
    at = t.b.broadcast(t.b.binary("add", begin, t.b.iota(d, shape, "i32")), [slice_sizes[d] if i == d else s for i, s in enumerate(x.shape)])
    taken = t.b.gather(x, at, d)
    for i, size in enumerate(slice_sizes):
        if i != d and size != x.shape[i]:
            taken = t.b.slice_dim(taken, i, 0, size)
    return t.b.reshape(taken, t.out.shape)


def _filler(value: Any, dtype: str) -> Any:
    if value is not None:
        return np.asarray(value).item()
    if dtype in FLOATS:
        return math.nan
    return True if dtype == "i1" else -(1 << (int(dtype[1:]) - 1))


def _is_inside(t: Translator, indices: Any, x: Value, indexed: Sequence[int]) -> bool:
    """Whether indices are known, and inside."""
    if not is_known(indices):
        return False
    places = np.asarray(indices)
    return all(0 <= places[..., i].min() and places[..., i].max() < x.shape[d] for i, d in enumerate(indexed))


COMBINED = {"scatter-max": ("max", -math.inf), "scatter-min": ("min", math.inf), "scatter-mul": ("prod", 1)}


@rule("scatter-add", "scatter", *COMBINED)
def scatter(t: Translator, x: Value, indices: Any, updates: Value, *, dimension_numbers: Any, mode: Any, unique_indices: bool,
            update_jaxpr: Any = None, update_consts: Any = ()) -> Value:
    """Sums, products or extrema; or of several updates of one place the last, as JAX's on CPUs."""
    n = dimension_numbers
    batch, indexed = list(n.operand_batching_dims), list(n.scatter_dims_to_operand_dims)
    window = [d for d in range(x.rank) if d not in (*n.inserted_window_dims, *batch)]
    offsets = list(n.update_window_dims)
    sizes = {d: updates.shape[offsets[i]] for i, d in enumerate(window)}
    if not indexed and not batch and updates.shape == x.shape:  # x[...]
        name = t.equation.primitive.name
        return {"scatter": lambda: updates, "scatter-add": lambda: t.b.binary("add", x, updates)}.get(name, lambda: _refused(name))()
    if any(sizes[d] != (1 if d in indexed else x.shape[d]) for d in window):
        if _is_one_box(t, indices):
            return _box(t, x, indices, updates, indexed, window, offsets)
        raise Unsupported("updates of parts of several rows: expected whole rows")
    rows = _Rows(t, x.shape, indices, indexed, batch, n.scatter_indices_batching_dims)
    others = [d for d in range(updates.rank) if d not in offsets]
    values = t.b.reshape(t.b.transpose(updates, [*others, *offsets]), [math.prod(rows.of), rows.width])
    row, keep = t.b.reshape(rows.row, [math.prod(rows.of), 1]), None
    if not (_mode(mode) == "clip" or _is_inside(t, indices, x, indexed)):
        keep = t.b.reshape(rows.inside, [math.prod(rows.of), 1])
    name = t.equation.primitive.name
    if name in COMBINED:
        return _combined(t, x, rows, row, values, keep, *COMBINED[name])
    if name != "scatter":
        values = values if keep is None else t.b.select(keep, values, t.b.like(0, values))
        sums = t.b.scatter_add(t.b.broadcast(row, values.shape), values, 0, rows.count)
        return t.b.binary("add", x, rows.back(sums))
    return _replaced(t, x, rows, row, values, keep, unique_indices)


def _is_of(t: Translator, rows: _Rows, row: Value, width: int) -> Value:
    """[rows, updates]: which update is of which row."""
    if row.shape[0] * rows.count * width > 1 << 26:
        raise Unsupported(f"{row.shape[0]} updates of {rows.count} rows that may be the same: say unique_indices=True, or add")
    return t.b.compare("eq", t.b.transpose(row, [1, 0]), t.b.iota(0, [rows.count, 1], row.dtype))


def _combined(t: Translator, x: Value, rows: _Rows, row: Value, values: Value, keep: Value | None, kind: str, neutral: float) -> Value:
    """Every row with all updates, of which those of other rows are neutral."""
    if x.dtype not in FLOATS:
        raise Unsupported("products and extrema of integers by index")
    mine = _is_of(t, rows, row, values.shape[1])
    mine = mine if keep is None else t.b.binary("and", mine, t.b.transpose(keep, [1, 0]))
    mine = t.b.reshape(mine, [*mine.shape, 1])
    spread = t.b.select(mine, t.b.reshape(values, [1, *values.shape]), t.b.like(neutral, values))
    result = rows.back(t.b.reduce(kind, spread, [1]))
    return t.b.binary("mul" if kind == "prod" else kind, x, result)


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
    return rows.back(t.b.select(is_updated, t.b.embedding(values, at), rows.matrix(x)))


def _is_one_box(t: Translator, indices: Any) -> bool:
    return is_known(indices) and np.asarray(indices).size == np.asarray(indices).shape[-1]


def _box(t: Translator, x: Value, indices: Any, updates: Value, indexed: Sequence[int], window: Sequence[int], offsets: Sequence[int]) -> Value:
    """One box of known place, as of x.at[1:3].set(y)."""
    begin = dict(zip(indexed, np.asarray(indices).reshape(-1).tolist()))
    sizes = [updates.shape[offsets[window.index(d)]] if d in window else 1 for d in range(x.rank)]
    low = [begin.get(d, 0) for d in range(x.rank)]
    high = [n - b - s for n, b, s in zip(x.shape, low, sizes)]
    if min(*low, *high, 0) < 0:
        return x
    update = t.b.reshape(t.b.transpose(updates, [*(d for d in range(updates.rank) if d not in offsets), *offsets]), sizes)
    name = t.equation.primitive.name
    if name in COMBINED:
        raise Unsupported("products and extrema with a box of elements")
    if name != "scatter":
        return t.b.binary("add", x, t.b.pad(update, low, high))
    return t.b.select(t.b.pad(t.b.splat(True, sizes, "i1"), low, high), t.b.pad(update, low, high), x)
