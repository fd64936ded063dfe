"""Several ranks: which inputs they divide, and which layers (tensor parallel)."""
from __future__ import annotations

import fnmatch
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from .._entry import mapped
from ..emit import split
from ..errors import UnsupportedError
from .capture import Batch

BATCH_AXES, MODEL_AXIS = ("host", "data"), "model"
# In the words of torch.distributed.tensor.parallel and of transformers: whether outputs are sharded, inputs, or neither.
OUTPUTS, INPUTS, NEITHER = ("colwise", "colwise_rep", "colwise_gather_output"), ("rowwise", "rowwise_rep"), ("replicate", "sequence_parallel")


@dataclass
class Ranks:
    """The mesh (axis -> ranks), the dimension of each parameter that is sharded over `model`, and of inputs that over the batch's axes,
    as it is given."""

    mesh: dict[str, int] = field(default_factory=dict)
    sharded: dict[str, int] = field(default_factory=dict)
    batch_dims: Mapping[str, int | None] = field(default_factory=dict)

    @property
    def batch_axes(self) -> list[str]:
        return [axis for axis in BATCH_AXES if axis in self.mesh]

    def whole(self, names: Sequence[str], batch: Batch) -> tuple[Batch, dict[str, int]]:
        """The batch of all ranks, of one rank's: what a rank has a part of is repeated along a dimension, which is there by name; that of
        the examples, also of one rank."""
        times = math.prod(self.mesh[axis] for axis in self.batch_axes)
        items = list(batch.items() if isinstance(batch, Mapping) else zip(names, batch))
        tensors: list[torch.Tensor] = []
        for name, item in items:
            mapped(item, name, lambda _, leaf: tensors.append(leaf) if isinstance(leaf, torch.Tensor) and leaf.dim() else None)
        first, dims = tensors[0].shape[0] if tensors else None, {}

        def widen(name: str, leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            dim = self.batch_dims[name] if name in self.batch_dims else 0 if leaf.dim() and leaf.shape[0] == first else None
            if dim is None:
                return leaf
            if not 0 <= dim < leaf.dim():
                raise UnsupportedError(f"batch_dims: {name} has no dimension {dim}, its shape is {tuple(leaf.shape)}")
            dims[name] = dim
            return torch.cat([leaf] * times, dim) if times > 1 else leaf

        widened = [(name, mapped(item, name, widen)) for name, item in items]
        return dict(widened) if isinstance(batch, Mapping) else tuple(item for _, item in widened), dims

    def of_input(self, dim: int | None) -> str:
        return "" if dim is None else split([[]] * dim + [self.batch_axes])

    def of_parameter(self, name: str) -> str:
        return split([[]] * self.sharded[name] + [[MODEL_AXIS]]) if name in self.sharded else ""


def _plan_of(model: nn.Module) -> dict[str, str]:
    """The plan of a model of transformers."""
    plan = getattr(getattr(model, "config", None), "base_model_tp_plan", None)
    if not plan:
        raise UnsupportedError(f"parallel='auto': {type(model).__name__} has no config.base_model_tp_plan; give a plan, "
                               "{'*.q_proj': 'colwise', ...}")
    prefix = getattr(model, "base_model_prefix", "")
    inside = bool(prefix) and isinstance(getattr(model, prefix, None), nn.Module)
    return {f"{prefix}.{name}" if inside else name: style for name, style in plan.items()}


def ranks_of(model: nn.Module, names: Mapping[str, str], mesh: Mapping[str, int] | None, parallel: Mapping[str, str] | str | None,
             batch_dims: Mapping[str, int | None] | None) -> Ranks:
    """`names` are those that tensors have in the module."""
    mesh = dict(mesh or {})
    unknown = sorted(set(mesh) - {*BATCH_AXES, MODEL_AXIS})
    if unknown:
        raise UnsupportedError(f"mesh: expected axes among {', '.join((*BATCH_AXES, MODEL_AXIS))}, got {', '.join(unknown)}")
    if parallel is None:
        return Ranks(mesh, {}, batch_dims or {})
    if MODEL_AXIS not in mesh:
        raise UnsupportedError(f"parallel= needs a mesh with an axis '{MODEL_AXIS}', got {mesh}")
    plan = _plan_of(model) if parallel == "auto" else parallel
    sharded: dict[str, int] = {}
    for pattern, style in plan.items():
        if style not in (*OUTPUTS, *INPUTS, *NEITHER):
            raise UnsupportedError(f"parallel: {pattern} is '{style}', expected one of {', '.join((*OUTPUTS, *INPUTS, *NEITHER))}")
        found = [(name, m) for name, m in model.named_modules() if fnmatch.fnmatchcase(name, pattern)]
        if not found:
            raise UnsupportedError(f"parallel: no module is called {pattern}")
        for name, module in found if style not in NEITHER else []:
            sharded |= {names[f"{name}.{key}"]: dim for key, dim in _dims_of(name, module, style in OUTPUTS).items()}
    return Ranks(mesh, sharded, batch_dims or {})


def _dims_of(name: str, module: nn.Module, outputs: bool) -> dict[str, int]:
    """Of each parameter of a layer the dimension that is sharded, along its outputs or its inputs."""
    if isinstance(module, nn.Linear):
        dims = {"weight": 0, "bias": 0} if outputs else {"weight": 1}
    elif isinstance(module, nn.Embedding):
        dims = {"weight": 1 if outputs else 0}
    elif type(module).__name__ == "Conv1D" and module.weight.dim() == 2:  # transformers: the weight is [in, out]
        dims = {"weight": 1, "bias": 0} if outputs else {"weight": 0}
    else:
        raise UnsupportedError(f"parallel: {name} is a {type(module).__name__}, expected Linear, Embedding or Conv1D")
    return {key: dim for key, dim in dims.items() if getattr(module, key, None) is not None}
