"""Losses that are given per example: a smaller batch is filled up with rows of weight 0, where nothing mixes examples."""
from __future__ import annotations

import dataclasses
import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from .._runtime import find
from ..compiler import program_environment
from ..emit import Builder, Type, Value, quoted, symbol
from ..errors import InvalidArgumentError

WEIGHTS = "example_weights"  # the input of a step
SHAPES = "another shape needs a step of its own: export with shapes="

# What a module must have beside the losses that are looked at.
HEAD = """train.mesh @mesh(data = {size})
train.optimizer @"example.optimizer" = sgd<lr = 1.0>
train.param @"example.parameter" : tensor<f32> init(zeros) optimizer(@"example.optimizer")
train.step @step(%x: tensor<{size}xf32> split([data])) {{
  %0 = train.read @"example.parameter" : tensor<f32>
  %1 = nn.mul %x, %0 : tensor<{size}xf32>, tensor<f32>
  %2 = nn.reduce sum %1 dims [0] : tensor<{size}xf32>
  train.yield loss(%2) : tensor<f32>
}}
"""


def examples_of(builder: Builder, inputs: Mapping[str, Type], read: Mapping[str, Type], dims: dict[str, int], losses: Value,
                outputs: Sequence[tuple[str, Value]]) -> Examples:
    """How a step with these losses and outputs takes batches, by the partitioner of `trainc`: with an example on each of as many ranks no
    operation may communicate."""
    forward = dataclasses.replace(builder, lines=list(builder.lines), _regions=[None] * len(builder.lines), location=None, region=None)
    yielded = [losses, *(value for _, value in outputs)]
    forward.write(f"train.yield {', '.join(v.name for v in yielded)} : {', '.join(str(v.type) for v in yielded)}")
    ports = (f"%{name}: {type}" + (f" split({'[], ' * dims[name]}[data])" if name in dims else "") for name, type in inputs.items())
    lines = [*(f"train.buffer {symbol(name)} : {type} init(zeros)" for name, type in read.items()),
             f"train.eval @forward({', '.join(ports)}) -> ({', '.join(quoted(str(i)) for i in range(len(yielded)))}) {{", *forward.body(), "}"]
    done = subprocess.run([find("bin", "trainc"), "-", "--stop-after=plan", "-o", "-"], input=HEAD.format(size=losses.shape[0]) + "\n".join(lines),
                          capture_output=True, text=True, env=program_environment())
    if done.returncode:
        said = next((line for line in done.stderr.splitlines() if "error: " in line), done.stderr).partition("error: ")[2]
        return Examples(dims, f"the partitioner of trainc says: {said}")
    head, _, body = done.stdout.partition("train.eval ")[2].partition("\n  }\n")[0].partition("\n")
    if communicating := re.search(r"^.*\bover \[.*$", body, re.M):
        return Examples(dims, f"an operation reads several of them ({communicating[0].strip()})")
    splits = re.search(r"output_splits = (\[.*\])\}", head)
    of_losses, *of_outputs = json.loads(splits[1]) if splits else [[]] * len(yielded)
    if not any(of_losses):
        return Examples(dims, "the losses are the same whatever the examples are")
    parts = {label: [d for d, axes in enumerate(split) if axes] for (label, _), split in zip(outputs, of_outputs)}
    return Examples(dims, "", {label: split[0] for label, split in parts.items() if split})


