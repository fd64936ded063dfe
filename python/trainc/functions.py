"""Functions of elements, made of the dialect's operations: what front ends share. Operands are of one type, or numbers of shape () of it.

Gradients are those of PyTorch at corners and bounds. Of bf16 and f16 every operation rounds: who rounds once casts to f32 before.
"""
from __future__ import annotations

import functools
import math
import sys
from collections.abc import Sequence
from typing import NamedTuple

from .emit import Builder, Value, number

LARGEST = {"f64": sys.float_info.max, "f32": 3.4028234663852886e38, "bf16": 3.3895313892515355e38, "f16": 65504.0}  # finite numbers


# Arithmetic. Integers wrap.

def neg(b: Builder, x: Value) -> Value:
    return b.unary("neg", x) if not x.dtype.startswith("i") else b.binary("sub", b.like(0, x), x)


def absolute(b: Builder, x: Value) -> Value:
    return b.binary("max", x, neg(b, x)) if x.dtype.startswith("i") else b.unary("abs", x)


def sign(b: Builder, x: Value) -> Value:
    if x.dtype == "i1":
        return x
    zero = b.like(0, x)
    up, down = (b.cast(b.compare(kind, x, zero), x.dtype) for kind in ("gt", "lt"))
    return b.unary("stop_gradient", b.binary("sub", up, down)) if not x.dtype.startswith("i") else b.binary("sub", up, down)


def from_uint8(b: Builder, x: Value) -> Value:
    """Of i8 that holds the bits of numbers from 0 to 255 these, in i32."""
    x = b.cast(x, "i32")
    return b.select(b.compare("lt", x, b.like(0, x)), b.binary("add", x, b.like(256, x)), x)


def signbit(b: Builder, x: Value) -> Value:
    """1 / x tells -0 from 0."""
    zero = b.like(0, x)
    below = b.compare("lt", x, zero)
    return below if x.dtype.startswith("i") else b.binary("or", below, b.compare("lt", b.binary("div", b.like(1, x), x), zero))


def copysign(b: Builder, x: Value, sign: Value) -> Value:
    size = b.unary("abs", x)
    return b.select(signbit(b, sign), b.unary("neg", size), size)


def isnan(b: Builder, x: Value) -> Value:
    return b.splat(False, x.shape, "i1") if x.dtype.startswith("i") else b.compare("ne", x, x)


def isinf(b: Builder, x: Value) -> Value:
    if x.dtype.startswith("i"):
        return b.splat(False, x.shape, "i1")
    return b.compare("eq", b.unary("abs", x), b.like(math.inf, x))


def logical_xor(b: Builder, x: Value, y: Value) -> Value:
    """Of i1."""
    x, y = (b.cast(v, "i8") for v in (x, y))
    return b.compare("ne", x, y)


def trunc(b: Builder, x: Value) -> Value:
    if x.dtype.startswith("i"):
        return x
    return b.select(b.compare("lt", x, b.like(0, x)), b.unary("ceil", x), b.unary("floor", x))


def whole_power(b: Builder, x: Value, exponent: int) -> Value:
    """x^n of n >= 0 by products."""
    powers = b.splat(1, x.shape, x.dtype) if exponent == 0 else None
    base, left = x, exponent
    while left:
        if left % 2:
            powers = base if powers is None else b.binary("mul", powers, base)
        left //= 2
        base = b.binary("mul", base, base) if left else base
    return powers


def power_of_integers(b: Builder, x: Value, exponent: Value) -> Value:
    """By the bits of exponents below 64, from where on it wraps to 0 for an even base; 1 / x^-n toward 0 of negative ones."""
    zero, one, two = (b.like(n, x) for n in (0, 1, 2))
    is_unit = b.binary("or", b.compare("eq", x, one), b.compare("eq", x, b.binary("sub", zero, one)))
    inverse = b.select(is_unit, x, zero)
    negative = b.compare("lt", exponent, zero)
    power, result = b.select(negative, inverse, x), one
    left = b.select(negative, b.binary("sub", zero, exponent), exponent)
    for _ in range(6):
        half = b.binary("div", left, two)
        is_odd = b.compare("ne", b.binary("mul", half, two), left)
        result = b.binary("mul", result, b.select(is_odd, power, one))
        left, power = half, b.binary("mul", power, power)
    return b.select(b.compare("gt", left, zero), b.binary("mul", result, power), result)


