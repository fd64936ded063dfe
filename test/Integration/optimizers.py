# REQUIRES: jax
# RUN: %python %s --quick
"""Compares every optimizer, schedule and clip with optax, over 50 updates, in f64 and f32.

usage: optimizers.py [--json FILE] [--quick] [RULE ...]

The loss is the sum over parameters of parameter times input, so the gradient is the input. Per rule and tensor the error
is the norm of the difference from optax (in f64) over the norm, after every tenth update. Where optax lacks a rule its
definition here is in NumPy. Exits 1 if an error in f64 is above 1e-12, or one in f32 above twice that of optax's own f32,
or if one update for all parameters (the default) and one for each differ in a bit.
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

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench"))
jax.config.update("jax_enable_x64", True)

from common import RUNTIME_LIBRARY, Failed, compile_module, largest  # noqa: E402
from trainc_ctypes import Error, Runtime, Trainer  # noqa: E402

UPDATES = 50
SHAPES = {"a": (1,), "b": (7, 5), "c": (130, 257)}
BAR, FACTOR = 1e-12, 2.0
UNFUSED = "--disable-pass=train-fuse-optimizer"
LR = 0.01


# What optax has no single function for, as gradient transformations.

def after(*transformations):
    """Transformations, then descent with the learning rate."""
    return optax.chain(*transformations, optax.scale_by_learning_rate(LR))


def decayed(transformation, rate=0.03):
    return after(transformation, optax.add_decayed_weights(rate))


def stateful(init, update):
    """A transformation from `init(params)` and `update(count, gradients, state, params) -> (updates, state)`, by leaf."""
    def step(g, state, params):
        count, inner = state
        updates, inner = update(count, g, inner, params)
        return updates, (count + 1, inner)

    return optax.GradientTransformation(lambda p: (jnp.zeros((), int), init(p)), step)


def zeros(p):
    return jax.tree.map(jnp.zeros_like, p)


def dampened(momentum, dampening):
    """PyTorch's SGD: the first gradient enters the buffer whole."""
    def update(count, g, buffer, _):
        kept = jnp.where(count == 0, 1.0, 1 - dampening)
        buffer = jax.tree.map(lambda b, g: (momentum * b + kept * g).astype(g.dtype), buffer, g)
        return jax.tree.map(lambda b: -LR * b, buffer), buffer

    return stateful(zeros, update)


def adam_eps_before(b1=0.9, b2=0.999, eps=1e-3):
    """Adam whose epsilon is added before the second moment's bias is corrected."""
    def update(count, g, state, _):
        t = count + 1.0
        m = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state[0], g)
        v = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, state[1], g)
        rate = LR * jnp.sqrt(1 - b2**t) / (1 - b1**t)
        return jax.tree.map(lambda m, v: (-rate * m / (jnp.sqrt(v) + eps)).astype(m.dtype), m, v), (m, v)

    return stateful(lambda p: (zeros(p), zeros(p)), update)


def adagrad(eps, initial, lr_decay=0.0):
    """PyTorch's: epsilon outside the root, a rate that decays with the number of updates."""
    def update(count, g, total, _):
        total = jax.tree.map(lambda s, g: s + g * g, total, g)
        rate = LR / (1 + count * lr_decay)
        return jax.tree.map(lambda s, g: (-rate * g / (jnp.sqrt(s) + eps)).astype(g.dtype), total, g), total

    return stateful(lambda p: jax.tree.map(lambda v: jnp.full_like(v, initial), p), update)


def per_parameter_clip(limit):
    """Each gradient to at most this norm."""
    def update(g, state, params=None):
        return jax.tree.map(lambda g: g * (limit / jnp.maximum(limit, jnp.sqrt(jnp.sum(g * g)))), g), state

    return optax.GradientTransformation(lambda p: (), update)


# Rules: name -> (optimizer text, step clauses, optax transformation).

