"""What the rules of trainc.jax are tested with: a function of arrays each, with the shapes of these; and functions that are refused."""
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.linalg import cho_factor, cho_solve, lu, lu_factor, solve_triangular
from jax.scipy.stats import multivariate_normal

I = np.array([[2, 0, 1], [3, 3, -1]])  # of 4 rows
MASK = np.arange(12).reshape(3, 4) % 3 == 0


def _pool(x, init, combine, padding="VALID"):
    return lax.reduce_window(x, init, combine, (1, 2, 3, 1), (1, 2, 2, 1), padding)


def _conv(x, w, spec=("NHWC", "HWIO", "NHWC"), strides=(1, 1), padding="SAME", **more):
    return lax.conv_general_dilated(x, w, strides, padding, dimension_numbers=spec, **more)


def _shifted(x):
    """Matrices whose triangles have inverses that are not large."""
    return x + 4 * jnp.eye(x.shape[-1], dtype=x.dtype)


def _exchanged(x):
    """Matrices whose elimination exchanges rows."""
    return jnp.roll(_shifted(x), 1, -1)


def _covariance(x):
    return x @ x.mT + jnp.eye(x.shape[-1], dtype=x.dtype)


def _whole(x):
    return jnp.round(x * 3).astype(jnp.int32)


def _lstm(w, xs):
    def cell(carry, x):
        h, c = carry
        i, f, g, o = jnp.split(jnp.concatenate([x, h]) @ w, 4)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    return lax.scan(cell, (jnp.zeros(3), jnp.zeros(3)), xs)[1]


@jax.jit
def log_softmax(x):
    """Has the name of JAX's and its operations, but is the logarithm of the sum above the maximum."""
    top = jnp.max(x, -1, initial=-jnp.inf, keepdims=True)
    return x - jnp.log(jnp.sum(jnp.exp(x - lax.stop_gradient(top)), -1, keepdims=True))


@jax.custom_vjp
def straight_through(x):
    return jnp.round(x)


straight_through.defvjp(lambda x: (straight_through(x), None), lambda _, g: (g,))


@jax.custom_vjp
def scaled_gradient(x, scale):
    return x * 2


scaled_gradient.defvjp(lambda x, scale: (x * 2, scale), lambda scale, g: (g * scale, jnp.zeros_like(scale)))


@jax.custom_vjp
def several(x):
    """Results of several types; forward gives others than the function alone."""
    return x * 2, jnp.argmax(x), x > 0


several.defvjp(lambda x: ((x * 3, jnp.argmax(x), x > 0), None), lambda _, g: (g[0] * 5,))


@jax.custom_jvp
def restated(x):
    return x * 2


restated.defjvp(lambda p, t: (p[0] * 3, t[0] * p[0] * 5))


@jax.custom_vjp
def shifted_gradient(x):
    return x


shifted_gradient.defvjp(lambda x: (x, None), lambda _, g: (g + 1,))


@jax.custom_vjp
def pushed_up(x):
    return x


pushed_up.defvjp(lambda x: (x, x), lambda x, g: (g - jnp.where(x < -50, 1, 0),))


@jax.custom_jvp
def soft_square(x):
    return x * x


soft_square.defjvp(lambda p, t: (p[0] * p[0], jnp.tanh(p[0]) * t[0]))


@jax.custom_vjp
def clipped_gradient(x):
    return x


clipped_gradient.defvjp(lambda x: (x, None), lambda _, g: (jnp.clip(g, -1, 1),))


@jax.custom_jvp
@jax.jit
def twice_steep(x):
    """jax.nn.relu by its body."""
    return jnp.maximum(x, 0)


twice_steep.defjvp(lambda x, t: (twice_steep(*x), jnp.where(x[0] > 0, 2 * t[0], 0)))


def _far(i):
    """Indices behind all rows; those of 64 bits are in 32 the ones given."""
    return i + (1 << (32 if i.dtype == jnp.int64 else 30))


def _set(x, i, v, **more):
    return x.at[i].set(v, **more)


