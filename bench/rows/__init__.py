"""The rows of the check, one module per group. A row is a function that measures and returns an `Outcome`."""
from dataclasses import dataclass
from typing import Callable


@dataclass(frozen=True)
class Outcome:
    value: str
    status: str  # ok, short, too noisy, or "cannot run here (why)"


def judge(good, value):
    return Outcome(value, "ok" if good else "short")


@dataclass(frozen=True)
class Row:
    name: str
    figure: str
    bar: str
    measure: Callable[[str], Outcome]  # gets an empty folder
