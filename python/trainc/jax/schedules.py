"""Schedules of learning rates with optax's names, arguments and formulas: as kinds of the dialect where it has them, else as scalar regions.

A schedule here can be read and is called as one of optax is: `schedule(count)` is the rate after `count` updates, in f64.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..emit import attributes, symbol
from ..errors import InvalidArgumentError, UnsupportedError
from ..regions import Numbers, ScheduleRegion, cosine_between, linear_between

__all__ = ["Schedule", "constant_schedule", "cosine_decay_schedule", "cosine_onecycle_schedule", "exponential_decay", "join_schedules",
           "linear_onecycle_schedule", "linear_schedule", "piecewise_constant_schedule", "piecewise_interpolate_schedule", "polynomial_schedule",
           "sgdr_schedule", "warmup_constant_schedule", "warmup_cosine_decay_schedule", "warmup_exponential_decay_schedule"]


@dataclass(frozen=True)
class Schedule:
    """`kind` is one of the dialect's, or "polynomial", "steps", "interpolated" or "joined"; its arguments are in order."""

    kind: str
    arguments: tuple[tuple[str, Any], ...]

    def __call__(self, count: Any) -> float:
        return float(self.value(Numbers(), float(count)))

    def value(self, r: Any, t: Any) -> Any:
        """The rate after `t` updates by operations of `r`."""
        return RULES[self.kind](r, t, **dict(self.arguments))

    def text(self, name: str) -> str:
        """The schedule of that name in a module."""
        if self.kind not in NAMED:
            region = ScheduleRegion()
            return region.text(name, self.value(region, "%t"))
        numbers = {k: v for k, v in self.arguments if not isinstance(v, bool)}
        flags = {k: v for k, v in self.arguments if isinstance(v, bool)}
        return f"train.schedule {symbol(name)} = {self.kind}<{attributes(numbers, flags)}>"


def numbers_of(function: str, **values: Any) -> dict[str, float]:
    """The arguments of one of optax's functions as numbers; any else are refused."""
    result = {}
    for name, value in values.items():
        try:
            result[name] = math.nan if isinstance(value, str | bytes) else float(value)
        except (TypeError, ValueError):  # of what JAX traces, too
            result[name] = math.nan
        if not math.isfinite(result[name]):
            raise UnsupportedError(f"{function}: {name} is {value!r}, expected a finite number")
    return result


def schedule_of(function: str, value: Any) -> Schedule:
    if not isinstance(value, Schedule):
        raise UnsupportedError(f"{function}: {value!r} is no schedule of trainc.jax: what another function computes cannot be read; expected one of "
                               f"{', '.join(name for name in __all__ if name != 'Schedule')}")
    return value


# Rules: (region, updates done, arguments) -> the rate.

def _constant(r: Any, t: Any, value: float) -> Any:
    return r.number(value)


def _polynomial(r: Any, t: Any, init: float, end: float, steps: float, begin: float, power: float = 1.0) -> Any:
    done = r.binary("minimumf", r.binary("maximumf", r.binary("subf", t, begin), 0.0), steps)
    left = r.binary("subf", r.number(1.0), r.binary("divf", done, steps))
    return r.binary("addf", r.binary("mulf", left if power == 1 else r.power(left, power), init - end), end)


def _cosine(r: Any, t: Any, init: float, steps: float, alpha: float, exponent: float) -> Any:
    wave = cosine_between(r, r.binary("divf", r.binary("minimumf", t, steps), steps), 1.0, 0.0)
    return r.binary("mulf", r.binary("addf", r.binary("mulf", r.power(wave, exponent), 1 - alpha), alpha), init)


def _warmup_cosine(r: Any, t: Any, peak: float, warmup: float, total: float, init: float, end: float, exponent: float) -> Any:
    decay = cosine_decay_schedule(peak, total - warmup, end / peak if peak else 0.0, exponent)
    return _joined(r, t, (linear_schedule(init, peak, warmup), decay), (warmup,))


def _exponential(r: Any, t: Any, init: float, steps: float, rate: float, begin: float, end: float | None, staircase: bool) -> Any:
    since = r.binary("subf", t, begin)
    exponent = r.binary("divf", since, steps)
    power = r.power(rate, r.unary("floor", exponent) if staircase else exponent)
    value = r.where(since, "olt", 0.0, r.number(init), r.binary("mulf", power, init))
    return value if end is None else r.binary("maximumf" if rate < 1 else "minimumf", value, end)


def _steps(r: Any, t: Any, values: Sequence[float], boundaries: Sequence[float]) -> Any:
    result = r.number(values[0])
    for value, boundary in zip(values[1:], boundaries):
        result = r.where(t, "oge", boundary, r.number(value), result)
    return result


