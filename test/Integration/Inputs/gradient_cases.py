"""The table of gradients.py: op x operands x shapes, each with its definition in JAX.

Every op has at least three shapes: one with 1s, one odd, one above a tile of the generated kernels; binary ops also have
broadcasting operands, and every optional operand and attribute has a case.
"""
from dataclasses import dataclass
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import optax

rng = np.random.default_rng(20)
ONES, ODD, LARGE = (1, 1), (3, 7), (130, 257)
SHAPES = [ONES, ODD, LARGE]


class Fixed(np.ndarray):
    """An operand that is an input, not a parameter."""


def fixed(array):
    return np.asarray(array).view(Fixed)


@dataclass
class Case:
    """`text` is the op with operands {0}, {1}, ... and types {t0}, {t1}, ..., or lines that name their own results, the last
    one {out}; `define` gives the first result. Integer, bool and Fixed operands are inputs. `smooth`: finite differences
    make sense."""
    op: str
    text: str
    operands: list
    define: object
    results: int = 1
    smooth: bool = True

    @property
    def name(self):
        shapes = ", ".join("x".join(map(str, o.shape)) or "scalar" for o in self.operands)
        words = self.text.split(f"nn.{self.op} ")[1].split(" : ")[0].split()
        details = " ".join(word for word in words if "{" not in word)
        return f"{self.op}({shapes})" + (f" {details}" if details else "")


def normal(shape):
    return rng.standard_normal(shape)


def positive(shape):
    return rng.uniform(0.5, 2.0, shape)


def grid(shape, offset=0):
    """Never within 1/32 of a multiple of 1/16 (plus the offset): away from the bends of piecewise functions."""
    return np.round(rng.standard_normal(shape) * 16) / 16 + 1 / 32 + offset


def distinct(shape):
    """No two values nearer than 0.1."""
    n = int(np.prod(shape))
    return (rng.permutation(n) - n / 2).reshape(shape) * 0.1


def index(shape, high):
    return rng.integers(0, high, shape).astype(np.int32)


def types(n):
    return ", ".join(f"{{t{i}}}" for i in range(n))


# Elementwise.

def elementwise():
    unary = dict(neg=jnp.negative, exp=jnp.exp, sin=jnp.sin, cos=jnp.cos, tanh=jnp.tanh, erf=jax.scipy.special.erf,
                 sigmoid=jax.nn.sigmoid, silu=jax.nn.silu)
    rooted = dict(log=jnp.log, sqrt=jnp.sqrt, rsqrt=jax.lax.rsqrt)
    bent = dict(relu=jax.nn.relu, abs=jnp.abs)
    for values, table in ((normal, unary), (positive, rooted), (grid, bent)):
        for (op, f), shape in product(table.items(), SHAPES):
            yield Case(op, f"nn.{op} {{0}} : {{t0}}", [values(shape)], f)
    for shape in SHAPES:
        for form in ("tanh", "erf"):
            yield Case("gelu", f"nn.gelu {{0}} {form} : {{t0}}", [normal(shape)],
                       lambda x, form=form: jax.nn.gelu(x, approximate=form == "tanh"))
        for op, f in dict(floor=jnp.floor, ceil=jnp.ceil, round=jnp.round).items():
            yield Case(op, f"nn.{op} {{0}} : {{t0}}", [grid(shape) * 3.5 + 0.25], f)
        yield Case("clamp", "nn.clamp {0} low -0.75 high 0.875 : {t0}", [grid(shape)], lambda x: jnp.clip(x, -0.75, 0.875))
        yield Case("stop_gradient", "nn.stop_gradient {0} : {t0}", [normal(shape)], jax.lax.stop_gradient, smooth=False)
        inner = f"tensor<{'x'.join(map(str, shape))}xf32>"
        yield Case("cast", f"{{tmp}} = nn.cast {{0}} to f32 : {{t0}}\n{{out}} = nn.cast {{tmp}} to {{e}} : {inner}",
                   [normal(shape)], lambda x: x.astype(jnp.float32).astype(x.dtype), smooth=False)


BROADCAST = [(ONES, ONES), (ODD, ODD), (LARGE, LARGE), (ODD, (7,)), (LARGE, (257,)), ((3, 1), ODD), ((5, 1, 7), (3, 1)),
             ((), ODD), (LARGE, ())]


