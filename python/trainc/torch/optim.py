"""Optimizers of `torch.optim` as optimizer groups of the dialect, by PyTorch's formulas."""
from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..emit import attributes, free_name, number, symbol
from ..errors import UnsupportedError
from ..regions import UpdateRegion
from . import regions
from .schedulers import momentum_at, momentum_of, momentum_schedule, of_group, rate_at, refuse_scheduler, same, schedule
from .translate import DTYPES

Settings = dict[str, Any]


@dataclass(frozen=True)
class Group:
    """An optimizer of the module, with its schedules if it has some, and the parameters that it updates; and what it was made of. Of numbers
    that follow schedules, `scheduled` gives the values after a number of updates: "lr", and the momentum of a OneCycleLR."""

    name: str
    text: str
    parameters: tuple[str, ...]
    kind: type
    settings: Settings
    scheduled: dict[str, Callable[[int], float]]


def _sgd(g: Settings) -> tuple[str, Settings, dict[str, bool]]:
    momentum = g["momentum"]
    numbers = dict(lr=g["lr"], momentum=momentum or None, dampening=g["dampening"] or None if momentum else None, l2=g["weight_decay"] or None)
    return "sgd", numbers, {"nesterov": True} if g["nesterov"] and momentum else {}


def _adam_numbers(g: Settings) -> Settings:
    return dict(lr=g["lr"], b1=g["betas"][0], b2=g["betas"][1], eps=g["eps"])


def _adam(g: Settings) -> tuple[str, Settings, dict[str, bool]]:
    decoupled = g.get("decoupled_weight_decay", False)
    return "adam", _adam_numbers(g) | {"weight_decay" if decoupled else "l2": g["weight_decay"] or None}, {}


def _adamw(g: Settings) -> tuple[str, Settings, dict[str, bool]]:
    if not g.get("decoupled_weight_decay", True):
        return _adam(g)
    return "adamw", _adam_numbers(g) | dict(weight_decay=g["weight_decay"]), {}


def _nadam(g: Settings) -> tuple[str, Settings, dict[str, bool]]:
    decay = "weight_decay" if g["decoupled_weight_decay"] else "l2"
    return "", _adam_numbers(g) | {decay: g["weight_decay"] or None, "momentum_decay": g["momentum_decay"]}, {}


def _radam(g: Settings) -> tuple[str, Settings, dict[str, bool]]:
    decay = "weight_decay" if g["decoupled_weight_decay"] else "l2"
    return "radam", _adam_numbers(g) | {decay: g["weight_decay"] or None}, {"eps_before_correction": True}


def _adamax(g: Settings) -> tuple[str, Settings, dict[str, bool]]:
    return "adamax", _adam_numbers(g) | dict(l2=g["weight_decay"] or None), {}


def _adagrad(g: Settings) -> tuple[str, Settings, dict[str, bool]]:
    numbers = dict(lr=g["lr"], eps=g["eps"], initial_accumulator_value=g["initial_accumulator_value"], lr_decay=g["lr_decay"] or None,
                   l2=g["weight_decay"] or None)
    return "adagrad", numbers, {"eps_in_sqrt": False}


def _adadelta(g: Settings) -> tuple[str, Settings, dict[str, bool]]:
    return "adadelta", dict(lr=g["lr"], rho=g["rho"], eps=g["eps"], l2=g["weight_decay"] or None), {}


def _rmsprop(g: Settings) -> tuple[str, Settings, dict[str, bool]]:
    numbers = dict(lr=g["lr"], decay=g["alpha"], eps=g["eps"], momentum=g["momentum"] or None, l2=g["weight_decay"] or None)
    flags = {"eps_in_sqrt": False} | ({"centered": True} if g["centered"] else {}) | ({"lr_in_momentum": False} if g["momentum"] else {})
    return "rmsprop", numbers, flags


def _muon(g: Settings) -> tuple[str, Settings, dict[str, bool]]:
    a, b, c = g["ns_coefficients"]
    numbers = dict(lr=g["lr"], momentum=g["momentum"], weight_decay=g["weight_decay"], a=a, b=b, c=c, eps=g["eps"], steps=g["ns_steps"])
    return "muon", numbers, {"nesterov": g["nesterov"], "match_rms": g["adjust_lr_fn"] == "match_rms_adamw",
                             "unclamped": g["adjust_lr_fn"] == "spectral_unclamped"}


