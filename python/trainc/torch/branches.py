"""Branches on values that go one way whatever the values are."""
from __future__ import annotations

import bisect
import dis
import itertools
import os
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import CodeType, FrameType
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from ..errors import UnsupportedError, warn
from .refusals import noted
from .replaced import REPLACED, swapped

JUMPS = {*dis.hasjrel, *dis.hasjabs}
TORCH = os.path.join(os.path.dirname(os.path.abspath(torch.__file__)), "")
# Within these functions.
ANSWERS = {nn.modules.transformer._detect_is_causal_mask.__code__: False, torch.distributions.constraints._PositiveDefinite.check.__code__: True}


def frames(frame: FrameType | None) -> Iterator[FrameType]:
    """From the inside out."""
    while frame:
        yield frame
        frame = frame.f_back


class _Code:
    """The instructions of a function, by number."""

    def __init__(self, code: CodeType):
        self._all = list(dis.get_instructions(code))
        self._offsets = [instruction.offset for instruction in self._all]
        self._tries = dis.Bytecode(code).exception_entries

    def at(self, offset: int) -> int:
        """The instruction at `offset`, which may be within it."""
        return bisect.bisect_right(self._offsets, offset) - 1

    def is_caught(self, i: int) -> bool:
        """Whether a `try` is around, not only a `with`."""
        handlers = (self._all[self.at(entry.target) + 1] for entry in self._tries if entry.start <= self._offsets[i] < entry.end)
        return any(handler.opname != "WITH_EXCEPT_START" for handler in handlers)

    def jump(self, i: int) -> tuple[bool, int, int] | None:
        """Of a conditional jump whether it is taken if true, where it goes then and where else."""
        name = self._all[i].opname
        taken = name.endswith("_IF_TRUE")
        return (taken, self.at(self._all[i].argval), i + 1) if name.startswith("POP_JUMP") and (taken or name.endswith("_IF_FALSE")) else None

    def place(self, i: int) -> int:
        """Where the code goes on at once; -1: the end of the function, of which there are several."""
        first, second = (self._all[i:] * 2)[:2]
        if first.opname.startswith("JUMP"):
            return self.at(first.argval)
        returns = (first.opname, second.opname) == ("LOAD_CONST", "RETURN_VALUE") and first.argval is None
        return -1 if returns or (first.opname, first.argval) == ("RETURN_CONST", None) else i

    def path(self, i: int) -> list[int] | None:
        """Where the code goes on from `i`: there, and then behind each condition that raises in one of two cases. None if it raises at once."""
        start, effects = i, False
        while self.place(start) == start and i < len(self._all):
            name = self._all[i].opname
            if name == "RAISE_VARARGS":
                return None
            effects |= name.startswith(("STORE", "POP_TOP"))
            jump = self.jump(i)
            if jump and not effects and min(jump[1:]) > start:
                paths = [self.path(place) for place in jump[1:]]
                return [start, *next((p for p in paths if p), [])] if None in paths else [start]
            if self._all[i].opcode in JUMPS or name.startswith(("RETURN", "YIELD")):
                break
            i += 1
        return [self.place(start)]

    def keeps(self, asked: int, called: int, names: Collection[str], in_tuple: bool) -> bool:
        """Whether the result of the call at an offset, or the first of its tuple, becomes the value of one of `names`, and nothing else
        does in what is left out with the call, by a branch on what was asked at another offset."""
        first, call = self.at(asked), self.at(called)
        i, stored = call + 1, set[str]()
        while i < len(self._all):
            to, one = self.place(i), self._all[i]
            (puts, reads), name = _variables(one), one.opname
            is_zero = name.startswith("LOAD") and one.argval == 0
            of_tuple = in_tuple and (is_zero or name in ("UNPACK_SEQUENCE", "BINARY_SUBSCR") or one.argrepr == "[]")
            if to <= i and not of_tuple and not (puts | reads and reads <= stored | puts):
                break
            stored |= puts
            i = max(to, i + 1)
        return not stored.isdisjoint(names) and not any(_variables(one)[0] & set(names) for one in self._all[i:self._end(first, call)])

    def _end(self, asked: int, call: int) -> int:
        """The end of what is left out with a call: of the loop, where that goes on then, or of what a branch jumps over."""
        jumps = [(i, self.at(one.argval)) for i, one in enumerate(self._all) if one.opcode in JUMPS]
        over = [to for i, to in jumps if asked <= i < call < to]
        if over and not any(asked <= i < call and to <= asked for i, to in jumps):
            return max(over)
        return next((i for i, to in jumps if i > call and to <= asked), len(self._all))


def _variables(one: dis.Instruction) -> tuple[set[str], set[str]]:
    """The names that an instruction gives a value, and those that it reads; some do both."""
    names = one.argval if isinstance(one.argval, tuple) else (one.argval,)
    done = re.findall("STORE|LOAD", one.opname) if re.search("_FAST|_DEREF", one.opname) else []
    return {name for name, what in zip(names, done) if what == "STORE"}, {name for name, what in zip(names, done) if what == "LOAD"}


def expected_by(code: CodeType, offset: int) -> bool | None:
    """Of a condition whose branch at `offset` leads to a `raise` in one of two cases the other one: False of `if x.isnan().any(): raise`,
    True of `assert x.min() > 0`, unless a `try` may catch it. False of a in `if a and b: raise`, too: nothing else hangs on it."""
    instructions = _Code(code)
    i = instructions.at(offset)
    if instructions.is_caught(i):
        return None
    # Of bool(...) and .item() the instruction is their call; from Python 3.13 on, it is TO_BOOL.
    jump = instructions.jump(i) or instructions.jump(i + 1)
    if not jump:
        return None
    if_true, *places = jump
    taken, otherwise = map(instructions.path, places)
    if not taken or not otherwise:
        return None if taken == otherwise else if_true is bool(taken)
    return if_true if taken[0] in otherwise else not if_true if otherwise[0] in taken else None


