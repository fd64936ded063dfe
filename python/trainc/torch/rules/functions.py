"""Functions and activations, with PyTorch's gradients at corners and bounds. What PyTorch computes as one is rounded to bf16 once."""
from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from ...emit import Value, number
from ..translate import TORCH_DTYPES, Translator, Unsupported, rule
from .elementwise import bounded, isinf, neg, signbit

A = torch.ops.aten


# Where the forward is not the derivative's antiderivative as the dialect sees it, `with_gradient` says which.

def with_gradient(t: Translator, value: Value, *slopes: tuple[Value, Value]) -> Value:
    """`value`, whose derivative by each x is its slope: value + (x - x) slope with only one x differentiated, of x and slope the finite
    number that is nearest."""
    largest = torch.finfo(TORCH_DTYPES[value.dtype]).max
    finite = f" low {number(-largest)} high {number(largest)}"
    result = t.b.unary("stop_gradient", value)
    for x, slope in slopes:
        x, slope = t.b.unary("clamp", x, finite), t.b.unary("clamp", t.b.unary("stop_gradient", slope), finite)
        result = t.b.binary("add", result, t.b.binary("mul", t.b.binary("sub", x, t.b.unary("stop_gradient", x)), slope))
    return result


def _unary(kind: str, *operations: Any) -> None:
    @rule(*operations)
    def translate(t: Translator, x: Value) -> Value:
        return t.b.unary(kind, t.value(x, t.out.dtype))


for _kind in ("exp", "log", "sqrt", "rsqrt", "sin", "cos", "tanh", "erf", "sigmoid"):
    _unary(_kind, getattr(A, _kind).default)
_unary("silu", A.silu.default)


@rule(A.relu.default)
def relu(t: Translator, x: Value) -> Value:
    return t.b.binary("max", x, t.b.like(0, x)) if x.dtype.startswith("i") else t.b.unary("relu", x)


@rule(A.abs.default)
def absolute(t: Translator, x: Value) -> Value:
    return t.b.binary("max", x, neg(t, x)) if x.dtype.startswith("i") else t.b.unary("abs", x)


@rule(A.log2.default, A.log10.default, wide=True)
def log_of_base(t: Translator, x: Value) -> Value:
    """log(x) / log(base); the whole number that is two roundings from it or less, which of powers of the base is the result."""
    x = t.value(x, t.out.dtype)
    base = 2.0 if "log2" in str(t.node.target) else 10.0
    result = t.b.binary("mul", t.b.unary("log", x), t.b.like(1 / math.log(base), x))
    whole = t.b.unary("round", result)
    rest = t.b.unary("stop_gradient", t.b.binary("sub", whole, result))
    bound = t.b.binary("mul", t.b.unary("abs", whole), t.b.like(2 * torch.finfo(TORCH_DTYPES[x.dtype]).eps, x))
    is_near = t.b.compare("le", t.b.unary("abs", rest), bound)
    return t.b.binary("add", result, t.b.select(is_near, rest, t.b.like(0, x)))


@rule(A.exp2.default, wide=True)
def exp2(t: Translator, x: Value) -> Value:
    return t.b.unary("exp", t.b.binary("mul", *t.pair(x, math.log(2.0))))


@rule(A.log1p.default, wide=True)
def log1p(t: Translator, x: Value) -> Value:
    """log(u) (x / (u - 1)) with u = 1 + x, x where u is 1 (Goldberg, "What every computer scientist ...", theorem 4), log(u) at both ends."""
    x = t.value(x, t.out.dtype)
    one = t.b.like(1, x)
    logarithm = t.b.unary("log", t.b.binary("add", one, x))
    end = t.b.binary("or", t.b.compare("eq", x, t.b.like(-1, x)), t.b.compare("eq", x, t.b.like(math.inf, x)))
    x = t.b.select(end, t.b.like(0, x), x)
    u = t.b.binary("add", one, x)
    difference = t.b.binary("sub", u, one)
    small = t.b.compare("eq", difference, t.b.like(0, x))
    quotient = t.b.binary("mul", t.b.unary("log", u), t.b.binary("div", x, t.b.select(small, one, difference)))
    return t.b.select(end, logarithm, with_gradient(t, t.b.select(small, x, quotient), (x, t.b.binary("div", one, u))))


