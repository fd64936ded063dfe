"""Draws. A step draws by its own seed and other numbers in each micro-step, so keys only say which draws are the same."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend import core

from ...emit import Value
from ..keys import Keys
from ..translate import RULES, Translator, Unsupported, dtype_of, is_known, named, primitives_of


def _draws(t: Translator, jaxpr: core.Jaxpr, keys: Any) -> bool:
    """Whether this is a function of a key that draws its bits; notes that they are drawn."""
    if not isinstance(keys, Keys) or "random_bits" not in primitives_of(jaxpr):
        return False
    for key in keys.made.reshape(-1):
        if key in t.drawn:
            raise Unsupported(f"a key that was drawn from in {t.drawn[key]} already: split it, or fold a number in")
        t.drawn[key] = t.place()
    return True


def _bits(jaxpr: core.Jaxpr) -> core.JaxprEqn:
    return next(eqn for eqn in jaxpr.eqns if eqn.primitive.name == "random_bits")


def _is_plain(t: Translator, jaxpr: core.Jaxpr, key: Keys, *bounds: Any) -> bool:
    """Whether each element has its own draw and bounds broadcast to them as they are: not where vmap has put a dimension before those of some,
    and not where a derivative of the loss's own has further operands or results."""
    return (len(bounds) == 2 and jaxpr.outvars == jaxpr.eqns[-1].outvars and _bits(jaxpr).outvars[0].aval.shape == t.out.shape
            and (not key.shape or not any(x.shape for x in bounds)))


def _of(t: Translator, jaxpr: core.Jaxpr, found: dict[Any, Any], atom: Any) -> Any:
    """What the equations of a jaxpr make an atom of it, of those in `found`, which it adds to."""
    if isinstance(atom, core.Literal):
        return np.asarray(atom.val, atom.aval.dtype)
    if atom not in found:
        equation = next((eqn for eqn in jaxpr.eqns if atom in eqn.outvars), None)
        if equation is None:
            raise Unsupported(f"a draw whose bounds are not found: expected numbers as bounds (jax {jax.__version__})")
        found.update(zip(equation.outvars, t._equation(equation, [_of(t, jaxpr, found, x) for x in equation.invars])))
    return found[atom]


def _results(t: Translator, jaxpr: core.Jaxpr, operands: Sequence[Any], drawn: Mapping[Any, Value]) -> list[Any]:
    """Those of a jaxpr with what was drawn in place of some of its values."""
    found = dict(zip(jaxpr.invars, operands)) | drawn
    return [_of(t, jaxpr, found, atom) for atom in jaxpr.outvars]


def _spread(t: Translator, jaxpr: core.Jaxpr, drawn: Value) -> Value:
    """What was drawn in place of the bits, broadcast as these."""
    var = _bits(jaxpr).outvars[0]
    used = [eqn for eqn in jaxpr.eqns if eqn.primitive.name == "broadcast_in_dim" and eqn.invars[0] is var]
    if not used:
        return drawn
    p = used[0].params
    return RULES["broadcast_in_dim"].function(t, drawn, shape=p["shape"], broadcast_dimensions=p["broadcast_dimensions"])


@named("_uniform")
def uniform(t: Translator, jaxpr: core.Jaxpr, key: Any, *bounds: Any) -> Value | Sequence[Any] | None:
    if not _draws(t, jaxpr, key):
        return None
    if not _is_plain(t, jaxpr, key, *bounds):
        share = _share(jaxpr)
        u = t.b.random("uniform", share.aval.shape, dtype_of(share.aval.dtype))
        return _results(t, jaxpr, (key, *bounds), {share: u})
    type = t.out
    u = t.b.random("uniform", type.shape, type.dtype)
    low, high = (t.value(x, type.dtype) for x in bounds)
    scaled = t.b.binary("add", t.b.binary("mul", u, t.b.binary("sub", high, low)), low)
    return t.b.binary("max", scaled, low)


def _share(jaxpr: core.Jaxpr) -> core.Var:
    """The number from 0 to 1 that the bits make: as the fraction of a float from 1 to 2, less 1."""
    made = [eqn.outvars[0] for eqn in jaxpr.eqns if eqn.primitive.name == "bitcast_convert_type"]
    shares = [eqn.outvars[0] for eqn in jaxpr.eqns if eqn.primitive.name == "sub" and eqn.invars[0] in made]
    if len(shares) != 1:
        raise Unsupported(f"uniform by bits that are not known here (jax {jax.__version__}): expected numbers as bounds")
    return shares[0]


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
    if not _is_plain(t, jaxpr, key, low, high):
        span = next(eqn for eqn in jaxpr.eqns if eqn.primitive.name == "sub")  # high - low, as they are broadcast
        found = dict(zip(jaxpr.invars, (key, low, high)))
        high, low = (t.value(_of(t, jaxpr, found, x), "f64") for x in span.invars)
        u = _spread(t, jaxpr, t.b.random("uniform", _bits(jaxpr).outvars[0].aval.shape, "f64"))
        return t.b.broadcast(_whole(t, u, low, high), t.out.shape)
    if not is_known(low) or not is_known(high) or np.size(low) != 1 or np.size(high) != 1:
        return _whole(t, t.b.random("uniform", t.out.shape, "f64"), *(t.value(x, "f64") for x in (low, high)))
    first, end = (np.asarray(x).astype(object).item() for x in (low, high))
    span = end - first
    if not 0 < span <= 1 << 32:
        raise Unsupported("random integers: expected from 1 to 2^32 values")
    u = t.b.random("uniform", t.out.shape, "f64" if span > 1 << 12 else "f32")
    drawn = t.b.unary("floor", t.b.binary("mul", u, t.b.like(span, u)))
    return t.b.binary("add", t.b.cast(drawn, t.out.dtype), t.b.splat(first, (), t.out.dtype))


def _whole(t: Translator, u: Value, low: Value, high: Value) -> Value:
    span = t.b.binary("max", t.b.binary("sub", high, low), t.b.like(1, low))
    return t.b.cast(t.b.binary("add", t.b.unary("floor", t.b.binary("mul", u, span)), low), t.out.dtype)


@named("_shuffle")
def shuffle(t: Translator, jaxpr: core.Jaxpr, key: Any, x: Any, *moves: Any) -> Value | Sequence[Any] | None:
    """In the order of random numbers."""
    if not _draws(t, jaxpr, key):
        return None
    sorts = [eqn for eqn in jaxpr.eqns if eqn.primitive.name == "sort"]
    if moves or jaxpr.outvars != sorts[-1].outvars[1:]:  # a derivative of the loss's own
        bits = [eqn.outvars[0] for eqn in jaxpr.eqns if eqn.primitive.name == "random_bits"]
        return _results(t, jaxpr, (key, x, *moves), {var: t.b.random("uniform", var.aval.shape, "f32") for var in bits})
    dim, shape = sorts[0].params["dimension"], t.out.shape
    x = t.value(_of(t, jaxpr, dict(zip(jaxpr.invars, (key, x))), sorts[0].invars[1]))  # under vmap broadcast, as the draws
    drawn = _spread(t, jaxpr, t.b.random("uniform", _bits(jaxpr).outvars[0].aval.shape, "f32"))
    _, places = t.b.sort(t.b.broadcast(drawn, shape), dim)
    return t.b.gather(t.b.broadcast(x, shape), places, dim)