def _skipped(skip: torch.Tensor, loop: FrameType, asked: int, module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], results: Any) -> Any:
    """What a layer gives, which is a variable of the loop, or its input where it is left out; `asked` is where that is decided."""
    if not any(x is module for x in loop.f_locals.values()):
        raise noted(UnsupportedError(f"LayerDrop before {type(module).__name__}, which is not a layer of the loop: expected a rate of 0"))
    x, (y, *others) = args[0] if args else kwargs.get("hidden_states"), results if isinstance(results, tuple) else (results,)
    if not (isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor) and x.shape == y.shape) or any(isinstance(z, torch.Tensor) for z in others):
        raise noted(UnsupportedError(f"LayerDrop of {type(module).__name__}, which gives more than its input with other values: expected a rate of 0"))
    between = list(itertools.takewhile(lambda f: f is not loop, frames(sys._getframe(2))))
    names = [name for name, value in loop.f_locals.items() if value is x]
    if (any(f.f_code.co_name != "__call__" and not f.f_code.co_filename.startswith(TORCH) for f in between)
            or not _Code(loop.f_code).keeps(asked, loop.f_lasti, names, isinstance(results, tuple))):
        raise noted(UnsupportedError(f"LayerDrop of {type(module).__name__}, of whose result {loop.f_code.co_name} computes something before it takes "
                                     "the place of the input: expected x = layer(x), all of which is left out, or a rate of 0"))
    if any(isinstance(m, nn.modules.batchnorm._NormBase) and m.training and m.track_running_stats for m in module.modules()):
        raise noted(UnsupportedError(f"LayerDrop of {type(module).__name__}, which has running statistics: expected a rate of 0"))
    warn("LayerDrop: the gradient of a layer that is left out is 0; momentum and weight decay go on, where PyTorch's optimizers leave its "
         "parameters as they are")
    y = torch.where(skip, x, y)
    return (y, *others) if isinstance(results, tuple) else y


class KnownBranches(TorchFunctionMode):
    """Answers the questions about values that have one answer: a check that raises an error does not (PyTorch's way, with the check, is
    to ask at each call); no drawn number is below 0, where layers are dropped at a rate of 0; covariances are symmetric; and
    nn.Transformer, which asks whether a mask is causal, is told no: it reads the mask then, and the translation sees that it is.

    Functions that drop layers at another rate are told not to, and the layer that they call next has its input as a result where they would
    have (LayerDrop: Fan et al., Reducing Transformer Depth on Demand, ICLR 2020)."""

    def __init__(self) -> None:
        super().__init__()
        self._drawn: list[torch.Tensor] = []  # numbers of torch.rand
        # Whether the layer that is called next is left out, the function that calls it, and where that asks.
        self._skip: tuple[torch.Tensor, FrameType, int] | None = None
        self._calls = swapped({(nn.Module, "_call_impl"): self._calling(nn.Module._call_impl)})  # what __call__ calls, also in torch.fx

    def __enter__(self) -> KnownBranches:
        self._calls.__enter__()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._calls.__exit__(None, None, None)
        if self._skip is not None and not any(error):
            raise noted(UnsupportedError("LayerDrop without a layer behind it: expected a rate of 0"))

    def _calling(self, own: Callable[..., Any]) -> Callable[..., Any]:
        def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            skip, self._skip = self._skip, None
            results = own(module, *args, **kwargs)
            return results if skip is None else _skipped(*skip, module, args, kwargs, results)

        return call

    def _compared(self, function: Any, x: torch.Tensor, rate: float) -> torch.Tensor | None:
        """The answer of a drawn number that a rate is compared with."""
        name = function.__name__.strip("_")
        is_below = name in ("lt", "le")
        if rate <= 0 and name == "lt":
            return torch.tensor(False)
        asking = _asking()
        if not any(re.search("layer_?drop", name) for name in asking.f_code.co_names):
            return None
        self._skip = function(x, rate) if is_below else ~function(x, rate), asking, asking.f_lasti
        return torch.tensor(not is_below)

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function.__name__.strip("_") in ("lt", "le", "gt", "ge") and isinstance(args[-1], float | int) and any(args[0] is x for x in self._drawn):
            answer = self._compared(function, *args)
            if answer is not None:
                return answer
        function = REPLACED.get(function, function)
        if function is torch.Tensor.__bool__ or function is torch.Tensor.item and args[0].dtype == torch.bool:
            asking = _asking()
            known = (ANSWERS[f.f_code] for f in frames(asking) if f.f_code in ANSWERS)
            expected = next(known, expected_by(asking.f_code, asking.f_lasti))
            if expected is not None:
                return expected
        result = function(*args, **(kwargs or {}))
        if function is torch.Tensor.item and isinstance(result, torch.SymInt | torch.SymFloat):
            return args[0].detach().clone()  # a number that is not known is a tensor, which does not follow its source
        if function is torch.rand and result.dim() == 0:
            self._drawn.append(result)
        return result


def _asking() -> FrameType:
    """The function that asks; modes of torch.export may stand between."""
    return next(f for f in frames(sys._getframe(1)) if f.f_code.co_filename != __file__ and f.f_code.co_name != "__torch_function__")
