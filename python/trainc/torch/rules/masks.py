"""Masks of attention: what the dialect has words for, which needs no scores in memory."""
from __future__ import annotations

from typing import Any

import torch

from ...emit import Value
from ..translate import Translator

A = torch.ops.aten
# What leaves the last two dimensions of a mask as they are.
_LEADING = {A.unsqueeze.default, A.view.default, A.reshape.default, A.expand.default, A.alias.default, A.clone.default, A.contiguous.default,
            A._unsafe_view.default, A._to_copy.default, A.to.dtype}
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


def segments_of(t: Translator, node: Any, length: int) -> tuple[Value, torch.Tensor | None] | None:
    """Of a mask that hides other sequences of a row: the number of the sequence of each position, [B, T], and what else hides keys.
    None if it says anything else."""
    if not isinstance(node, torch.fx.Node) or not isinstance(t.env.get(node), Value):
        return None
    parts = _parts(t, node, length)
    if parts is None or parts[0] is None:
        return None
    segments, rest = parts
    if rest is not None and (rest.dtype != torch.bool or any(n != 1 for n in rest.shape[:-2])):
        return None
    value = t.value(t.env[segments])
    return t.b.cast(value, "i64" if value.dtype == "i64" else "i32"), rest


def _shape(node: torch.fx.Node) -> tuple[int, ...]:
    return tuple(node.meta["val"].shape)


def _parts(t: Translator, node: Any, length: int) -> tuple[torch.fx.Node | None, torch.Tensor | None] | None:
    """(the node of segments, known mask) whose conjunction a boolean mask is."""
    if not isinstance(node, torch.fx.Node):
        return None
    if isinstance(known := t.env.get(node), torch.Tensor):
        return (None, known) if known.dtype == torch.bool else None
    if node.meta["val"].dtype != torch.bool:
        return None
    if node.target in _LEADING and isinstance(node.args[0], torch.fx.Node) and _shape(node)[-2:] == _shape(node.args[0])[-2:]:
        return _parts(t, node.args[0], length)
    if node.target in _AND:
        sides = [_parts(t, x, length) for x in node.args[:2]]
        if None in sides or all(segments is not None for segments, _ in sides):
            return None
        masks = [mask for _, mask in sides if mask is not None]
        segments = next((s for s, _ in sides if s is not None), None)
        return segments, masks[0] & masks[1] if len(masks) == 2 else masks[0] if masks else None
    if node.target is A.eq.Tensor:
        ends = [_line(t, x, length) for x in node.args[:2]]
        if None in ends or {ends[0][1], ends[1][1]} != {"rows", "columns"} or ends[0][0] is not ends[1][0]:
            return None
        return ends[0][0], None
    return None


def _line(t: Translator, node: Any, length: int) -> tuple[torch.fx.Node, str] | None:
    """(node of [B, T] integers, whether its positions stand along the rows or the columns of a mask)."""
    if not isinstance(node, torch.fx.Node):
        return None
    *leading, rows, columns = [1, *_shape(node)]
    along = "rows" if (rows, columns) == (length, 1) else "columns" if (rows, columns) == (1, length) else None
    base = node
    while base.target in _LEADING - {A.expand.default, A._to_copy.default, A.to.dtype}:
        base = base.args[0]
    if base.target is A.index.Tensor:
        base = _whole(t, base, length)
    if along is None or base is None or len(_shape(base)) != 2 or base.meta["val"].dtype not in (torch.int32, torch.int64):
        return None
    batch, positions = _shape(base)
    others = [n for n in leading if n != 1]
    fits = positions == length and others == [batch] * (batch != 1) and (batch == 1 or (leading[1:] or leading)[0] == batch)
    return (base, along) if fits else None


def _whole(t: Translator, node: torch.fx.Node, length: int) -> torch.fx.Node | None:
    """What is indexed by all rows and all positions, in order."""
    base, indices = node.args[:2]
    known = [t.env.get(i) for i in indices if i is not None]
    if len(_shape(base)) != 2 or len(indices) != 2 or len(known) != 2 or not all(isinstance(k, torch.Tensor) for k in known):
        return None
    ranges = [torch.arange(n) for n in _shape(base)]
    if not all(torch.equal(k.flatten(), r) for k, r in zip(known, ranges)):
        return None
    return base
