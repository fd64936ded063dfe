"""Schedulers of `torch.optim.lr_scheduler` as schedules of the dialect: scalar regions of the count of updates, in closed form."""
from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim import lr_scheduler

from ..errors import MismatchError, UnsupportedError
from ..regions import Numbers, ScheduleRegion, cosine_between, linear_between
from .lambdas import NoFormulaError, formula_of


# (region, updates done, learning rate at the start, scheduler) -> the learning rate
Rule = Callable[[Any, Any, float, Any], Any]


def _constant(r: Any, t: Any, base: float, s: Any) -> Any:
    if s.total_iters == 0:  # PyTorch never takes the factor back
        return r.number(base * s.factor)
    return r.where(t, "olt", s.total_iters, r.number(base * s.factor), r.number(base))


def _linear(r: Any, t: Any, base: float, s: Any) -> Any:
    if s.total_iters == 0:
        return r.number(base * s.start_factor)
    share = r.binary("divf", r.binary("minimumf", t, float(s.total_iters)), float(s.total_iters))
    factor = r.binary("addf", r.binary("mulf", share, s.end_factor - s.start_factor), s.start_factor)
    return r.binary("mulf", factor, base)


def _exponential(r: Any, t: Any, base: float, s: Any) -> Any:
    return r.binary("mulf", r.power(s.gamma, t), base)


def _step(r: Any, t: Any, base: float, s: Any) -> Any:
    return r.binary("mulf", r.power(s.gamma, r.unary("floor", r.binary("divf", t, float(s.step_size)))), base)


def _multi_step(r: Any, t: Any, base: float, s: Any) -> Any:
    passed = r.number(0.0)
    for milestone, times in sorted(s.milestones.items()):
        passed = r.binary("addf", passed, r.where(t, "oge", float(milestone), r.number(float(times)), r.number(0.0)))
    return r.binary("mulf", r.power(s.gamma, passed), base)


def _cosine(r: Any, t: Any, base: float, s: Any) -> Any:
    return cosine_between(r, r.binary("divf", t, float(s.T_max)), base, s.eta_min)


def _restarts(r: Any, t: Any, base: float, s: Any) -> Any:
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
    return cosine_between(r, r.binary("divf", r.binary("subf", t, begin), length), base, s.eta_min)


def _polynomial(r: Any, t: Any, base: float, s: Any) -> Any:
    if s.total_iters == 0:
        return r.number(base)
    left = r.binary("subf", r.number(1.0), r.binary("divf", r.binary("minimumf", t, float(s.total_iters)), float(s.total_iters)))
    return r.binary("mulf", r.power(left, float(s.power)), base)


def _sequence(r: Any, t: Any, base: float, s: Any) -> Any:
    """Each scheduler counts from its own milestone on, where PyTorch takes the rate in closed form."""
    schedulers, milestones = s._schedulers, s._milestones
    result = _rate(r, t, base, schedulers[0])
    for scheduler, milestone in zip(schedulers[1:], milestones):
        over = isinstance(scheduler, lr_scheduler.ConstantLR) and scheduler.total_iters == 0
        since = r.where(t, "olt", float(milestone), r.number(0.0), r.binary("subf", t, float(milestone)))
        rate = r.number(base) if over else _rate(r, since, base, scheduler)
        result = r.where(t, "olt", float(milestone), result, rate)
    return result


def _lambda(r: Any, t: Any, base: float, s: Any) -> Any:
    return r.binary("mulf", s.formula.emit(r, t), base)


def _one_cycle(r: Any, t: Any, base: float, s: Any) -> Any:
    return _in_phases(r, t, s, "lr")


def _in_phases(r: Any, t: Any, s: Any, what: str) -> Any:
    """Of a OneCycleLR its "lr" or its "momentum". Where PyTorch's ends with an error, after `total_steps` updates, it stays."""
    t, begin, rates, ends = r.binary("minimumf", t, float(s.total_steps)), 0.0, [], []
    for phase in s._schedule_phases:
        end, first, last = float(phase["end_step"]), *(float(s.group[phase[name]]) for name in (f"start_{what}", f"end_{what}"))
        share = r.binary("divf", r.binary("subf", t, begin), end - begin)
        rates.append((cosine_between if s._anneal_func_type == "cos" else linear_between)(r, share, first, last))
        ends.append(end)
        begin = end
    result = rates.pop()
    for rate, end in zip(reversed(rates), reversed(ends[:-1])):
        result = r.where(r.binary("subf", r.number(end), t), "olt", 0.0, result, rate)
    return result


