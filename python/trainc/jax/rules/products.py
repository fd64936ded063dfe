"""Products, convolutions and windows."""
from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import dimensions
from ...emit import FLOATS, Value, lowest
from ..translate import Translator, Unsupported, dtype_of, rule


@rule("dot_general")
def dot_general(t: Translator, a: Value, b: Value, *, dimension_numbers: Any, preferred_element_type: Any = None) -> Value:
    (contracted_a, contracted_b), (batch_a, batch_b) = dimension_numbers
    dtype = min((v for v in (t.out.dtype, a.dtype, b.dtype) if v in FLOATS), key=FLOATS.index, default=t.out.dtype)  # the widest
    if dtype != a.dtype or dtype != b.dtype:
        a, b = t.b.cast(a, dtype), t.b.cast(b, dtype)
    free_a = [d for d in range(a.rank) if d not in (*contracted_a, *batch_a)]
    free_b = [d for d in range(b.rank) if d not in (*contracted_b, *batch_b)]
    batch = [a.shape[d] for d in batch_a]
    rows, columns = [a.shape[d] for d in free_a], [b.shape[d] for d in free_b]
    inner = math.prod(a.shape[d] for d in contracted_a)
    m, n = math.prod(rows), math.prod(columns)
    left = t.b.transpose(a, [*batch_a, *free_a, *contracted_a])
    if dtype not in FLOATS:  # of integers there are no matrix products
        right = t.b.reshape(t.b.transpose(b, [*batch_b, *free_b, *contracted_b]), [*batch, 1, n, inner])
        products = t.b.binary("mul", t.b.reshape(left, [*batch, m, 1, inner]), right)
        return t.b.reshape(t.b.reduce("sum", products, [len(batch) + 2]), t.out.shape)
    if m == n == 1 and batch:  # a sum of products is not a matrix product
        right = t.b.transpose(b, [*batch_b, *free_b, *contracted_b])
        products = t.b.binary("mul", *(t.b.reshape(x, [*batch, inner]) for x in (left, right)))
        return t.b.reshape(t.b.reduce("sum", products, [len(batch)]), t.out.shape)
    if not batch and len(contracted_a) == 1:  # all of a's rows by one matrix
        left = t.b.reshape(left, [m, inner]) if len(rows) != 1 else left
    else:
        left = t.b.reshape(left, [*batch, m, inner])
    if len(free_b) == len(contracted_b) == 1:
        order = [*batch_b, *contracted_b, *free_b]
        right = t.b.transpose(b, order)
    else:
        right = t.b.reshape(t.b.transpose(b, [*batch_b, *contracted_b, *free_b]), [*batch, inner, n])
    # Right behind the product: where it is widened, it is not rounded before.
    return t.b.reshape(t.b.cast(dimensions.product(t.b, left, right), t.out.dtype), t.out.shape)


@rule("conv_general_dilated")
def convolution(t: Translator, x: Value, weight: Value, *, window_strides: Sequence[int], padding: Sequence[tuple[int, int]],
                lhs_dilation: Sequence[int], rhs_dilation: Sequence[int], dimension_numbers: Any, feature_group_count: int,
                batch_group_count: int, preferred_element_type: Any = None) -> Value:
    if batch_group_count != 1:
        raise Unsupported(f"a convolution with batch_group_count {batch_group_count}")
    if preferred_element_type is not None:
        x, weight = (t.b.cast(v, dtype_of(preferred_element_type)) for v in (x, weight))
    spec = dimension_numbers
    x, weight = t.b.transpose(x, spec.lhs_spec), t.b.transpose(weight, spec.rhs_spec)
    low, high = ([n for n, _ in padding], [n for _, n in padding])
    if any(n != 1 for n in lhs_dilation) or min(*low, *high, 0) < 0:  # what the convolution does not do by itself
        grown = [0, 0, *(max(0, n) for n in low)], [0, 0, *(max(0, n) for n in high)]
        x = t.b.pad(x, *grown, [0, 0, *(n - 1 for n in lhs_dilation)])
        begins = [0, 0, *(max(0, -n) for n in low)]
        ends = [0, 0, *(max(0, -n) for n in high)]
        x = t.b.slice(x, begins, [n - b - e for n, b, e in zip(x.shape, begins, ends)])
        low = high = [0] * len(padding)
    borders = [int(n) for pair in zip(low, high) for n in pair]
    result = dimensions.convolved(t.b, x, weight, None, list(window_strides), borders, list(rhs_dilation), feature_group_count)
    back = [0] * x.rank
    for i, d in enumerate(spec.out_spec):
        back[d] = i
    return t.b.transpose(result, back)


