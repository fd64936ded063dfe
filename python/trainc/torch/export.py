"""`export`: a model, its loss and its optimizer as the text and weights of a module."""
from __future__ import annotations

import dataclasses
import functools
import operator
import os
import reprlib
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from .. import exported
from ..emit import FLOATS, Type, Value, listed, quoted, symbol
from ..errors import InvalidArgumentError, MismatchError, UnsupportedError, warn
from ..step import Step
from . import rules  # noqa: F401, registers them
from .capture import PREFIX, Batch
from .entries import NO_CONSTANT, Entry, Shared, captured, narrowed, translate
from .examples import WEIGHTS, Examples, advice_of, examples_of
from .hooks import refuse_hooks
from .moments import Begun, Optimizers, OptimizersByStep, optimizers_of
from .optim import groups_of, refuse_parts, refuse_twice
from .parallel import Ranks, ranks_of
from .scalers import Scaler, scaler_of
from .translate import DTYPES, Finding, bytes_of, mutations

TESTED = (2, 13), (2, 15)  # the oldest and the newest version of torch
# What takes a tensor, and has no gradient to it: PyTorch leaves the gradient at None, so that no optimizer updates or decays it.
NO_GRADIENT = {getattr(torch.ops.aten, name) for name in ("detach", "empty_like", "full_like", "histc", "new_empty", "new_full", "new_ones",
                                                          "new_zeros", "ones_like", "rand_like", "randint_like", "randn_like", "zeros_like")}


@dataclass
class Trains:
    """One of several steps that train different parameters of a model, as a GAN's: what `export` has arguments of these names for."""

    example_batch: Batch
    loss: Callable[..., Any] | None = None
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None = None
    scheduler: Any = None
    clip_grad_norm: float | None = None
    clip_grad_value: float | None = None
    accumulate: int = 1
    shapes: Sequence[Batch] = ()
    scaler: torch.amp.GradScaler | float | None = None
    ema: float | None = None


