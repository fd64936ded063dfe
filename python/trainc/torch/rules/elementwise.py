"""Arithmetic, comparisons, functions and activations, with PyTorch's gradients at corners and bounds."""
from __future__ import annotations

import math
from typing import Any

import torch

from ...emit import Value
from ..translate import Translator, Unsupported, rule

A = torch.ops.aten


# Arithmetic.

def _scaled(t: Translator, b: Any, alpha: Any) -> Any:
    if alpha == 1:
        return b
    return b * alpha if isinstance(b, bool | int | float) else t.b.binary("mul", *t.pair(b, alpha))


@rule(A.add.Tensor, A.add.Scalar)
def add(t: Translator, a: Any, b: Any, alpha: Any = 1) -> Value:
    if t.out.dtype == "i1":
        return t.b.binary("or", *t.pair(a, b))
    return t.b.binary("add", *t.pair(a, _scaled(t, b, alpha)))


@rule(A.sub.Tensor, A.sub.Scalar)
def sub(t: Translator, a: Any, b: Any, alpha: Any = 1) -> Value:
    return t.b.binary("sub", *t.pair(a, _scaled(t, b, alpha)))


@rule(A.rsub.Tensor, A.rsub.Scalar)
def rsub(t: Translator, a: Any, b: Any, alpha: Any = 1) -> Value:
    return t.b.binary("sub", *t.pair(b, _scaled(t, a, alpha)))


@rule(A.mul.Tensor, A.mul.Scalar)
def mul(t: Translator, a: Any, b: Any) -> Value:
    return t.b.binary("and" if t.out.dtype == "i1" else "mul", *t.pair(a, b))


@rule(A.div.Tensor, A.div.Scalar)
def div(t: Translator, a: Any, b: Any) -> Value:
    return t.b.binary("div", *t.pair(a, b))


@rule(A.div.Tensor_mode, A.div.Scalar_mode)
def div_mode(t: Translator, a: Any, b: Any, rounding_mode: str | None = None) -> Value:
    if rounding_mode is None:
        return div(t, a, b)
    if rounding_mode == "trunc":
        return trunc(t, div(t, a, b))
    return t.b.cast(_floored(t, *_widened(t, a, b)), t.out.dtype)


@rule(A.floor_divide.default)
def floor_divide(t: Translator, a: Any, b: Any) -> Value:
    return div_mode(t, a, b, rounding_mode="floor")


@rule(A.floor.default, A.ceil.default, A.round.default)
def whole(t: Translator, x: Value) -> Value:
    return x if x.dtype.startswith("i") else t.b.unary(str(t.node.target).split(".")[1], x)


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
    a, b = _widened(t, a, b)
    quotient = trunc(t, t.b.binary("div", a, b))
    return t.b.cast(t.b.binary("sub", a, t.b.binary("mul", quotient, b)), t.out.dtype)


def _widened(t: Translator, a: Any, b: Any) -> tuple[Value, Value]:
    """Of floats in f64, where no quotient below 2^29 is rounded to a whole number and what is left is exact."""
    a, b = t.pair(a, b)
    return (a, b) if a.dtype.startswith("i") else (t.b.cast(a, "f64"), t.b.cast(b, "f64"))


def _floored(t: Translator, a: Value, b: Value) -> Value:
    """a / b toward -infinity: less 1 where there is a remainder whose sign is not the divisor's."""
    if not a.dtype.startswith("i"):
        a, b = (t.b.unary("stop_gradient", v) for v in (a, b))
    quotient = t.b.binary("div", a, b)
    if not a.dtype.startswith("i"):
        quotient = t.b.unary("floor", quotient)
    rest = t.b.binary("sub", a, t.b.binary("mul", quotient, b))
    zero = t.b.like(0, quotient)  # compared with each, as the product of both may not fit the type
    below, above = (t.b.binary("and", t.b.compare(x, rest, zero), t.b.compare(y, b, zero)) for x, y in (("lt", "gt"), ("gt", "lt")))
    less = t.b.binary("or", below, above)
    return t.b.binary("sub", quotient, t.b.cast(less, quotient.dtype))


