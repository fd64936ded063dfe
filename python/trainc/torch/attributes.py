"""What a model and a loss keep from one call to the next, but for the model's buffers: constants of a graph, which would be the same in each
call of a step."""
from __future__ import annotations

import argparse
import collections
import contextlib
import copy
import functools
import itertools
import random
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import nn

STANDARD = vars(nn.Module()).keys()  # parameters, buffers, hooks, `training`, ...
LONGEST, MOST = 1000, 10000  # of lists and dicts that are looked at; how many objects are
MISSING = object()
PLAIN = bool | int | float | str | None
CONTAINERS = (list, tuple, collections.deque, dict, collections.OrderedDict, collections.defaultdict, collections.Counter)
NAMESPACES = (types.SimpleNamespace, argparse.Namespace, collections.UserDict, collections.UserList)  # of Python, with attributes of the user's
ENDS = 3  # of a longer list those elements are looked at


class Name(NamedTuple):
    """Of what a module, an object or a function has: `calls` of Model, `table['calls']` of loss()."""

    path: str
    owner: str
    place: int

    def attribute(self) -> Name:
        return self._replace(path=self.path.partition("[")[0])

    def __str__(self) -> str:
        return f"{self.path} of {self.owner}"


class _Space(NamedTuple):
    """Values of an object by name, and what sets them; `own` is where all of them stand, if they do in one place."""

    of: int
    owner: str
    values: dict[str, Any]
    put: Callable[[Mapping[str, Any]], None]
    own: dict[str, Any] | None = None
    prefix: str = ""

    def name(self, key: str) -> Name:
        return Name(self.prefix + key, self.owner, self.of)

    def put_back(self) -> None:
        for name in set(self.own or ()).difference(self.values):
            del self.own[name]
        self.put(self.values)


def _attributes(of: Any, owner: str, own: dict[str, Any], prefix: str = "") -> _Space:
    return _Space(id(of), owner, dict(own), own.update, own, prefix)


def _globals(function: types.FunctionType) -> list[_Space]:
    """The global variables that a function uses, and those of the program's modules that it uses by name (`config.step`)."""
    names = set(_names_in(function.__code__))
    own = function.__globals__
    spaces = [_Space(id(own), function.__module__, {name: own[name] for name in names if name in own}, own.update)]
    todo = [*spaces[0].values.values(), *_around(function).values.values(), *(sys.modules.get(name) for name in names.difference(own))]
    modules = {id(own)}
    for value in todo:  # which grows
        if isinstance(value, types.ModuleType) and not _is_library(value.__name__) and id(own := vars(value)) not in modules:
            modules.add(id(own))
            spaces.append(_Space(id(own), value.__name__, {name: own[name] for name in names if name in own}, own.update))
            todo += spaces[-1].values.values()
    return spaces


def _defaults(function: types.FunctionType) -> _Space:
    """The arguments that a function has if none are given."""
    code, defaults, named = function.__code__, function.__defaults__ or (), function.__kwdefaults__ or {}
    names = code.co_varnames[code.co_argcount - len(defaults):code.co_argcount]

    def put(values: Mapping[str, Any]) -> None:
        if defaults:
            function.__defaults__ = tuple(values.get(name, value) for name, value in zip(names, function.__defaults__ or ()))
        named.update({name: value for name, value in values.items() if name in named})

    return _Space(id(function), f"{function.__name__}()", {**dict(zip(names, defaults)), **named}, put)


def _bound(value: functools.partial) -> _Space:
    """The arguments that functools.partial has bound."""
    def put(values: Mapping[str, Any]) -> None:
        given = tuple(values.get(str(i), x) for i, x in enumerate(value.args))
        value.__setstate__((value.func, given, {name: values.get(name, x) for name, x in value.keywords.items()}, vars(value)))

    owner = f"partial({getattr(value.func, '__name__', type(value.func).__name__)})"
    return _Space(id(value), owner, {**{str(i): x for i, x in enumerate(value.args)}, **value.keywords}, put)


