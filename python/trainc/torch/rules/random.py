"""Random numbers: other ones in each micro-step, by the seed of the step."""
from __future__ import annotations

from typing import Any

import torch

from ...emit import Value, number
from ..translate import TORCH_DTYPES, Translator, Unsupported, rule

A = torch.ops.aten


def _scaled(t: Translator, x: Value, factor: Any, term: Any) -> Value:
    """x factor + term."""
    if not isinstance(factor, float | int) or factor != 1:
        x = t.b.binary("mul", x, t.value(factor, x.dtype))
    if not isinstance(term, float | int) or term != 0:
        x = t.b.binary("add", x, t.value(term, x.dtype))
    return x


def _refuse_generator(given: dict[str, Any]) -> None:
    if given.get("generator") is not None:
        raise Unsupported("a generator of its own: what a step draws follows from the step's seed")


@rule(A.rand.default, A.rand_like.default, A.rand.generator)
def rand(t: Translator, *_: Any, **given: Any) -> Value:
    _refuse_generator(given)
    return t.b.random("uniform", t.out.shape, t.out.dtype)


@rule(A.uniform.default)
def uniform(t: Translator, x: Any, low: float = 0.0, high: float = 1.0) -> Value:
    return _scaled(t, rand(t), high - low, low)


@rule(A.randn.default, A.randn_like.default, A.randn.generator)
def randn(t: Translator, *_: Any, **given: Any) -> Value:
    _refuse_generator(given)
    return t.b.random("normal", t.out.shape, t.out.dtype)


@rule(A.normal_functional.default)
def normal(t: Translator, x: Any, mean: float = 0.0, std: float = 1.0) -> Value:
    return _scaled(t, randn(t), std, mean)


@rule(A.normal.Tensor_float, A.normal.Tensor_Tensor, A.normal.float_Tensor, A.normal.float_float)
def normal_of(t: Translator, mean: Any, std: Any = 1.0, *_: Any, **__: Any) -> Value:
    """PyTorch's gradients to the mean and the standard deviation are zeros."""
    std, mean = (t.b.unary("stop_gradient", x) if isinstance(x, Value) else x for x in (std, mean))
    return _scaled(t, randn(t), std, mean)


@rule(A.bernoulli.p)
def bernoulli(t: Translator, x: Any, p: float) -> Value:
    return t.b.random(f"bernoulli p {number(p)}", t.out.shape, t.out.dtype)


@rule(A.bernoulli.default)
def bernoulli_of(t: Translator, p: Value) -> Value:
    """The gradient of the probabilities is 0."""
    p = t.b.unary("stop_gradient", p)
    return t.b.cast(t.b.compare("lt", t.b.random("uniform", t.out.shape, p.dtype), p), t.out.dtype)


@rule(A.exponential.default)
def exponential(t: Translator, x: Any, rate: float = 1.0) -> Value:
    """-log(1 - u) / rate; of u = 0 what PyTorch gives there, as no draw is 0: its logarithm is finite."""
    u = rand(t)
    size = t.b.unary("neg", t.b.unary("log", t.b.binary("sub", t.b.like(1.0, u), u)))
    least = t.b.like(torch.finfo(TORCH_DTYPES[u.dtype]).eps / 2, u)
    return t.b.binary("div", t.b.binary("max", size, least), t.b.like(rate, u))


def _integers(t: Translator, low: int, high: int) -> Value:
    """low + floor(u (high - low)), u of 32 bits."""
    if high - low > 1 << 32:
        raise Unsupported(f"random integers of {high - low} values: expected at most 2^32")
    u = t.b.random("uniform", t.out.shape, "f64")
    drawn = t.b.unary("floor", t.b.binary("mul", u, t.b.like(high - low, u)))
    return _scaled(t, t.b.cast(drawn, t.out.dtype), 1, low)


@rule(A.randint.default, A.randint_like.default)
def randint(t: Translator, *arguments: Any, **_: Any) -> Value:
    return _integers(t, 0, next(a for a in arguments if isinstance(a, int)))


@rule(A.randint.low, A.randint_like.low_dtype)
def randint_from(t: Translator, *arguments: Any, **_: Any) -> Value:
    low, high = [a for a in arguments if isinstance(a, int)][:2]
    return _integers(t, low, high)
