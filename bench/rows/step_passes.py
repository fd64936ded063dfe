"""Rows on what the step passes promise: the same bits in every way to compile, optax's numbers, the large batch's."""
import json
import os
import sys
from itertools import product

from common import ROOT, generate, run, tool
from rows import judge
from rows.correctness import results_of, summary

TESTS = os.path.join(ROOT, "test", "Integration")
sys.path[:0] = [TESTS, os.path.join(TESTS, "Inputs")]

UPDATES = 20
ALIGNMENTS = [4, 16, 64, 256, 4096]
COALESCED = ["parameters", "compute copies", "gradients", "optimizer states", "buffers"]
ROUNDINGS = {"": "", "with stochastic rounding to bf16": "precision(master = bf16, rounding = stochastic)"}
UNFUSED, UNCOALESCED = "--disable-pass=train-fuse-optimizer", "--disable-pass=train-coalesce"


# Bits.

def train(text, inputs, *options, threads=2):
    """What the updates report, and the checkpoint in the end."""
    from updates import stored, trainer
    with trainer(text, *options, threads=threads) as t:
        seen = []
        for i in range(UPDATES):
            r = t.step(**inputs[i % len(inputs)])
            seen.append((r.loss, r.grad_norm, r.clip_factor, r.update))
        return seen, stored(t)


def bitwise(folder):
    """Every rule of the optimizers' test, parameters of f32 and of bf16 rounded by chance; fused or not, coalesced or not, 1 or
    2 threads."""
    import optimizers
    _, gradients = optimizers.data()
    inputs = [{f"g{n}": v for n, v in g.items()} for g in gradients[:UPDATES]]
    cases, notes = 0, []
    for (rule, declarations, clauses, _), rounding in product(optimizers.rules(), ROUNDINGS):
        name = f"{rule} {rounding or 'in f32'}"
        text = optimizers.module(declarations, f"{clauses or 'clip(global_norm<3.0>)'} {ROUNDINGS[rounding]}", "f32")
        want = train(text, inputs)
        ways = {"unfused": (UNFUSED,), "not coalesced": (UNCOALESCED,), "neither": (UNFUSED, UNCOALESCED)}
        notes += [f"{name}: {way} differs" for way, options in ways.items() if train(text, inputs, *options) != want]
        if train(text, inputs, threads=1) != want:
            notes.append(f"{name}: 1 thread differs")
        cases += 1
    return judge(cases and not notes, "; ".join(notes[:5]) or f"{cases // len(ROUNDINGS)} rules of optimizers, schedules and"
                 f" clips, a user's among them, each {' and '.join(r or 'in f32' for r in ROUNDINGS)}: all equal over"
                 f" {UPDATES} updates")


# Layout.

def models():
    """name -> (module, inputs of each step)."""
    import numpy as np
    import pairwise
    rng = np.random.default_rng(3)
    text = generate("gpt", "--layers", 2, "--width", 33, "--heads", 3, "--vocab", 41, "--batch", 3, "--seq", 13,
                    "--context", 16, "--accumulate", 2, "--ema", 0.9)
    yield "gpt", text, [dict(zip("xy", rng.integers(0, 41, (2, 3, 13)))) for _ in range(4)]
    text = generate("cnn", "--batch", 5)
    yield "cnn", text, [dict(x=rng.standard_normal((5, 1, 8, 8)), y=rng.integers(0, 10, 5)) for _ in range(4)]
    for precision in pairwise.PRECISIONS:
        text = pairwise.module("lamb", "global norm", 1, precision, True)
        x = rng.standard_normal((pairwise.BATCH, pairwise.SIZES[0]))
        yield f"perceptron, {precision}", text, [dict(x=x, y=rng.integers(0, pairwise.SIZES[-1], pairwise.BATCH))]


def padding(text, align, folder):
    """(bytes of padding by the memory report, by the formula)."""
    from trainc._arrays import SIZES
    from updates import trainer
    source = os.path.join(folder, "layout.mlir")
    with open(source, "w") as f:
        f.write(text)
    report = json.loads(run([tool("trainc"), source, "--memory-report=json", f"--align-size={align}"]).stdout)
    with trainer(text, f"--align-size={align}") as t:
        tensors = [(x.name, SIZES[x.dtype], x.bytes) for x in t.descriptor.tensors[:t.descriptor.num_tensors]]
    # A parameter has one place in all arenas: at a multiple of `align` bytes of its narrowest copy.
    narrowest = {name: min(size for other, size, _ in tensors if other == name) for name, *_ in tensors}
    held = sum(a["bytes"] for a in report["arenas"] if a["role"] in COALESCED)
    return (held - sum(size for *_, size in tensors),
            sum(-(total // size) % (align // narrowest[name]) * size for name, size, total in tensors))


def buffer_alignment(folder):
    from updates import load, stored, trainer
    notes, count = [], 0
    for name, text, inputs in models():
        ways = [(f"--align-size={a}",) for a in ALIGNMENTS] + [(UNCOALESCED,)]
        want = train(text, inputs)
        for options in ways:
            if train(text, inputs, *options) != want:
                notes.append(f"{name}: {options[0]} differs")
            count += 1
            with trainer(text, *options) as t:
                load(t, want[1])
                if stored(t) != want[1]:
                    notes.append(f"{name}: a checkpoint changes when {options[0]} loads and saves it")
        for align in ALIGNMENTS:
            found, formula = padding(text, align, folder)
            if found != formula:
                notes.append(f"{name}: {found} bytes of padding at {align}, formula {formula}")
    return judge(count and not notes, "; ".join(notes[:5]) or f"{count} layouts equal over {UPDATES} steps; padding as"
                 " by the formula; a checkpoint loads into all")


# Numbers.

def oracle(folder):
    results = results_of("test/Integration/optimizers.py", folder)
    results |= results_of("test/Integration/multi-steps.py", folder)
    f64, f32 = ({k: v[e] if isinstance(v, dict) else v for k, v in results.items()} for e in ("f64", "f32"))
    good, text = summary(f64, 1e-12, "rules in f64")
    good32, text32 = summary(f32, 2, "in f32, times optax's error")
    return judge(good and good32, f"{text}; {text32}")


def merge(folder):
    results = results_of("bench/alignment.py", folder)
    notes = [f"{name}: {'; '.join(r['wrong'])}" for name, r in results.items() if r["wrong"]]
    f32 = [r for name, r in results.items() if not name.endswith("f64")]
    losses, weights = (max(r[key] for r in f32) for key in ("loss", "weight"))
    return judge(results and not notes, "; ".join(notes) or f"{len(results)} cases: in f32 losses within {losses:.1e},"
                 f" weights within {weights:.1e}; windows with an infinity leave no trace")
