"""Modules of flax.linen."""
import flax.linen as nn
import jax
import jax.numpy as jnp

from . import Draw, Example, cross_entropy, model

CLASSES, TOKENS = 5, 17


def _example(draw: Draw, module: nn.Module, batch: tuple, loss=cross_entropy) -> Example:
    """A module of all of the batch but its last item, which the loss compares with."""
    params = draw.again(module.init(jax.random.key(0), *batch[:-1]))
    return Example(lambda params, *batch: loss(module.apply(params, *batch[:-1]), batch[-1]), params, batch)


def _with_statistics(draw: Draw, module: nn.Module, batch: tuple) -> Example:
    made = module.init(jax.random.key(0), *batch[:-1])
    params, state = draw.again(made["params"]), jax.tree_util.tree_map(lambda x: x.astype(draw.dtype), made["batch_stats"])

    def loss(params, state, *batch):
        logits, new = module.apply({"params": params, "batch_stats": state}, *batch[:-1], mutable=["batch_stats"])
        return cross_entropy(logits, batch[-1]), new["batch_stats"]

    return Example(loss, params, batch, state)


def _images(draw: Draw, size: int = 8) -> tuple:
    return draw.normal(3, size, size, 3), draw.integers(CLASSES, 3)


def _tokens(draw: Draw, length: int = 7) -> tuple:
    return draw.integers(TOKENS, 2, length), draw.integers(TOKENS, 2, length)


class Mlp(nn.Module):
    @nn.compact
    def __call__(self, x):
        for width in (24, 16):
            x = nn.Dropout(0.0, deterministic=False)(nn.relu(nn.LayerNorm()(nn.Dense(width)(x))))
        return nn.Dense(CLASSES)(x)


@model("linen-mlp")
def mlp(draw: Draw) -> Example:
    module = Mlp()
    batch = draw.normal(6, 10), draw.integers(CLASSES, 6)
    params = draw.again(module.init({"params": jax.random.key(0), "dropout": jax.random.key(1)}, batch[0]))
    return Example(lambda params, x, y: cross_entropy(module.apply(params, x, rngs={"dropout": jax.random.key(1)}), y), params, batch)


