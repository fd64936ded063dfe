"""Modules of flax.nnx, split into parameters and the rest."""
import jax
import jax.numpy as jnp
from flax import nnx

from . import Draw, Example, cross_entropy, model

CLASSES, TOKENS = 5, 17


def _example(draw: Draw, module: nnx.Module, batch: tuple, loss=cross_entropy, kind: type = nnx.Param) -> Example:
    """What is not of `kind` is state, which goes through the module."""
    graph, params, rest = nnx.split(module, kind, ...)
    params, rest = draw.again(params), jax.tree_util.tree_map(lambda x: x.astype(draw.dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x, rest)

    def step(params, state, *batch):
        module = nnx.merge(graph, params, state, copy=True)
        value = loss(module(*batch[:-1]), batch[-1])
        return value, nnx.split(module, kind, ...)[2]

    return Example(step, params, batch, rest)


class Mlp(nnx.Module):
    def __init__(self, dtype, rngs):
        self.first = nnx.Linear(10, 16, rngs=rngs, param_dtype=dtype)
        self.norm = nnx.BatchNorm(16, rngs=rngs, param_dtype=dtype)
        self.drop = nnx.Dropout(0.0, rngs=rngs)
        self.last = nnx.Linear(16, CLASSES, rngs=rngs, param_dtype=dtype)

    def __call__(self, x):
        return self.last(self.drop(nnx.gelu(self.norm(self.first(x)))))


@model("nnx-mlp")
def mlp(draw: Draw) -> Example:
    return _example(draw, Mlp(draw.dtype, nnx.Rngs(0)), (draw.normal(6, 10), draw.integers(CLASSES, 6)))


class Cnn(nnx.Module):
    def __init__(self, dtype, rngs):
        self.conv = nnx.Conv(3, 8, (3, 3), rngs=rngs, param_dtype=dtype)
        self.norm = nnx.GroupNorm(8, 4, rngs=rngs, param_dtype=dtype)
        self.up = nnx.ConvTranspose(8, 4, (2, 2), (2, 2), rngs=rngs, param_dtype=dtype)
        self.last = nnx.Linear(4, CLASSES, rngs=rngs, param_dtype=dtype)

    def __call__(self, x):
        x = nnx.avg_pool(nnx.silu(self.norm(self.conv(x))), (2, 2), (2, 2))
        return self.last(self.up(x).max((1, 2)))


@model("nnx-cnn")
def cnn(draw: Draw) -> Example:
    return _example(draw, Cnn(draw.dtype, nnx.Rngs(0)), (draw.normal(3, 8, 8, 3), draw.integers(CLASSES, 3)))


def attend(query, key, value, mask=None, **_):
    """Without float32 inside, where jax.nn.dot_product_attention computes its scores."""
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) / query.shape[-1] ** 0.5
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(jnp.where(mask, scores, -1e9)), value)


class Layer(nnx.Module):
    def __init__(self, dtype, rngs):
        self.norms = nnx.List([nnx.RMSNorm(16, rngs=rngs, param_dtype=dtype) for _ in range(2)])
        self.attention = nnx.MultiHeadAttention(2, 16, decode=False, attention_fn=attend, rngs=rngs, param_dtype=dtype)
        self.up = nnx.Linear(16, 32, rngs=rngs, param_dtype=dtype)
        self.down = nnx.Linear(32, 16, rngs=rngs, param_dtype=dtype)

    def __call__(self, x, mask=None):
        x = x + self.attention(self.norms[0](x), mask=mask)
        return x + self.down(nnx.silu(self.up(self.norms[1](x))))


class Gpt(nnx.Module):
    def __init__(self, dtype, rngs):
        self.table = nnx.Embed(TOKENS, 16, rngs=rngs, param_dtype=dtype)
        self.layers = nnx.List([Layer(dtype, rngs) for _ in range(2)])

    def __call__(self, ids):
        x = self.table(ids)
        for layer in self.layers:
            x = layer(x, nnx.make_causal_mask(ids))
        return self.table.attend(x)


@model("nnx-gpt")
def gpt(draw: Draw) -> Example:
    return _example(draw, Gpt(draw.dtype, nnx.Rngs(0)), (draw.integers(TOKENS, 2, 6), draw.integers(TOKENS, 2, 6)))


class Recurrent(nnx.Module):
    def __init__(self, dtype, rngs):
        self.rnn = nnx.RNN(nnx.OptimizedLSTMCell(4, 6, rngs=rngs, param_dtype=dtype))
        self.last = nnx.Linear(6, CLASSES, rngs=rngs, param_dtype=dtype)

    def __call__(self, x):
        return self.last(self.rnn(x)[:, -1])


@model("nnx-lstm")
def lstm(draw: Draw) -> Example:
    return _example(draw, Recurrent(draw.dtype, nnx.Rngs(0)), (draw.normal(3, 5, 4), draw.integers(CLASSES, 3)))


class Adapted(nnx.Module):
    def __init__(self, dtype, rngs):
        self.first = nnx.LoRALinear(10, 16, lora_rank=2, rngs=rngs, param_dtype=dtype, lora_param_dtype=dtype)
        self.last = nnx.Linear(16, CLASSES, rngs=rngs, param_dtype=dtype)

    def __call__(self, x):
        return self.last(nnx.relu(self.first(x)))


@model("nnx-lora")
def lora(draw: Draw) -> Example:
    """What is not of the adapter is state that stays as it is."""
    return _example(draw, Adapted(draw.dtype, nnx.Rngs(0)), (draw.normal(6, 10), draw.integers(CLASSES, 6)), kind=nnx.LoRAParam)