@rule(A.expm1.default, wide=True)
def expm1(t: Translator, x: Value) -> Value:
    """u - 1 with u = exp(x); of |x| < 1 (u - 1) x / log(u), x where u is 1 (Kahan's, in Higham, "Accuracy ...", 1.14.1)."""
    x = t.value(x, t.out.dtype)
    one, u = t.b.like(1, x), t.b.unary("exp", x)
    difference, logarithm = t.b.binary("sub", u, one), t.b.unary("log", u)
    flat = t.b.compare("eq", logarithm, t.b.like(0, x))
    quotient = t.b.binary("div", t.b.binary("mul", difference, x), t.b.select(flat, one, logarithm))
    small = with_gradient(t, t.b.select(t.b.compare("eq", u, one), x, quotient), (x, u))
    return t.b.select(t.b.compare("lt", t.b.unary("abs", x), one), small, difference)


@rule(A.sign.default, A.sgn.default)
def sign(t: Translator, x: Value) -> Value:
    if x.dtype == "i1":
        return x
    zero = t.b.like(0, x)
    up, down = (t.b.cast(t.b.compare(kind, x, zero), x.dtype) for kind in ("gt", "lt"))
    return t.b.unary("stop_gradient", t.b.binary("sub", up, down)) if not x.dtype.startswith("i") else t.b.binary("sub", up, down)


@rule(A.tan.default, wide=True)
def tan(t: Translator, x: Value) -> Value:
    x = t.value(x, t.out.dtype)
    return t.b.binary("div", t.b.unary("sin", x), t.b.unary("cos", x))


def _arctangent(t: Translator, x: Value) -> Value:
    """y + atan(d), d = (x - tan y) / (1 + x tan y), of a y near the result (Abramowitz and Stegun, 4.4.47: to 1e-5, where atan(d) is d), of the
    inverse of x where that is smaller."""
    one = t.b.like(1, x)
    size, below_0 = t.b.unary("abs", x), t.b.compare("lt", x, t.b.like(0, x))
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
    quarter = t.b.select(below_0, t.b.like(-math.pi / 2, x), t.b.like(math.pi / 2, x))
    return t.b.select(above, t.b.binary("sub", quarter, y), y)


@rule(A.atan.default, wide=True)
def arctangent(t: Translator, x: Value) -> Value:
    x = t.value(x, t.out.dtype)
    one = t.b.like(1, x)
    slope = t.b.binary("div", one, t.b.binary("add", one, t.b.binary("mul", x, x)))
    return with_gradient(t, _arctangent(t, t.b.unary("stop_gradient", x)), (x, slope))


@rule(A.atan2.default, wide=True)
def arctangent_of_two(t: Translator, y: Value, x: Value) -> Value:
    """The arctangent of the smaller size by the larger, turned into the octant of (x, y). The gradient is 0 where the sum of the
    squares is 0 or infinite."""
    y, x = (t.b.broadcast(t.value(v, t.out.dtype), t.out.shape) for v in (y, x))
    zero, (height, width) = t.b.like(0, x), (t.b.unary("stop_gradient", v) for v in (y, x))
    is_below, is_left = signbit(t, height), signbit(t, width)
    tall, wide = t.b.unary("abs", height), t.b.unary("abs", width)
    is_steep = t.b.compare("gt", tall, wide)
    quotient = t.b.binary("div", t.b.select(is_steep, wide, tall), t.b.select(is_steep, tall, wide))
    # Two zeros, and two infinities, have none.
    quotient = t.b.select(t.b.compare("eq", tall, wide), t.b.cast(t.b.compare("gt", tall, zero), x.dtype), quotient)
    angle = _arctangent(t, quotient)
    angle = t.b.select(is_steep, t.b.binary("sub", t.b.like(math.pi / 2, x), angle), angle)
    angle = t.b.select(is_left, t.b.binary("sub", t.b.like(math.pi, x), angle), angle)
    angle = t.b.select(is_below, t.b.unary("neg", angle), angle)
    squares = t.b.binary("add", t.b.binary("mul", height, height), t.b.binary("mul", width, width))
    is_end = t.b.binary("or", t.b.compare("eq", squares, zero), isinf(t, squares))
    slopes = (t.b.select(is_end, zero, t.b.binary("div", v, squares)) for v in (width, t.b.unary("neg", height)))
    return with_gradient(t, angle, *zip((y, x), slopes))


