"""What the capture does not see, torch.vmap and derivatives in a loss: it is traced in a thread beside it, and the trace is captured."""
from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils._python_dispatch import TorchDispatchMode

from .branches import KnownBranches
from .known import on_tensors
from .refusals import noted
from .replaced import swapped


class Derivatives(Exception):
    """Raised where a forward asks for derivatives that the capture would not see."""


DETACHED = "detached"  # of a node in a trace
DETACHES = {torch.Tensor.detach, torch.detach, torch.Tensor.data.__get__}


class Replay(torch.fx.Interpreter):
    """Runs a trace; the lines of its operations are those that they were traced from. What is detached is marked: other nodes of that are of
    what derivatives keep, which has a derivative itself."""

    def run_node(self, n: torch.fx.Node) -> Any:
        result = self.env[n.args[0]] if n.target is torch.ops.aten.detach.default else super().run_node(n)
        return result.detach() if DETACHED in (n.meta.get("custom") or {}) else result


class _Detached(TorchDispatchMode):
    """Marks what is computed without gradients, which a trace forgets: in regions of `no_grad`, as derivatives without `create_graph`, and
    by the program's `detach()`, but not by that of PyTorch's own derivatives."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = False

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.is_grad_enabled() and not self.asked:
            return function(*args, **kwargs)
        if not function._schema.is_mutable:
            return _marked(function(*args, **kwargs))
        # What is written has no gradient; the result is the tensor that it is written to.
        places, written = function._schema.arguments, {a.name for a in function._schema.arguments if a.is_write}
        args = tuple(x if a.is_write else _marked(x) for a, x in zip(places, args))
        return function(*args, **{name: x if name in written else _marked(x) for name, x in kwargs.items()})


def _marked(tree: Any) -> Any:
    with torch.fx.traceback.annotate({DETACHED: True}):
        return on_tensors(lambda x: torch.ops.aten.alias(x) if x.is_floating_point() else x, tree)


class _Detaches(TorchFunctionMode):
    """Says when the program detaches."""

    def __init__(self, detached: _Detached):
        super().__init__()
        self._detached = detached

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._detached.asked = function in DETACHES
        try:
            return function(*args, **(kwargs or {}))
        finally:
            self._detached.asked = False


def traced(thread: ThreadPoolExecutor, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any],
           modes: Iterable[contextlib.AbstractContextManager[Any]] = ()) -> Any:
    """function(*args, **kwargs) by its trace of operations on plain tensors; `modes` are those of functions within it, whose own detach()
    is marked, too."""
    tensors: list[torch.Tensor] = []
    on_tensors(tensors.append, (args, kwargs))
    autocast, has_grad = (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")), torch.is_grad_enabled()

    def run(*given: torch.Tensor) -> Any:
        order, detached = iter(given), _Detached()
        inside, words = on_tensors(lambda _: next(order), (args, kwargs))
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.autocast("cpu", autocast[1], enabled=autocast[0]))
            for mode in (torch.set_grad_enabled(has_grad), detached, _Detaches(detached), *modes):
                stack.enter_context(mode)
            return function(*inside, **words)

    trace = thread.submit(lambda: make_fx(run)(*tensors)).result()
    return on_tensors(lambda x: x, Replay(trace).run(*tensors))  # containers of torch.fx cannot be changed


def _replaced(names: dict[str, Any], name: str, make: Callable[[Any], Any]) -> contextlib.AbstractContextManager[None]:
    """A function among the names of a module, if they have it, as another one that is made of it."""
    own = names.get(name)
    return swapped({(sys.modules[names["__name__"]], name): make(own)} if own else {})


def _by_index(_: Any) -> Callable[..., Any]:
    """A mask of transformers by indices that are broadcast, as it makes those of one rule."""
    def expansion(rule: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def mask(*indices: torch.Tensor) -> torch.Tensor:
            places = [x.view([-1 if i == d else 1 for i in range(len(indices))]) for d, x in enumerate(indices)]
            return rule(*places).expand([len(x) for x in indices])

        return mask

    return expansion


def _batched(thread: ThreadPoolExecutor, own: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """torch.vmap by its trace, with what the capture refuses and replaces outside of it."""
    modes = [m for m in _get_current_function_mode_stack() if isinstance(m, KnownBranches) or getattr(m, "in_vmap", False)]
    return traced(thread, own, args, kwargs, [KnownBranches() if isinstance(m, KnownBranches) else m for m in modes])


@contextlib.contextmanager
def vmap_traced() -> Iterator[None]:
    """Has torch.vmap traced, but for what is within another one; what torch.func derives elsewhere raises Derivatives."""
    masking = vars(sys.modules["transformers.masking_utils"]) if "transformers.masking_utils" in sys.modules else {}
    caller = threading.get_ident()
    with ThreadPoolExecutor(1) as thread:
        def outside(instead: Callable[..., Any]) -> Callable[..., Any]:
            """Has instead(own, args, kwargs) called in place of a function `own` where nothing is traced."""
            return lambda own: lambda *args, **kwargs: (instead(own, args, kwargs) if threading.get_ident() == caller else own(*args, **kwargs))

        def derives(*_: Any) -> None:
            raise noted(Derivatives())

        with contextlib.ExitStack() as stack:
            stack.enter_context(_replaced(masking, "_vmap_expansion_sdpa", _by_index))
            stack.enter_context(_replaced(torch.vmap.__globals__, "vmap_impl", outside(functools.partial(_batched, thread))))
            for name in ("grad_and_value_impl", "_vjp_with_argnums", "_jvp_with_argnums"):
                stack.enter_context(_replaced(torch.func.jacrev.__globals__, name, outside(derives)))
            yield


def with_derivatives(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any],
                     modes: Iterable[contextlib.AbstractContextManager[Any]]) -> Any:
    """A forward with derivatives in it. Attention is by its definition, whose derivative has one."""
    def run(*args: Any, **kwargs: Any) -> Any:
        # What requires a gradient in it is no input of the capture.
        args, kwargs = on_tensors(torch.Tensor.detach, (args, kwargs))
        return function(*args, **kwargs)

    with ThreadPoolExecutor(1) as thread, sdpa_kernel(SDPBackend.MATH):
        return traced(thread, run, args, kwargs, modes)
