"""What later calls of a forward would compute otherwise, which is refused: it is captured again, as the last call has left it."""
from __future__ import annotations

import collections
import types
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

import torch

from ..errors import UnsupportedError
from .attributes import Attributes, Name
from .counts import Asked
from .gradients import A_BUFFER
from .graphs import constants_read, same, same_variable
from .known import KnownValues


class Call(NamedTuple):
    """What was kept from call to call before and after one, and what the capture knew of it."""

    before: Attributes
    after: Attributes
    known: KnownValues

    def changed(self) -> list[Name]:
        """Tensors that others replace last, as most are only kept to be looked at."""
        sides = self.before.values, self.after.values
        return sorted(self.before.changed(self.after), key=lambda name: all(isinstance(values.get(name), torch.Tensor) for values in sides))

    def counts(self) -> dict[Name, int | float]:
        """The numbers that changed, as they were after the call."""
        sides = self.before.values, self.after.values
        return {name: self.after.values[name] for name in self.changed() if all(type(values.get(name)) in (int, float) for values in sides)}

    def grows(self, name: Name) -> bool:
        return self.after.values[name] > self.before.values[name]

    def made(self) -> dict[Name, torch.Tensor]:
        return {name: x for name in self.changed() if isinstance(x := self.after.values.get(name), torch.Tensor) and not x.is_sparse
                and all(isinstance(n, int) for n in x.shape)}


QUESTIONS = {torch.equal, torch.allclose, torch.is_nonzero, *(getattr(torch.Tensor, name) for name in (
    "item", "tolist", "numpy", "__array__", "__bool__", "__int__", "__float__", "__index__", "__contains__", "equal", "allclose", "is_nonzero"))}


class Known(KnownValues):
    """But for tensors whose values the capture has made up; `asked` are those of them whose values Python has asked for, by id."""

    def __init__(self, unknown: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self._unknown = {id(x): x for x in unknown}
        self.asked: set[int] = set()

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in QUESTIONS:
            self.asked |= self._unknown.keys() & set(map(id, args))
        return super().__torch_function__(function, types, args, kwargs)

    def value(self, x: Any) -> torch.Tensor | None:
        return None if id(x) in self._unknown else super().value(x)


Again = Callable[[], torch.export.ExportedProgram | None]


def _called_again(seen: types.SimpleNamespace, again: Again, numbers: Mapping[Name, Any] | None = None) -> torch.export.ExportedProgram | None:
    """The graph of one more call, with `numbers` in place of those that the last one left; refused if it reads tensors that that one computed."""
    call = seen.call
    known, made = call.known, call.made()
    values = {name: known.value(x) if known.knows(x) else torch.zeros(x.shape, dtype=x.dtype) for name, x in made.items()}
    unknown = {name: values[name] for name, x in made.items() if not known.knows(x)}
    seen.unknown = list(unknown.values())
    seen.lazy = [(m, name, x if type(x) is torch.Tensor else known.value(x)) for m, name, x in seen.lazy]
    with call.after.restored({id(x): values[name] for name, x in made.items()}, numbers or {}):
        program = again()
    read = seen.known.asked.union(constants_read(program))
    if kept := [name for name, x in unknown.items() if id(x) in read]:
        raise UnsupportedError(f"{kept[0].attribute()} is computed by one call and read by the next: expected {A_BUFFER}")
    return program


def refuse_changing(seen: types.SimpleNamespace, program: torch.export.ExportedProgram, read: Collection[int], again: Again) -> None:
    """Refuses what each call reads and changes: a tensor that is a constant of the graph, or a number in a graph that is another one in each
    call; and what the first call alone computes. `seen` is of the last call, `read` are the constants that the graph uses, by id."""
    first = seen.call
    changed = first.changed()
    begun = [*changed, *(Name(name, type(m).__name__, id(m)) for m, name, _ in seen.lazy)]
    wrong = [name for name in changed if id(first.before.values.get(name)) in read]
    asked = {name: Asked(number) for name, number in first.counts().items()}
    second = _called_again(seen, again, {name: one.number for name, one in asked.items()}) if begun and not wrong else program
    others = {name: dict(one.others) for name, one in asked.items()}
    counted = seen.call.changed() if asked else []
    if not wrong and not same(program, second) and (twice := seen.call.changed()):
        wrong = [] if same(second, _called_again(seen, again)) else twice
    if wrong:
        _refuse_counted(wrong[0])
    if second:
        _refuse_counts(seen, first, second, {name: others[name] for name in counted if name in others}, again)
    if not second or not same_variable(program, second):
        raise UnsupportedError(f"{begun[0].attribute()} changes in the first call, and later calls compute something else: expected a call "
                               "of the model before the export")
    seen.call = first


def _refuse_counted(name: Name) -> None:
    raise UnsupportedError(f"{name.attribute()} changes in each call, and what is computed depends on it: the step would keep the value of "
                           f"the export; expected {A_BUFFER}")


TRIED = 16, 3  # captures for one number, and for one answer: another condition may stand behind it


def _refuse_counts(seen: types.SimpleNamespace, first: Call, second: torch.export.ExportedProgram, others: Mapping[Name, Mapping[Any, Any]],
                   again: Again) -> None:
    """Refuses numbers on which the graph depends in later calls: it is captured with `others`, for which what was asked has other answers, as far
    as calls come there."""
    for name, numbers in others.items():
        start, tried, answers = first.after.values[name], set(), collections.Counter[Any]()
        todo = sorted(numbers.items(), key=lambda item: item[0])
        for number, answer in todo:  # which grows
            if number in tried or number == start or (number > start) != first.grows(name) or answers[answer] == TRIED[1]:
                continue
            if len(tried) == TRIED[0]:
                raise UnsupportedError(f"{name.attribute()} changes in each call, and what is computed may depend on it: there are other answers to what "
                                       f"is asked of it with more than {TRIED[0]} values; expected {A_BUFFER}")
            tried.add(number)
            answers[answer] += 1
            seen.call, asked = first, Asked(number)
            if not same(second, _called_again(seen, again, {name: asked.number})):
                _refuse_counted(name)
            todo += sorted(asked.others.items(), key=lambda item: item[0])


def refuse_aliases(constants: Iterable[torch.Tensor], changing: Iterable[tuple[str, torch.Tensor]], kept: Attributes) -> None:
    """Refuses constants in the memory of what a step changes; those that are `kept` have names."""
    places = {x.untyped_storage()._cdata: name for name, x in changing if x.numel()}
    for constant in constants:
        if of := places.get(constant.untyped_storage()._cdata):
            name = next((name for name, x in kept.values.items() if x is constant), "a constant")
            raise UnsupportedError(f"{name} is in the memory of {of}, which a step changes: expected {of} itself, or memory of its own (clone())")
