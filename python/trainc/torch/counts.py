"""Numbers that change from call to call, with what is asked about them: by a comparison's other answer one knows for which number a forward may
compute something else."""
from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

FAR = 7, 100, 10_000, 1_000_000  # behind a number of which something is asked that is not followed
FLIPS: dict[str, tuple[Callable[[Any, Any], bool], int, int]] = {  # the numbers beside that one, at which it is false and true
    "__lt__": (operator.lt, 0, -1), "__le__": (operator.le, 1, 0), "__gt__": (operator.gt, 0, 1), "__ge__": (operator.ge, -1, 0),
    "__eq__": (operator.eq, 1, 0), "__ne__": (operator.ne, 0, 1)}
# Of x + k and so on with a number k: x, of the result r and of the x that there is.
INVERSES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "__add__": lambda r, k, x: r - k, "__radd__": lambda r, k, x: r - k, "__sub__": lambda r, k, x: r + k, "__rsub__": lambda r, k, x: k - r,
    "__mul__": lambda r, k, x: r / k, "__rmul__": lambda r, k, x: r / k, "__truediv__": lambda r, k, x: r * k,
    "__floordiv__": lambda r, k, x: r * k, "__mod__": lambda r, k, x: x + ((r - x) % k or k), "__neg__": lambda r, k, x: -r}
LOST = ("pow rpow rtruediv rfloordiv rmod divmod rdivmod lshift rshift and or xor rand ror rxor rlshift rrshift invert abs round trunc floor ceil "
        "int float hash").split()  # results of which are plain numbers


class Asked:
    """Of a number: for which others what was asked has another answer."""

    def __init__(self, number: int | float) -> None:
        self.number = _KINDS[type(number)](number)
        self.number.asked, self.number.back = self, lambda x: x
        self.others: dict[int | float, Any] = {}  # and for what answer to what question

    def note(self, x: Any, answer: Any) -> None:
        if math.isfinite(x):
            self.others |= dict.fromkeys({math.floor(x), math.ceil(x)} if isinstance(self.number, int) else {float(x)}, answer)

    def lost(self) -> None:
        for far in FAR:
            self.note(plain_of(self.number) + far, far)


class _Number:
    """A number, with the number `back` at which it is another one."""

    asked: Asked
    back: Callable[[Any], Any]

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, _: Any) -> Any:
        return self

    def __reduce__(self) -> Any:
        return type(self).__mro__[2], (plain_of(self),)

    def __bool__(self) -> bool:
        return self != 0


def plain_of(x: Any) -> Any:
    """Without what is asked about it."""
    return type(x).__mro__[2](_own(x, "__repr__")()) if isinstance(x, _Number) else x


def _own(x: _Number, name: str) -> Callable[..., Any]:
    return getattr(super(_Number, x), name)


def _compared(name: str) -> Callable[[Any, Any], Any]:
    holds, if_not, if_so = FLIPS[name]

    def compare(self: _Number, other: Any) -> Any:
        answer = _own(self, name)(plain_of(other))
        if isinstance(other, _Number) or answer is NotImplemented and not isinstance(other, str | None):
            self.asked.lost()
        elif answer is not NotImplemented:
            distance = 1 if isinstance(self, int) and isinstance(other, int) else 1e-6 * max(1, abs(other))
            self.asked.note(self.back(other + distance * (if_not if answer else if_so)), (name, other, not answer))
        return answer

    return compare


def _computed(name: str) -> Callable[..., Any]:
    inverse = INVERSES[name]

    def compute(self: _Number, *others: Any) -> Any:
        result = _own(self, name)(*map(plain_of, others))
        k, x = (others or (0,))[0], plain_of(self)
        if type(result) not in _KINDS or isinstance(k, _Number) or "mul" in name and not k:
            self.asked.lost()
            return result
        result = _KINDS[type(result)](result)
        result.asked, result.back = self.asked, lambda r: self.back(inverse(r, k, x))
        return result

    return compute


def _lost(name: str) -> Callable[..., Any]:
    def compute(self: _Number, *others: Any) -> Any:
        self.asked.lost()
        return _own(self, name)(*map(plain_of, others))

    return compute


def _kind(plain: type) -> type:
    names = {**{name: _compared(name) for name in FLIPS}, **{name: _computed(name) for name in INVERSES},
             **{name: _lost(name) for name in (f"__{x}__" for x in LOST) if hasattr(plain, name)}}
    return type(plain.__name__, (_Number, plain), names)


_KINDS = {int: _kind(int), float: _kind(float)}