# The name of the dialect, numbers and flags.
KINDS: dict[type, Callable[[Settings], tuple[str, Settings, dict[str, bool]]]] = {
    torch.optim.SGD: _sgd, torch.optim.Adam: _adam, torch.optim.AdamW: _adamw, torch.optim.NAdam: _nadam, torch.optim.RAdam: _radam,
    torch.optim.Adamax: _adamax, torch.optim.Adagrad: _adagrad, torch.optim.Adadelta: _adadelta, torch.optim.RMSprop: _rmsprop,
    torch.optim.Muon: _muon}
# Why the others of torch.optim have none.
REFUSED: dict[type, str] = {
    torch.optim.LBFGS: "it computes the loss several times for one update, and a step computes it once",
    torch.optim.Adafactor: "its second moments are those of rows and columns, and a state here is as large as its parameter",
    torch.optim.SparseAdam: "it takes sparse gradients, and those of a step are dense (use Adam)",
    torch.optim.ASGD: "its rate and its average have schedules of their own (use SGD with a scheduler and ema=)",
    torch.optim.Rprop: "its step sizes follow the signs of full-batch gradients, which no optimizer of the language does"}
# What the dialect has no name for is a scalar region with these numbers.
REGIONS: dict[type, regions.Rule] = {
    torch.optim.SGD: regions.sgd, torch.optim.Adam: regions.adam, torch.optim.AdamW: regions.adam, torch.optim.NAdam: regions.nadam,
    torch.optim.RAdam: regions.radam, torch.optim.Adamax: regions.adamax, torch.optim.Adagrad: regions.adagrad,
    torch.optim.Adadelta: regions.adadelta, torch.optim.RMSprop: regions.rmsprop}


def _by_region(kind: type, settings: Settings) -> bool:
    if kind is torch.optim.NAdam or settings.get("maximize", False) or settings.get("amsgrad", False):
        return True
    return kind is torch.optim.SGD and bool(settings["momentum"] and settings["nesterov"] and settings["dampening"])


def _optimizer(name: str, kind: type, settings: Settings, schedules: Mapping[str, str], words: str) -> str:
    """The optimizer of that name. `schedules` are those of numbers, `words` stand behind these."""
    word, numbers, flags = KINDS[kind](settings)
    numbers |= schedules
    if not _by_region(kind, settings):
        return f"train.optimizer {symbol(name)} = {word}<{attributes(numbers, flags)}>{words}"
    rate = numbers.pop("lr")
    numbers = {key: value for key, value in numbers.items() if value is not None and key != "initial_accumulator_value"}
    region = UpdateRegion.of((DTYPES[p.dtype] for p in settings["params"]), numbers)
    states, results = REGIONS[kind](region, settings)
    return region.text(name, states, rate if isinstance(rate, str) else number(rate), results, words)


def groups_of(optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer], scheduler: Any, names: Mapping[int, str],
              taken: set[str], prefix: str = "", ema: float | None = None) -> list[Group]:
    """A group per param_group, none of a name that is `taken`; they begin with `prefix`. `names` are the parameters' by id(); one of
    another model is refused. `ema` is the decay of moving averages of the parameters."""
    if ema is not None and (isinstance(ema, bool) or not isinstance(ema, int | float) or not 0 <= ema <= 1):
        raise UnsupportedError(f"ema is {ema!r}: expected a decay between 0 and 1")
    words = "" if ema is None else f" ema({number(ema)})"
    if isinstance(optimizer, torch.optim.Optimizer):
        return _groups_of_one(optimizer, scheduler, names, taken, prefix, words, 0, len(optimizer.param_groups) == 1)
    schedulers = [None] * len(optimizer) if scheduler is None else scheduler
    if not isinstance(schedulers, Sequence) or len(schedulers) != len(optimizer):
        raise UnsupportedError(f"{len(optimizer)} optimizers: expected a scheduler or None for each, got {scheduler!r}")
    groups: list[Group] = []
    for one, its in zip(optimizer, schedulers):
        single = len(optimizer) == len(one.param_groups) == 1
        groups += _groups_of_one(one, its, names, taken | {g.name for g in groups}, prefix, words, len(groups), single)
    refuse_twice(groups)
    return groups


def refuse_twice(groups: Sequence[Group]) -> None:
    """Refuses a parameter in two groups."""
    seen: set[str] = set()
    for name in (name for group in groups for name in group.parameters):
        if name in seen:
            raise UnsupportedError(f"{name} is in two optimizers: expected one")
        seen.add(name)


