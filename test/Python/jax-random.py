# REQUIRES: jax
# RUN: %python %s
"""Draws and random keys of trainc.jax: which are the same, what they are distributed like, and what becomes of them in vmap and in derivatives.

usage: jax-random.py [NAME ...]
"""
import dataclasses
import functools
import os
import sys
import tempfile
import warnings

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))
from tiny import refused, trainc  # noqa: E402

import trainc.jax as tj  # noqa: E402

jax.config.update("jax_enable_x64", True)
warnings.simplefilter("error")
CACHE = os.path.join(os.environ.get("TRAINC_TEST_CACHE") or tempfile.gettempdir(), "jax")


def draws():
    """Dropout by keys: other masks in each call, of the right rate; two draws of one key are refused."""
    def loss(params, key, x):
        a, b = jax.random.split(key)
        keep = jax.random.bernoulli(a, 0.75, x.shape)
        noise = jax.random.normal(b, x.shape) + jax.random.uniform(jax.random.fold_in(b, 1), x.shape)
        more = [jax.random.fold_in(b, i) for i in range(2, 6)]
        return jnp.mean(params["w"] * x * keep / 0.75), {
            "keep": keep, "noise": noise, "at": jax.random.randint(more[0], (500,), 3, 6), "order": jax.random.permutation(more[1], 20),
            "bounded": jax.random.truncated_normal(more[2], -1.0, 0.5, (500,)),
            "class": jax.random.categorical(more[3], jnp.log(jnp.array([0.2, 0.8])), shape=(500,))}

    def twice(params, key, x):
        return jnp.mean(params["w"] * jax.random.normal(key, x.shape) + jax.random.uniform(key, x.shape))

    params, x = {"w": np.ones(1)}, np.ones((100, 100))
    for key, rng_args in ((jax.random.key(0), ()), (jax.random.PRNGKey(0), ("key",))):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            exported = tj.export(loss, params, (key, x), optimizer=tj.sgd(0.1), rng_args=rng_args)
        assert len(said) == 1 and "draws by its own seed" in str(said[0].message)
        assert list(exported.inputs["step"]) == ["x"]
        with exported.step(threads=1, cache_dir=CACHE) as step:
            first, second = step(key, x).outputs, step(x=x).outputs
        assert not np.array_equal(first["keep"], second["keep"]) and not np.array_equal(first["noise"], second["noise"])
        assert abs(first["keep"].mean() - 0.75) < 0.02 and abs(first["noise"].mean() - 0.5) < 0.05
        assert set(first["at"].tolist()) == {3, 4, 5} and sorted(first["order"]) == list(range(20)) != first["order"].tolist()
        assert -1 <= first["bounded"].min() < -0.9 and 0.4 < first["bounded"].max() <= 0.5 and abs(first["class"].mean() - 0.8) < 0.1
        with refused(trainc.UnsupportedError, "a key that was drawn from", "jax-random.py"):
            tj.export(twice, params, (key, x), optimizer=tj.sgd(0.1), rng_args=rng_args)


