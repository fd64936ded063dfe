"""Arithmetic, bounds, comparisons and types, with PyTorch's gradients at corners and bounds."""
from __future__ import annotations

import math
from typing import Any

import torch

from ... import functions
from ...emit import BYTES, Value, compute_type
from ..translate import Translator, Unsupported, rule

A = torch.ops.aten
# A value that equals its bound, or that of fmax, has all of the gradient.
OF_THE_FIRST = torch.__version__ < torch.torch_version.TorchVersion("2.14")


# Arithmetic.

def _scaled(t: Translator, b: Any, alpha: Any) -> Any:
    if alpha == 1:
        return b
    return b * alpha if isinstance(b, bool | int | float) else t.b.binary("mul", *t.pair(b, alpha))


@rule(A.add.Tensor, A.add.Scalar, wide="alpha")
def add(t: Translator, a: Any, b: Any, alpha: Any = 1) -> Value:
    if t.out.dtype == "i1":
        return t.b.binary("or", *t.pair(a, b))
    return t.b.binary("add", *t.pair(a, _scaled(t, b, alpha)))


@rule(A.sub.Tensor, A.sub.Scalar, wide="alpha")
def sub(t: Translator, a: Any, b: Any, alpha: Any = 1) -> Value:
    return t.b.binary("sub", *t.pair(a, _scaled(t, b, alpha)))


@rule(A.rsub.Tensor, A.rsub.Scalar, wide="alpha")
def rsub(t: Translator, a: Any, b: Any, alpha: Any = 1) -> Value:
    return t.b.binary("sub", *t.pair(b, _scaled(t, a, alpha)))


@rule(A.mul.Tensor, A.mul.Scalar, wide="numbers")
def mul(t: Translator, a: Any, b: Any) -> Value:
    return t.b.binary("and" if t.out.dtype == "i1" else "mul", *t.pair(a, b))


@rule(A.div.Tensor, A.div.Scalar, wide="numbers")
def div(t: Translator, a: Any, b: Any) -> Value:
    return t.b.binary("div", *t.pair(a, b))


@rule(A.div.Tensor_mode, A.div.Scalar_mode, wide=True)
def div_mode(t: Translator, a: Any, b: Any, rounding_mode: str | None = None) -> Value:
    if rounding_mode is None:
        return div(t, a, b)
    if rounding_mode == "trunc":
        return trunc(t, div(t, a, b))
    return functions.floored_quotient(t.b, *t.pair(a, b))


@rule(A.floor_divide.default, wide=True)
def floor_divide(t: Translator, a: Any, b: Any) -> Value:
    return div_mode(t, a, b, rounding_mode="floor")


@rule(A.floor.default, A.ceil.default, A.round.default)
def whole(t: Translator, x: Value) -> Value:
    return x if x.dtype.startswith("i") else t.b.unary(str(t.node.target).split(".")[1], x)


@rule(A.copysign.Tensor, A.copysign.Scalar)
def copysign(t: Translator, x: Value, sign: Any) -> Value:
    """The gradient of the sign is 0."""
    x, sign = t.pair(x, sign)
    return functions.copysign(t.b, x, t.b.unary("stop_gradient", sign))


@rule(A.round.decimals)
def round_decimals(t: Translator, x: Value, decimals: int = 0) -> Value:
    if x.dtype.startswith("i"):
        raise Unsupported("decimals of integers")
    there, back = ("mul", "div") if decimals > 0 else ("div", "mul")
    power = t.b.like(10.0 ** abs(decimals), x)
    return t.b.binary(back, t.b.unary("round", t.b.binary(there, x, power)), power)


@rule(A.trunc.default)
def trunc(t: Translator, x: Value) -> Value:
    return functions.trunc(t.b, x)


@rule(A.frac.default)
def frac(t: Translator, x: Value) -> Value:
    return t.b.binary("sub", x, trunc(t, x))


@rule(A.fmod.Tensor, A.fmod.Scalar)
def fmod(t: Translator, a: Any, b: Any) -> Value:
    return functions.fmod(t.b, *t.pair(a, b))


