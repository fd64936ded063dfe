"""Masks of attention: what the dialect has words for, which needs no scores in memory."""
from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import Any

import torch

from ...emit import Value
from ..translate import Translator

A = torch.ops.aten
# What leaves the last two dimensions of a mask as they are.
_SHAPED = {A.unsqueeze.default, A.view.default, A.reshape.default, A._unsafe_view.default}
_SAME = {A.alias.default, A.clone.default, A.contiguous.default}
_LEADING = {*_SHAPED, *_SAME, A.expand.default, A.expand_as.default, A.broadcast_to.default, A._to_copy.default, A.to.dtype, A.to.dtype_layout,
            A.to.device, A.type_as.default}
_AND = {A.bitwise_and.Tensor, A.logical_and.default, A.__and__.Tensor}
_OR = {A.bitwise_or.Tensor, A.logical_or.default, A.__or__.Tensor}
_NOT = {A.bitwise_not.default, A.logical_not.default}
_ORDER = {A.le.Tensor, A.lt.Tensor, A.ge.Tensor, A.gt.Tensor}
_WHERE = {A.where.self, A.where.ScalarOther, A.where.ScalarSelf, A.where.Scalar}


def band(queries: int, keys: int, window: int) -> torch.Tensor:
    """What a causal attention sees: row i the last `window` keys up to i + Tk - Tq."""
    ones = torch.ones(queries, keys, dtype=torch.bool)
    return ones.tril(keys - queries) & ~ones.tril(keys - queries - window)


def _hidden(mask: torch.Tensor) -> torch.Tensor | None:
    """What a mask of 0 and of -inf or large numbers hides; None of one with other numbers."""
    hidden = mask <= torch.finfo(mask.dtype).min / 2
    return hidden if bool(((mask == 0) | hidden).all()) else None


def simplified(mask: Any, queries: int, keys: int, causal: bool) -> tuple[Any, int | None]:
    """The mask that is left, and the window of keys of a query if attention is causal as the dialect means it."""
    if causal:  # PyTorch's is from the top left
        mask = torch.ones(queries, keys, dtype=torch.bool).tril()
    if not isinstance(mask, torch.Tensor):
        return mask, None
    if mask.dtype.is_floating_point:
        hidden = _hidden(mask)
        if hidden is None or bool((hidden.all(-1) & mask.isfinite().any(-1)).any()):
            return mask, None  # a row with nothing but large numbers is the mean of all values
        mask = ~hidden
    if bool(mask.all()):
        return None, None
    window = int(mask.sum(-1).max())
    if window and mask.shape[-2:] == (queries, keys) and bool((mask == band(queries, keys, window)).all()):
        return None, window
    return mask, None


@dataclass(frozen=True)
class _Mask:
    """What a query sees: keys of its sequence in `segments`, [B, T], that `known` and all of `lines` allow: boolean nodes whose last two
    dimensions are [1, T] or [T, 1], and whether each is inverted. `axis` is where the mask has the batch of these, from the last dimension;
    None if they are the same in all of it. `known` holds where the node `positions`, [B, T], rises by 1 from key to key. `finite`: what is
    hidden is so by a large number."""

    segments: torch.fx.Node | None = None
    known: torch.Tensor | None = None
    lines: tuple[tuple[torch.fx.Node, bool], ...] = ()
    axis: int | None = None
    positions: torch.fx.Node | None = None
    finite: bool = False


