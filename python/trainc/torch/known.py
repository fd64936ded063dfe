"""Values that a forward computes of numbers and constants alone, while it is captured: its questions about them have answers."""
from __future__ import annotations

import contextlib
import functools
import inspect
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import FunctionType
from typing import Any

import torch
from torch.fx.node import map_aggregate
from torch.overrides import TorchFunctionMode

from .._entry import mapped

T = torch.Tensor
LARGEST = 1 << 20  # elements
FACTORIES = {torch.tensor, torch.as_tensor, torch.arange, torch.linspace, torch.zeros, torch.ones, torch.full, torch.eye, torch.scalar_tensor,
             torch.tril_indices, torch.triu_indices}
# Of these the shape depends on values.
REPEATS = {torch.repeat_interleave, T.repeat_interleave}
SHAPED = {*REPEATS, torch.nonzero, T.nonzero, torch.masked_select, T.masked_select, torch.unique, T.unique,
          torch.unique_consecutive, T.unique_consecutive, torch.bincount, T.bincount, torch.argwhere, T.argwhere}
# These take sizes and places as numbers.
SIZED = {T.view, T.reshape, T.expand, T.repeat, T.narrow, T.split, T.chunk, T.unflatten, T.new_zeros, T.new_ones, T.new_full, torch.reshape,
         torch.narrow, torch.split, torch.chunk}
IN_PLACE = re.compile(r"__(setitem|i(add|sub|mul|matmul|truediv|div|floordiv|mod|pow|and|or|xor|lshift|rshift))__|\w*[^_]_")
UNKNOWN = object()
GENERATOR = torch.default_generator
_is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor  # by a transform of torch.func


@functools.lru_cache(maxsize=1024)
def _place_of_inplace(function: Callable[..., Any]) -> int | None:
    """Among the arguments of a function of torch.nn.functional that has it."""
    try:
        return list(inspect.signature(function).parameters).index("inplace")
    except (TypeError, ValueError):  # of a function of C, or without
        return None