@rule(A.remainder.Tensor, A.remainder.Scalar)
def remainder(t: Translator, a: Any, b: Any) -> Value:
    return functions.remainder(t.b, *t.pair(a, b))


@rule(A.neg.default)
def neg(t: Translator, x: Value) -> Value:
    return functions.neg(t.b, x)


@rule(A.reciprocal.default)
def reciprocal(t: Translator, x: Value) -> Value:
    return t.b.binary("div", *t.pair(1.0, x))


@rule(A.square.default)
def square(t: Translator, x: Value) -> Value:
    return t.b.binary("mul", x, x)


@rule(A.pow.Tensor_Scalar, wide=True)
def pow_scalar(t: Translator, x: Value, exponent: float) -> Value:
    x = t.value(x, t.out.dtype)
    if float(exponent).is_integer() and (0 <= exponent <= 8 or (x.dtype.startswith("i") and exponent > 0)):  # exact for any base, as PyTorch's
        return functions.whole_power(t.b, x, int(exponent))
    if x.dtype.startswith("i"):
        raise Unsupported(f"integers to the power of {exponent}: expected an exponent of 0 or more")
    if exponent in (-1, -2):
        return t.b.binary("div", t.b.like(1, x), x if exponent == -1 else t.b.binary("mul", x, x))
    if exponent in (0.5, -0.5):
        return t.b.unary("sqrt" if exponent > 0 else "rsqrt", x)
    return t.b.binary("pow", *t.pair(x, float(exponent)))


@rule(A.pow.Tensor_Tensor, A.pow.Scalar, wide="numbers")
def pow_tensor(t: Translator, x: Any, exponent: Any) -> Value:
    base, (x, exponent) = x.item() if isinstance(x, torch.Tensor) and x.dim() == 0 else x, t.pair(x, exponent)
    if isinstance(base, int | float) and base not in (0, 1) and math.frexp(base)[0] == 0.5 and not x.dtype.startswith("i"):
        exponent = t.b.cast(exponent, compute_type(exponent.dtype))
        return t.b.cast(functions.exp2(t.b, t.b.binary("mul", exponent, t.b.like(math.log2(base), exponent))), t.out.dtype)
    return functions.power_of_integers(t.b, x, exponent) if x.dtype.startswith("i") else t.b.binary("pow", x, exponent)


@rule(A.maximum.default, A.minimum.default)
def extreme(t: Translator, a: Any, b: Any) -> Value:
    a, b = t.pair(a, b)
    largest = "max" in str(t.node.target)
    return t.b.binary(("or" if largest else "and") if a.dtype == "i1" else "max" if largest else "min", a, b)


@rule(A.fmax.default, A.fmin.default)
def extreme_number(t: Translator, a: Any, b: Any) -> Value:
    """That which is no NaN, with all of the gradient."""
    a, b = t.pair(a, b)
    if OF_THE_FIRST:
        first = t.b.compare("ge" if "max" in str(t.node.target) else "le", a, b)
        return t.b.select(t.b.binary("or", first, t.b.compare("ne", b, b)), a, b)
    both = extreme(t, a, b)
    if a.dtype.startswith("i"):
        return both
    return t.b.select(t.b.compare("ne", a, a), b, t.b.select(t.b.compare("ne", b, b), a, both))


@rule(A.hypot.default)
def hypot(t: Translator, a: Any, b: Any) -> Value:
    a, b = functions.widened(t.b, *t.pair(a, b))
    return t.b.cast(t.b.unary("sqrt", t.b.binary("add", t.b.binary("mul", a, a), t.b.binary("mul", b, b))), t.out.dtype)


@rule(A.sinc.default, wide=True)
def sinc(t: Translator, x: Value) -> Value:
    """sin(pi x) / (pi x); 1 with no gradient at 0."""
    x = t.value(x, t.out.dtype)
    one = t.b.like(1, x)
    zero = t.b.compare("eq", x, t.b.like(0, x))
    y = t.b.binary("mul", t.b.select(zero, one, x), t.b.like(math.pi, x))
    return t.b.select(zero, one, t.b.binary("div", t.b.unary("sin", y), y))


