"""Functions of the count of updates, as `torch.optim.lr_scheduler.LambdaLR` takes them, as formulas: they are run once for each way through
their conditions, with a value that notes what is done to it in place of the count."""
from __future__ import annotations

import builtins
import functools
import math
import types
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

MOST_PATHS = 64
CHECKED = [*range(1000), *(int(10 ** (k / 8)) for k in range(24, 49))]  # counts, up to 1e6
# Functions of Python's math, as the dialect calls them.
UNARY = {"cos": "cos", "sin": "sin", "tanh": "tanh", "exp": "exp", "log": "log", "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "trunc": "trunc",
         "fabs": "absf"}


class NoFormulaError(Exception):
    """Says why a function has none."""


class Formula(NamedTuple):
    """kind: "t", "number" (of a number), "unary" or "binary" (of a word and formulas), "power" (of formulas) or "where" (of formulas:
    the second where the first is negative, else the third)."""

    kind: str
    parts: tuple[Any, ...] = ()

    def emit(self, r: Any, t: Any, made: dict[int, Any] | None = None) -> Any:
        """Its value at count `t` by region `r`; if that computes with numbers, of one way through the conditions."""
        made = {} if made is None else made
        if id(self) not in made:
            kind, parts = self
            if kind == "t":
                value = t
            elif kind == "number":
                value = r.number(parts[0])
            elif kind == "where":
                negative, then, other = parts
                difference = negative.emit(r, t, made)
                if isinstance(difference, int | float):
                    value = (then if difference < 0 else other).emit(r, t, made)
                else:
                    value = r.where(difference, "olt", 0.0, then.emit(r, t, made), other.emit(r, t, made))
            else:
                value = getattr(r, kind)(*(p.emit(r, t, made) if isinstance(p, Formula) else p for p in parts))
            made[id(self)] = value
        return made[id(self)]


class _UndecidedError(Exception):
    """At a condition that no run has met: whether `formula` is negative."""

    def __init__(self, formula: Formula) -> None:
        self.formula = formula


def _formula(value: Any) -> Formula:
    if isinstance(value, _Noted):
        return value.formula
    if isinstance(value, bool | int | float) or hasattr(value, "__float__"):
        return Formula("number", (float(value),))
    raise NoFormulaError(f"it computes with a {type(value).__name__}")


class _Noted:
    """Stands for a number. `answers` are those to the conditions of this run, in order."""

    def __init__(self, formula: Formula, answers: list[bool]) -> None:
        self.formula, self._answers = formula, answers

    def _made(self, kind: str, *parts: Any) -> _Noted:
        return _Noted(Formula(kind, parts), self._answers)

    def _binary(self, kind: str, a: Any, b: Any) -> _Noted:
        return self._made("binary", kind, _formula(a), _formula(b))

    def unary(self, kind: str) -> _Noted:
        return self._made("unary", kind, self.formula)

    def _negative(self) -> bool:
        if not self._answers:
            raise _UndecidedError(self.formula)
        return self._answers.pop(0)

    def __add__(self, other: Any) -> _Noted:
        return self._binary("addf", self, other)

    def __sub__(self, other: Any) -> _Noted:
        return self._binary("subf", self, other)

    def __rsub__(self, other: Any) -> _Noted:
        return self._binary("subf", other, self)

    def __mul__(self, other: Any) -> _Noted:
        return self._binary("mulf", self, other)

    __radd__, __rmul__ = __add__, __mul__

    def __truediv__(self, other: Any) -> _Noted:
        return self._binary("divf", self, other)

    def __rtruediv__(self, other: Any) -> _Noted:
        return self._binary("divf", other, self)

    def __floordiv__(self, other: Any) -> _Noted:
        return (self / other).unary("floor")

    def __rfloordiv__(self, other: Any) -> _Noted:
        return (other / self).unary("floor")

    def __mod__(self, other: Any) -> _Noted:
        return self - self // other * other

    def __rmod__(self, other: Any) -> _Noted:
        return other - other // self * self

    def __pow__(self, other: Any) -> _Noted:
        return self._made("power", self.formula, _formula(other))

    def __rpow__(self, other: Any) -> _Noted:
        return self._made("power", _formula(other), self.formula)

    def __neg__(self) -> _Noted:
        return self * -1.0

    def __pos__(self) -> _Noted:
        return self

    def __abs__(self) -> _Noted:
        return self.unary("absf")

    def __round__(self, digits: int | None = None) -> _Noted:
        if digits:
            raise NoFormulaError("it rounds to digits")
        return self.unary("roundeven")

    def __floor__(self) -> _Noted:
        return self.unary("floor")

    def __ceil__(self) -> _Noted:
        return self.unary("ceil")

    def __trunc__(self) -> _Noted:
        return self.unary("trunc")

    def __lt__(self, other: Any) -> bool:
        return (self - other)._negative()

    def __gt__(self, other: Any) -> bool:
        return (other - self)._negative()

    def __le__(self, other: Any) -> bool:
        return not self > other

    def __ge__(self, other: Any) -> bool:
        return not self < other

    def __eq__(self, other: object) -> bool:
        return not self < other and not self > other

    def __bool__(self) -> bool:
        return self != 0

    def __float__(self) -> float:
        raise NoFormulaError("it needs the count as a number: for a function, a list or an object that it does not compute itself")

    __int__ = __index__ = __float__  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