@dataclass(repr=False)
class Exported(exported.Exported):
    """A module as text, with the initial values of its tensors.

    text: what `trainc` compiles. weights: name -> tensor, of all parameters and buffers, as they were at the export: copies, but for frozen
    parameters of their type, which are the model's own and must not change. inputs: of each entry, name -> type. batches: of each entry the names
    of all leaves of its example batch, with the values of those that are constants. items: of each entry the names of the batch's items; of one
    that is a dict, list or tuple its leaves have longer names. unsigned, unsigned_outputs: of each entry the inputs and the outputs of uint8,
    whose bits are i8 in the text. optimizers: how their states are called. begun: by the names of steps, what optimizers had done before.
    tied: names of the model that share a parameter, by the name that the module has. unused: parameters that the loss does not read; they are not
    in the module. frozen: those that it reads without a gradient. int8: those of them that are stored in 8 bits, and wider: those that with
    frozen="int8" are not, by the reason. left_out: names of the model's state dict that the module has not, with the value of what is compiled in.
    mesh: the ranks that `step` compiles for. examples: of entries whose loss is given per example. shapes: of each entry those of the tensors of
    its example batch.
    """

    advice: ClassVar[Mapping[str, str]] = exported.Exported.advice | {
        r"""over (\["model"\]|'model')""":
            "parallel= shards what an operation needs whole, or two of its operands along different dimensions: expected 'rowwise' for a layer that "
            "reads outputs of a 'colwise' one, 'colwise_gather_output' to have these whole on every rank, or a plan without the layer"}

    weights: dict[str, torch.Tensor]
    inputs: dict[str, dict[str, Type]]
    batches: dict[str, dict[str, Any]]
    items: dict[str, list[str]]
    unsigned: dict[str, set[str]]
    optimizers: Optimizers | OptimizersByStep
    begun: dict[str, Begun] = field(default_factory=dict)
    tied: dict[str, list[str]] = field(default_factory=dict)
    unused: list[str] = field(default_factory=list)
    frozen: list[str] = field(default_factory=list)
    int8: list[str] = field(default_factory=list)
    wider: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, torch.Tensor | None] = field(default_factory=dict)
    added: frozenset[str] = frozenset()
    log: list[tuple[str, str]] = field(default_factory=list)
    examples: dict[str, Examples] = field(default_factory=dict)
    shapes: dict[str, dict[str, tuple[int, ...]]] = field(default_factory=dict)
    unsigned_outputs: dict[str, set[str]] = field(default_factory=dict)
    words: ClassVar[dict[str, str]] = {"expected loss_scale(...)": 'expected scaler=torch.amp.GradScaler("cpu") or a number'}

    def __post_init__(self) -> None:
        self._checksums = {name: zlib.crc32(_memory(x)) for name, x in self.weights.items() if name in self.frozen}

    def __repr__(self) -> str:
        int8 = f" ({len(self.int8)} in int8, {len(self.wider)} weights are not)" if self.int8 else ""
        return (f"<trainc.torch.Exported: {len(self.weights)} tensors, {len(self.frozen)} parameters frozen{int8}, {len(self.unused)} unused; "
                f"{'; '.join([exported.listed_entries(self.inputs), *self._no_inputs()])}>")

    def _no_inputs(self) -> list[str]:
        """Of what example batches hold: tensors that no entry reads, and constants."""
        read = {name for its in self.inputs.values() for name in its}
        leaves = [item for batch in self.batches.values() for item in batch.items()]
        unread = [f"not read: {name}" for name, value in leaves if value is NO_CONSTANT and name not in read]
        constants = [f"constant: {name} = {reprlib.repr(value)}" for name, value in leaves if value is not NO_CONSTANT]
        return list(dict.fromkeys(unread + constants))

    def save(self, path: str | os.PathLike, weights: str | os.PathLike) -> None:
        if self.begun:
            warn("the optimizer has done updates: its moments are not in the file of weights; step().save() writes all")
        super().save(path, weights)

    def _read(self, weight: torch.Tensor) -> tuple[str, Sequence[int], memoryview]:
        return DTYPES[weight.dtype], weight.shape, _memory(weight)

    def _write_weights(self, path: str) -> None:
        if changed := [name for name, checksum in self._checksums.items() if zlib.crc32(_memory(self.weights[name])) != checksum]:
            raise InvalidArgumentError("frozen parameters have changed since the export, which does not copy them: "
                                       f"{', '.join(changed)}; export again")
        super()._write_weights(path)

    def load(self, library: str | os.PathLike, **options: Any) -> Step:
        """Loads what was compiled of it, or of an export with the same entries, with its weights and its optimizer's numbers."""
        step = super().load(library, **options)
        exported.refuse_other(step, self.inputs, self.mesh)
        step.exported_optimizer, step.tied, step.rates, step.added = self.optimizers, self.tied, self.optimizers.rates(step), self.added
        step.left_out = {name: None if value is None else functools.partial(_other_constant, value) for name, value in self.left_out.items()}
        step.notes += [f"stored in int8, with a scale per row: {len(self.int8)} frozen weight{'s' * (len(self.int8) > 1)}"] if self.int8 else []
        step.notes += [f"in no step, as the loss does not read it: {name}" for name in self.unused]
        step.left_out |= {name: functools.partial(_other_int8, name) for name in self.int8}
        for entry, batch in self.batches.items():
            examples = dataclasses.replace(self.examples[entry]) if entry in self.examples else None  # of this step alone
            step.expect(entry, list(batch), {name: value for name, value in batch.items() if value is not NO_CONSTANT}, self.unsigned[entry],
                        self.items[entry], examples, shapes=self.shapes.get(entry, {}), unsigned_outputs=self.unsigned_outputs.get(entry, ()),
                        advice=advice_of(examples, entry in step._evals))
        parts = self.optimizers.parts if isinstance(self.optimizers, OptimizersByStep) else {"step": self.optimizers}
        for own in (own for name, part in parts.items() if name not in self.begun for own in part.parts):
            for scalar, value in own.numbers(step, {"param_groups": own.groups}, 0).items():
                step.set(scalar, value)  # the artifact was compiled with another one
        for name, begun in self.begun.items():
            begun.check()
            part = parts[name]
            try:
                part.load(step, begun.states, begun.updates, scaler=begun.scaler)
            except MismatchError as error:
                raise MismatchError(f"{error}; the state of the exported optimizer is taken over: a new optimizer begins without one") from None
        return step

    def report(self) -> str:
        """Every operation of the model and what it became, what is not trained, and what of the example batch is no input."""
        lines = [f"{operation:40} {text or '(nothing)'}" for operation, text in self.log]
        lines += [f"not in the module, the loss does not read it: {name}" for name in self.unused]
        lines += [f"frozen, no gradient reaches it: {name}" for name in self.frozen]
        lines += [f"stored in int8: {name}" for name in self.int8]
        lines += [f"not stored in int8, {reason}: {name}" for name, reason in self.wider.items()]
        lines += [f"{name} is also {', '.join(others)}" for name, others in self.tied.items()]
        lines += [f"of the example batch, {said}" for said in self._no_inputs()]
        return "\n".join(lines) + "\n"


