# REQUIRES: jax
# RUN: %python %s
"""trainc.jax.export of whole models: five updates against jax.value_and_grad with optax, in f64: losses to 1e-9, parameters and state to 1e-7.

usage: jax-models.py [NAME ...]
"""
import collections.abc
import dataclasses
import os
import sys
import tempfile
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))
from tiny import refused, trainc  # noqa: E402

import trainc.jax as tj  # noqa: E402

jax.config.update("jax_enable_x64", True)
warnings.simplefilter("error")
RNG = np.random.default_rng(3)
CACHE = os.path.join(os.environ.get("TRAINC_TEST_CACHE") or tempfile.gettempdir(), "jax")
UPDATES = 5


def normal(*shape, scale=0.5):
    return RNG.standard_normal(shape) * scale


def cross_entropy(logits, targets):
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], -1))


def layer_norm(x, scale):
    return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-6) * scale


# Models: (loss, params, state, batch).

def mlp():
    params = {"hidden": {"w": normal(8, 16), "b": normal(16)}, "out": {"w": normal(16, 4), "b": np.zeros(4)}}

    def loss(params, batch):
        h = jax.nn.gelu(batch["x"] @ params["hidden"]["w"] + params["hidden"]["b"])
        return cross_entropy(h @ params["out"]["w"] + params["out"]["b"], batch["y"])

    return loss, params, None, ({"x": normal(6, 8), "y": RNG.integers(0, 4, 6)},)


