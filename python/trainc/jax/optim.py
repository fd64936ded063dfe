"""Optimizers with optax's names, arguments and formulas as optimizer groups of the dialect.

What optax's own functions return is closures, which cannot be read; these return what they were given. `mask` and `multi_transform` make several
groups.
"""
from __future__ import annotations

import functools
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax

from ..emit import attributes, free_name, number, symbol
from ..errors import InvalidArgumentError, UnsupportedError
from ..regions import UpdateRegion
from .schedules import Schedule, numbers_of, schedule_of

__all__ = ["Group", "Optimizer", "adadelta", "adagrad", "adam", "adamax", "adamaxw", "adamw", "groups_of", "lamb", "lars", "lion",
           "multi_transform", "nadam", "nadamw", "radam", "rmsprop", "set_to_zero", "sgd"]


@dataclass(frozen=True, eq=False)
class Optimizer:
    """How parameters are updated: all by the `kind` of the dialect, or, if there are `parts`, each by that of its label. `labels` is a pytree of
    them (or a prefix of one), or a function that makes it of the parameters; `source` says where it came from."""

    kind: str
    rate: float | Schedule = 0.0
    numbers: Mapping[str, float] = field(default_factory=dict)
    flags: Mapping[str, bool] = field(default_factory=dict)
    parts: Mapping[Hashable, Optimizer] = field(default_factory=dict)
    labels: Any = None
    source: str = ""


@dataclass(frozen=True)
class Group:
    """An optimizer of the module, with its schedule if it has one, and the parameters that it updates; `decays`: also those whose gradient
    is 0."""

    name: str
    kind: str
    text: str
    parameters: tuple[str, ...]
    decays: bool


DTYPES = {"float64": "f64", "float32": "f32", "bfloat16": "bf16", "float16": "f16"}
MULTI, FROZEN = "multi_transform", "set_to_zero"
# lars where the trust ratio is not taken: the learning rate within the momentum, as no kind of the dialect has it.
LARS_WITHOUT_RATIO = "lars without trust ratio"
DECAYS = ("weight_decay", "l2")


def _made(function: str, learning_rate: Any, numbers: Mapping[str, Any], flags: Mapping[str, Any] | None = None, kind: str = "") -> Optimizer:
    if callable(learning_rate):
        rate = schedule_of(f"{function}: learning_rate", learning_rate)
    else:
        rate = numbers_of(function, learning_rate=learning_rate)["learning_rate"]
    return Optimizer(kind or function, rate, numbers_of(function, **numbers), {k: bool(v) for k, v in (flags or {}).items()})


def _refuse(function: str, why: str, **values: Any) -> None:
    for name, value in values.items():
        if value is not None:
            raise UnsupportedError(f"{function}: {name} is {value!r}, expected None: {why}")


_OWN_TYPE = "states have the type in which a parameter is computed"


def _parted(optimizer: Optimizer, other: Optimizer, mask: Any, source: str) -> Optimizer:
    """`optimizer` where the mask is true, `other` elsewhere."""
    return Optimizer("mask", parts={True: optimizer, False: other}, labels=mask, source=source)


def _masked(optimizer: Optimizer, mask: Any, source: str) -> Optimizer:
    """With weight decay only where the mask is true."""
    if mask is None or not _decays(optimizer):
        return optimizer
    numbers = {k: 0.0 if k == "weight_decay" else v for k, v in optimizer.numbers.items() if k != "l2"}
    return _parted(optimizer, replace(optimizer, numbers=numbers), mask, source)


def _decays(optimizer: Optimizer) -> bool:
    return any(optimizer.numbers.get(name) for name in DECAYS)


# optax's functions.

def sgd(learning_rate: Any, momentum: Any = None, nesterov: bool = False, accumulator_dtype: Any = None) -> Optimizer:
    _refuse("sgd", _OWN_TYPE, accumulator_dtype=accumulator_dtype)
    return _made("sgd", learning_rate, *_with_momentum({}, {}, momentum, nesterov))