def binary():
    table = dict(add=(jnp.add, normal, normal), sub=(jnp.subtract, normal, normal), mul=(jnp.multiply, normal, normal),
                 div=(jnp.divide, normal, positive), pow=(jnp.power, positive, normal))
    for (op, (f, first, second)), (a, b) in product(table.items(), BROADCAST):
        yield Case(op, f"nn.{op} {{0}}, {{1}} : {types(2)}", [first(a), second(b)], f)
    # The gradient of an exponent is 0 where the base is, also where the power is infinite.
    zeros = np.where(rng.integers(0, 2, ODD), 0.0, positive(ODD))
    yield Case("pow", f"{{tmp}} = nn.pow {{0}}, {{1}} : {types(2)}\n{{out}} = nn.min {{tmp}}, {{2}} : {{t0}}, {{t2}}",
               [fixed(zeros), -positive(ODD), fixed(np.full(ODD, 9.0))],
               lambda x, y, c: jnp.where(x == 0, c, jnp.minimum(jnp.where(x == 0, 1.0, x) ** y, c)))
    for (op, f), (a, b) in product(dict(max=jnp.maximum, min=jnp.minimum).items(), BROADCAST):
        yield Case(op, f"nn.{op} {{0}}, {{1}} : {types(2)}", [grid(a), grid(b, 1 / 32)], f)
    for a, b in BROADCAST:
        condition = rng.integers(0, 2, a).astype(bool)
        yield Case("select", f"nn.select {{0}}, {{1}}, {{2}} : {types(3)}", [np.asarray(condition), normal(b), normal(a)],
                   jnp.where)


# Shape and order.