# Quotients and remainders.

def fmod(b: Builder, x: Value, y: Value) -> Value:
    """What is left of x; its sign is x's, as in C."""
    return b.cast(_left(b, *widened(b, x, y)), x.dtype)


def remainder(b: Builder, x: Value, y: Value) -> Value:
    """What is left of x; its sign is y's."""
    dtype, (x, y) = x.dtype, widened(b, x, y)
    left = _left(b, x, y)
    return b.cast(b.binary("add", left, b.select(_opposite(b, left, y), y, b.like(0, y))), dtype)


def floored_quotient(b: Builder, x: Value, y: Value) -> Value:
    """x / y toward -infinity: less 1 where what is left has not the divisor's sign; NaN of an infinite x."""
    dtype, (x, y) = x.dtype, widened(b, x, y)
    quotient, left = _divided(b, x, y)
    if not x.dtype.startswith("i"):
        quotient, y = b.binary("sub", quotient, b.binary("sub", x, x)), b.unary("stop_gradient", y)
    return b.cast(b.binary("sub", quotient, b.cast(_opposite(b, left, y), quotient.dtype)), dtype)


def widened(b: Builder, x: Value, y: Value) -> tuple[Value, Value]:
    """Floats as f64."""
    return (x, y) if x.dtype.startswith("i") else (b.cast(x, "f64"), b.cast(y, "f64"))


def _left(b: Builder, x: Value, y: Value) -> Value:
    """What is left of x, of floats with its gradients: 1 of x, less the quotient of y."""
    quotient, left = _divided(b, x, y)
    if x.dtype.startswith("i"):
        return left
    moved_x, moved_y = (b.binary("sub", v, b.unary("stop_gradient", v)) for v in (x, y))  # 0, with a gradient
    value = b.binary("sub", b.binary("add", left, moved_x), b.binary("mul", quotient, moved_y))
    return b.select(_within(b, x, y), x, value)


def _divided(b: Builder, x: Value, y: Value) -> tuple[Value, Value]:
    """x / y toward zero and what is left of x, as C's fmod, both without gradients; of floats exact while the quotient is below 2^53 and y
    below 2^996."""
    if x.dtype.startswith("i"):
        quotient = b.binary("div", x, y)
        return quotient, b.binary("sub", x, b.binary("mul", quotient, y))
    x, y = (b.unary("stop_gradient", v) for v in (x, y))
    quotient = trunc(b, b.binary("div", x, y))
    left = b.binary("sub", b.binary("sub", x, b.binary("mul", quotient, y)), _rounded_off(b, quotient, y))
    over = _opposite(b, left, x)  # the quotient was rounded to the next whole number
    left = b.binary("add", left, b.select(over, copysign(b, y, x), b.like(0, x)))
    quotient = b.binary("sub", quotient, b.select(over, copysign(b, b.like(1, x), quotient), b.like(0, x)))
    return quotient, b.select(_within(b, x, y), x, left)


def _rounded_off(b: Builder, x: Value, y: Value) -> Value:
    """x * y less its rounded product, exactly: Dekker, A floating-point technique for extending the available precision (1971)."""
    def halves(v: Value) -> tuple[Value, Value]:
        big = b.binary("mul", v, b.like(2**27 + 1, v))
        high = b.binary("sub", big, b.binary("sub", big, v))
        return high, b.binary("sub", v, high)

    (x1, x2), (y1, y2) = halves(x), halves(y)
    off = b.binary("sub", b.binary("mul", x1, y1), b.binary("mul", x, y))
    for p, q in ((x1, y2), (x2, y1), (x2, y2)):
        off = b.binary("add", off, b.binary("mul", p, q))
    return off


