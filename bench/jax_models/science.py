"""Losses with derivatives, physics, reinforcement learning, generative models."""
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from . import Draw, Example, model


def mlp(params, x):
    for w, b in params[:-1]:
        x = jnp.tanh(x @ w + b)
    return x @ params[-1][0] + params[-1][1]


def layers(draw: Draw, *widths: int) -> list:
    return [(draw.weights(a, b), draw.normal(b, scale=0.1)) for a, b in zip(widths, widths[1:])]


@model("heat-equation")
def heat_equation(draw: Draw) -> Example:
    """A network whose derivatives are in its loss: u_t = u_xx."""
    def loss(params, points, starts):
        def u(t, x):
            return mlp(params, jnp.stack([t, x]))[0]

        def residual(p):
            return jax.grad(u, 0)(*p) - jax.grad(jax.grad(u, 1), 1)(*p)

        start = jax.vmap(lambda x: u(jnp.zeros_like(x), x) - jnp.sin(jnp.pi * x))(starts)
        return jnp.mean(jax.vmap(residual)(points)**2) + jnp.mean(start**2)

    return Example(loss, layers(draw, 2, 8, 8, 1), (draw.uniform(6, 2), draw.uniform(5)))


@model("hamiltonian")
def hamiltonian(draw: Draw) -> Example:
    def loss(params, state, change):
        gradient = jax.vmap(jax.grad(lambda s: mlp(params, s)[0]))(state)
        q, p = jnp.split(gradient, 2, -1)
        return jnp.mean((jnp.concatenate([p, -q], -1) - change)**2)

    return Example(loss, layers(draw, 4, 8, 1), (draw.normal(5, 4), draw.normal(5, 4)))


@model("normalizing-flow")
def normalizing_flow(draw: Draw) -> Example:
    """Affine couplings with their log-determinants."""
    params = [layers(draw, 2, 8, 4) for _ in range(3)]

    def loss(params, x):
        log_det = 0.0
        for i, p in enumerate(params):
            a, b = jnp.split(x, 2, -1) if i % 2 == 0 else jnp.split(x, 2, -1)[::-1]
            shift, scale = jnp.split(mlp(p, a), 2, -1)
            scale = jnp.tanh(scale)
            b = b * jnp.exp(scale) + shift
            log_det = log_det + scale.sum(-1)
            x = jnp.concatenate([a, b] if i % 2 == 0 else [b, a], -1)
        return jnp.mean(0.5 * (x**2).sum(-1) - log_det)

    return Example(loss, params, (draw.normal(6, 4),))


@model("radiance-field")
def radiance_field(draw: Draw) -> Example:
    """Positions by waves, densities along rays by cumprod."""
    def loss(params, origins, directions, colors):
        depth = jnp.linspace(0.1, 1.0, 6).astype(origins.dtype)
        points = origins[:, None] + directions[:, None] * depth[:, None]
        waves = jnp.concatenate([f(points * 2.0**k) for k in range(2) for f in (jnp.sin, jnp.cos)], -1)
        out = mlp(params, waves)
        density, color = jax.nn.softplus(out[..., 0]), jax.nn.sigmoid(out[..., 1:])
        alpha = 1 - jnp.exp(-density * jnp.diff(depth, append=1.2))
        light = jnp.cumprod(jnp.concatenate([jnp.ones_like(alpha[:, :1]), 1 - alpha[:, :-1] + 1e-10], -1), -1)
        return jnp.mean((((alpha * light)[..., None] * color).sum(1) - colors)**2)

    return Example(loss, layers(draw, 12, 8, 4), (draw.normal(4, 3), draw.normal(4, 3), draw.uniform(4, 3)))


@model("score-matching")
def score_matching(draw: Draw) -> Example:
    """Denoising by a network of the noise's size; noise and times are inputs."""
    def loss(params, x, noise, time):
        size = jnp.exp(-2 + 3 * time)[:, None]
        waves = time[:, None] * 2.0 ** jnp.arange(3)
        h = jnp.concatenate([x + size * noise, jnp.sin(waves), jnp.cos(waves)], -1)
        return jnp.mean((size * mlp(params, h) + noise)**2 * jnp.minimum(size**-2, 5))

    return Example(loss, layers(draw, 10, 12, 4), (draw.normal(6, 4), draw.normal(6, 4), draw.uniform(6)))


@model("gradient-penalty")
def gradient_penalty(draw: Draw) -> Example:
    """A Wasserstein critic."""
    def loss(params, real, fake, share):
        def critic(x):
            return mlp(params, x)[..., 0]

        between = share[:, None] * real + (1 - share[:, None]) * fake
        size = jnp.linalg.norm(jax.vmap(jax.grad(critic))(between), axis=-1)
        return critic(fake).mean() - critic(real).mean() + 10 * jnp.mean((size - 1)**2)

    return Example(loss, layers(draw, 4, 8, 1), (draw.normal(5, 4), draw.normal(5, 4), draw.uniform(5)))