@rule(A.asin.default, A.acos.default, wide=True)
def arcsine(t: Translator, x: Value) -> Value:
    """By the tangent of the half: x / (1 + sqrt(1 - x^2)) of asin, sqrt((1 - x) / (1 + x)) of acos."""
    x = t.value(x, t.out.dtype)
    one, stopped = t.b.like(1, x), t.b.unary("stop_gradient", x)
    below, above = t.b.binary("sub", one, stopped), t.b.binary("add", one, stopped)
    product = t.b.binary("mul", below, above)
    is_asin = t.node.target == A.asin.default
    half = (t.b.binary("div", stopped, t.b.binary("add", one, t.b.unary("sqrt", product))) if is_asin
            else t.b.unary("sqrt", t.b.binary("div", below, above)))
    value = t.b.binary("mul", _arctangent(t, half), t.b.like(2, x))
    slope = t.b.unary("rsqrt", product)
    return with_gradient(t, value, (x, slope if is_asin else t.b.unary("neg", slope)))


@rule(A.sinh.default, A.cosh.default, wide=True)
def hyperbolic(t: Translator, x: Value) -> Value:
    """(exp(x) -+ exp(-x)) / 2; sinh of |x| < 1 by e = exp(x) - 1 as (e + e / (e + 1)) / 2."""
    x = t.value(x, t.out.dtype)
    up, down = t.b.unary("exp", x), t.b.unary("exp", t.b.unary("neg", x))
    is_sinh = t.node.target == A.sinh.default
    double = t.b.binary("sub" if is_sinh else "add", up, down)
    if is_sinh:
        one = t.b.like(1, x)
        is_small = t.b.compare("lt", t.b.unary("abs", x), one)
        e = expm1(t, t.b.select(is_small, x, t.b.like(0, x)))
        double = t.b.select(is_small, t.b.binary("add", e, t.b.binary("div", e, t.b.binary("add", e, one))), double)
    return t.b.binary("mul", double, t.b.like(0.5, x))


@rule(A.asinh.default, A.acosh.default, wide=True)
def inverse_hyperbolic(t: Translator, x: Value) -> Value:
    """log(x + sqrt(x^2 +- 1)) as log1p of what is beyond 1; log(x) + log(2) where x^2 does not see the 1."""
    x = t.value(x, t.out.dtype)
    one, stopped = t.b.like(1, x), t.b.unary("stop_gradient", x)
    if t.node.target == A.asinh.default:
        size = t.b.unary("abs", stopped)
        inside = t.b.binary("add", t.b.binary("mul", size, size), one)
        rest = t.b.binary("div", t.b.binary("mul", size, size), t.b.binary("add", one, t.b.unary("sqrt", inside)))
        beyond = t.b.binary("add", size, rest)
    else:
        size, below = stopped, t.b.binary("sub", stopped, one)
        inside = t.b.binary("mul", below, t.b.binary("add", stopped, one))
        beyond = t.b.binary("add", below, t.b.unary("sqrt", inside))
    far = t.b.binary("add", t.b.unary("log", size), t.b.like(math.log(2), x))
    value = t.b.select(t.b.compare("gt", size, t.b.like(2.0 ** 28, x)), far, log1p(t, beyond))
    return with_gradient(t, _signed(t, value, x, size), (x, t.b.unary("rsqrt", inside)))


def _signed(t: Translator, value: Value, x: Value, size: Value) -> Value:
    """value, -value where x is not its size."""
    return t.b.select(t.b.compare("lt", x, size), t.b.unary("neg", value), value)


@rule(A.atanh.default, wide=True)
def inverse_hyperbolic_tangent(t: Translator, x: Value) -> Value:
    """log1p(2 |x| / (1 - |x|)) / 2 with the sign of x."""
    x = t.value(x, t.out.dtype)
    one, size = t.b.like(1, x), t.b.unary("abs", t.b.unary("stop_gradient", x))
    rest = t.b.binary("sub", one, size)
    half = t.b.binary("mul", log1p(t, t.b.binary("div", t.b.binary("add", size, size), rest)), t.b.like(0.5, x))
    slope = t.b.binary("div", one, t.b.binary("mul", rest, t.b.binary("add", one, size)))
    return with_gradient(t, _signed(t, half, x, size), (x, slope))