@dataclass
class Examples:
    """Batches of a step whose loss is given per example: `example_weights` are ones, 0 for rows that fill a smaller batch up.

    dims: of the inputs that have the examples, along which dimension. mixed: why no row can be added, "" if it can. outputs: the same
    of outputs as dims of inputs. others: and of tensors of a batch that are no inputs.
    """

    dims: dict[str, int]
    mixed: str
    outputs: dict[str, int] = field(default_factory=dict)
    others: dict[str, int] = field(default_factory=dict)
    _count: int | None = field(default=0, init=False)  # of the last batch that was taken
    _next: int | None = field(default=None, init=False)  # of the last one that was completed
    _weights: dict[tuple[int, int], torch.Tensor] = field(default_factory=dict, init=False)  # of so many examples, filled up to so many

    def count(self, given: Mapping[str, Any]) -> int | None:
        """How many examples a batch has; None if its inputs do not say the same."""
        counts = {shape[dim] if len(shape := getattr(given.get(name), "shape", ())) > dim else None for name, dim in self.dims.items()}
        return counts.pop() if len(counts) == 1 else None

    def expected(self, shapes: Mapping[str, tuple], given: Mapping[str, Any]) -> dict[str, tuple]:
        """The shapes of inputs for as many examples as a batch has, if they are no more than the step's."""
        count = self.count(given)
        if count is None or not 0 < count <= shapes[WEIGHTS][0]:
            return dict(shapes)
        dims = {**self.dims, WEIGHTS: 0}
        return {name: tuple(count if d == dims.get(name) else n for d, n in enumerate(shape)) for name, shape in shapes.items()
                if name != WEIGHTS or name in given}

    def fewer(self, name: str, shape: tuple, got: tuple | None, given: Mapping[str, Any]) -> bool:
        """Whether one of `others`, of this shape in a whole batch, has got that of a smaller one."""
        dim, count = self.others.get(name), self.count(given)
        return dim is not None and count is not None and count < shape[dim] and got == (*shape[:dim], count, *shape[dim + 1:])

    def complete(self, size: int, given: dict[str, Any]) -> dict[str, Any]:
        """A batch of `size` examples, with their weights."""
        self._next = count = self.count(given)
        if count is None or not 0 < count <= size:
            return {WEIGHTS: torch.ones(size, device="cpu")} | given  # it has another shape, which is said where it is bound
        if count < size and self.mixed:
            raise InvalidArgumentError(f"got {count} examples, expected {size}: none can be added with weight 0, as examples are mixed: "
                                       f"{self.mixed}; {SHAPES}")
        if WEIGHTS in given and (shape := getattr(given[WEIGHTS], "shape", None)) != (count,):
            got = type(given[WEIGHTS]).__name__ if shape is None else f"shape {tuple(shape)}"
            raise InvalidArgumentError(f"{WEIGHTS} of {count} examples: expected shape ({count},), got {got}")
        if (count, size) not in self._weights:
            self._weights[count, size] = (torch.arange(size, device="cpu") < count).float()
        if count == size:
            return {WEIGHTS: self._weights[count, size]} | given
        filled = given | {name: _filled(given[name], dim, size) for name, dim in self.dims.items()}
        if WEIGHTS in given:
            filled[WEIGHTS] = _filled(given[WEIGHTS], 0, size, 0.0)
        return {WEIGHTS: self._weights[count, size]} | filled

    def taken(self) -> None:
        """The batch that was completed last is bound: outputs are of it."""
        self._count = self._next

    def owns(self, weights: Any) -> bool:
        """Whether these are not the user's."""
        return any(weights is own for own in self._weights.values())

    def cut(self, outputs: dict[str, Any]) -> dict[str, Any]:
        """Outputs without the rows that fill the last batch up."""
        return outputs | {name: outputs[name][(slice(None),) * dim + (slice(self._count),)] for name, dim in self.outputs.items()}


def advice_of(examples: Examples | None, is_eval: bool) -> str:
    """What to do with a batch of a shape that an entry does not take."""
    if is_eval:
        return "another shape needs an eval of its own: export with evals={name: (function, batch)}"
    if examples is None:
        return f"{SHAPES}; a loss per example also takes smaller batches, padded with weight 0"
    return SHAPES if examples.mixed else f"smaller batches are padded; {SHAPES}"


def _filled(x: Any, dim: int, size: int, value: float | None = None) -> Any:
    """`x` with its first row, or a value, behind it: what the model computes of rows that are there is finite if the rest is."""
    rows = x if isinstance(x, torch.Tensor) else torch.as_tensor(x, device="cpu")
    more = rows.narrow(dim, 0, 1).expand([size - n if d == dim else n for d, n in enumerate(rows.shape)])
    filled = torch.cat([rows, more if value is None else torch.full_like(more, value)], dim)
    return filled if isinstance(x, torch.Tensor) else filled.numpy()
