"""Equations that hold jaxprs: calls, loops, branches, recomputed regions, functions with derivatives of their own."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend import core

from ..emit import FLOATS, Value, number
from ..functions import LARGEST
from .keys import Keys
from .translate import FUNCTIONS, UNKNOWN, Translator, Unsupported, evaluated, is_known, is_of_jax, primitives_of, structure

LONGEST = 100_000  # repetitions of a loop, which are written one by one


@structure("jit", "pjit", "closed_call", "core_call")
def call(t: Translator, equation: core.JaxprEqn, operands: list[Any]) -> Sequence[Any]:
    closed = equation.params.get("jaxpr") or equation.params["call_jaxpr"]
    function = FUNCTIONS.get(equation.params.get("name", ""))
    if function and is_of_jax(closed.jaxpr) and not all(map(is_known, operands)):
        result = function(t, closed.jaxpr, *operands)
        if result is not None:
            t.log.append((equation.params["name"], "as one"))
            return [result] if isinstance(result, Value) else result
    return t.inline(closed, operands)


@structure("remat2", "checkpoint")
def recomputed(t: Translator, equation: core.JaxprEqn, operands: list[Any]) -> Sequence[Any]:
    """All of it is computed again for the gradients, whatever the policy keeps."""
    jaxpr = equation.params["jaxpr"]
    if not t.trains or t.b.region is not None:
        return t.inline(jaxpr, operands)
    t.b.region = t.next_region()
    try:
        return t.inline(jaxpr, operands)
    finally:
        t.b.region = None


# Loops.

def _part(t: Translator, x: Any, i: int) -> Any:
    """x[i]."""
    if isinstance(x, Value):
        return t.b.reshape(t.b.slice_dim(x, 0, i, 1), x.shape[1:])
    return x.at(i) if isinstance(x, Keys) else x[i]


def _stacked(t: Translator, parts: Sequence[Any]) -> Any:
    if any(x is UNKNOWN for x in parts):
        return UNKNOWN
    if all(map(is_known, parts)):
        return np.stack([np.asarray(x) for x in parts])
    if any(isinstance(x, Keys) for x in parts):
        return Keys(np.stack([x.made for x in parts]), parts[0].raw)
    values = [t.value(x) for x in parts]
    return t.b.concat([t.b.reshape(x, [1, *x.shape]) for x in values], 0)


@structure("scan")
def scan(t: Translator, equation: core.JaxprEqn, operands: list[Any]) -> Sequence[Any]:
    p = equation.params
    length, carries, consts = p["length"], p["num_carry"], p["num_consts"]
    if length > LONGEST:
        raise Unsupported(f"a loop of {length} repetitions: expected {LONGEST} at most")
    fixed, carry, rows = operands[:consts], operands[consts:consts + carries], operands[consts + carries:]
    rows = [t.value(x) if is_known(x) and _is_large(x) else x for x in rows]
    made: list[list[Any]] = []
    for i in reversed(range(length)) if p["reverse"] else range(length):
        results = t.inline(p["jaxpr"], [*fixed, *carry, *(_part(t, x, i) for x in rows)])
        carry = results[:carries]
        made.append(results[carries:])
    if p["reverse"]:
        made.reverse()
    if not made:
        return [*carry, *(np.zeros(var.aval.shape, var.aval.dtype) for var in equation.outvars[carries:])]
    return [*carry, *(_stacked(t, parts) for parts in zip(*made))]


def _is_large(x: Any) -> bool:
    """Whether parts of an array would each be a constant of the step: floats that are not equal."""
    array = np.asarray(x)
    return len(array) > 0 and array.dtype.kind not in "iub" and array[0].size > 1


@structure("while")
def loop(t: Translator, equation: core.JaxprEqn, operands: list[Any]) -> Sequence[Any]:
    p = equation.params
    n, m = p["cond_nconsts"], p["body_nconsts"]
    test, body, carry = operands[:n], operands[n:n + m], operands[n + m:]
    for _ in range(LONGEST):
        going_on, = t.inline(p["cond_jaxpr"], [*test, *carry])
        if not is_known(going_on):
            raise Unsupported("a loop whose end depends on data: expected lax.scan, or a fori_loop with bounds that are known")
        if not going_on:
            return carry
        carry = t.inline(p["body_jaxpr"], [*body, *carry])
    raise Unsupported(f"a loop of more than {LONGEST} repetitions")


# Branches.

@structure("cond")
def branch(t: Translator, equation: core.JaxprEqn, operands: list[Any]) -> Sequence[Any]:
    """The branch of a known index, else all of them and a selection. To a branch that is not taken its operands have no gradient, so that
    what is not finite in it does not spread."""
    index, *given = operands
    branches = equation.params["branches"]
    if is_known(index):
        return t.inline(branches[min(max(int(index), 0), len(branches) - 1)], given)
    if any(b.jaxpr.effects for b in branches):
        raise Unsupported("a branch with effects that depends on data")
    index = t.value(index, "i32")
    results: list[Any] = []
    drawn = dict(t.drawn)
    after: dict[Any, str] = {}
    for i, taken in enumerate(branches):
        t.drawn = dict(drawn)  # by one branch alone
        kind = "le" if i == 0 else "ge" if i == len(branches) - 1 else "eq"  # an index outside is the nearest
        is_taken = t.b.compare(kind, index, t.b.like(i, index))
        gated = [t.b.select(is_taken, x, t.b.unary("stop_gradient", x)) if isinstance(x, Value) and x.dtype in FLOATS else x for x in given]
        made = t.inline(taken, gated)
        results = made if not results else [_chosen(t, is_taken, a, b) for a, b in zip(made, results)]
        after |= t.drawn
    t.drawn = after
    return results


def _chosen(t: Translator, condition: Value, a: Any, b: Any) -> Any:
    if a is UNKNOWN or b is UNKNOWN:
        return UNKNOWN
    if isinstance(a, Keys) and isinstance(b, Keys) and np.array_equal(a.made, b.made):
        return a
    if isinstance(a, Keys) or isinstance(b, Keys):
        raise Unsupported("a random key that depends on data")
    return t.b.select(condition, t.value(a), t.value(b))


# Derivatives of their own.

@structure("custom_jvp_call")
def custom_jvp(t: Translator, equation: core.JaxprEqn, operands: list[Any]) -> Sequence[Any]:
    if len(operands) == 1 and isinstance(operands[0], Value) and _is_relu(equation):
        return [t.b.unary("relu", operands[0])]

    return with_derivative(t, equation, operands, forward)


def forward(function: Callable[..., Any], points: Sequence[Any], moves: Sequence[Any]) -> Any:
    """The derivative by JAX's forward rules."""
    return jax.jvp(function, points, moves, has_aux=True)