@rule(A.remainder.Tensor, A.remainder.Scalar)
def remainder(t: Translator, a: Any, b: Any) -> Value:
    a, b = _widened(t, a, b)
    return t.b.cast(t.b.binary("sub", a, t.b.binary("mul", _floored(t, a, b), b)), t.out.dtype)


@rule(A.neg.default)
def neg(t: Translator, x: Value) -> Value:
    return t.b.unary("neg", x) if not x.dtype.startswith("i") else t.b.binary("sub", t.b.like(0, x), x)


@rule(A.reciprocal.default)
def reciprocal(t: Translator, x: Value) -> Value:
    return t.b.binary("div", *t.pair(1.0, x))


@rule(A.square.default)
def square(t: Translator, x: Value) -> Value:
    return t.b.binary("mul", x, x)


@rule(A.pow.Tensor_Scalar)
def pow_scalar(t: Translator, x: Value, exponent: float) -> Value:
    x = t.value(x, t.out.dtype)
    if exponent == int(exponent) and 0 <= exponent <= 8:  # exact for any base, as PyTorch's
        powers = t.b.splat(1, x.shape, x.dtype) if exponent == 0 else None
        base, left = x, int(exponent)
        while left:
            if left % 2:
                powers = base if powers is None else t.b.binary("mul", powers, base)
            left //= 2
            base = t.b.binary("mul", base, base) if left else base
        return powers
    if x.dtype.startswith("i"):
        raise Unsupported(f"integers to the power of {exponent}: expected an exponent of 0 to 8")
    if exponent in (-1, -2):
        return t.b.binary("div", t.b.like(1, x), x if exponent == -1 else t.b.binary("mul", x, x))
    if exponent in (0.5, -0.5):
        return t.b.unary("sqrt" if exponent > 0 else "rsqrt", x)
    return t.b.binary("pow", *t.pair(x, float(exponent)))


@rule(A.pow.Tensor_Tensor, A.pow.Scalar)
def pow_tensor(t: Translator, x: Any, exponent: Any) -> Value:
    if t.out.dtype.startswith("i"):
        raise Unsupported("a power of integers by a tensor: convert to floating point first")
    return t.b.binary("pow", *t.pair(x, exponent))


@rule(A.maximum.default)
def maximum(t: Translator, a: Any, b: Any) -> Value:
    return t.b.binary("max", *t.pair(a, b))


@rule(A.minimum.default)
def minimum(t: Translator, a: Any, b: Any) -> Value:
    return t.b.binary("min", *t.pair(a, b))


# Functions. Where the forward is not the derivative's antiderivative as the dialect sees it, `with_gradient` says which.

def with_gradient(t: Translator, x: Value, value: Value, slope: Value) -> Value:
    """`value`, whose derivative by x is `slope`, both finite where x is: value + (x - x) slope with only one x differentiated."""
    stopped = t.b.unary("stop_gradient", x)
    moved = t.b.binary("mul", t.b.binary("sub", x, stopped), t.b.unary("stop_gradient", slope))
    return t.b.binary("add", t.b.unary("stop_gradient", value), moved)


def _unary(kind: str, *operations: Any) -> None:
    @rule(*operations)
    def translate(t: Translator, x: Value) -> Value:
        return t.b.unary(kind, t.value(x, t.out.dtype))


for _kind in ("exp", "log", "sqrt", "rsqrt", "sin", "cos", "tanh", "erf", "sigmoid"):
    _unary(_kind, getattr(A, _kind).default)
_unary("relu", A.relu.default)
_unary("silu", A.silu.default)


@rule(A.abs.default)
def absolute(t: Translator, x: Value) -> Value:
    return t.b.binary("max", x, neg(t, x)) if x.dtype.startswith("i") else t.b.unary("abs", x)


@rule(A.log2.default, A.log10.default)
def log_of_base(t: Translator, x: Value) -> Value:
    base = 2.0 if "log2" in str(t.node.target) else 10.0
    return t.b.binary("mul", t.b.unary("log", t.value(x, t.out.dtype)), t.b.splat(1 / math.log(base), (), t.out.dtype))