def _interpolated(r: Any, t: Any, between: str, values: Sequence[float], boundaries: Sequence[float]) -> Any:
    result = r.number(values[-1])
    for i in reversed(range(len(boundaries) - 1)):
        share = r.binary("divf", r.binary("subf", t, boundaries[i]), max(boundaries[i + 1] - boundaries[i], 1.0))
        value = (linear_between if between == "linear" else cosine_between)(r, share, values[i], values[i + 1])
        result = r.where(t, "olt", boundaries[i + 1], value, result)
    return result


def _joined(r: Any, t: Any, schedules: Sequence[Schedule], boundaries: Sequence[float]) -> Any:
    result = schedules[0].value(r, t)
    for schedule, boundary in zip(schedules[1:], boundaries):
        since = r.binary("maximumf", r.binary("subf", t, boundary), 0.0)
        result = r.where(t, "olt", boundary, result, schedule.value(r, since))
    return result


NAMED = ("constant", "linear", "cosine", "warmup_cosine", "exponential")  # of the dialect
RULES: dict[str, Callable[..., Any]] = {
    "constant": _constant, "linear": _polynomial, "polynomial": _polynomial, "cosine": _cosine, "warmup_cosine": _warmup_cosine,
    "exponential": _exponential, "steps": _steps, "interpolated": _interpolated, "joined": _joined}


def _made(kind: str, **arguments: Any) -> Schedule:
    return Schedule(kind, tuple(arguments.items()))


# optax's functions.

def constant_schedule(value: Any) -> Schedule:
    return _made("constant", **numbers_of("constant_schedule", value=value))


def _finite_end(function: str, name: str, exponent: float) -> None:
    if exponent < 0:
        raise UnsupportedError(f"{function}: {name} is {exponent:g}, expected one >= 0: the last rates are infinite")


def polynomial_schedule(init_value: Any, end_value: Any, power: Any, transition_steps: Any, transition_begin: Any = 0) -> Schedule:
    init, end, exponent, steps, begin = numbers_of(
        "polynomial_schedule", init_value=init_value, end_value=end_value, power=power, transition_steps=transition_steps,
        transition_begin=transition_begin).values()
    if steps <= 0:
        return constant_schedule(init)
    _finite_end("polynomial_schedule", "power", exponent)
    numbers = dict(init=init, end=end, steps=steps, begin=max(begin, 0.0))
    return _made("linear", **numbers) if exponent == 1 else _made("polynomial", **numbers, power=exponent)


def linear_schedule(init_value: Any, end_value: Any, transition_steps: Any, transition_begin: Any = 0) -> Schedule:
    return polynomial_schedule(**numbers_of("linear_schedule", init_value=init_value, end_value=end_value, power=1, transition_steps=transition_steps,
                                            transition_begin=transition_begin))


def warmup_constant_schedule(init_value: Any, peak_value: Any, warmup_steps: Any) -> Schedule:
    return linear_schedule(*numbers_of("warmup_constant_schedule", init_value=init_value, peak_value=peak_value, warmup_steps=warmup_steps).values())


