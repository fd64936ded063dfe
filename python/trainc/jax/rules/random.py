"""Draws. A step draws by its own seed and other numbers in each micro-step, so keys only say which draws are the same."""
from __future__ import annotations

from typing import Any

import numpy as np
from jax.extend import core

from ...emit import Value
from ..keys import Keys
from ..translate import Translator, Unsupported, is_known, named, primitives_of


def _draws(t: Translator, jaxpr: core.Jaxpr, keys: Any) -> bool:
    """Whether this is a function of a key that draws its bits; notes that they are drawn."""
    if not isinstance(keys, Keys) or "random_bits" not in primitives_of(jaxpr):
        return False
    for key in keys.made.reshape(-1):
        if key in t.drawn:
            raise Unsupported(f"a key that was drawn from in {t.drawn[key]} already: split it, or fold a number in")
        t.drawn[key] = t.place()
    return True


@named("_uniform")
def uniform(t: Translator, jaxpr: core.Jaxpr, key: Any, low: Any, high: Any) -> Value | None:
    if not _draws(t, jaxpr, key):
        return None
    type = t.out
    u = t.b.random("uniform", type.shape, type.dtype)
    low, high = t.value(low, type.dtype), t.value(high, type.dtype)
    scaled = t.b.binary("add", t.b.binary("mul", u, t.b.binary("sub", high, low)), low)
    return t.b.binary("max", scaled, low)


@named("_normal_real")
def normal(t: Translator, jaxpr: core.Jaxpr, key: Any) -> Value | None:
    return t.b.random("normal", t.out.shape, t.out.dtype) if _draws(t, jaxpr, key) else None


@named("_gumbel")
def gumbel(t: Translator, jaxpr: core.Jaxpr, key: Any) -> Value | None:
    """-log(-log(u)) with u above 0."""
    if not _draws(t, jaxpr, key):
        return None
    u = t.b.random("uniform", t.out.shape, t.out.dtype)
    tiny = t.b.like(2.0**-24 if t.out.dtype != "f16" else 2.0**-14, u)
    return t.b.unary("neg", t.b.unary("log", t.b.unary("neg", t.b.unary("log", t.b.binary("max", u, tiny)))))


@named("_randint")
def randint(t: Translator, jaxpr: core.Jaxpr, key: Any, low: Any, high: Any) -> Value | None:
    """low + floor(u (high - low)), u of 24 bits for few numbers, else of 53."""
    if not _draws(t, jaxpr, key):
        return None
    if not is_known(low) or not is_known(high) or np.size(low) != 1 or np.size(high) != 1:
        u, low, high = (t.b.random("uniform", t.out.shape, "f64"), *(t.value(x, "f64") for x in (low, high)))
        span = t.b.binary("max", t.b.binary("sub", high, low), t.b.like(1, low))
        return t.b.cast(t.b.binary("add", t.b.unary("floor", t.b.binary("mul", u, span)), low), t.out.dtype)
    first, end = (np.asarray(x).astype(object).item() for x in (low, high))
    span = end - first
    if not 0 < span <= 1 << 32:
        raise Unsupported("random integers: expected from 1 to 2^32 values")
    u = t.b.random("uniform", t.out.shape, "f64" if span > 1 << 12 else "f32")
    drawn = t.b.unary("floor", t.b.binary("mul", u, t.b.like(span, u)))
    return t.b.binary("add", t.b.cast(drawn, t.out.dtype), t.b.splat(first, (), t.out.dtype))


@named("_shuffle")
def shuffle(t: Translator, jaxpr: core.Jaxpr, key: Any, x: Any, *rest: Any) -> Value | None:
    """In the order of random numbers."""
    if rest or not _draws(t, jaxpr, key):
        return None
    x = t.value(x)
    dims = {eqn.params["dimension"] for eqn in jaxpr.eqns if eqn.primitive.name == "sort"}
    if len(dims) != 1:
        return None
    dim = dims.pop()
    _, places = t.b.sort(t.b.random("uniform", x.shape, "f32"), dim)
    return t.b.gather(x, places, dim)