@rule(A.exp2.default)
def exp2(t: Translator, x: Value) -> Value:
    return t.b.unary("exp", t.b.binary("mul", *t.pair(x, math.log(2.0))))


@rule(A.log1p.default)
def log1p(t: Translator, x: Value) -> Value:
    """log(u) x / (u - 1) with u = 1 + x, x where u is 1 (Goldberg, "What every computer scientist ...", theorem 4), log(u) where it is 0."""
    x = t.value(x, t.out.dtype)
    one = t.b.like(1, x)
    u = t.b.binary("add", one, x)
    end, logarithm = t.b.compare("eq", x, t.b.like(-1, x)), t.b.unary("log", u)
    x = t.b.select(end, t.b.like(0, x), x)
    u = t.b.binary("add", one, x)
    difference = t.b.binary("sub", u, one)
    small = t.b.compare("eq", difference, t.b.like(0, x))
    quotient = t.b.binary("div", t.b.binary("mul", t.b.unary("log", u), x), t.b.select(small, one, difference))
    return t.b.select(end, logarithm, with_gradient(t, x, t.b.select(small, x, quotient), t.b.binary("div", one, u)))


@rule(A.expm1.default)
def expm1(t: Translator, x: Value) -> Value:
    """(u - 1) x / log(u) with u = exp(x); x where u is 1, -1 where u - 1 is (Kahan's, in Higham, "Accuracy ...", 1.14.1)."""
    x = t.value(x, t.out.dtype)
    one, u = t.b.like(1, x), t.b.unary("exp", x)
    difference, logarithm = t.b.binary("sub", u, one), t.b.unary("log", u)
    flat = t.b.compare("eq", logarithm, t.b.like(0, x))
    quotient = t.b.binary("div", t.b.binary("mul", difference, x), t.b.select(flat, one, logarithm))
    value = t.b.select(t.b.compare("eq", u, one), x, quotient)
    value = t.b.select(t.b.compare("lt", t.b.unary("abs", x), t.b.like(1, x)), value, difference)
    return with_gradient(t, x, value, u)


@rule(A.sign.default, A.sgn.default)
def sign(t: Translator, x: Value) -> Value:
    zero = t.b.like(0, x)
    up, down = (t.b.cast(t.b.compare(kind, x, zero), x.dtype) for kind in ("gt", "lt"))
    return t.b.unary("stop_gradient", t.b.binary("sub", up, down)) if not x.dtype.startswith("i") else t.b.binary("sub", up, down)


@rule(A.tan.default)
def tan(t: Translator, x: Value) -> Value:
    return t.b.binary("div", t.b.unary("sin", x), t.b.unary("cos", x))


def _arctangent(t: Translator, x: Value) -> Value:
    """y + atan(d), d = (x - tan y) / (1 + x tan y), of a y near the result (Abramowitz and Stegun, 4.4.47: to 1e-5, where atan(d) is d), of the
    inverse of x where that is smaller."""
    one = t.b.like(1, x)
    size = t.b.unary("abs", x)
    above = t.b.compare("gt", size, one)
    x = t.b.select(above, t.b.binary("div", one, x), x)
    square = t.b.binary("mul", x, x)
    y = t.b.like(0.0208351, x)
    for coefficient in (-0.0851330, 0.1801410, -0.3302995, 0.9998660):
        y = t.b.binary("add", t.b.binary("mul", y, square), t.b.like(coefficient, x))
    y = t.b.binary("mul", y, x)
    sine, cosine = t.b.unary("sin", y), t.b.unary("cos", y)
    rest = t.b.binary("sub", t.b.binary("mul", x, cosine), sine)
    y = t.b.binary("add", y, t.b.binary("div", rest, t.b.binary("add", cosine, t.b.binary("mul", x, sine))))
    quarter = t.b.select(t.b.compare("lt", x, t.b.like(0, x)), t.b.like(-math.pi / 2, x), t.b.like(math.pi / 2, x))
    return t.b.select(above, t.b.binary("sub", quarter, y), y)


