"""torch.vmap in what is captured, as operations on whole batches."""
from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from .._entry import mapped


@contextlib.contextmanager
def _replaced(names: dict[str, Any], name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    """A function of a module, if it has it, as another one that is made of it."""
    own = names.get(name)
    if own:
        names[name] = make(own)
    try:
        yield
    finally:
        if own:
            names[name] = own


def _by_index(_: Any) -> Callable[..., Any]:
    """A mask of transformers by indices that are broadcast, as it makes those of one rule."""
    def expansion(rule: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def mask(*indices: torch.Tensor) -> torch.Tensor:
            places = [x.view([-1 if i == d else 1 for i in range(len(indices))]) for d, x in enumerate(indices)]
            return rule(*places).expand([len(x) for x in indices])

        return mask

    return expansion


def _traced(own: Callable[..., Any], thread: ThreadPoolExecutor, caller: int) -> Callable[..., Any]:
    """What torch.vmap calls, `own`, traced in a thread that the capture does not see; then its operations are captured."""
    def vmap(*args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != caller:  # within another one
            return own(*args, **kwargs)
        tensors: list[torch.Tensor] = []
        mapped((args, kwargs), "", lambda _, x: tensors.append(x) if isinstance(x, torch.Tensor) else None)
        autocast = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")

        def run(*given: torch.Tensor) -> Any:
            order = iter(given)
            inside, words = mapped((args, kwargs), "", lambda _, x: next(order) if isinstance(x, torch.Tensor) else x)
            with torch.autocast("cpu", autocast[1], enabled=autocast[0]):
                return own(*inside, **words)

        return thread.submit(lambda: make_fx(run)(*tensors)).result()(*tensors)

    return vmap


@contextlib.contextmanager
def vmap_captured() -> Iterator[None]:
    masking = vars(sys.modules["transformers.masking_utils"]) if "transformers.masking_utils" in sys.modules else {}
    with (ThreadPoolExecutor(1) as thread, _replaced(masking, "_vmap_expansion_sdpa", _by_index),
          _replaced(torch.vmap.__globals__, "vmap_impl", lambda own: _traced(own, thread, threading.get_ident()))):
        yield
