# REQUIRES: jax
# RUN: %python %s
"""Optimizers and schedules of trainc.jax against optax's of the same names and arguments: after 30 updates in f64; what is refused."""
import inspect
import os
import sys
import tempfile
import types

import jax
import jax.numpy as jnp
import numpy as np
import optax

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))
from tiny import refused, trainc  # noqa: E402

from trainc.emit import symbol  # noqa: E402
from trainc.jax import optim, schedules  # noqa: E402

jax.config.update("jax_enable_x64", True)
OURS = types.SimpleNamespace(**{name: getattr(module, name) for module in (schedules, optim) for name in module.__all__})
UPDATES, BAR = 30, 1e-10


def in_f64(name):
    """The schedules of optax are in f32 where their count is an int32, as its optimizers have it."""
    def made(*args, **options):
        schedule = getattr(optax, name)(*args, **options)
        return lambda count: schedule(jnp.asarray(count, jnp.float64))

    return made


THEIRS = types.SimpleNamespace(**{name: getattr(optax, name) for name in dir(optax)} |
                               {name: in_f64(name) for name in schedules.__all__ if name != "Schedule"})


def wide(params):
    return jax.tree.map(lambda p: p.ndim > 1, params)


def joined(o):
    parts = [o.linear_schedule(0.0, 0.02, 5), o.piecewise_constant_schedule(0.02, {4: 0.5}), o.exponential_decay(0.01, 4, 0.8)]
    return o.join_schedules(parts, [5, 13])


# Of `o`, THEIRS or OURS.
SCHEDULES = [
    ("constant", lambda o: o.constant_schedule(0.02)), ("linear", lambda o: o.linear_schedule(0.05, 0.01, 12, 4)),
    ("linear", lambda o: o.linear_schedule(0.0, 0.05, 10, -3)), ("constant", lambda o: o.linear_schedule(0.03, 0.05, 0)),
    ("polynomial", lambda o: o.polynomial_schedule(0.05, 0.01, 2, 15, 3)),
    ("polynomial", lambda o: o.polynomial_schedule(0.05, 0.0, 0.5, 16)),  # XLA multiplies by 1/16, which is exact
    ("linear", lambda o: o.polynomial_schedule(0.05, 0.01, 1, 15)), ("linear", lambda o: o.warmup_constant_schedule(0.0, 0.05, 9)),
    ("cosine", lambda o: o.cosine_decay_schedule(0.05, 20)), ("cosine", lambda o: o.cosine_decay_schedule(0.05, 20, 0.1, 1.5)),
    ("warmup_cosine", lambda o: o.warmup_cosine_decay_schedule(0.0, 0.05, 8, 25)),
    ("warmup_cosine", lambda o: o.warmup_cosine_decay_schedule(0.01, 0.05, 0, 25, 0.002, 2.0)),
    ("warmup_cosine", lambda o: o.warmup_cosine_decay_schedule(0.01, 0.0, 5, 25, 0.002)),
    ("exponential", lambda o: o.exponential_decay(0.05, 8, 0.5)), ("exponential", lambda o: o.exponential_decay(0.05, 4, 0.5, 3, True, 0.004)),
    ("exponential", lambda o: o.exponential_decay(0.002, 8, 1.7, end_value=0.01)), ("constant", lambda o: o.exponential_decay(0.02, 8, 0.0)),
    ("constant", lambda o: o.exponential_decay(0.02, 0, 0.5)), ("joined", lambda o: o.warmup_exponential_decay_schedule(0.0, 0.05, 6, 5, 0.7)),
    ("joined", lambda o: o.warmup_exponential_decay_schedule(0.01, 0.05, 6, 5, 0.7, 2, True, 0.01)),
    ("steps", lambda o: o.piecewise_constant_schedule(0.05, {20: 0.5, 8: 0.2, 15: 3.0})), ("steps", lambda o: o.piecewise_constant_schedule(0.02)),
    ("interpolated", lambda o: o.piecewise_interpolate_schedule("linear", 0.02, {5: 2.0, 20: 0.1})),
    ("interpolated", lambda o: o.piecewise_interpolate_schedule("cosine", 0.02, {0: 0.5, 5: 2.0, 20: 0.1})),
    ("interpolated", lambda o: o.linear_onecycle_schedule(25, 0.05)), ("interpolated", lambda o: o.cosine_onecycle_schedule(25, 0.05, 0.4)),
    ("joined", joined), ("joined", lambda o: o.join_schedules([o.constant_schedule(0.02), joined(o)], [4])),
    ("joined", lambda o: o.sgdr_schedule([dict(init_value=0.0, peak_value=v, warmup_steps=3, decay_steps=n) for v, n in ((0.05, 9), (0.02, 12))]))]


