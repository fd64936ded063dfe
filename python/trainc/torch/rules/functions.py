"""Functions and activations, with PyTorch's gradients at corners and bounds. What PyTorch computes as one is rounded to bf16 once."""
from __future__ import annotations

import math
from typing import Any

import torch

from ... import functions
from ...emit import Value
from ..translate import TORCH_DTYPES, Translator, Unsupported, rule
from .elementwise import bounded

A = torch.ops.aten


def _unary(kind: str, *operations: Any) -> None:
    @rule(*operations)
    def translate(t: Translator, x: Value) -> Value:
        return t.b.unary(kind, t.value(x, t.out.dtype))


for _kind in ("exp", "log", "sqrt", "rsqrt", "sin", "cos", "tanh", "erf", "sigmoid"):
    _unary(_kind, getattr(A, _kind).default)
_unary("silu", A.silu.default)


def _composed(kind: str) -> None:
    @rule(getattr(A, kind).default, wide=True)
    def translate(t: Translator, x: Value) -> Value:
        return getattr(functions, kind)(t.b, t.value(x, t.out.dtype))


for _kind in ("exp2", "log1p", "expm1", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "erfc"):
    _composed(_kind)


def _in_f64(kind: str) -> None:
    @rule(getattr(A, kind).default)
    def translate(t: Translator, x: Value) -> Value:
        return t.b.cast(getattr(functions, kind)(t.b, t.value(x, "f64")), t.out.dtype)


for _kind in ("digamma", "lgamma"):
    _in_f64(_kind)


@rule(A.relu.default)
def relu(t: Translator, x: Value) -> Value:
    return t.b.binary("max", x, t.b.like(0, x)) if x.dtype.startswith("i") else t.b.unary("relu", x)


@rule(A.abs.default)
def absolute(t: Translator, x: Value) -> Value:
    return functions.absolute(t.b, x)


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


@rule(A.sign.default, A.sgn.default)
def sign(t: Translator, x: Value) -> Value:
    return functions.sign(t.b, x)


@rule(A.atan2.default, wide=True)
def arctangent_of_two(t: Translator, y: Value, x: Value) -> Value:
    return functions.atan2(t.b, *(t.b.broadcast(t.value(v, t.out.dtype), t.out.shape) for v in (y, x)))


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
    """x min(max(x + 3, 0), 6) / 6 by its three branches: 0 x up to -3, which is NaN of -infinity, x from 3 on."""
    middle = t.b.binary("div", t.b.binary("mul", x, t.b.binary("add", *t.pair(x, 3.0))), t.b.like(6, x))
    nothing = t.b.binary("mul", t.b.unary("stop_gradient", x), t.b.like(0, x))
    middle = t.b.select(t.b.compare("le", x, t.b.like(-3, x)), nothing, middle)
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
    below = t.b.binary("mul", *t.pair(functions.expm1(t.b, inner), alpha * scale))
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
    return t.b.select(above, x, t.b.binary("div", *t.pair(functions.log1p_exp(t.b, inner), beta)))


@rule(A.log_sigmoid.default, wide=True)
def log_sigmoid(t: Translator, x: Value) -> Value:
    return t.b.unary("neg", functions.log1p_exp(t.b, t.b.unary("neg", x)))


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
