#!/usr/bin/env python3
"""Exports, compiles and trains the models of jax_models, and says how far they are from JAX with optax.

usage: jax_agreement.py [--json FILE] [NAME ...]

A model agrees, is refused (at export, with a reason), fails later (when compiled, loaded or run), or is wrong. It agrees if of five
updates of AdamW in float64 losses are within 1e-9 and parameters and state within 1e-7, and in float32 losses within 1e-5 of JAX's,
or no farther from float64 than twice JAX's. Runs in an environment with jax_models/requirements.txt.
"""
import argparse
import json
import os
import sys
import warnings

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(ROOT, "python"), os.path.join(ROOT, "bench")]
os.environ.setdefault("TRAINC_BUILD", os.path.join(ROOT, "build"))

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402

import jax_models  # noqa: E402
import trainc  # noqa: E402
import trainc.jax  # noqa: E402
from common import largest  # noqa: E402

UPDATES, RATE, DECAY = 5, 1e-2, 0.1
LOSS, STATE, LOSS_F32 = 1e-9, 1e-7, 1e-5


def is_float(x):
    return isinstance(x, jax.Array | np.ndarray) and jnp.issubdtype(x.dtype, jnp.floating)


def ours(example, cache):
    """Losses, parameters and state by trainc; raises UnsupportedError at export."""
    exported = trainc.jax.export(example.loss, example.params, example.batch, state=example.state,
                                 optimizer=trainc.jax.adamw(RATE, weight_decay=DECAY))
    try:
        with exported.step(threads=1, cache_dir=cache) as step:
            losses = [step(*example.batch).loss for _ in range(UPDATES)]
            return losses, exported.params(step), exported.state(step)
    except trainc.Error as error:
        raise RuntimeError(f"fails later: {error}") from error


def theirs(example):
    """The same by JAX and optax."""
    leaves, structure = jax.tree_util.tree_flatten(example.params)
    trained = [i for i, x in enumerate(leaves) if is_float(x)]

    def filled(arrays):
        return structure.unflatten([dict(zip(trained, arrays)).get(i, x) for i, x in enumerate(leaves)])

    def loss(arrays, state):
        result = example.loss(filled(arrays), *([] if example.state is None else [state]), *example.batch)
        return result if example.state is not None else (result, 0)

    step = jax.jit(jax.value_and_grad(loss, has_aux=True))
    optimizer = optax.adamw(RATE, weight_decay=DECAY)
    arrays, state, losses = [leaves[i] for i in trained], example.state, []
    moments = optimizer.init(arrays)
    for _ in range(UPDATES):
        (value, new), gradients = step(arrays, state)
        state = new if example.state is not None else None
        updates, moments = optimizer.update(gradients, moments, arrays)
        arrays = optax.apply_updates(arrays, updates)
        losses.append(float(value))
    return losses, filled(arrays), state


def apart(a, b):
    """The largest distance of two trees' floats, relative to 1 and the largest element."""
    pairs = [(np.asarray(x, np.float64), np.asarray(y, np.float64)) for x, y in
             zip(jax.tree_util.tree_leaves(a), jax.tree_util.tree_leaves(b), strict=True) if is_float(x) or isinstance(x, float)]
    return largest([0.0, *(float(np.abs(x - y).max() / (1 + np.abs(y).max())) for x, y in pairs)])


def compared(name, cache):
    """What is printed of a model."""
    found = {}
    jax.config.update("jax_enable_x64", True)
    built = jax_models.build(name)
    for dtype in (np.float64, np.float32):
        jax.config.update("jax_enable_x64", dtype is np.float64)
        example = jax_models.cast(built, dtype)
        mine, other = ours(example, cache), theirs(example)
        if dtype is np.float64:
            found = {"loss": apart(mine[0], other[0]), "params": apart(mine[1], other[1]),
                     "state": apart(mine[2], other[2]) if example.state is not None else 0.0, "wide": other[0]}
        else:
            found |= {"loss_f32": apart(mine[0], other[0]), "from_f64": apart(mine[0], found["wide"]), "limit": apart(other[0], found["wide"])}
    found.pop("wide")
    agrees = found["loss"] <= LOSS and max(found["params"], found["state"]) <= STATE and (
        found["loss_f32"] <= LOSS_F32 or found["from_f64"] <= 2 * found["limit"])
    return {"status": "agrees" if agrees else "wrong", **found}


def result_of(name, cache):
    try:
        return compared(name, cache)
    except trainc.UnsupportedError as error:
        return {"status": "refused", "why": "; ".join(map(str, error.findings)) or str(error)}
    except RuntimeError as error:
        return {"status": "later", "why": str(error)}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="*", metavar="NAME")
    p.add_argument("--json", metavar="FILE")
    options = p.parse_args()
    warnings.simplefilter("ignore")
    results = {}
    cache = os.path.join(os.environ["TRAINC_BUILD"], "kernels")
    for name in options.names or jax_models.names():
        results[name] = found = result_of(name, cache)
        said = found.get("why") or " ".join(f"{k} {v:.1e}" for k, v in found.items() if k != "status")
        print(f"{name:24} {found['status']:8} {said}", flush=True)
    counts = {status: sum(r["status"] == status for r in results.values()) for status in ("agrees", "refused", "later", "wrong")}
    print(", ".join(f"{n} {status}" for status, n in counts.items()))
    if options.json:
        with open(options.json, "w") as f:
            json.dump(results, f, indent=1)
    return int(counts["agrees"] < len(results))


if __name__ == "__main__":
    sys.exit(main())
