"""Reductions, scans, sorting, softmax."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax.extend import core

from ... import dimensions
from ...emit import Value
from ..translate import Translator, Unsupported, named, primitives_of, rule, type_of


@rule("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or")
def reduce(t: Translator, x: Value, *, axes: Sequence[int]) -> Value:
    kind = {"and": "min", "or": "max"}.get(kind := t.equation.primitive.name.removeprefix("reduce_"), kind)
    if x.dtype == "i1":
        return t.b.cast(t.b.reduce(kind, t.b.cast(x, "i8"), axes), "i1")
    if t.equation.primitive.name in ("reduce_and", "reduce_or"):
        raise Unsupported("bitwise reductions of integers")
    return t.b.reduce(kind, x, axes)


@rule("psum", "pmax", "pmin")
def collective(t: Translator, *operands: Value, axes: Sequence[Any]) -> list[Value]:
    """Over dimensions to which vmap gave a name."""
    if not all(isinstance(axis, int) for axis in axes):
        raise Unsupported(f"a reduction over {axes}: expected axes of vmap")
    kind = {"psum": "sum", "pmax": "max", "pmin": "min"}[t.equation.primitive.name]
    return [t.b.reduce(kind, x, axes) for x in operands]


@rule("argmax", "argmin")
def argument(t: Translator, x: Value, *, axes: Sequence[int], index_dtype: Any) -> Value:
    if x.dtype == "i1":
        x = t.b.cast(x, "i32")
    return dimensions.argument(t.b, x, axes[0], t.equation.primitive.name == "argmax")


SCANS = {"cumsum": dimensions.cumsum, "cumprod": dimensions.cumprod, "cumlogsumexp": dimensions.logcumsumexp}


@rule(*SCANS, wide=True)
def scan(t: Translator, x: Value, *, axis: int, reverse: bool) -> Value:
    x = dimensions.flip(t.b, x, [axis]) if reverse else x
    result = SCANS[t.equation.primitive.name](t.b, x, axis)
    return dimensions.flip(t.b, result, [axis]) if reverse else result


@rule("cummax", "cummin")
def extrema(t: Translator, x: Value, *, axis: int, reverse: bool) -> Value:
    """In JAX's order, by which equal elements share the gradient."""
    combine = {"cummax": jax.lax.max, "cummin": jax.lax.min}[t.equation.primitive.name]
    aval = t.equation.invars[0].aval
    closed = jax.make_jaxpr(lambda x: jax.lax.associative_scan(combine, x, reverse, axis))(jax.ShapeDtypeStruct(aval.shape, aval.dtype))
    return t.inline(closed, [x])[0]


@rule("sort")
def sort(t: Translator, *operands: Value, dimension: int, is_stable: bool, num_keys: int) -> list[Value]:
    """All in the order of the first ones, stable, from the last of them on; a NaN is the largest."""
    for i in reversed(range(num_keys)):
        key = operands[i]
        values, places = t.b.sort(t.b.cast(key, "i8") if key.dtype == "i1" else key, dimension)
        operands = tuple(t.b.cast(values, key.dtype) if x is key else _gathered(t, x, places, dimension) for x in operands)
    return list(operands)


def _gathered(t: Translator, x: Value, places: Value, dim: int) -> Value:
    return t.b.cast(t.b.gather(t.b.cast(x, "i8"), places, dim), "i1") if x.dtype == "i1" else t.b.gather(x, places, dim)


@rule("top_k")
def top_k(t: Translator, x: Value, *, k: int, axis: int) -> tuple[Value, Value]:
    return dimensions.topk(t.b, x, k, axis)


@named("log_softmax")
def log_softmax(t: Translator, jaxpr: core.Jaxpr, x: Any, *rest: Any) -> Value | None:
    """jax.nn.log_softmax without `where`."""
    names = list(primitives_of(jaxpr))
    maxima = [eqn for eqn in jaxpr.eqns if eqn.primitive.name == "reduce_max"]
    expected = ["reduce_max", "max", "broadcast_in_dim", "stop_gradient", "sub", "exp", "reduce_sum", "broadcast_in_dim", "log", "sub"]
    if rest or names != expected or jaxpr.outvars != jaxpr.eqns[-1].outvars:
        return None
    if len(maxima[0].params["axes"]) != 1 or not isinstance(x, Value) or type_of(jaxpr.outvars[0].aval) != x.type:
        return None
    return t.b.softmax(x, maxima[0].params["axes"][0], log=True)