# The Chebyshev series of log(erfc(x) exp(x^2) / s) in 2 s - 1, s = 2 / (2 + x), x >= 0; from its values in 50 digits.
_ERFC = (
    -1.3026537197817094, 0.6419697923564902, 0.019476473204185836, -0.009561514786808632, -0.0009465953444820369, 0.00036683949785276145,
    4.252332480690777e-05, -2.0278578112534242e-05, -1.6242900046470256e-06, 1.3036558355805232e-06, 1.5626441722066142e-08, -8.523809591492654e-08,
    6.5290544390988515e-09, 5.059343495551469e-09, -9.91364156493033e-10, -2.273651222931836e-10, 9.646791102015527e-11, 2.3940380830391146e-12,
    -6.886027526497553e-12, 8.944879273090725e-13, 3.130921399342958e-13, -1.1270822361367252e-13, 3.810905255189231e-16, 7.106097613609237e-15,
    -1.5230282014571043e-15, -9.457494571291227e-17, 1.2102371892242782e-16, -2.816663087747171e-17)


@rule(A.erfc.default, wide=True)
def error_complement(t: Translator, x: Value) -> Value:
    """s exp(p(2 s - 1) - x^2) with s = 2 / (2 + |x|), 2 less that of x < 0: no digits are lost where it is small."""
    x = t.value(x, t.out.dtype)
    size = t.b.unary("abs", t.b.unary("stop_gradient", x))
    share = t.b.binary("div", t.b.like(2, x), t.b.binary("add", size, t.b.like(2, x)))
    y = t.b.binary("sub", t.b.binary("mul", share, t.b.like(4, x)), t.b.like(2, x))
    one_after, two_after = t.b.like(0, x), t.b.like(0, x)  # Clenshaw's recurrence
    for coefficient in reversed(_ERFC[1:]):
        here = t.b.binary("add", t.b.binary("sub", t.b.binary("mul", y, one_after), two_after), t.b.like(coefficient, x))
        one_after, two_after = here, one_after
    half = t.b.binary("mul", t.b.binary("add", t.b.binary("mul", y, one_after), t.b.like(_ERFC[0], x)), t.b.like(0.5, x))
    square = t.b.unary("neg", t.b.binary("mul", size, size))
    value = t.b.binary("mul", share, t.b.unary("exp", t.b.binary("add", square, t.b.binary("sub", half, two_after))))
    value = t.b.select(t.b.compare("lt", x, size), t.b.binary("sub", t.b.like(2, x), value), value)
    return with_gradient(t, value, (x, t.b.binary("mul", t.b.unary("exp", square), t.b.like(-2 / math.sqrt(math.pi), x))))


# The gamma function: Stirling's series at z >= 10 (Abramowitz and Stegun, 6.1.40 and 6.3.18; what it leaves out is below 1e-16), recurrence
# below (6.1.15, 6.3.5), reflection where x < 0.5 (6.1.17, 6.3.7). All in f64, as differences of large numbers lose digits.

BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)  # the numbers B of 2, 4, ...
SHIFT = 10


class _Shifted(NamedTuple):
    """y = x or, if x is `reflected`, 1 - x; z = y or, if y is `below`, y + SHIFT; the numbers from y to z; where x is reflected sin(pi x) and
    cos(pi x), up to a sign that both have."""

    z: Value
    below: Value
    passed: list[Value]
    reflected: Value
    sine: Value
    cosine: Value


def _shifted(t: Translator, x: Value) -> _Shifted:
    reflected = t.b.compare("lt", x, t.b.like(0.5, x))
    y = t.b.select(reflected, t.b.binary("sub", t.b.like(1, x), x), x)
    below = t.b.compare("lt", y, t.b.like(SHIFT, x))
    z = t.b.select(below, t.b.binary("add", y, t.b.like(SHIFT, x)), y)
    start = t.b.select(below, y, t.b.like(1, x))
    rest = t.b.select(reflected, t.b.binary("sub", x, t.b.unary("round", x)), t.b.like(0.25, x))
    angle = t.b.binary("mul", rest, t.b.like(math.pi, x))
    passed = [t.b.binary("add", start, t.b.like(k, x)) for k in range(SHIFT)]
    return _Shifted(z, below, passed, reflected, t.b.unary("sin", angle), t.b.unary("cos", angle))


