"""Several ranks: how PartitionSpecs shard parameters, inputs and values."""
from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
from jax.sharding import PartitionSpec

from .._entry import mapped
from ..emit import split
from ..errors import UnsupportedError
from .capture import Batch, Tree

Spec = tuple[tuple[str, ...], ...]  # of each dimension the axes that shard it


@dataclass
class Ranks:
    """The mesh (axis -> ranks), and what it shards: parameters by their names, inputs by theirs."""

    mesh: dict[str, int] = field(default_factory=dict)
    parameters: dict[str, Spec] = field(default_factory=dict)
    inputs: dict[str, Spec] = field(default_factory=dict)

    @staticmethod
    def of(mesh: Any, param_specs: Any, batch_specs: Any, parameters: Tree, batch: Batch) -> Ranks:
        """`mesh` is a dict, or one of JAX; specs are pytree prefixes of parameters and batch."""
        ranks = Ranks(dict(getattr(mesh, "shape", mesh) or {}))
        for axis, size in ranks.mesh.items():
            if not (isinstance(axis, str) and axis.isidentifier() and axis.isascii() and isinstance(size, int) and size > 0):
                raise UnsupportedError(f"mesh: {axis!r}: {size!r}: expected a name and a number of ranks")
        if param_specs is not None:
            specs = _broadcast(param_specs, parameters.structure.unflatten(parameters.leaves), "param_specs")
            for name, leaf, fixed, spec in zip(parameters.names, parameters.leaves, parameters.fixed, jax.tree_util.tree_leaves(specs), strict=True):
                if not fixed:
                    ranks.parameters[name] = ranks.checked(spec, len(leaf.shape), name)
        if batch_specs is not None:
            ranks._shard_inputs(batch_specs, batch)
        return ranks

    def _shard_inputs(self, batch_specs: Any, batch: Batch) -> None:
        given = batch.given if isinstance(batch.given, Mapping) else tuple(batch.given)
        specs = _broadcast(tuple(batch_specs) if isinstance(batch_specs, list) else batch_specs, given, "batch_specs")

        def take(name: str, spec: Any) -> None:
            if name in batch.keys and tuple(spec):
                raise UnsupportedError(f"batch_specs: {name} is a random key, which is no input: expected None")
            if name in batch.arrays:
                self.inputs[name] = self.checked(spec, len(batch.arrays[name].shape), name)

        for i, item in enumerate(batch.items):
            mapped(specs[item if isinstance(specs, Mapping) else i], item, take)

    def checked(self, spec: PartitionSpec, rank: int, what: str) -> Spec:
        """A spec of a value of `rank` dimensions."""
        found: list[tuple[str, ...]] = []
        for entry in spec:
            if entry is PartitionSpec.UNCONSTRAINED:
                raise UnsupportedError(f"{what}: {spec} leaves a dimension open: expected axes or None")
            found.append(() if entry is None else (entry,) if isinstance(entry, str) else tuple(entry))
        if unknown := sorted({axis for axes in found for axis in axes} - self.mesh.keys()):
            raise UnsupportedError(f"{what}: {spec} names {', '.join(unknown)}: expected axes of the mesh {self.mesh}")
        if len(found) > rank:
            raise UnsupportedError(f"{what}: {spec} has {len(found)} dimensions, the value has {rank}")
        return tuple(found)

    def whole(self, batch: Batch) -> None:
        """Makes a batch of one rank that of all: dimensions that are sharded get as many times longer."""
        for name, x in batch.arrays.items():
            spec = self.inputs.get(name, ())
            if len(spec) > len(x.shape):
                raise UnsupportedError(f"batch_specs: {name} has {len(x.shape)} dimensions here, expected {len(spec)} or more")
            times = [math.prod(self.mesh[axis] for axis in axes) for axes in spec] + [1] * (len(x.shape) - len(spec))
            batch.arrays[name] = jax.ShapeDtypeStruct([n * k for n, k in zip(x.shape, times)], x.dtype, weak_type=getattr(x, "weak_type", False))

    def used(self, name: str) -> list[list[str]] | None:
        """How a parameter is used that is sharded over the batch's axes: without these. None of others."""
        of_batch = {axis for spec in self.inputs.values() for axes in spec for axis in axes}
        spec = self.parameters.get(name, ())
        if of_batch.isdisjoint(axis for axes in spec for axis in axes):
            return None
        return [[axis for axis in axes if axis not in of_batch] for axes in spec]

    def of_parameter(self, name: str) -> str:
        return split(self.parameters.get(name, ()))

    def of_input(self, name: str) -> str:
        return split(self.inputs.get(name, ()))


def _is_spec(x: Any) -> bool:
    return x is None or isinstance(x, PartitionSpec | jax.sharding.NamedSharding)


def _broadcast(specs: Any, tree: Any, what: str) -> Any:
    """A spec for each leaf; None is replicated."""
    try:
        specs = jax.tree_util.tree_map(lambda s: PartitionSpec() if s is None else getattr(s, "spec", s), specs, is_leaf=_is_spec)
        return jax.tree_util.tree_broadcast(specs, tree, is_leaf=_is_spec)
    except ValueError as error:
        raise UnsupportedError(f"{what}: expected a pytree prefix of PartitionSpecs: {error}") from None
