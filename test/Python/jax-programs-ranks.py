# REQUIRES: jax
# RUN: %python %s
"""Random programs on a mesh of 2 x 2 ranks: three parameters of 4 x 3, values and the batch are sharded at random, also by parts that are uneven.
Losses and parameters after an update in f64 are JAX's, or the compiler refuses the program. `jax-programs-ranks.py FIRST END` tries other seeds.

usage: jax-programs-ranks.py [FIRST END]   (starts the ranks itself)
       jax-programs-ranks.py rank   (one of them; it reads names of cases)
"""
import collections
import os
import random
import sys
import tempfile

os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0"  # compiles faster

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh, NamedSharding
from jax.sharding import PartitionSpec as P

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))
from jax_random import IDS, PARAMETERS, Writer, expected, program  # noqa: E402
from launch import started  # noqa: E402
from tiny import trainc  # noqa: E402

import trainc.jax  # noqa: E402

jax.config.update("jax_enable_x64", True)
MESH = AbstractMesh((2, 2), ("data", "model"))
# Of a program: what would have one axis in two dimensions is refused.
SPECS = [[P(), P("data"), P(None, "model"), P("data", "model")], [P(), P("model"), P("data"), P(("data", "model"))]]
SHARDS, BUFFERS = [None, "optimizer", "gradients", "parameters"], [None, "full", "sharded"]
BAR = 1e-9
# What needs all of a dimension: programs with it would mostly be refused. A cast to float32 rounds what ranks have each.
WHOLE = ["[", "lax.scan", "fori_loop", "concatenate", "roll", "flip", "diff", "reduce_window", "top_k", "dynamic", "associative", "pad(", "tile",
         "kron", "searchsorted", "cum", "triu", "float32"]
REFUSED = ["cannot be done in parts", "are in conflict", "to divide into", "sum of i64 over ranks", "split as one block"]


class ShardedWriter(Writer):
    def value(self):
        value = next(v for v in iter(super().value, None) if not any(part in v for part in WHOLE))
        return f"sharded({value}, {self.random.randrange(4)})" if self.random.random() < 0.3 else value


def ranks(cases):
    """One rank: what is wrong with each case, as a line."""
    for line in cases:
        name = line.strip()
        given = np.load(f"{name}.npz")
        with trainc.load(f"{name}.so", weights=f"{name}.safetensors", threads=1) as step:
            for _ in range(given["window"]):
                loss = step(np.split(IDS, 2)[step.rank // 2]).window_loss
            after = step.state_dict()
        wrong = [key for key in "012" if key in given and not np.abs(after[key] - given[key]).max() <= BAR * given["scale"]]
        print(*wrong, *(["loss"] if not abs(loss - given["loss"]) <= BAR * (1 + abs(given["loss"])) else []), flush=True)


def compiled(seed, path, counts):
    """Compiles the program of a seed, for what JAX gives for it; None if it is refused."""
    on, draw = [], random.Random(seed)
    choice = draw.choice(SPECS)

    def sharded(x, spec):
        return jax.lax.with_sharding_constraint(jnp.broadcast_to(x, (4, 3)), NamedSharding(MESH, choice[spec])) if on else x

    made, source = program(seed, ShardedWriter, sharded=sharded)
    found = expected(made)
    if not found:
        counts["large"] += 1
        return None
    on.append(True)
    specs = [choice[3], *(draw.choice(choice) for _ in PARAMETERS[1:])]
    window = draw.choice([1, 2])
    exported = trainc.jax.export(lambda params, ids: made(*params, ids), PARAMETERS, (IDS[:2],), optimizer=trainc.jax.sgd(1.0), mesh=MESH,
                                 param_specs=specs, batch_specs=P("data"), accumulate=window)
    try:
        trainc.compile(exported, f"{path}.so", mesh=exported.mesh, shard=draw.choice(SHARDS), merge_buffer=draw.choice(BUFFERS), bucket_size=4096,
                       threads=1)
    except trainc.CompileError as error:
        assert any(said in str(error) for said in REFUSED), f"program {seed}, {specs}\n{source}\n{error}"
        counts["refused"] += 1
        return None
    exported.save_weights(f"{path}.safetensors")
    after = {name: x - np.asarray(g) for name, x, g in zip("012", PARAMETERS, found[1]) if name in exported.weights}
    np.savez(f"{path}.npz", loss=found[0], window=window, scale=1 + np.max([np.abs(g).max() for g in found[1]]), **after)
    counts["compiled"] += 1
    return f"program {seed}, {specs}\n{source}"


def main(first, end):
    counts, different = collections.Counter(), []
    with tempfile.TemporaryDirectory() as scratch:
        running = started(4, __file__, "rank")
        for seed in range(first, end):
            path = f"{scratch}/{seed}"
            if what := compiled(seed, path, counts):
                for rank in running:
                    print(path, file=rank.stdin, flush=True)
                wrong = {rank.stdout.readline() for rank in running}
                if wrong != {"\n"}:
                    different.append(f"{what}\n{wrong}")
        for rank in running:
            rank.communicate(timeout=60)
            assert rank.returncode == 0
    print("\n\n".join(different))
    assert not different, f"{len(different)} of {counts['compiled']} programs differ"
    assert counts["compiled"] > 0.2 * (end - first), counts
    print(dict(counts))


if sys.argv[1:] == ["rank"]:
    ranks(sys.stdin)
else:
    main(*map(int, sys.argv[1:] or (0, 50)))