def optimizer_rules():
    o = optax
    yield "sgd", f"sgd<lr = {LR}>", o.sgd(LR)
    yield "sgd momentum", f"sgd<lr = {LR}, momentum = 0.9>", o.sgd(LR, 0.9)
    yield "sgd nesterov", f"sgd<lr = {LR}, momentum = 0.8, nesterov = true>", o.sgd(LR, 0.8, nesterov=True)
    yield "sgd dampening", f"sgd<lr = {LR}, momentum = 0.9, dampening = 0.4>", dampened(0.9, 0.4)
    yield "sgd weight_decay", f"sgd<lr = {LR}, weight_decay = 0.03>", decayed(o.identity())
    yield "sgd l2", f"sgd<lr = {LR}, l2 = 0.02, momentum = 0.9>", after(o.add_decayed_weights(0.02), o.trace(0.9))
    yield "sgd lr_multiplier", f"sgd<lr = {LR}, lr_multiplier = 0.3>", o.sgd(LR * 0.3)
    yield "momentum", f"momentum<lr = {LR}>", o.sgd(LR, 0.9)
    yield "momentum nesterov", f"momentum<lr = {LR}, nesterov = true>", o.sgd(LR, 0.9, nesterov=True)
    for name, f, g in (("adam", o.adam, o.scale_by_adam), ("radam", o.radam, o.scale_by_radam)):
        yield name, f"{name}<lr = {LR}>", f(LR)
        yield f"{name} settings", f"{name}<lr = {LR}, b1 = 0.8, b2 = 0.95, eps = 1.0e-4, eps_root = 1.0e-6>", \
            f(LR, 0.8, 0.95, 1e-4, 1e-6)
        yield f"{name} nesterov", f"{name}<lr = {LR}, nesterov = true>", f(LR, nesterov=True)
        yield f"{name} weight_decay", f"{name}<lr = {LR}, weight_decay = 0.03>", decayed(g())
    yield "radam threshold", f"radam<lr = {LR}, threshold = 7.0>", o.radam(LR, threshold=7.0)
    yield "adam l2", f"adam<lr = {LR}, l2 = 0.02>", after(o.add_decayed_weights(0.02), o.scale_by_adam())
    yield "adam eps_before_correction", f"adam<lr = {LR}, eps = 1.0e-3, eps_before_correction = true>", adam_eps_before()
    yield "adamw", f"adamw<lr = {LR}>", o.adamw(LR)
    yield "adamw settings", f"adamw<lr = {LR}, b1 = 0.8, b2 = 0.95, eps = 1.0e-4, weight_decay = 0.1>", \
        o.adamw(LR, 0.8, 0.95, 1e-4, weight_decay=0.1)
    yield "nadam", f"nadam<lr = {LR}>", o.nadam(LR)
    yield "nadam weight_decay", f"nadam<lr = {LR}, weight_decay = 0.03>", o.nadamw(LR, weight_decay=0.03)
    yield "adamax", f"adamax<lr = {LR}>", o.adamax(LR)
    yield "adamax weight_decay", f"adamax<lr = {LR}, b1 = 0.8, b2 = 0.95, weight_decay = 0.03>", \
        o.adamaxw(LR, 0.8, 0.95, weight_decay=0.03)
    yield "adagrad", f"adagrad<lr = {LR}>", o.adagrad(LR)
    yield "adagrad settings", f"adagrad<lr = {LR}, initial_accumulator_value = 0.5, eps = 1.0e-3>", o.adagrad(LR, 0.5, 1e-3)
    yield "adagrad pytorch", f"adagrad<lr = {LR}, initial_accumulator_value = 0.0, eps = 1.0e-3, eps_in_sqrt = false," \
        " lr_decay = 0.1>", adagrad(1e-3, 0.0, 0.1)
    yield "adadelta", "adadelta<lr = 1.0>", o.adadelta(1.0)
    yield "adadelta settings", "adadelta<lr = 0.7, rho = 0.95, eps = 1.0e-4>", o.adadelta(0.7, 0.95, 1e-4)
    yield "rmsprop", f"rmsprop<lr = {LR}>", o.rmsprop(LR)
    yield "rmsprop settings", f"rmsprop<lr = {LR}, decay = 0.8, eps = 1.0e-3, initial_scale = 0.5, eps_in_sqrt = false>", \
        o.rmsprop(LR, 0.8, 1e-3, 0.5, eps_in_sqrt=False)
    yield "rmsprop centered", f"rmsprop<lr = {LR}, centered = true, eps = 1.0e-3>", o.rmsprop(LR, eps=1e-3, centered=True)
    yield "rmsprop momentum", f"rmsprop<lr = {LR}, momentum = 0.9>", o.rmsprop(LR, momentum=0.9)
    yield "rmsprop nesterov", f"rmsprop<lr = {LR}, momentum = 0.9, nesterov = true>", \
        o.rmsprop(LR, momentum=0.9, nesterov=True)
    yield "rmsprop bias_correction", f"rmsprop<lr = {LR}, bias_correction = true>", o.rmsprop(LR, bias_correction=True)
    yield "rmsprop lr after momentum", f"rmsprop<lr = {LR}, momentum = 0.9, lr_in_momentum = false>", \
        after(o.scale_by_rms(0.9, 1e-8), o.trace(0.9))
    yield "lion", f"lion<lr = {LR}>", o.lion(LR)
    yield "lion settings", f"lion<lr = {LR}, b1 = 0.8, b2 = 0.9, weight_decay = 0.03>", o.lion(LR, 0.8, 0.9, weight_decay=0.03)
    yield "lamb", f"lamb<lr = {LR}>", o.lamb(LR)
    yield "lamb weight_decay", f"lamb<lr = {LR}, weight_decay = 0.03, eps = 1.0e-4>", o.lamb(LR, eps=1e-4, weight_decay=0.03)
    yield "lars", "lars<lr = 0.5>", o.lars(0.5)
    yield "lars settings", "lars<lr = 0.5, weight_decay = 0.03, momentum = 0.8, trust_coefficient = 0.02, eps = 1.0e-3," \
        " nesterov = true>", o.lars(0.5, 0.03, trust_coefficient=0.02, eps=1e-3, momentum=0.8, nesterov=True)


