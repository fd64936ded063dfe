"""A loss function and a model as one functional graph of ATen operations, by `torch.export`."""
from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import inspect
import io
import itertools
import linecache
import logging
import os
import random
import re
import sys
import tempfile
import traceback
import types
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.utils.checkpoint
from torch import nn
from torch._decomp import get_decompositions
from torch.overrides import TorchFunctionMode

from ..errors import UnsupportedError, warn
from .attributes import Attributes
from .branches import TORCH, KnownBranches, frames
from .calls import Call, Known, refuse_aliases, refuse_changing
from .gradients import OFF, Gradients, inference_is_no_grad, requires_grad
from .graphs import constants_read, is_functional, mend
from .known import on_tensors
from .packed import Packed
from .refusals import Refusals, noted
from .replaced import averaged_statistics, swapped, with_weights
from .selected import Selected, Selections
from .traced import Derivatives, Replay, vmap_traced, with_derivatives
from .undone import uncached

Batch = Sequence[Any] | Mapping[str, Any]
DECOMPOSED = [torch.ops.aten.addmv, torch.ops.aten.ldexp, torch.ops.aten.grid_sampler_2d]  # which PyTorch's table for exports leaves as they are


def _has_selected(results: Any) -> bool:
    if isinstance(results, Mapping):
        results = list(results.values())
    return isinstance(results, Selected) or isinstance(results, tuple | list) and any(map(_has_selected, results))


def _draws() -> list[Any]:
    """The states of the generators of Python and NumPy, whose draws are constants of a graph."""
    states: list[Any] = [random.getstate()]
    if numpy := sys.modules.get("numpy"):
        _, key, *rest = numpy.random.get_state()
        states += [key.tobytes(), *rest]
    return states


Lazy = tuple[nn.Module, str, torch.Tensor]