def _within(b: Builder, x: Value, y: Value) -> Value:
    """Where all of x is left, also of an infinite y."""
    return b.compare("lt", b.unary("abs", x), b.unary("abs", y))


def _opposite(b: Builder, x: Value, y: Value) -> Value:
    """Where one is above 0 and the other below, which their product does not tell if it does not fit the type."""
    zero = b.like(0, x)
    ways = (b.binary("and", b.compare(p, x, zero), b.compare(q, y, zero)) for p, q in (("lt", "gt"), ("gt", "lt")))
    return b.binary("or", *ways)


# Functions. Where the forward is not the derivative's antiderivative as the dialect sees it, `with_gradient` says which.

def with_gradient(b: Builder, value: Value, *slopes: tuple[Value, Value]) -> Value:
    """`value`, whose derivative by each x is its slope: value + (x - x) slope with only one x differentiated, of x and slope the finite
    number that is nearest."""
    largest = LARGEST[value.dtype]
    finite = f" low {number(-largest)} high {number(largest)}"
    result = b.unary("stop_gradient", value)
    for x, slope in slopes:
        x, slope = b.unary("clamp", x, finite), b.unary("clamp", b.unary("stop_gradient", slope), finite)
        result = b.binary("add", result, b.binary("mul", b.binary("sub", x, b.unary("stop_gradient", x)), slope))
    return result


LEAST = {"f64": -1022, "f16": -14}  # exponents of normal numbers; of others f32's


def exp2(b: Builder, x: Value) -> Value:
    """2^n by the bits of the nearest integer n, which is exact, times exp of the rest."""
    least = LEAST.get(x.dtype, -126)
    n = b.unary("clamp", b.unary("round", b.unary("stop_gradient", x)), f" low {number(least)} high {number(1 - least)}")
    left, is_below = b.unary("abs", n), b.compare("lt", n, b.like(0, x))
    power, half = b.like(1, x), b.like(0.5, x)
    for k in range((1 - least).bit_length()):
        rest = b.unary("floor", b.binary("mul", left, half))
        is_odd = b.compare("ne", b.binary("add", rest, rest), left)
        factor = b.select(is_below, b.like(2.0 ** -2 ** k, x), b.like(2.0 ** 2 ** k, x))
        left, power = rest, b.select(is_odd, b.binary("mul", power, factor), power)
    return b.binary("mul", power, b.unary("exp", b.binary("mul", b.binary("sub", x, n), b.like(math.log(2.0), x))))


def log1p(b: Builder, x: Value) -> Value:
    """log(u) (x / (u - 1)) with u = 1 + x, x where u is 1 (Goldberg, "What every computer scientist ...", theorem 4), log(u) at both ends."""
    one = b.like(1, x)
    logarithm = b.unary("log", b.binary("add", one, x))
    end = b.binary("or", b.compare("eq", x, b.like(-1, x)), b.compare("eq", x, b.like(math.inf, x)))
    x = b.select(end, b.like(0, x), x)
    u = b.binary("add", one, x)
    difference = b.binary("sub", u, one)
    small = b.compare("eq", difference, b.like(0, x))
    quotient = b.binary("mul", b.unary("log", u), b.binary("div", x, b.select(small, one, difference)))
    return b.select(end, logarithm, with_gradient(b, b.select(small, x, quotient), (x, b.binary("div", one, u))))


def expm1(b: Builder, x: Value) -> Value:
    """u - 1 with u = exp(x); of |x| < 1 (u - 1) x / log(u), x where u is 1 (Kahan's, in Higham, "Accuracy ...", 1.14.1)."""
    one, u = b.like(1, x), b.unary("exp", x)
    difference, logarithm = b.binary("sub", u, one), b.unary("log", u)
    flat = b.compare("eq", logarithm, b.like(0, x))
    quotient = b.binary("div", b.binary("mul", difference, x), b.select(flat, one, logarithm))
    small = with_gradient(b, b.select(b.compare("eq", u, one), x, quotient), (x, u))
    return b.select(b.compare("lt", b.unary("abs", x), one), small, difference)