def shapes():
    for shape in [(1, 1, 1), (3, 5, 7), (9, 65, 70)]:
        a, b, c = shape
        x = normal(shape)
        yield Case("reshape", f"nn.reshape {{0}} : {{t0}} to tensor<{a * b}x{c}x{{e}}>", [x],
                   lambda x: x.reshape(-1, x.shape[-1]))
        yield Case("broadcast", f"nn.broadcast {{0}} : {{t0}} to tensor<2x{a}x{b}x{c}x{{e}}>", [normal((a, 1, c))],
                   lambda x, s=shape: jnp.broadcast_to(x, (2, *s)))
        for p in ([0, 2, 1], [2, 0, 1]):
            yield Case("transpose", f"nn.transpose {{0}} {p} : {{t0}}", [x], lambda x, p=p: x.transpose(p))
        yield Case("slice", f"nn.slice {{0}} offsets [0, {b // 3}, 0] sizes [{a}, {-(-b // 3)}, {c}] : {{t0}}", [x],
                   lambda x: x[:, x.shape[1] // 3:x.shape[1] // 3 + -(-x.shape[1] // 3)])
        yield Case("slice", f"nn.slice {{0}} offsets [0, 0, 0] sizes [{a}, {-(-b // 2)}, {-(-c // 3)}] strides [1, 2, 3]"
                   " : {t0}", [x], lambda x: x[:, ::2, ::3])
        for interior in (0, 2):
            text = f" interior [0, {interior}, 0]" if interior else ""
            yield Case("pad", f"nn.pad {{0}} low [0, 2, 1] high [1, 0, 3]{text} value 1.5 : {{t0}}", [x],
                       lambda x, i=interior: jax.lax.pad(x, jnp.array(1.5, x.dtype), [(0, 1, 0), (2, 0, i), (1, 3, 0)]))
        for dim in range(3):
            other = list(shape)
            other[dim] += 2
            yield Case("concat", f"nn.concat {{0}}, {{1}}, {{0}} dim {dim} : {{t0}}, {{t1}}, {{t0}}", [x, normal(other)],
                       lambda x, y, d=dim: jnp.concatenate([x, y, x], d))
            parts = list(shape)
            parts[dim] *= 3
            yield Case("part", f"{{tmp}} = nn.cast {{1}} to i64 : {{t1}}\n{{out}} = nn.part {{0}} at {{tmp}} dim {dim} of 3"
                       " : {t0}", [normal(parts), np.array(2 - dim)],
                       lambda x, i, d=dim: jnp.split(x, 3, d)[2 - d])
            picked = list(shape)
            picked[dim] = shape[dim] + 2
            i = index(picked, shape[dim])
            yield Case("gather", f"nn.gather {{0}}, {{1}} dim {dim} : {types(2)}", [x, i],
                       lambda x, i, d=dim: jnp.take_along_axis(x, i, d))
            yield Case("scatter_add", f"nn.scatter_add {{0}}, {{1}} dim {dim} : {types(2)} to"
                       f" tensor<{a}x{b}x{c}x{{e}}>", [i, normal(picked)],
                       lambda i, u, d=dim, s=shape: sum_at(i, u, d, s))


def sum_at(i, u, dim, shape):
    where = list(jnp.indices(i.shape))
    where[dim] = i
    return jnp.zeros(shape, u.dtype).at[tuple(where)].add(u)


def reductions():
    functions = dict(sum=jnp.sum, max=jnp.max, min=jnp.min, prod=jnp.prod)
    for (kind, f), shape in product(functions.items(), [(1, 1, 1), (3, 5, 7), (9, 65, 70)]):
        values = distinct(shape) if kind in ("max", "min") else \
            1 + 0.02 * normal(shape) if kind == "prod" else normal(shape)
        for dims, keep in (([2], False), ([2], True), ([0], False), ([0, 1, 2], False), ([1], True), ([0, 2], False)):
            yield Case("reduce", f"nn.reduce {kind} {{0}} dims {dims}{' keep' if keep else ''} : {{t0}}", [values],
                       lambda x, f=f, d=dims, k=keep: f(x, tuple(d), keepdims=k),
                       smooth=kind != "prod" or np.prod([shape[d] for d in dims]) < 100)  # a product of many bends much
    for shape in [(1, 1, 1), (3, 5, 7), (2, 9, 10)]:  # distinct in bf16, too
        for dim, down in product(range(3), ("", " descending")):
            yield Case("sort", f"nn.sort {{0}} dim {dim}{down} : {{t0}}", [distinct(shape)],
                       lambda x, d=dim, r=down: jnp.flip(jnp.sort(x, d), d) if r else jnp.sort(x, d), 3)
    for zeros in (1, 2):
        x = 1 + 0.5 * normal((3, 5))
        x[1, :zeros] = 0
        yield Case("reduce", "nn.reduce prod {0} dims [1] : {t0}", [x], lambda x: jnp.prod(x, 1))


# Products.

def products():
    for m, n, k in [(1, 1, 1), (3, 7, 5), (70, 130, 65)]:
        for ta, tb, bias in product((0, 1), (0, 1), (0, 1)):
            a = normal((k, m) if ta else (m, k))
            b = normal((n, k) if tb else (k, n))
            operands = [a, b] + [normal((n,))] * bias
            text = "nn.matmul {0}, {1}" + " bias {2}" * bias + " transpose_lhs" * ta + " transpose_rhs" * tb
            yield Case("matmul", f"{text} : {types(len(operands))}", operands, lambda a, b, *v, ta=ta, tb=tb:
                       (a.T if ta else a) @ (b.T if tb else b) + (v[0] if v else 0))
        for batch in ((1,), (3,), (2, 5)):
            yield Case("matmul", f"nn.matmul {{0}}, {{1}} : {types(2)}", [normal((*batch, m, k)), normal((*batch, k, n))],
                       jnp.matmul)
            yield Case("matmul", f"nn.matmul {{0}}, {{1}} transpose_rhs : {types(2)}",
                       [normal((*batch, m, k)), normal((n, k))], lambda a, b: a @ b.T)
            yield Case("matmul", f"nn.matmul {{0}}, {{1}} bias {{2}} transpose_lhs transpose_rhs : {types(3)}",
                       [normal((*batch, k, m)), normal((*batch, n, k)), normal((n,))],
                       lambda a, b, v: a.swapaxes(-1, -2) @ b.swapaxes(-1, -2) + v)
            yield Case("matmul", f"nn.matmul {{0}}, {{1}} bias {{2}} transpose_lhs : {types(3)}",
                       [normal((*batch, k, m)), normal((k, n)), normal((n,))],
                       lambda a, b, v: a.swapaxes(-1, -2) @ b + v)
        for bias, batch in product((0, 1), ((), (2,), (2, 3))):
            operands = [normal((*batch, m, k)), normal((k, n))] + [normal((n,))] * bias
            yield Case("linear", f"nn.linear {', '.join(f'{{{i}}}' for i in range(len(operands)))} : "
                       f"{types(len(operands))}", operands, lambda x, w, *v: x @ w + (v[0] if v else 0))


# Normalizations.

def normalized(x, axes, eps, center=True):
    z = x - x.mean(axes, keepdims=True) if center else x
    return z * jax.lax.rsqrt((z * z).mean(axes, keepdims=True) + eps)


def per_channel(v, x):
    return v.reshape(1, -1, *(1,) * (x.ndim - 2))


def norms():
    for shape in (*SHAPES, (3, 5, 7)):
        for dim in range(len(shape)):
            yield Case("softmax", f"nn.softmax {{0}} dim {dim} : {{t0}}", [normal(shape)],
                       lambda x, d=dim: jax.nn.softmax(x, d))
            yield Case("log_softmax", f"nn.log_softmax {{0}} dim {dim} : {{t0}}", [normal(shape)],
                       lambda x, d=dim: jax.nn.log_softmax(x, d))
        for attributes, eps in (("", 1e-5), (" {{eps = 1.0e-2}}", 1e-2)):
            x, w, b = normal(shape), normal(shape[-1:]), normal(shape[-1:])
            yield Case("layer_norm", f"nn.layer_norm {{0}}, {{1}}, {{2}}{attributes} : {types(3)}", [x, w, b],
                       lambda x, w, b, e=eps: normalized(x, -1, e) * w + b)
            yield Case("layer_norm", f"nn.layer_norm {{0}}, {{1}}{attributes} : {types(2)}", [x, w],
                       lambda x, w, e=eps: normalized(x, -1, e) * w)
            yield Case("rms_norm", f"nn.rms_norm {{0}}, {{1}}{attributes} : {types(2)}", [x, w],
                       lambda x, w, e=eps: normalized(x, -1, e, False) * w)
    for shape, groups in (((1, 2, 1, 1), 1), ((3, 6, 5, 7), 3), ((4, 16, 17, 33), 4), ((3, 5), 5)):
        x, w, b = normal(shape), normal(shape[1:2]), normal(shape[1:2])

        def group_norm(x, w, b, g=groups):
            z = normalized(x.reshape(x.shape[0], g, -1), -1, 1e-5).reshape(x.shape)
            return z * per_channel(w, x) + per_channel(b, x)

        yield Case("group_norm", f"nn.group_norm {{0}}, {{1}}, {{2}} groups {groups} : {types(3)}", [x, w, b], group_norm)
    for shape in ((2, 1, 1, 1), (3, 5, 3, 7), (8, 16, 17, 33), (33, 5)):
        c = shape[1:2]
        operands = [normal(shape), normal(c), normal(c), fixed(normal(c)), fixed(positive(c))]
        axes = (0, *range(2, len(shape)))
        yield Case("batch_norm", f"nn.batch_norm {{0}}, {{1}}, {{2}}, {{3}}, {{4}} training : {types(5)}", operands,
                   lambda x, w, b, m, v, a=axes: normalized(x, a, 1e-5) * per_channel(w, x) + per_channel(b, x), 3)
        yield Case("batch_norm", f"nn.batch_norm {{0}}, {{1}}, {{2}}, {{3}}, {{4}} : {types(5)}", operands,
                   lambda x, w, b, m, v: (x - per_channel(m, x)) * jax.lax.rsqrt(per_channel(v, x) + 1e-5)
                   * per_channel(w, x) + per_channel(b, x), 3)


# Tables, attention, losses.

def turned(x, theta, offset=0, sign=1):
    half = x.shape[-1] // 2
    angle = (jnp.arange(x.shape[1]) + offset)[:, None] * theta ** (-jnp.arange(half) / half)
    c, s = jnp.cos(angle)[:, None], sign * jnp.sin(angle)[:, None]
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * c - b * s, b * c + a * s], -1)


