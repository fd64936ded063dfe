"""Scalar regions: schedules and optimizers that the dialect has no name for."""
from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from .emit import attributes, compute_type, number, symbol
from .errors import UnsupportedError


class ScheduleRegion:
    """Operations on f64 scalars, of the count of updates %t; methods return the name of their result."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._made: dict[str, str] = {}

    def op(self, text: str) -> str:
        if text not in self._made:
            self._made[text] = f"%{len(self.lines)}"
            self.lines.append(f"  {self._made[text]} = {text}")
        return self._made[text]

    def number(self, value: float) -> str:
        return self.op(f"arith.constant {number(value)} : f64")

    def binary(self, kind: str, a: str, b: str | float) -> str:
        return self.op(f"arith.{kind} {a}, {b if isinstance(b, str) else self.number(b)} : f64")

    def unary(self, kind: str, a: str) -> str:
        return self.op(f"math.{kind} {a} : f64")

    def power(self, base: str | float, exponent: str | float) -> str:
        base, exponent = (x if isinstance(x, str) else self.number(x) for x in (base, exponent))
        return self.op(f"math.powf {base}, {exponent} : f64")

    def where(self, a: str, kind: str, b: float, then: str, other: str) -> str:
        """`then` where `a kind b`, else `other`; kind is olt, oge, ..."""
        condition = self.op(f"arith.cmpf {kind}, {a}, {self.number(b)} : f64")
        return self.op(f"arith.select {condition}, {then}, {other} : f64")

    def text(self, name: str, result: str) -> str:
        """The schedule of that name."""
        return "\n".join([f"train.schedule {symbol(name)}(%t: f64) {{", *self.lines, f"  train.yield {result} : f64", "}"])


class Numbers:
    """The same on numbers: the value itself."""

    number = float
    unary = staticmethod(lambda kind, a: ({"absf": abs, "roundeven": round}.get(kind) or getattr(math, kind))(a))
    power = staticmethod(lambda base, exponent: base ** exponent)
    where = staticmethod(lambda a, kind, b, then, other: then if (a < b if kind == "olt" else a >= b) else other)

    @staticmethod
    def binary(kind: str, a: float, b: float) -> float:
        if kind == "divf":
            return a / b
        return {"addf": a + b, "subf": a - b, "mulf": a * b, "minimumf": min(a, b), "maximumf": max(a, b)}[kind]


def linear_between(r: Any, share: Any, first: float, last: float) -> Any:
    """From `first` to `last` while `share` goes from 0 to 1; r is a ScheduleRegion or Numbers."""
    return r.binary("addf", r.binary("mulf", share, last - first), first)


def cosine_between(r: Any, share: Any, first: float, last: float) -> Any:
    """The same by last + (first - last) (1 + cos(pi share)) / 2."""
    wave = r.binary("addf", r.unary("cos", r.binary("mulf", share, math.pi)), 1.0)
    return r.binary("addf", r.binary("mulf", wave, (first - last) / 2), last)


class UpdateRegion:
    """An optimizer as a scalar region on one element of a parameter of one type; `t` is the count of updates with this one, `lr` the learning
    rate. `numbers` are more scalars of the step, or symbols of schedules, which are f64 values of their names here."""

    def __init__(self, dtype: str, numbers: Mapping[str, float | str]):
        self.dtype, self.numbers, self.lines, self._next = dtype, numbers, [], 0
        self.lr, self.t = self.narrow("%lr"), "%t"

    @classmethod
    def of(cls, dtypes: Iterable[str], numbers: Mapping[str, float | str] = {}) -> UpdateRegion:
        """One in the type in which parameters of these types are computed."""
        types = sorted({compute_type(dtype) for dtype in dtypes})
        if len(types) > 1:
            raise UnsupportedError(f"parameters of one group in {' and '.join(types)}: expected one type")
        return cls(types[0], numbers)

    def op(self, name: str, *operands: str, dtype: str | None = None) -> str:
        self._next += 1
        self.lines.append(f"  %{self._next} = {name} {', '.join(operands)} : {dtype or self.dtype}")
        return f"%{self._next}"

    def number(self, value: float, dtype: str | None = None) -> str:
        return self.op("arith.constant", number(value), dtype=dtype)

    def hyper(self, name: str) -> str:
        """One of the numbers, in the region's type."""
        return self.narrow(f"%{name}")

    def narrow(self, x: str) -> str:
        """An f64 in the region's type."""
        return x if self.dtype == "f64" else self.op("arith.truncf", x, dtype=f"f64 to {self.dtype}")

    def add(self, a: str, b: str) -> str:
        return self.op("arith.addf", a, b)

    def sub(self, a: str, b: str) -> str:
        return self.op("arith.subf", a, b)

    def mul(self, a: str, b: str) -> str:
        return self.op("arith.mulf", a, b)

    def div(self, a: str, b: str) -> str:
        return self.op("arith.divf", a, b)

    def wide(self, name: str, *operands: str | float) -> str:
        """An operation on f64."""
        return self.op(name, *(x if isinstance(x, str) else self.number(x, "f64") for x in operands), dtype="f64")

    def less_from_one(self, x: str) -> str:
        """1 - x, of f64, in the region's type."""
        return self.narrow(self.wide("arith.subf", 1.0, x))

    def moment(self, old: str, new: str, decay: str) -> str:
        """decay old + (1 - decay) new; `decay` is the name of a number."""
        return self.add(self.mul(self.hyper(decay), old), self.mul(self.less_from_one(f"%{decay}"), new))

    def text(self, name: str, states: dict[str, float], rate: str, results: list[str], words: str = "") -> str:
        """The optimizer of that name; `words` such as " ema(0.9)" stand before its region."""
        scalars = {"lr": rate, "t": '"update"', **self.numbers}
        arguments = ", ".join([*(f"%{x}: {self.dtype}" for x in ("p", "g", *states)), *(f"%{x}: f64" for x in scalars)])
        kept = ", ".join(f"{state} = {number(value)}" for state, value in states.items())
        head = f"train.optimizer {symbol(name)}({arguments}) state({kept}) hyper({attributes(scalars, {})}){words} {{"
        return "\n".join([head, *self.lines, f"  train.yield {', '.join(results)} : {', '.join([self.dtype] * len(results))}", "}"])
