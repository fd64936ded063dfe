# REQUIRES: jax
# RUN: %python %s
"""Models of JAX on several ranks: PartitionSpecs shard the batch, parameters and values. Losses and parameters are those of JAX on the whole
batch.

usage: jax-ranks.py   (starts the ranks itself)
       jax-ranks.py CASE LIBRARY EXPECTED   (one of them)
"""
import math
import os
import sys
import tempfile

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"  # of JAX's own run

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))
from launch import started  # noqa: E402
from tiny import refused, trainc  # noqa: E402

import trainc.jax  # noqa: E402

jax.config.update("jax_enable_x64", True)
UPDATES, BAR = 3, 1e-10
MESH = jax.make_mesh((2, 2), ("data", "model"), (AxisType.Auto,) * 2)


def normal(key, *shape):
    return 0.5 * np.random.default_rng(key).standard_normal(shape)


def classifier(params, state, batch, weight):
    """Batch statistics and weights are those of all ranks."""
    h = batch["x"] @ params["first"]["kernel"]
    mean, var = h.mean(0), h.var(0)
    h = jax.nn.relu((h - mean) * jax.lax.rsqrt(var + 1e-5) + params["first"]["bias"]) @ params["second"]
    losses = -jnp.take_along_axis(jax.nn.log_softmax(h), batch["y"][:, None], 1)[:, 0]
    return jnp.sum(losses * weight) / jnp.sum(weight), {"mean": 0.9 * state["mean"] + 0.1 * mean}


def sharded(x, *axes):
    return jax.lax.with_sharding_constraint(x, NamedSharding(MESH, P(*axes)))


def block(params, x):
    """Heads of attention and an MLP, by columns and rows; where the residual stream is normed it is sharded by tokens, too."""
    def heads(w):
        return (x @ w).reshape(*x.shape[:2], 4, 2)

    q, k, v = (heads(w) for w in params["attention"]["in"])
    scores = jnp.einsum("bthd,bshd->bhts", q, k)
    scores = jnp.where(jnp.tril(jnp.ones((x.shape[1],) * 2, bool)), scores, -jnp.inf)
    mixed = jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores), v).reshape(x.shape)
    x = x + mixed @ params["attention"]["out"]
    x = sharded(x, "data", "model")
    x = sharded((x - x.mean(-1, keepdims=True)) * params["scale"], "data")
    x = x + jax.nn.gelu(x @ params["up"] + params["bias"]) @ params["down"]
    return jnp.mean(jnp.square(x))


CLASSIFIER = {"first": {"kernel": normal(0, 5, 8), "bias": normal(1, 8)}, "second": normal(2, 8, 3)}
BLOCK = {"attention": {"in": [normal(i, 8, 8) for i in range(3)], "out": normal(3, 8, 8)}, "scale": normal(4, 8), "up": normal(5, 8, 16),
         "bias": normal(6, 16), "down": normal(7, 16, 8)}
BY = P(None, "model")
SPECS = {"attention": {"in": BY, "out": P("model")}, "scale": None, "up": BY, "bias": NamedSharding(MESH, P("model")), "down": P("model")}
LABELLED = [({"x": normal(10 + i, 4, 5), "y": np.arange(i, i + 4) % 3}, np.array([1.0, 2.0, 0.0, 3.0])) for i in range(UPDATES)]
STREAMS = [(normal(20 + i, 4, 6, 8),) for i in range(UPDATES)]
OF_X = ({"x": P(("dp",)), "y": P("dp")}, P("dp"))
# Name -> loss, parameters, state, batches of all ranks, options of export and of the compiler.
CASES = {
    "data": (classifier, CLASSIFIER, {"mean": np.zeros(8)}, LABELLED, dict(mesh={"data": 2}, batch_specs=P("data")), {}),
    "fsdp": (classifier, CLASSIFIER, {"mean": np.zeros(8)}, LABELLED, dict(mesh=AbstractMesh((2,), ("dp",)), batch_specs=OF_X),
             {"shard": "parameters"}),
    "gathered": (classifier, CLASSIFIER, {"mean": np.zeros(8)}, LABELLED, dict(mesh={"dp": 2}, batch_specs=OF_X, param_specs=P("dp")), {}),
    "tokens": (block, BLOCK, None, STREAMS, dict(mesh=MESH, param_specs=SPECS, batch_specs=(P("data"),)), {"shard": "optimizer"}),
}


def part(batch, rank, mesh):
    """What a rank has of the whole batch, which the first axis shards."""
    sizes = list(dict(getattr(mesh, "shape", mesh)).values())
    index = rank // math.prod(sizes[1:])
    return jax.tree.map(lambda x: np.split(x, sizes[0])[index], batch)


def trained(loss, params, state, batches):
    """By JAX and optax on the whole batch: the losses, and all that is trained and replaced."""
    optimizer, losses = optax.adamw(0.01, weight_decay=0.1), []

    @jax.jit
    def update(params, state, moments, batch):
        held = () if state is None else (state,)
        (value, new), gradients = jax.value_and_grad(lambda p: loss(p, *held, *batch) if held else (loss(p, *batch), None), has_aux=True)(params)
        updates, moments = optimizer.update(gradients, moments, params)
        return value, optax.apply_updates(params, updates), new, moments

    moments = optimizer.init(params)
    for batch in batches:
        value, params, state, moments = update(params, state, moments, batch)
        losses.append(float(value))
    return losses, jax.tree.leaves((params, state))