# Name -> (function, shapes of its operands); operands are drawn from the normal distribution.
CASES = {
    "arithmetic": (lambda a, b: (a + b) * a / (b * b + 1) - a, (3, 4), (4,)),
    "powers": (lambda a, b: a**3 + a**-2 + (a * a + 1)**b + a**2.0 + 2.0**b, (3, 4), (3, 4)),
    "functions": (lambda a: sum(f(a) for f in (jnp.exp, jnp.sin, jnp.cos, jnp.tanh, jnp.square, jnp.abs, jax.nn.sigmoid, lax.erf, jnp.tan, jnp.arctan,
                                               jnp.sinh, jnp.cosh, jnp.arcsinh, jnp.expm1, jnp.exp2, jnp.cbrt, lax.erfc)), (3, 4)),
    "positive": (lambda a: sum(f(a * a + 0.1) for f in (jnp.log, jnp.sqrt, lax.rsqrt, jnp.log1p, lax.lgamma, lax.digamma, jnp.log2, jnp.log10)),
                 (3, 4)),
    "unit": (lambda a: sum(f(jnp.tanh(a)) for f in (jnp.arcsin, jnp.arccos, jnp.arctanh, lax.erf_inv)), (3, 4)),
    "acosh": (lambda a: jnp.arccosh(a * a + 1.1), (3, 4)),
    "two": (lambda a, b: jnp.arctan2(a, b) + jnp.maximum(a, b) * jnp.minimum(a, b) + jnp.logaddexp(a, b) + jnp.hypot(a, b), (3, 4), (3, 4)),
    "remainder": (lambda a, b: jnp.remainder(a, b) + jnp.fmod(a, b), (3, 4), (3, 4)),
    "rounding": (lambda a: a * (jnp.floor(a) + jnp.ceil(a) + jnp.round(a) + jnp.trunc(a) + jnp.sign(a) + lax.round(a)), (3, 4)),
    "bounds": (lambda a: jnp.clip(a, -0.5, 0.5) + lax.clamp(-1.0, a, 1.0) + jax.nn.relu6(a) + jax.nn.hard_tanh(a), (3, 4)),
    "at bounds": (lambda a: lax.clamp(0.0, jnp.round(a) * 0 + a * 0 + 1.0, 1.0) * a + jnp.maximum(a * 0, 0.0) + jax.nn.relu(a * 0), (3, 4)),
    "clamp by arrays": (lambda a, b: lax.clamp(b - 0.5, a, b + 0.5), (3, 4), (3, 4)),
    "logic": (lambda a, b: jnp.where((a > b) & ~(a < 0) | (b > 1) ^ (a == b), a, b) * jnp.isfinite(a), (3, 4), (3, 4)),
    "selection": (lambda a: lax.select_n(np.array([0, 1, 2, 1]), a[0], a[1] * 2, a[2] * 3), (3, 4)),
    "where without NaN": (lambda a: jnp.where(a > 0, jnp.log(jnp.where(a > 0, a, 1.0)), 0.0), (3, 4)),
    "activations": (lambda a: sum(f(a) for f in (jax.nn.relu, jax.nn.gelu, functools.partial(jax.nn.gelu, approximate=False), jax.nn.silu, jax.nn.elu,
                                                 jax.nn.softplus, jax.nn.leaky_relu, jax.nn.log_sigmoid, jax.nn.celu, jax.nn.selu, jax.nn.mish,
                                                 jax.nn.hard_sigmoid, jax.nn.hard_swish, jax.nn.squareplus, jax.nn.soft_sign)), (3, 4)),
    "glu": (jax.nn.glu, (3, 4)),
    "softmax": (lambda a: jax.nn.softmax(a, axis=0) + jax.nn.log_softmax(a) + jax.nn.softmax(a, where=MASK), (3, 4)),
    "logsumexp": (lambda a: jax.nn.logsumexp(a, axis=1) + jax.nn.logsumexp(a), (3, 4)),
    "norms": (lambda a: jnp.linalg.norm(a, axis=1) + jnp.linalg.norm(a) + jnp.var(a, axis=1) + jnp.std(a, axis=1), (3, 4)),
    "standardize": (lambda a: jax.nn.standardize(a), (3, 4)),
    "sums": (lambda a: jnp.sum(a, 0, keepdims=True) * jnp.mean(a) + jnp.prod(a, 1)[:, None] + jnp.max(a, 0) - jnp.min(a), (3, 4)),
    "any": (lambda a: a * jnp.any(a > 0, 1)[:, None] * jnp.all(a > -9), (3, 4)),
    "scans": (lambda a: jnp.cumsum(a, 0) + jnp.cumprod(a, 1) + lax.cummax(a, 0) + lax.cummin(a, 1) + lax.cumlogsumexp(a, 0)
              + lax.cumsum(a, 1, reverse=True), (3, 4)),
    "scans of equal elements": (lambda a: lax.cummax(a - lax.stop_gradient(a), 1) + lax.cummin(a - lax.stop_gradient(a), 0, reverse=True), (3, 4)),
    "associative scan": (lambda a: lax.associative_scan(lambda x, y: x * y + y, a), (5, 4)),
    "sorting": (lambda a: jnp.sort(a, 1) * np.arange(4.0) + jnp.take_along_axis(a, jnp.argsort(-a, 1), 1), (3, 4)),
    "sort with values": (lambda a, b: lax.sort((a, b), num_keys=1)[1], (3, 4), (3, 4)),
    "top k": (lambda a: lax.top_k(a, 2)[0] * np.array([1.0, 2.0]), (3, 4)),
    "argmax": (lambda a: a * jax.nn.one_hot(jnp.argmax(a, 1), 4) + a * jax.nn.one_hot(jnp.argmin(a, 1), 4), (3, 4)),
    "shapes": (lambda a: jnp.tile(a.T.reshape(2, 6), (2, 1))[::-1, ::2] + jnp.flip(jnp.roll(a, 1, 0), 1).reshape(4, 3), (3, 4)),
    "pads": (lambda a: lax.pad(a, 2.0, ((1, -1, 1), (-1, 2, 0))) + jnp.pad(a, ((1, 1), (1, 0)), mode="edge")[:5, :5], (3, 4)),
    "pad by a value": (lambda a: lax.pad(a, a[0, 0], ((1, 1, 0), (0, 0, 0))), (3, 4)),
    "joins": (lambda a, b: jnp.concatenate([a, b], 1) * 2 + jnp.hstack([b, a]) + jnp.stack([a, b], 1).reshape(3, 8), (3, 4), (3, 4)),
    "splits": (lambda a: sum(jnp.split(a, 2, 1)) + a[1:2, 1:3] + a[..., -2:] * a[0, 0], (3, 4)),
    "einsum": (lambda a, b: jnp.einsum("bij,bjk->ik", a, b) + jnp.einsum("bij,bjk->bki", a, b).sum(0).T, (2, 3, 4), (2, 4, 5)),
    "products": (lambda a, b: (a @ b).sum() * jnp.dot(b[:, 0], a[0]) + jnp.outer(a[0], b[:, 1]), (3, 4), (4, 5)),
    "tensor product": (lambda a, b: jnp.tensordot(a, b, ((1, 2), (0, 2))), (2, 3, 4), (3, 5, 4)),
    "batched dot": (lambda a, b: jnp.einsum("bi,bi->b", a, b) + jax.vmap(jnp.dot)(a, b), (3, 4), (3, 4)),
    "a softmax of its own": (lambda a: log_softmax(a) * a, (3, 4)),
    "gradient of a softmax in the loss": (lambda a: jax.grad(lambda x: jnp.sum(jax.nn.log_softmax(x)[:, 1] * x[:, 0]))(a), (3, 4)),
    "attention": (lambda q, k, v: jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) * 0.5), v),
                  (2, 5, 2, 4), (2, 5, 2, 4), (2, 5, 2, 4)),
    "inverses": (lambda a: jnp.linalg.inv(_exchanged(a)) + jnp.linalg.inv(_exchanged(a)[0]), (3, 4, 4)),
    "determinants": (lambda a: jnp.linalg.slogdet(_exchanged(a))[1] * jnp.linalg.slogdet(_exchanged(a))[0]
                     + jnp.linalg.det(_shifted(a)) / 99, (3, 4, 4)),
    "equations": (lambda a, b: jnp.linalg.solve(_exchanged(a), b) + jnp.linalg.solve(_exchanged(a), b[:, 0])[:, None], (4, 4), (4, 3)),
    "triangles": (lambda a, b: sum(solve_triangular(_shifted(a), b, trans=trans, lower=lower) for trans in (0, 1) for lower in (True, False))
                  + solve_triangular(a / 4, b, unit_diagonal=True), (4, 4), (4, 3)),
    "triangles behind": (lambda a, b: lax.linalg.triangular_solve(_shifted(a), b, lower=True), (2, 4, 4), (2, 3, 4)),
    "cholesky": (lambda a: jnp.linalg.cholesky(_covariance(a)) + jnp.linalg.cholesky(_covariance(a), upper=True)
                 + lax.linalg.cholesky(_covariance(a) + jnp.triu(a, 1), symmetrize_input=False), (2, 4, 4)),
    "cholesky solve": (lambda a, b: cho_solve(cho_factor(_covariance(a)), b), (4, 4), (4, 3)),
    "lu": (lambda a: lu(_exchanged(a))[2] + lu_factor(_exchanged(a))[0], (4, 4)),
    "equations by own functions": (lambda a, b: lax.custom_linear_solve(
        lambda v: _covariance(a) @ v, b, lambda _, v: jnp.linalg.solve(_covariance(lax.stop_gradient(a)), v), symmetric=True), (4, 4), (4,)),
    "densities": (lambda m, a: multivariate_normal.logpdf(jnp.ones(4, m.dtype), m, _covariance(a)), (4,), (4, 4)),
    "gradients of matrices": (lambda a: jax.grad(lambda x: jnp.linalg.slogdet(_exchanged(x))[1])(a)**2, (4, 4)),
    "embedding": (lambda a: a[I] + jnp.take(a, I, axis=0) * 2 + jnp.take(a, I, axis=0, mode="clip"), (4, 5)),
    "columns": (lambda a: a[:, np.array([1, 0, 2])] + a[np.array([0, 1, 2]), np.array([3, 0, 0])][:, None] + a[1][None, :3], (3, 4)),
    "fill": (lambda a: jnp.take(a, np.array([0, 7, -9, 2]), axis=0, mode="fill", fill_value=3.0), (4, 5)),
    "along an axis": (lambda a: jnp.take_along_axis(a, np.array([[1], [0], [3]]), 1), (3, 4)),
    "dynamic": (lambda a: lax.dynamic_slice(a, (jnp.argmax(a[:, 0]), 1), (2, 2)) + lax.dynamic_index_in_dim(a, jnp.argmin(a[0]), 1)[:2], (4, 4)),
    "dynamic update": (lambda a, b: lax.dynamic_update_slice(a, b, (1, 1))
                       + lax.dynamic_update_slice(a, b, (jnp.argmax(a[:, 0]), 0)), (4, 4), (2, 3)),
    "updates": (lambda a, b: a.at[I].add(b) + a.at[1].set(b[0, 0])
                + a.at[1:3, 0].set(7.0) + a.at[np.array([0, 2])].multiply(1.0), (4, 5), (2, 3, 5)),
    "the last update": (lambda a, b: _set(a, np.array([1, 1, 3]), b), (4, 5), (3, 5)),
    "dropped updates": (lambda a, b: a.at[np.array([1, 9, 3])].add(b) + _set(a, np.array([1, 9, 3]), b, mode="drop"), (4, 5), (3, 5)),
    "segments": (lambda a: jax.ops.segment_sum(a, np.array([0, 0, 2, 1]), 3) + jax.ops.segment_sum(a * a, np.array([0, 0, 2, 1]), 3), (4, 5)),
    "extrema of segments": (lambda a: jax.ops.segment_max(a, np.array([0, 0, 2, 1]), 3) + jax.ops.segment_min(a, np.array([0, 0, 2, 1]), 3),
                            (4, 5)),
    "convolution": (_conv, (2, 5, 6, 3), (3, 2, 3, 4)),
    "strided convolution": (lambda x, w: _conv(x, w, ("NCHW", "OIHW", "NCHW"), (2, 1), ((1, 2), (0, 1)), rhs_dilation=(1, 2),
                                               feature_group_count=2), (2, 4, 7, 6), (6, 2, 3, 2)),
    "transposed convolution": (lambda x, w: lax.conv_transpose(x, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")),
                               (2, 3, 4, 3), (3, 3, 3, 2)),
    "convolution of sequences": (lambda x, w: _conv(x, w, ("NWC", "WIO", "NWC"), (2,)),
                                 (2, 8, 3), (3, 3, 4)),
    "convolution of volumes": (lambda x, w: _conv(x, w, ("NDHWC", "DHWIO", "NDHWC"), (1, 1, 1), "VALID"), (1, 3, 4, 4, 2), (2, 2, 3, 2, 3)),
    "pooling": (lambda x: _pool(x, -jnp.inf, lax.max) + _pool(x, 0.0, lax.add) + _pool(x, jnp.inf, lax.min), (2, 6, 7, 3)),
    "pooling with borders": (lambda x: _pool(x, -jnp.inf, lax.max, "SAME") * _pool(x, 0.0, lax.add, "SAME"), (2, 5, 6, 3)),
    "windows by slices": (lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2, 2, 2, 1), (1, 2, 2, 1), "VALID")
                          + lax.reduce_window(_whole(x), 0, lax.add, (2, 2, 2, 1), (1, 2, 2, 1), "VALID"), (2, 6, 7, 3)),
    "windows with dilation": (lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), (1, 1, 1, 1), ((0, 0), (3, 0), (0, -1), (0, 0)),
                                                          (1, 2, 1, 1), (1, 1, 2, 1)), (2, 4, 5, 3)),
    "scan": (_lstm, (5, 12), (4, 2)),
    "reverse scan": (lambda a: lax.scan(lambda c, x: (c * 0.5 + x, c * x), jnp.zeros(4), a, reverse=True)[1], (5, 4)),
    "loops": (lambda a: lax.fori_loop(0, 3, lambda i, x: x * a + i, a)
              + lax.fori_loop(0, lax.stop_gradient(3), lambda i, s: s + i, 0), (3, 4)),
    "map": (lambda a: lax.map(lambda row: row * row.sum(), a), (3, 4)),
    "branches": (lambda a: lax.cond(a[0, 0] > 0, lambda x: jnp.log(x * x), jnp.sin, a)
                 + lax.switch(jnp.argmax(a[:, 0]), [jnp.sin, jnp.cos, jnp.exp], a), (3, 4)),
    "branch without NaN": (lambda a: lax.cond(jnp.sum(a) > 1e9, lambda x: jnp.sqrt(x * 0 - 1), lambda x: x, a), (3, 4)),
    "checkpoint": (jax.checkpoint(lambda a: jnp.sin(jnp.exp(a)) * a), (3, 4)),
    "stop gradient": (lambda a: a * lax.stop_gradient(a * a), (3, 4)),
    "own derivatives": (lambda a, b: straight_through(a) * b + scaled_gradient(a, b) + soft_square(a), (3, 4), (3, 4)),
    "rules with results": (lambda a: restated(a) + several(a)[0] * several(a)[2] + several(a)[1] + jax.vmap(jax.checkpoint(restated))(a), (3, 4)),
    "a loop without steps": (lambda a: lax.scan(lambda c, x: (c * x, x), a[0], a[:0])[0] * jnp.concatenate(
        [lax.scan(lambda c, x: (c * x, x), a[0], a[:0])[1], a]), (3, 4)),
    "nearly relu": (lambda a: a * twice_steep(abs(a[0, 0])) + twice_steep(a[:1, :1]), (3, 4)),
    "reduced precision": (lambda a: a * (lax.reduce_precision(lax.stop_gradient(a * 2.0**-14), 5, 10) * 2.0**14
                                         + lax.reduce_precision(lax.stop_gradient(a).astype(jnp.float16), 8, 7)), (3, 4)),
    "indices that are too large": (lambda a: jnp.take(a, _far(jnp.argsort(a[:, 0])), axis=0, mode="clip")[:2]
                                   + lax.dynamic_slice(a, (_far(jnp.argmax(a[0])), 0), (2, 3)), (4, 3)),
    "vmap": (jax.vmap(lambda a, b: jnp.where(a.sum() > 0, a @ b, b.sum()), (0, None)), (3, 4), (4,)),
    "named axes": (jax.vmap(lambda a: a * lax.psum(a, "row") - lax.pmean(a, "row") * lax.pmax(lax.stop_gradient(a), "row"), axis_name="row"), (3, 4)),
    "gradient in the loss": (lambda a: jax.grad(lambda x: jnp.sum(jnp.sin(x)**2))(a), (3, 4)),
    "jacobian": (lambda a: jax.jacfwd(lambda x: jnp.tanh(x) * x.sum())(a), (4,)),
    "interpolation": (lambda a: jax.image.resize(a, (4, 8), "bilinear") + jnp.interp(np.array([0.25]), np.arange(2.0), a[:, 0]), (2, 4)),
    "absolute at 0": (lambda a: jnp.abs(a - lax.stop_gradient(a)), (3, 4)),
    "bounds in disorder": (lambda a: lax.clamp(0.5, a, -0.5) + lax.clamp(abs(a) * 0, a, -abs(a)), (3, 4)),
    "no number": (lambda a: a * jnp.isnan(jnp.sign(jnp.log(a))) + a * jnp.isnan(jnp.arccosh(a * 0 - 1e30)), (3, 4)),
    "bits": (lambda a: a * (_whole(a) & 6 | 1 ^ ~_whole(a)) + (_whole(a) << 2) + (_whole(a) >> 1)
             + jnp.power(abs(_whole(a)), abs(_whole(a)) % 4), (3, 4)),
    "products of integers": (lambda a: a * (_whole(a) @ _whole(a).T @ _whole(a)), (3, 4)),
    "without a sign": (lambda a: a * (_whole(a).astype(jnp.uint8) * jnp.uint8(77) - jnp.uint8(9) > 100) + (a * 99).astype(jnp.uint8), (3, 4)),
    "quotients without a sign": (lambda a: a * (lax.div(jnp.full(a.shape, 200, jnp.uint8), _whole(a).astype(jnp.uint8) % 3) / 16), (3, 4)),
    "search": (lambda a: a * jnp.searchsorted(jnp.sort(a[0]), a) + jnp.digitize(a, np.array([-1.0, 0.0, 0.5])), (3, 4)),
    "sort by two keys": (lambda a, b: lax.sort((jnp.round(a), b, a * b), num_keys=2)[2] * np.arange(9.0), (2, 9), (2, 9)),
    "rows of any type": (lambda a: a * (a > 0)[np.array([2, 0, 0])] + _whole(a)[jnp.argsort(a[:, 0])] + (a > 0).at[1].set(True) * a
                         + _whole(a).at[jnp.argmax(a[:, 0])].set(5) + _whole(a).at[np.array([0, 0])].max(1), (3, 4)),
    "the largest integer": (lambda a: a * (jnp.pad(jnp.argsort(a), 1, constant_values=np.iinfo(jnp.argsort(a).dtype).max)[:3, :4] > 9), (3, 4)),
    "parts of rows": (lambda a: a[1:3, np.array([0, 2]), :2] + a[1:3, jnp.argsort(a[0, :2, 0]), 1:], (4, 5, 3)),
    "slices by vmap": (lambda a: jax.vmap(lambda x, i: lax.dynamic_slice(x, (i, i - 1), (2, 2)))(a, jnp.argsort(a[:, 0, 0])), (4, 5, 3)),
    "updates of parts": (lambda a, b: a.at[np.array([1, 3, 1]), 1:3].add(b) + _set(a, (np.array([1, 3, 1]), slice(1, 3)), b)
                         + a.at[1, 1:3].multiply(b[0]) + a.at[1:3, 1:3].max(b[:2]), (4, 5, 3), (3, 2, 3)),
    "updates by vmap": (lambda a, b: jax.vmap(lambda x, y, i: lax.dynamic_update_slice(x, y, (i, 0)))(a, b, jnp.argsort(a[:, 0, 0])),
                        (4, 5, 3), (4, 2, 3)),
    "an update that is moved": (lambda a, b: a.at[7, 1:3].set(b, mode="clip") + a.at[7, 1:3].add(b, mode="drop"), (4, 5, 3), (2, 3)),
    "updates of all": (lambda a, b: a.at[...].max(b) + a.at[...].multiply(b) + a.at[np.array([0, 2, 2])].subtract(b[:3]), (4, 5), (4, 5)),
    "constants": (lambda a: a * np.arange(12.0).reshape(3, 4) + np.arange(4) + math.pi * np.tri(3, 4), (3, 4)),
    "a large constant": (lambda a: a @ np.sin(np.arange(4096.0)).reshape(4, 1024), (3, 4)),
}

