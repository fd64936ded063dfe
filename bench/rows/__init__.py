"""The rows of the check, one module per group. A row is a function that measures and returns an `Outcome`."""
import math
import statistics
import time
from dataclasses import dataclass
from typing import Callable

from timing import STEADY


@dataclass(frozen=True)
class Outcome:
    value: str
    status: str  # ok, short, too noisy, or "cannot run here (why)"


def judge(good, value):
    return Outcome(value, "ok" if good else "short")


def agree(verdicts):
    """Whether rounds that are good or not show that the median is, or is not: all are alike, or a sign test (two-sided, 5 %) says so."""
    n, fewer = len(verdicts), min(sum(verdicts), len(verdicts) - sum(verdicts))
    return fewer == 0 or 2 * sum(math.comb(n, k) for k in range(fewer + 1)) <= 0.05 * 2**n


def judge_ratios(ratios, good, moved):
    """The status of a bar for the median; if the limit moved too much, only what the rounds agree on counts."""
    if moved > STEADY and not agree([good(r) for r in ratios]):
        return "too noisy"
    return "ok" if good(statistics.median(ratios)) else "short"


def worst(statuses):
    return next(s for s in ("short", "too noisy", "ok") if s in statuses)


def within(minutes, measure):
    """What `measure` finds, short if it takes longer."""
    def timed(folder):
        start = time.perf_counter()
        outcome = measure(folder)
        took = (time.perf_counter() - start) / 60
        return Outcome(f"{outcome.value}; {took:.1f} of {minutes} minutes", outcome.status if took <= minutes else "short")

    return timed


@dataclass(frozen=True)
class Row:
    name: str
    figure: str
    bar: str
    measure: Callable[[str], Outcome]  # gets an empty folder