def clip_rules():
    o = optax
    for name, clause, clip in (("global_norm", "clip(global_norm<3.0>)", o.clip_by_global_norm(3.0)),
                               ("global_norm, not reached", "clip(global_norm<1.0e6>)", o.clip_by_global_norm(1e6)),
                               ("param_norm", "clip(param_norm<2.0>)", per_parameter_clip(2.0)),
                               ("value", "clip(value<0.5>)", o.clip(0.5))):
        yield f"clip {name}", f"adamw<lr = {LR}>", clause, o.chain(clip, o.adamw(LR))


def schedules():
    """name -> (text, value as a function of the number of updates done)."""
    s = optax.schedules
    yield "constant<value = 0.2>", lambda t: 0.2
    yield "linear<init = 0.1, end = 0.5, steps = 30.0>", s.linear_schedule(0.1, 0.5, 30)
    yield "linear<init = 0.5, end = 0.1, steps = 20.0, begin = 10.0>", s.linear_schedule(0.5, 0.1, 20, 10)
    yield "warmup_linear<peak = 0.3, warmup = 10.0>", s.warmup_constant_schedule(0.0, 0.3, 10)
    yield "warmup_linear<peak = 0.3, warmup = 10.0, total = 40.0, init = 0.1, end = 0.05>", s.join_schedules(
        [s.linear_schedule(0.1, 0.3, 10), s.linear_schedule(0.3, 0.05, 30)], [10])
    yield "cosine<init = 0.3, steps = 40.0>", s.cosine_decay_schedule(0.3, 40)
    yield "cosine<init = 0.3, steps = 30.0, alpha = 0.1, exponent = 2.0>", s.cosine_decay_schedule(0.3, 30, 0.1, 2.0)
    yield "warmup_cosine<peak = 0.3, warmup = 10.0, total = 40.0>", s.warmup_cosine_decay_schedule(0.0, 0.3, 10, 40)
    yield "warmup_cosine<peak = 0.3, warmup = 7.0, total = 31.0, init = 0.1, end = 0.05, exponent = 1.5>", \
        s.warmup_cosine_decay_schedule(0.1, 0.3, 7, 31, 0.05, 1.5)
    yield "step<init = 0.3, size = 12.0>", s.exponential_decay(0.3, 12, 0.1, staircase=True)
    yield "step<init = 0.3, size = 7.0, gamma = 0.5>", s.exponential_decay(0.3, 7, 0.5, staircase=True)
    yield "exponential<init = 0.3, steps = 10.0, rate = 0.5>", s.exponential_decay(0.3, 10, 0.5)
    yield "exponential<init = 0.3, steps = 10.0, rate = 0.5, begin = 5.0, end = 0.1, staircase = true>", \
        s.exponential_decay(0.3, 10, 0.5, 5, True, 0.1)
    yield "inverse_sqrt<peak = 0.3, warmup = 10.0>", lambda t: 0.3 * (t / 10 if t < 10 else (10 / t) ** 0.5)
    yield "inverse_sqrt<peak = 0.3, warmup = 0.0>", lambda t: 0.3 / max(t, 1) ** 0.5