def _with_momentum(numbers: Mapping[str, Any], flags: Mapping[str, Any], momentum: Any, nesterov: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Without momentum optax reads nothing of nesterov."""
    if momentum is None:
        return dict(numbers), dict(flags)
    return {**numbers, "momentum": momentum}, {**flags, "nesterov": nesterov}


def adam(learning_rate: Any, b1: Any = 0.9, b2: Any = 0.999, eps: Any = 1e-8, eps_root: Any = 0.0, mu_dtype: Any = None, *,
         nesterov: bool = False) -> Optimizer:
    _refuse("adam", _OWN_TYPE, mu_dtype=mu_dtype)
    return _made("adam", learning_rate, dict(b1=b1, b2=b2, eps=eps, eps_root=eps_root), dict(nesterov=nesterov))


def adamw(learning_rate: Any, b1: Any = 0.9, b2: Any = 0.999, eps: Any = 1e-8, eps_root: Any = 0.0, mu_dtype: Any = None,
          weight_decay: Any = 1e-4, mask: Any = None, *, nesterov: bool = False) -> Optimizer:
    _refuse("adamw", _OWN_TYPE, mu_dtype=mu_dtype)
    numbers = dict(b1=b1, b2=b2, eps=eps, eps_root=eps_root, weight_decay=weight_decay)
    return _masked(_made("adamw", learning_rate, numbers, dict(nesterov=nesterov)), mask, "adamw: mask")


nadam = functools.partial(adam, nesterov=True)
nadamw = functools.partial(adamw, nesterov=True)


def radam(learning_rate: Any, b1: Any = 0.9, b2: Any = 0.999, eps: Any = 1e-8, eps_root: Any = 0.0, threshold: Any = 5.0, *,
          nesterov: bool = False) -> Optimizer:
    return _made("radam", learning_rate, dict(b1=b1, b2=b2, eps=eps, eps_root=eps_root, threshold=threshold), dict(nesterov=nesterov))


def adamax(learning_rate: Any, b1: Any = 0.9, b2: Any = 0.999, eps: Any = 1e-8) -> Optimizer:
    return _made("adamax", learning_rate, dict(b1=b1, b2=b2, eps=eps))


def adamaxw(learning_rate: Any, b1: Any = 0.9, b2: Any = 0.999, eps: Any = 1e-8, weight_decay: Any = 1e-4, mask: Any = None) -> Optimizer:
    made = _made("adamaxw", learning_rate, dict(b1=b1, b2=b2, eps=eps, weight_decay=weight_decay), kind="adamax")
    return _masked(made, mask, "adamaxw: mask")


def adagrad(learning_rate: Any, initial_accumulator_value: Any = 0.1, eps: Any = 1e-7) -> Optimizer:
    return _made("adagrad", learning_rate, dict(initial_accumulator_value=initial_accumulator_value, eps=eps))


def adadelta(learning_rate: Any = None, rho: Any = 0.9, eps: Any = 1e-6, weight_decay: Any = 0.0, weight_decay_mask: Any = None) -> Optimizer:
    """The decay is added to the gradient, before all else."""
    if learning_rate is None:
        raise UnsupportedError("adadelta: learning_rate is None, with which optax's ascends: expected a number or a schedule")
    decay = numbers_of("adadelta", weight_decay=weight_decay)["weight_decay"]
    made = _made("adadelta", learning_rate, dict(rho=rho, eps=eps) | (dict(l2=decay) if decay else {}))
    return _masked(made, weight_decay_mask, "adadelta: weight_decay_mask")


def rmsprop(learning_rate: Any, decay: Any = 0.9, eps: Any = 1e-8, initial_scale: Any = 0.0, eps_in_sqrt: bool = True, centered: bool = False,
            momentum: Any = None, nesterov: bool = False, bias_correction: bool = False) -> Optimizer:
    return _made("rmsprop", learning_rate, *_with_momentum(
        dict(decay=decay, eps=eps, initial_scale=initial_scale),
        dict(eps_in_sqrt=eps_in_sqrt, centered=centered, bias_correction=bias_correction), momentum, nesterov))


def lion(learning_rate: Any, b1: Any = 0.9, b2: Any = 0.99, mu_dtype: Any = None, weight_decay: Any = 1e-3, mask: Any = None) -> Optimizer:
    _refuse("lion", _OWN_TYPE, mu_dtype=mu_dtype)
    return _masked(_made("lion", learning_rate, dict(b1=b1, b2=b2, weight_decay=weight_decay)), mask, "lion: mask")


def lamb(learning_rate: Any, b1: Any = 0.9, b2: Any = 0.999, eps: Any = 1e-6, eps_root: Any = 0.0, weight_decay: Any = 0.0,
         mask: Any = None) -> Optimizer:
    made = _made("lamb", learning_rate, dict(b1=b1, b2=b2, eps=eps, eps_root=eps_root, weight_decay=weight_decay))
    return _masked(made, mask, "lamb: mask")


def lars(learning_rate: Any, weight_decay: Any = 0.0, weight_decay_mask: Any = True, trust_coefficient: Any = 0.001, eps: Any = 0.0,
         trust_ratio_mask: Any = True, momentum: Any = 0.9, nesterov: bool = False) -> Optimizer:
    numbers = dict(weight_decay=weight_decay, trust_coefficient=trust_coefficient, eps=eps, momentum=momentum)
    made = _made("lars", learning_rate, numbers, dict(nesterov=nesterov))
    scaled, other = (_masked(replace(made, kind=kind), weight_decay_mask, "lars: weight_decay_mask") for kind in ("lars", LARS_WITHOUT_RATIO))
    return _parted(scaled, other, trust_ratio_mask, "lars: trust_ratio_mask")


def set_to_zero() -> Optimizer:
    """Parameters stay as they are."""
    return Optimizer(FROZEN)


def multi_transform(transforms: Mapping[Hashable, Optimizer], param_labels: Any) -> Optimizer:
    if not transforms:
        raise InvalidArgumentError("multi_transform: expected an optimizer for each label, got none")
    for label, part in transforms.items():
        if not isinstance(part, Optimizer):
            raise UnsupportedError(f"multi_transform: {label!r} is {part!r}, expected an optimizer of trainc.jax")
    return Optimizer(MULTI, parts=dict(transforms), labels=param_labels, source="multi_transform: param_labels")


# Groups.

def _labels(optimizer: Optimizer, params: Any) -> list[Any]:
    """The label of each parameter."""
    given = optimizer.labels
    leaves = jax.tree_util.tree_leaves(given)
    if leaves and all(map(callable, leaves)):
        given = given(params)
    try:
        of_parts = jax.tree_util.tree_map(lambda label, part: jax.tree_util.tree_map(lambda _: label, part), given, params)
    except ValueError as error:
        raise InvalidArgumentError(f"{optimizer.source}: expected the structure of the parameters, or a prefix: {error}") from None
    labels = jax.tree_util.tree_leaves(of_parts)
    return labels if optimizer.kind == MULTI else [bool(label) for label in labels]


def _split(optimizer: Optimizer, params: Any, names: Mapping[int, str], path: tuple[str, ...]) -> list[tuple[tuple[str, ...], Optimizer, list[int]]]:
    """(labels of multi_transform, optimizer without parts, its parameters) of the parameters in `names`, by their indices."""
    if not optimizer.parts:
        return [(path, optimizer, list(names))] if names else []
    labels = _labels(optimizer, params)
    if unknown := {name: labels[i] for i, name in names.items() if labels[i] not in optimizer.parts}:
        raise InvalidArgumentError(f"{optimizer.source}: expected labels of {list(optimizer.parts)}, got "
                                   f"{', '.join(f'{label!r} of {name}' for name, label in unknown.items())}")
    found = []
    for label, part in optimizer.parts.items():
        of_part = {i: name for i, name in names.items() if labels[i] == label}
        found += _split(part, params, of_part, (*path, str(label)) if optimizer.kind == MULTI else path)
    return found


def _lars_without_ratio(region: UpdateRegion, numbers: Mapping[str, float], nesterov: bool) -> tuple[dict[str, float], list[str]]:
    r, decay = region, region.number(numbers["momentum"])
    u = r.mul(r.lr, r.add("%g", r.mul(r.number(numbers["weight_decay"]), "%p")))
    trace = r.add(r.mul(decay, "%trace"), u)
    return {"trace": 0.0}, [r.sub("%p", r.add(u, r.mul(decay, trace)) if nesterov else trace), trace]


def _text(name: str, optimizer: Optimizer, dtypes: Collection[str], words: str) -> str:
    """The optimizer of that name and its schedule."""
    text, rate = "", optimizer.rate
    if isinstance(rate, Schedule):
        text, rate = rate.text(f"{name}.schedule") + "\n", symbol(f"{name}.schedule")
    if optimizer.kind == LARS_WITHOUT_RATIO:
        region = UpdateRegion.of(dtypes)
        states, results = _lars_without_ratio(region, optimizer.numbers, optimizer.flags["nesterov"])
        return text + region.text(name, states, rate if isinstance(rate, str) else number(rate), results, words)
    return text + f"train.optimizer {symbol(name)} = {optimizer.kind}<{attributes({'lr': rate, **optimizer.numbers}, optimizer.flags)}>{words}"


def groups_of(optimizer: Optimizer, params: Any, names: Sequence[str], taken: Collection[str], ema: Any = None,
              is_clipped: bool = False) -> list[Group]:
    """A group per optimizer and mask, none of a name that is `taken`. `names` are those of the leaves of `params`, in order; leaves that are no
    floats are in no group, nor are parameters of `set_to_zero`, but that their gradients count where the norm `is_clipped`: there they
    have a rate of 0. `ema` is the decay of moving averages of the parameters."""
    if not isinstance(optimizer, Optimizer):
        raise UnsupportedError(f"optimizer {optimizer!r}: expected one of trainc.jax, such as trainc.jax.adam(1e-3): what optax's own functions "
                               "return cannot be read")
    leaves = jax.tree_util.tree_leaves(params)
    words = "" if ema is None else f" ema({number(numbers_of('ema', decay=ema)['decay'])})"
    floats = {i: name for i, (name, x) in enumerate(zip(names, leaves)) if str(getattr(x, "dtype", "")) in DTYPES}
    found = _split(optimizer, params, floats, ())
    if any(part.kind != FROZEN for _, part, _ in found) and is_clipped:
        found = [(path, sgd(0.0) if part.kind == FROZEN else part, indices) for path, part, indices in found]
    found = [part for part in found if part[1].kind != FROZEN]
    wanted = ["_".join(path) or "optimizer" for path, _, _ in found] if len(found) > 1 else ["optimizer"] * len(found)
    own, groups = {name.removesuffix(".schedule") for name in taken} | {*taken}, []
    for i, (name, (_, part, indices)) in enumerate(zip(wanted, found)):
        if wanted.count(name) > 1:
            name = f"{name}_{wanted[:i].count(name)}"
        name = free_name(name, own)
        own |= {name, f"{name}.schedule"}
        text = _text(name, part, {DTYPES[leaves[k].dtype.name] for k in indices}, words)
        groups.append(Group(name, part.kind, text, tuple(names[k] for k in indices), _decays(part)))
    return groups