def exported_of(name, rank):
    loss, params, state, batches, options, _ = CASES[name]
    return trainc.jax.export(loss, params, part(batches[0], rank, options["mesh"]), state=state, **options,
                             optimizer=trainc.jax.adamw(0.01, weight_decay=0.1))


def rank_of(name, library, expected):
    exported, wanted = exported_of(name, int(os.environ["RANK"])), np.load(expected)
    with exported.load(library, threads=1) as step:
        for batch, value in zip(CASES[name][3], wanted["losses"]):
            got = step(*part(batch, step.rank, CASES[name][4]["mesh"])).window_loss
            assert abs(got - value) <= BAR * abs(value), (name, got, value)
        for i, x in enumerate(jax.tree.leaves((exported.params(step), exported.state(step)))):
            y = wanted[f"leaf{i}"]
            assert np.abs(x - y).max() <= BAR * max(1, np.abs(y).max()), (name, i)
        print(f"{step.rank} of {step.ranks}", flush=True)


def checked(name, folder):
    """Compiles a case and runs its ranks."""
    library, expected, exported = f"{folder}/{name}.so", f"{folder}/{name}.npz", exported_of(name, 0)
    trainc.compile(exported, library, mesh=exported.mesh, **CASES[name][5])
    losses, leaves = trained(*CASES[name][:4])
    np.savez(expected, losses=losses, **{f"leaf{i}": x for i, x in enumerate(leaves)})
    ranks = math.prod(exported.mesh.values())
    said = [rank.communicate(timeout=300)[0].strip() for rank in started(ranks, __file__, name, library, expected)]
    assert said == [f"{rank} of {ranks}" for rank in range(ranks)], (name, said)


def texts():
    """What specs become; without a mesh constraints say nothing. Other batches are sharded by names."""
    def of(batch=(normal(0, 2, 6, 8),), **options):
        return trainc.jax.export(block, BLOCK, batch, optimizer=trainc.jax.sgd(0.1), **options).text

    text = of(**CASES["tokens"][4], evals={"e": lambda params, x: x.sum((0, 2))})
    for said in ["train.mesh @mesh(data = 1, model = 1)", "@attention.in.2 : tensor<8x8xf64> init(zeros) optimizer(@optimizer) split([], [model])",
                 "@down : tensor<16x8xf64> init(zeros) optimizer(@optimizer) split([model])", "@step(%x: tensor<4x6x8xf64> split([data]))",
                 "split([data], [model]) : tensor<4x6x8xf64>", "@e(%x: tensor<4x6x8xf64> split([data]))"]:
        assert said in text, (said, text)
    named = trainc.jax.export(lambda params, y, x: block(params, x) + y.sum(), BLOCK, {"y": normal(1, 3), "x": normal(0, 2, 6, 8)},
                              optimizer=trainc.jax.sgd(0.1), mesh=MESH, batch_specs={"x": P("data"), "y": None}).text
    assert "@step(%y: tensor<3xf64>, %x: tensor<4x6x8xf64> split([data]))" in named, named
    assert "split" not in of() and "mesh" not in of()
    assert "@scale : tensor<8xf64> init(zeros) optimizer(@optimizer)\n" in text, text


def refusals():
    def of(said, *more, batch=(normal(0, 2, 6, 8),), function=block, **options):
        with refused(trainc.UnsupportedError, said, *more):
            trainc.jax.export(function, BLOCK, batch, optimizer=trainc.jax.sgd(0.1), **{"mesh": MESH, **options})

    of("bias: P('pipe',) names pipe", "expected axes of the mesh {'data': 2, 'model': 2}", param_specs={**SPECS, "bias": P("pipe")})
    of("names data: expected axes of the mesh {}", mesh=None, batch_specs=P("data"))
    of("bias: P(None, 'model') has 2 dimensions, the value has 1", param_specs={**SPECS, "bias": BY})
    of("param_specs: expected a pytree prefix of PartitionSpecs", param_specs={"up": BY})
    of("batch_specs: expected a pytree prefix of PartitionSpecs", batch_specs=(P("data"), None))
    of("leaves a dimension open", param_specs={**SPECS, "bias": P(P.UNCONSTRAINED)})
    of("'data': 0: expected a name and a number of ranks", mesh={"data": 0})
    of("a constraint that leaves dimensions 0 open", function=lambda params, x: jnp.sum(sharded(x * params["scale"], P.UNCONSTRAINED)))
    of("x has 0 dimensions here, expected 1 or more", batch_specs=P("data"), shapes=[(np.array(1.0),)])
    of("rng is a random key", batch=(normal(0, 2, 6, 8), jax.random.key(0)), batch_specs=P("data"),
       function=lambda params, x, rng: jnp.sum(x * params["scale"] * jax.random.normal(rng, x.shape)))


if len(sys.argv) > 1:
    rank_of(*sys.argv[1:])
else:
    texts()
    refusals()
    with tempfile.TemporaryDirectory() as scratch:
        for case in CASES:
            checked(case, scratch)