@rule(A.atan.default)
def arctangent(t: Translator, x: Value) -> Value:
    x = t.value(x, t.out.dtype)
    one = t.b.like(1, x)
    slope = t.b.binary("div", one, t.b.binary("add", one, t.b.binary("mul", x, x)))
    return with_gradient(t, x, _arctangent(t, t.b.unary("stop_gradient", x)), slope)


@rule(A.asin.default, A.acos.default)
def arcsine(t: Translator, x: Value) -> Value:
    """By the tangent of the half: x / (1 + sqrt(1 - x^2)) of asin, sqrt((1 - x) / (1 + x)) of acos. At -1 and 1 the derivative is a large
    number."""
    x = t.value(x, t.out.dtype)
    one, stopped = t.b.like(1, x), t.b.unary("stop_gradient", x)
    below, above = t.b.binary("sub", one, stopped), t.b.binary("add", one, stopped)
    product = t.b.binary("mul", below, above)
    is_asin = t.node.target == A.asin.default
    half = (t.b.binary("div", stopped, t.b.binary("add", one, t.b.unary("sqrt", product))) if is_asin
            else t.b.unary("sqrt", t.b.binary("div", below, above)))
    value = t.b.binary("mul", _arctangent(t, half), t.b.like(2, x))
    least = {"f64": 1e-300, "f16": 1e-7}.get(x.dtype, 1e-30)
    slope = t.b.unary("rsqrt", t.b.binary("max", product, t.b.like(least, x)))
    return with_gradient(t, x, value, slope if is_asin else t.b.unary("neg", slope))


@rule(A.sinh.default, A.cosh.default)
def hyperbolic(t: Translator, x: Value) -> Value:
    up, down = t.b.unary("exp", x), t.b.unary("exp", t.b.unary("neg", x))
    half = t.b.binary("sub" if t.node.target == A.sinh.default else "add", up, down)
    return t.b.binary("mul", half, t.b.like(0.5, x))


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
        a, b = t.pair(a, b, "i8" if dtype == "i1" else dtype)
        return t.b.compare(kind, a, b)


for _kind in ("eq", "ne", "lt", "le", "gt", "ge"):
    _comparison(_kind)


@rule(A.logical_and.default, A.bitwise_and.Tensor, A.bitwise_and.Scalar)
def logical_and(t: Translator, a: Any, b: Any) -> Value:
    return _logical(t, "and", a, b)


@rule(A.logical_or.default, A.bitwise_or.Tensor, A.bitwise_or.Scalar)
def logical_or(t: Translator, a: Any, b: Any) -> Value:
    return _logical(t, "or", a, b)


def _logical(t: Translator, kind: str, a: Any, b: Any) -> Value:
    if t.out.dtype != "i1":
        raise Unsupported("bitwise operations on integers")
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
    return t.b.compare("ne", x, x)


@rule(A.isinf.default)
def isinf(t: Translator, x: Value) -> Value:
    return t.b.compare("eq", t.b.unary("abs", x), t.b.like(math.inf, x))


# Activations.

@rule(A.gelu.default)
def gelu(t: Translator, x: Value, approximate: str = "none") -> Value:
    return t.b.unary("gelu", x, " tanh" if approximate == "tanh" else " erf")


@rule(A.hardtanh.default)
def hardtanh(t: Translator, x: Value, low: float = -1.0, high: float = 1.0) -> Value:
    return bounded(t, x, low, high)


@rule(A.relu6.default)
def relu6(t: Translator, x: Value) -> Value:
    return hardtanh(t, x, 0.0, 6.0)


@rule(A.hardsigmoid.default)
def hardsigmoid(t: Translator, x: Value) -> Value:
    """min(max(x + 3, 0), 6) / 6, whose gradient is 0 at and beyond the corners."""
    y = bounded(t, t.b.binary("add", *t.pair(x, 3.0)), 0.0, 6.0)
    result = t.b.binary("div", y, t.b.like(6.0, y))
    if x.dtype != "f64":
        return result
    # PyTorch's gradient is by a sixth of float32 in float64, too.
    scaled = t.b.binary("mul", y, t.b.like(0.1666666716337204, y))
    return t.b.binary("add", t.b.unary("stop_gradient", t.b.binary("sub", result, scaled)), scaled)