def visible(t: Translator, node: Any, rank: int, length: int) -> tuple[Value | None, torch.Tensor | None, Value | None] | None:
    """Of the mask of an attention without scores in memory: the number of the sequence of each position, [B, T], what is known, and
    what is the same for all queries or all keys. None if it says anything else, or differs between heads. `rank` is that of the queries."""
    mask = _parts(t, node, length)
    if mask is None or mask.axis not in (None, -rank) or not (mask.segments or (mask.lines and mask.known is not None)):
        return None
    known = mask.known.expand(*mask.known.shape[:-2], length, length) if mask.known is not None else None
    if known is not None and any(n != 1 for n in known.shape[:-2]):
        return None
    if mask.positions is not None and (mask.segments is None or _source(_risen(mask.segments)) is not mask.positions):
        return None
    sees_itself = not mask.lines and (known is None or bool(known.diagonal(dim1=-2, dim2=-1).all()))
    if mask.finite and not sees_itself:  # a row with nothing but large numbers is the mean of all values
        return None
    if len({_shape(line)[-2:] for line, _ in mask.lines}) > 1 or (mask.lines and simplified(known, length, length, False)[0] is not None):
        return None
    segments = t.value(t.env[mask.segments]) if mask.segments else None
    lines = [t.b.reshape(t.value(t.env[line]), _aligned(_shape(line), mask.axis, rank)) for line, _ in mask.lines]
    lines = [t.b.unary("not", line) if inverted else line for line, (_, inverted) in zip(lines, mask.lines)]
    return segments, known, functools.reduce(functools.partial(t.b.binary, "and"), lines) if lines else None


def _shape(node: torch.fx.Node) -> tuple[int, ...]:
    return tuple(node.meta["val"].shape)


def _aligned(shape: tuple[int, ...], axis: int | None, rank: int) -> list[int]:
    """The shape of a line in a mask of this rank, whose batch stands at `axis`."""
    batch = [n for n in shape[:-2] if n != 1] or [1]
    return [*batch, *[1] * (-axis - 3), *shape[-2:]] if axis is not None else [*[1] * (rank - 2), *shape[-2:]]


def _batch_axis(shape: tuple[int, ...]) -> int | None:
    """Of the leading dimensions the only one that is not 1, from the last."""
    places = [i - len(shape) for i, n in enumerate(shape[:-2]) if n != 1]
    return places[0] if len(places) == 1 else None


def _parts(t: Translator, node: Any, length: int, inverted: bool = False) -> _Mask | None:
    """What a mask lets through, or with `inverted` what it does not."""
    if not isinstance(node, torch.fx.Node):
        return None
    if isinstance(known := t.env.get(node), torch.Tensor):
        return _known(known, inverted)
    if node.target is A.new_ones.default:  # of an input, but known
        return _known(torch.ones(_shape(node), dtype=node.meta["val"].dtype), inverted)
    is_line = _shape(node)[-2:] in ((1, length), (length, 1))
    if node.target in _LEADING and isinstance(source := node.args[0], torch.fx.Node) and _is_of_kind(source, node) and (
            _shape(node)[-2:] == _shape(source)[-2:] or node.target is A.expand.default and not is_line):
        mask = _parts(t, source, length, inverted)
        if mask is None or mask.axis is None or node.target not in _SHAPED:
            return mask
        axis, batch = _batch_axis(_shape(node)), _shape(source)[mask.axis]
        return replace(mask, axis=axis) if axis is not None and _shape(node)[axis] == math.prod(_shape(source)[:-2]) == batch else None
    if node.meta["val"].dtype != torch.bool:
        return None if inverted else _added(t, node, length)
    if node.target in _NOT:
        return _parts(t, node.args[0], length, not inverted)
    if is_line:
        axis = _batch_axis(_shape(node))
        return _Mask(lines=((node, inverted),), axis=axis) if axis is not None or all(n == 1 for n in _shape(node)[:-2]) else None
    if node.target in (_OR if inverted else _AND):
        return _both(*(_parts(t, x, length, inverted) for x in node.args[:2]))
    if node.target is (A.ne.Tensor if inverted else A.eq.Tensor):
        return _same(t, node, length)
    if node.target in _ORDER:
        return _ordered(t, node, length, inverted)
    return None


def _is_of_kind(source: torch.fx.Node, node: torch.fx.Node) -> bool:
    """Whether both are masks of truth values, or both of what is added."""
    a, b = source.meta["val"].dtype, node.meta["val"].dtype
    return a == b or (a.is_floating_point and b.is_floating_point)