@model("policy")
def policy(draw: Draw) -> Example:
    """Proximal policy optimization: advantages by a reverse scan, a clipped ratio, an entropy."""
    params = {"actor": layers(draw, 4, 8, 3), "critic": layers(draw, 4, 8, 1)}

    def loss(params, states, actions, rewards, done, old):
        values = mlp(params["critic"], states)[..., 0]

        def back(total, now):
            delta, ended = now
            total = delta + 0.9 * (1 - ended) * total
            return total, total

        fixed = lax.stop_gradient(values)
        delta = rewards + 0.95 * fixed[1:] * (1 - done) - fixed[:-1]
        _, advantage = lax.scan(back, jnp.zeros((), states.dtype), (delta, done), reverse=True)
        scaled = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        chances = jax.nn.log_softmax(mlp(params["actor"], states[:-1]))
        ratio = jnp.exp(jnp.take_along_axis(chances, actions[:, None], -1)[:, 0] - old)
        surrogate = jnp.minimum(ratio * scaled, jnp.clip(ratio, 0.8, 1.2) * scaled)
        entropy = -jnp.sum(jnp.exp(chances) * chances, -1)
        return -surrogate.mean() - 0.01 * entropy.mean() + 0.5 * jnp.mean((values[:-1] - advantage - fixed[:-1])**2)

    return Example(loss, params, (draw.normal(8, 4), draw.integers(3, 7), draw.normal(7), draw.integers(2, 7).astype(draw.dtype), draw.normal(7)))


@model("q-learning")
def q_learning(draw: Draw) -> Example:
    """The target network is state that follows slowly."""
    params = layers(draw, 4, 8, 3)

    def loss(params, target, states, actions, rewards, following):
        goal = rewards + 0.9 * mlp(target["target"], following).max(-1)
        chosen = mlp(params, states)[jnp.arange(len(actions)), actions]
        new = jax.tree_util.tree_map(lambda t, p: 0.9 * t + 0.1 * lax.stop_gradient(p), target["target"], params)
        error = chosen - lax.stop_gradient(goal)
        return jnp.mean(jnp.where(jnp.abs(error) < 1, 0.5 * error**2, jnp.abs(error) - 0.5)), {"target": new}

    return Example(loss, params, (draw.normal(6, 4), draw.integers(3, 6), draw.normal(6), draw.normal(6, 4)), {"target": layers(draw, 4, 8, 3)})


@model("meta-learning")
def meta_learning(draw: Draw) -> Example:
    """Two inner steps of gradient descent, differentiated through."""
    def loss(params, x, y, new_x, new_y):
        def error(p, x, y):
            return jnp.mean((mlp(p, x) - y)**2)

        def task(x, y, new_x, new_y):
            inner = params
            for _ in range(2):
                inner = jax.tree_util.tree_map(lambda p, g: p - 0.1 * g, inner, jax.grad(error)(inner, x, y))
            return error(inner, new_x, new_y)

        return jnp.mean(jax.vmap(task)(x, y, new_x, new_y))

    return Example(loss, layers(draw, 1, 6, 1), tuple(draw.normal(3, 4, 1) for _ in range(4)))


@model("kernel-regression")
def kernel_regression(draw: Draw) -> Example:
    """Attention by distances, whose roots have no gradient at 0 and are kept from it by where."""
    params = {"scale": draw.normal(3), "values": draw.normal(6, 2)}

    def loss(params, anchors, x, y):
        difference = (x[:, None] - anchors) * jnp.exp(params["scale"])
        squares = (difference**2).sum(-1)
        distance = jnp.where(squares > 0, jnp.sqrt(jnp.where(squares > 0, squares, 1.0)), 0.0)
        return jnp.mean((jax.nn.softmax(-distance) @ params["values"] - y)**2)

    anchors = draw.normal(6, 3)
    return Example(loss, params, (anchors, np.concatenate([anchors[:2], draw.normal(3, 3)]), draw.normal(5, 2)))


@model("optimal-transport")
def optimal_transport(draw: Draw) -> Example:
    """Sinkhorn's iteration in logarithms, a loop with known bounds."""
    def loss(params, x, y):
        a, b = mlp(params, x), y
        cost = ((a[:, None] - b)**2).sum(-1) / 0.5

        def body(_, fg):
            f, g = fg
            f = -jax.nn.logsumexp(g - cost, 1)
            return f, -jax.nn.logsumexp(f[:, None] - cost, 0)

        zeros = jnp.zeros(len(x), x.dtype)
        f, g = lax.fori_loop(0, 5, body, (zeros, zeros))
        return jnp.sum(jnp.exp(f[:, None] + g - cost) * cost)

    return Example(loss, layers(draw, 3, 8, 2), (draw.normal(5, 3), draw.normal(5, 2)))


@model("alignment")
def alignment(draw: Draw) -> Example:
    """Preferences of pairs (DPO), with lengths; the reference's scores are an input."""
    params = {"table": draw.normal(11, 6), "head": draw.weights(6, 11)}

    def loss(params, chosen, rejected, lengths, reference):
        def score(ids):
            chances = jax.nn.log_softmax(jnp.cumsum(params["table"][ids], 1) @ params["head"])
            of_next = jnp.take_along_axis(chances[:, :-1], ids[:, 1:, None], -1)[..., 0]
            return jnp.where(jnp.arange(ids.shape[1] - 1) < lengths[:, None], of_next, 0).sum(-1)

        return -jnp.mean(jax.nn.log_sigmoid(0.1 * (score(chosen) - score(rejected) - reference)))

    return Example(loss, params, (draw.integers(11, 4, 6), draw.integers(11, 4, 6), draw.integers(4, 4) + 1, draw.normal(4)))