class Cnn(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.max_pool(nn.relu(nn.Conv(8, (3, 3))(x)), (2, 2), (2, 2))
        x = nn.avg_pool(nn.relu(nn.Conv(12, (3, 3), strides=(1, 2), padding="VALID")(x)), (2, 1))
        return nn.Dense(CLASSES)(x.reshape(x.shape[0], -1))


@model("linen-cnn")
def cnn(draw: Draw) -> Example:
    return _example(draw, Cnn(), _images(draw, 10))


class Block(nn.Module):
    width: int
    stride: int = 1

    @nn.compact
    def __call__(self, x):
        y = nn.Conv(self.width, (3, 3), self.stride, use_bias=False)(x)
        y = nn.relu(nn.BatchNorm(use_running_average=False)(y))
        y = nn.BatchNorm(use_running_average=False)(nn.Conv(self.width, (3, 3), use_bias=False)(y))
        return nn.relu(y + (x if x.shape == y.shape else nn.Conv(self.width, (1, 1), self.stride)(x)))


class ResNet(nn.Module):
    @nn.compact
    def __call__(self, x):
        for width, stride in ((6, 1), (6, 1), (12, 2)):
            x = Block(width, stride)(x)
        return nn.Dense(CLASSES)(x.mean((1, 2)))


@model("linen-resnet")
def resnet(draw: Draw) -> Example:
    return _with_statistics(draw, ResNet(), _images(draw))


class MobileNet(nn.Module):
    """Depthwise convolutions, squeeze and excite, hard-swish."""

    @nn.compact
    def __call__(self, x):
        x = nn.hard_swish(nn.Conv(8, (3, 3), 2)(x))
        y = nn.GroupNorm(4)(nn.Conv(8, (3, 3), feature_group_count=8)(x))
        gate = nn.hard_sigmoid(nn.Dense(8)(nn.relu(nn.Dense(4)(y.mean((1, 2))))))
        return nn.Dense(CLASSES)((x + y * gate[:, None, None]).mean((1, 2)))


@model("linen-mobilenet")
def mobilenet(draw: Draw) -> Example:
    return _example(draw, MobileNet(), _images(draw))


class Layer(nn.Module):
    """A layer of a transformer before whose parts its norms stand."""

    width: int = 16
    norm: type = nn.LayerNorm

    @nn.compact
    def __call__(self, x, mask=None):
        y = self.norm()(x)
        x = x + nn.MultiHeadDotProductAttention(num_heads=2)(y, y, mask=mask)
        return x + nn.Dense(self.width)(nn.gelu(nn.Dense(2 * self.width)(self.norm()(x))))


class Gpt(nn.Module):
    @nn.compact
    def __call__(self, ids):
        table = nn.Embed(TOKENS, 16)
        x = table(ids) + self.param("places", nn.initializers.normal(0.02), (ids.shape[1], 16))
        for _ in range(2):
            x = Layer()(x, nn.make_causal_mask(ids))
        return table.attend(nn.LayerNorm()(x))


@model("linen-gpt")
def gpt(draw: Draw) -> Example:
    return _example(draw, Gpt(), _tokens(draw))


class Bert(nn.Module):
    @nn.compact
    def __call__(self, ids, lengths):
        seen = jnp.arange(ids.shape[1]) < lengths[:, None]
        x = nn.LayerNorm()(nn.Embed(TOKENS, 16)(ids) + nn.Embed(ids.shape[1], 16)(jnp.arange(ids.shape[1])))
        for _ in range(2):
            x = Layer()(x, nn.make_attention_mask(seen, seen))
        return nn.Dense(CLASSES)(jnp.tanh(nn.Dense(16)(x[:, 0])))


@model("linen-bert")
def bert(draw: Draw) -> Example:
    return _example(draw, Bert(), (draw.integers(TOKENS, 3, 6), draw.integers(4, 3) + 2, draw.integers(CLASSES, 3)))


class Vit(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.Conv(16, (4, 4), 4)(x)
        x = x.reshape(x.shape[0], -1, 16)
        first = self.param("first", nn.initializers.normal(0.02), (1, 1, 16))
        x = jnp.concatenate([jnp.tile(first, (x.shape[0], 1, 1)), x], 1)
        x = x + self.param("places", nn.initializers.normal(0.02), (1, x.shape[1], 16))
        for _ in range(2):
            x = Layer()(x)
        return nn.Dense(CLASSES)(nn.LayerNorm()(x)[:, 0])


@model("linen-vit")
def vit(draw: Draw) -> Example:
    return _example(draw, Vit(), _images(draw, 12))


class Mixer(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.Conv(12, (4, 4), 4)(x).reshape(x.shape[0], -1, 12)
        for _ in range(2):
            y = jnp.swapaxes(nn.LayerNorm()(x), 1, 2)
            x = x + jnp.swapaxes(nn.Dense(x.shape[1])(nn.gelu(nn.Dense(8)(y))), 1, 2)
            x = x + nn.Dense(12)(nn.gelu(nn.Dense(24)(nn.LayerNorm()(x))))
        return nn.Dense(CLASSES)(x.mean(1))


@model("linen-mixer")
def mixer(draw: Draw) -> Example:
    return _example(draw, Mixer(), _images(draw))


class Recurrent(nn.Module):
    @nn.compact
    def __call__(self, x):
        dtype = x.dtype
        x = nn.Bidirectional(nn.RNN(nn.LSTMCell(6, param_dtype=dtype)), nn.RNN(nn.GRUCell(5, param_dtype=dtype)))(x)
        return nn.Dense(CLASSES)(nn.RNN(nn.SimpleCell(8, param_dtype=dtype))(x)[:, -1])


@model("linen-recurrent")
def recurrent(draw: Draw) -> Example:
    return _example(draw, Recurrent(), (draw.normal(3, 6, 4), draw.integers(CLASSES, 3)))


class ConvLstm(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Conv(1, (1, 1))(nn.RNN(nn.ConvLSTMCell(4, (3, 3), param_dtype=x.dtype))(x)[:, -1])


@model("linen-convlstm")
def convlstm(draw: Draw) -> Example:
    return _example(draw, ConvLstm(), (draw.normal(2, 4, 5, 5, 1), draw.normal(2, 5, 5, 1)), lambda y, z: jnp.mean((y - z)**2))


class Unet(nn.Module):
    @nn.compact
    def __call__(self, x):
        top = nn.relu(nn.Conv(6, (3, 3))(x))
        low = nn.relu(nn.Conv(12, (3, 3))(nn.max_pool(top, (2, 2), (2, 2))))
        up = nn.ConvTranspose(6, (2, 2), (2, 2))(low)
        return nn.Conv(3, (3, 3))(jnp.concatenate([up, top], -1)) + jax.image.resize(low, top.shape[:3] + (12,), "nearest")[..., :3]


@model("linen-unet")
def unet(draw: Draw) -> Example:
    return _example(draw, Unet(), (draw.normal(2, 8, 8, 3), draw.normal(2, 8, 8, 3)), lambda y, z: jnp.mean(jnp.abs(y - z)))


class Vae(nn.Module):
    """The noise is an input."""

    @nn.compact
    def __call__(self, x, noise):
        h = nn.swish(nn.Dense(16)(x))
        mean, log_var = nn.Dense(4)(h), nn.Dense(4)(h)
        return nn.Dense(x.shape[-1])(nn.relu(nn.Dense(16)(mean + jnp.exp(log_var / 2) * noise))), mean, log_var


@model("linen-vae")
def vae(draw: Draw) -> Example:
    def loss(results, x):
        logits, mean, log_var = results
        kept = jnp.mean(jnp.maximum(logits, 0) - logits * x + jnp.log1p(jnp.exp(-jnp.abs(logits))))
        return kept - 0.5 * jnp.mean(1 + log_var - mean**2 - jnp.exp(log_var))

    x = draw.uniform(5, 12)
    return _example(draw, Vae(), (x, draw.normal(5, 4), x), loss)


class Layers(nn.Module):
    """Layers by nn.scan, each recomputed."""

    @nn.compact
    def __call__(self, ids):
        x = nn.Embed(TOKENS, 16)(ids)

        def body(layer, carry, _):
            return layer(carry), None

        scanned = nn.scan(nn.remat(body), variable_axes={"params": 0}, split_rngs={"params": True}, length=3)
        x, _ = scanned(Layer(norm=nn.RMSNorm), x, None)
        return nn.Dense(TOKENS)(x)


@model("linen-scan")
def scan(draw: Draw) -> Example:
    return _example(draw, Layers(), _tokens(draw))


class Translation(nn.Module):
    """An encoder, and a decoder that attends to it."""

    @nn.compact
    def __call__(self, source, target):
        memory = Layer()(nn.Embed(TOKENS, 16)(source))
        x = nn.Embed(TOKENS, 16)(target)
        y = nn.LayerNorm()(x)
        x = x + nn.MultiHeadDotProductAttention(num_heads=4)(y, y, mask=nn.make_causal_mask(target))
        x = x + nn.MultiHeadDotProductAttention(num_heads=4)(nn.LayerNorm()(x), memory)
        return nn.DenseGeneral(TOKENS)(nn.Einsum((16, 16), "...i,ij->...j")(x))


@model("linen-translation")
def translation(draw: Draw) -> Example:
    return _example(draw, Translation(), (draw.integers(TOKENS, 2, 5), *_tokens(draw, 4)))


class Experts(nn.Module):
    """Two of four experts with a capacity, by one-hot dispatch as in Flax's examples, and a loss of balance."""

    @nn.compact
    def __call__(self, x):
        chances = nn.softmax(nn.Dense(4, use_bias=False)(x))
        weights, chosen = jax.lax.top_k(chances, 2)
        mask = jax.nn.one_hot(chosen, 4).sum(1)
        place = jnp.cumsum(mask, 0) * mask - 1
        kept = jax.nn.one_hot(place, 3) * mask[..., None]
        dispatched = jnp.einsum("nec,nd->ecd", kept, x)
        up = self.param("up", nn.initializers.lecun_normal(), (4, 8, 16))
        down = self.param("down", nn.initializers.lecun_normal(), (4, 16, 8))
        y = jnp.einsum("ech,ehd->ecd", nn.gelu(jnp.einsum("ecd,edh->ech", dispatched, up)), down)
        balance = 4 * jnp.sum(chances.mean(0) * mask.mean(0))
        return jnp.einsum("ecd,nec,ne->nd", y, kept, chances / weights.sum(-1, keepdims=True)), balance


@model("linen-experts")
def experts(draw: Draw) -> Example:
    return _example(draw, Experts(), (draw.normal(6, 8), draw.normal(6, 8)), lambda y, z: jnp.mean((y[0] - z)**2) + 0.01 * y[1])