def _known(mask: torch.Tensor, inverted: bool) -> _Mask | None:
    if mask.dtype == torch.bool:
        return _Mask(known=mask ^ inverted)
    if inverted or not mask.dtype.is_floating_point or (hidden := _hidden(mask)) is None:
        return None
    return _Mask(known=~hidden, finite=bool(mask.isfinite()[hidden].any()))


def _both(one: _Mask | None, other: _Mask | None) -> _Mask | None:
    """What two masks let through."""
    if one is None or other is None or (one.segments and other.segments):
        return None
    for a, b in ((one.axis, other.axis), (one.positions, other.positions)):
        if a is not None and b is not None and a != b:
            return None
    known = [m.known for m in (one, other) if m.known is not None]
    return _Mask(one.segments or other.segments, functools.reduce(torch.logical_and, known) if known else None, one.lines + other.lines,
                 other.axis if one.axis is None else one.axis, one.positions or other.positions, one.finite or other.finite)


def _same(t: Translator, node: torch.fx.Node, length: int) -> _Mask | None:
    """A comparison of the sequences of queries with those of keys."""
    ends = [_line(t, x, length) for x in node.args[:2]]
    if None in ends or {ends[0][1], ends[1][1]} != {"rows", "columns"} or ends[0][0] is not ends[1][0]:
        return None
    segments = ends[0][0]
    if _shape(segments)[0] == 1:
        return _Mask(segments)
    axis = _batch_axis(_shape(node))
    return _Mask(segments, axis=axis) if axis is not None else None


def _ordered(t: Translator, node: torch.fx.Node, length: int, inverted: bool) -> _Mask | None:
    """A comparison of the positions of queries with those of keys: where they rise by 1, it is that of their places."""
    sides, sources = [], set()
    for side in node.args[:2]:
        offset = 0
        if getattr(side, "target", None) in (A.sub.Tensor, A.add.Tensor) and isinstance(side.args[1], int) and not side.kwargs:
            offset = side.args[1] if side.target is A.add.Tensor else -side.args[1]
            side = side.args[0]
        if (found := _line(t, side, length)) is None:
            return None
        sources.add(_source(found[0]))
        sides.append(torch.arange(length)[(slice(None), None) if found[1] == "rows" else None] + offset)
    if len(sources) > 1 or sides[0].shape == sides[1].shape:
        return None
    axis = _batch_axis(_shape(node))
    if axis is None and any(n != 1 for n in _shape(node)[:-2]):
        return None
    return _Mask(known=node.target(*sides) ^ inverted, axis=axis, positions=sources.pop())


def _source(node: torch.fx.Node | None) -> torch.fx.Node | None:
    """What is repeated."""
    while node is not None and node.target in {*_SAME, A.expand.default}:
        node = node.args[0]
    return node


def _risen(segments: torch.fx.Node) -> torch.fx.Node | None:
    """The [B, T] integers p of segments that are (p.diff(prepend=...) != 1).cumsum(-1). The sum rises at each difference that is not 1, so
    between two places of one segment all differences are 1: p[i] - p[j] = i - j."""
    def operands(node: Any, target: Any, *rest: Any) -> Any:
        fits = isinstance(node, torch.fx.Node) and node.target is target and (*node.args[1:], *node.kwargs.values()) == rest
        return node.args[0] if fits else None

    length = _shape(segments)[-1]
    jumps = next((n for d in (-1, 1) if (n := operands(segments, A.cumsum.default, d)) is not None), None)
    difference = operands(jumps, A.ne.Scalar, 1)
    if difference is None or difference.target is not A.sub.Tensor or len(difference.args) != 2 or difference.kwargs:
        return None
    joined = [next((n for d in (-1, 1) if (n := operands(x, A.slice.Tensor, d, i, i + length)) is not None), None)
              for x, i in zip(difference.args, (1, 0))]
    if joined[0] is None or joined[0] is not joined[1]:
        return None
    parts = next((p for d in (-1, 1) if (p := operands(joined[0], A.cat.default, d)) is not None), [])
    return parts[1] if len(parts) == 2 and _shape(parts[0])[-1] == 1 else None


