"""Modules of equinox, which are pytrees with functions and texts in them."""
import equinox as eqx
import jax
import jax.numpy as jnp

from . import Draw, Example, cross_entropy, model

CLASSES = 5
KEY = jax.random.key(0)


def _example(draw: Draw, module: eqx.Module, batch: tuple, loss=cross_entropy) -> Example:
    """A module of one example."""
    return Example(lambda module, x, y: loss(jax.vmap(module)(x), y), draw.again(module), batch)


@model("eqx-mlp")
def mlp(draw: Draw) -> Example:
    return _example(draw, eqx.nn.MLP(10, CLASSES, 16, 2, jax.nn.tanh, key=KEY), (draw.normal(6, 10), draw.integers(CLASSES, 6)))


@model("eqx-cnn")
def cnn(draw: Draw) -> Example:
    keys = jax.random.split(KEY, 3)
    module = eqx.nn.Sequential([eqx.nn.Conv2d(3, 8, 3, padding=1, key=keys[0]), eqx.nn.Lambda(jax.nn.relu), eqx.nn.MaxPool2d(2, 2),
                                eqx.nn.GroupNorm(2, 8), eqx.nn.Conv2d(8, 8, 3, groups=8, key=keys[1]), eqx.nn.AdaptiveAvgPool2d(1),
                                eqx.nn.Lambda(jnp.ravel), eqx.nn.Linear(8, CLASSES, key=keys[2])])
    return _example(draw, module, (draw.normal(3, 3, 8, 8), draw.integers(CLASSES, 3)))


@model("eqx-gru")
def gru(draw: Draw) -> Example:
    module = eqx.nn.GRUCell(4, 6, key=KEY), eqx.nn.Linear(6, CLASSES, key=KEY)

    def one(module, xs):
        h, _ = jax.lax.scan(lambda h, x: (module[0](x, h), None), jnp.zeros(6, xs.dtype), xs)
        return module[1](h)

    def loss(module, x, y):
        return cross_entropy(jax.vmap(one, (None, 0))(module, x), y)

    return Example(loss, draw.again(module), (draw.normal(3, 5, 4), draw.integers(CLASSES, 3)))


class Transformer(eqx.Module):
    attention: eqx.nn.MultiheadAttention
    norm: eqx.nn.LayerNorm
    rotary: eqx.nn.RotaryPositionalEmbedding
    up: eqx.nn.Linear
    down: eqx.nn.Linear

    def __init__(self, key):
        keys = jax.random.split(key, 3)
        self.attention = eqx.nn.MultiheadAttention(2, 8, key=keys[0])
        self.norm, self.rotary = eqx.nn.LayerNorm(8), eqx.nn.RotaryPositionalEmbedding(4)
        self.up, self.down = eqx.nn.Linear(8, 16, key=keys[1]), eqx.nn.Linear(16, 8, key=keys[2])

    def __call__(self, x):
        def turned(q, k, v):
            return jax.vmap(self.rotary, 1, 1)(q), jax.vmap(self.rotary, 1, 1)(k), v

        y = jax.vmap(self.norm)(x)
        x = x + self.attention(y, y, y, mask=jnp.tril(jnp.ones((len(x), len(x)), bool)), process_heads=turned)
        return x + jax.vmap(self.down)(jax.nn.gelu(jax.vmap(self.up)(jax.vmap(self.norm)(x))))


@model("eqx-transformer")
def transformer(draw: Draw) -> Example:
    return _example(draw, Transformer(KEY), (draw.normal(2, 5, 8), draw.normal(2, 5, 8)), lambda y, z: jnp.mean((y - z)**2))


@model("eqx-ode")
def ode(draw: Draw) -> Example:
    """A neural differential equation by Runge and Kutta's method of order 4."""
    field = eqx.nn.MLP(2, 2, 8, 1, jax.nn.softplus, key=KEY)

    def path(field, start, times):
        def advance(y, pair):
            begin, h = pair[0], pair[1] - pair[0]
            a = field(y)
            b = field(y + h / 2 * a)
            c = field(y + h / 2 * b)
            y = y + h / 6 * (a + 2 * b + 2 * c + field(y + h * c)) + 0 * begin
            return y, y

        return jax.lax.scan(advance, start, jnp.stack([times[:-1], times[1:]], 1))[1]

    def loss(field, start, times, seen):
        return jnp.mean((jax.vmap(path, (None, 0, None))(field, start, times) - seen)**2)

    return Example(loss, draw.again(field), (draw.normal(3, 2), jnp.linspace(0, 1, 6).astype(draw.dtype), draw.normal(3, 5, 2)))


@model("eqx-unet1d")
def unet1d(draw: Draw) -> Example:
    keys = jax.random.split(KEY, 3)
    module = {"down": eqx.nn.Conv1d(2, 6, 3, stride=2, padding=1, key=keys[0]),
              "up": eqx.nn.ConvTranspose1d(6, 4, 4, stride=2, padding=1, key=keys[1]),
              "last": eqx.nn.Conv1d(6, 2, 1, key=keys[2])}

    def one(m, x):
        return m["last"](jnp.concatenate([m["up"](jax.nn.leaky_relu(m["down"](x))), x]))

    def loss(m, x, y):
        return jnp.mean(huber(jax.vmap(one, (None, 0))(m, x) - y))

    return Example(loss, draw.again(module), (draw.normal(3, 2, 8), draw.normal(3, 2, 8)))


def huber(error, delta=1.0):
    """optax.losses.huber_loss."""
    size = jnp.abs(error)
    quadratic = jnp.minimum(size, delta)
    return 0.5 * quadratic**2 + delta * (size - quadratic)


@model("eqx-set")
def deep_set(draw: Draw) -> Example:
    """Sets of different sizes, by a mask."""
    module = eqx.nn.MLP(3, 8, 8, 1, key=KEY), eqx.nn.MLP(8, CLASSES, 8, 1, key=KEY)

    def one(m, x, count):
        seen = jnp.arange(len(x)) < count
        h = jnp.where(seen[:, None], jax.vmap(m[0])(x), -jnp.inf).max(0)
        return m[1](h)

    def loss(m, x, counts, y):
        return cross_entropy(jax.vmap(one, (None, 0, 0))(m, x, counts), y)

    return Example(loss, draw.again(module), (draw.normal(4, 6, 3), draw.integers(5, 4) + 1, draw.integers(CLASSES, 4)))
