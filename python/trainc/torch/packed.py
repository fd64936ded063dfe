"""Sequences of several lengths (`pack_padded_sequence`) and layers that run over them (nn.LSTM, nn.GRU, nn.RNN), as padded ones with a mask."""
from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from .selected import Selected


class _Steps(int):
    """How many steps padded sequences have, where PyTorch asks for those of the longest one."""


class _BatchSizes:
    """In place of how many sequences have a step t: the first number is known, as no sequence is empty."""

    device = torch.device("cpu")

    def __init__(self, mask: torch.Tensor):
        self.mask = mask

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"batch_sizes.{name} of packed sequences, which depend on data")

    def __getitem__(self, step: int) -> int:
        if step != 0:
            raise TypeError(f"batch_sizes[{step}] of packed sequences, which depend on data")
        return self.mask.shape[1]

    def size(self, dim: int) -> _Steps:
        return _Steps(self.mask.shape[0])

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise TypeError(f"{function.__name__} of the batch sizes of packed sequences, which depend on data")


def _lstm(x: torch.Tensor, states: Sequence[torch.Tensor], weight: torch.Tensor, bias: Any = None, projection: Any = None) -> list[torch.Tensor]:
    """The states h and c of the next step; x is weighted and has its bias."""
    h, c = states
    i, f, g, o = (x + F.linear(h, weight, bias)).chunk(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    h = o.sigmoid() * c.tanh()
    return [h if projection is None else F.linear(h, projection), c]


def _gru(x: torch.Tensor, states: Sequence[torch.Tensor], weight: torch.Tensor, bias: Any = None) -> list[torch.Tensor]:
    h, = states
    of_x, of_h = x.chunk(3, -1), F.linear(h, weight, bias).chunk(3, -1)
    r, z = (of_x[0] + of_h[0]).sigmoid(), (of_x[1] + of_h[1]).sigmoid()
    n = (of_x[2] + r * of_h[2]).tanh()
    return [n + z * (h - n)]


def _rnn(function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, states: Sequence[torch.Tensor], weight: torch.Tensor,
         bias: Any = None) -> list[torch.Tensor]:
    return [function(x + F.linear(states[0], weight, bias))]


CELLS: dict[Any, Callable[..., list[torch.Tensor]]] = {
    torch._VF.lstm: _lstm, torch._VF.gru: _gru, torch._VF.rnn_tanh: functools.partial(_rnn, torch.tanh),
    torch._VF.rnn_relu: functools.partial(_rnn, torch.relu)}


def _direction(cell: Callable[..., list[torch.Tensor]], x: torch.Tensor, mask: torch.Tensor, states: Sequence[torch.Tensor],
               weights: Sequence[torch.Tensor], has_bias: bool, steps: Sequence[int]) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Outputs [T, B, H] and last states. Behind its end a sequence keeps its state, backwards it begins there."""
    of_input, of_state, *others = weights
    bias, own, *projection = others if has_bias else [None, None, *others]
    weighted, outputs = F.linear(x, of_input, bias), {}
    for t in steps:
        new = cell(weighted[t], states, of_state, own, *projection)
        outputs[t] = new[0]
        states = [torch.where(mask[t, :, None], a, b) for a, b in zip(new, states)]
    return torch.stack([outputs[t] for t in sorted(outputs)]), list(states)


def _layers(cell: Callable[..., list[torch.Tensor]], x: Selected, states: Sequence[torch.Tensor], parameters: Sequence[torch.Tensor], has_bias: bool,
            layers: int, dropout: float, train: bool, bidirectional: bool) -> tuple[Any, ...]:
    """What PyTorch's layers over packed sequences return."""
    mask, both = x.mask, 1 + bidirectional
    count = len(parameters) // (layers * both)
    data, last, steps = x.data, [], range(mask.shape[0])
    for layer in range(layers):
        outputs = []
        for direction in range(both):
            place = layer * both + direction
            weights = parameters[place * count:(place + 1) * count]
            out, end = _direction(cell, data, mask, [state[place] for state in states], weights, has_bias, steps[::-1] if direction else steps)
            outputs.append(out)
            last.append(end)
        data = torch.cat(outputs, -1)
        if dropout and train and layer < layers - 1:
            data = F.dropout(data, dropout)
    return Selected.of(data, mask), *(torch.stack(state) for state in zip(*last))


class Packed(TorchFunctionMode):
    """Answers what nn.utils.rnn and the layers ask PyTorch for."""

    def __init__(self) -> None:
        super().__init__()
        self._masks: dict[tuple[int, int], tuple[torch.Tensor, torch.Tensor]] = {}  # and lengths, by their id and the number of steps

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch._VF._pack_padded_sequence:
            return self._packed(*args)
        if function is torch._VF._pad_packed_sequence:
            return _padded(*args)
        if function in CELLS and isinstance(args[0], Selected):
            x, _, states, *others = args
            return _layers(CELLS[function], x, states if isinstance(states, tuple | list) else [states], *others)
        return function(*args, **(kwargs or {}))

    def _packed(self, x: torch.Tensor, lengths: torch.Tensor, batch_first: bool) -> tuple[Selected, _BatchSizes]:
        x = x.transpose(0, 1) if batch_first else x
        key = id(lengths), x.shape[0]
        if key not in self._masks:
            self._masks[key] = lengths, torch.arange(x.shape[0])[:, None] < lengths
        mask = self._masks[key][1]
        return Selected.of(x, mask), _BatchSizes(mask)


def _padded(x: Selected, sizes: _BatchSizes, batch_first: bool, value: float, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """NaN if the longest sequence has fewer steps than are padded and no length was given: PyTorch's result would be shorter."""
    result, lengths = x.filled(value), x.mask.sum(0)
    if isinstance(length, _Steps):
        if not result.is_floating_point():
            raise TypeError("integers of packed sequences, padded again: expected total_length")
        result = result * torch.where(lengths.max() == length, 1.0, torch.nan).to(result.dtype)  # and so is the gradient
    else:
        result = F.pad(result, (*[0, 0] * (result.dim() - 1), 0, length - result.shape[0]), value=value)
    return result.transpose(0, 1) if batch_first else result, lengths