def refuse_parts(groups: Sequence[Group], sharded: Collection[str]) -> None:
    """Refuses parameters that `parallel` shards in groups whose updates are of whole matrices."""
    parts = [name for group in groups if group.kind is torch.optim.Muon for name in group.parameters if name in sharded]
    if parts:
        raise UnsupportedError(f"Muon of {', '.join(parts)}: it updates whole matrices, of which parallel= gives each rank a part; expected another "
                               "optimizer for them, or a plan without their layers")


def _scheduled(scheduler: Any, group: Settings, i: int) -> dict[str, Callable[[int], float]]:
    """The learning rate of param_groups[i], whose scheduler it is, after a number of updates, and the momentum if it changes that;
    refused where they have others now."""
    kind, done, base = type(scheduler).__name__, scheduler.last_epoch, float(group["initial_lr"])
    rate = functools.partial(rate_at, scheduler=scheduler, base=base)
    if not same(group["lr"], rate(done), base):
        raise UnsupportedError(f"lr of param_groups[{i}] is {float(group['lr'])}: expected {rate(done)}, that of its {kind} after {done} updates "
                               f"from initial_lr = {base} on")
    if not (key := momentum_of(scheduler)):
        return {"lr": rate}
    now, momentum = group["betas"][0] if key == "b1" else group["momentum"], functools.partial(momentum_at, scheduler=scheduler)
    if not same(now, momentum(done)):
        name = "betas[0]" if key == "b1" else key
        raise UnsupportedError(f"{name} of param_groups[{i}] is {float(now)}: expected {momentum(done)}, that of its {kind} after {done} updates")
    return {"lr": rate, key: momentum}


def _groups_of_one(optimizer: torch.optim.Optimizer, scheduler: Any, names: Mapping[int, str], taken: set[str], prefix: str,
                   words: str, first: int, single: bool) -> list[Group]:
    """Their names are numbered from `first` on, but for a `single` one; `words` stand behind their numbers."""
    kind = type(optimizer)
    if kind not in KINDS:
        known = next((k.__name__ for k in kind.__mro__ if k in KINDS), None)
        why = REFUSED.get(kind) or (f"a subclass of {known}, whose own formula is not known" if known else "its formula is not known")
        raise UnsupportedError(f"optimizer {kind.__module__}.{kind.__name__}: {why}; expected one of "
                               f"{', '.join(sorted(k.__name__ for k in KINDS))} of torch.optim")
    wanted = [prefix + ("optimizer" if single else f"group{i}") for i in range(first, first + len(optimizer.param_groups))]
    own = [free_name(name, taken) for name in wanted]
    if scheduler is not None:
        refuse_scheduler(scheduler, optimizer, [f"{name}.lr" for name in own])
    groups = []
    for i, (name, group) in enumerate(zip(own, optimizer.param_groups)):
        settings = {k: v.item() if isinstance(v, torch.Tensor) else v for k, v in group.items()}
        if wrong := [f"{k} = {v}" for k, v in settings.items() if isinstance(v, float) and not math.isfinite(v)]:
            raise UnsupportedError(f"param_groups[{i}] has {', '.join(wrong)}: expected finite numbers")
        if kind is torch.optim.Adagrad:  # which reads the constructor's, whatever the group has
            settings["initial_accumulator_value"] = optimizer.defaults["initial_accumulator_value"]
        parameters = []
        for p in settings["params"]:
            if id(p) not in names:
                raise UnsupportedError(f"param_groups[{i}] has a parameter of shape {tuple(p.shape)} that is not one of the model's")
            parameters.append(names[id(p)])
        texts, schedules, scheduled = [], {}, {}
        if scheduler is not None:
            its = of_group(scheduler, i)
            scheduled = _scheduled(its, group, i)
            schedules["lr"] = symbol(f"{name}.schedule")
            texts.append(schedule(f"{name}.schedule", its, float(settings["initial_lr"])))
            if key := momentum_of(its):
                schedules[key] = symbol(f"{name}.momentum_schedule")
                texts.append(momentum_schedule(f"{name}.momentum_schedule", its))
        texts.append(_optimizer(name, kind, settings, schedules, words))
        groups.append(Group(name, "\n".join(texts), tuple(parameters), kind, {k: v for k, v in settings.items() if k != "params"}, scheduled))
    return groups
