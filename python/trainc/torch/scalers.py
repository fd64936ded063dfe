"""The loss scale of a step: a number, or what `torch.amp.GradScaler` has."""
from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ..emit import attributes, number
from ..errors import UnsupportedError

# What a number of state_dict() is called in the source; in a step behind "loss_scale.".
RULE = {"growth_factor": "growth", "backoff_factor": "backoff", "growth_interval": "interval"}
LEAST = 2.0**-126  # the scale has a floor, which GradScaler has not: the smallest normal number of f32


@dataclass(frozen=True)
class Scaler:
    """A loss scale, at the export. `state` is the state_dict() of a GradScaler, or None of a number, which stays."""

    scale: float
    state: Mapping[str, Any] | None = None

    @property
    def text(self) -> str:
        """The clause of a step."""
        if self.state is None:
            return f" loss_scale({number(self.scale)})"
        rule = {"init": self.scale} | {ours: self.state[theirs] for theirs, ours in RULE.items()} | {"min": LEAST}
        return f" loss_scale(dynamic<{attributes(rule, {})}>)"


def scaler_of(given: Any) -> Scaler | None:
    """Of a GradScaler or a number; None of none and of one that is not enabled."""
    if isinstance(given, torch.amp.GradScaler):
        state = given.state_dict()
        return Scaler(float(state["scale"]), state) if state else None
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given < math.inf:
        raise UnsupportedError(f"scaler is {given!r}: expected a torch.amp.GradScaler or a number above 0, the loss scale")
    return Scaler(float(given))