def _memory(tensor: torch.Tensor) -> memoryview:
    """The bytes of a tensor, without a copy if it is dense."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().data


def _other_constant(value: torch.Tensor, step: Step, given: Any) -> str | None:
    """What was expected in place of `given`."""
    try:
        same = torch.equal(torch.as_tensor(given, device="cpu"), value)
    except (TypeError, ValueError, RuntimeError):  # of another kind
        same = False
    return None if same else "expected the value at the export, which is compiled in"


def _other_int8(name: str, step: Step, given: Any) -> str | None:
    """The same of a weight that the step has in 8 bits."""
    values, scale = (step.read(f"{name}.{part}", as_torch=True).double() for part in ("int8", "scale"))
    try:
        weight = torch.as_tensor(given, device="cpu")
        same = weight.shape == values.shape and bool(((weight - values * scale[:, None]).abs() <= scale[:, None]).all())
    except (TypeError, ValueError, RuntimeError):
        same = False
    return None if same else "expected the value at the export, which the step has in 8 bits"


def _trained(program: torch.export.ExportedProgram) -> set[str]:
    """Parameters from which a path of differentiable operations leads to the loss."""
    parameters = program.graph_signature.inputs_to_parameters
    carrying: dict[torch.fx.Node, set[str]] = {}
    for node in program.graph.nodes:
        if node.op == "placeholder":
            carrying[node] = {parameters[node.name].removeprefix(PREFIX)} if node.name in parameters else set()
        elif node.op == "call_function":
            value = node.meta.get("val")
            floating = not isinstance(value, torch.Tensor) or value.dtype.is_floating_point
            carrying[node] = set().union(*(carrying.get(n, set()) for n in _differentiable(node))) if floating else set()
        elif node.op == "output":
            return carrying.get(node.args[0][mutations(program).index(None)], set())
    return set()


def _differentiable(node: torch.fx.Node) -> list[torch.fx.Node]:
    """Those arguments of an operation to which it may have a gradient."""
    aten = torch.ops.aten
    packet = getattr(node.target, "overloadpacket", None)
    if packet in NO_GRADIENT:
        return []
    if packet in (aten.type_as, aten.expand_as):
        return [node.args[0]]
    if node.target is operator.getitem and node.args[0].target is aten.broadcast_tensors.default:  # each of itself alone
        return [node.args[0].args[0][node.args[1]]]
    return node.all_input_nodes


def _trained_by(steps: Sequence[Entry], names: Mapping[str, str], trainable: set[str]) -> set[str]:
    """The parameters that steps of several shapes train: all of them the same."""
    trained = [{names[name] for name in _trained(step.program)} & trainable for step in steps]
    for step, its in zip(steps, trained):
        for more, less, a, b in ((its, trained[0], step, steps[0]), (trained[0], its, steps[0], step)):
            if more - less:
                shapes = (", ".join(f"{name}: {type}" for name, type in s.t.inputs.items()) for s in (a, b))
                raise UnsupportedError(f"shapes: {', '.join(sorted(more - less))} would be trained with {' but not with '.join(shapes)}: expected "
                                       "the same parameters with all shapes")
    return trained[0]


def _canonical(model: nn.Module) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Of each name of a parameter or buffer the first name of the same tensor, and the other names by the first."""
    first: dict[int, str] = {}
    names: dict[str, str] = {}
    tied: dict[str, list[str]] = {}
    for name, tensor in [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]:
        names[name] = first.setdefault(id(tensor), name)
        if names[name] != name:
            tied.setdefault(names[name], []).append(name)
    return names, tied


