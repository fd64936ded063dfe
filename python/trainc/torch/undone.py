"""What a capture leaves behind in the user's program is undone: its tensors have no values, and PyTorch trains nothing with them."""
from __future__ import annotations

import collections
import contextlib
import functools
import gc
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import is_fake

from .attributes import CONTAINERS, LONGEST, PLAIN, _classes, _parts, _reached

FILLED = (list, collections.deque, dict, collections.OrderedDict, collections.defaultdict, collections.Counter, set)  # in place


def _held(model: nn.Module, function: Callable[..., Any], todo: list[Any]) -> tuple[list[Any], set[type]]:
    """The lists, dicts and sets that a model and a function reach, and the classes of the user's whose objects they do."""
    found, classes, seen = [], set[type](), set[int]()
    todo = [function, *model.modules(), *todo]
    while todo and len(seen) < 1000 * LONGEST:
        value = todo.pop()
        if id(value) in seen or isinstance(value, PLAIN | torch.Tensor | type | types.ModuleType):
            continue
        seen.add(id(value))
        if type(value) in FILLED:
            found.append(value)
        new = set(_classes(value)) - classes
        classes |= new
        todo += [part for kind in new for part in vars(kind).values()]
        todo += _parts(value) if not isinstance(value, CONTAINERS) or len(value) <= LONGEST else []
    return found, classes


def _content(filled: Any) -> list[Any]:
    return list(filled.items() if isinstance(filled, dict) else filled)


def _is_same(a: Iterable[Any], b: Iterable[Any]) -> bool:
    """Pairs and values by identity."""
    a, b = ([part for each in some for part in (each if isinstance(each, tuple) else (each,))] for some in (a, b))
    return len(a) == len(b) and all(map(lambda x, y: x is y, a, b))


def _fill(filled: Any, content: list[Any]) -> None:
    filled.clear()
    if isinstance(filled, dict | set):
        filled.update(dict(content) if isinstance(filled, dict) else content)
    else:
        filled.extend(content)


@contextlib.contextmanager
def undone(model: nn.Module, function: Callable[..., Any]) -> Iterator[None]:
    """Puts back the attributes of the model's modules and of what the function reaches, variables around it, and what lists, dicts and sets
    there hold."""
    spaces = list(_reached(model, function))
    held, classes = _held(model, function, [value for space in spaces for value in space.values.values()])
    contents, owns = [(each, _content(each)) for each in held], [(kind, dict(vars(kind))) for kind in classes]
    try:
        yield
    finally:
        for space in spaces:
            space.put_back()
        for each, content in contents:
            if not _is_same(_content(each), content):
                _fill(each, content)
        for kind, own in owns:
            for name in [name for name, value in vars(kind).items() if own.get(name, undone) is not value and not name.startswith("__")]:
                setattr(kind, name, own[name]) if name in own else delattr(kind, name)


def _has_fakes(cache: Any) -> bool:
    """Whether results of functools.cache or lru_cache are of a capture."""
    todo, seen = gc.get_referents(cache), set[int]()
    while todo:
        value = todo.pop()
        if isinstance(value, torch.Tensor) and is_fake(value):
            return True
        if isinstance(value, dict | list | tuple) and id(value) not in seen and value is not cache.__dict__:
            seen.add(id(value))
            todo += value.values() if isinstance(value, dict) else value
    return False


@contextlib.contextmanager
def uncached() -> Iterator[None]:
    """Leaves caches of functions empty that hold tensors of a capture: the next call computes them again."""
    try:
        yield
    finally:
        for cache in [each for each in gc.get_objects() if type(each) is functools._lru_cache_wrapper]:
            if not (getattr(cache, "__module__", None) or "").startswith("torch.") and _has_fakes(cache):
                cache.cache_clear()