def _scaled(function: str, init_value: Any, scales: Mapping[Any, Any] | None) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The values, each that before times a scale, and the boundaries between them."""
    boundaries, values = [], [*numbers_of(function, init_value=init_value).values()]
    for boundary, scale in sorted((scales or {}).items()):
        at, factor = numbers_of(function, boundary=boundary, scale=scale).values()
        if factor < 0:
            raise InvalidArgumentError(f"{function}: expected scales >= 0, got {scale} at {boundary}")
        boundaries.append(at)
        values.append(factor * values[-1])
    return tuple(values), tuple(boundaries)


def piecewise_constant_schedule(init_value: Any, boundaries_and_scales: Mapping[int, Any] | None = None) -> Schedule:
    values, boundaries = _scaled("piecewise_constant_schedule", init_value, boundaries_and_scales)
    return _made("steps", values=values, boundaries=boundaries)


def piecewise_interpolate_schedule(interpolate_type: str, init_value: Any, boundaries_and_scales: Mapping[int, Any] | None = None) -> Schedule:
    if interpolate_type not in ("linear", "cosine"):
        raise InvalidArgumentError(f"piecewise_interpolate_schedule: expected 'linear' or 'cosine', got {interpolate_type!r}")
    values, boundaries = _scaled("piecewise_interpolate_schedule", init_value, boundaries_and_scales)
    return _made("interpolated", between=interpolate_type, values=values, boundaries=(0.0, *boundaries))


def _above(limit: float, function: str, **values: float) -> None:
    for name, value in values.items():
        if value <= limit:
            raise InvalidArgumentError(f"{function}: expected {name} > {limit:g}, got {value:g}")


def linear_onecycle_schedule(transition_steps: Any, peak_value: Any, pct_start: Any = 0.3, pct_final: Any = 0.85, div_factor: Any = 25.0,
                             final_div_factor: Any = 1e4) -> Schedule:
    steps, peak, start, final, first, last = numbers_of(
        "linear_onecycle_schedule", transition_steps=transition_steps, peak_value=peak_value, pct_start=pct_start, pct_final=pct_final,
        div_factor=div_factor, final_div_factor=final_div_factor).values()
    _above(0, "linear_onecycle_schedule", transition_steps=steps, div_factor=first, final_div_factor=last)
    return piecewise_interpolate_schedule("linear", peak / first, {int(start * steps): first, int(final * steps): 1 / first, steps: 1 / last})


def cosine_onecycle_schedule(transition_steps: Any, peak_value: Any, pct_start: Any = 0.3, div_factor: Any = 25.0,
                             final_div_factor: Any = 1e4) -> Schedule:
    steps, peak, start, first, last = numbers_of(
        "cosine_onecycle_schedule", transition_steps=transition_steps, peak_value=peak_value, pct_start=pct_start, div_factor=div_factor,
        final_div_factor=final_div_factor).values()
    _above(0, "cosine_onecycle_schedule", transition_steps=steps, div_factor=first, final_div_factor=last)
    return piecewise_interpolate_schedule("cosine", peak / first, {int(start * steps): first, int(steps): 1 / (first * last)})


def exponential_decay(init_value: Any, transition_steps: Any, decay_rate: Any, transition_begin: Any = 0, staircase: bool = False,
                      end_value: Any = None) -> Schedule:
    init, steps, rate, begin = numbers_of("exponential_decay", init_value=init_value, transition_steps=transition_steps, decay_rate=decay_rate,
                                          transition_begin=transition_begin).values()
    end = None if end_value is None else numbers_of("exponential_decay", end_value=end_value)["end_value"]
    if steps <= 0 or rate == 0:
        return constant_schedule(init)
    if rate < 0 and not staircase:
        raise UnsupportedError(f"exponential_decay: decay_rate is {decay_rate}, expected one > 0: rates are NaN between whole powers")
    return _made("exponential", init=init, steps=steps, rate=rate, begin=max(begin, 0.0), end=end, staircase=bool(staircase))


def cosine_decay_schedule(init_value: Any, decay_steps: Any, alpha: Any = 0.0, exponent: Any = 1.0) -> Schedule:
    init, steps, least, power = numbers_of("cosine_decay_schedule", init_value=init_value, decay_steps=decay_steps, alpha=alpha,
                                           exponent=exponent).values()
    _above(0, "cosine_decay_schedule", decay_steps=steps)
    _finite_end("cosine_decay_schedule", "exponent", power)
    return _made("cosine", init=init, steps=steps, alpha=least, exponent=power)


def warmup_cosine_decay_schedule(init_value: Any, peak_value: Any, warmup_steps: Any, decay_steps: Any, end_value: Any = 0.0,
                                 exponent: Any = 1.0) -> Schedule:
    init, peak, warmup, total, end, power = numbers_of(
        "warmup_cosine_decay_schedule", init_value=init_value, peak_value=peak_value, warmup_steps=warmup_steps, decay_steps=decay_steps,
        end_value=end_value, exponent=exponent).values()
    _above(warmup, "warmup_cosine_decay_schedule", decay_steps=total)
    _finite_end("warmup_cosine_decay_schedule", "exponent", power)
    return _made("warmup_cosine", peak=peak, warmup=warmup, total=total, init=init, end=end, exponent=power)


def warmup_exponential_decay_schedule(init_value: Any, peak_value: Any, warmup_steps: Any, transition_steps: Any, decay_rate: Any,
                                      transition_begin: Any = 0, staircase: bool = False, end_value: Any = None) -> Schedule:
    return join_schedules([warmup_constant_schedule(init_value, peak_value, warmup_steps),
                           exponential_decay(peak_value, transition_steps, decay_rate, transition_begin, staircase, end_value)], [warmup_steps])


def sgdr_schedule(cosine_kwargs: Iterable[Mapping[str, Any]]) -> Schedule:
    cycles = list(cosine_kwargs)
    ends = [sum(cycle["decay_steps"] for cycle in cycles[:i]) for i in range(1, len(cycles))]
    return join_schedules([warmup_cosine_decay_schedule(**cycle) for cycle in cycles], ends)


def join_schedules(schedules: Sequence[Schedule], boundaries: Sequence[Any]) -> Schedule:
    parts, ends = list(schedules), list(boundaries)
    if len(parts) != len(ends) + 1:
        raise InvalidArgumentError(f"join_schedules: expected a boundary between each two schedules, got {len(parts)} and {len(ends)}")
    return _made("joined", schedules=tuple(schedule_of("join_schedules", part) for part in parts),
                 boundaries=tuple(numbers_of("join_schedules", boundary=end)["boundary"] for end in ends))
