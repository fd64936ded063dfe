"""Refusals within a forward, which the program's own `try` may catch: what it does then would be the graph."""
from __future__ import annotations

from typing import Any, TypeVar

from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.overrides import TorchFunctionMode

from ..errors import UnsupportedError

E = TypeVar("E", bound=Exception)
KINDS = (UnsupportedError, GuardOnDataDependentSymNode, DataDependentOutputException, DynamicOutputShapeException)
_NOTED: list[Exception] = []  # of the forward that is captured


def noted(error: E) -> E:
    """For what is raised elsewhere than in functions of torch."""
    _NOTED.append(error)
    return error


class Refusals(TorchFunctionMode):
    """Raises the first refusal again at the end of a forward, if none has come through."""

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
            raise noted(error)
