"""What front ends give: the text of a module with the initial values of its tensors, written to files or compiled and loaded."""
from __future__ import annotations

import json
import math
import os
import re
import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ._files import beside, temporary
from .compiler import compile
from .emit import Type, number, symbol
from .errors import MismatchError, UnsupportedError, warn
from .step import Step

SAFETENSORS = {"f64": "F64", "f32": "F32", "bf16": "BF16", "f16": "F16", "i64": "I64", "i32": "I32", "i16": "I16", "i8": "I8", "i1": "BOOL"}


@dataclass(repr=False)
class Exported:
    """A module as text, with the initial values of its tensors.

    text: what `trainc` compiles. weights: name -> array. mesh: the ranks that `step` compiles for. kinds: those of optimizers, by the names of
    groups. A front end says how its arrays are read (`_read`), and what a loaded step must know (`load`). advice: by patterns in the
    compiler's diagnostics what to do.
    """

    advice: ClassVar[Mapping[str, str]] = {
        "expects --shard=none": "shard= with Muon, which updates whole matrices: expected shard='none', or another optimizer"}

    text: str
    weights: dict[str, Any]
    mesh: dict[str, int] = field(default_factory=dict, kw_only=True)
    kinds: dict[str, str] = field(default_factory=dict, kw_only=True)

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

    def step(self, output: str | os.PathLike | None = None, *, threads: int = 0, device: Any = None, seed: int = 0,
             pin_threads: bool = False, timeout: float = 0.0, deadline: float = 0.0, **options: Any) -> Step:
        """Compiles and loads it with its weights. `output` keeps the artifact. Of the keywords `threads` to `deadline` are those of
        `trainc.load`, all others, `memory_limit` among them, those of `trainc.compile`."""
        with temporary("step.so") as library:
            options.setdefault("mesh", self.mesh or None)
            return self.load(compile(self, output or library, **options), threads=threads, device=device, seed=seed, pin_threads=pin_threads,
                             timeout=timeout, deadline=deadline)

    def load(self, library: str | os.PathLike, **options: Any) -> Step:
        """Loads what was compiled of it, with its weights, on several ranks those of rank 0; `options` are those of `trainc.load`."""
        step = Step(library, **options)
        with temporary("weights.safetensors") as weights:
            self._write_weights(weights if step.rank == 0 else os.devnull)  # what is refused is refused on all ranks
            step._trainer.load_parameters(weights)  # rank 0 reads for those that have no file
        step.clones = _clones(step, self.text)
        step.optimizers, step.notes = _optimizers(step, self.kinds), _recomputed(self.text)
        return step


def _clones(step: Step, text: str) -> dict[str, str]:
    """The compiler clones an optimizer with parameters in f32 and in f64: of its scalars those of the clone, which the text has not."""
    split = [(full, *full.rpartition(".")[::2]) for full in step._scalars]
    clones = {group for _, group, _ in split if group[-4:] in ("_f32", "_f64") and f"train.optimizer {symbol(group)} =" not in text}
    return {f"{group[:-4]}.{number}": full for full, group, number in split if group in clones}


def _optimizers(step: Step, kinds: Mapping[str, str]) -> dict[str, str]:
    """Kinds by groups, those of clones among them."""
    clones = ((full.rpartition(".")[0], clone.rpartition(".")[0]) for full, clone in step.clones.items())
    return dict(kinds) | {clone: kinds[group] for group, clone in clones if group in kinds}


def _recomputed(text: str) -> list[str]:
    """A line for each step with regions of which the module says so."""
    steps = ((body.partition("(")[0], body.count(" = train.recompute ")) for body in re.split(r"^train\.step @", text, flags=re.M)[1:])
    return [f"{name}: {count} region{'s' * (count > 1)} of the forward computed again in the backward pass" for name, count in steps if count]


def refuse_other(step: Step, inputs: Mapping[str, Mapping[str, Type]], mesh: Mapping[str, int]) -> None:
    """A step of an artifact with other entries than those of `inputs` or, on one rank, other shapes."""
    found = {entry.name: {port.name: port.shape for port in entry.inputs} for entry in (*step._steps, *step._evals.values())}
    expected = {name: {key: tuple(type.shape) for key, type in its.items()} for name, its in inputs.items()}
    if found.keys() != expected.keys() or not mesh and found != expected:
        said = [", ".join(f"{name}({', '.join(f'{key}: {list(shape)}' for key, shape in its.items())})" for name, its in entries.items())
                for entries in (expected, found)]
        step.close()
        raise MismatchError(f"{step.path} was compiled of another export: expected {said[0]}, got {said[1]}")


def warn_of_version(library: str, version: str, tested: Sequence[tuple[int, int]]) -> None:
    """Says so if `version` is not between the oldest and the newest one that the export is tested with."""
    if not tested[0] <= tuple(map(int, version.split("+")[0].split(".")[:2])) <= tested[1]:
        names = dict.fromkeys(".".join(map(str, v)) for v in tested)
        warn(f"{library} {version}: the export is tested with {library} {' to '.join(names)}")


def listed_entries(inputs: Mapping[str, Mapping[str, Type]]) -> str:
    """Entries by their names, with names and types of their inputs."""
    return "; ".join(f"{name}({', '.join(f'{k}: {t}' for k, t in its.items())})" for name, its in inputs.items())


def labelled(results: Any, name: str) -> list[tuple[str, Any]]:
    """What a function returns besides the loss, with labels: the keys of a dict, else `name`, numbered if there are several. None is left
    out."""
    if isinstance(results, Mapping):
        return [x for key, item in results.items() for x in labelled(item, str(key))]
    if isinstance(results, tuple | list):
        items = [item for item in results if item is not None]
        return [x for i, item in enumerate(items) for x in labelled(item, name if len(items) == 1 else f"{name}_{i}")]
    return [] if results is None else [(name, results)]


def mesh_lines(mesh: Collection[str]) -> list[str]:
    """The mesh in a module, by its axes; `trainc --mesh` gives the sizes."""
    return [f"train.mesh @mesh({', '.join(f'{axis} = 1' for axis in mesh)})"] if mesh else []


def clauses_of(norm: float | None, value: float | None, accumulate: int, precision: str | None, precisions: Sequence[str]) -> str:
    """The clauses of a step: its clip, by the gradients' norm or value, its window and its precision, which is one of `precisions` or None."""
    for name, bound in (("clip_grad_norm", norm), ("clip_grad_value", value)):
        if bound is not None and not bound > 0:
            raise UnsupportedError(f"{name} is {bound}: expected a number above 0")
    if not isinstance(accumulate, int) or not 1 <= accumulate < 2**31:
        raise UnsupportedError(f"accumulate is {accumulate}: expected a number of micro-batches, 1 or more")
    norm, value = (None if bound == math.inf else bound for bound in (norm, value))
    if norm is not None and value is not None:
        raise UnsupportedError("clip_grad_norm and clip_grad_value together: expected one of them, as a step has one clip")
    clauses = f" clip(global_norm<{number(norm)}>)" if norm is not None else ""
    clauses += f" clip(value<{number(value)}>)" if value is not None else ""
    clauses += f" accumulate({accumulate})" if accumulate != 1 else ""
    if precision not in (None, *precisions):
        raise UnsupportedError(f"precision {precision!r}: expected {', '.join(['None', *map(repr, precisions[:-1])])} or {precisions[-1]!r}")
    # Sums of two activations stay in f32, as where front ends promote them: a residual stream in 16 bits loses what layers add to it.
    return clauses + (f' precision(compute = {precision}, keep_f32 = ["nn.add", "nn.embedding"])' if precision in ("bf16", "f16") else "")
