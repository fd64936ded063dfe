"""Models of plain JAX: dicts of arrays and functions."""
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from . import Draw, Example, cross_entropy, model

CLASSES, TOKENS = 5, 17


def rms_norm(x, scale):
    return x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * scale


def rotated(x):
    """Rotary positions of [B, T, H, D]."""
    half = x.shape[-1] // 2
    angle = jnp.arange(x.shape[1])[:, None] * 10000.0 ** (-jnp.arange(half) / half)
    cos, sin = (f(angle)[:, None].astype(x.dtype) for f in (jnp.cos, jnp.sin))
    a, b = jnp.split(x, 2, -1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


@model("llama")
def llama(draw: Draw) -> Example:
    """Grouped heads, rotary positions, SwiGLU; layers by lax.scan, recomputed."""
    d, heads, kv, layers = 16, 4, 2, 3
    params = {"table": draw.normal(TOKENS, d), "norm": np.ones(d, draw.dtype), "layers": {
        "q": draw.weights(layers, d, d), "k": draw.weights(layers, d, d * kv // heads), "v": draw.weights(layers, d, d * kv // heads),
        "o": draw.weights(layers, d, d), "gate": draw.weights(layers, d, 24), "up": draw.weights(layers, d, 24), "down": draw.weights(layers, 24, d),
        "norms": np.ones((layers, 2, d), draw.dtype)}}

    def layer(x, p):
        b, n, _ = x.shape
        y = rms_norm(x, p["norms"][0])
        q, k, v = ((y @ p[w]).reshape(b, n, -1, d // heads) for w in "qkv")
        q, k = rotated(q), rotated(k)
        k, v = (jnp.repeat(z, heads // kv, 2) for z in (k, v))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / (d // heads) ** 0.5
        scores = jnp.where(jnp.tril(jnp.ones((n, n), bool)), scores, jnp.finfo(x.dtype).min)
        x = x + jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v).reshape(b, n, d) @ p["o"]
        y = rms_norm(x, p["norms"][1])
        return x + (jax.nn.silu(y @ p["gate"]) * (y @ p["up"])) @ p["down"], None

    def loss(params, ids, targets):
        x, _ = lax.scan(jax.checkpoint(layer), params["table"][ids], params["layers"])
        return cross_entropy(rms_norm(x, params["norm"]) @ params["table"].T, targets)

    return Example(loss, params, (draw.integers(TOKENS, 2, 6), draw.integers(TOKENS, 2, 6)))


@model("graph-convolution")
def graph_convolution(draw: Draw) -> Example:
    params = [draw.weights(4, 8), draw.weights(8, CLASSES)]

    def loss(params, nodes, source, target, labels):
        degree = jax.ops.segment_sum(jnp.ones_like(source, nodes.dtype), target, len(nodes))
        scale = jnp.where(degree > 0, lax.rsqrt(jnp.maximum(degree, 1)), 0)
        h = nodes
        for i, w in enumerate(params):
            h = jax.ops.segment_sum((h @ w * scale[:, None])[source], target, len(nodes)) * scale[:, None]
            h = h if i else jax.nn.relu(h)
        return cross_entropy(h, labels)

    return Example(loss, params, (draw.normal(7, 4), draw.integers(7, 12), draw.integers(7, 12), draw.integers(CLASSES, 7)))


@model("graph-attention")
def graph_attention(draw: Draw) -> Example:
    params = {"w": draw.weights(4, 8), "a": draw.normal(16), "out": draw.weights(8, CLASSES)}

    def loss(params, nodes, source, target, labels):
        h = nodes @ params["w"]
        score = jax.nn.leaky_relu(jnp.concatenate([h[source], h[target]], -1) @ params["a"], 0.2)
        score = jnp.exp(score - jax.ops.segment_max(score, target, len(nodes))[target])
        weight = score / jax.ops.segment_sum(score, target, len(nodes))[target]
        return cross_entropy(jax.nn.elu(jax.ops.segment_sum(weight[:, None] * h[source], target, len(nodes))) @ params["out"], labels)

    target = np.concatenate([np.arange(7), draw.integers(7, 9)]).astype(np.int32)
    return Example(loss, params, (draw.normal(7, 4), draw.integers(7, 16), target, draw.integers(CLASSES, 7)))


@model("state-space")
def state_space(draw: Draw) -> Example:
    """A linear recurrence by lax.associative_scan, as S5's."""
    params = {"decay": draw.normal(8), "b": draw.weights(4, 8), "c": draw.weights(8, 4), "skip": draw.normal(4)}

    def loss(params, x, y):
        decay = jax.nn.sigmoid(params["decay"])

        def one(x):
            def combine(a, b):
                return a[0] * b[0], b[0] * a[1] + b[1]

            inputs = x @ params["b"]
            _, h = lax.associative_scan(combine, (jnp.broadcast_to(decay, inputs.shape), inputs))
            return jax.nn.gelu(h @ params["c"] + params["skip"] * x)

        return jnp.mean((jax.vmap(one)(x) - y)**2)

    return Example(loss, params, (draw.normal(2, 9, 4), draw.normal(2, 9, 4)))


@model("selective-scan")
def selective_scan(draw: Draw) -> Example:
    """Mamba's recurrence with a convolution of the past before it."""
    d, n = 6, 4
    params = {"in": draw.weights(d, 2 * d), "conv": draw.normal(3, d), "delta": draw.weights(d, d), "b": draw.weights(d, n), "c": draw.weights(d, n),
              "a": draw.normal(d, n), "out": draw.weights(d, d)}

    def loss(params, x, y):
        h, gate = jnp.split(x @ params["in"], 2, -1)
        past = jnp.pad(h, ((0, 0), (2, 0), (0, 0)))
        h = jax.nn.silu(sum(past[:, i:i + h.shape[1]] * params["conv"][i] for i in range(3)))
        delta, a = jax.nn.softplus(h @ params["delta"]), -jnp.exp(params["a"])

        def step(state, now):
            h, delta, b, c = now
            state = jnp.exp(delta[..., None] * a) * state + (delta * h)[..., None] * b[:, None]
            return state, jnp.einsum("bdn,bn->bd", state, c)

        rows = [jnp.swapaxes(v, 0, 1) for v in (h, delta, h @ params["b"], h @ params["c"])]
        _, out = lax.scan(step, jnp.zeros((x.shape[0], d, n), x.dtype), rows)
        return jnp.mean((jnp.swapaxes(out, 0, 1) * jax.nn.silu(gate) @ params["out"] - y)**2)

    return Example(loss, params, (draw.normal(2, 6, d), draw.normal(2, 6, d)))


@model("vector-quantization")
def vector_quantization(draw: Draw) -> Example:
    """VQ-VAE: the nearest of a table, straight through."""
    params = {"encode": draw.weights(8, 4), "table": draw.normal(6, 4), "decode": draw.weights(4, 8)}

    def loss(params, x):
        z = jnp.tanh(x @ params["encode"])
        nearest = params["table"][jnp.argmin(jnp.sum((z[:, None] - params["table"])**2, -1), -1)]
        through = z + lax.stop_gradient(nearest - z)
        kept = jnp.mean((through @ params["decode"] - x)**2)
        return kept + jnp.mean((lax.stop_gradient(z) - nearest)**2) + 0.25 * jnp.mean((z - lax.stop_gradient(nearest))**2)

    return Example(loss, params, (draw.normal(7, 8),))


@model("contrastive")
def contrastive(draw: Draw) -> Example:
    params = [draw.weights(8, 12), draw.weights(12, 6)]

    def loss(params, a, b):
        def embedded(x):
            z = jax.nn.relu(x @ params[0]) @ params[1]
            return z / jnp.linalg.norm(z, axis=-1, keepdims=True)

        z = jnp.concatenate([embedded(a), embedded(b)])
        logits = jnp.where(jnp.eye(len(z), dtype=bool), -1e9, z @ z.T / 0.1)
        return cross_entropy(logits, jnp.roll(jnp.arange(len(z)), len(a)))

    return Example(loss, params, (draw.normal(4, 8), draw.normal(4, 8)))


@model("recommendation")
def recommendation(draw: Draw) -> Example:
    """Tables of categories, sums of bags, products of all pairs."""
    params = {"tables": [draw.normal(n, 4) for n in (9, 5)], "bottom": draw.weights(3, 4), "top": draw.weights(7, 1)}

    def loss(params, numbers, category, bag, clicked):
        parts = [numbers @ params["bottom"], params["tables"][0][category], jnp.take(params["tables"][1], bag, axis=0).sum(1)]
        parts = jnp.stack(parts, 1)
        pairs = jnp.einsum("bie,bje->bij", parts, parts)[:, *np.tril_indices(3, -1)]
        logit = (jnp.concatenate([parts[:, 0], pairs], 1) @ params["top"])[:, 0]
        return jnp.mean(jnp.logaddexp(0.0, logit) - logit * clicked)

    return Example(loss, params, (draw.normal(6, 3), draw.integers(9, 6), draw.integers(5, 6, 3), draw.integers(2, 6).astype(draw.dtype)))


@model("words")
def words(draw: Draw) -> Example:
    """Skip-gram with negative samples, which are an input."""
    params = {"in": draw.normal(TOKENS, 6), "out": draw.normal(TOKENS, 6)}

    def loss(params, word, near, far):
        v = params["in"][word]
        good = jax.nn.log_sigmoid(jnp.sum(v * params["out"][near], -1))
        bad = jax.nn.log_sigmoid(-jnp.einsum("bd,bkd->bk", v, params["out"][far])).sum(-1)
        return -jnp.mean(good + bad)

    return Example(loss, params, (draw.integers(TOKENS, 8), draw.integers(TOKENS, 8), draw.integers(TOKENS, 8, 3)))


@model("random-field")
def random_field(draw: Draw) -> Example:
    """A linear-chain conditional random field: its forward algorithm, with lengths."""
    params = {"emit": draw.weights(4, CLASSES), "move": draw.normal(CLASSES, CLASSES)}

    def loss(params, x, tags, lengths):
        def one(x, tags, length):
            scores = x @ params["emit"]
            seen = jnp.arange(len(x)) < length
            own = jnp.where(seen, jnp.take_along_axis(scores, tags[:, None], 1)[:, 0], 0).sum()
            own += jnp.where(seen[1:], params["move"][tags[:-1], tags[1:]], 0).sum()

            def step(alpha, now):
                score, is_seen = now
                return jnp.where(is_seen, jax.nn.logsumexp(alpha[:, None] + params["move"], 0) + score, alpha), None

            alpha, _ = lax.scan(step, scores[0], (scores[1:], seen[1:]))
            return jax.nn.logsumexp(alpha) - own

        return jnp.mean(jax.vmap(one)(x, tags, lengths))

    return Example(loss, params, (draw.normal(3, 6, 4), draw.integers(CLASSES, 3, 6), draw.integers(5, 3) + 2))


@model("pointer")
def pointer(draw: Draw) -> Example:
    """A loop of a known number of steps that each look up a row by what the one before chose."""
    params = {"query": draw.weights(6, 6), "key": draw.weights(6, 6)}

    def loss(params, x):
        def body(i, carry):
            h, total = carry
            weight = jax.nn.softmax(x @ params["key"] @ (h @ params["query"]))
            row = lax.dynamic_index_in_dim(x, jnp.argmax(weight), keepdims=False)
            return jnp.tanh(h + row), total - jnp.log(weight[i])

        return lax.fori_loop(0, 4, body, (x.mean(0), jnp.zeros((), x.dtype)))[1]

    return Example(loss, params, (draw.normal(4, 6),))