def _is_relu(equation: core.JaxprEqn) -> bool:
    """Whether it is jax.nn.relu, by its body and by its derivative."""
    aval = equation.invars[0].aval
    if list(primitives_of(equation.params["call_jaxpr"].jaxpr)) != ["jit", "max"]:
        return False
    for n in (-1, 0, 0.5, 3):  # a single element, too, has all of them
        x = np.full(aval.shape, n).astype(aval.dtype)
        (y,), (slope,) = jax.jvp(lambda x: evaluated(equation, [x]), [x], [np.ones_like(x)])
        if not np.array_equal(y, np.maximum(x, 0)) or not np.array_equal(slope, x > 0):
            return False
    return True


@structure("custom_vjp_call")
def custom_vjp(t: Translator, equation: core.JaxprEqn, operands: list[Any]) -> Sequence[Any]:
    """What its backward function does to the gradient is transposed, which can be done if it is linear in the gradient."""
    def tangent(function: Callable[..., Any], points: Sequence[Any], moves: Sequence[Any]) -> Any:
        results, backward, others = jax.vjp(function, *points, has_aux=True)
        return results, jax.linear_transpose(lambda *g: backward(list(g)), *results)(tuple(moves)), others

    def remains(function: Callable[..., Any], points: Sequence[Any]) -> Any:
        """What is left of the gradients where that of the results is 0."""
        results, backward, _ = jax.vjp(function, *points, has_aux=True)
        return backward([jax.numpy.zeros_like(y) for y in results])

    try:
        return with_derivative(t, equation, operands, tangent, remains)
    except (NotImplementedError, TypeError, AssertionError, RuntimeError) as error:
        raise Unsupported(f"a custom_vjp: its backward function is not linear in the gradient ({type(error).__name__}), so no forward function has "
                          "it as gradient") from None