def _refuse_tensors(model: nn.Module, precision: str | None) -> None:
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if is_lazy(tensor):
            raise UnsupportedError(f"{name} has no shape yet: call the model on a batch once, which gives lazy modules their shapes")
        if tensor.device.type != "cpu":
            raise UnsupportedError(f"{name} is on device {tensor.device}: expected the model and its batch on the CPU; use model.cpu()")
        if tensor.dtype == torch.float64 and precision in ("bf16", "f16"):
            raise UnsupportedError(f"precision={precision!r} of {name}, which is float64: expected float32; use model.float()")


def _refuse_nan(model: nn.Module, read: Collection[str]) -> None:
    """Of what a step reads."""
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if name in read and bool(tensor.isnan().any()):
            raise UnsupportedError(f"{name} holds NaN: nothing that is trained from there has a value")


def _refuse_shared(model: nn.Module) -> None:
    """What shares memory with a trained parameter changes with it in PyTorch, and would not here."""
    tensors = [(name, x) for name, x in [*model.named_parameters(), *model.named_buffers()] if x.numel()]
    end, before, last = 0, "", None  # of those so far the one that reaches furthest
    for name, x in sorted(tensors, key=lambda item: item[1].data_ptr()):
        if x.data_ptr() < end and (x.requires_grad or last.requires_grad):
            raise UnsupportedError(f"{before} and {name} are two tensors in the same memory: expected one, as in decoder.weight = encoder.weight, "
                                   "or memory of their own")
        reach = x.data_ptr() + x.element_size() * (1 + sum((n - 1) * s for n, s in zip(x.shape, x.stride())))
        if reach > end:
            end, before, last = reach, name, x


def _refuse(findings: Sequence[Finding], what: str) -> None:
    unique = list(dict.fromkeys(findings))
    if unique:
        listed = "\n".join(f"  {f}" for f in unique)
        raise UnsupportedError(f"{len(unique)} operation{'s' * (len(unique) > 1)} of {what} cannot be translated\n{listed}\n"
                               "nothing was exported; trainc.torch.report(model, batch) lists every operation with its translation", unique)