def _added(t: Translator, node: torch.fx.Node, length: int) -> _Mask | None:
    """A mask that is added to scores: 0, or -inf or a large number where it hides a key."""
    if not node.meta["val"].dtype.is_floating_point:
        return None
    lowest = torch.finfo(node.meta["val"].dtype).min

    def number(x: Any) -> float | None:
        x = t.env.get(x) if isinstance(x, torch.fx.Node) else x
        if isinstance(x, torch.Tensor) and x.numel() and bool((x == x.flatten()[0]).all()):
            x = x.flatten()[0].item()
        return x if isinstance(x, int | float) else None

    def between(condition: Any, chosen: Any, other: Any) -> _Mask | None:
        """`chosen` where the condition is true."""
        one, two = number(chosen), number(other)
        if one is None or two is None or 0 not in (one, two) or not min(one, two) <= lowest / 2:
            return None
        mask = _parts(t, condition, length, inverted=two == 0)
        return replace(mask, finite=mask.finite or math.isfinite(min(one, two))) if mask else None

    if node.target in _WHERE:
        return between(*node.args)
    if node.target in (A.masked_fill.Scalar, A.masked_fill.Tensor):
        return between(node.args[1], node.args[2], node.args[0])
    if node.target is A.add.Tensor and not node.kwargs:
        return _both(*(_parts(t, x, length) for x in node.args[:2]))
    if node.target is A.mul.Tensor:  # (1 - mask) * lowest
        factor, other = sorted(node.args, key=lambda x: number(x) is None)
        size, inverted = number(factor), True
        while isinstance(other, torch.fx.Node) and (other.target is A.rsub.Scalar and other.args[1:] == (1,) or
                                                    other.target is A.sub.Tensor and number(other.args[0]) == 1) and not other.kwargs:
            other, inverted = other.args[other.target is A.sub.Tensor], not inverted
        if size is None or not -math.inf < size <= lowest / 2 or getattr(other, "target", None) not in (A._to_copy.default, A.to.dtype):
            return None
        mask = _parts(t, other.args[0], length, inverted) if other.args[0].meta["val"].dtype == torch.bool else None
        return replace(mask, finite=True) if mask else None
    return None


def _line(t: Translator, node: Any, length: int) -> tuple[torch.fx.Node, str] | None:
    """(node of [B, T] integers, whether its positions stand along the rows or the columns of a mask)."""
    if not isinstance(node, torch.fx.Node):
        return None
    *leading, rows, columns = [1, *_shape(node)]
    along = "rows" if (rows, columns) == (length, 1) else "columns" if (rows, columns) == (1, length) else None
    base = node
    while base.target in _SHAPED | _SAME:
        base = base.args[0]
    if base.target is A.index.Tensor:
        base = _whole(t, base)
    if along is None or base is None or len(_shape(base)) != 2 or base.meta["val"].dtype not in (torch.int32, torch.int64):
        return None
    batch, positions = _shape(base)
    others = [n for n in leading if n != 1]
    fits = positions == length and others == [batch] * (batch != 1) and (batch == 1 or (leading[1:] or leading)[0] == batch)
    return (base, along) if fits else None


def _whole(t: Translator, node: torch.fx.Node) -> torch.fx.Node | None:
    """What is indexed by all rows and all positions, in order."""
    base, indices = node.args[:2]
    known = [t.env.get(i) for i in indices if i is not None]
    if len(_shape(base)) != 2 or len(indices) != 2 or len(known) != 2 or not all(isinstance(k, torch.Tensor) for k in known):
        return None
    ranges = [torch.arange(n) for n in _shape(base)]
    if not all(torch.equal(k.flatten(), r) for k, r in zip(known, ranges)):
        return None
    return base
