"""Frozen weights in 8 bits: which they are, and how they are rounded."""
from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch

from ..emit import Type
from .capture import PREFIX

_A = torch.ops.aten
# Products of activations and a weight, by the place of the weight among the arguments.
PRODUCTS = {_A.linear.default: 1, _A.addmm.default: 2, _A.mm.default: 1, _A.matmul.default: 1}
CASTS = (_A._to_copy.default, _A.to.dtype, _A.to.dtype_layout)


@dataclass(frozen=True)
class Int8:
    """A frozen weight that is stored in 8 bits: row o is scale[o] times values[o], each as the name of a buffer. A product widens it
    to its type, and casts it as the model does, when it needs it, also in the backward pass."""

    values: str
    scale: str
    type: Type
    casts: tuple[str, ...] = ()


def quantized(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(values, scale): symmetric, by rows: scale = max |w| / 127, values = w / scale rounded half to even."""
    scale = weight.detach().abs().amax(1) / 127
    values = (weight.detach() / torch.where(scale > 0, scale, 1.0)[:, None]).round().clamp(-127, 127)
    return values.to(torch.int8), scale


def is_cast(node: torch.fx.Node) -> bool:
    """Whether an operation casts its first argument to another floating-point type."""
    if node.target not in CASTS:
        return False
    before, after = (getattr(n.meta.get("val"), "dtype", None) for n in (node.args[0], node))
    return None is not before != after and after.is_floating_point


def weight_of(node: torch.fx.Node) -> torch.fx.Node | None:
    """What a product has as its weight, before casts."""
    weight = node.args[PRODUCTS[node.target]] if node.target in PRODUCTS else None
    while weight is not None and is_cast(weight):
        weight = weight.args[0]
    return weight


def _others(node: torch.fx.Node) -> Iterator[torch.fx.Node]:
    """What reads a weight, or a cast of it, but products."""
    for user in node.users:
        if is_cast(user):
            yield from _others(user)
        elif [i for i, x in enumerate(user.args) if x is node] != [PRODUCTS.get(user.target)]:
            yield user


def frozen_weights(programs: Iterable[torch.export.ExportedProgram], names: Mapping[str, str], changed: Collection[str]
                   ) -> tuple[dict[str, tuple[torch.Tensor, torch.Tensor]], dict[str, str]]:
    """Of all parameters that require no gradient, but for vectors: those that all entries have only in products, as 8 bits, and the
    others, with the reason."""
    weights: dict[str, torch.Tensor] = {}
    reasons: dict[str, str] = {}
    for program in programs:
        targets = program.graph_signature.inputs_to_parameters
        for node in program.graph.find_nodes(op="placeholder"):
            target = targets.get(node.name)
            if target is None or not node.users or (weight := program.state_dict[target]).requires_grad or weight.dim() < 2:
                continue
            name = names[target.removeprefix(PREFIX)]
            weights[name] = weight
            if name in changed:
                reasons[name] = "the forward changes it in place"
            elif other := next(_others(node), None):
                reasons[name] = f"{other.target} reads it"
            elif weight.dim() != 2:
                reasons[name] = f"it has {weight.dim()} dimensions"
    return {name: quantized(weight) for name, weight in weights.items() if name not in reasons}, reasons