def log1p_exp(b: Builder, x: Value) -> Value:
    """log(1 + exp(x)) = max(x, 0) + log1p(exp(-|x|)). At 0 the maximum has half of the gradient and |x| none."""
    tail = log1p(b, b.unary("exp", b.unary("neg", b.unary("abs", x))))
    return b.binary("add", b.binary("max", x, b.like(0, x)), tail)


def tan(b: Builder, x: Value) -> Value:
    return b.binary("div", b.unary("sin", x), b.unary("cos", x))


def _arctangent(b: Builder, x: Value) -> Value:
    """y + atan(d), d = (x - tan y) / (1 + x tan y), of a y near the result (Abramowitz and Stegun, 4.4.47: to 1e-5, where atan(d) is d), of the
    inverse of x where that is smaller."""
    one = b.like(1, x)
    size, below_0 = b.unary("abs", x), b.compare("lt", x, b.like(0, x))
    above = b.compare("gt", size, one)
    x = b.select(above, b.binary("div", one, x), x)
    square = b.binary("mul", x, x)
    y = b.like(0.0208351, x)
    for coefficient in (-0.0851330, 0.1801410, -0.3302995, 0.9998660):
        y = b.binary("add", b.binary("mul", y, square), b.like(coefficient, x))
    y = b.binary("mul", y, x)
    sine, cosine = b.unary("sin", y), b.unary("cos", y)
    rest = b.binary("sub", b.binary("mul", x, cosine), sine)
    y = b.binary("add", y, b.binary("div", rest, b.binary("add", cosine, b.binary("mul", x, sine))))
    quarter = b.select(below_0, b.like(-math.pi / 2, x), b.like(math.pi / 2, x))
    return b.select(above, b.binary("sub", quarter, y), y)


def atan(b: Builder, x: Value) -> Value:
    one = b.like(1, x)
    slope = b.binary("div", one, b.binary("add", one, b.binary("mul", x, x)))
    return with_gradient(b, _arctangent(b, b.unary("stop_gradient", x)), (x, slope))


def atan2(b: Builder, y: Value, x: Value) -> Value:
    """Of operands of one shape: the arctangent of the smaller size by the larger, turned into the octant of (x, y). The gradient is 0 where
    the sum of the squares is 0 or infinite."""
    zero, (height, width) = b.like(0, x), (b.unary("stop_gradient", v) for v in (y, x))
    is_below, is_left = signbit(b, height), signbit(b, width)
    tall, wide = b.unary("abs", height), b.unary("abs", width)
    is_steep = b.compare("gt", tall, wide)
    quotient = b.binary("div", b.select(is_steep, wide, tall), b.select(is_steep, tall, wide))
    # Two zeros, and two infinities, have none.
    quotient = b.select(b.compare("eq", tall, wide), b.cast(b.compare("gt", tall, zero), x.dtype), quotient)
    angle = _arctangent(b, quotient)
    angle = b.select(is_steep, b.binary("sub", b.like(math.pi / 2, x), angle), angle)
    angle = b.select(is_left, b.binary("sub", b.like(math.pi, x), angle), angle)
    angle = b.select(is_below, b.unary("neg", angle), angle)
    squares = b.binary("add", b.binary("mul", height, height), b.binary("mul", width, width))
    is_end = b.binary("or", b.compare("eq", squares, zero), isinf(b, squares))
    slopes = (b.select(is_end, zero, b.binary("div", v, squares)) for v in (width, b.unary("neg", height)))
    return with_gradient(b, angle, *zip((y, x), slopes))


def asin(b: Builder, x: Value) -> Value:
    return _by_half(b, x, True)


def acos(b: Builder, x: Value) -> Value:
    return _by_half(b, x, False)