def by_count(o):
    return o.warmup_cosine_decay_schedule(0.0, 0.02, 6, 25)


OPTIMIZERS = [
    lambda o: o.sgd(0.02), lambda o: o.sgd(jnp.float32(0.02), 0.9), lambda o: o.sgd(by_count(o), 0.9, True), lambda o: o.sgd(0.02, nesterov=True),
    lambda o: o.sgd(0.02, 0.0),
    lambda o: o.adam(0.02), lambda o: o.adam(by_count(o), 0.8, 0.95, 1e-4, 1e-6), lambda o: o.adam(0.02, nesterov=True), lambda o: o.nadam(0.02, 0.8),
    lambda o: o.adamw(0.02), lambda o: o.adamw(by_count(o), 0.8, 0.95, 1e-4, 1e-6, None, 0.1, {"w": True, "b": False}, nesterov=True),
    lambda o: o.adamw(0.02, weight_decay=0.0), lambda o: o.adamw(0.02, weight_decay=0.3, mask=wide), lambda o: o.nadamw(0.02, weight_decay=0.2),
    lambda o: o.adamw(0.02, weight_decay=0.3, mask=False), lambda o: o.adamw(0.02, weight_decay=0.3, mask=lambda p: {"w": 0, "b": np.True_}),
    lambda o: o.radam(0.02), lambda o: o.radam(by_count(o), 0.8, 0.95, 1e-4, 1e-6, 6.0, nesterov=True), lambda o: o.adamax(0.02),
    lambda o: o.adamax(0.02, 0.8, 0.95, 1e-4), lambda o: o.adamaxw(0.02), lambda o: o.adamaxw(by_count(o), weight_decay=0.2, mask=wide),
    lambda o: o.adagrad(0.05), lambda o: o.adagrad(by_count(o), 0.0, 1e-3),
    lambda o: o.adadelta(1.0), lambda o: o.adadelta(0.7, 0.95, 1e-4, 0.1),
    lambda o: o.adadelta(by_count(o), weight_decay=0.1, weight_decay_mask=wide),
    lambda o: o.rmsprop(0.01), lambda o: o.rmsprop(0.01, 0.8, 1e-3, 0.5, False), lambda o: o.rmsprop(0.01, eps=1e-3, centered=True, nesterov=True),
    lambda o: o.rmsprop(by_count(o), momentum=0.8, nesterov=True), lambda o: o.rmsprop(by_count(o), centered=True, eps=1e-3, momentum=0.5),
    lambda o: o.rmsprop(0.01, bias_correction=True), lambda o: o.rmsprop(0.01, 0.8, 1e-3, 0.1, False, True, 0.5, True, True),
    lambda o: o.lion(0.01), lambda o: o.lion(by_count(o), 0.8, 0.9, weight_decay=0.2, mask=wide),
    lambda o: o.lamb(0.02), lambda o: o.lamb(by_count(o), 0.8, 0.95, 1e-4, 1e-6, 0.1, {"w": True, "b": False}),
    lambda o: o.lars(1.0), lambda o: o.lars(by_count(o), 0.1, wide, 0.02, 1e-3, momentum=0.8, nesterov=True),
    lambda o: o.lars(by_count(o), 0.1, trust_ratio_mask=wide, trust_coefficient=0.02),
    lambda o: o.lars(0.02, 0.1, {"w": False, "b": True}, 0.02, 1e-3, wide, 0.8, True),
    lambda o: o.lars(0.02, 0.1, {"w": True, "b": False}, trust_ratio_mask=False, nesterov=True)]


def several(o):
    """A mask within labels, labels of subtrees, and one that is not there."""
    rules = {"body": o.adamw(0.02, weight_decay=0.3, mask=wide), "none": o.set_to_zero(), "third/w": o.sgd(by_count(o), 0.9), "unused": o.lion(0.1)}
    return o.multi_transform(rules, {"first": {"w": "body", "b": "body"}, "second": "none", "third": {"w": "third/w", "b": "none"}})


def nested(o):
    inner = o.multi_transform({"w": o.adam(0.02), "b": o.set_to_zero()}, lambda p: jax.tree_util.tree_map_with_path(lambda k, _: k[-1].key, p))
    return o.multi_transform({True: inner, False: o.lamb(0.02, weight_decay=0.1)},
                             lambda p: {name: jax.tree.map(lambda _: name == "first", part) for name, part in p.items()})


