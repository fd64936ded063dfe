"""Entries of a module: the graphs of a step and of evals, all of them captured before one is translated."""
from __future__ import annotations

import contextlib
import io
import itertools
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.export.graph_signature import InputKind

from .._entry import mapped
from ..emit import Builder, Type, Value
from ..errors import UnsupportedError, warn
from ..exported import labelled
from .attributes import Attributes
from .calls import refuse_aliases
from .capture import DATA, Batch, capture, loss_of, names_of, origin_of
from .examples import Examples
from .frozen import Int8, frozen_weights
from .graphs import constants_read
from .parallel import Ranks
from .refusals import ASKING
from .translate import RULES, Bytes, Finding, Translator, Unsupported, mutations
from .undone import undone

NO_CONSTANT = object()


@dataclass
class Shared:
    """What the entries share: names of tensors as the module has them, ranks, whether all is in autocast, whether frozen weights are
    stored in 8 bits, those that are and those that cannot be with the reason, large constants, buffers whose values are compiled in, and
    the tensors that any entry changes in place."""

    names: dict[str, str]
    ranks: Ranks
    autocast: bool = False
    in_int8: bool = False
    int8: dict[str, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)
    wider: dict[str, str] = field(default_factory=dict)
    constants: dict[str, torch.Tensor] = field(default_factory=dict)
    folded: dict[str, torch.Tensor] = field(default_factory=dict)
    changed: Collection[str] = ()


def _leaves(program: torch.export.ExportedProgram, names: Sequence[str]) -> tuple[dict[str, str], dict[str, Any]]:
    """Of each placeholder of the batch the user's name (leaves of nested batches are `name_key`), and of each name the value that
    export has put into the graph, or NO_CONSTANT."""
    given = [spec.arg for spec in program.graph_signature.input_specs if spec.kind == InputKind.USER_INPUT]
    args, kwargs = program.call_spec.in_spec.unflatten(given)
    found: dict[str, str] = {}
    batch: dict[str, Any] = {}

    def take(name: str, leaf: Any) -> None:
        if name in batch:
            raise UnsupportedError(f"two inputs are called {name}")
        found[leaf.name], batch[name] = name, getattr(leaf, "value", NO_CONSTANT)

    for name, item in [*zip(names, args), *kwargs.items()]:
        mapped(item, name, take)
    return found, batch


def _shapes(items: Sequence[str], batch: Batch) -> dict[str, tuple[int, ...]]:
    """Of the tensors of a batch."""
    found: dict[str, tuple[int, ...]] = {}

    def take(name: str, leaf: Any) -> None:
        if isinstance(leaf, torch.Tensor):
            found[name] = tuple(leaf.shape)

    for name, item in batch.items() if isinstance(batch, Mapping) else zip(items, batch):
        mapped(item, name, take)
    return found


def _refuse_leaves(items: Sequence[str], batch: Batch) -> None:
    """What no tensor of a step can be made of."""
    def check(name: str, leaf: Any) -> None:
        if (kind := type(leaf)).__module__.partition(".")[0] == "numpy":
            made = "torch.from_numpy" if kind.__name__ == "ndarray" else "torch.tensor"
            raise UnsupportedError(f"{name} of the example batch is a numpy.{kind.__name__}: expected a tensor, {made}({name})")
        if not isinstance(leaf, torch.Tensor):
            return
        what, made = next((wrong for is_wrong, *wrong in (
            (leaf.is_nested, "a nested tensor", "padded, and its lengths or a mask"), (leaf.is_quantized, "a quantized tensor", "dequantized"),
            (leaf.layout is not torch.strided, f"a tensor of layout {leaf.layout}", f"{name}.to_dense()"),
            (leaf.device.type != "cpu", f"on device {leaf.device}", f"on the CPU, {name}.cpu()")) if is_wrong), ("", ""))
        if what:
            raise UnsupportedError(f"{name} of the example batch is {what}: expected it {made}")

    for name, item in batch.items() if isinstance(batch, Mapping) else zip(items, batch):
        mapped(item, name, check)