def _by_half(b: Builder, x: Value, is_asin: bool) -> Value:
    """By the tangent of the half: x / (1 + sqrt(1 - x^2)) of asin, sqrt((1 - x) / (1 + x)) of acos."""
    one, stopped = b.like(1, x), b.unary("stop_gradient", x)
    below, above = b.binary("sub", one, stopped), b.binary("add", one, stopped)
    product = b.binary("mul", below, above)
    half = (b.binary("div", stopped, b.binary("add", one, b.unary("sqrt", product))) if is_asin
            else b.unary("sqrt", b.binary("div", below, above)))
    value = b.binary("mul", _arctangent(b, half), b.like(2, x))
    slope = b.unary("rsqrt", product)
    return with_gradient(b, value, (x, slope if is_asin else b.unary("neg", slope)))


def sinh(b: Builder, x: Value) -> Value:
    """(exp(x) - exp(-x)) / 2; of |x| < 1 by e = exp(x) - 1 as (e + e / (e + 1)) / 2."""
    one = b.like(1, x)
    is_small = b.compare("lt", b.unary("abs", x), one)
    e = expm1(b, b.select(is_small, x, b.like(0, x)))
    double = b.binary("add", e, b.binary("div", e, b.binary("add", e, one)))
    return b.select(is_small, b.binary("mul", double, b.like(0.5, x)), b.binary("sub", *_halves_of_exp(b, x)))


def cosh(b: Builder, x: Value) -> Value:
    """(exp(x) + exp(-x)) / 2"""
    return b.binary("add", *_halves_of_exp(b, x))


def _halves_of_exp(b: Builder, x: Value) -> tuple[Value, Value]:
    """exp(x) / 2 and exp(-x) / 2, finite also where exp is not: of x > k / 2 as exp(x - k) * (exp(k) / 2), where x - k is exact."""
    k = {"f64": 512, "f16": 8}.get(x.dtype, 64)

    def half(x: Value) -> Value:
        is_large = b.compare("gt", x, b.like(k / 2, x))
        power = b.unary("exp", b.binary("sub", x, b.select(is_large, b.like(k, x), b.like(0, x))))
        return b.binary("mul", power, b.select(is_large, b.like(math.exp(k) / 2, x), b.like(0.5, x)))

    return half(x), half(b.unary("neg", x))


def asinh(b: Builder, x: Value) -> Value:
    one, stopped = b.like(1, x), b.unary("stop_gradient", x)
    size = b.unary("abs", stopped)
    inside = b.binary("add", b.binary("mul", size, size), one)
    rest = b.binary("div", b.binary("mul", size, size), b.binary("add", one, b.unary("sqrt", inside)))
    return _inverse_hyperbolic(b, x, size, inside, b.binary("add", size, rest))


def acosh(b: Builder, x: Value) -> Value:
    one, stopped = b.like(1, x), b.unary("stop_gradient", x)
    below = b.binary("sub", stopped, one)
    inside = b.binary("mul", below, b.binary("add", stopped, one))
    inside = b.select(b.compare("lt", stopped, one), b.like(math.nan, x), inside)
    return _inverse_hyperbolic(b, x, stopped, inside, b.binary("add", below, b.unary("sqrt", inside)))


def _inverse_hyperbolic(b: Builder, x: Value, size: Value, inside: Value, beyond: Value) -> Value:
    """log(x + sqrt(x^2 +- 1)), of which `inside` is under the root, as log1p of what is beyond 1; log(x) + log(2) where x^2 does not see
    the 1."""
    far = b.binary("add", b.unary("log", size), b.like(math.log(2), x))
    value = b.select(b.compare("gt", size, b.like(2.0 ** 28, x)), far, log1p(b, beyond))
    return with_gradient(b, _signed(b, value, x, size), (x, b.unary("rsqrt", inside)))


def _signed(b: Builder, value: Value, x: Value, size: Value) -> Value:
    """value, -value where x is not its size."""
    return b.select(b.compare("lt", x, size), b.unary("neg", value), value)


def atanh(b: Builder, x: Value) -> Value:
    """log1p(2 |x| / (1 - |x|)) / 2 with the sign of x."""
    one, size = b.like(1, x), b.unary("abs", b.unary("stop_gradient", x))
    rest = b.binary("sub", one, size)
    half = b.binary("mul", log1p(b, b.binary("div", b.binary("add", size, size), rest)), b.like(0.5, x))
    slope = b.binary("div", one, b.binary("mul", rest, b.binary("add", one, size)))
    return with_gradient(b, _signed(b, half, x, size), (x, slope))


