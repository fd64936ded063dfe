"""The loss scale of a step: a number, or what `torch.amp.GradScaler` has."""
from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ..emit import attributes, number
from ..errors import MismatchError, UnsupportedError
from ..step import Step

# What a number of state_dict() is called in the source; in a step behind "loss_scale.".
RULE = {"growth_factor": "growth", "backoff_factor": "backoff", "growth_interval": "interval"}
LEAST = 2.0**-126  # the scale has a floor, which GradScaler has not: the smallest normal number of f32


@dataclass(frozen=True)
class Scaler:
    """A loss scale, at the export. `state` is the state_dict() of a GradScaler, or None of a number, which stays; `prefix` stands before the
    names of its scalars."""

    scale: float
    state: Mapping[str, Any] | None
    prefix: str

    @property
    def text(self) -> str:
        """The clause of a step."""
        if self.state is None:
            return f" loss_scale({number(self.scale)})"
        rule = {"init": self.scale} | {ours: self.state[theirs] for theirs, ours in RULE.items()} | {"min": LEAST}
        return f" loss_scale(dynamic<{attributes(rule, {})}>)"

    @property
    def has_begun(self) -> bool:
        """Whether updates have been counted since the scale has changed."""
        return bool(self.state and self.state["_growth_tracker"])

    def _scalars(self) -> dict[str, str]:
        """Those of a step that can be set, by the names of state_dict()."""
        return {"scale": f"{self.prefix}loss_scale"} | {theirs: f"{self.prefix}loss_scale.{ours}" for theirs, ours in RULE.items()}

    def numbers(self, step: Step, given: Any) -> dict[str, float]:
        """Scalars that have other values in the step than in a state_dict()."""
        if not isinstance(given, Mapping) or not self.state.keys() <= given.keys():
            got = f"one with {', '.join(map(str, given)) or 'nothing'}" if isinstance(given, Mapping) else type(given).__name__
            raise MismatchError(f"expected the state_dict() of a GradScaler, with {', '.join(self.state)}, got {got}")
        most = sys.float_info.max
        bounds = {"scale": (LEAST, most), "growth_factor": (1, most), "backoff_factor": (sys.float_info.min, 1), "growth_interval": (1, most),
                  "_growth_tracker": (0, most)}
        if wrong := [f"{key} is {given[key]}" for key, (low, high) in bounds.items()
                     if not isinstance(given[key], int | float) or not low <= given[key] <= high]:
            raise MismatchError(f"the state of the GradScaler: {', '.join(wrong)}: expected a scale of 2^-126 or more, growth of 1 or more, backoff "
                                "above 0 and up to 1, an interval of 1 or more, and a count")
        changed = {name: float(given[key]) for key, name in self._scalars().items() if step.get(name) != given[key]}
        if f"{self.prefix}loss_scale" in changed and (open := int(step.get(f"{self.prefix}micro_step"))):
            raise MismatchError(f"the scale is {given['scale']}, but a window with {open} micro-batches is open, whose gradients are scaled by "
                                f"{step.get(f'{self.prefix}loss_scale')}: expected a closed one; flush() closes it")
        return changed

    def age(self, given: Mapping[str, Any]) -> dict[str, float]:
        """The count of updates since the scale has changed, by its scalar."""
        return {f"{self.prefix}loss_scale_age": given["_growth_tracker"]}

    def store(self, step: Step) -> dict[str, Any]:
        """A state_dict() of what the step has."""
        state = {key: step.get(name) for key, name in self._scalars().items()} | {"_growth_tracker": step.get(f"{self.prefix}loss_scale_age")}
        return state | {key: int(state[key]) for key in ("growth_interval", "_growth_tracker")}


def scaler_of(given: Any, prefix: str) -> Scaler | None:
    """Of a GradScaler or a number; None of none and of one that is not enabled."""
    if isinstance(given, torch.amp.GradScaler):
        state = given.state_dict()
        return Scaler(float(state["scale"]), state, prefix) if state else None
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given < math.inf:
        raise UnsupportedError(f"scaler is {given!r}: expected a torch.amp.GradScaler or a number above 0, the loss scale")
    return Scaler(float(given), None, prefix)