def export(model: nn.Module, example_batch: Batch | None = None, loss: Callable[..., Any] | None = None,
           optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None = None, *, scheduler: Any = None,
           clip_grad_norm: float | None = None, clip_grad_value: float | None = None, accumulate: int = 1, precision: str | None = None,
           scaler: torch.amp.GradScaler | float | None = None, ema: float | None = None, shapes: Sequence[Batch] = (),
           trains: Mapping[str, Trains] | None = None, evals: Mapping[str, Any] | None = None, ema_evals: Mapping[str, Any] | None = None,
           mesh: Mapping[str, int] | None = None, frozen: str | None = None, parallel: Mapping[str, str] | str | None = None,
           batch_dims: Mapping[str, int | None] | None = None) -> Exported:
    """Translates one training step of a model, each module in the mode in which it is. Nothing of the model changes.

    example_batch: a tuple, or a dict of names, of tensors on the CPU; None and numbers are constants of the step. uint8 has no
        arithmetic: the model converts it first.
    loss: a function of the model and the batch that returns a scalar, the mean over the batch, or a tuple of it and more
        tensors, or dicts of them, which are outputs of each call; of a dict or an output of transformers its loss is taken. Without, the
        model's result, its `.loss` or its entry "loss". Or a loss for each example (a vector as long as the batch): the step takes
        their mean by one more input, `example_weights`, which is ones without, and smaller batches, if no operation mixes examples.
    optimizer: of torch.optim, with its groups and the updates that it has done, or several, as Muon for matrices and AdamW for the
        rest; parameters in none of them are frozen. Without: AdamW with PyTorch's defaults for all that require a gradient.
    scheduler: of torch.optim.lr_scheduler, of this optimizer, or one for each, or None; stepped once per update: it counts the
        step's updates.
    clip_grad_norm, clip_grad_value: as torch.nn.utils.clip_grad_norm_ and clip_grad_value_ before each update.
    accumulate: micro-batches per update; losses are averaged.
    precision: "bf16" and "f16" compute products, attention and convolutions in this type, sums, embeddings, CTC, linear interpolation and
        linear algebra in f32, and what else there is in the type of what it reads; "autocast" casts as torch.autocast("cpu", torch.bfloat16)
        around the loss; None as the model is, with the autocast regions that it has.
    scaler: the loss scale: a torch.amp.GradScaler, with the scale and the numbers that it has, or a number, which stays. One that is not
        enabled is none.
    ema: the decay of a moving average of each trained parameter, which begins at its value at the export.
    frozen: "int8" stores the weights of linear layers that require no gradient in 8 bits: row o is scale[o] = max |w[o]| / 127 times
        w[o] / scale[o], rounded half to even. Products widen them one layer at a time. In the step they are NAME.int8 and
        NAME.scale. `wider` says which weights are left as they are; with none in 8 bits it is an error.
    shapes: more example batches, of other shapes or with other constants: a step for each, which all train the same parameters. A call
        takes the first one that the batch fits; an open window goes on in any of them.
    trains: name -> Trains, in place of all arguments that it has: steps that train the parameters of their optimizers alone, with
        counters and windows of their own. To the others these are frozen. `Step.train(name, ...)` calls one.
    evals: name -> function of the model and `example_batch`, or a pair of a function and a batch; exported in eval
        mode: `training` is False in all modules, without a call of eval(). It returns a tensor, a tuple, or a dict of names.
    ema_evals: the same with the moving averages in place of the parameters that have one.

    mesh: the ranks, {"data": 2, "model": 2}. Batches are those of one rank: with "data" or "host" all ranks' are trained as one
        batch, in the order of ranks.
    parallel: tensor parallel over "model", name of modules with * -> "colwise" or "rowwise", as in
        torch.distributed.tensor.parallel; "auto": the plan of a model of transformers.
    batch_dims: of inputs the dimension along which ranks have their part, or None for what is the same on all. Without: the
        first one, where it is as large as that of the first input.

    UnsupportedError lists all operations that cannot be translated, each with its line in the user's program. Hooks of gradients and of
    optimizers, and backwards of a torch.autograd.Function, which a step would not call, are refused, too.
    """
    exported.warn_of_version("torch", torch.__version__, TESTED)
    _refuse_tensors(model, precision)
    if frozen not in (None, "int8"):
        raise UnsupportedError(f"frozen {frozen!r}: expected None or 'int8'")
    alone = Trains(example_batch, loss, optimizer, scheduler, clip_grad_norm, clip_grad_value, accumulate, shapes, scaler, ema)
    if bool(trains) == (example_batch is not None) or (trains and alone != Trains(None)):
        raise UnsupportedError("expected an example batch, or trains= and none of the arguments that its steps have")
    for name, one in (trains or {}).items():
        if one.optimizer is None:
            raise UnsupportedError(f"trains: {name} has no optimizer: expected one of its parameters")
    if optimizer is None and not trains:
        if not any(p.requires_grad for p in model.parameters()):
            raise UnsupportedError("nothing is trained: no parameter of the model requires a gradient")
        alone.optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
    used = {kind: one.optimizer if isinstance(one.optimizer, list | tuple) else [one.optimizer] for kind, one in (trains or {"step": alone}).items()}
    refuse_hooks(model, [o for some in used.values() for o in some])
    _refuse_shared(model)
    names, tied = _canonical(model)
    shared = Shared(names, ranks_of(model, names, mesh, parallel, batch_dims), precision == "autocast", frozen == "int8")
    steps: dict[str, list[Entry]] = {}  # those that train the same
    clauses: dict[str, str] = {}
    scalers: dict[str, Scaler | None] = {}
    for kind, one in (trains or {"step": alone}).items():
        clauses[kind] = exported.clauses_of(one.clip_grad_norm, one.clip_grad_value, one.accumulate, precision, ("bf16", "f16", "autocast"))
        scalers[kind] = scaler_of(one.scaler, f"{kind}." if len(trains or ()) > 1 else "")
        clauses[kind] += scalers[kind].text if scalers[kind] else ""
        batches = enumerate([one.example_batch, *one.shapes])
        steps[kind] = [captured(f"{kind}_{i}" if i else kind, model, one.loss, batch, shared) for i, batch in batches]
    entries = [step for some in steps.values() for step in some]
    if len({e.name for e in entries}) < len(entries):
        raise UnsupportedError(f"two steps of one name among {', '.join(e.name for e in entries)}")
    if ema_evals and all(one.ema is None for one in (trains or {"step": alone}).values()):
        raise UnsupportedError("ema_evals without ema: expected the decay of the averages")
    entries += _captured_evals(model, evals or {}, ema_evals or {}, example_batch, [e.name for e in entries], shared)
    translate(entries, model, shared)
    heads: dict[str, str] = {}  # what stands behind the inputs of each
    for kind, some in steps.items():
        for step in some:
            _refuse(step.t.findings, f"'{kind}'" if trains else type(model).__name__)
            heads[step.name] = _yield_loss(step, names) + clauses[kind]
    for entry in entries[len(heads):]:
        _refuse(entry.t.findings, f"eval '{entry.name}'")
        heads[entry.name] = _yield_outputs(entry) + (" weights(ema)" if entry.name in (ema_evals or {}) else "")
    leaves = dict.fromkeys(name for e in entries for name in e.batch)
    if unknown := [name for name in batch_dims or () if name not in leaves]:
        raise UnsupportedError(f"batch_dims: no input is called {', '.join(unknown)}: expected names among {', '.join(leaves)}")

    held: dict[str, Type] = {}
    for entry in entries:
        held |= entry.t.read
    read = {*held, *(shared.int8 or ())}
    _refuse_nan(model, {*read, *shared.folded})
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers()), **shared.constants}
    quantized = {key: x for name, (values, scale) in shared.int8.items() for key, x in ((f"{name}.int8", values), (f"{name}.scale", scale))}
    tensors |= quantized
    parameters = {name: p for name, p in model.named_parameters() if names[name] == name}
    by_id = {id(p): names[name] for name, p in model.named_parameters()}
    groups, group_of, optimizers, begun = [], {}, {}, {}
    for kind, one in (trains or {"step": alone}).items():
        taken = {*held, *(e.name for e in entries), *(g.name for g in groups)}
        trained = _trained_by(steps[kind], names, {name for name, p in parameters.items() if p.requires_grad})
        made = groups_of(one.optimizer, one.scheduler, by_id, taken, f"{kind}." if trains else "", one.ema)
        own = [g for g in made if trained.intersection(g.parameters)]
        if not own:
            raise UnsupportedError(f"nothing is trained{f' by {kind}' if trains else ''}: the loss has no gradient for any parameter of the "
                                   "optimizer")
        groups += own
        group_of |= {p: g.name for g in own for p in g.parameters if p in trained}
        update = f"{kind}.update" if len(trains or ()) > 1 else "update"
        optimizers[kind] = optimizers_of(one.optimizer, one.scheduler, scalers[kind], by_id, made, update)
        if (before := Begun(one.optimizer, one.scheduler, scalers[kind])).any:
            begun[kind] = before
        for step in steps[kind] if trains else ():
            heads[step.name] += f" trains([{', '.join(symbol(g.name) for g in own)}])"
    refuse_twice(groups)
    refuse_parts(groups, shared.ranks.sharded)
    replaced = set(shared.changed)
    if wrong := sorted(name for name in replaced & parameters.keys() if parameters[name].requires_grad):
        raise UnsupportedError(f"changed in place by the forward: {', '.join(wrong)}, which requires a gradient. A step changes what is trained by "
                               "its optimizer alone: use the changed value and leave the parameter (scale.clamp(0, 4), not scale.clamp_(0, 4)); "
                               "what is not trained is a buffer, or has requires_grad_(False)")
    frozen_names = [name for name in parameters if name in read and name not in group_of]
    own = set(frozen_names) - replaced
    for name in narrowed(entries, {name: held[name] for name in frozen_names if name in held and name in own}, precision):
        held[name], tensors[name] = Type(held[name].shape, "bf16"), tensors[name].detach().bfloat16()
    ranks = shared.ranks
    lines = exported.mesh_lines(ranks.mesh) + [g.text for g in groups]
    for name, kept in held.items():
        kind = "param" if name in parameters and name not in replaced else "buffer"
        end = "" if kind == "buffer" else f" optimizer({symbol(group_of[name])})" if name in group_of else " frozen"
        init = listed(bytes_of(tensors[name]), kept) if name in shared.constants else "zeros"
        lines.append(f"train.{kind} {symbol(name)} : {kept} init({init}){end}{ranks.of_parameter(name)}")
    for entry in entries:
        kind = "step" if entry.trained else "eval"
        lines += entry.text(f"train.{kind} {symbol(entry.name)}({_ports(entry, ranks)}){heads[entry.name]}")
    if frozen:
        shared.wider |= {name: "it requires a gradient" for name in frozen_names if parameters[name].requires_grad and parameters[name].dim() > 1}
    left_out = {name: shared.folded.get(names.get(name)) for name in model.state_dict() if names.get(name) not in read}
    copied = {name for name in held if name not in own or tensors[name].is_inference()} - shared.constants.keys() - quantized.keys()
    return Exported(
        "\n".join(lines) + "\n", {name: tensors[name].detach().clone() if name in copied else tensors[name].detach() for name in held},
        {e.name: e.t.inputs for e in entries}, {e.name: e.batch for e in entries}, {e.name: e.items for e in entries},
        {e.name: e.t.unsigned for e in entries},
        OptimizersByStep(optimizers) if trains else optimizers["step"], begun, tied, [name for name in parameters if name not in read], frozen_names,
        list(shared.int8), shared.wider, left_out, frozenset(held.keys() - model.state_dict().keys()), [line for e in entries for line in e.t.log],
        {e.name: e.examples for e in entries if e.examples}, {e.name: e.shapes for e in entries},
        {e.name: e.unsigned_outputs for e in entries}, mesh=ranks.mesh,
        kinds={g.name: g.kind.__name__ for g in groups})


