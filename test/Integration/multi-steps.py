# REQUIRES: jax
# RUN: %python %s
"""Compares windows with optax.MultiSteps and skipped updates with optax.apply_if_finite, in f64 and f32.

usage: multi-steps.py [--json FILE]

Parameters and errors are those of optimizers.py. Exits 1 if an error in f64 is above 1e-12, or one in f32 above twice that
of optax's own f32, or if other updates are skipped.
"""
import argparse
import json
import os
import sys
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
import optax

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from optimizers import BAR, FACTOR, LR, SHAPES, after, distance, module  # noqa: E402
from common import RUNTIME_LIBRARY, compile_module  # noqa: E402
from trainc_ctypes import Runtime, Trainer  # noqa: E402

K, WINDOWS, BAD = 4, 10, {2: (1, np.nan), 3: (3, np.inf), 7: (0, -np.inf)}  # window: micro-step, value
CLIP = "clip(global_norm<1.0>)"


def rules():
    """name -> (declarations of @o, clauses, transformation of an update)."""
    o = optax
    rates = optax.schedules.warmup_cosine_decay_schedule(0.0, 0.3, 3, 9)
    rates = jnp.array([float(rates(t)) for t in range(WINDOWS)])
    schedule = "train.schedule @lr = warmup_cosine<peak = 0.3, warmup = 3.0, total = 9.0>\n"
    yield "sgd, schedule", schedule + "train.optimizer @o = sgd<lr = @lr>", "", o.sgd(lambda t: rates[t])
    yield "adamw, schedule, clip", schedule + "train.optimizer @o = adamw<lr = @lr>", CLIP, \
        o.chain(o.clip_by_global_norm(1.0), o.adamw(lambda t: rates[t]))
    yield "momentum, decay, clip", f"train.optimizer @o = momentum<lr = {LR}, l2 = 0.02>", CLIP, \
        o.chain(o.clip_by_global_norm(1.0), after(o.add_decayed_weights(0.02), o.trace(0.9)))
    yield "adam, clip by value", f"train.optimizer @o = adam<lr = {LR}>", "clip(value<0.3>)", \
        o.chain(o.clip(0.3), o.adam(LR))
    yield "adagrad", f"train.optimizer @o = adagrad<lr = {LR}>", "", o.adagrad(LR)
    yield "lamb", f"train.optimizer @o = lamb<lr = {LR}, weight_decay = 0.03>", "", o.lamb(LR, weight_decay=0.03)
    yield "lars", "train.optimizer @o = lars<lr = 0.5>", "", o.lars(0.5)


def data(bad):
    """Initial values, and a gradient per micro-step."""
    rng = np.random.default_rng(8)

    def draw():
        return {n: rng.standard_normal(s).astype(np.float32) for n, s in SHAPES.items()}

    start, gradients = draw(), [draw() for _ in range(K * WINDOWS)]
    for window, (k, value) in bad.items():
        gradients[window * K + k]["c"][17, 3] = value
    return start, gradients


def by_optax(transformation, dtype, start, gradients, average, finite):
    """Parameters after each window, and how many updates were rejected.

    MultiSteps multiplies what it has gathered by 0 at the end of a window, which keeps a NaN: windows with one are summed
    here, and given to apply_if_finite.
    """
    p = {n: jnp.array(v, dtype) for n, v in start.items()}
    if finite:
        whole = optax.MultiSteps(transformation, K, use_grad_mean=average,
                                 accumulator_dtype=dtype).gradient_transformation()
    else:
        whole = optax.apply_if_finite(transformation, WINDOWS)
    state, seen = whole.init(p), []

    @jax.jit
    def update(g, state, p):
        changes, state = whole.update(g, state, p)
        return optax.apply_updates(p, changes), state

    for i in range(0, len(gradients), K):
        parts = [{n: jnp.array(v, dtype) for n, v in g.items()} for g in gradients[i:i + K]]
        if not finite:
            parts = [jax.tree.map(lambda *g: sum(g) / (K if average else 1), *parts)]
        for g in parts:
            p, state = update(g, state, p)
        seen.append({n: np.asarray(v, np.float64) for n, v in p.items()})
    return seen, 0 if finite else int(state.total_notfinite)


def by_trainc(text, start, gradients, folder):
    library = compile_module(text, os.path.join(folder, "windows.so"))
    seen = []
    with Trainer(Runtime(RUNTIME_LIBRARY), library) as trainer:
        for n, v in start.items():
            trainer.write(n, v)
        for g in gradients:
            result = trainer.step(**{f"g{n}": v for n, v in g.items()})
            if result.closed:
                seen.append({n: trainer.read(n).astype(np.float64) for n in SHAPES})
        return seen, result.skipped


def check(declarations, clauses, transformation, average, bad):
    """{"f64": error, "f32": error over optax's}; "skipped" if the number of skipped updates is another."""
    start, gradients = data(bad)
    clauses = f"accumulate({K}{'' if average else ', average = false'}) {clauses}"
    want, rejected = by_optax(transformation, jnp.float64, start, gradients, average, not bad)
    theirs, _ = by_optax(transformation, jnp.float32, start, gradients, average, not bad)
    out = {}
    for element in ("f64", "f32"):
        with tempfile.TemporaryDirectory() as folder:
            got, skipped = by_trainc(module(declarations, clauses, element), start, gradients, folder)
        if skipped != rejected or rejected != len(bad):
            return f"{skipped} updates skipped, optax rejects {rejected}"
        out[element] = distance(got, want)
    # An error of one rounding is as good as none.
    return dict(out, f32=out["f32"] / max(distance(theirs, want), 2**-24))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--json", help="write {case: {f64: error, f32: error over optax's} or text} here")
    a = p.parse_args()
    results, worse = {}, 0
    for name, *rule in rules():
        for what, average, bad in (("mean", True, {}), ("sum", False, {}), ("not finite", True, BAD)):
            r = results[f"{name}, {what}"] = check(*rule, average, bad)
            good = isinstance(r, dict) and r["f64"] <= BAR and r["f32"] <= FACTOR
            worse += not good
            text = f"f64 {r['f64']:.1e}  f32 {r['f32']:.2f} x optax" if isinstance(r, dict) else r
            print(f"{name + ', ' + what:40} {text}{'' if good else '  SHORT'}", flush=True)
    if a.json:
        with open(a.json, "w") as f:
            json.dump(results, f)
    print(f"{len(results)} cases, {worse} bad")
    return bool(worse)


if __name__ == "__main__":
    sys.exit(main())