# Windows.

@rule("reduce_window_max", "reduce_window_min", "reduce_window_sum", wide=True)
def window(t: Translator, x: Value, *, window_dimensions: Sequence[int], window_strides: Sequence[int], padding: Sequence[tuple[int, int]],
           base_dilation: Sequence[int], window_dilation: Sequence[int]) -> Value:
    """Maxima have their gradient at the first of equal elements."""
    kind = t.equation.primitive.name.removeprefix("reduce_window_")
    space = [d for d in range(x.rank) if (window_dimensions[d], window_strides[d], tuple(padding[d])) != (1, 1, (0, 0))]
    is_plain = set(base_dilation) == set(window_dilation) == {1} and x.dtype in FLOATS
    if not is_plain or len(space) > 2 or any(max(padding[d]) >= window_dimensions[d] or min(padding[d]) < 0 for d in space):
        return _by_slices(t, kind, x, window_dimensions, window_strides, padding, base_dilation, window_dilation)
    others = [d for d in range(x.rank) if d not in space]
    order = [*others, *space]
    moved = t.b.transpose(x, order)
    sizes = [1] * (2 - len(space)) + [x.shape[d] for d in space]
    plane = t.b.reshape(moved, [math.prod(x.shape[d] for d in others), 1, *sizes])
    windows, strides = ([1] * (2 - len(space)) + [int(v[d]) for d in space] for v in (window_dimensions, window_strides))
    borders = [0, 0] * (2 - len(space)) + [int(n) for d in space for n in padding[d]]
    if kind == "sum":
        result = t.b.pool2d("avg_pool2d", plane, windows, strides, borders)[0]
        result = t.b.binary("mul", result, t.b.like(math.prod(windows), result))
    else:
        plane = t.b.unary("neg", plane) if kind == "min" else plane
        result = t.b.pool2d("max_pool2d", plane, windows, strides, borders)[0]
        result = t.b.unary("neg", result) if kind == "min" else result
    result = t.b.reshape(result, [t.out.shape[d] for d in order])
    return t.b.transpose(result, [order.index(d) for d in range(x.rank)])


def _by_slices(t: Translator, kind: str, x: Value, windows: Sequence[int], strides: Sequence[int], padding: Sequence[tuple[int, int]],
               base_dilation: Sequence[int], window_dilation: Sequence[int]) -> Value:
    """A slice for each place in the window."""
    if math.prod(windows) > 1000:
        raise Unsupported(f"windows of {math.prod(windows)} elements: expected 1000 at most, or two dimensions without dilation")
    neutral = {"sum": 0.0, "max": lowest(x.dtype), "min": -lowest(x.dtype) - (x.dtype not in FLOATS)}[kind]
    low, high = ([max(0, n) for n in side] for side in zip(*padding))
    x = t.b.pad(x, low, high, [n - 1 for n in base_dilation], neutral)
    cut = [max(0, -n) for n, _ in padding]
    slices = [t.b.slice(x, [c + i * n for c, i, n in zip(cut, at, window_dilation)], t.out.shape, strides) for at in np.ndindex(*windows)]
    if kind == "sum":
        return functools.reduce(functools.partial(t.b.binary, "add"), slices)
    stacked = t.b.concat([t.b.reshape(v, [1, *v.shape]) for v in slices], 0)
    first = dimensions.argument(t.b, stacked, 0, kind == "max", True)
    return t.b.reshape(t.b.gather(stacked, first, 0), t.out.shape)
