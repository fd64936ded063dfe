"""Rows that a mask selects: `x[mask]`, whose number depends on the values of the mask, as all rows and the mask."""
from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from types import EllipsisType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from .refusals import noted

# By name: functions of torch, of torch.nn.functional, and methods of a tensor.
POINTWISE = set("""
    abs neg negative exp exp2 expm1 log log1p log2 log10 sqrt rsqrt square pow reciprocal sin cos tan asin acos atan atan2 sinh cosh tanh asinh
    acosh atanh erf erfc sigmoid relu relu6 gelu silu mish elu selu celu leaky_relu softplus logsigmoid hardtanh hardsigmoid hardswish softsign
    tanhshrink threshold dropout add sub subtract rsub mul multiply div divide true_divide floor_divide remainder fmod maximum minimum lerp addcmul
    addcdiv where clamp clip clamp_min clamp_max masked_fill eq ne lt le gt ge isnan isfinite isinf logical_and logical_or logical_not bitwise_and
    bitwise_or bitwise_not sign round floor ceil trunc nan_to_num to type float double half bfloat16 long int bool detach clone contiguous zeros_like
    ones_like full_like rand_like randn_like""".split())
OPERATORS = "add sub mul truediv floordiv mod pow and or xor lt le gt ge eq ne neg abs invert".split()
REFLECTED = "add sub mul truediv floordiv mod pow and or xor".split()
ALONG = set("softmax log_softmax logsumexp argmax argmin max min amax amin sum mean var std prod all any cumsum".split())  # a dimension, or over all
LOSSES = set("mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits kl_div".split())
FULL = slice(None)
KNOWN = (": of rows that a mask selects, whose number depends on data, a step has functions of elements and of single rows, sums, means, the "
         "largest, the smallest and losses; or select with torch.where")
# Functions whose result is the same of the same operands, as masks are made of.
REPEATED = set("""
    view reshape flatten squeeze unsqueeze contiguous bool long int ne eq lt le gt ge logical_and logical_or logical_not bitwise_and bitwise_or
    bitwise_not and or xor invert getitem isnan isfinite""".split())