@rule(A.xlogy.Tensor, A.xlogy.Scalar_Self, A.xlogy.Scalar_Other, A.special_xlog1py.default, A.special_xlog1py.self_scalar,
      A.special_xlog1py.other_scalar, wide=True)
def xlogy(t: Translator, x: Any, y: Any) -> Value:
    """x log(y), or x log(1 + y). Where x is 0 it is 0 whatever y is, but for NaN; the gradient of x is log(y), 0 where that is not finite."""
    x, y = t.pair(x, y)
    by_log1p = "log1p" in str(t.node.target)
    zero, end = t.b.like(0, x), t.b.like(-1 if by_log1p else 0, y)
    beyond = t.b.binary("or", t.b.compare("le", y, end), functions.isinf(t.b, y))
    y = t.b.select(t.b.binary("and", t.b.compare("eq", x, zero), beyond), t.b.like(0 if by_log1p else 1, y), y)
    return t.b.binary("mul", x, functions.log1p(t.b, y) if by_log1p else t.b.unary("log", y))


@rule(A.signbit.default)
def signbit(t: Translator, x: Value) -> Value:
    return functions.signbit(t.b, x)


# Selection and bounds.

@rule(A.where.self, A.where.ScalarOther, A.where.ScalarSelf, A.where.Scalar)
def where(t: Translator, condition: Any, a: Any, b: Any) -> Value:
    return t.b.select(t.value(condition, "i1"), *t.pair(a, b))


@rule(A.masked_fill.Scalar, A.masked_fill.Tensor)
def masked_fill(t: Translator, x: Value, mask: Any, value: Any) -> Value:
    return t.b.select(t.value(mask, "i1"), *t.pair(value, x))


def bounded(t: Translator, x: Value, low: Any, high: Any, of_the_first: bool = False) -> Value:
    """x between bounds. At a bound that is a number the gradient is 0, with one that is a tensor it is shared, or x has it. NaN stays NaN."""
    for bound, kind, beyond, from_it in ((low, "max", "lt", "le"), (high, "min", "gt", "ge")):
        if bound is None:
            continue
        is_tensor = isinstance(bound, Value | torch.Tensor)
        bound = t.value(bound, x.dtype) if is_tensor else t.b.like(bound, x)
        if is_tensor and not of_the_first:
            x = t.b.binary(kind, x, bound)
            continue
        taken = t.b.compare(beyond if of_the_first else from_it, x, bound)
        if is_tensor and not x.dtype.startswith("i"):
            taken = t.b.binary("or", taken, t.b.compare("ne", bound, bound))
        x = t.b.select(taken, bound, x)
    return x


@rule(A.clamp.default, A.clamp.Tensor)
def clamp(t: Translator, x: Value, min: Any = None, max: Any = None) -> Value:
    x = t.value(x, t.out.dtype)
    if x.dtype.startswith("i") or not all(isinstance(bound, Value | torch.Tensor) for bound in (min, max)):
        return bounded(t, x, min, max, OF_THE_FIRST)
    low, high = t.pair(min, max)
    are_equal = t.b.compare("eq", low, high)
    if OF_THE_FIRST:  # a lower bound that the upper one equals has none of the gradient
        return bounded(t, x, t.b.select(are_equal, t.b.unary("stop_gradient", low), low), high, True)
    # Of equal bounds that which x is beyond has all of it, and x itself where it is neither below nor above.
    return t.b.select(are_equal, *(bounded(t, x, low, high, alone) for alone in (True, False)))


@rule(A.clamp_min.default, A.clamp_min.Tensor)
def clamp_min(t: Translator, x: Value, bound: Any) -> Value:
    return bounded(t, t.value(x, t.out.dtype), bound, None, OF_THE_FIRST)


@rule(A.clamp_max.default, A.clamp_max.Tensor)
def clamp_max(t: Translator, x: Value, bound: Any) -> Value:
    return bounded(t, t.value(x, t.out.dtype), None, bound, OF_THE_FIRST)


# Comparisons and logic.

