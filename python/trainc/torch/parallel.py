"""Several ranks: which inputs they divide, and which layers (tensor parallel)."""
from __future__ import annotations

import fnmatch
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from .._entry import mapped
from ..emit import split
from ..errors import UnsupportedError
from .capture import Batch

BATCH_AXES, MODEL_AXIS = ("host", "data"), "model"
# In the words of torch.distributed.tensor.parallel and of transformers: whether a layer's weights are sharded along outputs, inputs, or not at
# all. GATHERED outputs are whole on every rank; of the others the partitioner finds what is communicated.
OUTPUTS = ("colwise", "colwise_rep", "colwise_gather_output", "embedding_colwise")
GATHERED = ("colwise_rep", "colwise_gather_output")
INPUTS = ("rowwise", "rowwise_rep", "rowwise_split_input", "embedding_rowwise")
NEITHER = ("replicate", "sequence_parallel", "replicated_with_grad_allreduce", "all_reduce", "mla_kv_a_proj")

STYLES = (*OUTPUTS, *INPUTS, *NEITHER)


@dataclass
class Ranks:
    """The mesh (axis -> ranks), the dimension of each parameter that is sharded over `model`, the weights of layers whose outputs are
    gathered, and of inputs the dimension that is sharded over the batch's axes, as it is given."""

    mesh: dict[str, int] = field(default_factory=dict)
    sharded: dict[str, int] = field(default_factory=dict)
    gathered: Collection[str] = ()
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

    def whole_output(self, shape: Sequence[int]) -> list[list[str]]:
        """The axes of each dimension of an output that is gathered: those of the batch stay along the first one."""
        parts = math.prod(self.mesh[axis] for axis in self.batch_axes)
        return [self.batch_axes] if len(shape) > 1 and shape[0] % parts == 0 else []

    def of_input(self, dim: int | None) -> str:
        return "" if dim is None else split([[]] * dim + [self.batch_axes])

    def of_parameter(self, name: str) -> str:
        return split([[]] * self.sharded[name] + [[MODEL_AXIS]]) if name in self.sharded else ""


def _plan_of(model: nn.Module) -> dict[str, str]:
    """The plan of a model of transformers, by the names that its layers have in `model`, which may be that of PEFT around it."""
    for name, inner in model.named_modules():
        prefix, plan = getattr(type(inner), "base_model_prefix", None), getattr(getattr(inner, "config", None), "base_model_tp_plan", None)
        if prefix is not None and plan:
            path = [name] * bool(name) + [prefix] * (bool(prefix) and isinstance(getattr(inner, prefix, None), nn.Module))
            return {".".join([*path, pattern]): style for pattern, style in plan.items()}
    raise UnsupportedError(f"parallel='auto': {type(model).__name__} has no config.base_model_tp_plan; give a plan, {{'*.q_proj': 'colwise', ...}}")


def ranks_of(model: nn.Module, names: Mapping[str, str], mesh: Mapping[str, int] | None, parallel: Mapping[str, str] | str | None,
             batch_dims: Mapping[str, int | None] | None) -> Ranks:
    """`names` are those that tensors have in the module."""
    mesh = dict(mesh or {})
    unknown = sorted(set(mesh) - {*BATCH_AXES, MODEL_AXIS})
    if unknown:
        raise UnsupportedError(f"mesh: expected axes among {', '.join((*BATCH_AXES, MODEL_AXIS))}, got {', '.join(unknown)}")
    if parallel is None:
        return Ranks(mesh, batch_dims=batch_dims or {})
    if MODEL_AXIS not in mesh:
        raise UnsupportedError(f"parallel= needs a mesh with an axis '{MODEL_AXIS}', got {mesh}")
    plan = _plan_of(model) if parallel == "auto" else parallel
    sharded: dict[str, int] = {}
    gathered: set[str] = set()
    for pattern, style in plan.items():
        if style not in STYLES:
            raise UnsupportedError(f"parallel: {pattern} is '{style}', expected one of {', '.join(STYLES)}; give a plan without it to have it "
                                   "whole on every rank")
        found = [(name, m) for name, m in model.named_modules() if fnmatch.fnmatchcase(name, pattern)]
        if not found and parallel != "auto":  # plans of transformers have layers that not every model has
            raise UnsupportedError(f"parallel: no module is called {pattern}")
        for name, module in found if style not in NEITHER else []:
            of_layer = {names[f"{name}.{key}"]: dim for key, dim in _dims_of(name, module, style in OUTPUTS).items()}
            sharded |= of_layer
            gathered.update(of_layer if style in GATHERED else ())
    if parallel == "auto" and not sharded:
        raise UnsupportedError(f"parallel='auto': no layer is called {', '.join(plan)}; give a plan, {{'*.q_proj': 'colwise', ...}}")
    return Ranks(mesh, sharded, gathered, batch_dims or {})


def _dims_of(name: str, module: nn.Module, outputs: bool) -> dict[str, int]:
    """Of each parameter of a layer the dimension that is sharded, along its outputs or its inputs."""
    if isinstance(base := getattr(module, "base_layer", None), nn.Module):  # of PEFT: what is added has the parts of what it is added to
        dims = {f"base_layer.{key}": dim for key, dim in _dims_of(f"{name}.base_layer", base, outputs).items()}
        side, dim = ("lora_B", 0) if outputs else ("lora_A", 1)
        return dims | {f"{side}.{key}.weight": dim for key in getattr(module, side, {})}
    if isinstance(module, nn.Linear):
        dims = {"weight": 0, "bias": 0} if outputs else {"weight": 1}
    elif isinstance(module, nn.Embedding):
        dims = {"weight": 1 if outputs else 0}
    elif type(module).__name__ == "Conv1D" and module.weight.dim() == 2:  # transformers: the weight is [in, out]
        dims = {"weight": 1, "bias": 0} if outputs else {"weight": 0}
    else:
        raise UnsupportedError(f"parallel: {name or 'the model itself'} is a {type(module).__name__}, expected Linear, Embedding or Conv1D")
    return {key: dim for key, dim in dims.items() if getattr(module, key, None) is not None}