def changed_by(function: Any, args: Any, kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    """The tensors that a call changes in place: by its name (`add_`; those of a list for `_foreach_add_`), by `inplace=True` or by `out=`."""
    if kwargs.get("out") is not None:
        return tensors_in(kwargs["out"])
    place = _place_of_inplace(function) if isinstance(function, FunctionType) else None
    asked = kwargs.get("inplace", place is not None and len(args) > place and args[place])
    first = args[0] if args else kwargs.get("input", kwargs.get("self"))
    return tensors_in(first) if asked or IN_PLACE.fullmatch(function.__name__) else []


def _leaves(tree: Any) -> list[Any]:
    leaves: list[Any] = []
    map_aggregate(tree, leaves.append)
    return leaves


def tensors_in(tree: Any) -> list[torch.Tensor]:
    return [x for x in _leaves(tree) if isinstance(x, torch.Tensor)]


def _undrawn(function: Callable[..., Any], args: Any, kwargs: Mapping[str, Any]) -> Any:
    """The result of a function, but UNKNOWN if it draws numbers, which the generator forgets."""
    before = GENERATOR.get_state()
    result = function(*args, **kwargs)
    if GENERATOR.get_state().equal(before):
        return result
    GENERATOR.set_state(before)
    return UNKNOWN


def on_tensors(function: Callable[[torch.Tensor], Any], tree: Any) -> Any:
    """Containers and slices with function(x) in place of each tensor x in them."""
    def changed(_: str, x: Any) -> Any:
        if isinstance(x, slice):
            return slice(*on_tensors(function, (x.start, x.stop, x.step)))
        return function(x) if isinstance(x, torch.Tensor) else x

    return mapped(tree, "", changed)


class KnownValues(TorchFunctionMode):
    """Computes what is made of numbers and of constants (tensors that are no input, parameter or buffer) beside the capture, in a thread
    that it does not see: `.item()`, `.tolist()` and branches on it are answered, and what has a shape by values is a constant."""

    def __init__(self) -> None:
        super().__init__()
        # By id: what is captured, which is kept alive, and its values. In a trace for derivatives, what is drawn looks like a constant: it has none.
        self._values: dict[int, tuple[torch.Tensor, torch.Tensor | None]] = {}
        self._thread = ThreadPoolExecutor(1)

    def __exit__(self, *error: Any) -> None:
        self._thread.shutdown()
        super().__exit__(*error)

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function is T.__iter__ and self.value(args[0]) is not None:
            return iter(self.__torch_function__(torch.unbind, types, args))
        if function in (T.__getitem__, T.__setitem__):
            args = (args[0], self._places(args[1]), *args[2:])
        if function in SIZED:
            args = (args[0], *on_tensors(self._number, args[1:]))
        if function in REPEATS and (repeated := self._repeated(*args, **kwargs)) is not None:
            return repeated
        computed = self._computed(function, args, kwargs)
        if isinstance(computed, bool | int | float | list) and not tensors_in(computed):
            return computed
        if computed is not UNKNOWN and (function in SHAPED or function in FACTORIES and tensors_in((args, kwargs))):
            return on_tensors(self._constant, computed)
        if function in (T.tolist, T.numpy) and computed is UNKNOWN and type(args[0]) is torch.Tensor:
            args[0].sum().item()  # which a trace for derivatives refuses; it does not see what reads memory
        result = function(*args, **kwargs)
        if computed is not UNKNOWN:
            self._values |= {id(x): (x, value) for x, value in zip(tensors_in(result), tensors_in(computed))}
        else:
            for x in changed_by(function, args, kwargs):
                self._forget(x)
            self._values |= {id(x): (x, None) for x in tensors_in(result) if type(x) is torch.Tensor and id(x) not in self._values}
        return result

    def knows(self, x: Any) -> bool:
        return isinstance(x, torch.Tensor) and self.value(x) is not None

    def _compute(self, function: Callable[[], Any]) -> Any:
        def run() -> Any:
            with torch.no_grad():
                return function()

        return self._thread.submit(run).result()

    def value(self, x: Any) -> torch.Tensor | None:
        if id(x) not in self._values and type(x) is torch.Tensor and not _is_wrapped(x) and not x.requires_grad and x.numel() <= LARGEST:
            with contextlib.suppress(RuntimeError):  # of a batch in torch.vmap
                self._values[id(x)] = x, self._compute(x.clone)
        return self._values.get(id(x), (x, None))[1]

    def _computed(self, function: Any, args: Any, kwargs: Any) -> Any:
        """The result on values, if all are known."""
        leaves = _leaves((args, kwargs))
        values = {id(x): self.value(x) for x in leaves if isinstance(x, torch.Tensor)}
        if (not values and function not in FACTORIES or any(v is None for v in values.values()) or "empty" in function.__name__
                or any(isinstance(x, torch.SymInt | torch.SymFloat | torch.SymBool) for x in leaves)):
            return UNKNOWN
        real, words = on_tensors(lambda x: values[id(x)], (args, kwargs))
        try:
            result = self._compute(lambda: _undrawn(function, real, words))
        except Exception:  # which the capture has, too, on the user's line
            return UNKNOWN
        return result if result is not UNKNOWN and all(x.numel() <= LARGEST and not x.is_complex() for x in tensors_in(result)) else UNKNOWN

    def _forget(self, x: Any) -> None:
        """All that shares the memory of what is changed in place."""
        _, value = self._values.get(id(x), (x, None))
        self._values[id(x)] = x, None
        if value is not None:
            memory = value.untyped_storage().data_ptr()
            shared = [i for i, (_, v) in self._values.items() if v is not None and v.untyped_storage().data_ptr() == memory]
            self._values |= {i: (self._values[i][0], None) for i in shared}

    def _constant(self, value: torch.Tensor) -> torch.Tensor:
        x = torch.tensor(self._compute(lambda: value.flatten().tolist()), dtype=value.dtype).reshape(value.shape)
        self._values[id(x)] = x, value
        return x

    def _number(self, x: torch.Tensor) -> Any:
        """The element of a known integer."""
        value = self.value(x) if x.dim() == 0 and not x.is_floating_point() and x.dtype != torch.bool else None
        return x if value is None else self._compute(value.item)

    def _places(self, index: Any) -> Any:
        """An index with known numbers as such, and with the places where known masks are true."""
        places: list[Any] = []
        for x in index if isinstance(index, tuple) else (index,):
            if isinstance(x, slice):
                x = on_tensors(self._number, x)
            elif isinstance(x, torch.Tensor):
                mask = self.value(x) if x.dtype == torch.bool and x.dim() else None
                if mask is not None:
                    places += map(self._constant, self._compute(lambda m=mask: m.nonzero(as_tuple=True)))
                    continue
                x = self._number(x)
            places.append(x)
        return tuple(places) if isinstance(index, tuple) or len(places) != 1 else places[0]

    def _repeated(self, x: torch.Tensor, repeats: Any = None, dim: int | None = None, **_: Any) -> torch.Tensor | None:
        """Parts of what is not known, as often as known counts say."""
        times = self.value(repeats) if isinstance(repeats, torch.Tensor) else None
        if times is None or self.value(x) is not None:
            return None
        x, dim = (x.flatten(), 0) if dim is None else (x, dim)
        return x.index_select(dim, self._constant(self._compute(lambda: torch.arange(x.shape[dim]).repeat_interleave(times))))