def _series(t: Translator, z: Value, coefficients: Sequence[float]) -> Value:
    """The sum of c / z^k for k = 0, 2, ..."""
    square, result = t.b.binary("div", t.b.like(1, z), t.b.binary("mul", z, z)), t.b.like(coefficients[-1], z)
    for coefficient in reversed(coefficients[:-1]):
        result = t.b.binary("add", t.b.binary("mul", result, square), t.b.like(coefficient, z))
    return result


def _digamma(t: Translator, x: Value) -> Value:
    at = _shifted(t, x)
    z = at.z
    inverse, zero = t.b.binary("div", t.b.like(1, z), z), t.b.like(0, z)
    series = _series(t, z, [0.0, *(b / (2 * k) for k, b in enumerate(BERNOULLI, 1))])
    result = t.b.binary("sub", t.b.unary("log", z), t.b.binary("add", t.b.binary("mul", inverse, t.b.like(0.5, z)), series))
    sums = functools.reduce(lambda a, b: t.b.binary("add", a, b), (t.b.binary("div", t.b.like(1, z), k) for k in at.passed))
    result = t.b.binary("sub", result, t.b.select(at.below, sums, zero))
    turned = t.b.binary("mul", t.b.binary("div", at.cosine, at.sine), t.b.like(math.pi, z))
    return t.b.binary("sub", result, t.b.select(at.reflected, turned, zero))


@rule(A.digamma.default)
def digamma(t: Translator, x: Value) -> Value:
    x = t.value(x, "f64")
    is_pole = t.b.binary("and", t.b.compare("lt", x, t.b.like(0, x)), t.b.compare("eq", x, t.b.unary("floor", x)))
    return t.b.cast(t.b.select(is_pole, t.b.like(math.nan, x), _digamma(t, x)), t.out.dtype)


@rule(A.lgamma.default)
def log_gamma(t: Translator, x: Value) -> Value:
    x = t.value(x, "f64")
    slope, same = _digamma(t, x), t.b.unary("stop_gradient", x)
    slope = t.b.select(t.b.compare("eq", slope, slope), slope, t.b.like(0, x))
    at = _shifted(t, same)
    z = at.z
    series = t.b.binary("div", _series(t, z, [b / (2 * k * (2 * k - 1)) for k, b in enumerate(BERNOULLI, 1)]), z)
    power = t.b.binary("sub", t.b.binary("mul", t.b.binary("sub", z, t.b.like(0.5, z)), t.b.unary("log", z)), z)
    result = t.b.binary("add", t.b.binary("add", power, t.b.like(0.5 * math.log(2 * math.pi), z)), series)
    product = t.b.unary("log", functools.reduce(lambda a, b: t.b.binary("mul", a, b), at.passed))
    result = t.b.binary("sub", result, t.b.select(at.below, product, t.b.like(0, z)))
    turned = t.b.unary("log", t.b.binary("div", t.b.like(math.pi, z), t.b.unary("abs", at.sine)))
    result = t.b.select(at.reflected, t.b.binary("sub", turned, result), result)
    result = t.b.select(isinf(t, same), t.b.like(math.inf, z), result)
    return t.b.cast(with_gradient(t, result, (x, slope)), t.out.dtype)


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


@rule(A.hardsigmoid.default, wide=True)
def hardsigmoid(t: Translator, x: Value) -> Value:
    """min(max(x + 3, 0), 6) / 6, whose gradient is 0 at and beyond the corners."""
    y = bounded(t, t.b.binary("add", *t.pair(x, 3.0)), 0.0, 6.0)
    result = t.b.binary("div", y, t.b.like(6.0, y))
    if x.dtype != "f64":
        return result
    # PyTorch's gradient is by a sixth of float32 in float64, too.
    scaled = t.b.binary("mul", y, t.b.like(0.1666666716337204, y))
    return t.b.binary("add", t.b.unary("stop_gradient", t.b.binary("sub", result, scaled)), scaled)