def _captured_evals(model: nn.Module, evals: Mapping[str, Any], ema_evals: Mapping[str, Any], example_batch: Batch | None, steps: Sequence[str],
                    shared: Shared) -> list[Entry]:
    """`steps` are names that are taken."""
    if both := sorted(evals.keys() & ema_evals.keys()):
        raise UnsupportedError(f"evals and ema_evals both have {', '.join(both)}: expected names of their own")
    entries = []
    for name, given in {**evals, **ema_evals}.items():
        function, batch = given if isinstance(given, tuple) else (given, example_batch)
        if name in steps:
            raise UnsupportedError(f"an eval is called {name}, as a step is: expected another name")
        if batch is None:
            raise UnsupportedError(f"eval '{name}' has no batch: with trains= expected a pair of a function and a batch")
        entries.append(captured(name, model, function, batch, shared, evaluated=True))
    return entries


def _yield_loss(step: Entry, names: Mapping[str, str]) -> str:
    """Ends the step: buffers are replaced, the loss is a scalar, what else is returned are outputs; their clause."""
    b, result = step.t.b, step.result()
    first, rest = (result[0] if result else None, result[1:]) if isinstance(result, tuple | list) else (result, ())
    loss, labelled = step.value("the loss", first), step.outputs(rest, "output")
    dims = {name: dim for name, dim in step.dims.items() if name in step.t.inputs}
    sizes = {step.t.inputs[name].shape[dim] for name, dim in dims.items()}
    is_per_example = loss.rank == 1 and loss.type.elements > 1 and sizes == {loss.shape[0]}
    if loss.dtype not in FLOATS or not (loss.type.elements == 1 or is_per_example):
        raise UnsupportedError(f"the loss must be one floating-point number, or one per example of the batch, got {loss.type}")
    b.location = b.region = None
    for name, value in step.replaced():
        new = step.value(f"the new value of '{names[name]}'", value)
        step.t.read.setdefault(names[name], new.type)
        b.write(f"train.write {new.name} to {symbol(names[name])} : {new.type}")
    loss, count = _mean_of_examples(step, loss, labelled, dims) if is_per_example else (b.reshape(loss, []), None)
    loss = b.cast(loss, "f64" if loss.dtype == "f64" else "f32")
    yielded = [*(v for _, v in labelled), loss, *([count] if count else [])]
    listed, weight = ", ".join(v.name for _, v in labelled), f" weight({count.name})" if count else ""
    b.write(f"train.yield {listed} loss({loss.name}){weight} : {', '.join(str(v.type) for v in yielded)}")
    return f" -> ({', '.join(quoted(label) for label, _ in labelled)})" if labelled else ""