# The Chebyshev series of log(erfc(x) exp(x^2) / s) in 2 s - 1, s = 2 / (2 + x), x >= 0; from its values in 50 digits.
_ERFC = (
    -1.3026537197817094, 0.6419697923564902, 0.019476473204185836, -0.009561514786808632, -0.0009465953444820369, 0.00036683949785276145,
    4.252332480690777e-05, -2.0278578112534242e-05, -1.6242900046470256e-06, 1.3036558355805232e-06, 1.5626441722066142e-08, -8.523809591492654e-08,
    6.5290544390988515e-09, 5.059343495551469e-09, -9.91364156493033e-10, -2.273651222931836e-10, 9.646791102015527e-11, 2.3940380830391146e-12,
    -6.886027526497553e-12, 8.944879273090725e-13, 3.130921399342958e-13, -1.1270822361367252e-13, 3.810905255189231e-16, 7.106097613609237e-15,
    -1.5230282014571043e-15, -9.457494571291227e-17, 1.2102371892242782e-16, -2.816663087747171e-17)


def erfc(b: Builder, x: Value) -> Value:
    """s exp(p(2 s - 1) - x^2) with s = 2 / (2 + |x|), 2 less that of x < 0: no digits are lost where it is small."""
    size = b.unary("abs", b.unary("stop_gradient", x))
    share = b.binary("div", b.like(2, x), b.binary("add", size, b.like(2, x)))
    y = b.binary("sub", b.binary("mul", share, b.like(4, x)), b.like(2, x))
    one_after, two_after = b.like(0, x), b.like(0, x)  # Clenshaw's recurrence
    for coefficient in reversed(_ERFC[1:]):
        here = b.binary("add", b.binary("sub", b.binary("mul", y, one_after), two_after), b.like(coefficient, x))
        one_after, two_after = here, one_after
    half = b.binary("mul", b.binary("add", b.binary("mul", y, one_after), b.like(_ERFC[0], x)), b.like(0.5, x))
    square = b.unary("neg", b.binary("mul", size, size))
    value = b.binary("mul", share, b.unary("exp", b.binary("add", square, b.binary("sub", half, two_after))))
    value = b.select(b.compare("lt", x, size), b.binary("sub", b.like(2, x), value), value)
    return with_gradient(b, value, (x, b.binary("mul", b.unary("exp", square), b.like(-2 / math.sqrt(math.pi), x))))


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


def _shifted(b: Builder, x: Value) -> _Shifted:
    reflected = b.compare("lt", x, b.like(0.5, x))
    y = b.select(reflected, b.binary("sub", b.like(1, x), x), x)
    below = b.compare("lt", y, b.like(SHIFT, x))
    z = b.select(below, b.binary("add", y, b.like(SHIFT, x)), y)
    start = b.select(below, y, b.like(1, x))
    rest = b.select(reflected, b.binary("sub", x, b.unary("round", x)), b.like(0.25, x))
    angle = b.binary("mul", rest, b.like(math.pi, x))
    passed = [b.binary("add", start, b.like(k, x)) for k in range(SHIFT)]
    return _Shifted(z, below, passed, reflected, b.unary("sin", angle), b.unary("cos", angle))


def _series(b: Builder, z: Value, coefficients: Sequence[float]) -> Value:
    """The sum of c / z^k for k = 0, 2, ..."""
    square, result = b.binary("div", b.like(1, z), b.binary("mul", z, z)), b.like(coefficients[-1], z)
    for coefficient in reversed(coefficients[:-1]):
        result = b.binary("add", b.binary("mul", result, square), b.like(coefficient, z))
    return result