@rule(A.hardswish.default)
def hardswish(t: Translator, x: Value) -> Value:
    """x min(max(x + 3, 0), 6) / 6 by its three branches: 0 up to -3, x from 3 on."""
    middle = t.b.binary("div", t.b.binary("mul", x, t.b.binary("add", *t.pair(x, 3.0))), t.b.like(6, x))
    middle = t.b.select(t.b.compare("le", x, t.b.like(-3, x)), t.b.like(0, x), middle)
    return t.b.select(t.b.compare("ge", x, t.b.like(3, x)), x, middle)


@rule(A.leaky_relu.default)
def leaky_relu(t: Translator, x: Value, slope: float = 0.01) -> Value:
    return t.b.select(t.b.compare("gt", x, t.b.like(0, x)), x, t.b.binary("mul", *t.pair(x, slope)))


@rule(A.prelu.default)
def prelu(t: Translator, x: Value, weight: Value) -> Value:
    shape = [1, weight.shape[0], *[1] * (x.rank - 2)] if x.rank > 1 else [weight.shape[0]]
    scaled = t.b.binary("mul", x, t.b.reshape(t.value(weight), shape if weight.rank else []))
    return t.b.select(t.b.compare("gt", x, t.b.like(0, x)), x, scaled)


@rule(A.elu.default)
def elu(t: Translator, x: Value, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Value:
    above = t.b.compare("gt", x, t.b.like(0, x))
    # What is not selected is computed of 0: no infinity of exp meets a gradient of 0.
    inner = t.b.binary("mul", *t.pair(t.b.select(above, t.b.like(0, x), x), input_scale))
    below = t.b.binary("mul", *t.pair(expm1(t, inner), alpha * scale))
    return t.b.select(above, t.b.binary("mul", *t.pair(x, scale)), below)


@rule(A.celu.default)
def celu(t: Translator, x: Value, alpha: float = 1.0) -> Value:
    return elu(t, x, alpha, 1.0, 1.0 / alpha)


@rule(A.selu.default)
def selu(t: Translator, x: Value) -> Value:
    return elu(t, x, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946)


@rule(A.softplus.default)
def softplus(t: Translator, x: Value, beta: float = 1.0, threshold: float = 20.0) -> Value:
    scaled = t.b.binary("mul", *t.pair(x, beta))
    above = t.b.compare("gt", scaled, t.b.like(threshold, x))
    inner = t.b.select(above, t.b.like(0, x), scaled)
    return t.b.select(above, x, t.b.binary("div", *t.pair(log1p_exp(t, inner), beta)))


def log1p_exp(t: Translator, x: Value) -> Value:
    """log(1 + exp(x)) = max(x, 0) + log1p(exp(-|x|)), whose derivative is sigmoid(x)."""
    tail = log1p(t, t.b.unary("exp", t.b.unary("neg", t.b.unary("abs", x))))
    return with_gradient(t, x, t.b.binary("add", t.b.unary("relu", x), tail), t.b.unary("sigmoid", x))


@rule(A.log_sigmoid.default)
def log_sigmoid(t: Translator, x: Value) -> Value:
    return t.b.unary("neg", log1p_exp(t, t.b.unary("neg", x)))


@rule(A.mish.default)
def mish(t: Translator, x: Value) -> Value:
    return t.b.binary("mul", x, t.b.unary("tanh", softplus(t, x)))


@rule(A.threshold.default)
def threshold(t: Translator, x: Value, bound: float, value: float) -> Value:
    return t.b.select(t.b.compare("le", x, t.b.like(bound, x)), t.b.like(value, x), x)


@rule(A.glu.default)
def glu(t: Translator, x: Value, dim: int = -1) -> Value:
    dim %= x.rank
    half = x.shape[dim] // 2
    gate = t.b.unary("sigmoid", t.b.slice_dim(x, dim, half, half))
    return t.b.binary("mul", t.b.slice_dim(x, dim, 0, half), gate)


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
