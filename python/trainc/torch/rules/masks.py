"""Masks of attention: what the dialect has words for, which needs no scores in memory."""
from __future__ import annotations

import functools
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


def band(queries: int, keys: int, window: int) -> torch.Tensor:
    """What a causal attention sees: row i the last `window` keys up to i + Tk - Tq."""
    ones = torch.ones(queries, keys, dtype=torch.bool)
    return ones.tril(keys - queries) & ~ones.tril(keys - queries - window)


def simplified(mask: Any, queries: int, keys: int, causal: bool) -> tuple[Any, int | None]:
    """The mask that is left, and the window of keys of a query if attention is causal as the dialect means it."""
    if causal:  # PyTorch's is from the top left
        mask = torch.ones(queries, keys, dtype=torch.bool).tril()
    if not isinstance(mask, torch.Tensor):
        return mask, None
    if mask.dtype.is_floating_point:
        lowest = torch.finfo(mask.dtype).min
        hidden = mask <= lowest / 2
        if not bool(((mask == 0) | hidden).all()) or bool((hidden.all(-1) & mask.isfinite().any(-1)).any()):
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
    """A boolean mask: the node of segments and a known mask, both of which it allows. `axis` is where the mask has the batch of
    the segments, from the last dimension; None if they are the same in all of it."""

    segments: torch.fx.Node | None = None
    known: torch.Tensor | None = None
    axis: int | None = None


def segments_of(t: Translator, node: Any, rank: int, length: int) -> tuple[Value, torch.Tensor | None] | None:
    """Of a mask that hides other sequences of a row: the number of the sequence of each position, [B, T], and what else hides keys.
    None if it says anything else, or differs between heads. `rank` is that of the queries."""
    mask = _parts(t, node, length)
    if mask is None or mask.segments is None or mask.axis not in (None, -rank):
        return None
    if mask.known is not None and any(n != 1 for n in mask.known.shape[:-2]):
        return None
    return t.value(t.env[mask.segments]), mask.known


def _shape(node: torch.fx.Node) -> tuple[int, ...]:
    return tuple(node.meta["val"].shape)


def _batch_axis(shape: tuple[int, ...]) -> int | None:
    """Of the leading dimensions the only one that is not 1, from the last."""
    places = [i - len(shape) for i, n in enumerate(shape[:-2]) if n != 1]
    return places[0] if len(places) == 1 else None


def _parts(t: Translator, node: Any, length: int) -> _Mask | None:
    if not isinstance(node, torch.fx.Node):
        return None
    if isinstance(known := t.env.get(node), torch.Tensor):
        return _Mask(known=known) if known.dtype == torch.bool else None
    if node.meta["val"].dtype != torch.bool:
        return None
    if node.target in _LEADING and isinstance(node.args[0], torch.fx.Node) and _shape(node)[-2:] == _shape(node.args[0])[-2:]:
        mask = _parts(t, node.args[0], length)
        if mask is None or mask.axis is None or node.target not in _SHAPED:
            return mask
        axis = _batch_axis(_shape(node))
        return replace(mask, axis=axis) if axis is not None else None
    if node.target in _AND:
        sides = [_parts(t, x, length) for x in node.args[:2]]
        if None in sides or all(side.segments for side in sides):
            return None
        one, _ = sorted(sides, key=lambda side: side.segments is None)
        known = [side.known for side in sides if side.known is not None]
        return replace(one, known=functools.reduce(torch.logical_and, known))
    if node.target is A.eq.Tensor:
        ends = [_line(t, x, length) for x in node.args[:2]]
        if None in ends or {ends[0][1], ends[1][1]} != {"rows", "columns"} or ends[0][0] is not ends[1][0]:
            return None
        segments = ends[0][0]
        if _shape(segments)[0] == 1:
            return _Mask(segments)
        axis = _batch_axis(_shape(node))
        return _Mask(segments, axis=axis) if axis is not None else None
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
