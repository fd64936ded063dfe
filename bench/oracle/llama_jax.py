"""The model of examples/llama.py in JAX, float64: its losses and gradient norms over the first updates."""
import jax
import jax.numpy as jnp
import numpy as np
import optax

from jax_models import optimizer

jax.config.update("jax_enable_x64", True)
SEED = 4321


def shapes(layers, width, heads, kv_heads, hidden, vocab, **_):
    size = width // heads
    out = {"wte.weight": (vocab, width)}
    for i in range(layers):
        h = f"h.{i}."
        out |= {h + "norm_1.weight": (width,), h + "attn.q_proj.weight": (width, width),
                h + "attn.k_proj.weight": (width, kv_heads * size), h + "attn.v_proj.weight": (width, kv_heads * size),
                h + "attn.o_proj.weight": (width, width), h + "norm_2.weight": (width,),
                h + "mlp.gate_proj.weight": (width, hidden), h + "mlp.up_proj.weight": (width, hidden),
                h + "mlp.down_proj.weight": (hidden, width)}
    return out | {"norm_f.weight": (width,), "lm_head.weight": (width, vocab)}


def initial_values(**sizes):
    """Weights N(0, 0.1), larger than usual so that attention is far from uniform; norm weights near 1."""
    rng = np.random.default_rng(SEED)
    return {name: (rng.standard_normal(shape) * 0.1 + (len(shape) == 1)).astype(np.float32)
            for name, shape in shapes(**sizes).items()}


def batch(vocab, batch, seq, **_):
    tokens = np.random.default_rng(SEED + 1).integers(0, vocab, (batch, seq + 1)).astype(np.int32)
    return tokens[:, :-1], tokens[:, 1:]


def rms_norm(x, weight):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5) * weight


def rotary(x, theta=10000.0):
    """x is [batch, position, head, size]; element i turns with element i + size / 2."""
    half = x.shape[-1] // 2
    angle = jnp.arange(x.shape[1])[:, None] * theta ** (-jnp.arange(half) / half)
    c, s = jnp.cos(angle)[:, None], jnp.sin(angle)[:, None]
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * c - b * s, b * c + a * s], -1)


def attention(q, k, v):
    """Causal; head h of q uses head h // (heads / kv_heads) of k and v."""
    group = q.shape[2] // k.shape[2]
    k, v = jnp.repeat(k, group, 2), jnp.repeat(v, group, 2)
    s = jnp.einsum("bihd,bjhd->bhij", q, k) / q.shape[-1] ** 0.5
    s = jnp.where(jnp.tril(jnp.ones(s.shape[-2:], bool)), s, -jnp.inf)
    return jnp.einsum("bhij,bjhd->bihd", jax.nn.softmax(s, -1), v)


def loss_of(p, x, y, layers, heads, kv_heads, **_):
    x = p["wte.weight"][x]
    B, T, d = x.shape
    for i in range(layers):
        h = f"h.{i}."
        z = rms_norm(x, p[h + "norm_1.weight"])
        q, k, v = ((z @ p[f"{h}attn.{n}_proj.weight"]).reshape(B, T, count, d // heads)
                   for n, count in (("q", heads), ("k", kv_heads), ("v", kv_heads)))
        x = x + attention(rotary(q), rotary(k), v).reshape(B, T, d) @ p[h + "attn.o_proj.weight"]
        z = rms_norm(x, p[h + "norm_2.weight"])
        z = jax.nn.silu(z @ p[h + "mlp.gate_proj.weight"]) * (z @ p[h + "mlp.up_proj.weight"])
        x = x + z @ p[h + "mlp.down_proj.weight"]
    logits = rms_norm(x, p["norm_f.weight"]) @ p["lm_head.weight"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()


def first_updates(parameters, data, updates, **sizes):
    """[(loss, gradient norm before the clip)]."""
    p = {k: jnp.array(v, jnp.float64) for k, v in parameters.items()}
    state = optimizer.init(p)

    @jax.jit
    def update(p, state):
        loss, g = jax.value_and_grad(lambda p: loss_of(p, *data, **sizes))(p)
        changes, state = optimizer.update(g, state, p)
        return optax.apply_updates(p, changes), state, loss, optax.global_norm(g)

    rows = []
    for _ in range(updates):
        p, state, loss, norm = update(p, state)
        rows.append((float(loss), float(norm)))
    return rows