def _yield_outputs(entry: Entry) -> str:
    """Ends an eval; its clause."""
    labelled = entry.outputs(entry.result(), entry.name)
    labels, outputs = ", ".join(quoted(label) for label, _ in labelled), [value for _, value in labelled]
    entry.t.b.write(f"train.yield {', '.join(v.name for v in outputs)} : {', '.join(str(v.type) for v in outputs)}")
    return f" -> ({labels})"


def _mean_of_examples(step: Entry, losses: Value, outputs: Sequence[tuple[str, Value]], dims: dict[str, int]) -> tuple[Value, Value]:
    """The sum of losses, and their number, by weights that are one more input."""
    b = step.t.b
    if WEIGHTS in step.batch:
        raise UnsupportedError(f"an input is called {WEIGHTS}, as that of losses that are given per example: expected another name")
    replaced = ", ".join(name for name, _ in step.replaced())
    step.examples = (Examples(dims, f"the forward replaces {replaced}") if replaced else
                     examples_of(b, step.t.inputs, step.t.read, dims, losses, outputs))
    step.examples.others = {name: dim for name, dim in step.dims.items() if name not in dims}
    weights = Value(f"%{WEIGHTS}", Type(losses.shape, "f32"))
    step.t.inputs[WEIGHTS], step.dims[WEIGHTS] = weights.type, 0
    return (b.reduce("sum", b.binary("mul", losses, b.cast(weights, losses.dtype)), [0]), b.reduce("sum", weights, [0]))


def _ports(entry: Entry, ranks: Ranks) -> str:
    return ", ".join(f"%{name}: {type}{ranks.of_input(entry.dims.get(name))}" for name, type in entry.t.inputs.items())


def report(model: nn.Module, example_batch: Batch, loss: Callable[..., Any] | None = None) -> str:
    """Every operation of the step and its translation, or why it has none; a line each."""
    shared = Shared(_canonical(model)[0], Ranks())
    step = captured("step", model, loss, example_batch, shared)
    translate([step], model, shared)
    t = step.t
    lines = [f"{operation:40} {text or '(nothing)'}" for operation, text in t.log]
    return "\n".join(lines + [f"NOT TRANSLATED {finding}" for finding in t.findings]) + "\n"