RULES: dict[type, Rule] = {
    lr_scheduler.ConstantLR: _constant, lr_scheduler.LinearLR: _linear, lr_scheduler.ExponentialLR: _exponential,
    lr_scheduler.StepLR: _step, lr_scheduler.MultiStepLR: _multi_step, lr_scheduler.CosineAnnealingLR: _cosine,
    lr_scheduler.CosineAnnealingWarmRestarts: _restarts, lr_scheduler.PolynomialLR: _polynomial, lr_scheduler.SequentialLR: _sequence,
    lr_scheduler.LambdaLR: _lambda, lr_scheduler.OneCycleLR: _one_cycle}


def _rate(r: Any, t: Any, base: float, scheduler: Any) -> Any:
    return RULES[type(scheduler)](r, t, base, scheduler)


def _refusal(s: Any) -> str | None:
    """Why it has no rule."""
    if type(s) not in RULES:
        return f"expected one of {', '.join(sorted(k.__name__ for k in RULES))}; any other"
    if isinstance(s, lr_scheduler.SequentialLR) and any(isinstance(part, lr_scheduler.SequentialLR) for part in s._schedulers):
        return "one of its schedulers is a SequentialLR, too: expected one SequentialLR of all; another"
    if isinstance(s, lr_scheduler.SequentialLR) and any(map(momentum_of, s._schedulers)):
        return "one of its schedulers is a OneCycleLR that changes the momentum, too: expected cycle_momentum=False; another"
    try:
        for function in s.lr_lambdas if isinstance(s, lr_scheduler.LambdaLR) else ():
            formula_of(function, Numbers())
    except NoFormulaError as why:
        return f"its function has no formula ({why}): expected one that computes with the count alone; any other"
    return None


def refuse_scheduler(scheduler: Any, optimizer: Any, scalars: Sequence[str]) -> None:
    """Refuses what has no rule, and what is of another optimizer. `scalars` are the optimizer's learning rates in the step."""
    for s in (scheduler, *getattr(scheduler, "_schedulers", ())):
        if why := _refusal(s):
            given, rates = ", ".join(f'"{name}"' for name in scalars), "scheduler.get_last_lr()"
            calls = f"step.set({given}, {rates}[0])" if len(scalars) == 1 else f"for name, rate in zip(({given}), {rates}): step.set(name, rate)"
            raise UnsupportedError(f"scheduler {type(s).__name__}: {why} stays in Python: leave scheduler= out, and before each update {calls}")
        if s.optimizer is not optimizer:
            raise UnsupportedError(f"scheduler {type(s).__name__} is of another {type(s.optimizer).__name__}: expected one of the exported optimizer")
        for i, group in enumerate(optimizer.param_groups):
            if "initial_lr" not in group:
                raise UnsupportedError(f"param_groups[{i}] has no initial_lr: it was added after the {type(s).__name__} was made; expected a "
                                       "scheduler of all groups")
            if (base := getattr(s, "base_lrs", None)) and base[i] != group["initial_lr"]:
                raise UnsupportedError(f"{type(s).__name__} begins with {float(base[i])} for param_groups[{i}]: expected its initial_lr, "
                                       f"{float(group['initial_lr'])}")


def of_group(scheduler: Any, i: int) -> Any:
    """A copy for param_groups[i], with the formula of its function and the numbers that stand in the group; it does not keep the
    optimizer and its parameters alive."""
    made = copy.copy(scheduler)
    made.optimizer = None
    if isinstance(scheduler, lr_scheduler.LambdaLR):
        made.formula, made.lr_lambdas = formula_of(scheduler.lr_lambdas[i], Numbers()), None
    if isinstance(scheduler, lr_scheduler.OneCycleLR):
        made.group = {key: float(value) for key, value in scheduler.optimizer.param_groups[i].items() if key.endswith(("_lr", "_momentum"))}
    if hasattr(made, "_schedulers"):
        made._schedulers = [of_group(s, i) for s in made._schedulers]
    return made


def schedule(name: str, scheduler: Any, base: float) -> str:
    """The text of the schedule of one group, whose learning rate at the start is `base`. `scheduler` is its own (`of_group`)."""
    region = ScheduleRegion()
    return region.text(name, _rate(region, "%t", base, scheduler))


def momentum_of(scheduler: Any) -> str | None:
    """The number that a OneCycleLR schedules beside the rate, as the source calls it."""
    if not isinstance(scheduler, lr_scheduler.OneCycleLR) or not scheduler.cycle_momentum:
        return None
    return "b1" if scheduler.use_beta1 else "momentum"


