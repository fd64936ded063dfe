"""The rows of the check, one module per group. A row is a function that measures and returns an `Outcome`."""
import statistics
from dataclasses import dataclass
from typing import Callable

from timing import STEADY


@dataclass(frozen=True)
class Outcome:
    value: str
    status: str  # ok, short, too noisy, or "cannot run here (why)"


def judge(good, value):
    return Outcome(value, "ok" if good else "short")


def judge_ratios(ratios, good, moved):
    """The status of a bar for the median; if the limit moved too much, only what every round agrees on counts."""
    if moved > STEADY and len({good(r) for r in ratios}) > 1:
        return "too noisy"
    return "ok" if good(statistics.median(ratios)) else "short"


def worst(statuses):
    return next(s for s in ("short", "too noisy", "ok") if s in statuses)


@dataclass(frozen=True)
class Row:
    name: str
    figure: str
    bar: str
    measure: Callable[[str], Outcome]  # gets an empty folder