@rule(A.hardswish.default, wide=True)
def hardswish(t: Translator, x: Value) -> Value:
    """x min(max(x + 3, 0), 6) / 6 by its three branches: 0 up to -3, x from 3 on."""
    middle = t.b.binary("div", t.b.binary("mul", x, t.b.binary("add", *t.pair(x, 3.0))), t.b.like(6, x))
    middle = t.b.select(t.b.compare("le", x, t.b.like(-3, x)), t.b.like(0, x), middle)
    return t.b.select(t.b.compare("ge", x, t.b.like(3, x)), x, middle)


@rule(A.leaky_relu.default, wide=True)
def leaky_relu(t: Translator, x: Value, slope: float = 0.01) -> Value:
    return t.b.select(t.b.compare("gt", x, t.b.like(0, x)), x, t.b.binary("mul", *t.pair(x, slope)))


@rule(A.rrelu.default, wide=True)
def rrelu(t: Translator, x: Value, low: float = 1 / 8, high: float = 1 / 3, training: bool = False, *_: Any) -> Value:
    if training:
        raise Unsupported("rrelu in training: expected leaky_relu")
    return leaky_relu(t, x, (low + high) / 2)


@rule(A.prelu.default)
def prelu(t: Translator, x: Value, weight: Any) -> Value:
    weight = t.value(weight)
    shape = [1] * x.rank
    if weight.type.elements > 1:
        shape[min(1, x.rank - 1)] = weight.type.elements
    scaled = t.b.binary("mul", x, t.b.reshape(weight, shape))
    return t.b.select(t.b.compare("gt", x, t.b.like(0, x)), x, scaled)


@rule(A.elu.default, wide=True)
def elu(t: Translator, x: Value, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Value:
    above = t.b.compare("gt", x, t.b.like(0, x))
    # What is not selected is computed of 0: no infinity of exp meets a gradient of 0.
    inner = t.b.binary("mul", *t.pair(t.b.select(above, t.b.like(0, x), x), input_scale))
    below = t.b.binary("mul", *t.pair(expm1(t, inner), alpha * scale))
    return t.b.select(above, t.b.binary("mul", *t.pair(x, scale)), below)


@rule(A.celu.default, wide=True)
def celu(t: Translator, x: Value, alpha: float = 1.0) -> Value:
    return elu(t, x, alpha, 1.0, 1.0 / alpha)


@rule(A.selu.default, wide=True)
def selu(t: Translator, x: Value) -> Value:
    return elu(t, x, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946)


@rule(A.softplus.default, wide=True)
def softplus(t: Translator, x: Value, beta: float = 1.0, threshold: float = 20.0) -> Value:
    scaled = t.b.binary("mul", *t.pair(x, beta))
    above = t.b.compare("gt", scaled, t.b.like(threshold, x))
    inner = t.b.select(above, t.b.like(0, x), scaled)
    return t.b.select(above, x, t.b.binary("div", *t.pair(log1p_exp(t, inner), beta)))


def log1p_exp(t: Translator, x: Value) -> Value:
    """log(1 + exp(x)) = max(x, 0) + log1p(exp(-|x|)). At 0 the maximum has half of the gradient and |x| none."""
    tail = log1p(t, t.b.unary("exp", t.b.unary("neg", t.b.unary("abs", x))))
    return t.b.binary("add", t.b.binary("max", x, t.b.like(0, x)), tail)


@rule(A.log_sigmoid.default, wide=True)
def log_sigmoid(t: Translator, x: Value) -> Value:
    return t.b.unary("neg", log1p_exp(t, t.b.unary("neg", x)))


@rule(A.mish.default, wide=True)
def mish(t: Translator, x: Value) -> Value:
    return t.b.binary("mul", x, t.b.unary("tanh", softplus(t, x)))


@rule(A.threshold.default)
def threshold(t: Translator, x: Value, bound: float, value: float) -> Value:
    return t.b.select(t.b.compare("le", x, t.b.like(bound, x)), t.b.like(value, x), x)


@rule(A.glu.default, wide=True)
def glu(t: Translator, x: Value, dim: int = -1) -> Value:
    dim %= x.rank
    half = x.shape[dim] // 2
    gate = t.b.unary("sigmoid", t.b.slice_dim(x, dim, half, half))
    return t.b.binary("mul", t.b.slice_dim(x, dim, 0, half), gate)