def _of_class(cls: type) -> _Space:
    def put(values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            if vars(cls).get(name, MISSING) is not value:
                setattr(cls, name, value)

    own = {name: value for name, value in vars(cls).items() if isinstance(value, types.FunctionType) or not name.startswith("__")}
    return _Space(id(cls), cls.__name__, own, put)


def _classes(value: Any) -> list[type]:
    """The program's own of an object."""
    return [cls for cls in type(value).__mro__ if not _is_library(cls.__module__)]


def _around(function: types.FunctionType) -> _Space:
    """The variables of the functions around a function that it uses."""
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))

    def put(values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            cells[name].cell_contents = value

    filled = {name: cell.cell_contents for name, cell in cells.items() if cell != types.CellType()}
    return _Space(id(function), f"{function.__name__}()", filled, put)


def _names_in(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_in(constant)


@functools.cache
def _is_library(module: str | None) -> bool:
    """Whether it came with Python or was installed."""
    file = getattr(sys.modules.get(module or "builtins"), "__file__", None) or ""
    return (module or "builtins").partition(".")[0] in (*sys.stdlib_module_names - {"__main__"}, "torch", "trainc") or "site-packages" in file


def _items(container: Any) -> Iterable[tuple[Any, Any]]:
    return container.items() if isinstance(container, dict) else enumerate(container)


def _parts(value: Any) -> list[Any]:
    """What a function, a list or an object reaches, but for its variables."""
    if isinstance(value, functools.partial):
        return [value.func]
    if isinstance(value, types.MethodType):
        return [value.__func__, value.__self__]
    if isinstance(value, types.FunctionType):
        return []
    if isinstance(value, type):
        return [*value.__mro__]
    if isinstance(value, functools._lru_cache_wrapper):
        return [value.__wrapped__]
    if isinstance(value, staticmethod | classmethod):
        return [value.__func__]
    if isinstance(value, property):
        return [value.fget, value.fset]
    if isinstance(value, CONTAINERS):
        return [] if len(value) > LONGEST else [each for _, each in _items(value)]
    return list(_classes(value))


def _spaces(value: Any) -> list[_Space]:
    """The variables of a function, of a module (and its buffers), of an object or of a class; of functions and objects of libraries none."""
    if isinstance(value, types.FunctionType):
        own = _attributes(value, f"{value.__name__}()", vars(value))
        return [] if _is_library(value.__module__) else [*_globals(value), _around(value), _defaults(value), own]
    if isinstance(value, functools.partial):
        return [_bound(value)]
    if isinstance(value, type):
        return [] if _is_library(value.__module__) else [_of_class(value)]
    owner = type(value).__name__
    if isinstance(value, nn.Module):
        return [_attributes(value, owner, vars(value)), _attributes(value, owner, value._buffers)]
    is_own = isinstance(value, NAMESPACES) or not _is_library(type(value).__module__)
    return [_attributes(value, owner, vars(value))] if hasattr(value, "__dict__") and is_own else []


def _reached(model: nn.Module, function: Callable[..., Any]) -> Iterator[_Space]:
    """The attributes of a model's modules, and the variables of whatever the function and they reach."""
    modules = dict(model.named_modules())
    spaces = [_attributes(m, type(model).__name__, vars(m), f"{name}." if name else "") for name, m in modules.items()]
    seen = {id(m) for m in modules.values()}
    most = MOST + len(seen)
    todo = collections.deque([function, *itertools.chain.from_iterable(map(_parts, modules.values()))])
    while True:
        for space in spaces:
            todo += space.values.values()
            yield space
        if not todo or len(seen) > most:
            return
        value, spaces = todo.popleft(), []
        if id(value) not in seen and not isinstance(value, PLAIN | torch.Tensor | types.ModuleType):
            seen.add(id(value))
            todo += _parts(value)
            spaces = _spaces(value)


def _state(value: Any) -> Any:
    """Of a generator of Python or NumPy and of an iterator what it gives next, of a set how much it holds."""
    if isinstance(value, random.Random):
        return repr(value.getstate())
    if hasattr(type(value), "bit_generator"):
        return repr(value.bit_generator.state)
    if isinstance(value, itertools.count):
        return repr(value)
    return len(value) if isinstance(value, set) else value


def _is_plain(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return isinstance(value, PLAIN) or bool(numpy) and isinstance(value, numpy.generic)


def _values_in(name: Name, value: Any) -> Iterator[tuple[Name, Any]]:
    value = _state(value)
    if _is_plain(value) or isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, CONTAINERS):
        items = _items(value)
        if len(value) > LONGEST:
            yield name._replace(path=f"{name.path}[:]"), len(value)
            items = [] if isinstance(value, dict) else [(i, value[i]) for i in (*range(ENDS), *range(-ENDS, 0))]
        for key, each in items:
            yield from _values_in(name._replace(path=f"{name.path}[{key!r}]"), each)


def _tensors_in(value: Any) -> list[torch.Tensor] | None:
    """Those of a number, a word, a tensor, or lists and dicts of them; None of others."""
    if type(value) in CONTAINERS:
        parts = [_tensors_in(each) for _, each in _items(value)] if len(value) <= LONGEST else [None]
        return None if None in parts else [x for part in parts for x in part or ()]
    return [value] if isinstance(value, torch.Tensor) else [] if _is_plain(value) else None


def _copied(value: Any, tensors: Mapping[int, torch.Tensor], made: dict[int, Any]) -> Any:
    """Lists and dicts as others, with `tensors` by id in place of those; `made` are the copies by id, as one may have several names."""
    if not isinstance(value, CONTAINERS):
        return tensors.get(id(value), value)
    if id(value) in made:
        return made[id(value)]
    if isinstance(value, tuple):
        return tuple(_copied(each, tensors, made) for each in value)
    copied = made[id(value)] = copy.copy(value)
    for key, each in _items(value):
        copied[key] = _copied(each, tensors, made)
    return copied


def _placed(name: Name, value: Any, numbers: Mapping[Name, Any]) -> Any:
    """A value, or a copy of a list or dict of the caller's own, with `numbers` by name in it."""
    if name in numbers:
        return numbers[name]
    if isinstance(value, CONTAINERS) and not isinstance(value, tuple) and any(each.path.startswith(f"{name.path}[") for each in numbers):
        for key, each in _items(value):
            value[key] = _placed(name._replace(path=f"{name.path}[{key!r}]"), each, numbers)
    return value


def _differ(a: Any, b: Any) -> bool:
    return a is not b and (isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor) or a != b)


class Attributes:
    """The numbers, words and tensors in attributes of a model's modules and in what the loss reads from around it, and in lists and dicts
    there, by name, at one time."""

    def __init__(self, model: nn.Module, function: Callable[..., Any]) -> None:
        self.values: dict[Name, Any] = {}
        self._reached = functools.partial(_reached, model, function)
        self._kept: list[tuple[_Space, dict[str, Any]]] = []
        copies: dict[int, Any] = {}
        for space in self._reached():
            own = {key: value for key, value in space.values.items() if key not in STANDARD}
            for key, value in own.items():
                self.values |= _values_in(space.name(key), value)
            self._kept.append((space, {key: _copied(value, {}, copies) for key, value in own.items() if _tensors_in(value) is not None}))

    def changed(self, later: Attributes) -> list[Name]:
        return [name for name in {**self.values, **later.values} if _differ(self.values.get(name, MISSING), later.values.get(name, MISSING))]

    @contextlib.contextmanager
    def restored(self, made: Mapping[int, torch.Tensor], numbers: Mapping[Name, Any]) -> Iterator[None]:
        """What was reached, with numbers and words as they were at that time, but for `numbers`, and the values of tensors that a capture had
        made, by id."""
        now, copies = list(self._reached()), {}
        for space, kept in self._kept:
            space.put({key: _placed(space.name(key), _copied(value, made, copies), numbers) for key, value in kept.items()
                       if all(type(x) is torch.Tensor or id(x) in made for x in _tensors_in(value) or ())})
        try:
            yield
        finally:
            for space in now:
                space.put_back()
