"""What PyTorch's autograd sees and torch.export does not: gradients that are turned off for a parameter, and memory that is changed past them."""
from __future__ import annotations

import contextlib
import operator
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch._subclasses import FakeTensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot, set_proxy_slot
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

from ..errors import UnsupportedError
from .known import changed_by, on_tensors, tensors_in
from .refusals import noted
from .replaced import swapped

A_BUFFER = "a buffer of the model, which a step keeps (register_buffer), or an input"
REQUIRES = torch.Tensor.requires_grad
DATA = torch.Tensor.data
CUTS = {torch.Tensor.detach, torch.detach}
SHARE = {torch.from_numpy, torch.as_tensor, torch.asarray, torch.frombuffer}  # the memory of what is no tensor


OFF = WeakIdKeyDictionary()  # parameters of captures that ask for no gradient


@contextlib.contextmanager
def _own_nodes(given: Any) -> Iterator[None]:
    """Has the tensors that a call without gradients takes keep their nodes in the graph. What gives a tensor itself (`x.float()` of a float) has a
    node which the tensor would be from there on, in a region without gradients."""
    mode, nodes = get_proxy_mode(), []
    on_tensors(lambda x: nodes.append((x, mode and get_proxy_slot(x, mode.tracer, None))), given)
    yield
    for x, before in nodes:
        after = before and get_proxy_slot(x, mode.tracer, None)
        if after is not before and not _changes(after.proxy.node):
            set_proxy_slot(x, mode.tracer, before)


def _changes(node: torch.fx.Node) -> bool:
    """Whether an operation, or the one of which it is a result, changes a tensor in place."""
    operation = node.args[0].target if node.target is operator.getitem else node.target
    return getattr(getattr(operation, "_schema", None), "is_mutable", True)


class _Cut:
    """A tensor by `.detach()` or `.data` and its views; in PyTorch they carry the gradient of what is written to them, and what they were made
    of does not."""

    def __init__(self) -> None:
        self.carries = False