class Selected:
    """`data` has the dimensions of `mask` and those of a row behind them. What is not selected counts as 1, of integers as 0: functions of it are
    finite, and no gradient reaches it."""

    def __init__(self, data: torch.Tensor, mask: torch.Tensor):
        self.data, self.mask = data, mask

    @classmethod
    def of(cls, x: torch.Tensor, mask: torch.Tensor) -> Selected:
        if mask.shape != x.shape[:mask.dim()]:
            raise IndexError(f"the shape of the mask {list(mask.shape)} does not match that of the tensor {list(x.shape)}")
        return cls(cls(x, mask).filled(1 if x.is_floating_point() else 0), mask)

    def filled(self, value: Any, other: torch.Tensor | None = None) -> torch.Tensor:
        """All rows, with `value` or those of `other` where none is selected."""
        mask = self.mask.reshape(*self.mask.shape, *[1] * len(self.row))
        return torch.where(mask, self.data, torch.full((), value, dtype=self.data.dtype) if other is None else other)

    @property
    def row(self) -> torch.Size:
        return self.data.shape[self.mask.dim():]

    @property
    def shape(self) -> tuple[Any, ...]:
        return self.mask.sum(), *self.row

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        return 1 + len(self.row)

    ndim = property(dim)

    def numel(self) -> torch.Tensor:
        return self.mask.sum() * self.row.numel()

    def __len__(self) -> int:
        raise self._refused("len()")

    def __iter__(self) -> Any:
        raise self._refused("a loop")

    def __bool__(self) -> bool:
        raise self._refused("a branch")

    def __getattr__(self, name: str) -> Any:
        if name in ("dtype", "device", "requires_grad"):
            return getattr(self.data, name)
        method = getattr(torch.Tensor, name)
        if not callable(method):
            raise self._refused(name)
        return lambda *args, **kwargs: self._call(name, method, (self, *args), kwargs)

    def __matmul__(self, other: torch.Tensor) -> Selected:
        return self._call("matmul", torch.matmul, (self, other), {})

    def __getitem__(self, index: Any) -> Selected:
        if isinstance(index, Selected) and index.mask is self.mask and index.dtype == torch.bool and not index.row:
            return Selected.of(self.data, self.mask & index.data)
        first, *others = index if isinstance(index, tuple) else (index,)
        if first is Ellipsis and len(others) <= len(self.row):
            return Selected(self.data[(Ellipsis, *others)], self.mask)
        if isinstance(first, slice) and first == FULL:
            return Selected(self.data[(FULL,) * self.mask.dim() + tuple(others)], self.mask)
        raise self._refused("an index")

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = [x for arg in (*args, *(kwargs or {}).values()) for x in (arg if isinstance(arg, tuple | list) else [arg])]
        chosen = next(x for x in given if isinstance(x, Selected))
        return chosen._call(function.__name__, function, args, kwargs or {})

    @staticmethod
    def _refused(what: str) -> TypeError:
        return noted(TypeError(what + KNOWN))

    def _call(self, name: str, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        x = args[0] if args else None
        plain = name.removeprefix("__").removesuffix("__")
        if plain in POINTWISE or name.startswith("__") and (plain in OPERATORS or plain.removeprefix("r") in REFLECTED):
            return self._pointwise(function, args, kwargs)
        if name in LOSSES:
            return self._loss(function, args, kwargs)
        if name in ("cross_entropy", "nll_loss"):
            return self._classes(function, *args, **kwargs)
        if name in ("cat", "concat", "stack"):
            return self._joined(name, function, *args, **kwargs)
        if x is not self:
            raise self._refused(name)
        if name in ALONG:
            return self._along(name, function, *args[1:], **kwargs)
        if name in ("view", "reshape", "flatten"):
            return self._reshaped(name, *args[1:], **kwargs)
        if name == "type_as":
            return Selected(self.data.type_as(args[1]), self.mask)
        if name == "unsqueeze" and len(args) == 2 and args[1] % (self.dim() + 1):
            return Selected(self.data.unsqueeze(args[1] % (self.dim() + 1) + self.mask.dim() - 1), self.mask)
        if name == "squeeze" and len(args) == 2 and args[1] % self.dim():
            return Selected(self.data.squeeze(args[1] % self.dim() + self.mask.dim() - 1), self.mask)
        of_row = self.row and (name == "linear" or name == "matmul" and args[1].dim() <= 2
                               or name == "layer_norm" and len(args) > 1 and len(args[1]) <= len(self.row))
        if name == "gather" and args[1] % self.dim() and isinstance(args[2], Selected):
            return Selected(function(self.data, args[1] % self.dim() + self.mask.dim() - 1, self._dense(args[2])), self.mask)
        if name in ("embedding", "one_hot") or of_row:
            return Selected(function(self.data, *args[1:], **kwargs), self.mask)
        raise self._refused(name)

    def _dense(self, x: Any) -> Any:
        """All rows of another operand."""
        if isinstance(x, Selected):
            if x.mask is not self.mask:
                raise self._refused("operands of two masks")
            if len(x.row) != len(self.row):
                raise self._refused("operands of several dimensions")
            return x.data
        if isinstance(x, torch.Tensor) and x.dim() > len(self.row):
            if x.dim() != self.dim():
                raise self._refused(f"an operand of shape {list(x.shape)}")
            return x[0] if x.shape[0] == 1 else spread(x, self.mask)
        return x

    def _pointwise(self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Selected:
        return Selected(function(*map(self._dense, args), **{key: self._dense(x) for key, x in kwargs.items()}), self.mask)

    def _joined(self, name: str, function: Callable[..., Any], parts: Sequence[Any], dim: int = 0) -> Selected:
        place = dim % (self.dim() + (name == "stack"))
        if not place or not all(isinstance(x, Selected) for x in parts):
            raise self._refused(name)
        return Selected(function([self._dense(x) for x in parts], place + self.mask.dim() - 1), self.mask)

    def _along(self, name: str, function: Callable[..., Any], dim: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(dim, Selected):  # the maximum of two
            return self._pointwise(function, (self, dim), kwargs)
        several = isinstance(dim, tuple | list)
        dims = [d % self.dim() for d in (dim if several else range(self.dim()) if dim is None else [dim])]
        dense = [d - 1 + self.mask.dim() for d in dims if d]
        if 0 not in dims:
            made = function(self.data, dense if several else dense[0], *args, **kwargs)
            return type(made)([Selected(part, self.mask) for part in made]) if isinstance(made, tuple) else Selected(made, self.mask)
        over = [*range(self.mask.dim()), *dense]
        if args or kwargs or dim is not None and name in ("max", "min"):
            raise self._refused(f"{name} over the rows")
        if name == "sum":
            return self.filled(0).sum(over)
        if name == "mean" and self.dtype.is_floating_point:
            wide = torch.promote_types(self.dtype, torch.float32)
            count = self.mask.sum().to(wide) * torch.Size(self.data.shape[d] for d in dense).numel()
            return (self.filled(0).sum(over, dtype=wide) / count).to(self.dtype)
        if name in ("max", "amax") and self.dtype.is_floating_point:
            return self.filled(-torch.inf).amax(over)
        if name in ("min", "amin") and self.dtype.is_floating_point:
            return self.filled(torch.inf).amin(over)
        raise self._refused(f"{name} over the rows")

    def _reshaped(self, name: str, *sizes: Any) -> Selected:
        """As many rows of another shape, or each in several rows."""
        if name == "flatten":
            sizes = {(): (-1,), (0,): (-1,), (1,): (self.mask.sum(), self.row.numel())}.get(sizes, (0,))
        count, *row = sizes[0] if isinstance(sizes[0], Sequence) else sizes
        if isinstance(count, torch.Tensor) and -1 in row:
            row[row.index(-1)] = self.row.numel() // -torch.Size(row).numel()
        size = torch.Size(row).numel()
        if size == self.row.numel():
            return Selected(self.data.reshape(*self.mask.shape, *row), self.mask)
        if isinstance(count, torch.Tensor) or count != -1 or size <= 0 or self.row.numel() % size:
            raise self._refused(f"{name} to {[count, *row]}")
        parts = self.row.numel() // size
        return Selected(self.data.reshape(*self.mask.shape, parts, *row), self.mask.unsqueeze(-1).expand(*self.mask.shape, parts))

    def _loss(self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        reduction = _reduction(kwargs)
        each = self._pointwise(function, args, {**kwargs, "reduction": "none"})
        if reduction == "mean" and function.__name__ in ("mse_loss", "l1_loss") and kwargs.get("weight") is not None:
            return each.sum() / self._pointwise(torch.mul, (kwargs["weight"], torch.ones_like(self.data)), {}).sum()
        return each if reduction == "none" else each.mean() * self.row.numel() if reduction == "batchmean" else getattr(each, reduction)()

    def _classes(self, function: Callable[..., Any], scores: Any, target: Any, weight: Any = None, size_average: Any = None, ignore_index: int = -100,
                 reduce: Any = None, reduction: str = "mean", **kwargs: Any) -> Any:
        """Of the last dimension."""
        reduction = _reduction({"size_average": size_average, "reduce": reduce, "reduction": reduction})
        if (not (isinstance(scores, Selected) and isinstance(target, Selected)) or target.mask is not scores.mask or len(scores.row) != 1
                or len(target.row) != target.dtype.is_floating_point):
            raise self._refused(f"{function.__name__} with other labels, or more than classes in a row,")
        last = scores.mask.dim() - 1
        if not target.dtype.is_floating_point:
            labels = target.filled(ignore_index).flatten()
            made = function(scores.data.flatten(0, last), labels, weight, ignore_index=ignore_index, reduction=reduction, **kwargs)
            return Selected(made.reshape(scores.mask.shape), scores.mask) if reduction == "none" else made
        each = function(scores.data.flatten(0, last), target.data.flatten(0, last), weight, reduction="none", **kwargs)
        rows = Selected(each.reshape(scores.mask.shape), scores.mask)
        return rows if reduction == "none" else getattr(rows, reduction)()


def _reduction(kwargs: dict[str, Any]) -> str:
    """Takes it out of a loss' arguments, from deprecated ones, too."""
    old, reduction = [kwargs.pop(name, None) for name in ("size_average", "reduce")], kwargs.pop("reduction", "mean")
    return reduction if old == [None, None] else torch.nn._reduction.legacy_get_string(*old, emit_warning=False)


def spread(rows: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """As many rows as a mask selects (which is not checked), in their order, where it selects them."""
    before = mask.flatten().cumsum(0) - 1
    return rows[before.clamp(0, rows.shape[0] - 1).reshape(mask.shape)]


def _changes(x: torch.Tensor) -> int:
    """How often x was changed in place, if that is known."""
    return 0 if x.is_inference() else x._version


def _operator(name: str, reflected: bool) -> Callable[..., Any]:
    function = getattr(operator, f"__{name}__")
    return lambda x, *others: x._pointwise(function, (*others, x) if reflected else (x, *others), {})


for _name in OPERATORS:
    setattr(Selected, f"__{_name}__", _operator(_name, False))
for _name in REFLECTED:
    setattr(Selected, f"__r{_name}__", _operator(_name, True))


class Selections(TorchFunctionMode):
    """Makes x[mask], x.masked_select(mask), x[mask] = rows, and x[mask.nonzero()] what they are by Selected."""

    def __init__(self) -> None:
        super().__init__()
        self._results: dict[Any, torch.Tensor] = {}  # by function and operands
        self._first: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # a tensor and the first one of its value, by id
        self._masks: dict[Any, torch.Tensor] = {}  # copies, as a mask may be changed behind its use

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        rows = self._rows(function, args, (kwargs or {}).get("as_tuple", False))
        if rows is not None:
            return rows
        result = function(*args, **(kwargs or {}))
        if not kwargs and isinstance(result, torch.Tensor) and function.__name__.strip("_") in REPEATED:
            key = function.__name__.strip("_"), *map(self._key, args)
            self._first[id(result)] = result, self._results.setdefault(key, result)
        return result

    def _key(self, x: Any) -> Any:
        if isinstance(x, torch.Tensor):
            # The first tensor of its value, if neither was changed in place.
            _, first = self._first.setdefault(id(x), (x, x))
            first = first if _changes(x) == _changes(first) == 0 else x
            return id(first), _changes(first)
        if isinstance(x, tuple | list):
            return type(x), *map(self._key, x)
        if isinstance(x, slice):
            return slice, self._key(x.start), self._key(x.stop), self._key(x.step)
        return (type(x), x) if isinstance(x, bool | int | float | str | torch.dtype | EllipsisType | None) else object()

    def _mask(self, x: torch.Tensor) -> torch.Tensor:
        key = self._key(x)
        if key not in self._masks:
            self._masks[key] = x.clone()
        return self._masks[key]

    def _rows(self, function: Callable[..., Any], args: Sequence[Any], as_tuple: bool) -> Selected | tuple[Selected, ...] | torch.Tensor | None:
        if function in (torch.Tensor.masked_select, torch.masked_select):
            x, mask = torch.broadcast_tensors(*args)
            return Selected.of(x, self._mask(args[1] if args[1].shape == x.shape else mask))
        if function in (torch.nonzero, torch.Tensor.nonzero) or function is torch.where and len(args) == 1:
            mask = self._mask(args[0] if args[0].dtype == torch.bool else args[0] != 0)
            places = [torch.arange(n).reshape(n, *[1] * (mask.dim() - 1 - d)).expand(mask.shape) for d, n in enumerate(mask.shape)]
            if function is torch.where or as_tuple:
                return tuple(Selected(place, mask) for place in places)
            return Selected(torch.stack(places, -1), mask)
        if function not in (torch.Tensor.__getitem__, torch.Tensor.__setitem__) or not isinstance(args[0], torch.Tensor):
            return None
        index = args[1] if isinstance(args[1], tuple) else (args[1],)
        if function is torch.Tensor.__getitem__ and index and isinstance(index[0], Selected) and all(isinstance(i, Selected) for i in index):
            return Selected(args[0][tuple(map(index[0]._dense, index))], index[0].mask) if not index[0].row else None
        mask, *others = index or (None,)
        if not isinstance(mask, torch.Tensor) or mask.dtype != torch.bool or not mask.dim():
            return None
        if any(i is not Ellipsis and not (isinstance(i, slice) and i == FULL) for i in others):
            return None
        if function is torch.Tensor.__getitem__:
            return Selected.of(args[0], self._mask(mask))
        rows, mask = args[2], self._mask(mask)
        if isinstance(rows, torch.Tensor) and rows.dim() == args[0].dim() - mask.dim() + 1 and rows.shape[0] != 1:
            rows = Selected(spread(rows, mask).expand(args[0].shape), mask)
        if not isinstance(rows, Selected):
            return None
        if rows.mask is not mask or rows.data.shape != args[0].shape:
            raise Selected._refused("x[mask] = rows of another mask")
        return args[0].copy_(rows.filled(0, args[0]))