def _folded(model: nn.Module) -> set[str]:
    """Buffers whose values may be computed with, unless an entry changes them: those outside of the state dict, and integers and masks."""
    persistent = set(model.state_dict(keep_vars=True))
    return {name for name, b in model.named_buffers(remove_duplicate=False) if name not in persistent or not b.dtype.is_floating_point}


@dataclass
class Entry:
    """An entry of the module: its graph, and once it is translated its translator with the body, and the values of its outputs."""

    name: str
    program: torch.export.ExportedProgram
    trained: bool
    names: dict[str, str]  # the user's, of placeholders of the batch
    items: list[str]  # names of the batch's items
    batch: dict[str, Any]  # and of its leaves, with the values of constants
    dims: dict[str, int]  # of leaves that have the batch's examples, along which dimension
    shapes: dict[str, tuple[int, ...]]  # of leaves that are tensors, as one rank gives them
    examples: Examples | None = None  # if its loss is given per example
    t: Translator = field(init=False)
    results: list[Any] = field(init=False)
    unsigned_outputs: set[str] = field(default_factory=set)
    asked: list[Finding] = field(default_factory=list)  # if these ask for values, the graph is not the program

    def translate(self, model: nn.Module, shared: Shared) -> None:
        folded = _folded(model).difference(shared.changed)
        self.t = Translator(Builder(), shared.names, shared.constants, self.trained, shared.int8, shared.folded, shared.ranks)
        self.results = self.t.run(self.program, self.names, folded.__contains__)
        self.t.findings[:0] = self.asked

    def replaced(self) -> list[tuple[str, Any]]:
        """Buffers and parameters that the forward replaces, and by what."""
        return [(name, value) for name, value in zip(mutations(self.program), self.results) if name]

    def result(self) -> Any:
        """What the entry's function returns."""
        results = [value for replaced, value in zip(mutations(self.program), self.results) if replaced is None]
        return self.program.call_spec.out_spec.unflatten(results)

    def outputs(self, results: Any, name: str) -> list[tuple[str, Value]]:
        """With labels: the keys of a dict, else `name`, numbered if there are several. None is left out."""
        outputs = [(label, self.value(label, value)) for label, value in labelled(results, name)]
        labels = [label for label, _ in outputs]
        if twice := {label for label in labels if labels.count(label) > 1}:
            raise UnsupportedError(f"two outputs of {self.name} are called {', '.join(sorted(twice))}: expected a name for each")
        self.unsigned_outputs.update(label for label, value in outputs if isinstance(value, Bytes))
        return outputs

    def value(self, label: str, value: Any) -> Value:
        if not isinstance(value, torch.Tensor | Value | Int8 | bool | int | float):
            what = repr(value) if value is None or isinstance(value, str) else f"a {type(value).__name__}"
            raise UnsupportedError(f"{label} of {self.name} is {what}: expected a tensor or a number")
        try:
            return self.t.value(value)
        except Unsupported as error:
            raise UnsupportedError(f"{label} of {self.name}: {error}") from None

    def text(self, head: str) -> list[str]:
        return [f"{head} {{", *self.t.b.body(), "}"]


def captured(name: str, model: nn.Module, function: Callable[..., Any] | None, batch: Batch, shared: Shared, evaluated: bool = False) -> Entry:
    """An entry that is not translated yet: with `evaluated` in eval mode, else in the mode in which each module is."""
    modes = [(m, m.training) for m in model.modules()]
    if evaluated:
        for m, _ in modes:  # eval() may be one of the model's own, that merges weights
            m.training = False
    try:
        items = names_of(model, function, batch)
        _refuse_leaves(items, batch)
        whole, dims = shared.ranks.whole(items, batch)
        with undone(model, function or loss_of):
            program, asked = _captured(model, function, whole, RULES, shared.autocast, not evaluated)
    finally:
        for m, mode in modes:
            m.training = mode
    changed = sorted(filter(None, mutations(program)))
    if evaluated and changed:
        raise UnsupportedError(f"eval '{name}' changes {', '.join(changed)}, which stay as they are in an eval: expected a change in training alone "
                               "(if self.training: ...)")
    if recomputed := list(_recomputed(program)):
        warn(f"changed within torch.utils.checkpoint: {', '.join(recomputed)}. A step changes them once; PyTorch does so again where it computes the "
             "region again for the gradients (running statistics then move two steps)")
    names, leaves = _leaves(program, items)
    return Entry(name, program, not evaluated, names, items, leaves, dims, _shapes(items, batch), asked=asked)


