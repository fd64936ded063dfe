"""Random keys of a loss. A step draws by its own seed, so a key has no bits here: what it was made from tells two keys apart."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
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

    def at(self, i: int) -> Keys:
        """Those of this index."""
        return Keys(self.made[i:i + 1].reshape(self.shape[1:]), self.raw)


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


MOVES = {"slice", "squeeze", "reshape", "expand_dims", "transpose", "broadcast_in_dim", "rev", "gather", "dynamic_slice", "dynamic_update_slice",
         "scatter", "concatenate", "stack", "unstack", "split", "select_n", "copy", "copy_p", "stop_gradient"}
SAME = {"optimization_barrier", "random_clone"}


def _moved(equation: core.JaxprEqn, operands: Sequence[Any]) -> list[Keys]:
    """What moves elements: JAX does, with numbers in place of keys."""
    if any(isinstance(x, Value | Count) for x in operands):
        raise ValueError("a random key that depends on data")
    arrays = [x.made if isinstance(x, Keys) else _constants(x) if is_key(x) else None for x in operands]
    every = [key for made in arrays if made is not None for key in made.reshape(-1)]
    begin, given = 0, []
    for x, made in zip(operands, arrays):
        if made is None:
            given.append(x)
            continue
        given.append(np.arange(begin, begin + made.size, dtype=np.int32).reshape(made.shape))
        begin += made.size
    results = equation.primitive.bind(*given, **equation.params)
    numbers = [np.asarray(x) for x in (results if equation.primitive.multiple_results else [results])]
    if any((x < 0).any() for x in numbers):
        raise ValueError("a random key from outside of an array of keys")
    raw = next(x.raw for x in operands if isinstance(x, Keys))
    table = np.empty(len(every), object)
    table[:] = every
    return [Keys(table[x.reshape(-1)].reshape(x.shape), raw) for x in numbers]


def is_key(x: Any) -> bool:
    return isinstance(x, jax.Array | jax.ShapeDtypeStruct) and jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key)


def _constants(keys: Any) -> np.ndarray:
    """Known keys, by their bits."""
    words = np.asarray(jax.random.key_data(keys))
    made = np.empty(keys.shape, object)
    for index in np.ndindex(*made.shape):
        made[index] = ("constant", *words[index].tolist())
    return made


def _child(equation: core.JaxprEqn, key: Any, number: Any, shape: Sequence[int] = ()) -> Any:
    """JAX's key i of a split, into however many, is that into which i was folded."""
    name = equation.primitive.name
    if "urbg" in str(equation.outvars[0].aval.dtype):
        return (*key, (name, number))
    return (*key, (number,) if jax.config.jax_threefry_partitionable else (name, *shape, number))


def followed(equation: core.JaxprEqn, operands: Sequence[Any], alike: Callable[[Value], str]) -> list[Any] | None:
    """The results of an equation that makes or moves keys or counts; None if it does something else. `alike` is one name for values that are
    computed alike."""
    name, p, first = equation.primitive.name, equation.params, operands[0] if operands else None
    shape = tuple(equation.outvars[0].aval.shape)
    if isinstance(first, Count) or name == "add" and isinstance(operands[1], Count):
        return _counted(name, operands)
    if name == "random_seed" and isinstance(first, Value):
        return [Keys(_named(first, shape, ("seed", alike(first))))]
    if name == "random_fold_in":
        made = first.made if isinstance(first, Keys) else _constants(first)
        return [_folded(equation, np.broadcast_to(made, shape), operands[1], alike)]
    if not any(isinstance(x, Keys) for x in operands):
        return None
    if name == "random_wrap":
        return [_wrapped(first)]
    if name == "random_unwrap":
        return [_unwrapped(first, shape[-1])]
    if name == "random_split":
        return [_each(first, p["shape"], lambda key, i: _child(equation, key, int(np.ravel_multi_index(i, p["shape"])), p["shape"]))]
    if name in SAME:
        return list(operands)
    return _moved(equation, operands) if name in MOVES else None


def _named(x: Value, shape: Sequence[int], name: tuple[Any, ...]) -> np.ndarray:
    """An element each of a value, which is called so."""
    made = np.empty(tuple(shape), object)
    for index in np.ndindex(*made.shape):
        made[index] = (*name, *index) if x.rank else name
    return made


def _folded(equation: core.JaxprEqn, keys: np.ndarray, data: Any, alike: Callable[[Value], str]) -> Keys:
    if isinstance(data, Value):
        data = _named(data, data.shape, ("data", alike(data)))
    elif not isinstance(data, Count):
        data = np.asarray(data).astype(object) % (1 << 32)
    made = np.empty(keys.shape, object)
    for index in np.ndindex(*keys.shape):
        made[index] = _child(equation, keys[index], data if isinstance(data, Count) else np.broadcast_to(data, keys.shape)[index])
    return Keys(made)


def _counted(name: str, operands: Sequence[Any]) -> list[Any] | None:
    count = next(x for x in operands if isinstance(x, Count))
    others = [x for x in operands if x is not count]
    if name == "add" and len(others) == 1 and not isinstance(others[0], Value | Keys | Count):
        return [Count(count.name, count.added + int(others[0]))]
    if name == "scatter" and isinstance(operands[2], Count) and np.size(operands[1]) == 0:  # count[...] = other
        return [operands[2]]
    return [count] if name in ("convert_element_type", "copy", "copy_p", "reshape", "squeeze", "stop_gradient") else None