def attend(q, k, v, mask=None, causal=False, scale=None, window=None, segments=None):
    k, v = (jnp.repeat(t, q.shape[2] // t.shape[2], 2) for t in (k, v))
    s = jnp.einsum("bihd,bjhd->bhij", q, k) * (scale or q.shape[-1] ** -0.5)
    if mask is not None:
        s = jnp.where(mask, s, -jnp.inf) if mask.dtype == bool else s + mask
    if segments is not None:
        s = jnp.where((segments[:, :, None] == segments[:, None, :])[:, None], s, -jnp.inf)
    if causal:
        ones, shift = jnp.ones(s.shape[-2:], bool), s.shape[-1] - s.shape[-2]
        seen = jnp.tril(ones, shift) & ~(jnp.tril(ones, shift - window) if window else ~ones)
        s = jnp.where(seen, s, -jnp.inf)
    seen = jnp.isfinite(s).any(-1, keepdims=True)  # a row that sees nothing gives 0
    p = jnp.where(seen, jax.nn.softmax(jnp.where(seen, s, 0.0), -1), 0.0)
    return jnp.einsum("bhij,bjhd->bihd", p, v)


def attend_packed(x, heads, kv_heads, **options):
    size = x.shape[-1] // (heads + 2 * kv_heads)
    q, k, v = jnp.split(x.reshape(*x.shape[:2], -1, size), [heads, heads + kv_heads], 2)
    return attend(q, k, v, **options).reshape(*x.shape[:2], -1)


def tables():
    for rows, width, ids in ((1, 1, (1,)), (7, 5, (3, 4)), (300, 70, (9, 65))):
        yield Case("embedding", f"nn.embedding {{0}}, {{1}} : {types(2)}", [normal((rows, width)), index(ids, rows)],
                   lambda t, i: t[i])
    for rows, whole, first in ((4, 11, 3), (5, 5, 0), (40, 300, 260)):
        yield Case("embedding", f"{{tmp}} = nn.cast {{2}} to i64 : {{t2}}\n{{out}} = nn.embedding {{0}}, {{1}} from {{tmp}} of {whole}"
                   f" : {types(2)}", [normal((rows, 7)), index((9, 15), whole), np.array(first)],
                   lambda t, i, _, n=rows, f=first: jnp.where(((i >= f) & (i < f + n))[..., None], t[jnp.clip(i - f, 0, n - 1)], 0))
    for shape in ((1, 1, 1, 2), (3, 5, 3, 6), (2, 70, 4, 66)):
        yield Case("rotary", "nn.rotary {0} theta 10000.0 : {t0}", [normal(shape)], lambda x: turned(x, 10000.0))
        yield Case("rotary", "nn.rotary {0} theta 100.0 {{offset = 5 : i64}} : {t0}", [normal(shape)],
                   lambda x: turned(x, 100.0, 5))
        yield Case("rotary", "nn.rotary {0} theta 100.0 inverse : {t0}", [normal(shape)],
                   lambda x: turned(x, 100.0, sign=-1))


def some(shape):
    """A mask that hides all from the first row, if there are others."""
    mask = rng.integers(0, 2, shape).astype(bool)
    mask[..., -1, :] = True
    mask[..., 0, :] = shape[-2] == 1
    return mask


def constant(mask):
    return f"{{tmp}} = nn.constant dense<{str(mask.tolist()).lower()}> : tensor<{'x'.join(map(str, mask.shape))}xi1>\n"


def attention():
    sizes = ((1, 1, 1, 1, 1, 1), (2, 7, 7, 3, 3, 5), (2, 5, 9, 6, 2, 3), (2, 9, 5, 4, 2, 3), (1, 130, 130, 2, 1, 65),
             (1, 130, 70, 1, 1, 33), (1, 3, 5, 2, 1, 520))
    for B, Tq, Tk, H, Hk, D in sizes:
        q, k, v = normal((B, Tq, H, D)), normal((B, Tk, Hk, D)), normal((B, Tk, Hk, D))
        op = "nn.attention {0}, {1}, {2}"
        masks = [some((Tq, Tk)), some((B, 1, Tq, Tk)), fixed(normal((B, 1, Tq, Tk))), normal((Tq, Tk)),
                 normal((H, 1, Tk))][:1 if D > 512 else 5]
        for causal, word in ((False, ""), (True, " causal")):
            yield Case("attention", f"{op}{word} : {types(2)}", [q, k, v], lambda *a, c=causal: attend(*a, causal=c), 2)
            for window in (1, 3, Tk) if causal and D < 500 else ():
                yield Case("attention", f"{op} causal window {window} : {types(2)}", [q, k, v],
                           lambda *a, w=window: attend(*a, causal=True, window=w), 2)
            for segments in (index((B, Tq), 3), np.sort(index((B, Tq), 4)).astype(np.int64)) if Tq == Tk else ():
                yield Case("attention", f"{op} segments({{3}} : {{t3}}){word} : {types(2)}", [q, k, v, segments],
                           lambda q, k, v, s, c=causal: attend(q, k, v, causal=c, segments=s), 2)
                yield Case("attention", f"{op} mask {{4}} segments({{3}} : {{t3}}){word} : {{t0}}, {{t1}}, {{t4}}",
                           [q, k, v, segments, masks[-1]],
                           lambda q, k, v, s, m, c=causal: attend(q, k, v, m, causal=c, segments=s), 2)
            for mask in masks:
                scale = 0.3 if D < 100 else 0.05  # scores of a few units, so that no row is all at one key
                yield Case("attention", f"{op} mask {{3}}{word} scale {scale} : {{t0}}, {{t1}}, {{t3}}", [q, k, v, mask],
                           lambda *a, c=causal, s=scale: attend(*a, causal=c, scale=s), 2)
            yield Case("attention", f"{constant(masks[0])}{{out}}:2 = {op} mask {{tmp}}{word} : {{t0}}, {{t1}},"
                       f" tensor<{Tq}x{Tk}xi1>", [q, k, v], lambda *a, m=masks[0], c=causal: attend(*a, m, causal=c), 2)
    for B, T, H, Hk, D in ((1, 1, 1, 1, 1), (2, 7, 3, 3, 5), (2, 9, 6, 2, 3), (1, 130, 2, 2, 33), (1, 3, 2, 1, 520)):
        x, op = normal((B, T, (H + 2 * Hk) * D)), "nn.packed_attention {0}"
        heads, settings = f"heads {H}" + (f" kv_heads {Hk}" if Hk != H else ""), dict(heads=H, kv_heads=Hk)
        for causal, word in ((False, ""), (True, " causal")):
            settings = dict(heads=H, kv_heads=Hk, causal=causal)
            yield Case("packed_attention", f"{op} {heads}{word} : {{t0}}", [x],
                       lambda x, s=settings: attend_packed(x, **s), 2)
            if causal:
                yield Case("packed_attention", f"{op} {heads} causal window 4 : {{t0}}", [x],
                           lambda x, s=settings: attend_packed(x, window=4, **s), 2)
            for mask in (some((T, T)), normal((T, T)), normal((H, 1, T)))[:1 if D > 512 else 3]:
                scale = 0.5 if D < 100 else 0.05
                yield Case("packed_attention", f"{op} mask {{1}} {heads}{word} scale {scale} : {types(2)}", [x, mask],
                           lambda x, m, s=settings, f=scale: attend_packed(x, mask=m, scale=f, **s), 2)
            mask = some((T, T))
            yield Case("packed_attention", f"{constant(mask)}{{out}}:2 = {op} mask {{tmp}} {heads}{word} : {{t0}},"
                       f" tensor<{T}x{T}xi1>", [x], lambda x, m=mask, s=settings: attend_packed(x, mask=m, **s), 2)


def class_loss(logits, y, w=None, ignore=-100, smoothing=0.0):
    p = jax.nn.log_softmax(logits, -1)
    has_class = (y >= 0) & (y < logits.shape[-1])
    picked = jnp.take_along_axis(p, jnp.where(has_class, y, 0)[..., None], -1)[..., 0] * has_class
    loss = -(1 - smoothing) * picked - smoothing * p.mean(-1)
    return jnp.sum(jnp.where(y == ignore, 0.0, loss * (1 if w is None else w)))


def spread(weights, x):
    return jnp.broadcast_to(weights.reshape(*weights.shape, *(1,) * (x.ndim - weights.ndim)), x.shape)


def counted(op, text):
    """loss + count of a loss, so that the gradients of both are seen."""
    return f"{{tmp}}:2 = nn.{op} {text}\n{{out}} = nn.add {{tmp}}#0, {{tmp}}#1 : tensor<{{e}}>, tensor<{{e}}>"


def losses():
    for shape in (ONES, ODD, LARGE, (2, 3, 5)):
        rows, classes = shape[:-1], shape[-1]
        y = index(rows, classes)
        ignored = y.copy()
        ignored.flat[::3] = -1
        w = fixed(positive(rows))
        w.flat[1::4] = 0
        hidden, table = normal((*rows, 4)), normal((4, classes))
        smooth = " {{ignore_index = -1 : i64, label_smoothing = 0.1 : f64}}"
        settings = dict(ignore=-1, smoothing=0.1)
        options = (("", "", [y], {}), (" weights {W}", "", [y, w], {}), ("", smooth, [ignored], settings),
                   (" weights {W}", smooth, [ignored, w], settings))
        for words, attributes, rest, settings in options:
            text = f"nn.cross_entropy {{0}}, {{1}}{words.replace('W', '2')}{attributes} : {types(1 + len(rest))}"
            yield Case("cross_entropy", text, [normal(shape), *rest], lambda x, *a, s=settings: class_loss(x, *a, **s), 2)
            for turn in (False, True):
                text = words.replace("W", "3") + " transpose_weight" * turn + attributes
                yield Case("linear_cross_entropy", f"nn.linear_cross_entropy {{0}}, {{1}}, {{2}}{text} : {types(2 + len(rest))}",
                           [hidden, table.T.copy() if turn else table, *rest],
                           lambda h, t, *a, u=turn, s=settings: class_loss(h @ (t.T if u else t), *a, **s), 2)
            text = f"bias {{3}}{words.replace('W', '4')}{attributes} : {types(3)} bias {{t3}}" + (
                ", {t4}" if words else "")
            yield Case("linear_cross_entropy", f"nn.linear_cross_entropy {{0}}, {{1}}, {{2}} {text}",
                       [hidden, table, rest[0], normal(classes), *rest[1:]],
                       lambda h, t, y, b, *a, s=settings: class_loss(h @ t + b, y, *a, **s), 2)
        # Targets that are computed, some of which are no class.
        for words, attributes, settings in (("", "", {}), (" weights {W}", smooth, settings)):
            for op, given, kinds in (("cross_entropy", [normal(shape)], "{t0}, {t1}"),
                                     ("linear_cross_entropy", [hidden, table], "{t0}, {t1}, {t2}")):
                at, rest = len(given), [w] if words else []
                text = (f"{{tmp}} = nn.add {{{at}}}, {{{at}}} : {{t{at}}}, {{t{at}}}\n"
                        f"{{out}}:2 = nn.{op} {', '.join(f'{{{k}}}' for k in range(at))}, {{tmp}}{words.replace('W', str(at + 1))}{attributes} : "
                        f"{kinds}{', {t%d}' % (at + 1) if words else ''}")
                yield Case(op, text, [*given, y, *rest], lambda *a, n=at, s=settings: class_loss(
                    a[0] if n == 1 else a[0] @ a[1], 2 * a[n], *a[n + 1:], **s), 2)
        # Weights and targets that are trained, and the gradient of the count.
        settings = dict(ignore=-1, smoothing=0.1)
        yield Case("cross_entropy", counted("cross_entropy", f"{{0}}, {{1}} weights {{2}}{smooth} : {types(3)}"),
                   [normal(shape), ignored, positive(rows)],
                   lambda x, y, w, s=settings: class_loss(x, y, w, **s) + jnp.sum(jnp.where(y == -1, 0.0, w)))
        text = counted("linear_cross_entropy", f"{{0}}, {{1}}, {{2}} weights {{3}} : {types(4)}")
        yield Case("linear_cross_entropy", text,
                   [hidden, table, y, positive(rows)], lambda h, t, y, w: class_loss(h @ t, y, w) + jnp.sum(w))
        per_element = dict(bce_with_logits=(optax.sigmoid_binary_cross_entropy, rng.uniform(0, 1, shape)),
                           mse=(lambda x, t: (x - t) ** 2, normal(shape)))
        for op, (f, target) in per_element.items():
            yield Case(op, f"nn.{op} {{0}}, {{1}} : {types(2)}", [normal(shape), fixed(target)],
                       lambda x, t, f=f: f(x, t).sum(), 2)
            yield Case(op, f"nn.{op} {{0}}, {{1}} weights {{2}} : {types(3)}", [normal(shape), fixed(target), w],
                       lambda x, t, w, f=f: (f(x, t) * spread(w, x)).sum(), 2)
            for weighted in (rows, shape):
                yield Case(op, counted(op, f"{{0}}, {{1}} weights {{2}} : {types(3)}"),
                           [normal(shape), target, positive(weighted)],
                           lambda x, t, w, f=f: ((f(x, t) + 1) * spread(w, x)).sum())


# Images.

def convolve(x, w, b=None, strides=(1, 1), padding=(0, 0, 0, 0), dilations=(1, 1), groups=1):
    y = jax.lax.conv_general_dilated(x, w, strides, (padding[:2], padding[2:]), rhs_dilation=dilations,
                                     feature_group_count=groups)
    return y if b is None else y + per_channel(b, y)


def pool(x, window, strides, padding, kind):
    pads = ((0, 0), (0, 0), padding[:2], padding[2:])
    window, strides = (1, 1, *window), (1, 1, *strides)
    if kind == "max":
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, strides, pads)
    total = jax.lax.reduce_window(x, 0.0, jax.lax.add, window, strides, pads)
    if kind == "avg":
        return total / (window[2] * window[3])
    return total / jax.lax.reduce_window(jnp.ones_like(x), 0.0, jax.lax.add, window, strides, pads)


def images():
    kinds = [dict(), dict(strides=(2, 3), padding=(1, 2, 0, 1)), dict(padding=(2, 2, 1, 1), dilations=(2, 1)),
             dict(padding=(1, 1, 1, 1), groups=2)]
    for (n, c, h, w, o, kh, kw), settings in product(((1, 2, 1, 1, 2, 1, 1), (3, 4, 7, 9, 6, 3, 2),
                                                      (4, 16, 17, 19, 32, 3, 3), (3, 16, 21, 23, 20, 3, 3)), kinds):
        groups = settings.get("groups", 1)
        words = "".join(f" {k} {v if k == 'groups' else list(v)}" for k, v in settings.items())
        x, k, b = normal((n, c, h, w)), normal((o, c // groups, kh, kw)), normal((o,))
        yield Case("conv2d", f"nn.conv2d {{0}}, {{1}} bias {{2}}{words} : {types(3)}", [x, k, b],
                   lambda x, k, b, s=settings: convolve(x, k, b, **s))
        yield Case("conv2d", f"nn.conv2d {{0}}, {{1}}{words} : {types(2)}", [x, k],
                   lambda x, k, s=settings: convolve(x, k, **s))
    for shape, window, strides, padding in (((1, 1, 1, 1), (1, 1), (1, 1), (0, 0, 0, 0)),
                                            ((1, 1, 4, 5), (4, 5), (1, 1), (0, 0, 0, 0)),
                                            ((2, 3, 7, 9), (3, 2), (2, 1), (1, 0, 0, 1)),
                                            ((4, 16, 18, 34), (2, 2), (2, 2), (0, 0, 0, 0))):
        words = f"window {list(window)} strides {list(strides)} padding {list(padding)}"
        for op, kind, attributes in (("max_pool2d", "max", ""), ("avg_pool2d", "avg", ""),
                                     ("avg_pool2d", "inside", " {{count_include_pad = false}}")):
            yield Case(op, f"nn.{op} {{0}} {words}{attributes} : {{t0}}", [distinct(shape)],
                       lambda x, k=kind, w=window, s=strides, p=padding: pool(x, w, s, p, k), 2 if kind == "max" else 1)
            yield Case(op, f"nn.{op} {{0}} window {list(window)}{attributes} : {{t0}}", [distinct(shape)],
                       lambda x, k=kind, w=window: pool(x, w, w, (0, 0, 0, 0), k), 2 if kind == "max" else 1)


def all_cases():
    for family in (elementwise, binary, shapes, reductions, products, norms, tables, attention, losses, images):
        yield from family()