class Gradients(TorchFunctionMode):
    """Parameters are detached while they ask for no gradient, and so is what is written to a tensor by `.detach()` or `.data`. What would be
    silently another gradient in what is `trained` is refused, with the line of the caller as it is `shown`."""

    in_vmap = True

    def __init__(self, trained: bool, shown: Callable[[Any], str]) -> None:
        super().__init__()
        self._trained, self._shown = trained, shown
        self._memory: dict[int, torch.UntypedStorage] = {}  # of results that have gradients
        self._made: dict[int, torch.UntypedStorage] = {}  # of results that are no FakeTensors, in a trace
        self._cuts: dict[int, tuple[torch.Tensor, _Cut]] = {}  # by id, kept alive

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function == DATA.__get__:  # so that it is seen what is changed through it
            function = torch.Tensor.detach
        if why := self._refused(function, args, kwargs):
            raise UnsupportedError(f"{why}{self._shown(sys._getframe(1))}")
        if (asked := _asked(function, args, kwargs)) is not None:
            if asked:
                OFF.pop(args[0], None)
            else:
                OFF[args[0]] = True
            return args[0]
        if function == REQUIRES.__get__ and args[0] in OFF:
            return False
        if OFF:
            args, kwargs = on_tensors(lambda x: x.detach() if x in OFF else x, (args, kwargs))
        inside, words = self._written(function, args, kwargs)
        with contextlib.nullcontext() if torch.is_grad_enabled() else _own_nodes((args, kwargs)):
            result = function(*inside, **words)
        on_tensors(self._note, result)
        self._note_made(function, (args, kwargs), result)
        if self._trained and torch.is_grad_enabled() and self._reads_written(function, (args, kwargs), result):
            raise noted(UnsupportedError("what has a gradient is written to a tensor of .detach() or of .data, which is read: expected what was "
                                         f"written in place of it{self._shown(sys._getframe(1))}"))
        self._note_cut(function, args[0] if args else kwargs.get("input"), result)
        return result

    def _written(self, function: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """The arguments, detached where they are written to what was cut."""
        written = [x for x in _changed(function, args, kwargs) if id(x) in self._cuts]
        if not written or not torch.is_grad_enabled():
            return args, kwargs
        read = {id(x): x for x in tensors_in((args, kwargs)) if x.is_floating_point() and not any(x is w for w in written)}
        for x in written:
            self._cuts[id(x)][1].carries |= any(requires_grad(r) or self._carries(r) for r in read.values())
        return on_tensors(lambda x: x.detach() if id(x) in read else x, (args, kwargs))

    def _carries(self, x: torch.Tensor) -> bool:
        return id(x) in self._cuts and self._cuts[id(x)][1].carries

    def _reads_written(self, function: Any, given: Any, result: Any) -> bool:
        """Whether a result, which is no view, would have the gradient of what was written to what was cut."""
        memory = {storage._cdata for x in tensors_in(given) if self._carries(x) and (storage := _storage(x)) is not None}
        return bool(memory) and function not in CUTS and any(
            x.is_floating_point() and not ((storage := _storage(x)) is not None and storage._cdata in memory) for x in tensors_in(result))

    def _note_cut(self, function: Any, first: Any, result: Any) -> None:
        cut = _Cut() if function in CUTS else self._cuts[id(first)][1] if id(first) in self._cuts else None
        memory = _storage(first) if cut else None
        for x in tensors_in(result) if memory else ():
            if (storage := _storage(x)) is not None and storage._cdata == memory._cdata:
                self._cuts[id(x)] = x, cut

    def _note(self, x: torch.Tensor) -> torch.Tensor:
        if self._trained and requires_grad(x) and (storage := _storage(x)) is not None:
            self._memory[storage._cdata] = storage
        return x

    def _note_made(self, function: Any, given: Any, result: Any) -> None:
        for x in tensors_in(result) if function not in SHARE else ():
            if not isinstance(_unwrapped(x), FakeTensor) and (storage := _storage(x)) is not None:
                if storage._cdata not in {s._cdata for g in tensors_in(given) if (s := _storage(g)) is not None}:
                    self._made[storage._cdata] = storage

    def _refused(self, function: Any, args: Any, kwargs: dict[str, Any]) -> str | None:
        if function == DATA.__set__:
            return ".data is set in what is exported: expected the new value in place of the tensor"
        if _asked(function, args, kwargs) and not args[0].requires_grad and args[0] not in OFF:
            return "requires_grad of a frozen parameter is set in what is exported: expected it before the export"
        return next(filter(None, (self._refused_change(function, x) for x in _changed(function, args, kwargs))), None)

    def _refused_change(self, function: Any, x: torch.Tensor) -> str | None:
        storage = _storage(x)
        if not isinstance(_unwrapped(x), FakeTensor) and not (storage is not None and storage._cdata in self._made):
            return (f"a tensor of shape {list(x.shape)} that is no buffer of the model changes in place in each call: the step would keep the value "
                    f"of the export; expected {A_BUFFER}")
        if storage is not None and storage._cdata in self._memory and not (torch.is_grad_enabled() and requires_grad(x)):
            return (f"{function.__name__} changes a tensor past its gradient (under no_grad, of .detach() or of .data): expected "
                    "x + (changed - x).detach(), which has the gradient of x")
        return None


def _changed(function: Any, args: Any, kwargs: dict[str, Any]) -> list[torch.Tensor]:
    return changed_by(function, args, kwargs) if function is not torch.Tensor.requires_grad_ else []


def _unwrapped(x: torch.Tensor) -> torch.Tensor:
    """What a transform of torch.func has wrapped."""
    while torch._C._functorch.is_functorch_wrapped_tensor(x):
        x = torch._C._functorch.get_unwrapped(x)
    return x


def requires_grad(x: torch.Tensor) -> bool:
    """Also of a batch in torch.vmap, which does not say so."""
    return x.requires_grad or _unwrapped(x).requires_grad


def _asked(function: Any, args: Any, kwargs: dict[str, Any]) -> bool | None:
    """Whether a parameter shall have a gradient from here on; None of other functions."""
    if function not in (torch.Tensor.requires_grad_, REQUIRES.__set__) or not isinstance(args[0], nn.Parameter):
        return None
    return bool(args[1] if len(args) > 1 else kwargs.get("requires_grad", True))


def _storage(x: torch.Tensor) -> torch.UntypedStorage | None:
    try:
        return _unwrapped(x).untyped_storage()
    except (NotImplementedError, RuntimeError):  # of a subclass
        return None


def inference_is_no_grad() -> contextlib.AbstractContextManager[None]:
    """torch.export forgets inference_mode, which turns gradients on by False."""
    def enter(self: torch.inference_mode) -> None:
        self._inference_mode_context = torch.no_grad() if self.mode else torch.enable_grad()
        self._inference_mode_context.__enter__()

    return swapped({(torch.inference_mode, "__enter__"): enter})