def _comparison(kind: str) -> None:
    @rule(getattr(A, kind).Tensor, getattr(A, kind).Scalar)
    def translate(t: Translator, a: Any, b: Any) -> Value:
        dtype = t.promoted(a, b)
        a, b = t.pair(a, _wrapped(t, b, dtype), "i8" if dtype == "i1" else dtype)
        return t.b.compare(kind, a, b)


def _wrapped(t: Translator, number: Any, dtype: str) -> Any:
    """A whole number in the type of integers with which it is compared, as PyTorch; uint8 is i32 here."""
    if not isinstance(number, int) or isinstance(number, bool) or not dtype.startswith("i"):
        return number
    bits = t.node.args[0].meta["val"].dtype
    return torch.tensor(number).to(bits).item() if bits != torch.bool else number


for _kind in ("eq", "ne", "lt", "le", "gt", "ge"):
    _comparison(_kind)


@rule(A.logical_and.default, A.bitwise_and.Tensor, A.bitwise_and.Scalar)
def logical_and(t: Translator, a: Any, b: Any) -> Value:
    """Of integers the last bits: n & 7 is n modulo 8."""
    if t.out.dtype != "i1" and isinstance(b, int) and b >= 0 and b & (b + 1) == 0 and b + 1 < 1 << 8 * BYTES[t.out.dtype] - 1:
        return remainder(t, a, b + 1)
    return _logical(t, "and", a, b)


@rule(A.logical_or.default, A.bitwise_or.Tensor, A.bitwise_or.Scalar)
def logical_or(t: Translator, a: Any, b: Any) -> Value:
    return _logical(t, "or", a, b)


def _logical(t: Translator, kind: str, a: Any, b: Any) -> Value:
    if t.out.dtype != "i1":
        raise Unsupported("bitwise operations on integers, but for n & (2^k - 1)")
    return t.b.binary(kind, *t.pair(a, b, "i1"))


@rule(A.logical_xor.default, A.bitwise_xor.Tensor, A.bitwise_xor.Scalar)
def logical_xor(t: Translator, a: Any, b: Any) -> Value:
    if t.out.dtype != "i1":
        raise Unsupported("bitwise operations on integers")
    return functions.logical_xor(t.b, *t.pair(a, b, "i1"))


@rule(A.logical_not.default, A.bitwise_not.default)
def logical_not(t: Translator, x: Value) -> Value:
    if x.dtype != "i1" and "bitwise" in str(t.node.target):
        raise Unsupported("bitwise operations on integers")
    return t.b.unary("not", t.b.cast(x, "i1"))


@rule(A.isnan.default)
def isnan(t: Translator, x: Value) -> Value:
    return functions.isnan(t.b, x)


@rule(A.isinf.default)
def isinf(t: Translator, x: Value) -> Value:
    return functions.isinf(t.b, x)


# Types.

@rule(A.to.dtype_layout, A.to.device)
def to(t: Translator, x: Value, *_: Any, **__: Any) -> Value:
    """In uint8, which is i32 here, numbers are modulo 256."""
    result = t.b.cast(x, t.out.dtype)
    return functions.remainder(t.b, result, t.b.like(256, result)) if t.node.meta["val"].dtype == torch.uint8 else result


@rule(A.to.dtype)
def to_dtype(t: Translator, x: Value, dtype: Any, non_blocking: bool = False, copy: bool = False, *_: Any, **__: Any) -> Value:
    """A copy of f32 in f32, as `widened` makes, keeps what follows in it."""
    return t.b.kept(x) if copy and x.dtype == t.out.dtype == "f32" else to(t, x)


@rule(A._to_copy.default)
def to_copy(t: Translator, x: Value, dtype: Any = None, **_: Any) -> Value:
    return to_dtype(t, x, dtype, copy=dtype is not None)


@rule(A.type_as.default)
def type_as(t: Translator, x: Value, other: Any) -> Value:
    return to(t, x)


@rule(A.clone.default, A.alias.default, A.contiguous.default, A.lift_fresh_copy.default)
def same(t: Translator, x: Value, **_: Any) -> Value:
    return x


@rule(A.detach.default)
def detach(t: Translator, x: Value) -> Value:
    return t.b.unary("stop_gradient", x) if x.dtype in ("f64", "f32", "bf16", "f16") else x