rng = np.random.default_rng(7)
LAYER = {"w": (4, 3), "b": (3,)}
batches = [(rng.standard_normal((8, 4)), rng.standard_normal((8, 3))) for _ in range(3)]


def zeros(shapes):
    return jax.tree.map(jnp.zeros, shapes, is_leaf=lambda x: isinstance(x, tuple))


def names_of(case, params):
    return [f"{case}.{'.'.join(k.key for k in path)}" for path, _ in jax.tree_util.tree_leaves_with_path(params)]


def module(groups, names):
    """The sum of squares of x w + b - y of all layers, over the batch's size; `names` of parameters, of layers b and w in turn."""
    group = {name: g.name for g in groups for name in g.parameters}
    lines = [g.text for g in groups]
    types = ["tensor<3xf64>", "tensor<4x3xf64>"] * (len(names) // 2)
    updated = [f"optimizer({symbol(group[name])})" if name in group else "frozen" for name in names]
    lines += [f"train.param @{name} : {t} init(zeros) {how}" for name, t, how in zip(names, types, updated)]
    lines.append("train.step @step(%x: tensor<8x4xf64>, %y: tensor<8x3xf64>) {\n  %t0 = nn.constant dense<0.0> : tensor<f64>")
    for i in range(len(names) // 2):
        lines += [f"  %b{i} = train.read @{names[2 * i]} : tensor<3xf64>", f"  %w{i} = train.read @{names[2 * i + 1]} : tensor<4x3xf64>",
                  f"  %p{i} = nn.linear %x, %w{i}, %b{i} : tensor<8x4xf64>, tensor<4x3xf64>, tensor<3xf64>",
                  f"  %d{i} = nn.sub %p{i}, %y : tensor<8x3xf64>, tensor<8x3xf64>",
                  f"  %q{i} = nn.mul %d{i}, %d{i} : tensor<8x3xf64>, tensor<8x3xf64>",
                  f"  %s{i} = nn.reduce sum %q{i} dims [0, 1] : tensor<8x3xf64>", f"  %t{i + 1} = nn.add %t{i}, %s{i} : tensor<f64>, tensor<f64>"]
    lines.append(f"  %n = nn.constant dense<8.0> : tensor<f64>\n  train.yield loss(%t{len(names) // 2}) weight(%n) : tensor<f64>, tensor<f64>\n}}")
    return "\n".join([*lines, ""])


def loss(cases, x, y):
    layers = jax.tree.leaves(cases, is_leaf=lambda p: isinstance(p, dict) and "w" in p)
    return sum(jnp.sum((x @ p["w"] + p["b"] - y) ** 2) for p in layers) / len(x)


def compare(cases, ema=None):
    """Trains all by both; `cases` are {name: (function of optax or trainc.jax that makes an optimizer, shapes of its parameters)}."""
    params = {case: jax.tree.map(lambda p: jnp.array(rng.standard_normal(p.shape)), zeros(shapes)) for case, (_, shapes) in cases.items()}
    names, groups = {case: names_of(case, p) for case, p in params.items()}, []
    for case, (make, _) in cases.items():
        groups += optim.groups_of(make(OURS), params[case], names[case], {g.name for g in groups}, ema)
    rules = {case: make(THEIRS) for case, (make, _) in cases.items()}
    states, averages = {case: rules[case].init(p) for case, p in params.items()}, params

    @jax.jit
    def update(params, states, averages, x, y):
        gradients, after = jax.grad(loss)(params, x, y), {}
        for case, rule in rules.items():
            change, states[case] = rule.update(gradients[case], states[case], params[case])
            after[case] = optax.apply_updates(params[case], change)
        return after, states, jax.tree.map(lambda e, p: (ema or 0.0) * e + (1 - (ema or 0.0)) * p, averages, after)

    flat = [name for case in cases for name in names[case]]
    path = trainc.compile(module(groups, flat), os.path.join(folder, "step.so"), cache_dir=os.environ.get("TRAINC_TEST_CACHE"))
    with trainc.load(path, threads=1) as step:
        for name, value in zip(flat, jax.tree.leaves([params[case] for case in cases])):
            step.write(name, np.asarray(value))
            if ema:
                step.write(name, np.asarray(value), "ema")
        for i in range(UPDATES):
            x, y = batches[i % len(batches)]
            params, states, averages = update(params, states, averages, x, y)
            step(x, y)
            wanted, state = (averages, "ema") if ema else (params, None)
            for name, want in zip(flat, jax.tree.leaves([wanted[case] for case in cases])) if i % 10 == 9 else ():
                error = np.linalg.norm(step.read(name, state) - want) / np.linalg.norm(want)
                assert error <= BAR, f"{name} after {i + 1} updates: {error:.1e}\n{next(g.text for g in groups if name in g.parameters)}"
    os.remove(path)
    return groups


def arguments_of_optax():
    """Names, order, kinds and defaults."""
    for name in sorted({*optim.__all__, *schedules.__all__} - {"Group", "Optimizer", "Schedule", "groups_of", "multi_transform"}):
        mine, theirs = ([(p.name, p.kind, p.default) for p in inspect.signature(getattr(o, name)).parameters.values()] for o in (OURS, optax))
        assert mine == theirs, f"{name}: {mine} for {theirs}"


def called():
    for kind, make in SCHEDULES:
        mine, theirs = make(OURS), make(optax)
        assert mine.kind == kind and isinstance(mine(0), float) and mine == make(OURS) and hash(mine) == hash(make(OURS)), mine
        np.testing.assert_allclose([mine(t) for t in range(60)], [float(theirs(t)) for t in range(60)], 1e-12, 1e-17, err_msg=str(mine))
        assert (f"= {kind}<" in mine.text("s")) == (kind in schedules.NAMED), mine.text("s")


def groups(optimizer, shapes=LAYER, taken=(), **options):
    params = zeros(shapes)
    return optim.groups_of(optimizer, params, names_of("p", params), taken, **options)


def grouped():
    """Names, parameters and decays."""
    def seen(*args, **options):
        return [(g.name, g.parameters, g.decays) for g in groups(*args, **options)]

    o, three = OURS, {"first": LAYER, "second": LAYER, "third": LAYER}
    assert seen(o.sgd(0.1)) == [("optimizer", ("p.b", "p.w"), False)] and seen(o.adamw(0.1)) == [("optimizer", ("p.b", "p.w"), True)]
    assert seen(o.adamw(0.1, mask=wide)) == [("optimizer_0", ("p.w",), True), ("optimizer_1", ("p.b",), False)]
    assert seen(o.adamw(0.1, mask={"w": True, "b": True})) == [("optimizer", ("p.b", "p.w"), True)]
    assert seen(o.adamw(0.1, weight_decay=0.0, mask=wide)) == [("optimizer", ("p.b", "p.w"), False)]
    assert seen(o.adadelta(0.1, weight_decay=0.1)) == [("optimizer", ("p.b", "p.w"), True)]
    assert [name for name, *_ in seen(o.sgd(0.1), taken={"optimizer", "optimizer_.schedule"})] == ["optimizer__"]
    assert seen(several(o), three) == [("body_0", ("p.first.w",), True), ("body_1", ("p.first.b",), False), ("third/w", ("p.third.w",), False)]
    assert seen(nested(o), three) == [("True_w", ("p.first.w",), False),
                                      ("False", ("p.second.b", "p.second.w", "p.third.b", "p.third.w"), True)]
    assert seen(o.set_to_zero()) == [] == seen(o.multi_transform({"x": o.set_to_zero()}, "x"))
    text = groups(o.multi_transform({"a b": o.adamw(by_count(o)), "c": o.sgd(0.1)}, {"w": "a b", "b": "c"}), ema=0.9)[0].text
    assert text == ('train.schedule @"a b.schedule" = warmup_cosine<peak = 0.02, warmup = 6.0, total = 25.0, init = 0.0, end = 0.0, exponent = 1.0>\n'
                    'train.optimizer @"a b" = adamw<lr = @"a b.schedule", b1 = 0.9, b2 = 0.999, eps = 1.0e-08, eps_root = 0.0, '
                    'weight_decay = 0.0001, nesterov = false> ema(0.9)'), text


def refusals():
    o, no, wrong = OURS, trainc.UnsupportedError, trainc.InvalidArgumentError
    for kind, make, *words in [
            (no, lambda: o.adam(0.1, mu_dtype=jnp.bfloat16), "adam: mu_dtype", "bfloat16", "expected None"),
            (no, lambda: o.adamw(0.1, mu_dtype="float32"), "adamw: mu_dtype"), (no, lambda: o.lion(0.1, mu_dtype="float32"), "lion: mu_dtype"),
            (no, lambda: o.sgd(0.1, accumulator_dtype=jnp.float32), "sgd: accumulator_dtype", "expected None"),
            (no, lambda: o.adamw(0.1, weight_decay=o.constant_schedule(0.1)), "adamw: weight_decay", "expected a finite number"),
            (no, lambda: o.lamb(0.1, weight_decay=lambda t: 0.1), "lamb: weight_decay"),
            (no, lambda: o.lars(0.1, momentum=None), "lars: momentum is None"),
            (no, lambda: o.adadelta(), "adadelta: learning_rate is None", "ascends"), (no, lambda: o.adam("0.1"), "adam: learning_rate is '0.1'"),
            (no, lambda: o.sgd(None), "sgd: learning_rate is None"), (no, lambda: o.sgd(float("inf")), "inf, expected a finite number"),
            (no, lambda: o.sgd(jnp.ones(2)), "sgd: learning_rate"), (no, lambda: jax.jit(lambda lr: o.sgd(lr) and 0)(0.1), "sgd: learning_rate"),
            (no, lambda: o.sgd(optax.linear_schedule(1.0, 0.0, 5)), "sgd: learning_rate", "no schedule of trainc.jax", "linear_schedule"),
            (no, lambda: o.multi_transform({"a": optax.sgd(0.1)}, "a"), "multi_transform: 'a'", "expected an optimizer of trainc.jax"),
            (wrong, lambda: o.multi_transform({}, "a"), "multi_transform", "got none"),
            (no, lambda: groups(optax.sgd(0.1)), "trainc.jax.adam", "cannot be read"),
            (no, lambda: groups(o.sgd(0.1), ema="high"), "ema: decay is 'high'"),
            (wrong, lambda: groups(o.multi_transform({"a": o.sgd(0.1)}, {"w": "a", "b": "c"})), "param_labels", "['a']", "'c' of p.b"),
            (wrong, lambda: groups(o.multi_transform({"a": o.sgd(0.1)}, {"w": "a"})), "param_labels", "structure"),
            (wrong, lambda: groups(o.adamw(0.1, mask={"w": True, "b": {"x": True}})), "adamw: mask", "structure"),
            (no, lambda: o.join_schedules([o.constant_schedule(0.1), lambda t: 0.1], [5]), "join_schedules", "no schedule of trainc.jax"),
            (wrong, lambda: o.join_schedules([o.constant_schedule(0.1)] * 2, [5, 9]), "join_schedules", "got 2 and 2"),
            (wrong, lambda: o.cosine_decay_schedule(0.1, 0), "cosine_decay_schedule: expected decay_steps > 0, got 0"),
            (wrong, lambda: o.warmup_cosine_decay_schedule(0.0, 0.1, 9, 9), "warmup_cosine_decay_schedule: expected decay_steps > 9, got 9"),
            (no, lambda: o.cosine_decay_schedule(0.1, 5, exponent=-1.0), "exponent is -1"),
            (no, lambda: o.polynomial_schedule(1, 0, -1, 5), "power is -1"),
            (no, lambda: o.warmup_cosine_decay_schedule(0.0, 0.1, 3, 9, exponent=-1), "exponent is -1"),
            (no, lambda: o.exponential_decay(0.1, 5, -0.5), "decay_rate is -0.5"), (no, lambda: o.constant_schedule(None), "value is None"),
            (no, lambda: o.linear_schedule(0.1, lambda t: 0.1, 5), "linear_schedule: end_value"),
            (wrong, lambda: o.piecewise_constant_schedule(0.1, {5: -1.0}), "expected scales >= 0, got -1.0 at 5"),
            (wrong, lambda: o.piecewise_interpolate_schedule("cubic", 0.1), "'cubic'"),
            (wrong, lambda: o.linear_onecycle_schedule(0, 0.1), "transition_steps > 0"),
            (wrong, lambda: o.cosine_onecycle_schedule(5, 0.1, div_factor=0.0), "div_factor > 0")]:
        with refused(kind, *words):
            make()
    mixed = {"w": jnp.zeros((4, 3)), "b": jnp.zeros(3, jnp.float32)}
    with refused(no, "f32 and f64", "expected one type"):
        optim.groups_of(o.lars(0.1, trust_ratio_mask=False), mixed, ["b", "w"], ())


arguments_of_optax()
called()
grouped()
refusals()
with tempfile.TemporaryDirectory() as folder:
    cases = {f"c{i}": (make, LAYER) for i, make in enumerate(OPTIMIZERS)}
    compare(cases | {name: (make, {"first": LAYER, "second": LAYER, "third": LAYER}) for name, make in (("several", several), ("nested", nested))})
    compare({f"c{i}": (lambda o, make=make: o.sgd(make(o)), LAYER) for i, (_, make) in enumerate(SCHEDULES)})
    compare({"kind": (OPTIMIZERS[5], LAYER), "region": (OPTIMIZERS[-1], LAYER)}, ema=0.8)
