"""Random programs of jax.numpy on three parameters, with their losses and gradients by JAX."""
import linecache
import random

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

ROWS, COLUMNS = 4, 3
PARAMETERS = [1.3 * np.sin(np.arange(12.0) + k).reshape(ROWS, COLUMNS) for k in range(3)]
IDS = np.array([2, 0, 3, 3])  # an input, rows of a variable


class Writer:
    """The source of a program. Variables are 4 x 3, but for what is made and used in one line."""

    def __init__(self, seed):
        self.random, self.lines = random.Random(seed), []
        self.variables = ["a", "b", "c"]

    def variable(self):
        return self.random.choice(self.variables[-6:])

    def index(self, end=ROWS):
        return self.random.randrange(-end, end)

    def ids(self):
        v = self.variable()
        return self.random.choice(["ids", "jnp.array([1, 1, 0, 3])", f"jnp.argsort({v}[:, {self.index(3)}])",
                                   f"(jnp.round({v}[:, 0] * 2).astype(int) % 4)"])

    def mask(self):
        v, w = self.variable(), self.variable()
        return self.random.choice([f"({v} > {w})", f"({v}[:, :1] <= 0.2)", f"(ids > 1)[:, None] & ({v} < 1)", f"~({v} > {w})[::-1]",
                                   f"(jnp.round({v} * 2).astype(int) % 3 == 1)", f"jnp.any({v} > 0.5, 0, keepdims=True)", f"({v} > 0) ^ ({w} > 0)"])

    def value(self):
        v, w, i, j = self.variable(), self.variable(), self.index(), self.index(COLUMNS)
        axis = self.random.choice([0, 1, -1])
        smooth = self.random.choice(["jnp.tanh", "jnp.sin", "jax.nn.gelu", "jax.nn.softplus", "jnp.abs", "jax.nn.relu", "jnp.arctan", "jax.nn.silu",
                                     "jax.nn.sigmoid", "jnp.expm1", "lax.erf", "jnp.square", "jnp.floor", "jnp.sign", "jnp.sinc", "jnp.cbrt"])
        reduced = self.random.choice(["sum", "mean", "max", "min", "var", "median", "prod"])
        scan = self.random.choice(["cumsum", "cummax", "cummin", "cumlogsumexp", "cumprod"])
        update = self.random.choice(["set", "add", "max", "min", "subtract"])
        mode = self.random.choice(["", ", mode='drop'", ", mode='clip'"])
        kinds = [
            f"{v} + {w}", f"{v} * {w}", f"{v} - 0.5 * {w}", f"{v} / (1 + {w}**2)", f"{smooth}({v})", f"jnp.maximum({v}, {w})",
            f"jnp.minimum({v}, 0.3)", f"jnp.clip({v}, -0.5, {w})", f"jnp.where({self.mask()}, {v}, {w})", f"{v} @ {w}.T @ {self.variable()} * 0.2",
            f"{v} * jnp.{reduced}({w}, {axis}, keepdims=True)",
            f"lax.{scan}({v}, {axis % 2}, reverse={self.random.random() < 0.5})", f"jnp.sort({v}, {axis})", f"{v}[jnp.array([3, -4, 1, 1])]",
            f"{v}[{self.ids()}]", f"jnp.take_along_axis({v}, jnp.argsort({w}, {axis}), {axis})",
            f"jnp.roll({v}, {i}, {axis})", f"jnp.flip({v}, {axis})",
            f"{v}.at[{self.ids()}].{update}({w}{mode})", f"{v}.at[{i}].{update}({w}[{self.index()}])", f"{v}.at[1:3, {j}].{update}(0.5)",
            f"{v}.at[{self.ids()}, 1:].{update}({w}[:, :2])", f"{v}.at[jnp.array([1, 9, -9, 2])].{update}({w}{mode})",
            f"jax.nn.softmax({v}, {axis}) + jax.nn.log_softmax({w}, {axis})", f"jax.nn.logsumexp({v}, {axis}, keepdims=True) * {w}",
            f"lax.stop_gradient({v}) * {w}", f"jax.checkpoint(lambda t: jnp.tanh(t) * {w})({v})", f"jnp.concatenate([{v}[:2], {w}[2:]])",
            f"jnp.pad({v}, ((1, 0), (0, 1)))[:4, 1:]", f"jnp.tile({v}[:2], (2, 1))", f"jnp.repeat({v}[:, :1], 3, 1)", f"{v}.reshape(3, 4).T",
            f"lax.scan(lambda s, x: (jnp.tanh(s + x), s * x), {v}[0], {w})[1]",
            f"lax.scan(lambda s, x: (jnp.where(x[1], s, s * x[0]), s), {v}[0], ({w}, {v} > 0))[1]",
            f"lax.fori_loop(0, 3, lambda i, x: jnp.sin(x) + {w}[i], {v})", f"lax.cond({w}[0, 0] > 0, lambda x: x * 2, jnp.sin, {v})",
            f"lax.switch(jnp.argmax({w}[:, 0]), [jnp.sin, jnp.cos, jnp.tanh], {v})", f"jax.vmap(lambda x, y: jnp.outer(x, y)[{j}])({v}, {w})",
            f"jax.vmap(lambda x, i: x[i] + x, (1, 0), 1)({v}, {self.ids()}[:3])",
            f"jax.vmap(lambda x, i: lax.dynamic_slice(x, (i,), (2,)))({v}, {self.ids()}) @ {w}[:2]",
            f"jax.grad(lambda x: jnp.sum(jnp.tanh(x) * {w}))({v})", f"jnp.einsum('ij,kj,ka->ia', {v}, {w}, {self.variable()}) * 0.2",
            f"jax.ops.segment_sum({v}, {self.ids()}, 4)", f"lax.reduce_window({v}, -jnp.inf, lax.max, (2, 2), (1, 1), 'SAME')",
            f"lax.top_k({v}, 3)[0]", f"lax.associative_scan(lambda p, q: p * q + q, {v})", f"{v} * (jnp.round({w} * 3).astype(int) & 5)",
            f"{v} * jnp.cumsum({self.mask()}, 0)[:, :1]", f"{v}.astype(jnp.float32).astype(float)", f"jnp.prod({v}, 0) + {w}",
            f"jnp.linalg.norm({v}, axis={axis}, keepdims=True) * {w}",
            f"jnp.diff({v}, axis=0, append={w}[:1])", f"jnp.triu({v}) + jnp.tril({w}, -1)", f"jnp.searchsorted(jnp.sort({v}[:, 0]), {w}) * {v}",
            f"jax.lax.dynamic_update_slice({v}, {w}[1:3], (ids[1], 0))", f"rule({v}, {w})", f"jnp.kron({v}[:2], jnp.array([[1.0], [0.5]]))"]
        return self.random.choice(kinds)

    def source(self, name):
        for i in range(self.random.randrange(4, 12)):
            self.lines.append(f"    v{i} = jnp.broadcast_to({self.value()}, (4, 3))")
            self.variables.append(f"v{i}")
        used = self.random.sample(self.variables[3:], min(3, len(self.variables) - 3))
        result = f"jnp.mean(jnp.square({' + '.join(used)})) + 0.1 * jnp.mean(a * b - c)"
        return "\n".join([f"def {name}(a, b, c, ids):", *self.lines, f"    return {result}"])


@jax.custom_jvp
def rule(x, y):
    return x * y


rule.defjvps(lambda t, ans, x, y: t * y * 2, lambda t, ans, x, y: t * jnp.cos(x))


def program(seed, writer=Writer, **names):
    """A function of the parameters and IDS, and its source, which may use `names`."""
    source, file = writer(seed).source("program"), f"program-{seed}.py"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    names = {"jax": jax, "jnp": jnp, "lax": lax, "rule": rule, **names}
    exec(compile(source, file, "exec"), names)
    return names["program"], source


def expected(made):
    """The loss and the gradients of JAX; None if they leave the range of comparisons."""
    loss, gradients = jax.jit(jax.value_and_grad(lambda p: made(*p, IDS)))(PARAMETERS)
    return (float(loss), gradients) if all(np.abs(x).max() < 1e6 for x in (loss, *gradients)) else None
