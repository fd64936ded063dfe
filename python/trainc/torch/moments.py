"""Moments and counts of optimizers of torch.optim, in and out of a step."""
from __future__ import annotations

import json
import os
import struct
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import MismatchError
from ..step import Step

_ADAM = {"exp_avg": "m", "exp_avg_sq": "v", "max_exp_avg_sq": "v_max"}
_OF_ALL_ELEMENTS = "mu_product"  # one number there, the same in every element here
# What a state is called there and here.
STATES: dict[type, dict[str, str]] = {
    torch.optim.SGD: {"momentum_buffer": "trace"}, torch.optim.Adam: _ADAM, torch.optim.AdamW: _ADAM, torch.optim.RAdam: _ADAM,
    torch.optim.NAdam: {**_ADAM, _OF_ALL_ELEMENTS: _OF_ALL_ELEMENTS},
    torch.optim.Adamax: {"exp_avg": "m", "exp_inf": "v"}, torch.optim.Adagrad: {"sum": "sum"},
    torch.optim.Adadelta: {"square_avg": "e_g", "acc_delta": "e_x"},
    torch.optim.RMSprop: {"square_avg": "v", "grad_avg": "m", "momentum_buffer": "trace"},
    torch.optim.Muon: {"momentum_buffer": "m"}}

UNCOUNTED = (torch.optim.SGD, torch.optim.Muon)  # their states have no "step"


def _set_update(step: Step, scalar: str, update: int) -> None:
    """The count of updates, `scalar`, is set by a checkpoint alone: one of this state with another count."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "state.safetensors")
        step.save(path)
        with open(path, "r+b") as f:
            size, = struct.unpack("<Q", f.read(8))
            header = json.loads(f.read(size))
            f.seek(8 + size + header[f"scalar/{scalar}"]["data_offsets"][0])
            f.write(struct.pack("<d", update))
            del header["__metadata__"]["trainc.checksum"]
            text = json.dumps(header, separators=(",", ":")).encode()
            f.seek(8)
            f.write(text + b" " * (size - len(text)))
        step.load(path)


def _one_count(counts: set[int]) -> int:
    if len(counts) > 1:
        raise MismatchError(f"parameters have had {', '.join(map(str, sorted(counts)))} updates: expected one count for all")
    return counts.pop() if counts else 0


@dataclass(frozen=True)
class Moments:
    """Of an optimizer its kind, its groups as state_dict() has them, the names of its parameters by their numbers there, and the
    scalar that counts its updates."""

    kind: type
    groups: list[dict[str, Any]]
    names: dict[int, str]
    update: str = "update"

    @staticmethod
    def of(optimizer: torch.optim.Optimizer, names: Mapping[int, str], update: str) -> Moments:
        """`names` are those of parameters by id()."""
        groups = optimizer.state_dict()["param_groups"]
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        numbers = [number for group in groups for number in group["params"]]
        return Moments(type(optimizer), groups, {number: names[id(p)] for number, p in zip(numbers, parameters)},
                       update)

    def load(self, step: Step, state: Mapping[str, Any]) -> None:
        """Writes the moments and the count of updates of a state_dict() into the step."""
        _set_update(step, self.update, _one_count(self.write(step, state)))

    def write(self, step: Step, state: Mapping[str, Any]) -> set[int]:
        """Writes the moments into the step; the counts of updates that they have had."""
        numbers = [number for group in state["param_groups"] for number in group["params"]]
        if numbers != list(self.names):
            raise MismatchError(f"expected an optimizer of {len(self.names)} parameters in the groups of the exported one, got {len(numbers)}")
        held, given, counts = self._held(step), {}, set()
        for number, values in state["state"].items():
            counts |= {int(values["step"])} if "step" in values else set()
            given |= {(self.names[number], STATES[self.kind].get(key, key)): value for key, value in values.items()
                      if key != "step" and value is not None}
        if given.keys() != held and given:
            wrong = [f"{name} has no {kind} in the step" for name, kind in sorted(given.keys() - held)]
            wrong += [f"{name} has no {kind} in the optimizer" for name, kind in sorted(held - given.keys())]
            raise MismatchError("; ".join(wrong))
        for (name, kind), value in given.items():
            step.write(name, value.to(given[name, "m"]).expand_as(given[name, "m"]).contiguous() if kind == _OF_ALL_ELEMENTS else value, kind)
        # Without a count, what has a momentum buffer has had an update.
        return counts or ({1} if given else set())

    def _held(self, step: Step) -> set[tuple[str, str]]:
        names = set(self.names.values())
        return {(name, kind) for name, kind in step.optimizer_states() if name in names}

    def store(self, step: Step) -> dict[str, Any]:
        """A state_dict() of the optimizer with the step's moments, learning rates as the exported one had them."""
        update, held, values = int(step.get(self.update)), self._held(step), {}
        for number, name in self.names.items():
            moments = {key: step.read(name, kind, as_torch=True) for key, kind in STATES[self.kind].items() if (name, kind) in held}
            if _OF_ALL_ELEMENTS in moments:
                moments[_OF_ALL_ELEMENTS] = moments[_OF_ALL_ELEMENTS].flatten()[0].clone()
            counted = {"step": torch.tensor(float(update))} if self.kind not in UNCOUNTED else {}
            if update and moments:
                values[number] = counted | moments
        return {"state": values, "param_groups": [dict(group) for group in self.groups]}


@dataclass(frozen=True)
class SeveralMoments:
    """Of several optimizers, in their order."""

    parts: tuple[Moments, ...]

    def load(self, step: Step, states: Sequence[Mapping[str, Any]]) -> None:
        if len(states) != len(self.parts):
            raise MismatchError(f"expected the states of {len(self.parts)} optimizers, got {len(states)}")
        # One that does not count had as many as those that do.
        counts = [(part.kind in UNCOUNTED, part.write(step, state)) for part, state in zip(self.parts, states)]
        counted = set().union(*(c for uncounted, c in counts if not uncounted))
        _set_update(step, self.parts[0].update, _one_count(counted or set().union(*(c for _, c in counts))))

    def store(self, step: Step) -> list[dict[str, Any]]:
        return [part.store(step) for part in self.parts]


@dataclass(frozen=True)
class MomentsByStep:
    """Of the optimizers of steps that train different parameters, by the steps' names."""

    parts: dict[str, Moments | SeveralMoments]

    def load(self, step: Step, states: Mapping[str, Any]) -> None:
        if states.keys() != self.parts.keys():
            raise MismatchError(f"expected the states of {', '.join(self.parts)}, got those of {', '.join(states) or 'none'}")
        for name, part in self.parts.items():
            part.load(step, states[name])

    def store(self, step: Step) -> dict[str, Any]:
        return {name: part.store(step) for name, part in self.parts.items()}


def moments_of(optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer], names: Mapping[int, str],
               update: str = "update") -> Moments | SeveralMoments:
    """`names` are those of parameters by id(), `update` is the scalar that counts."""
    if isinstance(optimizer, torch.optim.Optimizer):
        return Moments.of(optimizer, names, update)
    return SeveralMoments(tuple(Moments.of(o, names, update) for o in optimizer))