def many_keys():
    """Keys of loops, of branches, of numbers that are inputs; the same child of a key by two ways is drawn from once."""
    normal, split, fold = jax.random.normal, jax.random.split, jax.random.fold_in

    def loss(params, key, n):
        one, two, three, four, five = split(key, 5)
        drawn = [lax.scan(lambda c, k: (c, normal(k)), 0, split(one, 4))[1], lax.map(normal, split(two, 4)[::-1]),
                 lax.fori_loop(0, 4, lambda i, x: x.at[i].set(normal(split(three, 4)[i])), jnp.zeros(4)),
                 lax.cond(params[0] > 0, lambda k: normal(k, (4,)), lambda k: jax.random.uniform(k, (4,)), four),
                 jax.vmap(lambda i: normal(fold(fold(five, n), i)))(jnp.arange(4)), jax.random.choice(fold(five, n + 1), 9, (4,), p=np.ones(9) / 9),
                 jax.vmap(normal)(jnp.concatenate([split(fold(key, 7), 3), fold(key, 8)[None]]))]
        return jnp.mean(params), drawn

    def children(params, key, n, first, second):
        return jnp.mean(params * normal(first(key, n), (4,)) + normal(second(key, n), (4,)))

    params, key, n = np.ones(4), jax.random.key(0), np.int32(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for given in (key, jax.random.PRNGKey(0)):
            exported = tj.export(loss, params, (given, n), optimizer=tj.sgd(0.1), rng_args=("key",))
            with exported.step(threads=1, cache_dir=CACHE) as step:
                first, second = (dict(step(given, n).outputs) for _ in range(2))
            assert len(first) == 7 and all(len(set(first[k].tolist())) > 1 and not np.array_equal(first[k], second[k]) for k in first)
        ways = [lambda k, n: split(k, 3)[1], lambda k, n: split(k, (2, 2))[0, 1], lambda k, n: fold(k, 1), lambda k, n: split(k)[0],
                lambda k, n: fold(k, n), lambda k, n: fold(k, n * 2), lambda k, n: fold(k, n + n - n)]
        for i, a in enumerate(ways):
            for b in ways[i:]:
                if a is b or i < 2 and b in ways[:3]:
                    with refused(trainc.UnsupportedError, "a key that was drawn from"):
                        tj.export(children, params, (key, n, a, b), optimizer=tj.sgd(0.1))
        for a, b in zip(ways[2:], ways[3:]):
            tj.export(children, params, (key, n, a, b), optimizer=tj.sgd(0.1))


def drawn_by_vmap():
    """Bounds of draws by vmap are those of its rows, whatever inner dimensions there are; one key draws the same for all rows."""
    uniform, randint, permuted = jax.random.uniform, jax.random.randint, jax.random.permutation

    def loss(params, key, lows):
        keys, one = [jax.random.split(k, 4) for k in jax.random.split(key, 8)], jax.random.split(jax.random.fold_in(key, 9), 4)
        return jnp.mean(params), {
            "square": jax.vmap(lambda k, low: uniform(k, (4,), minval=low, maxval=low + 1))(keys[0], lows),
            "long": jax.vmap(lambda k, low: uniform(k, (9,), minval=low, maxval=low + 1))(keys[1], lows),
            "columns": jax.vmap(lambda k: uniform(k, (4,), minval=lows, maxval=lows + 1))(keys[2]),
            "same": jax.vmap(lambda low: uniform(one[0], minval=low, maxval=low + 1))(lows),
            "whole": jax.vmap(lambda k, low: randint(k, (4,), low, low + 5))(keys[3], lows.astype(int)),
            "same whole": jax.vmap(lambda low: randint(one[1], (4,), low, low + 5))(lows.astype(int)),
            "bounded": jax.vmap(lambda k, low: jax.random.truncated_normal(k, low / 10, low / 10 + 1, (4,)))(keys[4], 10.0 * np.arange(4)),
            "order": jax.vmap(lambda k: permuted(k, 9))(keys[5]), "same order": jax.vmap(lambda low: permuted(one[2], low + jnp.arange(5)))(lows),
            "columns in order": permuted(one[3], lows[:, None] + jnp.zeros((4, 3)), independent=True)}

    lows = 10.0 * np.arange(4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exported = tj.export(loss, np.ones(2), (jax.random.key(0), lows), optimizer=tj.sgd(0.1))
    with exported.step(threads=1, cache_dir=CACHE) as step:
        drawn = {k: np.asarray(x, float) for k, x in step(lows=lows).outputs.items()}
    for name, width in (("square", 1), ("long", 1), ("same", 1), ("whole", 4), ("same whole", 4), ("columns", 1)):
        rows = drawn[name].T if name == "columns" else drawn[name]
        inner = rows - lows.reshape(4, *[1] * (rows.ndim - 1))
        assert inner.min() >= 0 and inner.max() <= width and len(set(inner.round(9).reshape(-1).tolist())) > 1 - (name == "same"), (name, rows)
        assert np.allclose(inner, inner[:1]) == name.startswith("same"), (name, rows)
    above = drawn["bounded"] - lows[:, None] / 10
    assert 0 <= above.min() < above.max() <= 1 and len(set(above.reshape(-1).tolist())) == 16
    assert (np.sort(drawn["order"]) == np.arange(9)).all() and len({tuple(row) for row in drawn["order"].tolist()}) > 1
    order = drawn["same order"] - lows[:, None]
    assert (order == order[0]).all() and sorted(order[0]) == list(range(5))
    assert (np.sort(drawn["columns in order"], 0) == lows[:, None]).all()


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Stream:
    key: jax.Array
    count: jax.Array


def drawn_from_streams():
    """Keys with counts of their draws, as nnx.Rngs, in a class of the user's own."""
    def loss(params, rngs, x):
        first, second = (jax.random.normal(jax.random.fold_in(rngs.key, rngs.count + i), (4,)) for i in range(2))
        return jnp.mean(params * x), {"first": first, "second": second}

    x = np.ones(4)
    for key in (jax.random.key(0), jax.random.PRNGKey(0)):
        rngs = Stream(key, jnp.uint32(0))
        with refused(trainc.UnsupportedError, "a random key is named in rng_args"):
            tj.export(loss, np.ones(4), (rngs, x), optimizer=tj.sgd(0.1))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exported = tj.export(loss, np.ones(4), (rngs, x), optimizer=tj.sgd(0.1), rng_args=("rngs",))
        assert list(exported.inputs["step"]) == ["x"]
        with exported.step(threads=1, cache_dir=CACHE) as step:
            drawn = [step(given, x).outputs for given in (rngs, Stream(key, jnp.uint32(2)))]
        assert len({y for result in drawn for values in result.values() for y in values.tolist()}) == 16


@functools.partial(jax.jit, static_argnums=1)
def _gumbel(key, shape):
    return 0.01 * jax.random.gumbel(key, shape)


@jax.jit
def _normal_real(key):
    return 5 + jax.random.normal(key, (4000,))


@jax.jit
def _shuffle(key, x):
    return -jax.random.permutation(key, x)


@jax.jit
def _uniform(key, low, high):
    return jax.random.bits(key, (4,)) * low + high


def drawn_by_others():
    """Functions of the user's that have names of JAX's own are what they are."""
    def loss(params, key, x):
        keys = jax.random.split(key, 3)
        return jnp.mean(params * x), {"gumbel": _gumbel(keys[0], (4000,)), "normal": _normal_real(keys[1]), "order": _shuffle(keys[2], jnp.arange(9))}

    def bits(params, key, x):
        return jnp.mean(params * _uniform(key, 0.0, 1.0))

    key, x = jax.random.key(0), np.ones(4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exported = tj.export(loss, np.ones(4), (key, x), optimizer=tj.sgd(0.1))
    with exported.step(threads=1, cache_dir=CACHE) as step:
        drawn = step(key, x).outputs
    assert abs(drawn["gumbel"].std() - 0.0128) < 1e-3 and abs(drawn["normal"].mean() - 5) < 0.1, drawn
    assert sorted(drawn["order"]) == list(range(-8, 1)) != drawn["order"].tolist()
    with refused(trainc.UnsupportedError, "raw bits of a key", "jax-random.py"):
        tj.export(bits, np.ones(4), (key, x), optimizer=tj.sgd(0.1))


def drawn_in_derivatives():
    """Derivatives of the loss's own by bounds and by what is permuted."""
    uniform, permuted = jax.random.uniform, jax.random.permutation

    def loss(params, key, x):
        keys = jax.random.split(key, 4)
        def high(p):
            return jnp.sum(uniform(keys[0], (4000,), minval=p[0], maxval=p[1]))

        return jnp.mean(params), {
            "backward": jax.grad(high)(x), "drawn": (drawn := jax.value_and_grad(lambda p: uniform(keys[1], minval=p, maxval=3 * p))(x[1])),
            "ratio": drawn[0] / drawn[1], "forward": jax.jvp(lambda p: uniform(keys[2], (4,), minval=p, maxval=p + 1), (x[0],), (x[1],))[1],
            "order": jax.grad(lambda p: jnp.vdot(permuted(keys[3], p), 2.0**jnp.arange(9)))(jnp.arange(9.0))}

    key, x = jax.random.key(0), np.array([1.0, 2.0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exported = tj.export(loss, np.ones(4), (key, x), optimizer=tj.sgd(0.1))
    with exported.step(threads=1, cache_dir=CACHE) as step:
        drawn = step(key, x).outputs
    assert np.allclose(drawn["backward"] / 4000, 0.5, atol=0.03) and abs(drawn["backward"].sum() - 4000) < 1e-6, drawn
    assert abs(drawn["ratio"] - 2) < 1e-6 and np.allclose(drawn["forward"], 2), drawn
    assert sorted(drawn["order"]) == [2.0**i for i in range(9)] != drawn["order"].tolist(), drawn


GROUPS = {f.__name__: f for f in (draws, many_keys, drawn_by_vmap, drawn_from_streams, drawn_by_others, drawn_in_derivatives)}


if __name__ == "__main__":
    for name in sys.argv[1:] or GROUPS:
        GROUPS[name]()