USERS_SCHEDULE = """train.schedule @lr(%t: f64, %base: f64) hyper(base = 0.1) {
  %one = arith.constant 1.0 : f64
  %d = arith.addf %one, %t : f64
  %v = arith.divf %base, %d : f64
  train.yield %v : f64
}"""
USERS_OPTIMIZER = """train.optimizer @o(%p: T, %g: T, %m: T, %lr: f64, %t: f64) state(m = 0.0) hyper(lr = 0.01, t = "update") {
  %half = arith.constant 0.5 : T
  %h = arith.mulf %half, %m : T
  %m1 = arith.addf %h, %g : T
  %r = arith.divf %lr, %t : f64
  %d = CAST
  %s = arith.mulf %d, %m1 : T
  %p1 = arith.subf %p, %s : T
  train.yield %p1, %m1 : T, T
}"""


def rules():
    """(name, declarations of @o in f64 or f32, step clauses, transformation with rates as in the schedule)."""
    for name, text, transformation in optimizer_rules():
        yield name, f"train.optimizer @o = {text}", "", transformation
    for name, text, clause, transformation in clip_rules():
        yield name, f"train.optimizer @o = {text}", clause, transformation
    for text, schedule in schedules():
        values = jnp.array([float(schedule(t)) for t in range(UPDATES)])
        yield f"schedule {text}", f"train.schedule @lr = {text}\ntrain.optimizer @o = sgd<lr = @lr>", "", \
            optax.sgd(lambda t, v=values: v[t])
    yield "schedule of a user", USERS_SCHEDULE + "\ntrain.optimizer @o = sgd<lr = @lr>", "", \
        optax.sgd(lambda t: 0.1 / (1.0 + t))
    yield "optimizer of a user", USERS_OPTIMIZER, "", \
        optax.chain(optax.trace(0.5), optax.scale_by_schedule(lambda t: -LR / (1.0 + t)))
    yield "ema", f"train.optimizer @o = adamw<lr = {LR}> ema(0.8)", "", optax.adamw(LR)


def module(declarations, clauses, element):
    cast = "arith.addf %r, %zero : f64" if element == "f64" else "arith.truncf %r : f64 to f32"
    text = declarations.replace("%d = CAST", f"%zero = arith.constant 0.0 : f64\n  %d = {cast}")
    lines = [text.replace(": T", f": {element}").replace(", T", f", {element}")]
    types = {name: f"tensor<{'x'.join([*map(str, shape), element])}>" for name, shape in SHAPES.items()}
    lines += [f"train.param @{name} : {t} init(zeros) optimizer(@o)" for name, t in types.items()]
    lines.append(f"train.step @step({', '.join(f'%g{n}: {t}' for n, t in types.items())}) {clauses} {{")
    scalar, total = f"tensor<{element}>", None
    for n, t in types.items():
        dims = list(range(len(SHAPES[n])))
        lines += [f"%{n} = train.read @{n} : {t}", f"%m{n} = nn.mul %{n}, %g{n} : {t}, {t}",
                  f"%s{n} = nn.reduce sum %m{n} dims {dims} : {t}"]
        if total:
            lines.append(f"%t{n} = nn.add {total}, %s{n} : {scalar}, {scalar}")
        total = f"%t{n}" if total else f"%s{n}"
    return "\n".join([*lines, f"train.yield loss({total}) : {scalar}", "}", ""])


