"""Arithmetic, bounds, comparisons and types, with PyTorch's gradients at corners and bounds."""
from __future__ import annotations

import math
from typing import Any

import torch

from ...emit import BYTES, Value
from ..translate import Translator, Unsupported, rule

A = torch.ops.aten


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
    return t.b.cast(_floored(t, *_widened(t, a, b)), t.out.dtype)


@rule(A.floor_divide.default, wide=True)
def floor_divide(t: Translator, a: Any, b: Any) -> Value:
    return div_mode(t, a, b, rounding_mode="floor")


@rule(A.floor.default, A.ceil.default, A.round.default)
def whole(t: Translator, x: Value) -> Value:
    return x if x.dtype.startswith("i") else t.b.unary(str(t.node.target).split(".")[1], x)


@rule(A.copysign.Tensor, A.copysign.Scalar)
def copysign(t: Translator, x: Value, sign: Any) -> Value:
    return _signed(t, *t.pair(x, sign))


def _signed(t: Translator, x: Value, sign: Value) -> Value:
    size = t.b.unary("abs", x)
    return t.b.select(signbit(t, sign), t.b.unary("neg", size), size)


@rule(A.round.decimals)
def round_decimals(t: Translator, x: Value, decimals: int = 0) -> Value:
    if x.dtype.startswith("i"):
        raise Unsupported("decimals of integers")
    there, back = ("mul", "div") if decimals > 0 else ("div", "mul")
    power = t.b.like(10.0 ** abs(decimals), x)
    return t.b.binary(back, t.b.unary("round", t.b.binary(there, x, power)), power)


@rule(A.trunc.default)
def trunc(t: Translator, x: Value) -> Value:
    if x.dtype.startswith("i"):
        return x
    return t.b.select(t.b.compare("lt", x, t.b.like(0, x)), t.b.unary("ceil", x), t.b.unary("floor", x))


@rule(A.frac.default)
def frac(t: Translator, x: Value) -> Value:
    return t.b.binary("sub", x, trunc(t, x))


@rule(A.fmod.Tensor, A.fmod.Scalar)
def fmod(t: Translator, a: Any, b: Any) -> Value:
    """What is left of a; its sign is a's."""
    return t.b.cast(_left(t, *_widened(t, a, b)), t.out.dtype)


@rule(A.remainder.Tensor, A.remainder.Scalar)
def remainder(t: Translator, a: Any, b: Any) -> Value:
    """What is left of a; its sign is b's."""
    a, b = _widened(t, a, b)
    left = _left(t, a, b)
    return t.b.cast(t.b.binary("add", left, t.b.select(_opposite(t, left, b), b, t.b.like(0, b))), t.out.dtype)


def _floored(t: Translator, a: Value, b: Value) -> Value:
    """a / b toward -infinity: less 1 where what is left has not the divisor's sign; NaN of an infinite a."""
    quotient, left = _divided(t, a, b)
    if not a.dtype.startswith("i"):
        quotient = t.b.binary("sub", quotient, t.b.binary("sub", a, a))
    return t.b.binary("sub", quotient, t.b.cast(_opposite(t, left, b), quotient.dtype))


def _left(t: Translator, a: Value, b: Value) -> Value:
    """What is left of a, of floats with its gradients: 1 of a, less the quotient of b."""
    quotient, left = _divided(t, a, b)
    if a.dtype.startswith("i"):
        return left
    moved_a, moved_b = (t.b.binary("sub", v, t.b.unary("stop_gradient", v)) for v in (a, b))  # 0, with a gradient
    value = t.b.binary("sub", t.b.binary("add", left, moved_a), t.b.binary("mul", quotient, moved_b))
    return t.b.select(_within(t, a, b), a, value)


def _divided(t: Translator, a: Value, b: Value) -> tuple[Value, Value]:
    """a / b toward zero and what is left of a, as C's fmod, both without gradients; of floats exact while the quotient is below 2^53 and b
    below 2^996."""
    if a.dtype.startswith("i"):
        quotient = t.b.binary("div", a, b)
        return quotient, t.b.binary("sub", a, t.b.binary("mul", quotient, b))
    a, b = (t.b.unary("stop_gradient", v) for v in (a, b))
    quotient = trunc(t, t.b.binary("div", a, b))
    left = t.b.binary("sub", t.b.binary("sub", a, t.b.binary("mul", quotient, b)), _rounded_off(t, quotient, b))
    over = _opposite(t, left, a)  # the quotient was rounded to the next whole number
    left = t.b.binary("add", left, t.b.select(over, _signed(t, b, a), t.b.like(0, a)))
    quotient = t.b.binary("sub", quotient, t.b.select(over, _signed(t, t.b.like(1, a), quotient), t.b.like(0, a)))
    return quotient, t.b.select(_within(t, a, b), a, left)