def _storing(model: nn.Module, call: types.SimpleNamespace, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """A function that writes to a buffer of the model what it is replaced with (`self.mean = ...`), which torch.export would drop. `call.lazy`:
    buffers that an earlier call has made, and then those that this one makes, of constants alone."""
    held = [(m, tensors, dict(tensors)) for m in model.modules() for tensors in (m._buffers, m._parameters)]
    for m, name, x in call.lazy:
        m._buffers[name] = x
    begun = [(m, tensors, dict(tensors)) for m, tensors, _ in held]
    try:
        results = function(*args, **kwargs)
        modules = {m for m, _, _ in held}
        begun += [(m, tensors, {}) for m in model.modules() if m not in modules for tensors in (m._buffers, m._parameters)]
        changed = [(m, name, before.get(name), tensors.get(name)) for m, tensors, before in begun for name in {**before, **tensors}]
        changed = [(m, name, old, new) for m, name, old, new in changed if old is not new]
        call.lazy = [*call.lazy, *((m, name, new) for m, name, old, new in changed if old is None and call.known.knows(new))]
        made = {id(new) for _, _, new in call.lazy}
        values = [(old, _replacement(f"{name} of {type(m).__name__}", old, new)) for m, name, old, new in changed if id(new) not in made]
        results = _apart(results, [old for old, _ in values])
        for buffer, value in values:
            buffer.copy_(value)
        return results
    finally:
        for _, tensors, before in held:
            tensors.clear()
            tensors.update(before)


def _apart(results: Any, buffers: Collection[torch.Tensor]) -> Any:
    """Results with copies of those in the memory of buffers that are replaced, which have the values before."""
    memory = {x.untyped_storage()._cdata for x in buffers}

    def copied(x: Any) -> Any:
        return x.clone() if isinstance(x, torch.Tensor) and x.untyped_storage()._cdata in memory else x

    return torch.utils._pytree.tree_map(copied, results) if memory else results


def _replacement(name: str, old: Any, new: Any) -> torch.Tensor:
    if any(not isinstance(x, torch.Tensor) or isinstance(x, nn.Parameter) for x in (old, new)) or (old.shape, old.dtype) != (new.shape, new.dtype):
        was, now = (f"{x.dtype} of shape {list(x.shape)}" if isinstance(x, torch.Tensor) else "none" for x in (old, new))
        raise TypeError(f"{name}, which was {was} and is {now}, is replaced in each call: expected a buffer, and the same type and shape (of one that the "
                        "first call makes, after a call of the model before the export)")
    return new.detach().clone()


class _Entry(nn.Module):
    """The function of an entry as a module, whose parameters are the model's below `model.`."""

    def __init__(self, model: nn.Module, function: Callable[..., Any], origins: _Origins | None = None, note: Callable[[Any], None] | None = None):
        """With `origins` it is traced, with derivatives in it; `note` is that of Refusals."""
        super().__init__()
        self.model = model
        self._function = (functools.partial(function, model),)
        self._origins, self._note = origins, note
        self.seen = types.SimpleNamespace(lazy=[], unknown=[])  # of the last call; of lists torch.export keeps copies

    def forward(self, /, *args: Any, **kwargs: Any) -> Any:
        known, draws = Known(self.seen.unknown), _draws()
        self.seen.known = known
        before = Attributes(self.model, self._function[0])
        function = functools.partial(_storing, self.model, self.seen, self._function[0])
        if self._origins:
            results = with_derivatives(function, args, kwargs, [*self._origins.modes(), known, Refusals(self._note)])
        else:
            with known, Refusals(self._note):
                results = function(*args, **kwargs)
        self.seen.call = Call(before, Attributes(self.model, self._function[0]), known)
        if _draws() != draws:
            raise TypeError(f"numbers drawn by Python's random or by numpy.random, which {DRAWN}")
        if _has_selected(results):
            raise TypeError("a result of rows that a mask selects, whose number depends on data: expected results of fixed shapes")
        self.seen.off = [name for name, p in self.named_parameters(remove_duplicate=False) if p in OFF]
        return results


PREFIX = "model."


def _has_entries(result: Any) -> bool:
    """Whether a result is a dict or an object with a loss in it, as those of transformers are."""
    return isinstance(result, Mapping) or (hasattr(result, "loss") and not isinstance(result, torch.Tensor))


def _entry_loss(result: Any) -> Any:
    return result.get("loss") if isinstance(result, Mapping) else result.loss


def _given_loss(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """What a loss function returns; of a dict or an output of transformers its loss."""
    result = function(*args, **kwargs)
    if not _has_entries(result):
        return result
    if not isinstance(loss := _entry_loss(result), torch.Tensor):
        named = ", ".join(map(str, result)) if isinstance(result, Mapping) else "no tensor as its loss"
        raise UnsupportedError(f"loss= returns a {type(result).__name__} of {named}: expected the loss, a tuple of it and a dict of outputs, or an "
                               "entry 'loss' (models of transformers have one if the batch has labels)")
    return loss


def loss_of(model: nn.Module, /, *args: Any, **kwargs: Any) -> torch.Tensor:
    """The loss that a model computes itself: its result, the result's `.loss` or entry "loss", or the first of a tuple."""
    result = model(*args, **kwargs)
    result = _entry_loss(result) if _has_entries(result) else result
    if isinstance(result, tuple | list) and result:
        result = result[0]
    if not isinstance(result, torch.Tensor):
        raise TypeError(f"{type(model).__name__} returns no loss: give `loss=`, a function of the model and the batch")
    return result


def names_of(model: nn.Module, function: Callable[..., Any] | None, batch: Batch) -> list[str]:
    """Names of the inputs: keys of a dict, else the function's parameters (but the first) or those of the model's forward."""
    if not isinstance(batch, Sequence | Mapping):
        raise UnsupportedError(f"the example batch is a {type(batch).__name__}: expected a tuple or a dict of tensors, such as (x,)")
    signature, given = inspect.signature(function or model.forward), (model,) * bool(function)
    try:
        signature.bind(*given, **batch) if isinstance(batch, Mapping) else signature.bind(*given, *batch)
    except TypeError as error:
        what = "the function" if function else f"without loss=, {type(model).__name__}.forward"
        raise UnsupportedError(f"{what} takes {signature}, got a batch of {', '.join(batch) if isinstance(batch, Mapping) else len(batch)}: {error}; "
                               "loss= is a function of the model and the whole batch") from None
    if isinstance(batch, Mapping):
        return list(batch)
    parameters = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD][len(given):]
    names: list[str] = []
    for i in range(len(batch)):
        p = parameters[min(i, len(parameters) - 1)] if parameters else None
        names.append(p.name if p and p.kind is not p.VAR_POSITIONAL else f"{p.name if p else 'input'}_{i}")
    return names


def _own(batch: Any) -> Any:
    """Tensors of their own: export takes one tensor in two places for one input."""
    return on_tensors(lambda x: x.detach().clone().requires_grad_(x.requires_grad), batch)


class Origin(NamedTuple):
    """Where an operation was called: the innermost line of the user's program, else of the library of models; the number of the
    call of torch.utils.checkpoint that it is in, from 0; and whether gradients were enabled there."""

    file: str = ""
    line: int = 0
    text: str = ""
    checkpoint: int | None = None
    has_grad: bool = True

    def shown(self) -> str:
        return f"\n  {os.path.basename(self.file)}:{self.line}     {self.text}" if self.file else ""


OURS = TORCH, *(os.path.join(os.path.dirname(os.path.abspath(m.__file__)), "") for m in (concurrent.futures, __import__("trainc")))
QUANTIZED = re.compile(r"torch\.(ao\.)?nn\.(\w+\.)*quantized\b")
CHECKPOINT = torch.utils.checkpoint.__file__
# Their functions stand between a call of torch.manual_seed or fork_rng and the generator.
AROUND_SEEDS = {torch.random.__file__, contextlib.__file__, os.path.join(TORCH, "_compile.py"), os.path.join(TORCH, "_dynamo", "eval_frame.py")}
DATA = ("a Python number, a branch or a shape that depends on the values of tensors: a step has one graph and fixed shapes; "
        "select with torch.where, or multiply by a mask; a tensor that is the same in each call may be one that the loss closes over")


def _outside(lines: Iterable[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    """Those that are neither ours nor PyTorch's."""
    return (line for line in lines if not line[0].startswith(("<", *OURS)))


def _at(file: str, line: int) -> Origin:
    return Origin(file, line, linecache.getline(file, line).strip())


def _line_of(lines: Iterable[tuple[str, int]]) -> Origin:
    """Of (file, line) from the inside out the first of the user's program, else of the library of models."""
    outside = list(_outside(lines))
    return _at(*next((x for x in outside if "site-packages" not in x[0]), outside[0] if outside else ("", 0)))


def _lines_of(lines: Sequence[tuple[str, int]]) -> tuple[Origin, Origin]:
    """The same, and the innermost one of either."""
    return _line_of(lines), _at(*next(_outside(lines), ("", 0)))


def _cannot(model: nn.Module, error: Exception, origin: Origin | None = None) -> UnsupportedError:
    """Why PyTorch could not capture a model, with the lines of the user's program and of the library of models."""
    frames = [(f.filename, f.lineno or 0) for f in reversed(traceback.extract_tb(error.__traceback__))]
    line, inner = _lines_of(frames)
    origin = origin or line
    lines = origin.shown() + (inner.shown() if inner != origin else "")
    said = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    why = f"\n    {DATA}" if "DataDependent" in type(error).__name__ or "data-dependent" in said else ""
    return UnsupportedError(f"torch.export cannot capture {type(model).__name__}: {type(error).__name__}: {said}{lines}{why}")


class _Origins(TorchFunctionMode):
    """Notes the Origin of each operation in the graph that is being captured; where it is trained, refuses hooks of activations."""

    in_vmap = True

    def __init__(self, trained: bool, derivatives: bool = False) -> None:
        super().__init__()
        self._trained, self._derivatives = trained, derivatives
        self._calls: list[types.FrameType] = []  # of checkpoint, kept so that none gets the place of another

    def modes(self) -> list[TorchFunctionMode]:
        """It and the others that a capture has."""
        return [self, KnownBranches(), Selections(), Gradients(self._trained, _shown), Packed()]

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.autograd.grad and not self._derivatives:
            raise noted(Derivatives())
        if why := self._refused(function, args, kwargs or {}):
            raise UnsupportedError(f"{why}{_shown(sys._getframe(1))}")
        with torch.fx.traceback.annotate({"trainc": self._origin(sys._getframe(1))._replace(has_grad=torch.is_grad_enabled())}):
            return function(*args, **(kwargs or {}))

    def _refused(self, function: Any, args: Any, kwargs: Mapping[str, Any]) -> str | None:
        name = function.__name__
        if self._trained and function in (torch.Tensor.register_hook, torch.Tensor.register_post_accumulate_grad_hook):
            return _ignored(f"Tensor.{name}")
        if function in (torch.autograd.backward, torch.Tensor.backward):
            return f"{name}() in what is exported: a step makes the gradients of its loss alone"
        if kwargs.get("generator") is not None:
            return f"{name} with a generator of its own: a step draws its numbers from one seed; expected no generator"
        return None

    def _origin(self, frame: types.FrameType | None) -> Origin:
        checkpoint, lines = None, []
        while frame and frame.f_code is not capture.__code__:
            if frame.f_code is Replay.run_node.__code__:
                return origin_of(frame.f_locals["n"])
            file = frame.f_code.co_filename
            if file == CHECKPOINT and frame.f_code.co_name == "checkpoint":
                checkpoint = frame
            lines.append((file, frame.f_lineno))
            frame = frame.f_back
        if checkpoint and checkpoint not in self._calls:
            self._calls.append(checkpoint)
        return _line_of(lines)._replace(checkpoint=self._calls.index(checkpoint) if checkpoint else None)


def _lines(frame: types.FrameType | None) -> Iterator[tuple[str, int]]:
    return ((f.f_code.co_filename, f.f_lineno) for f in frames(frame))


def _shown(frame: types.FrameType) -> str:
    return _line_of(_lines(frame)).shown()


class Question(NamedTuple):
    """What asked for the value of a tensor, and where: in the user's program, and in the library of models."""

    function: str
    origin: Origin
    inner: Origin


def _ignored(what: str) -> str:
    return f"{what} would be ignored: the step has the gradients of what the forward computes"


# Functions whose backwards are the derivatives of their forwards.
DERIVATIVES = {"transformers.models.bloom.modeling_bloom.GeLUFunction"}


def _reentrant(function: Callable[..., Any], preserve_rng_state: bool, *args: Any) -> Any:
    """What torch.utils.checkpoint runs with use_reentrant=True: with the gradients of use_reentrant=False if an argument requires one, and
    without any if none does. Lists and dicts do not count."""
    has_grad = any(isinstance(x, torch.Tensor) and requires_grad(x) for x in args)
    if not has_grad:
        warn("torch.utils.checkpoint with use_reentrant=True, of which no argument requires a gradient: what it runs gets none, as in PyTorch; "
             f"expected use_reentrant=False{_shown(sys._getframe(2))}")
    with torch.set_grad_enabled(has_grad):
        return function(*args)


def _without_functions() -> contextlib.AbstractContextManager[None]:
    """Refuses a torch.autograd.Function whose backward would be called; PyTorch's own have the gradients of their forwards."""
    own = torch.autograd.Function.__dict__["apply"]

    def apply(cls: type, *args: Any, **kwargs: Any) -> Any:
        if cls is torch.utils.checkpoint.CheckpointFunction and torch.is_grad_enabled():
            return _reentrant(*args)
        if not torch.is_grad_enabled() or cls.__module__.startswith("torch.") or f"{cls.__module__}.{cls.__name__}" in DERIVATIVES:
            return own.__get__(None, cls)(*args, **kwargs)
        if any(isinstance(x, torch.Tensor) and requires_grad(x) for x in (*args, *kwargs.values())):
            what = f"the backward of {cls.__name__}, a torch.autograd.Function,"
            raise noted(UnsupportedError(f"{_ignored(what)}{_shown(sys._getframe(1))}"))
        with torch.no_grad():  # what it takes in lists or in modules has no gradient
            return own.__get__(None, cls)(*args, **kwargs)

    return swapped({(torch.autograd.Function, "apply"): classmethod(apply)})


def _without_conversions() -> contextlib.AbstractContextManager[None]:
    """Lets a module be converted to what it is, as models do that keep a part in another type, and refuses other conversions."""
    def convert(self: nn.Module, name: str, args: Any, kwargs: Any) -> nn.Module:
        for key, tensor in itertools.chain(self.named_parameters(), self.named_buffers()):
            made = getattr(tensor, name)(*args, **kwargs) if tensor.is_floating_point() else tensor
            if (made.dtype, made.device) != (tensor.dtype, tensor.device):
                where = _shown(sys._getframe(2))
                raise noted(UnsupportedError(f"{key} of {type(self).__name__} is of {tensor.dtype}, and becomes of {made.dtype} in what is "
                                             f"exported: expected a module that was converted before{where}"))
        return self

    def wrapped(name: str) -> Callable[..., nn.Module]:
        return lambda self, *args, **kwargs: convert(self, name, args, kwargs)

    return swapped({(nn.Module, name): wrapped(name) for name in ("to", "float", "double", "half", "bfloat16")})


class _Unseeded:
    """torch's generator, which only PyTorch itself gives a state: the numbers behind it are the same ones again, those of a step are not."""

    def __init__(self, own: torch.Generator) -> None:
        self._own = own

    def __getattr__(self, name: str) -> Any:
        asking, caller = [], sys._getframe(1)
        while caller.f_code.co_filename in AROUND_SEEDS:
            asking += [caller.f_code.co_name] * (caller.f_code.co_filename == torch.random.__file__)
            caller = caller.f_back
        is_fork = "fork_rng" in asking
        if (is_fork or name.endswith(("seed", "set_state")) and name != "initial_seed") and not caller.f_code.co_filename.startswith(TORCH):
            what = asking[-1] if asking else f"default_generator.{name}"
            again = "behind it as in it" if is_fork else "in each call"
            raise noted(UnsupportedError(f"torch.{what} in what is exported: the numbers that PyTorch draws then are the same {again}, and a step draws "
                                         f"others; expected none, or a buffer of numbers that were drawn once{_shown(caller)}"))
        return getattr(self._own, name)


def _without_seeds() -> contextlib.AbstractContextManager[None]:
    unseeded = _Unseeded(torch.default_generator)
    return swapped({(module, "default_generator"): unseeded for module in (torch, torch.random, torch._C)})


DRAWN = "were the same in each call of the step: expected torch's (torch.rand, F.dropout), or the numbers as inputs"


def _without_entropy() -> contextlib.AbstractContextManager[None]:
    """Refuses generators of Python and NumPy that are made without a seed, whose draws _draws() does not see."""
    def checked(function: Callable[..., Any], name: str) -> Callable[..., Any]:
        def draw(*args: Any) -> Any:
            caller = sys._getframe(1)
            while caller.f_code.co_filename in (random.__file__, __file__):
                caller = caller.f_back
            if not caller.f_code.co_filename.startswith((TORCH, tempfile.__file__)):
                raise noted(UnsupportedError(f"{name} without a seed in what is exported: its numbers {DRAWN}{_shown(caller)}"))
            return function(*args)

        return draw

    def seed(self: random.Random, a: Any = None, version: int = 2) -> None:
        (own if a is not None else unseeded)(self, a, version)

    own = random.Random.seed
    unseeded = checked(own, "a generator of Python's random")
    functions = {(random.Random, "seed"): seed}
    if generators := sys.modules.get("numpy.random.bit_generator"):
        functions[generators, "randbits"] = checked(generators.randbits, "a generator of numpy.random")
    return swapped(functions)


def origin_of(node: torch.fx.Node) -> Origin:
    return node.meta.get("custom", {}).get("trainc", Origin())


def _without_grad(node: torch.fx.Node) -> bool:
    return not origin_of(node).has_grad


def _autocast(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        return function(*args, **kwargs)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Holds standard error back, and takes out the graph that torch.export prints before it raises some of its errors; and what it
    logs of errors that are raised, and says of weights that an RNN keeps in a list, and of scripts that
    its own derivatives are."""
    printed, graph = io.StringIO(), ""
    logs = [logging.getLogger(f"torch.{name}") for name in ("fx.experimental.symbolic_shapes", "_subclasses.fake_tensor")]
    levels = [log.level for log in logs]
    for log in logs:
        log.setLevel(logging.CRITICAL)
    try:
        with contextlib.redirect_stderr(printed), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="(?s).*_flat_weights")
            warnings.filterwarnings("ignore", message=r".*torch\.jit\.script.* is deprecated", category=FutureWarning)
            yield
    except Exception as error:
        graph = str(getattr(error, "partial_fx_graph", ""))
        raise
    finally:
        for log, level in zip(logs, levels):
            log.setLevel(level)
        text = printed.getvalue()
        if graph:  # and the empty lines around it
            text = re.sub("\n+", "\n", text.replace(graph, "")).lstrip("\n")
        sys.stderr.write(text)


def _exported(entry: _Entry, args: tuple[Any, ...], kwargs: dict[str, Any], trained: bool) -> torch.export.ExportedProgram | None:
    """None if there are derivatives in it, which it does not trace."""
    try:
        with (_quiet(), _without_functions() if trained else contextlib.nullcontext(), _without_conversions(), _without_seeds(),
              _without_entropy(), vmap_traced(), averaged_statistics(), with_weights(), torch.fx.traceback.preserve_node_meta(),
              inference_is_no_grad(), uncached(), contextlib.ExitStack() as stack):
            for mode in _Origins(trained).modes():
                stack.enter_context(mode)
            program = torch.export.export(entry, _own(args), _own(kwargs), strict=False)
    except Derivatives:
        return None
    except UnsupportedError:
        raise
    except Exception as error:  # of whatever the model does, too
        raise _cannot(entry.model, error) from error
    transforms = any(getattr(node.target, "__module__", "") == "torch._functorch.predispatch" for node in program.graph.nodes)
    return None if transforms else program


def _refuse_aliases(entry: _Entry, read: Mapping[int, torch.Tensor], changed: Collection[str]) -> None:
    """Of trained parameters and the buffers named; `translate` asks about what other entries change."""
    state = itertools.chain(entry.named_parameters(), entry.named_buffers())
    changing = [(name.removeprefix(PREFIX), x) for name, x in state if x.requires_grad or name in changed]
    refuse_aliases(read.values(), changing, entry.seen.call.before)


def _refuse_two_names(entry: _Entry) -> None:
    """Refuses parameters and buffers in one memory."""
    names: dict[int, list[str]] = {}
    for name, x in itertools.chain(entry.named_parameters(), entry.named_buffers()):
        names.setdefault(x.untyped_storage()._cdata, []).append(name.removeprefix(PREFIX))
    if shared := [" and ".join(some) for some in names.values() if len(some) > 1]:
        raise UnsupportedError(f"{'; '.join(shared)} are tensors in the same memory, of which the forward changes one: expected one tensor, or "
                               "memory of their own (clone())")


def capture(model: nn.Module, function: Callable[..., Any] | None, batch: Batch, kept: Collection[torch._ops.OpOverload | str],
            autocast: bool = False, trained: bool = True, asked: list[Question] | None = None) -> torch.export.ExportedProgram:
    """The graph of function(model, *batch) with the operations `kept` as they are and the others decomposed by PyTorch. With `asked` it goes on
    behind questions about values, which it adds there: the graph is one of those that the program has."""
    scripted = next((name for name, m in model.named_modules() if isinstance(m, torch.jit.ScriptModule)), None)
    if scripted is not None:
        raise UnsupportedError(f"{scripted or 'the model'} is a torch.jit.ScriptModule, which torch.export cannot capture: expected the module that was "
                               "scripted")
    if found := next(((name, type(m)) for name, m in model.named_modules() if QUANTIZED.match(type(m).__module__)), None):
        raise UnsupportedError(f"{found[0] or 'the model'} is quantized, a {found[1].__name__}: expected the module that it was made of; frozen "
                               "weights are stored in 8 bits by frozen='int8'")
    function = loss_of if function is None else functools.partial(_given_loss, function) if trained else function
    function = functools.partial(_autocast, function) if autocast else function
    args, kwargs = ((), dict(batch)) if isinstance(batch, Mapping) else (tuple(batch), {})
    note = None if asked is None else lambda function: asked.append(Question(function.__name__, *_lines_of(list(_lines(sys._getframe(2))))))
    entries = (_Entry(model, function, origins, note) for origins in (None, _Origins(trained, derivatives=True)))
    entry, program = next(((entry, program) for entry in entries if (program := _exported(entry, args, kwargs, trained))), (None, None))
    if not entry or not program:
        raise UnsupportedError("a transform of torch.func cannot be translated: expected grad, vjp, jvp, jacobians, hessian or vmap")
    read = constants_read(program)
    if asked is None:
        refuse_changing(entry.seen, program, read, lambda: _exported(entry, args, kwargs, trained))
    mend(program, _without_grad, entry.seen.off)
    if is_functional(program, kept):
        _refuse_aliases(entry, read, ())
        return program
    table = torch.export.default_decompositions()
    table.update(get_decompositions(DECOMPOSED))
    for operation in kept:
        if isinstance(operation, torch._ops.OpOverload):  # no name of another library's
            table.pop(operation, None)
    try:
        with _quiet():
            program = program.run_decompositions(table)
    except Exception as error:
        _refuse_aliases(entry, read, [name for name, _ in (*entry.named_buffers(), *entry.named_parameters())])
        if "compiled_fn" in str(error):  # of what changes and has two names
            _refuse_two_names(entry)
        shaped = (n for n in program.graph.nodes if isinstance(v := n.meta.get("val"), torch.Tensor) and not all(isinstance(k, int) for k in v.shape))
        raise _cannot(model, error, next(map(origin_of, shaped), None)) from error
    _refuse_aliases(entry, read, program.graph_signature.buffers_to_mutate.values())
    return program