def data():
    """Initial values, and a gradient per update; one element's gradients are all 0, as of an unused row."""
    rng = np.random.default_rng(5)
    start = {n: rng.standard_normal(s).astype(np.float32) for n, s in SHAPES.items()}
    gradients = [{n: rng.standard_normal(s).astype(np.float32) for n, s in SHAPES.items()} for _ in range(UPDATES)]
    for g in gradients:
        g["b"][0, 0] = 0
    return start, gradients


def by_optax(transformation, dtype, start, gradients, ema):
    """Parameters (or their moving averages) after every tenth update."""
    p = {n: jnp.array(v, dtype) for n, v in start.items()}
    state, average, seen = transformation.init(p), p, []

    @jax.jit
    def update(p, state, g, average):
        changes, state = transformation.update(g, state, p)
        p = optax.apply_updates(p, changes)
        return p, state, jax.tree.map(lambda e, v: 0.8 * e + (1 - 0.8) * v, average, p)

    for i, g in enumerate(gradients):
        p, state, average = update(p, state, {n: jnp.array(v, dtype) for n, v in g.items()}, average)
        if i % 10 == 9:
            seen.append({n: np.asarray(v, np.float64) for n, v in (average if ema else p).items()})
    return seen


def by_trainc(text, start, gradients, ema, folder, *options):
    library = compile_module(text, os.path.join(folder, "rule.so"), *options)
    seen = []
    with Trainer(Runtime(RUNTIME_LIBRARY), library) as trainer:
        for n, v in start.items():
            trainer.write(n, v)
            if ema:
                trainer.write(n, v, "state", "ema")
        for i, g in enumerate(gradients):
            trainer.step(**{f"g{n}": v for n, v in g.items()})
            if i % 10 == 9:
                read = (lambda n: trainer.read(n, "state", "ema")) if ema else trainer.read
                seen.append({n: read(n).astype(np.float64) for n in SHAPES})
    return seen


def distance(got, want):
    """The largest over tensors and times of the norm of the difference over the norm."""
    return largest(float(np.linalg.norm(g[n] - w[n]) / np.linalg.norm(w[n])) for g, w in zip(got, want) for n in SHAPES)


def check(name, declarations, clauses, transformation):
    """{"f64": error, "f32": error over optax's}."""
    start, gradients = data()
    ema = name == "ema"
    want = by_optax(transformation, jnp.float64, start, gradients, ema)
    with tempfile.TemporaryDirectory() as folder:
        ours = {e: by_trainc(module(declarations, clauses, e), start, gradients, ema, folder) for e in ("f64", "f32")}
        for e, got in ours.items():
            alone = by_trainc(module(declarations, clauses, e), start, gradients, ema, folder, UNFUSED)
            if any(not np.array_equal(g[n], a[n], equal_nan=True) for g, a in zip(got, alone) for n in SHAPES):
                raise Failed(f"one update for all parameters differs from one for each, in {e}")
    theirs = distance(by_optax(transformation, jnp.float32, start, gradients, ema), want)
    # An error of one rounding is as good as none.
    return dict(f64=distance(ours["f64"], want), f32=distance(ours["f32"], want) / max(theirs, 2**-24))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("rules", nargs="*", metavar="RULE", help="whose names begin so")
    p.add_argument("--json", help="write {rule: {f64: error, f32: error over optax's} or text} here")
    p.add_argument("--quick", action="store_true", help="only the first rule of each kind")
    a = p.parse_args()
    results, bad, kinds = {}, 0, set()
    for name, *rule in rules():
        if a.rules and not any(name.startswith(r) for r in a.rules):
            continue
        kind = name.replace("<", " ").split()[name.startswith(("clip ", "schedule "))]
        if a.quick and kind in kinds:
            continue
        kinds.add(kind)
        try:
            r = results[name] = check(name, *rule)
            good = r["f64"] <= BAR and r["f32"] <= FACTOR
            print(f"{name:60} f64 {r['f64']:.1e}  f32 {r['f32']:.2f} x optax{'' if good else '  SHORT'}", flush=True)
        except (Failed, Error) as e:
            good, results[name] = False, str(e)
            print(f"{name:60} {e}", flush=True)
        bad += not good
    if a.json:
        with open(a.json, "w") as f:
            json.dump(results, f)
    print(f"{len(results)} rules, {bad} bad")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
