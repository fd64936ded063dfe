"""Factors of matrices and linear equations: loops over rows, which are unrolled. Derivatives are by JAX's own rules."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core

from .structures import differentiated, forward, with_derivative
from .translate import Translator, structure


def _cholesky(a: jax.Array) -> jax.Array:
    """Column by column, of the lower triangle."""
    rows, factor = jnp.arange(a.shape[-1]), jnp.zeros_like(a[..., :0])
    for k in range(a.shape[-1]):
        column = a[..., k] - jnp.sum(factor * factor[..., k:k + 1, :], -1)
        column = jnp.where(rows >= k, column / jnp.sqrt(column[..., k:k + 1]), 0)
        factor = jnp.concatenate([factor, column[..., None]], -1)
    return factor


def _triangular_solve(a: jax.Array, b: jax.Array, *, left_side: bool, lower: bool, transpose_a: bool, unit_diagonal: bool, **_: Any) -> jax.Array:
    """Substitution: each row of the result from those before it. Conjugates are of complex numbers."""
    n = a.shape[-1]
    if not left_side:
        b, transpose_a = b.mT, not transpose_a
    if transpose_a:
        a, lower = a.mT, not lower
    part = jnp.tril(a, -1) if lower else jnp.triu(a, 1)
    x, rows = b, jnp.arange(n)[:, None]
    for k in range(n) if lower else reversed(range(n)):
        row = x[..., k:k + 1, :]
        row = row if unit_diagonal else row / a[..., k:k + 1, k:k + 1]
        x = jnp.where(rows == k, row, x - part[..., k:k + 1] * row)
    return x if left_side else x.mT


def _lu(a: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Factors in one matrix, the rows exchanged and their order: partial pivoting (Golub and Van Loan, Matrix Computations, 3.4)."""
    rows, columns, pivots = jnp.arange(a.shape[-2]), jnp.arange(a.shape[-1]), []
    for k in range(min(a.shape[-2:])):
        place = jnp.argmax(jnp.where(rows >= k, jnp.abs(a[..., k]), -1), -1, keepdims=True)
        is_place, is_k = rows == place, rows == k
        own, at_place = a[..., k:k + 1, :], jnp.sum(jnp.where(is_place[..., None], a, 0), -2, keepdims=True)
        a = jnp.where(is_k[:, None], at_place, jnp.where(is_place[..., None], own, a))
        factor = jnp.where(rows[:, None] > k, a[..., k:k + 1] / at_place[..., k:k + 1], 0)
        a = jnp.where((rows[:, None] > k) & (columns == k), factor, a - factor * jnp.where(columns > k, at_place, 0))
        pivots.append(place.astype(jnp.int32))
    exchanged = jnp.concatenate(pivots, -1)
    return a, exchanged, _permutation(exchanged, permutation_size=a.shape[-2])


def _permutation(pivots: jax.Array, *, permutation_size: int) -> jax.Array:
    rows = jnp.arange(permutation_size, dtype=jnp.int32)
    order = jnp.broadcast_to(rows, (*pivots.shape[:-1], permutation_size))
    for k in range(pivots.shape[-1]):
        is_place, is_k = rows == pivots[..., k:k + 1], rows == k
        number, at = order[..., k:k + 1], jnp.sum(jnp.where(is_place, order, 0), -1, keepdims=True)
        order = jnp.where(is_k, at, jnp.where(is_place, number, order))
    return order.astype(jnp.int32)


LOOPS: dict[str, Callable[..., Any]] = {
    "cholesky": _cholesky, "triangular_solve": _triangular_solve, "lu": _lu, "lu_pivots_to_permutation": _permutation}


@structure(*LOOPS)
def factored(t: Translator, equation: core.JaxprEqn, operands: list[Any]) -> Sequence[Any]:
    if differentiated(t, operands[:1]):  # the matrix: the solution is linear in the other side
        return with_derivative(t, equation, operands, forward)
    loop = jax.make_jaxpr(lambda *x: LOOPS[equation.primitive.name](*x, **equation.params))
    return t.inline(loop(*(jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in equation.invars)), operands)


@structure("custom_linear_solve")
def solved(t: Translator, equation: core.JaxprEqn, operands: list[Any]) -> Sequence[Any]:
    lengths = equation.params["const_lengths"]
    constants = sum(lengths)
    if differentiated(t, operands[:constants]):
        return with_derivative(t, equation, operands, forward)
    begin = lengths.matvec + lengths.vecmat
    return t.inline(equation.params["jaxprs"].solve, [*operands[begin:begin + lengths.solve], *operands[constants:]])
