"""Refusals within a forward, which the program's own `try` may catch: what it does then would be the graph."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.overrides import TorchFunctionMode

from ..errors import UnsupportedError

E = TypeVar("E", bound=Exception)
ASKING = (GuardOnDataDependentSymNode, DataDependentOutputException, DynamicOutputShapeException)
KINDS = (UnsupportedError, *ASKING)
# What asks for values, and what it is told where a capture goes on behind it.
ANSWERS = {torch.Tensor.__bool__: True, torch.Tensor.is_nonzero: True, torch.is_nonzero: True, torch.Tensor.__int__: 1, torch.Tensor.__index__: 1,
           torch.Tensor.__float__: 1.0, torch.Tensor.item: True, torch.equal: True, torch.Tensor.equal: True, torch.allclose: True,
           torch.Tensor.allclose: True}
_NOTED: list[Exception] = []  # of the forward that is captured


def noted(error: E) -> E:
    """For what is raised elsewhere than in functions of torch."""
    _NOTED.append(error)
    return error


class Refusals(TorchFunctionMode):
    """Raises the first refusal again at the end of a forward, if none has come through. With `note` questions about values get an answer, any
    one, after a call of it: so all of them are found, and what is captured is only to be looked at."""

    def __init__(self, note: Callable[[Any], None] | None = None) -> None:
        super().__init__()
        self._note = note

    def __enter__(self) -> Refusals:
        _NOTED.clear()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        if _NOTED and not any(error):
            raise _NOTED[0]

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            return function(*args, **(kwargs or {}))
        except KINDS as error:
            if self._note and isinstance(error, ASKING) and function in ANSWERS:
                self._note(function)
                return ANSWERS[function]
            raise noted(error)
