"""What a model keeps in attributes from one call to the next: constants of a graph, which would be the same in each call of a step."""
from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

STANDARD = vars(nn.Module()).keys()  # parameters, buffers, hooks, `training`, ...
LONGEST = 1000  # of lists and dicts that are looked at
MISSING = object()
PLAIN = bool | int | float | str | None


def _values_in(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, PLAIN | torch.Tensor):
        yield path, value
    elif isinstance(value, list | tuple | dict) and len(value) <= LONGEST:
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _values_in(f"{path}[{key!r}]", each)


def _is_plain(value: Any) -> bool:
    if type(value) in (list, tuple, dict):
        return all(map(_is_plain, value.values() if isinstance(value, dict) else value))
    return isinstance(value, PLAIN)


def _differ(a: Any, b: Any) -> bool:
    return a is not b and (isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor) or a != b)


def attribute_of(path: str) -> str:
    return path.partition("[")[0]


class Attributes:
    """The numbers, words and tensors in attributes of a model's modules, and in lists and dicts there, by their paths, at one time."""

    def __init__(self, model: nn.Module) -> None:
        self.values: dict[str, Any] = {}
        self._plain: list[tuple[nn.Module, str, Any]] = []  # those without tensors
        for name, module in model.named_modules():
            for key, value in vars(module).items():
                if key in STANDARD:
                    continue
                self.values |= _values_in(f"{name}.{key}" if name else key, value)
                if _is_plain(value):
                    self._plain.append((module, key, copy.deepcopy(value)))

    def changed(self, later: Attributes) -> list[str]:
        return [path for path in {**self.values, **later.values} if _differ(self.values.get(path, MISSING), later.values.get(path, MISSING))]

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        """The modules with numbers and words as they were at that time."""
        own = [(module, dict(vars(module))) for module in {id(m): m for m, *_ in self._plain}.values()]
        for module, key, value in self._plain:
            vars(module)[key] = value
        try:
            yield
        finally:
            for module, attributes in own:
                vars(module).clear()
                vars(module).update(attributes)
