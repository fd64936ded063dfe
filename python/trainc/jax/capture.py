"""From functions of pytrees to a jaxpr of named leaves."""
from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from .._entry import OPENED, mapped
from ..errors import UnsupportedError
from .keys import is_key


def is_array(x: Any) -> bool:
    return isinstance(x, jax.Array | np.ndarray | np.generic)


def is_float(x: Any) -> bool:
    return is_array(x) and not is_key(x) and jnp.issubdtype(x.dtype, jnp.floating)


@dataclass
class Tree:
    """A pytree of the model. Its arrays have names, its other leaves stay as they are in what is traced, as do arrays that are `fixed`."""

    leaves: list[Any]
    structure: Any
    names: list[str]
    fixed: list[bool]

    @staticmethod
    def of(tree: Any, what: str, fixed: Callable[[Any], bool]) -> Tree:
        paths, structure = jax.tree_util.tree_flatten_with_path(tree)
        names = [_named(path) or what for path, _ in paths]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise UnsupportedError(f"two leaves of {what} are called {', '.join(twice)}: expected keys without dots")
        leaves = [leaf for _, leaf in paths]
        return Tree(leaves, structure, names, [not is_array(x) or fixed(x) for x in leaves])

    def arrays(self) -> list[tuple[str, Any]]:
        return [(name, x) for name, x, fixed in zip(self.names, self.leaves, self.fixed) if not fixed]

    def filled(self, arrays: Sequence[Any]) -> Any:
        """The tree with other arrays."""
        rest = iter(arrays)
        return self.structure.unflatten([x if fixed else next(rest) for x, fixed in zip(self.leaves, self.fixed)])


def _named(path: Sequence[Any]) -> str:
    """A path as a name; the value of a variable of flax.nnx has the variable's."""
    of_variable = len(path) > 1 and isinstance(path[-1], jax.tree_util.GetAttrKey) and path[-1].name == "value"
    return jax.tree_util.keystr(path[:-1] if of_variable else path, simple=True, separator=".")


