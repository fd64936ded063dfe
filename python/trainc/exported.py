"""What front ends give: the text of a module with the initial values of its tensors, written to files or compiled and loaded."""
from __future__ import annotations

import json
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ._files import beside, temporary
from .compiler import compile
from .step import Step

SAFETENSORS = {"f64": "F64", "f32": "F32", "bf16": "BF16", "f16": "F16", "i64": "I64", "i32": "I32", "i16": "I16", "i8": "I8", "i1": "BOOL"}


@dataclass(repr=False)
class Exported:
    """A module as text, with the initial values of its tensors.

    text: what `trainc` compiles. weights: name -> array. mesh: the ranks that `step` compiles for. A front end says how its arrays are
    read (`_read`), and what a loaded step must know (`load`).
    """

    text: str
    weights: dict[str, Any]
    mesh: dict[str, int] = field(default_factory=dict, kw_only=True)

    def _read(self, weight: Any) -> tuple[str, Sequence[int], memoryview]:
        """Of an array the element type ("f32"), the shape and the bytes, in row-major order and little endian."""
        raise NotImplementedError

    def save(self, path: str | os.PathLike, weights: str | os.PathLike) -> None:
        """Writes the text, and the weights as a safetensors file (`trainc-run --init`, `trainc.load(weights=)`): both or none."""
        with beside(path) as text, beside(weights) as file:
            self._write_weights(file)
            with open(text, "w") as f:
                f.write(self.text)

    def save_weights(self, path: str | os.PathLike) -> None:
        with beside(path) as file:
            self._write_weights(file)

    def _write_weights(self, path: str) -> None:
        header, offset = {}, 0
        for name, weight in self.weights.items():
            dtype, shape, memory = self._read(weight)
            header[name] = dict(dtype=SAFETENSORS[dtype], shape=list(shape), data_offsets=[offset, offset + memory.nbytes])
            offset += memory.nbytes
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(path, "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text)
            for weight in self.weights.values():
                f.write(self._read(weight)[2])

    def step(self, output: str | os.PathLike | None = None, *, threads: int = 0, device: str | None = None, seed: int = 0,
             **options: Any) -> Step:
        """Compiles and loads it with its weights. `output` keeps the artifact; `options` are those of `trainc.compile`."""
        with temporary("step.so") as library:
            options.setdefault("mesh", self.mesh or None)
            return self.load(compile(self, output or library, **options), threads=threads, device=device, seed=seed)

    def load(self, library: str | os.PathLike, **options: Any) -> Step:
        """Loads what was compiled of it, with its weights; `options` are those of `trainc.load`."""
        step = Step(library, **options)
        with temporary("weights.safetensors") as weights:
            self._write_weights(weights)
            step.load_weights(weights)
        return step
