"""Valid training steps of at most 30 operations, made at random from a seed: `module(seed)`. With `shared`, tensors are large
enough for several workgroups, and many values of smaller rank have several users of larger rank."""
import random
from dataclasses import dataclass, field

from builder import MOST_OPERATIONS, Builder, count
from heads import loss
from optimizers import muon, optimizer, schedules
from trainc_text import tensor


@dataclass
class Valid:
    """`own_order`: it has kernels that may sum in an order of their own, and code by definitions differs by rounding; all
    that it computes is smooth, for a rounding may turn a comparison or choose another maximum."""
    text: str
    inputs: dict  # entry -> {name: (shape, element type, bound of an index)}
    own_order: bool
    narrow: bool  # something is computed in bf16 or f16
    f64: bool
    operations: set = field(default_factory=set)

    def job(self, variants, seed, rounded):
        """What runner.py is asked of artifacts {name: library}; with `rounded` code by definitions may sum in another order."""
        tolerance, rounding = (0.05, 2**-8) if self.narrow else (1e-10, 2**-52) if self.f64 else (2e-4, 2**-23)
        return {"variants": variants, "inputs": self.inputs, "seed": seed, "tolerance": tolerance if rounded else None, "rounding": rounding}


def clauses(rng, element):
    text = ""
    if rng.random() < 0.4:
        text += f" accumulate({rng.choice([1, 2, 3])}{rng.choice(['', ', average = false'])})"
    if rng.random() < 0.5:
        text += f" clip({rng.choice(['global_norm', 'param_norm', 'value'])}<{rng.choice([0.05, 1.0])}>)"
    if element == "f32" and rng.random() < 0.25:
        more = rng.choice(["", "", ", keep_f32 = [@o0]", ', keep_f32 = ["nn.matmul"]', ", master = bf16", ", master = f16",
                           ", master = bf16, rounding = stochastic"])
        text += f" precision(compute = {rng.choice(['bf16', 'f16'])}{more})"
    if rng.random() < 0.15:
        text += rng.choice([" loss_scale(64.0)", " loss_scale(dynamic<init = 1024.0, interval = 1.0>)"])
    return text


def module(seed, shared=False):
    rng = random.Random(seed)
    element = rng.choice(["f32"] * 5 + ["f64"])
    own_order = rng.random() < 0.45
    words = clauses(rng, element)
    mesh = random.Random(f"{seed} mesh").random() < 0.3
    b = Builder(rng, element, own_order, shared=shared, mesh=mesh)
    b.types = ["bf16", "f16"] + ["f64" if element == "f32" else "f32"] * ("precision" not in words)
    b.groups = [f"o{i}" for i in range(rng.choice([1, 1, 2, 3]))]
    head, names = schedules(rng)
    head += [optimizer(rng, group, names, element, plain=own_order) for group in b.groups]
    if rng.random() < 0.1:
        b.muon = True
        head.append(muon(rng, "muon"))
    shape = b.shape(rng.choice([1, 2, 2, 3, 3, 4, 4]))
    while shared and count(shape) < 5000:
        shape = b.shape(rng.choice([2, 3, 4]))
    v = b.input(shape, element)
    b.values.append(v)
    most = rng.randint(3, MOST_OPERATIONS - 6)
    while b.made < most:
        start = v if rng.random() < 0.75 else rng.choice(b.values)
        v = b.grow(start)
    clause = loss(b, v)
    inputs = {"step": b.inputs}

    # Of one rank, so that splits are free.
    splits = random.Random(f"{seed} splits")
    for name, shape in b.parameters:  # of which some have gradients that were made elsewhere
        if splits.random() < 0.05 and any(line.startswith(f"train.param @{name} ") and "frozen" not in line for line in b.head):
            b.inputs[f"gradient_{name}"] = shape, element, None

    def split(shape):
        if not mesh or splits.random() < 0.4:
            return ""
        axes = splits.sample(["host", "data"], 2)
        dims = [", ".join(axes.pop() for _ in range(splits.choice([0, 1, 2])) if axes) for _ in shape]
        return f" split({', '.join(f'[{d}]' for d in dims)})" if dims else ""

    def signature(builder):
        return ", ".join(f"%{n}: {tensor(s, e)}" + (f" gradient(@{n[9:]})" if n.startswith("gradient_") else split(s))
                         for n, (s, e, _) in builder.inputs.items())

    returned = splits.sample(b.values, min(len(b.values), splits.choice([0, 0, 1, 3])))
    if returned:
        words = f" -> ({', '.join(f'{chr(34)}r{i}{chr(34)}' for i in range(len(returned)))}){words}"
        ends, _, types = clause.partition(" : ")
        clause = f"{', '.join(v.name for v in returned)} {ends} : {', '.join(v.type for v in returned)}, {types}"
    text = ["train.mesh @mesh(host = 1, data = 1)"] * mesh + head + b.head
    text += [f"train.step @step({signature(b)}){words} {{", *b.lines, f"train.yield {clause}", "}"]
    if rng.random() < 0.4:
        e = Builder(rng, element, own_order, trained=False, shared=shared, mesh=mesh)
        e.numbers, e.parameters = 1000, b.parameters
        w = e.input(e.shape(rng.choice([1, 2, 3, 4])), element)
        for _ in range(rng.randint(1, 5)):
            w = e.grow(w)
        text += [*e.head, f'train.eval @eval({signature(e)}) -> ("y"){rng.choice(["", " weights(ema)"])} {{', *e.lines,
                 f"train.yield {w.name} : {w.type}", "}"]
        inputs["eval"] = e.inputs
    text = "\n".join(text) + "\n"
    return Valid(text, inputs, own_order, "f16" in text, element == "f64", b.used)
