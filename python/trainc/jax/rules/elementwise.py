"""Arithmetic, comparison, selection and functions of elements."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from ... import functions
from ...emit import BYTES, FLOATS, Value
from ..translate import UNSIGNED, Translator, Unsupported, dtype_of, rule


def _binary(kind: str, *primitives: str) -> None:
    @rule(*primitives)
    def translate(t: Translator, a: Value, b: Value) -> Value:
        return t.b.binary(kind, a, b)


for _kind, *_primitives in (("add", "add", "add_any"), ("sub", "sub"), ("mul", "mul"), ("div", "div")):
    _binary(_kind, *_primitives)


@rule("max", "min")
def extreme(t: Translator, a: Value, b: Value) -> Value:
    name = t.equation.primitive.name
    return t.b.binary(({"max": "or", "min": "and"}[name]) if a.dtype == "i1" else name, a, b)


def _unary(kind: str, primitive: str) -> None:
    @rule(primitive)
    def translate(t: Translator, x: Value) -> Value:
        return t.b.unary(kind, x)


for _kind, _primitive in (("exp", "exp"), ("log", "log"), ("sqrt", "sqrt"), ("rsqrt", "rsqrt"), ("sin", "sin"), ("cos", "cos"), ("tanh", "tanh"),
                          ("erf", "erf"), ("sigmoid", "logistic"), ("floor", "floor"), ("ceil", "ceil")):
    _unary(_kind, _primitive)


@rule("round")
def rounded(t: Translator, x: Value, *, rounding_method: Any) -> Value:
    """To the even one of two, or (0) away from zero."""
    if int(rounding_method) == 1:
        return t.b.unary("round", x)
    size = t.b.unary("abs", t.b.unary("stop_gradient", x))
    whole = t.b.unary("floor", size)
    up = t.b.compare("ge", t.b.binary("sub", size, whole), t.b.like(0.5, x))
    whole = t.b.binary("add", whole, t.b.cast(up, x.dtype))
    return t.b.select(t.b.compare("lt", x, t.b.like(0, x)), t.b.unary("neg", whole), whole)


@rule("neg")
def neg(t: Translator, x: Value) -> Value:
    return functions.neg(t.b, x)


@rule("abs")
def absolute(t: Translator, x: Value) -> Value:
    """The gradient at 0 is that of x."""
    if x.dtype.startswith("i"):
        return functions.absolute(t.b, x)
    return t.b.select(t.b.compare("ge", x, t.b.like(0, x)), x, t.b.unary("neg", x))


@rule("sign")
def sign(t: Translator, x: Value) -> Value:
    """NaN of NaN."""
    result = functions.sign(t.b, x)
    return t.b.select(t.b.compare("eq", x, x), result, t.b.unary("stop_gradient", x)) if x.dtype in FLOATS else result


@rule("square")
def square(t: Translator, x: Value) -> Value:
    return t.b.binary("mul", x, x)


@rule("integer_pow", wide=True)
def integer_pow(t: Translator, x: Value, *, y: int) -> Value:
    if y < 0 and x.dtype.startswith("i"):
        raise Unsupported(f"integers to the power of {y}")
    power = functions.whole_power(t.b, x, abs(y))
    return t.b.binary("div", t.b.like(1, x), power) if y < 0 else power


@rule("pow", wide=True)
def power(t: Translator, x: Value, y: Value) -> Value:
    if x.dtype.startswith("i"):
        raise Unsupported("integers to the power of an array: convert first, x.astype(float)")
    return t.b.binary("pow", x, t.b.cast(y, x.dtype))


def _function(primitive: str) -> None:
    made = getattr(functions, primitive)

    @rule(primitive, wide=True)
    def translate(t: Translator, x: Value) -> Value:
        return made(t.b, x)


for _primitive in ("exp2", "expm1", "log1p", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "erfc", "erf_inv", "lgamma",
                   "digamma"):
    _function(_primitive)


@rule("cbrt", wide=True)
def cube_root(t: Translator, x: Value) -> Value:
    root = t.b.binary("pow", t.b.unary("abs", x), t.b.like(1 / 3, x))
    return t.b.binary("mul", functions.sign(t.b, x), root)


@rule("atan2", wide=True)
def atan2(t: Translator, y: Value, x: Value) -> Value:
    return functions.atan2(t.b, y, x)


@rule("rem", wide=True)
def remainder(t: Translator, a: Value, b: Value) -> Value:
    """As C: its sign is that of a."""
    return functions.fmod(t.b, a, b)


@rule("is_finite")
def is_finite(t: Translator, x: Value) -> Value:
    return t.b.compare("lt", t.b.unary("abs", x), t.b.like(math.inf, x))


def _comparison(kind: str) -> None:
    @rule(kind, f"{kind}_to")
    def translate(t: Translator, a: Value, b: Value) -> Value:
        a, b = (t.b.cast(x, "i8") if x.dtype == "i1" else x for x in (a, b))
        return t.b.compare(kind, a, b)


for _kind in ("eq", "ne", "lt", "le", "gt", "ge"):
    _comparison(_kind)


@rule("and", "or", "xor", "not")
def logic(t: Translator, *operands: Value) -> Value:
    name, x = t.equation.primitive.name, operands[0]
    if x.dtype != "i1" and name == "not":
        return t.b.binary("sub", t.b.like(-1, x), x)
    if x.dtype != "i1":
        return t.b.bitwise(f"{name}i", *operands)
    if name == "xor":
        return t.b.compare("ne", *(t.b.cast(v, "i8") for v in operands))
    return t.b.unary("not", x) if name == "not" else t.b.binary(name, *operands)


@rule("shift_left", "shift_right_arithmetic", "shift_right_logical")
def shift(t: Translator, x: Value, count: Value) -> Value:
    """By all bits or more: 0, or the sign."""
    name, bits = t.equation.primitive.name, 8 * BYTES[x.dtype]
    kind = {"shift_left": "shli", "shift_right_arithmetic": "shrsi", "shift_right_logical": "shrui"}[name]
    last = t.b.like(bits - 1, count)
    inside = t.b.binary("and", t.b.compare("ge", count, t.b.like(0, count)), t.b.compare("le", count, last))
    shifted = t.b.bitwise(kind, x, t.b.select(inside, count, last))
    outside = t.b.bitwise("shrsi", x, last) if kind == "shrsi" else t.b.like(0, x)
    return t.b.select(inside, shifted, outside)


@rule("select_n")
def select(t: Translator, which: Value, *cases: Value) -> Value:
    if which.dtype == "i1":
        return t.b.select(which, cases[1], cases[0])
    result = cases[0]
    for i, case in enumerate(cases[1:], 1):
        result = t.b.select(t.b.compare("ge", which, t.b.like(i, which)), case, result)
    return result


@rule("clamp")
def clamp(t: Translator, low: Value, x: Value, high: Value) -> Value:
    """The gradient of x is 0 at a bound; that of a bound is there where x is beyond. The higher bound counts more."""
    if x.dtype.startswith("i"):
        return t.b.binary("min", t.b.binary("max", x, low), high)
    below, above = t.b.compare("lt", x, low), t.b.compare("gt", x, high)
    inside = t.b.binary("and", t.b.compare("gt", x, low), t.b.compare("lt", x, high))
    result = t.b.select(inside, x, t.b.unary("stop_gradient", x))
    low = t.b.select(t.b.compare("lt", low, high), low, t.b.unary("stop_gradient", high))
    return t.b.broadcast(t.b.select(above, high, t.b.select(below, low, result)), x.shape)


@rule("convert_element_type")
def convert(t: Translator, x: Value, *, new_dtype: Any) -> Value:
    dtype = dtype_of(np.dtype(new_dtype))
    if str(np.dtype(new_dtype)) in UNSIGNED and x.dtype in FLOATS:  # the nearest
        last = t.b.splat((1 << UNSIGNED[str(np.dtype(new_dtype))][1]) - 1, (), dtype)
        return t.b.binary("min", t.b.binary("max", t.b.cast(x, dtype), t.b.splat(0, (), dtype)), last)
    if dtype == "i1" and x.dtype != "i1":
        return t.b.compare("ne", x, t.b.like(0, x))
    return t.b.cast(x, dtype)


@rule("reduce_precision")
def reduce_precision(t: Translator, x: Value, *, exponent_bits: int, mantissa_bits: int) -> Value:
    """With 0 in place of what is below the normal numbers of fewer bits of exponent, as XLA."""
    dtype = {(8, 23): "f32", (8, 7): "bf16", (5, 10): "f16", (11, 52): "f64"}.get((exponent_bits, mantissa_bits))
    if not dtype:
        raise Unsupported(f"a float of {exponent_bits} and {mantissa_bits} bits: expected those of f32, bf16 or f16")
    if FLOATS.index(dtype) <= FLOATS.index(x.dtype) and (x.dtype, dtype) != ("f16", "bf16"):
        return x
    result = t.b.cast(t.b.cast(x, dtype), x.dtype)
    if exponent_bits >= {"f64": 11, "f16": 5}.get(x.dtype, 8):
        return result
    is_small = t.b.compare("lt", t.b.unary("abs", result), t.b.like(2.0 ** (2 - (1 << exponent_bits - 1)), result))
    return t.b.select(is_small, t.b.binary("sub", x, t.b.unary("stop_gradient", x)), result)


@rule("stop_gradient")
def stop_gradient(t: Translator, x: Value) -> Value:
    return t.b.unary("stop_gradient", x) if x.dtype in FLOATS else x


@rule("copy", "copy_p", "name", "device_put", "pvary", "optimization_barrier", "mesh_cast", "layout_constraint")
def same(t: Translator, *operands: Any, **_: Any) -> Any:
    return operands