def momentum_schedule(name: str, scheduler: Any) -> str:
    """The text of its schedule, and `momentum_at` its values; as `schedule` and `rate_at`."""
    region = ScheduleRegion()
    return region.text(name, _in_phases(region, "%t", scheduler, "momentum"))


def momentum_at(updates: int, scheduler: Any) -> float:
    return _in_phases(Numbers(), float(updates), scheduler, "momentum")


def same(a: Any, b: Any, size: float = 0.0) -> bool:
    """But for what a rate loses that a scheduler of PyTorch computes from the last one, in f64 or in `a`'s type, if that is a tensor;
    `size` is the rate at the start."""
    loss = 1e-3 if isinstance(a, torch.Tensor) and a.dtype != torch.float64 else 1e-6
    a = a.item() if isinstance(a, torch.Tensor) else a
    return a == b or isinstance(a, int | float) and isinstance(b, int | float) and math.isclose(a, b, rel_tol=loss, abs_tol=1e-3 * loss * size)


def rate_at(updates: int, scheduler: Any, base: float) -> float:
    """The learning rate after so many updates by a scheduler of one group (`of_group`)."""
    return _rate(Numbers(), float(updates), base, scheduler)


@dataclass(frozen=True)
class SchedulerState:
    """The state_dict() of a scheduler after any number of updates, made of one; of a SequentialLR with those of its `parts`."""

    kind: type
    exported: dict[str, Any]
    parts: tuple[SchedulerState, ...] = ()

    @staticmethod
    def of(scheduler: Any) -> SchedulerState:
        state = {key: copy.deepcopy(value) for key, value in scheduler.state_dict().items() if key != "_schedulers"}
        return SchedulerState(type(scheduler), state, tuple(map(SchedulerState.of, getattr(scheduler, "_schedulers", ()))))

    def after(self, updates: int, rates: Callable[[int], list[float]]) -> dict[str, Any]:
        """`rates` are those of all groups after so many updates."""
        return self._between(0, None, updates, rates)

    def _between(self, begin: int, end: int | None, updates: int, rates: Callable[[int], list[float]]) -> dict[str, Any]:
        """Of one that sets the rates from update `begin` on, and before `end`."""
        state, last = copy.deepcopy(self.exported), updates if end is None else min(updates, end - 1)
        done = max(last - begin, -1)  # -1: it waits
        state |= {"last_epoch": done} | ({"_last_lr": rates(last)} if done >= 0 else {})
        if self.kind is lr_scheduler.CosineAnnealingWarmRestarts:  # which does not count its steps
            now, length = max(done, 0), state["T_0"]
            if state["T_mult"] == 1:
                now %= length
            while now >= length:
                now, length = now - length, length * state["T_mult"]
            state |= {"T_cur": now, "T_i": length}
        elif "_step_count" in state:
            state["_step_count"] = max(done, 0) + 1
        if self.parts:
            bounds = [begin, *(begin + milestone for milestone in state["_milestones"]), end]
            state["_schedulers"] = [part._between(*bounds[i:i + 2], updates, rates) for i, part in enumerate(self.parts)]
        return state

    def updates_of(self, given: Any) -> int:
        """How many another state_dict() has had, which may differ in nothing else."""
        if not isinstance(given, Mapping) or not isinstance(given.get("last_epoch"), int):
            got = f"one with {', '.join(map(str, given)) or 'nothing'}" if isinstance(given, Mapping) else type(given).__name__
            raise MismatchError(f"expected the state_dict() of {self.kind.__name__}, with last_epoch, got {got}")
        updates = given["last_epoch"]
        if wrong := list(self._differences(given, self.after(updates, lambda t: []))):
            raise MismatchError("the step is compiled with another scheduler than this state is of: " + "; ".join(wrong))
        return updates

    def _differences(self, given: Any, expected: Mapping[str, Any]) -> Iterator[str]:
        for key in sorted(expected.keys() | given.keys()):
            ours, theirs = expected.get(key), given.get(key)
            if (not key.startswith("_") or key == "_milestones") and key != "lr_lambdas" and not _equal(ours, theirs):
                yield f"{key} of {self.kind.__name__} is {theirs}, expected {ours}"
        theirs = given.get("_schedulers", [])
        if len(theirs) != len(self.parts):
            yield f"{self.kind.__name__} has {len(theirs)} schedulers, expected {len(self.parts)}"
            return
        for part, one, ours in zip(self.parts, theirs, expected.get("_schedulers", [])):
            yield from part._differences(one, ours)


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(_equal, a, b))
    return type(a) is type(b) and a == b or same(a, b)