def _log(x: Any, *base: Any) -> Any:
    found = x.unary("log") if isinstance(x, _Noted) else math.log(x)
    return found / _log(*base) if base else found


# Of others by those, and by math's arguments.
COMPOSED: dict[str, Callable[..., Any]] = {
    "log": _log, "log10": lambda x: _log(x, 10), "log2": lambda x: _log(x, 2), "log1p": lambda x: _log(x + 1), "pow": lambda a, b: a ** b,
    "exp2": lambda x: 2.0 ** x, "expm1": lambda x: x.unary("exp") - 1, "tan": lambda x: x.unary("sin") / x.unary("cos"),
    "hypot": lambda *x: sum(a * a for a in x) ** 0.5}

for _name, _kind in UNARY.items():  # np.cos of an object is its method
    setattr(_Noted, _name, functools.partialmethod(_Noted.unary, _kind))
for _name in ("log10", "log2", "log1p", "exp2", "expm1", "tan"):
    setattr(_Noted, _name, COMPOSED[_name])


def _lifted(function: Callable[..., Any], of_noted: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: of_noted(*args) if any(isinstance(x, _Noted) for x in args) else function(*args)


_LIFTED: dict[Any, Any] = {function: _lifted(function, functools.partial(_Noted.unary, kind=kind))
                           for function, kind in ((getattr(math, name), kind) for name, kind in UNARY.items())}
_LIFTED |= {getattr(math, name): _lifted(getattr(math, name), composed) for name, composed in COMPOSED.items()}
_LIFTED |= {float: _lifted(float, lambda x: x), int: _lifted(int, math.trunc)}
_MATH = types.SimpleNamespace(**{name: _LIFTED.get(value, value) if callable(value) else value for name, value in vars(math).items()})


def _noting(value: Any, made: dict[int, Any]) -> Any:
    """A function in whose text float, int and the functions of math take what stands for a number, too; other values as they are."""
    if value is math:
        return _MATH
    if isinstance(value, functools.partial):
        return functools.partial(_noting(value.func, made), *value.args, **value.keywords)
    if isinstance(value, types.MethodType):
        return types.MethodType(_noting(value.__func__, made), value.__self__)
    if not isinstance(value, types.FunctionType):
        own = callable(value) and not isinstance(value, type | types.BuiltinFunctionType) and isinstance(type(value).__call__, types.FunctionType)
        if own:
            return types.MethodType(_noting(type(value).__call__, made), value)
        return _LIFTED.get(value, value) if isinstance(value, type | types.BuiltinFunctionType) else value
    if id(value) not in made:
        scope = dict(value.__globals__)
        cells = tuple(types.CellType() for _ in value.__closure__ or ())
        made[id(value)] = function = types.FunctionType(value.__code__, scope, value.__name__, value.__defaults__, cells)
        function.__kwdefaults__ = value.__kwdefaults__
        for name in value.__code__.co_names:
            if name in scope or hasattr(builtins, name):
                scope[name] = _noting(scope.get(name, getattr(builtins, name, None)), made)
        for cell, theirs in zip(cells, value.__closure__ or ()):
            cell.cell_contents = _noting(theirs.cell_contents, made)
    return made[id(value)]


def _explored(function: Callable[[Any], Any], answers: Sequence[bool], paths: list[None]) -> Formula:
    try:
        return _formula(function(_Noted(_COUNT, list(answers))))
    except _UndecidedError as condition:
        paths.append(None)
        if len(paths) >= MOST_PATHS:
            raise NoFormulaError(f"it has more than {MOST_PATHS} ways through its conditions") from None
        then, other = (_explored(function, [*answers, answer], paths) for answer in (True, False))
        return Formula("where", (condition.formula, then, other))


_COUNT = Formula("t")


def formula_of(function: Callable[[int], Any], numbers: Any) -> Formula:
    """NoFormulaError if it has none: if it looks into a table, or depends on more than the count. `numbers` is a region of numbers."""
    try:
        found = _explored(_noting(function, {}), (), [])
        for t in CHECKED:
            try:
                expected = float(function(t))
            except OverflowError:  # which ends PyTorch's training, too
                break
            got = float(found.emit(numbers, float(t)))
            if not math.isclose(got, expected, rel_tol=1e-9, abs_tol=1e-12):
                raise NoFormulaError(f"it gives {expected} after {t} updates, where what it does with the count gives {got}")
    except NoFormulaError:
        raise
    except Exception as error:
        raise NoFormulaError(f"{type(error).__name__}: {error}") from None
    return found
