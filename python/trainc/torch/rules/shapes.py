"""Operations that move elements and compute nothing."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...emit import Value
from ..translate import TORCH_DTYPES, Translator, Unsupported, rule

A = torch.ops.aten


@rule(A.view.default, A.reshape.default, A._unsafe_view.default, A.unsqueeze.default, A.squeeze.dim, A.squeeze.dims,
      A.squeeze.default, A.flatten.using_ints, A.unflatten.int)
def reshape(t: Translator, x: Value, *_: Any) -> Value:
    return t.b.reshape(x, t.out.shape)


@rule(A.permute.default)
def permute(t: Translator, x: Value, dims: Sequence[int]) -> Value:
    return t.b.transpose(x, [d % x.rank for d in dims])


@rule(A.transpose.int)
def transpose(t: Translator, x: Value, a: int, b: int) -> Value:
    if not x.rank:
        return x
    order = list(range(x.rank))
    order[a % x.rank], order[b % x.rank] = b % x.rank, a % x.rank
    return t.b.transpose(x, order)


@rule(A.t.default)
def matrix_transpose(t: Translator, x: Value) -> Value:
    return transpose(t, x, 0, 1) if x.rank == 2 else x


@rule(A.expand.default, A.expand_as.default, A.broadcast_to.default)
def expand(t: Translator, x: Value, *_: Any, **__: Any) -> Value:
    return t.b.broadcast(x, t.out.shape)


@rule(A.slice.Tensor)
def slice_tensor(t: Translator, x: Value, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Value:
    dim %= x.rank
    begin, _, stride = slice(start, end, step).indices(x.shape[dim])
    return t.b.slice_dim(x, dim, begin, t.out.shape[dim], stride)


@rule(A.narrow.default)
def narrow(t: Translator, x: Value, dim: int, start: int, length: int) -> Value:
    return t.b.slice_dim(x, dim % x.rank, start % x.shape[dim], length)


@rule(A.select.int)
def select(t: Translator, x: Value, dim: int, index: int) -> Value:
    dim %= x.rank
    return t.b.reshape(t.b.slice_dim(x, dim, index % x.shape[dim], 1), t.out.shape)


@rule(A.diagonal.default)
def diagonal(t: Translator, x: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """Of rows one after another an element, then always the one below and to the right."""
    moved = t.b.transpose(x, _last_two(x, dim1, dim2))
    *outer, rows, columns = moved.shape
    flat = t.b.reshape(moved, [*outer, rows * columns])
    return t.b.slice_dim(flat, len(outer), offset if offset > 0 else -offset * columns, t.out.shape[-1], columns + 1)


@rule(A.diagonal_scatter.default)
def diagonal_scatter(t: Translator, x: Any, source: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """x with the elements of source, spread over the rows, where column - row is the offset."""
    x, source = t.value(x), t.value(source)
    order = _last_two(x, dim1, dim2)
    moved = t.b.transpose(x, order)
    rows, columns = moved.shape[-2:]
    outer, above = [0] * (source.rank - 1), max(-offset, 0)
    source = t.b.pad(source, [*outer, above], [*outer, rows - above - source.shape[-1]])
    difference = t.b.binary("sub", *(t.b.iota(i, (rows, columns), "i32") for i in (1, 0)))
    on = t.b.compare("eq", difference, t.b.splat(offset, (), "i32"))
    result = t.b.select(on, t.b.reshape(source, [*source.shape, 1]), moved)
    return t.b.transpose(result, [order.index(i) for i in range(x.rank)])


def _last_two(x: Value, a: int, b: int) -> list[int]:
    """The order of dimensions with these two behind the others."""
    a, b = a % x.rank, b % x.rank
    return [*(i for i in range(x.rank) if i not in (a, b)), a, b]


@rule(A.cat.default)
def cat(t: Translator, tensors: Sequence[Any], dim: int = 0) -> Value:
    out = t.out
    values = [t.value(x, out.dtype) for x in tensors if isinstance(x, Value) or x.numel()]  # PyTorch leaves empty ones out
    return t.b.concat(values, dim % len(out.shape))


@rule(A.stack.default)
def stack(t: Translator, tensors: Sequence[Any], dim: int = 0) -> Value:
    out = t.out
    dim %= len(out.shape)
    single = [1 if i == dim else n for i, n in enumerate(out.shape)]
    return t.b.concat([t.b.reshape(t.value(x, out.dtype), single) for x in tensors], dim)


@rule(A.split.Tensor, A.split_with_sizes.default, A.unbind.int, A.chunk.default, A.split_with_sizes_copy.default)
def split(t: Translator, x: Value, *arguments: Any, **named: Any) -> tuple[Value, ...]:
    results = t.node.meta["val"]
    whole = "unbind" in str(t.node.target)
    dim = (arguments[0] if arguments else named.get("dim", 0)) if whole else (arguments[1] if len(arguments) > 1 else named.get("dim", 0))
    dim %= x.rank
    begin, parts = 0, []
    for result in results:
        size = 1 if whole else int(result.shape[dim])
        parts.append(t.b.reshape(t.b.slice_dim(x, dim, begin, size), [int(n) for n in result.shape]))
        begin += size
    return tuple(parts)


@rule(A.repeat.default)
def repeat(t: Translator, x: Value, repeats: Sequence[int]) -> Value:
    """Each dimension n becomes [repeat, n], broadcast and joined."""
    shape = [1] * (len(repeats) - x.rank) + list(x.shape)
    apart = [n for size in shape for n in (1, size)]
    spread = [n for r, size in zip(repeats, shape) for n in (r, size)]
    return t.b.reshape(t.b.broadcast(t.b.reshape(x, apart), spread), t.out.shape)


@rule(A.constant_pad_nd.default)
def constant_pad(t: Translator, x: Value, pad: Sequence[int], value: float = 0.0) -> Value:
    low, high = [0] * x.rank, [0] * x.rank
    for i in range(len(pad) // 2):
        low[-1 - i], high[-1 - i] = pad[2 * i], pad[2 * i + 1]
    if min(low + high) < 0:  # a negative border is cut off
        offsets = [max(-n, 0) for n in low]
        x = t.b.slice(x, offsets, [n - o - max(-h, 0) for n, o, h in zip(x.shape, offsets, high)])
        low, high = [max(n, 0) for n in low], [max(n, 0) for n in high]
    return t.b.pad(x, low, high, value=float(value))


@rule(A.triu.default, A.tril.default)
def triangle(t: Translator, x: Value, diagonal: int = 0) -> Value:
    kept = getattr(torch, str(t.node.target).split(".")[1])(torch.ones(x.shape[-2:], dtype=torch.bool), diagonal)
    return t.b.select(t.value(kept), x, t.b.like(0, x))


@rule(A.full_like.default)
def full_like(t: Translator, x: Value, value: float, **_: Any) -> Value:
    return t.b.splat(value, t.out.shape, t.out.dtype)


@rule(A.zeros_like.default, A.new_zeros.default)
def zeros_like(t: Translator, x: Value, *_: Any, **__: Any) -> Value:
    return t.b.splat(0, t.out.shape, t.out.dtype)


@rule(A.ones_like.default, A.new_ones.default)
def ones_like(t: Translator, x: Value, *_: Any, **__: Any) -> Value:
    return t.b.splat(1, t.out.shape, t.out.dtype)


@rule(A.new_full.default)
def new_full(t: Translator, x: Value, size: Sequence[int], value: float, **_: Any) -> torch.Tensor:
    """Known, as the base of ldexp is."""
    return torch.full((), value, dtype=TORCH_DTYPES[t.out.dtype]).expand(t.out.shape)


@rule(A.broadcast_tensors.default)
def broadcast_tensors(t: Translator, tensors: Sequence[Any]) -> tuple[Value, ...]:
    return tuple(t.b.broadcast(t.value(x), [int(n) for n in meta.shape]) for x, meta in zip(tensors, t.node.meta["val"]))


@rule(A.copy.default)
def copy(t: Translator, target: Any, source: Any, *_: Any) -> Value:
    return t.b.broadcast(t.value(source, t.out.dtype), t.out.shape)
