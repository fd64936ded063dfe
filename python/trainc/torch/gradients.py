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

from ..errors import UnsupportedError
from .known import changed_by, on_tensors
from .replaced import swapped

A_BUFFER = "a buffer of the model, which a step keeps (register_buffer), or an input"
REQUIRES = torch.Tensor.requires_grad
DATA = torch.Tensor.data


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


class Gradients(TorchFunctionMode):
    """Parameters are detached while they ask for no gradient. What would be silently another gradient in what is `trained` is refused, with
    the line of the caller as it is `shown`."""

    def __init__(self, trained: bool, shown: Callable[[Any], str]) -> None:
        super().__init__()
        self._trained, self._shown = trained, shown
        self._off: set[int] = set()  # the parameters that ask for no gradient, by id
        self._memory: dict[int, torch.UntypedStorage] = {}  # of results that have gradients

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function == DATA.__get__:  # so that it is seen what is changed through it
            function = torch.Tensor.detach
        if why := self._refused(function, args, kwargs):
            raise UnsupportedError(f"{why}{self._shown(sys._getframe(1))}")
        if (asked := _asked(function, args, kwargs)) is not None:
            (self._off.discard if asked else self._off.add)(id(args[0]))
            return args[0]
        if function == REQUIRES.__get__ and id(args[0]) in self._off:
            return False
        if self._off:
            args, kwargs = on_tensors(lambda x: x.detach() if id(x) in self._off else x, (args, kwargs))
        with contextlib.nullcontext() if torch.is_grad_enabled() else _own_nodes((args, kwargs)):
            result = function(*args, **kwargs)
        on_tensors(self._note, result)
        return result

    def _note(self, x: torch.Tensor) -> torch.Tensor:
        if self._trained and x.requires_grad and (storage := _storage(x)):
            self._memory[storage._cdata] = storage
        return x

    def _refused(self, function: Any, args: Any, kwargs: dict[str, Any]) -> str | None:
        if function == DATA.__set__:
            return ".data is set in what is exported: expected the new value in place of the tensor"
        if _asked(function, args, kwargs) and not args[0].requires_grad and id(args[0]) not in self._off:
            return "requires_grad of a frozen parameter is set in what is exported: expected it before the export"
        changed = changed_by(function, args, kwargs) if function is not torch.Tensor.requires_grad_ else ()
        return next(filter(None, (self._refused_change(function, x) for x in changed)), None)

    def _refused_change(self, function: Any, x: torch.Tensor) -> str | None:
        if not isinstance(x, FakeTensor):
            return (f"a tensor of shape {list(x.shape)} that is no buffer of the model changes in place in each call: the step would keep the value of "
                    f"the export; expected {A_BUFFER}")
        storage = _storage(x)
        if storage and storage._cdata in self._memory and not (torch.is_grad_enabled() and x.requires_grad):
            return (f"{function.__name__} changes a tensor past its gradient (under no_grad, of .detach() or of .data): expected "
                    "x + (changed - x).detach(), which has the gradient of x")
        return None


def _asked(function: Any, args: Any, kwargs: dict[str, Any]) -> bool | None:
    """Whether a parameter shall have a gradient from here on; None of other functions."""
    if function not in (torch.Tensor.requires_grad_, REQUIRES.__set__) or not isinstance(args[0], nn.Parameter):
        return None
    return bool(args[1] if len(args) > 1 else kwargs.get("requires_grad", True))


def _storage(x: torch.Tensor) -> torch.UntypedStorage | None:
    try:
        return x.untyped_storage()
    except (NotImplementedError, RuntimeError):  # of a transform
        return None


def inference_is_no_grad() -> contextlib.AbstractContextManager[None]:
    """torch.export forgets inference_mode."""
    def enter(self: torch.inference_mode) -> None:
        self._inference_mode_context = torch.no_grad() if self.mode else contextlib.nullcontext()
        self._inference_mode_context.__enter__()

    return swapped({(torch.inference_mode, "__enter__"): enter})
