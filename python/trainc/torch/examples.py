"""Losses that are given per example: a smaller batch is filled up with rows of weight 0, where nothing mixes examples."""
from __future__ import annotations

import dataclasses
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from .._runtime import find
from ..compiler import program_environment
from ..emit import Builder, Type, Value, symbol
from ..errors import InvalidArgumentError

WEIGHTS = "example_weights"  # the input of a step

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


def mixing(builder: Builder, inputs: Mapping[str, Type], read: Mapping[str, Type], dims: Mapping[str, int], losses: Value) -> str:
    """What mixes the examples of a forward, "" if nothing does: with one on each of as many ranks none of its operations communicates,
    and its losses stay where they are."""
    forward = dataclasses.replace(builder, lines=list(builder.lines), _regions=[None] * len(builder.lines), location=None, region=None)
    forward.write(f"train.yield {losses.name} : {losses.type}")
    ports = (f"%{name}: {type}" + (f" split({'[], ' * dims[name]}[data])" if name in dims else "") for name, type in inputs.items())
    lines = [*(f"train.buffer {symbol(name)} : {type} init(zeros)" for name, type in read.items()),
             f'train.eval @losses({", ".join(ports)}) -> ("losses") {{', *forward.body(), "}"]
    done = subprocess.run([find("bin", "trainc"), "-", "--stop-after=plan", "-o", "-"], input=HEAD.format(size=losses.shape[0]) + "\n".join(lines),
                          capture_output=True, text=True, env=program_environment())
    if done.returncode:
        return "the partitioner of trainc says: " + next((line for line in done.stderr.splitlines() if "error: " in line), done.stderr).partition("error: ")[2]
    evaluated = done.stdout.partition("train.eval ")[2].partition("\n  }\n")[0]
    if communicating := re.search(r"^.*\bover \[.*$", evaluated, re.M):
        return f"an operation reads several of them ({communicating[0].strip()})"
    return "" if '[[["data"]]]' in evaluated.partition("\n")[0] else "the losses are not of one each"


@dataclass
class Examples:
    """Batches of a step whose loss is given per example: `example_weights` are ones, 0 for rows that fill a smaller batch up.

    dims: of the inputs that have the examples, along which dimension. mixed: why no row can be added, "" if it can.
    """

    dims: dict[str, int]
    mixed: str
    _weights: dict[tuple[int, int], torch.Tensor] = field(default_factory=dict)  # of so many examples, filled up to so many

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

    def complete(self, size: int, given: dict[str, Any]) -> dict[str, Any]:
        """A batch of `size` examples, with their weights."""
        count = self.count(given)
        if count is None or not 0 < count <= size:
            return {WEIGHTS: torch.ones(size)} | given  # it has another shape, which is said where it is bound
        if count < size and self.mixed:
            raise InvalidArgumentError(f"got {count} examples, expected {size}: none can be added with weight 0, as examples are mixed: {self.mixed}")
        if (count, size) not in self._weights:
            self._weights[count, size] = (torch.arange(size) < count).float()
        if count == size:
            return {WEIGHTS: self._weights[count, size]} | given
        filled = given | {name: _filled(given[name], dim, size) for name, dim in self.dims.items()}
        if WEIGHTS in given:
            filled[WEIGHTS] = _filled(given[WEIGHTS], 0, size, 0.0)
        return {WEIGHTS: self._weights[count, size]} | filled


def _filled(x: Any, dim: int, size: int, value: float | None = None) -> Any:
    """`x` with its first row, or a value, behind it: what the model computes of rows that are there is finite if the rest is."""
    rows = torch.as_tensor(x)
    more = rows.narrow(dim, 0, 1).expand([size - n if d == dim else n for d, n in enumerate(rows.shape)])
    filled = torch.cat([rows, more if value is None else torch.full_like(more, value)], dim)
    return filled if isinstance(x, torch.Tensor) else filled.numpy()