def _widened(t: Translator, a: Any, b: Any) -> tuple[Value, Value]:
    """Floats as f64."""
    a, b = t.pair(a, b)
    return (a, b) if a.dtype.startswith("i") else (t.b.cast(a, "f64"), t.b.cast(b, "f64"))


def _rounded_off(t: Translator, x: Value, y: Value) -> Value:
    """x * y less its rounded product, exactly: Dekker, A floating-point technique for extending the available precision (1971)."""
    def halves(v: Value) -> tuple[Value, Value]:
        big = t.b.binary("mul", v, t.b.like(2**27 + 1, v))
        high = t.b.binary("sub", big, t.b.binary("sub", big, v))
        return high, t.b.binary("sub", v, high)

    (x1, x2), (y1, y2) = halves(x), halves(y)
    off = t.b.binary("sub", t.b.binary("mul", x1, y1), t.b.binary("mul", x, y))
    for p, q in ((x1, y2), (x2, y1), (x2, y2)):
        off = t.b.binary("add", off, t.b.binary("mul", p, q))
    return off


def _within(t: Translator, a: Value, b: Value) -> Value:
    """Where all of a is left, also of an infinite b."""
    return t.b.compare("lt", t.b.unary("abs", a), t.b.unary("abs", b))


def _opposite(t: Translator, x: Value, y: Value) -> Value:
    """Where one is above 0 and the other below, which their product does not tell if it does not fit the type."""
    zero = t.b.like(0, x)
    ways = (t.b.binary("and", t.b.compare(p, x, zero), t.b.compare(q, y, zero)) for p, q in (("lt", "gt"), ("gt", "lt")))
    return t.b.binary("or", *ways)


@rule(A.neg.default)
def neg(t: Translator, x: Value) -> Value:
    return t.b.unary("neg", x) if not x.dtype.startswith("i") else t.b.binary("sub", t.b.like(0, x), x)


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
        powers = t.b.splat(1, x.shape, x.dtype) if exponent == 0 else None
        base, left = x, int(exponent)
        while left:
            if left % 2:
                powers = base if powers is None else t.b.binary("mul", powers, base)
            left //= 2
            base = t.b.binary("mul", base, base) if left else base
        return powers
    if x.dtype.startswith("i"):
        raise Unsupported(f"integers to the power of {exponent}: expected an exponent of 0 or more")
    if exponent in (-1, -2):
        return t.b.binary("div", t.b.like(1, x), x if exponent == -1 else t.b.binary("mul", x, x))
    if exponent in (0.5, -0.5):
        return t.b.unary("sqrt" if exponent > 0 else "rsqrt", x)
    return t.b.binary("pow", *t.pair(x, float(exponent)))


@rule(A.pow.Tensor_Tensor, A.pow.Scalar, wide="numbers")
def pow_tensor(t: Translator, x: Any, exponent: Any) -> Value:
    x, exponent = t.pair(x, exponent)
    return _power_of_integers(t, x, exponent) if x.dtype.startswith("i") else t.b.binary("pow", x, exponent)


def _power_of_integers(t: Translator, x: Value, exponent: Value) -> Value:
    """By the bits of exponents below 64, from where on it wraps to 0 for an even base; 1 / x^-n toward 0 of negative ones."""
    zero, one, two = (t.b.like(n, x) for n in (0, 1, 2))
    inverse = t.b.select(t.b.compare("eq", t.b.binary("mul", x, x), one), x, zero)
    negative = t.b.compare("lt", exponent, zero)
    power, result = t.b.select(negative, inverse, x), one
    left = t.b.select(negative, t.b.binary("sub", zero, exponent), exponent)
    for _ in range(6):
        half = t.b.binary("div", left, two)
        is_odd = t.b.compare("ne", t.b.binary("mul", half, two), left)
        result = t.b.binary("mul", result, t.b.select(is_odd, power, one))
        left, power = half, t.b.binary("mul", power, power)
    return t.b.select(t.b.compare("gt", left, zero), t.b.binary("mul", result, power), result)


@rule(A.maximum.default, A.minimum.default)
def extreme(t: Translator, a: Any, b: Any) -> Value:
    a, b = t.pair(a, b)
    largest = "max" in str(t.node.target)
    return t.b.binary(("or" if largest else "and") if a.dtype == "i1" else "max" if largest else "min", a, b)


