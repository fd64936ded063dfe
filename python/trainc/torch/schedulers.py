"""Schedulers of `torch.optim.lr_scheduler` as schedules of the dialect: scalar regions of the count of updates, in closed form."""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch.optim import lr_scheduler

from ..emit import number, symbol
from ..errors import UnsupportedError


class Region:
    """Operations on f64 scalars; methods return the name of their result."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def op(self, text: str) -> str:
        self.lines.append(f"  %{len(self.lines)} = {text}")
        return f"%{len(self.lines) - 1}"

    def number(self, value: float) -> str:
        return self.op(f"arith.constant {number(value)} : f64")

    def binary(self, kind: str, a: str, b: str | float) -> str:
        return self.op(f"arith.{kind} {a}, {b if isinstance(b, str) else self.number(b)} : f64")

    def unary(self, kind: str, a: str) -> str:
        return self.op(f"math.{kind} {a} : f64")

    def power(self, base: float, exponent: str) -> str:
        return self.op(f"math.powf {self.number(base)}, {exponent} : f64")

    def where(self, a: str, kind: str, b: float, then: str, other: str) -> str:
        """`then` where `a kind b`, else `other`; kind is olt, oge, ..."""
        condition = self.op(f"arith.cmpf {kind}, {a}, {self.number(b)} : f64")
        return self.op(f"arith.select {condition}, {then}, {other} : f64")


# (region, updates done, learning rate at the start, scheduler) -> the learning rate
Rule = Callable[[Region, str, float, Any], str]


def _constant(r: Region, t: str, base: float, s: Any) -> str:
    return r.where(t, "olt", s.total_iters, r.number(base * s.factor), r.number(base))


def _linear(r: Region, t: str, base: float, s: Any) -> str:
    share = r.binary("divf", r.binary("minimumf", t, float(s.total_iters)), float(s.total_iters))
    factor = r.binary("addf", r.binary("mulf", share, s.end_factor - s.start_factor), s.start_factor)
    return r.binary("mulf", factor, base)


def _exponential(r: Region, t: str, base: float, s: Any) -> str:
    return r.binary("mulf", r.power(s.gamma, t), base)


def _step(r: Region, t: str, base: float, s: Any) -> str:
    return r.binary("mulf", r.power(s.gamma, r.unary("floor", r.binary("divf", t, float(s.step_size)))), base)


def _multi_step(r: Region, t: str, base: float, s: Any) -> str:
    passed = r.number(0.0)
    for milestone, times in sorted(s.milestones.items()):
        passed = r.binary("addf", passed, r.where(t, "oge", float(milestone), r.number(float(times)), r.number(0.0)))
    return r.binary("mulf", r.power(s.gamma, passed), base)


def _cosine_of(r: Region, share: str, base: float, least: float) -> str:
    """least + (base - least) (1 + cos(pi share)) / 2"""
    wave = r.binary("addf", r.unary("cos", r.binary("mulf", share, math.pi)), 1.0)
    return r.binary("addf", r.binary("mulf", wave, (base - least) / 2), least)


def _cosine(r: Region, t: str, base: float, s: Any) -> str:
    return _cosine_of(r, r.binary("divf", t, float(s.T_max)), base, s.eta_min)


def _restarts(r: Region, t: str, base: float, s: Any) -> str:
    """Cycles of T_0, T_0 T_mult, T_0 T_mult^2, ... updates."""
    if s.T_mult == 1:
        begin = r.binary("mulf", r.unary("floor", r.binary("divf", t, float(s.T_0))), float(s.T_0))
        length = r.number(float(s.T_0))
    else:
        begin, length, at, size = r.number(0.0), r.number(float(s.T_0)), s.T_0, s.T_0 * s.T_mult
        while at < 2**31:
            begin = r.where(t, "oge", float(at), r.number(float(at)), begin)
            length = r.where(t, "oge", float(at), r.number(float(size)), length)
            at, size = at + size, size * s.T_mult
    return _cosine_of(r, r.binary("divf", r.binary("subf", t, begin), length), base, s.eta_min)


def _polynomial(r: Region, t: str, base: float, s: Any) -> str:
    left = r.binary("subf", r.number(1.0), r.binary("divf", r.binary("minimumf", t, float(s.total_iters)), float(s.total_iters)))
    return r.binary("mulf", r.op(f"math.powf {left}, {r.number(float(s.power))} : f64"), base)


def _sequence(r: Region, t: str, base: float, s: Any) -> str:
    """Each scheduler counts from its own milestone on."""
    schedulers, milestones = s._schedulers, s._milestones
    result = _rate(r, t, base, schedulers[0])
    for scheduler, milestone in zip(schedulers[1:], milestones):
        result = r.where(t, "olt", float(milestone), result, _rate(r, r.binary("subf", t, float(milestone)), base, scheduler))
    return result


RULES: dict[type, Rule] = {
    lr_scheduler.ConstantLR: _constant, lr_scheduler.LinearLR: _linear, lr_scheduler.ExponentialLR: _exponential,
    lr_scheduler.StepLR: _step, lr_scheduler.MultiStepLR: _multi_step, lr_scheduler.CosineAnnealingLR: _cosine,
    lr_scheduler.CosineAnnealingWarmRestarts: _restarts, lr_scheduler.PolynomialLR: _polynomial, lr_scheduler.SequentialLR: _sequence}


def _rate(r: Region, t: str, base: float, scheduler: Any) -> str:
    if type(scheduler) not in RULES:
        raise UnsupportedError(f"scheduler {type(scheduler).__name__}: expected one of {', '.join(sorted(k.__name__ for k in RULES))}; "
                               "any other sets the rate from Python before each step: step.set(\"lr\", scheduler.get_last_lr()[0])")
    return RULES[type(scheduler)](r, t, base, scheduler)


def schedule(name: str, scheduler: Any, base: float) -> str:
    """The text of the schedule of one group, whose learning rate at the start is `base`."""
    region = Region()
    result = _rate(region, "%t", base, scheduler)
    return "\n".join([f"train.schedule {symbol(name)}(%t: f64) {{", *region.lines, f"  train.yield {result} : f64", "}"])