@dataclass
class Batch:
    """The arguments behind parameters and state: their names, the leaves that are arrays by name, and how a function is called with others.
    `constants` are the other leaves, `keys` those arrays that are random keys, `shapes` those of the others, as one rank gives them."""

    items: list[str]
    given: Any
    arrays: dict[str, Any] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)
    order: list[str] = field(default_factory=list)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)

    @staticmethod
    def of(function: Callable[..., Any], example: Any, skipped: int, rng_args: Collection[str | int]) -> Batch:
        if not isinstance(example, Mapping | tuple | list):
            raise UnsupportedError(f"the example batch is {type(example).__name__}: expected a tuple of the arguments behind the parameters, or a "
                                   "dict of their names")
        items = list(example) if isinstance(example, Mapping) else _names_of(function, len(example), skipped)
        batch = Batch(items, example)
        random = {items[r] if isinstance(r, int) else r for r in rng_args}
        if unknown := random - set(items):
            raise UnsupportedError(f"rng_args: no argument is called {', '.join(sorted(unknown))}: expected some of {', '.join(items)}")

        def take(item: str) -> Callable[[str, Any], None]:
            def one(name: str, leaf: Any) -> None:
                if name in batch.order:
                    raise UnsupportedError(f"two inputs are called {name}")
                batch.order.append(name)
                if is_array(leaf):
                    batch.arrays[name] = leaf
                    if is_key(leaf) or item in random:
                        batch.keys.add(name)
                    else:
                        batch.shapes[name] = tuple(leaf.shape)
                else:
                    batch.constants[name] = leaf

            return one

        for item, value in batch.pairs():
            jax.tree_util.tree_flatten(value, is_leaf=_is_opened)
            mapped(value, item, take(item))
        return batch

    def pairs(self) -> list[tuple[str, Any]]:
        return list(self.given.items()) if isinstance(self.given, Mapping) else list(zip(self.items, self.given))

    def filled(self, arrays: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Positional and named arguments with these arrays."""
        made = [(item, mapped(value, item, lambda name, leaf: arrays.get(name, leaf))) for item, value in self.pairs()]
        return ([], dict(made)) if isinstance(self.given, Mapping) else ([x for _, x in made], {})


def _is_opened(x: Any) -> bool:
    """Has `mapped` open the type of a pytree of the user's own; False, so that it is walked."""
    if not isinstance(x, dict | list | tuple | None) and not jax.tree_util.all_leaves([x]):
        OPENED[type(x)] = _opened
    return False


def _opened(tree: Any) -> tuple[list[tuple[str, Any]], Any]:
    paths, structure = jax.tree_util.tree_flatten_with_path(tree)
    return [(_named(path), leaf) for path, leaf in paths], structure


def _names_of(function: Callable[..., Any], count: int, skipped: int) -> list[str]:
    """Of the arguments behind the first ones."""
    names: list[str] = []
    for i, p in enumerate(inspect.signature(function).parameters.values()):
        if i < skipped and p.kind is not p.VAR_POSITIONAL:
            continue
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
            names.append(p.name)
        elif p.kind is p.VAR_POSITIONAL:
            names += [p.name if count - len(names) == 1 else f"{p.name}_{i}" for i in range(count - len(names))]
    if len(names) < count:
        raise UnsupportedError(f"{count} arguments in the example batch: the function takes {len(names)} behind the first {skipped}")
    return names[:count]


@dataclass
class Traced:
    """The jaxpr of an entry, of the arrays of parameters, state and batch in this order, and the tree of what it returns."""

    closed: core.ClosedJaxpr
    results: Any


def trace(function: Callable[..., Any], trees: Sequence[Tree], batch: Batch) -> Traced:
    shapes: list[Any] = []

    def flat(arrays: Sequence[Sequence[Any]], inputs: Mapping[str, Any]) -> list[Any]:
        positional, by_name = batch.filled(inputs)
        results = function(*(tree.filled(a) for tree, a in zip(trees, arrays)), *positional, **by_name)
        leaves, structure = jax.tree_util.tree_flatten(results)
        shapes.append((structure, leaves))
        return [x for x in leaves if is_array(x)]

    arrays = [[abstract(x) for _, x in tree.arrays()] for tree in trees]  # an update makes weak types strong
    # A dict is flattened in the order of its keys.
    inputs = {f"{i:06}": abstract(x, getattr(x, "weak_type", False)) for i, x in enumerate(batch.arrays.values())}
    closed = jax.make_jaxpr(lambda a, i: flat(a, dict(zip(batch.arrays, i.values()))))(arrays, inputs)
    structure, leaves = shapes[-1]
    return Traced(closed, structure.unflatten([_Result(i) if is_array(x) else x for i, x in _numbered(leaves)]))


@dataclass(frozen=True)
class _Result:
    """Stands for a result of the jaxpr by its number."""

    number: int


def _numbered(leaves: Sequence[Any]) -> list[tuple[int, Any]]:
    numbers = iter(range(len(leaves)))
    return [(next(numbers) if is_array(x) else -1, x) for x in leaves]


def with_results(tree: Any, results: Sequence[Any]) -> Any:
    """The tree of an entry's results with these in place of what stands for them."""
    return jax.tree_util.tree_map(lambda x: results[x.number] if isinstance(x, _Result) else x, tree, is_leaf=lambda x: isinstance(x, _Result))


def abstract(x: Any, weak_type: bool = False) -> jax.ShapeDtypeStruct:
    """The shape and type that JAX gives an array."""
    if is_key(x):
        return jax.ShapeDtypeStruct(x.shape, x.dtype)
    return jax.ShapeDtypeStruct(np.shape(x), jax.dtypes.canonicalize_dtype(x.dtype), weak_type=weak_type)
