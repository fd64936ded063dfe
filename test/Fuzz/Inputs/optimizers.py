"""Optimizers and schedules at random, as lines of a module."""

NUMBERS = {
    "sgd": dict(momentum=[0.9], dampening=[0.1], weight_decay=[0.01]), "momentum": dict(momentum=[0.5]),
    "adam": dict(b1=[0.8], b2=[0.99], eps=[1e-3], eps_root=[1e-4], weight_decay=[0.01]), "adamw": dict(weight_decay=[0.1], eps=[1e-3]),
    "nadam": dict(b1=[0.8], eps=[1e-3]), "radam": dict(threshold=[4.0], eps=[1e-3]), "adamax": dict(b2=[0.9]),
    "adagrad": dict(lr_decay=[0.1], eps=[1e-3], initial_accumulator_value=[0.5]), "adadelta": dict(rho=[0.5]),
    "rmsprop": dict(decay=[0.5], momentum=[0.9], eps=[1e-3], initial_scale=[0.5]), "lion": dict(b1=[0.8], weight_decay=[0.1]),
    "lamb": dict(weight_decay=[0.1], eps=[1e-3]), "lars": dict(trust_coefficient=[0.1], weight_decay=[0.01]),
}
MUON = dict(momentum=[0.5], weight_decay=[0.01], steps=[1, 2], nesterov=["false"])
FLAGS = {"sgd": ["nesterov"], "momentum": ["nesterov"], "adam": ["nesterov", "eps_before_correction"],
         "adamw": ["nesterov"], "nadam": ["eps_before_correction"], "adagrad": ["eps_in_sqrt"],
         "rmsprop": ["eps_in_sqrt", "centered", "nesterov", "bias_correction", "lr_in_momentum"], "lars": ["nesterov"]}
SCHEDULES = ["linear<init = 0.1, end = 0.01, steps = 2, begin = 1>", "warmup_linear<peak = 0.1, warmup = 2, init = 0.01>",
             "cosine<init = 0.1, steps = 2, alpha = 0.1, exponent = 2.0>",
             "exponential<init = 0.1, steps = 2, rate = 0.5, begin = 1, end = 0.06>",
             "constant<value = 0.05>", "linear<init = 0.1, end = 0.01, steps = 3>",
             "warmup_linear<peak = 0.1, warmup = 2, total = 5>", "cosine<init = 0.1, steps = 4>",
             "warmup_cosine<peak = 0.1, warmup = 1, total = 4>", "step<init = 0.1, size = 2>",
             "exponential<init = 0.1, steps = 2, rate = 0.5, staircase = true>",
             "inverse_sqrt<peak = 0.1, warmup = 2>"]
OWN_SCHEDULE = ["(%t: f64, %base: f64) hyper(base = 0.05) {", "%one = arith.constant 1.0 : f64",
                "%d = arith.addf %one, %t : f64", "%v = arith.divf %base, %d : f64", "train.yield %v : f64", "}"]


def schedules(rng):
    """(lines, names)."""
    lines, names = [], []
    for i in range(rng.choice([0, 1, 1, 2])):
        names.append(f"s{i}")
        lines += [f"train.schedule @s{i} = {rng.choice(SCHEDULES)}"] if rng.random() < 0.85 else \
            [f"train.schedule @s{i}{OWN_SCHEDULE[0]}", *OWN_SCHEDULE[1:]]
    return lines, names


def own(name, rate, element):
    cast = "%r = arith.truncf %lr : f64 to f32" if element == "f32" else "%r = arith.addf %zero, %lr : f64"
    return "\n".join([
        f"train.optimizer @{name}(%p: {element}, %g: {element}, %m: {element}, %lr: f64) state(m = 0.5) hyper(lr = {rate}) {{",
        f"%zero = arith.constant 0.0 : {element}", f"%b = arith.constant 0.75 : {element}",
        f"%m1 = math.fma %b, %m, %g : {element}", cast, f"%d = arith.mulf %r, %m1 : {element}",
        f"%p1 = arith.subf %p, %d : {element}", f"train.yield %p1, %m1 : {element}, {element}", "}"])


def muon(rng, name):
    """Of matrices alone."""
    words = [f"{number} = {rng.choice(values)}" for number, values in MUON.items() if rng.random() < 0.4]
    words += [f"bf16 = {rng.choice(['true', 'false'])}"] + rng.choice([[], ["match_rms = true"], ["unclamped = true"]])
    return f"train.optimizer @{name} = muon<{', '.join(['lr = 0.1', *words])}>"


def optimizer(rng, name, schedule_names, element, plain):
    """A train.optimizer; `plain`: one whose update is continuous in the gradient and not larger than it."""
    rate = f"@{rng.choice(schedule_names)}" if schedule_names and rng.random() < 0.6 else rng.choice(["0.01", "0.1"])
    if rng.random() < 0.08:
        return own(name, rate, element)
    kind = rng.choice(["sgd", "momentum"] if plain else list(NUMBERS))
    words = [f"lr = {rate}"]
    for number, values in NUMBERS[kind].items():
        if rng.random() < 0.3:
            words.append(f"{number} = {rng.choice(values)}")
    if kind != "lars" and rng.random() < 0.1:
        words.append("l2 = 0.01")
    if rng.random() < 0.1:
        words.append("lr_multiplier = 0.5")
    for flag in FLAGS.get(kind, []):
        if rng.random() < 0.3:
            words.append(f"{flag} = {rng.choice(['true', 'false'])}")
    if kind in ("sgd", "rmsprop") and not any(w.startswith("momentum") for w in words):  # what only a momentum has
        words = [w for w in words if not w.startswith(("dampening", "nesterov", "lr_in"))]
    rng.shuffle(words)
    return f"train.optimizer @{name} = {kind}<{', '.join(words)}>" + rng.choice(["", "", "", " clip(false)"]) \
        + rng.choice(["", "", " ema(0.5)"])
