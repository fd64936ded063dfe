"""Random keys of a loss. A step draws by its own seed, so a key has no bits here: what it was made from tells two keys apart."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax.extend import core

from ..emit import Value


@dataclass(frozen=True)
class Keys:
    """An array of keys: how each was made. The words of raw ones, uint32[..., 2] for threefry, are pairs of that and their number."""

    made: np.ndarray  # of objects
    raw: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        return self.made.shape


@dataclass(frozen=True)
class Count:
    """A number that counts draws, as nnx.RngCount: the input or state `name` and what was added to it."""

    name: str
    added: int = 0


def keys_of(name: str, shape: Sequence[int], raw: bool) -> Keys:
    """The keys of an input or state."""
    made = np.empty(tuple(shape), object)
    for index in np.ndindex(*made.shape):
        made[index] = ((name, *index[:-1]), index[-1]) if raw else (name, *index)
    return Keys(made, raw)


def _each(keys: Keys, shape: Sequence[int], make: Any) -> Keys:
    """Of each key an array of keys of this shape."""
    made = np.empty((*keys.shape, *shape), object)
    for index in np.ndindex(*keys.shape):
        for inner in np.ndindex(*shape):
            made[(*index, *inner)] = make(keys.made[index], inner)
    return Keys(made)


def _wrapped(keys: Keys) -> Keys:
    made = np.empty(keys.shape[:-1], object)
    for index in np.ndindex(*made.shape):
        words = [keys.made[(*index, i)] for i in range(keys.shape[-1])]
        if [number for _, number in words] != list(range(len(words))) or len({of for of, _ in words}) != 1:
            raise ValueError("a key that is put together of words of others")
        made[index] = words[0][0]
    return Keys(made)


def _unwrapped(keys: Keys, words: int) -> Keys:
    made = np.empty((*keys.shape, words), object)
    for index in np.ndindex(*made.shape):
        made[index] = keys.made[index[:-1]], index[-1]
    return Keys(made, True)


def _moved(name: str, x: np.ndarray, p: dict[str, Any], shape: tuple[int, ...]) -> np.ndarray | None:
    """What moves elements, of an array of objects."""
    if name == "slice":
        strides = p["strides"] or (1,) * x.ndim
        return x[tuple(slice(b, e, s) for b, e, s in zip(p["start_indices"], p["limit_indices"], strides))]
    if name in ("squeeze", "reshape", "expand_dims"):
        return x.reshape(shape)
    if name == "transpose":
        return x.transpose(p["permutation"])
    if name == "broadcast_in_dim":
        inner = [1] * len(shape)
        for d, n in zip(p["broadcast_dimensions"], x.shape):
            inner[d] = n
        return np.broadcast_to(x.reshape(inner), shape)
    return x if name in ("copy", "copy_p", "optimization_barrier", "stop_gradient", "random_clone") else None


def followed(equation: core.JaxprEqn, operands: Sequence[Any]) -> list[Any] | None:
    """The results of an equation that makes or moves keys or counts; None if it does something else."""
    name, p, first = equation.primitive.name, equation.params, operands[0] if operands else None
    shape = tuple(equation.outvars[0].aval.shape)
    if isinstance(first, Count) or name == "add" and isinstance(operands[1], Count):
        return _counted(name, operands)
    if not isinstance(first, Keys):
        return None
    if name == "random_wrap":
        return [_wrapped(first)]
    if name == "random_unwrap":
        return [_unwrapped(first, shape[-1])]
    if name == "random_split":
        return [_each(first, p["shape"], lambda key, i: (*key, "split", p["shape"], i))]
    if name == "random_fold_in":
        data = operands[1]
        what = data.name if isinstance(data, Value) else data if isinstance(data, Count) else tuple(np.asarray(data).reshape(-1).tolist())
        return [_each(first, (), lambda key, _: (*key, "fold_in", what))]
    if name == "unstack":
        axis = p["axis"]
        return [Keys(part, first.raw) for part in np.moveaxis(first.made, axis, 0)]
    moved = _moved(name, first.made, p, shape)
    return None if moved is None else [Keys(moved, first.raw)]


def _counted(name: str, operands: Sequence[Any]) -> list[Any] | None:
    count = next(x for x in operands if isinstance(x, Count))
    others = [x for x in operands if x is not count]
    if name == "add" and len(others) == 1 and not isinstance(others[0], Value | Keys | Count):
        return [Count(count.name, count.added + int(others[0]))]
    if name == "scatter" and isinstance(operands[2], Count) and np.size(operands[1]) == 0:  # count[...] = other
        return [operands[2]]
    return [count] if name in ("convert_element_type", "copy", "copy_p", "reshape", "squeeze", "stop_gradient") else None