def _captured(model: nn.Module, function: Callable[..., Any] | None, *args: Any) -> tuple[torch.export.ExportedProgram, list[Finding]]:
    """The graph. If the program asks for values, one of its graphs, to list what else it does, and all that asks for them."""
    try:
        return capture(model, function, *args), []
    except UnsupportedError as error:
        if not isinstance(error.__cause__, ASKING):
            raise
        first, asked = error, []
    behind = ""
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # all of it was said before
            program = capture(model, function, *args, asked=asked)
    except UnsupportedError as error:
        program, behind = None, str(error)
    findings = [Finding(f"Tensor.{name}", "", origin.file, origin.line, origin.text, ("as above" if i else DATA) + inner.shown() * (inner != origin))
                for i, (name, origin, inner) in enumerate(dict.fromkeys(asked))]
    if program is not None and findings:
        return program, findings
    listed = [f"  {finding}" for finding in findings[1:]] + [behind] * (behind != str(first))
    raise UnsupportedError("\n".join([str(first), *listed]), findings) from first.__cause__


def _recomputed(program: torch.export.ExportedProgram) -> Iterator[str]:
    """The buffers that are changed within a call of torch.utils.checkpoint."""
    for name, value in zip(mutations(program), program.graph.output_node().args[0]):
        while isinstance(value, torch.fx.Node) and value.target in (torch.ops.aten.clone.default, torch.ops.aten.detach.default):
            value = value.args[0]
        if name and isinstance(value, torch.fx.Node) and origin_of(value).checkpoint is not None:
            yield name


def translate(entries: Sequence[Entry], model: nn.Module, shared: Shared) -> None:
    """Translates all entries of a module: a value that one of them changes is compiled into none, and so is no other name of it."""
    shared.changed = frozenset(shared.names[name] for e in entries for name in mutations(e.program) if name)
    state = itertools.chain(model.named_parameters(), model.named_buffers())
    changing = [(name, x) for name, x in state if x.requires_grad or shared.names[name] in shared.changed]
    refuse_aliases([x for e in entries for x in constants_read(e.program).values()], changing, Attributes(model, lambda: None))
    if shared.in_int8:
        shared.int8, shared.wider = frozen_weights((e.program for e in entries), shared.names, shared.changed)
        if sharded := ", ".join(name for name in shared.int8 if name in shared.ranks.sharded):
            raise UnsupportedError(f"frozen='int8' of weights that parallel= shards: every rank would have all of {sharded}; expected a plan without "
                                   "them, or frozen=None")
        if not shared.int8:
            left = "; ".join(f"{name}: {reason}" for name, reason in shared.wider.items()) or "no weight without"
            raise UnsupportedError("frozen='int8' stores nothing in 8 bits: expected weights of linear layers (matrices that are only multiplied "
                                   f"with) with requires_grad=False, got {left}")
    for entry in entries:
        entry.translate(model, shared)


def narrowed(entries: Sequence[Entry], frozen: Mapping[str, Type], precision: str | None) -> list[str]:
    """Of frozen parameters those of f32 that all entries read in bf16 only, where they are cast to it or products in a step of bf16: the
    entries now read them as bf16, which rounds as they did."""
    found = [name for name, type in frozen.items() if type.dtype == "f32"]
    for entry in entries:
        users, products = entry.t.b.users(), ("nn.matmul ", "nn.conv2d ") if entry.trained and precision == "bf16" else ()
        reads = {name: entry.t.b.read(name, frozen[name]).name for name in found if name in entry.t.read}
        wider = {name for name, x in reads.items() if not all(text.startswith((f"nn.cast {x} to bf16 ", *products)) for text in users.get(x, ()))}
        found = [name for name in found if name not in wider]
    for entry in entries:
        for name in found:
            if name in entry.t.read:
                entry.t.b.store(name, frozen[name], "bf16")
    return found