def _digamma(b: Builder, x: Value) -> Value:
    at = _shifted(b, x)
    z = at.z
    inverse, zero = b.binary("div", b.like(1, z), z), b.like(0, z)
    series = _series(b, z, [0.0, *(n / (2 * k) for k, n in enumerate(BERNOULLI, 1))])
    result = b.binary("sub", b.unary("log", z), b.binary("add", b.binary("mul", inverse, b.like(0.5, z)), series))
    sums = functools.reduce(functools.partial(b.binary, "add"), (b.binary("div", b.like(1, z), k) for k in at.passed))
    result = b.binary("sub", result, b.select(at.below, sums, zero))
    turned = b.binary("mul", b.binary("div", at.cosine, at.sine), b.like(math.pi, z))
    return b.binary("sub", result, b.select(at.reflected, turned, zero))


def digamma(b: Builder, x: Value) -> Value:
    dtype, x = x.dtype, b.cast(x, "f64")
    is_pole = b.binary("and", b.compare("lt", x, b.like(0, x)), b.compare("eq", x, b.unary("floor", x)))
    return b.cast(b.select(is_pole, b.like(math.nan, x), _digamma(b, x)), dtype)


def lgamma(b: Builder, x: Value) -> Value:
    dtype, x = x.dtype, b.cast(x, "f64")
    slope, same = _digamma(b, x), b.unary("stop_gradient", x)
    slope = b.select(b.compare("eq", slope, slope), slope, b.like(0, x))
    at = _shifted(b, same)
    z = at.z
    series = b.binary("div", _series(b, z, [n / (2 * k * (2 * k - 1)) for k, n in enumerate(BERNOULLI, 1)]), z)
    power = b.binary("sub", b.binary("mul", b.binary("sub", z, b.like(0.5, z)), b.unary("log", z)), z)
    result = b.binary("add", b.binary("add", power, b.like(0.5 * math.log(2 * math.pi), z)), series)
    product = b.unary("log", functools.reduce(functools.partial(b.binary, "mul"), at.passed))
    result = b.binary("sub", result, b.select(at.below, product, b.like(0, z)))
    turned = b.unary("log", b.binary("div", b.like(math.pi, z), b.unary("abs", at.sine)))
    result = b.select(at.reflected, b.binary("sub", turned, result), result)
    result = b.select(isinf(b, same), b.like(math.inf, z), result)
    return b.cast(with_gradient(b, result, (x, slope)), dtype)


# Of w = -log(1 - x^2), below and from 5 on: Giles, "Approximating the erfinv function" (GPU Computing Gems, 2011), table 5.
_ERF_INV = (
    (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164, 0.246640727, 1.50140941),
    (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047, 1.00167406, 2.83297682))


def erf_inv(b: Builder, x: Value) -> Value:
    """A polynomial, of f64 with two steps of Newton's iteration behind; infinite at -1 and 1."""
    stopped, one = b.unary("stop_gradient", x), b.like(1, x)
    w = b.unary("neg", b.unary("log", b.binary("mul", b.binary("sub", one, stopped), b.binary("add", one, stopped))))
    polynomials = []
    for coefficients, v in zip(_ERF_INV, (b.binary("sub", w, b.like(2.5, x)), b.binary("sub", b.unary("sqrt", w), b.like(3, x)))):
        p = b.like(coefficients[0], x)
        for coefficient in coefficients[1:]:
            p = b.binary("add", b.binary("mul", p, v), b.like(coefficient, x))
        polynomials.append(p)
    y = b.binary("mul", b.select(b.compare("lt", w, b.like(5, x)), *polynomials), stopped)
    for _ in range(2 if x.dtype == "f64" else 0):
        y = b.binary("sub", y, b.binary("mul", b.binary("sub", b.unary("erf", y), stopped), _slope_of_erf_inv(b, y)))
    is_end = b.compare("eq", b.unary("abs", stopped), one)
    y = b.select(is_end, b.binary("mul", stopped, b.like(math.inf, x)), y)
    return with_gradient(b, y, (x, _slope_of_erf_inv(b, y)))


def _slope_of_erf_inv(b: Builder, y: Value) -> Value:
    return b.binary("mul", b.unary("exp", b.binary("mul", y, y)), b.like(math.sqrt(math.pi) / 2, y))