def _is_float(x: Any) -> bool:
    return jax.numpy.issubdtype(x.dtype, jax.numpy.floating)


def differentiated(t: Translator, operands: Sequence[Any]) -> list[int]:
    """The operands that a gradient goes through."""
    return [i for i, x in enumerate(operands) if isinstance(x, Value) and t.carried(x)] if t.trains else []


def with_derivative(t: Translator, equation: core.JaxprEqn, operands: list[Any], tangent: Callable[[Any, Sequence[Any], Sequence[Any]], Any],
                    remains: Callable[[Any, Sequence[Any]], Any] | None = None) -> Sequence[Any]:
    """The results without a gradient, as the rule of the derivative gives them, plus the derivative times x - x with only one x differentiated."""
    moved = differentiated(t, operands)
    if not moved:
        return t.inline(equation.params["call_jaxpr"], operands)
    fixed = [i for i in range(len(operands)) if i not in moved]

    def split(others: Sequence[Any]) -> Callable[..., tuple[list[Any], list[Any]]]:
        def function(*changed: Any) -> tuple[list[Any], list[Any]]:
            """The results that are floats, and the others."""
            values = dict(zip((*moved, *fixed), (*changed, *others)))
            results = evaluated(equation, [values[i] for i in range(len(operands))])
            return [y for y in results if _is_float(y)], [y for y in results if not _is_float(y)]

        return function

    types = [[jax.ShapeDtypeStruct(equation.invars[i].aval.shape, equation.invars[i].aval.dtype) for i in some] for some in (moved, moved, fixed)]
    if remains and id(equation) not in t.linear and not any(isinstance(x, Keys) for x in operands):
        rest = jax.jit(lambda points, others: remains(split(others), points))
        for low, high in ((0.5, 1.5), (-1.5, 1.5), (-99, 99)):
            left = rest(*([_sample(x, low, high) for x in some] for some in (types[0], types[2])))
            if any((np.abs(x) > 0).any() for x in left if _is_float(x)):
                raise TypeError("a constant is added")
        t.linear[id(equation)] = equation
    closed = jax.make_jaxpr(lambda points, moves, others: tangent(split(others), points, moves))(*types)
    stopped, moves = [], []
    for i in moved:
        limit = number(LARGEST[operands[i].dtype])
        finite = t.b.unary("clamp", operands[i], f" low -{limit} high {limit}")
        moves.append(t.b.binary("sub", finite, t.b.unary("stop_gradient", finite)))
        stopped.append(t.b.unary("stop_gradient", operands[i]))
    results = t.inline(closed, [*stopped, *moves, *(operands[i] for i in fixed)])
    if any(x is UNKNOWN for x in results):
        return [UNKNOWN] * len(equation.outvars)
    count = sum(_is_float(var.aval) for var in equation.outvars)
    floats = iter([t.b.binary("add", t.value(y), t.value(dy)) for y, dy in zip(results[:count], results[count:])])
    others = iter(results[2 * count:])
    return [next(floats if _is_float(var.aval) else others) for var in equation.outvars]


def _sample(x: jax.ShapeDtypeStruct, low: float, high: float) -> np.ndarray:
    """Numbers from `low` to `high`, or zeros."""
    values = np.random.default_rng(0).uniform(low, high, x.shape) if _is_float(x) else np.zeros(x.shape)
    return values.astype(x.dtype)