# Name -> (function, shapes, what the error says).
REFUSED = {
    "complex": (lambda a: jnp.real(jnp.fft.fft(a)), ((4,),), "complex"),
    "a loop over data": (lambda a: lax.while_loop(lambda x: x[0] < 10, lambda x: x * x, a), ((3,),), "a loop whose end depends on data"),
    "a gradient that is clipped": (clipped_gradient, ((3,),), "its backward function is not linear"),
    "a gradient with a constant": (shifted_gradient, ((3,),), "its backward function is not linear"),
    "a gradient with a constant at some numbers": (pushed_up, ((20,),), "its backward function is not linear"),
    "a function of elements": (lambda a: lax.stop_gradient(a).at[1].apply(jnp.exp) * a, ((3,),), "x.at[i].set(f(x[i]))"),
    "print": (lambda a: jax.debug.print("{}", a[0]) or a, ((3,),), "nothing is"),
    "callback": (lambda a: jax.pure_callback(np.sin, jax.ShapeDtypeStruct((3,), a.dtype), a), ((3,),), "a step does not call Python"),
    "bits": (lambda a: a.view(jnp.int64).astype(float), ((3,),), "bitcast_convert_type"),
    "eigenvalues": (lambda a: jnp.linalg.eigvalsh(a), ((3, 3),), "eigh"),
}