def cnn():
    """Batch normalization with running statistics, which the loss returns."""
    params = {"conv": normal(3, 3, 2, 8), "scale": np.ones(8), "shift": np.zeros(8), "out": normal(8, 3)}
    state = {"mean": np.zeros(8), "var": np.ones(8), "count": np.zeros((), np.int32)}

    def loss(params, state, x, y):
        h = lax.conv_general_dilated(x, params["conv"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        mean, var = h.mean((0, 1, 2)), h.var((0, 1, 2))
        h = jax.nn.relu((h - mean) * lax.rsqrt(var + 1e-5) * params["scale"] + params["shift"])
        h = lax.reduce_window(h, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID").mean((1, 2))
        new = {"mean": 0.9 * state["mean"] + 0.1 * mean, "var": 0.9 * state["var"] + 0.1 * var, "count": state["count"] + 1}
        logits = h @ params["out"]
        return cross_entropy(logits, y), (new, {"correct": jnp.sum(logits.argmax(-1) == y)})

    return loss, params, state, (normal(4, 6, 6, 2), RNG.integers(0, 3, 4))


def gpt():
    """Layers by lax.scan, recomputed; tied embeddings."""
    d, layers, heads = 8, 3, 2
    params = {"embed": normal(11, d), "pos": normal(5, d), "layers": {
        "ln1": np.ones((layers, d)), "qkv": normal(layers, d, 3 * d), "proj": normal(layers, d, d), "ln2": np.ones((layers, d)),
        "up": normal(layers, d, 2 * d), "down": normal(layers, 2 * d, d)}}

    def block(x, p):
        b, n, _ = x.shape
        q, k, v = (y.reshape(b, n, heads, -1) for y in jnp.split(layer_norm(x, p["ln1"]) @ p["qkv"], 3, -1))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(d / heads)
        scores = jnp.where(jnp.tril(jnp.ones((n, n), bool)), scores, -1e30)
        x = x + jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v).reshape(b, n, d) @ p["proj"]
        return x + jax.nn.gelu(layer_norm(x, p["ln2"]) @ p["up"]) @ p["down"], None

    def loss(params, ids, targets):
        x = params["embed"][ids] + params["pos"]
        x, _ = lax.scan(jax.checkpoint(block), x, params["layers"])
        return cross_entropy(x @ params["embed"].T, targets)

    return loss, params, None, (RNG.integers(0, 11, (2, 5)), RNG.integers(0, 11, (2, 5)))


def lstm():
    params = {"cell": normal(3 + 6, 4 * 6), "out": normal(6, 1)}

    def loss(params, x, y):
        def cell(carry, now):
            h, c = carry
            i, f, g, o = jnp.split(jnp.concatenate([now, h], -1) @ params["cell"], 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), None

        zero = jnp.zeros((x.shape[0], 6))
        (h, _), _ = lax.scan(cell, (zero, zero), x.swapaxes(0, 1))
        return jnp.mean((h @ params["out"] - y)**2)

    return loss, params, None, (normal(4, 7, 3), normal(4, 1))


def experts():
    """The two best of four, without capacity."""
    params = {"gate": normal(6, 4), "up": normal(4, 6, 8), "down": normal(4, 8, 6)}

    def loss(params, x, y):
        weights, chosen = lax.top_k(jax.nn.softmax(x @ params["gate"]), 2)
        up, down = params["up"][chosen], params["down"][chosen]
        h = jax.nn.silu(jnp.einsum("nd,nedf->nef", x, up))
        out = jnp.einsum("nef,nefd,ne->nd", h, down, weights / weights.sum(-1, keepdims=True))
        return jnp.mean((out - y)**2)

    return loss, params, None, (normal(5, 6), normal(5, 6))


def graph():
    """Messages along edges that are an input."""
    params = [normal(4, 8), normal(8, 2)]

    def loss(params, nodes, edges, labels):
        h = jax.nn.relu(nodes @ params[0])
        h = h + jax.ops.segment_sum(h[edges[0]], edges[1], nodes.shape[0])
        return cross_entropy(h @ params[1], labels)

    return loss, params, None, (normal(6, 4), RNG.integers(0, 6, (2, 9)), RNG.integers(0, 2, 6))


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Layer:
    weight: jax.Array
    frequencies: np.ndarray
    activation: str = dataclasses.field(metadata={"static": True}, default="tanh")


def module():
    """A module with static fields and integers, which no one trains."""
    layers = [Layer(normal(4, 4), np.arange(4)), Layer(normal(4, 4), np.arange(4), "relu")]

    def loss(layers, x):
        for layer in layers:
            x = getattr(jax.nn, layer.activation)(x @ layer.weight + layer.frequencies)
        return jnp.mean(x**2)

    return loss, layers, None, (normal(3, 4),)


MODELS = {f.__name__: f for f in (mlp, cnn, gpt, lstm, experts, graph, module)}


def split(results, has_state):
    """(loss, new state)."""
    if not isinstance(results, tuple):
        return results, None
    return results[0], results[1][0] if has_state and isinstance(results[1], tuple) else results[1]


def train(loss, params, state, batch, optimizer, clip=None):
    """Losses, parameters and state of JAX and optax."""
    is_float = jax.tree_util.tree_map(lambda x: jnp.issubdtype(x.dtype, jnp.floating), params)
    optimizer = optax.masked(optax.chain(*[optax.clip_by_global_norm(clip)] * bool(clip), optimizer), is_float)
    moments, losses = optimizer.init(params), []

    @jax.jit
    def step(params, state, moments):
        def of(params):
            value, new = split(loss(params, *([] if state is None else [state]), *batch), state is not None)
            return value, new if state is not None else 0

        (value, new), gradients = jax.value_and_grad(of, has_aux=True, allow_int=True)(params)
        gradients = jax.tree_util.tree_map(lambda g, x, f: g if f else jnp.zeros_like(x), gradients, params, is_float)
        updates, moments = optimizer.update(gradients, moments, params)
        return value, optax.apply_updates(params, updates), new, moments

    for _ in range(UPDATES):
        value, params, new, moments = step(params, state, moments)
        state = state if state is None else new
        losses.append(float(value))
    return losses, params, state


def near(a, b, tolerance, what):
    for x, y in zip(jax.tree_util.tree_leaves(a), jax.tree_util.tree_leaves(b), strict=True):
        x, y = np.asarray(x), np.asarray(y)
        assert x.shape == y.shape and np.abs(x - y).max(initial=0) <= tolerance * (1 + np.abs(y).max(initial=0)), (what, np.abs(x - y).max())


def agree(name):
    loss, params, state, batch = MODELS[name]()
    exported = tj.export(loss, params, batch, state=state, optimizer=tj.adamw(0.01, weight_decay=0.1), clip_grad_norm=0.5)
    with exported.step(threads=1, cache_dir=CACHE) as step:
        results = [step(*batch) for _ in range(UPDATES)]
        losses, last = [r.loss for r in results], results[-1].outputs
        trained, new = exported.params(step), exported.state(step)
    expected = train(loss, params, state, batch, optax.adamw(0.01, weight_decay=0.1), 0.5)
    near(losses, expected[0], 1e-9, f"losses of {name}")
    near(trained, expected[1], 1e-7, f"parameters of {name}")
    if state is not None:
        near(new, expected[2], 1e-7, f"state of {name}")
        assert list(last) == ["correct"]
    if name == "gpt":
        assert "train.recompute" in exported.text and "layers.qkv" in exported.text
    if name == "module":
        assert "[0].weight" in exported.text or "0.weight" in exported.text


def windows():
    """Windows as optax.MultiSteps, shapes, evals, averages, names."""
    loss, params, _, batch = mlp()
    batches = [({"x": normal(n, 8), "y": RNG.integers(0, 4, n)},) for n in (6, 6, 3, 6)]

    def logits(params, x):
        return {"logits": jax.nn.gelu(x @ params["hidden"]["w"] + params["hidden"]["b"]) @ params["out"]["w"] + params["out"]["b"]}

    exported = tj.export(loss, params, batches[0], optimizer=tj.sgd(0.1, momentum=0.9), accumulate=2, shapes=[batches[2]],
                         evals={"predict": (logits, (batches[0][0]["x"],))})
    optimizer = optax.MultiSteps(optax.sgd(0.1, momentum=0.9), 2)
    expected, moments = params, optimizer.init(params)
    with exported.step(threads=1, cache_dir=CACHE) as step:
        for given in batches:
            result = step(*given)
            value, gradients = jax.value_and_grad(loss)(expected, *given)
            updates, moments = optimizer.update(gradients, moments, expected)
            expected = optax.apply_updates(expected, updates)
            assert abs(result.loss - value) < 1e-9
        trained, x = exported.params(step), batches[0][0]["x"]
        near(trained, expected, 1e-7, "windows")  # MultiSteps divides in f32
        near(step.eval("predict", x)["logits"], logits(trained, x)["logits"], 1e-9, "eval")
        exported.set_params(step, params)
        near(exported.params(step), params, 0, "parameters that were given")
        with refused(trainc.InvalidArgumentError, "expected parameters as"):
            exported.set_params(step, {"hidden": 1})
        with refused(trainc.MismatchError, "hidden.w: expected float64 of shape (8, 16)", "out.b: expected"):
            exported.set_params(step, {"hidden": {"w": x, "b": params["hidden"]["b"] + 1}, "out": {"w": params["out"]["w"], "b": x}})
        near(exported.params(step), params, 0, "parameters after a refusal")
        assert sorted(step.state_dict()) == ["hidden.b", "hidden.w", "out.b", "out.w"]
    assert "step_1(batch_x: tensor<3x8xf64>, batch_y: tensor<3xi64>)" in repr(exported)
    # An array without elements is no input, but one with some is another one.
    def remembering(p, x, memory):
        return jnp.sum(jnp.square(jnp.concatenate([memory, x]) * p))

    p, x, none, some = np.ones(3), normal(4, 3), np.zeros((0, 3)), normal(5, 3)
    for shapes in [], [(x, some)]:
        with tj.export(remembering, p, (x, none), optimizer=tj.sgd(0.0), shapes=shapes).step(threads=1, cache_dir=CACHE) as step:
            for memory in (none, some)[:1 + len(shapes)]:
                assert abs(step(x, memory).loss - remembering(p, x, memory)) < 1e-9
            with refused(trainc.InvalidArgumentError, "no step takes" if shapes else "memory of step is no input", "(4, 3)" if shapes else "(0, 3)"):
                step(x, x)


def averages():
    """Moving averages begin with the parameters that are given before the first update, and stay as they are after it."""
    exported = tj.export(lambda p, x: jnp.mean(p["w"] * x), {"w": np.ones(3)}, (np.ones(3),), optimizer=tj.sgd(0.1), ema=0.5)
    with exported.step(threads=1, cache_dir=CACHE) as step:
        exported.set_params(step, {"w": np.full(3, 10.0)})
        near(step.read("w", "ema"), np.full(3, 10.0), 0, "averages before the first update")
        step(np.ones(3))
        before = step.read("w", "ema")
        exported.set_params(step, {"w": np.zeros(3)})
        near(step.read("w", "ema"), before, 0, "averages after it")


def untrained():
    """What the loss does not read decays as with optax; without a decay it is not in the module."""
    params = {"w": normal(3), "other": normal(2), "stopped": normal(3)}

    def loss(params, x):
        return jnp.sum((params["w"] * lax.stop_gradient(params["stopped"]) - x)**2)

    batch = (normal(3),)
    for ours, theirs in ((tj.adamw(0.1, weight_decay=0.5), optax.adamw(0.1, weight_decay=0.5)), (tj.adam(0.1), optax.adam(0.1))):
        exported = tj.export(loss, params, batch, optimizer=ours)
        with exported.step(threads=1, cache_dir=CACHE) as step:
            for _ in range(UPDATES):
                step(*batch)
            near(exported.params(step), train(loss, params, None, batch, theirs)[1], 1e-9, "untrained")
    assert exported.unused == ["other"] and exported.frozen == ["stopped"]
    # What one of two steps does not train has moments that go on.
    def part(params, x, which):
        return jnp.sum((params[which] - x)**2)

    given = [(batch[0], which) for which in ("w", "stopped", "w", "w")]
    exported = tj.export(part, params, given[0], shapes=[given[1]], optimizer=tj.adam(0.1))
    expected, optimizer = params, optax.adam(0.1)
    moments = optimizer.init(params)
    with exported.step(threads=1, cache_dir=CACHE) as step:
        for x, which in given:
            step(x, which)
            updates, moments = optimizer.update(jax.grad(part)(expected, x, which), moments, expected)
            expected = optax.apply_updates(expected, updates)
        near(exported.params(step), expected, 1e-7, "two steps")


def narrow():
    """Without x64 NumPy's arrays of 64 bits are of 32 to JAX."""
    jax.config.update("jax_enable_x64", False)
    loss, params, _, batch = mlp()
    exported = tj.export(loss, params, batch, optimizer=tj.sgd(0.1))
    with tempfile.TemporaryDirectory() as folder:
        exported.step(os.path.join(folder, "step.so"), threads=1, cache_dir=CACHE).close()
        other = tj.export(loss, params, batch, optimizer=tj.sgd(0.1), evals={"loss": loss})
        with refused(trainc.MismatchError, "was compiled of another export: expected step(batch_x: [", "loss(batch_x: [", "got step(batch_x: ["):
            other.load(os.path.join(folder, "step.so"), threads=1)
    with exported.step(threads=1, cache_dir=CACHE) as step, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        losses = [step(*given).loss for given in (batch, batch, ({"x": batch[0]["x"].astype("f"), "y": batch[0]["y"].astype("i")},))]
        assert "trained by optimizer (sgd): 4 parameters" in step.report(), step.report()
        with refused(trainc.InvalidArgumentError, "expected float32"):
            step({"x": batch[0]["x"].astype(np.int64), "y": batch[0]["y"]})
    assert abs(losses[0] - loss(params, *batch)) < 1e-5 and losses[0] > losses[1] > losses[2]
    assert sorted(str(w.message).partition(" is copied")[0] for w in said) == ["input batch_x of step", "input batch_y of step"]
    jax.config.update("jax_enable_x64", True)


def clipped():
    """The norm is of all gradients, also of what set_to_zero keeps, as with optax."""
    params, labels = {"w": normal(3), "kept": normal(3)}, {"w": "w", "kept": "kept"}

    def loss(params, x):
        return jnp.sum((params["w"] + 5 * params["kept"] - x)**2)

    batch = (normal(3),)
    exported = tj.export(loss, params, batch, clip_grad_norm=0.5,
                         optimizer=tj.multi_transform({"w": tj.sgd(0.1, momentum=0.9), "kept": tj.set_to_zero()}, labels))
    with exported.step(threads=1, cache_dir=CACHE) as step:
        for _ in range(UPDATES):
            step(*batch)
        trained = exported.params(step)
    assert (trained["kept"] == params["kept"]).all()
    near(trained, train(loss, params, None, batch, optax.multi_transform(
        {"w": optax.sgd(0.1, momentum=0.9), "kept": optax.set_to_zero()}, labels), 0.5)[1], 1e-9, "clipped")


def weak_types():
    """An input of weak type does not widen what it meets."""
    def loss(params, x, scale):
        y = x.astype(jnp.bfloat16) * scale
        return jnp.mean(params * y), {"wide": jnp.zeros(y.dtype.itemsize)}

    batch = (normal(3), jnp.asarray(0.3))
    with tj.export(loss, np.ones(3), batch, optimizer=tj.sgd(0.1)).step(threads=1, cache_dir=CACHE) as step:
        result, (expected, more) = step(*batch), loss(np.ones(3), *batch)
        assert batch[1].weak_type and abs(result.loss - expected) < 1e-9 and result.outputs["wide"].shape == more["wide"].shape == (2,)


def without_elements():
    """What has no elements is no input; names of large constants make way."""
    def loss(params, state, *batch):
        x, k, none = batch
        y = (x @ params["constant"][0] + none.sum()) * k
        return jnp.mean((y - np.sin(np.arange(3000.0)).mean() * jnp.cos(np.arange(3000.0) * y.sum()).mean())**2), state

    jax.config.update("jax_enable_x64", False)
    try:
        warnings.simplefilter("ignore")
        params, state, batch = {"constant": [normal(3).astype(np.float32)]}, normal(2), (normal(4, 3), np.arange(4), np.zeros((0, 2)))
        exported = tj.export(loss, params, batch, state=state, optimizer=tj.sgd(0.1))
        assert exported.inputs["step"].keys() == {"batch_0", "batch_1"} and "constant.0_" in exported.weights
        with exported.step(threads=1, cache_dir=CACHE) as step:
            for given in (batch, batch, (jnp.asarray(batch[0]), batch[1].astype(np.int32)), (normal(4, 3), *batch[1:])):
                expected = loss(exported.params(step), state, *given, *batch[len(given):])[0]
                assert abs(step(*given).loss - expected) < 1e-5
    finally:
        warnings.simplefilter("error")
        jax.config.update("jax_enable_x64", True)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Rows:
    x: np.ndarray
    y: np.ndarray
    kind: str = dataclasses.field(metadata={"static": True}, default="square")


@jax.tree_util.register_pytree_node_class
class Pair(collections.abc.Mapping):
    """A mapping, too, and made of arrays alone."""

    def __init__(self, first, second):
        assert first.shape == second.shape
        self.first, self.second = first, second

    def __getitem__(self, key):
        return getattr(self, key)

    def __iter__(self):
        return iter(("first", "second"))

    def __len__(self):
        return 2

    def tree_flatten(self):
        return (self.first, self.second), None

    @classmethod
    def tree_unflatten(cls, _, leaves):
        return cls(*leaves)


def own_pytrees():
    """Batches that are pytrees of the user's own: other arrays in one, other ones, with other static parts."""
    def loss(params, rows, more):
        apart = (params * rows.x - rows.y) * more["pair"].first - more["pair"].second
        return jnp.mean(apart**2 if rows.kind == "square" else jnp.abs(apart))

    def batch(n, *kind):
        return Rows(normal(n), normal(n), *kind), {"pair": Pair(normal(n), normal(n))}

    rows, more = batch(3)
    exported = tj.export(loss, np.ones(3), (rows, more), shapes=[batch(3, "absolute")], optimizer=tj.sgd(0.1))
    assert list(exported.inputs["step"]) == ["rows_x", "rows_y", "more_pair_0", "more_pair_1"]
    with exported.step(threads=1, cache_dir=CACHE) as step:
        for given in ((rows, more), (rows, batch(3)[1]), batch(3), batch(3, "absolute")):
            expected = loss(exported.params(step), *given)
            assert abs(step(*given).loss - expected) < 1e-9
            given[0].x = normal(3)
            expected = loss(exported.params(step), *given)
            assert abs(step(rows=given[0], more=given[1]).loss - expected) < 1e-9
        for wrong in ((batch(3, "other")[0], more), (3, more), (batch(4)[0], more)):
            with refused(trainc.InvalidArgumentError, "step"):
                step(*wrong)
    with tj.export(loss, np.ones(3), (rows, more), optimizer=tj.sgd(0.1)).step(threads=1, cache_dir=CACHE) as step:
        with refused(trainc.InvalidArgumentError, "rows.structure of step is a constant", "'square'", "'other'"):
            step(batch(3, "other")[0], more)
    data = jax.sharding.PartitionSpec("data")
    plain = dataclasses.make_dataclass("Plain", ["x"])  # no pytree, so a constant
    with tj.export(lambda p, plain: jnp.mean(p * plain.x), np.ones(3), (plain(normal(3)),), optimizer=tj.sgd(0.1)).step(threads=1) as step:
        with refused(trainc.InvalidArgumentError, "plain of step is a constant"):
            step(plain(normal(3)))
    exported = tj.export(lambda p, rows: jnp.mean(p) * jnp.mean(rows.x) - jnp.mean(rows.y), np.ones(3), (rows,), optimizer=tj.sgd(0.1),
                         mesh={"data": 2}, batch_specs=(Rows(data, None),))
    assert "%rows_x: tensor<6xf64> split(" in exported.text and "%rows_y: tensor<3xf64>)" in exported.text, exported.text


def errors():
    loss, params, _, batch = mlp()
    bad, sgd = trainc.UnsupportedError, tj.sgd(0.1)
    for words, arguments, more in (
            (["must be one floating-point number"], (lambda p, b: p["out"]["b"], params, batch), {}),
            (["nothing is trained"], (lambda p, b: jnp.sum(b["x"]), params, batch), {}),
            (["precision='bf16' and f64 in step", "jax-models.py"], (lambda p, x: jnp.mean(p % 0.5), np.ones(2, np.float32), (batch,)),
             {"precision": "bf16"}),
            (["two outputs of step are called b"], (lambda p, x: (jnp.mean(p), {"a": {"b": x}, "b": x}), np.ones(2), (normal(2),)), {}),
            (["is called step, as an entry"], (lambda p, x: jnp.mean(p["step"]), {"step": np.ones(2)}, (normal(2),)), {}),
            (["holds NaN"], (lambda p, b: jnp.sum(p["w"]), {"w": np.full(3, np.nan)}, batch), {}),
            (["two leaves of params"], (loss, {"a.b": np.ones(2), "a": {"b": np.ones(2)}}, batch), {}),
            (["returns (loss, state)"], (lambda p, s, b: (loss(p, b), 1), params, batch), {"state": {"n": np.zeros(2)}}),
            (["the new count is not 0, as before", "np.asarray(0)"], (lambda p, s, x: (jnp.mean(p), {"count": s["count"] + 1}), np.ones(2), (normal(2),)),
             {"state": {"count": 0}}),
            (["rng_args", "no argument is called key"], (loss, params, batch), {"rng_args": ("key",)}),
            (["the function takes 1"], (loss, params, (*batch, 3)), {}),
            (["example batch is ndarray"], (loss, params, batch[0]["x"]), {})):
        with refused(bad, *words):
            tj.export(*arguments, optimizer=sgd, **more)


OTHERS = {f.__name__: f for f in (windows, averages, untrained, narrow, clipped, weak_types, without_elements, own_pytrees, errors)}


if __name__ == "__main__":
    for name in sys.argv[1:] or (*MODELS, *OTHERS):
        agree(name) if name in MODELS else OTHERS[name]()