@rule(A.fmax.default, A.fmin.default)
def extreme_number(t: Translator, a: Any, b: Any) -> Value:
    """That which is no NaN, with all of the gradient."""
    a, b = t.pair(a, b)
    both = extreme(t, a, b)
    if a.dtype.startswith("i"):
        return both
    return t.b.select(t.b.compare("ne", a, a), b, t.b.select(t.b.compare("ne", b, b), a, both))


@rule(A.hypot.default)
def hypot(t: Translator, a: Any, b: Any) -> Value:
    a, b = _widened(t, a, b)
    return t.b.cast(t.b.unary("sqrt", t.b.binary("add", t.b.binary("mul", a, a), t.b.binary("mul", b, b))), t.out.dtype)


@rule(A.signbit.default)
def signbit(t: Translator, x: Value) -> Value:
    """1 / x tells -0 from 0."""
    zero = t.b.like(0, x)
    below = t.b.compare("lt", x, zero)
    return below if x.dtype.startswith("i") else t.b.binary("or", below, t.b.compare("lt", t.b.binary("div", t.b.like(1, x), x), zero))


# Selection and bounds.

@rule(A.where.self, A.where.ScalarOther, A.where.ScalarSelf, A.where.Scalar)
def where(t: Translator, condition: Any, a: Any, b: Any) -> Value:
    return t.b.select(t.value(condition, "i1"), *t.pair(a, b))


@rule(A.masked_fill.Scalar, A.masked_fill.Tensor)
def masked_fill(t: Translator, x: Value, mask: Any, value: Any) -> Value:
    return t.b.select(t.value(mask, "i1"), *t.pair(value, x))


def bounded(t: Translator, x: Value, low: Any, high: Any) -> Value:
    """x between bounds. At a bound that is a number the gradient is 0, with one that is a tensor it is shared. NaN stays NaN."""
    for bound, kind, beyond in ((low, "max", "le"), (high, "min", "ge")):
        if isinstance(bound, Value | torch.Tensor):
            x = t.b.binary(kind, x, t.value(bound, x.dtype))
        elif bound is not None:
            bound = t.b.like(bound, x)
            x = t.b.select(t.b.compare(beyond, x, bound), bound, x)
    return x


@rule(A.clamp.default, A.clamp.Tensor)
def clamp(t: Translator, x: Value, min: Any = None, max: Any = None) -> Value:
    return bounded(t, t.value(x, t.out.dtype), min, max)


@rule(A.clamp_min.default, A.clamp_min.Tensor)
def clamp_min(t: Translator, x: Value, bound: Any) -> Value:
    return bounded(t, t.value(x, t.out.dtype), bound, None)


@rule(A.clamp_max.default, A.clamp_max.Tensor)
def clamp_max(t: Translator, x: Value, bound: Any) -> Value:
    return bounded(t, t.value(x, t.out.dtype), None, bound)


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
    a, b = (t.b.cast(v, "i8") for v in t.pair(a, b, "i1"))
    return t.b.compare("ne", a, b)


@rule(A.logical_not.default, A.bitwise_not.default)
def logical_not(t: Translator, x: Value) -> Value:
    if x.dtype != "i1" and "bitwise" in str(t.node.target):
        raise Unsupported("bitwise operations on integers")
    return t.b.unary("not", t.b.cast(x, "i1"))


@rule(A.isnan.default)
def isnan(t: Translator, x: Value) -> Value:
    return t.b.splat(False, x.shape, "i1") if x.dtype.startswith("i") else t.b.compare("ne", x, x)


@rule(A.isinf.default)
def isinf(t: Translator, x: Value) -> Value:
    if x.dtype.startswith("i"):
        return t.b.splat(False, x.shape, "i1")
    return t.b.compare("eq", t.b.unary("abs", x), t.b.like(math.inf, x))


# Types.

@rule(A._to_copy.default, A.to.dtype, A.to.dtype_layout, A.to.device)
def to_copy(t: Translator, x: Value, *_: Any, **__: Any) -> Value:
    return t.b.cast(x, t.out.dtype)


@rule(A.type_as.default)
def type_as(t: Translator, x: Value, other: Any) -> Value:
    return t.b.cast(x, t.out.dtype)


@rule(A.clone.default, A.alias.default, A.contiguous.default, A.lift_fresh_copy.default)
def same(t: Translator, x: Value, **_: Any) -> Value:
    return x


@rule(A.detach.default)
def detach(t: Translator, x: Value) -> Value:
    return t.b.unary("stop_gradient", x) if x.dtype in ("f64", "f32", "bf16", "f16") else x
