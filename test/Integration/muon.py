# REQUIRES: jax
# RUN: %python %s
"""Muon against optax's Newton-Schulz iterations: tall, wide and square matrices, every flag, clips, windows, averages, copies in bf16; the
same bits with all passes and without; behind updates of other kinds; on two ranks as on one; refusals.

The loss is the sum over parameters of parameter times input, so the gradient is the input. The momentum is PyTorch's:
m' = momentum m + (1 - momentum) g. In f64 tensors of ten updates are within 1e-10, relative; with products in bf16, updates within 5 %.
"""
import os
import re
import subprocess
import sys
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
from optax.contrib import _muon

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))
jax.config.update("jax_enable_x64", True)

from ranks import run, same  # noqa: E402
from report import check  # noqa: E402
from common import RUNTIME_LIBRARY, compile_module, largest, tool  # noqa: E402
from trainc_ctypes import Runtime, Trainer  # noqa: E402

UPDATES, BAR, BAR_BF16 = 10, 1e-10, 0.05
SHAPES = {"tall": (40, 12), "wide": (12, 40), "square": (24, 24), "vector": (33,), "other": (8, 6)}
MATRICES = ("tall", "wide", "square")
COEFFICIENTS = dict(a=3.4445, b=-4.775, c=2.0315)
orthogonalize = jax.jit(_muon.orthogonalize_via_newton_schulz, static_argnames="ns_steps")
# Flags, clauses of the step, of the optimizer.
CASES = {
    "plain": (dict(nesterov=False, weight_decay=0.0), "", ""), "default": ({}, "", ""),
    "settings": (dict(momentum=0.8, weight_decay=0.3, a=2.0, b=-1.5, c=0.5, steps=7, eps=1e-3), "", ""),
    "match_rms": (dict(match_rms=True), "", ""), "unclamped": (dict(unclamped=True), "", ""),
    "clip": ({}, "clip(global_norm<2.0>)", ""), "clip each": ({}, "clip(param_norm<0.5>)", ""), "clip value": ({}, "clip(value<0.3>)", ""),
    "window": ({}, "accumulate(3)", ""), "average": ({}, "", " ema(0.8)"),
}


def attribute(value):
    return str(value).lower() if isinstance(value, bool) else repr(float(value))


def module(settings, clauses, ema, element="f64", split=False):
    types = {name: f"tensor<{'x'.join([*map(str, shape), element])}>" for name, shape in SHAPES.items()}
    lines = ["train.mesh @mesh(data = 1)"] * split
    lines += [f"train.optimizer @muon = muon<{', '.join(f'{k} = {attribute(v)}' for k, v in ({'lr': 0.02} | settings).items())}>{ema}",
              "train.optimizer @adamw = adamw<lr = 0.01>"]
    lines += [f"train.param @{n} : {t} init(normal<0.5>) optimizer(@{'muon' if n in MATRICES else 'adamw'})" for n, t in types.items()]
    inputs = {n: t if not split else t.replace("tensor<", "tensor<2x") for n, t in types.items()}
    ends = " split([data])" if split else ""
    lines.append(f"train.step @step({', '.join(f'%g_{n}: {t}{ends}' for n, t in inputs.items())}) {clauses} {{")
    total = None
    for n, t in types.items():
        lines += [f"%{n} = train.read @{n} : {t}", f"%m_{n} = nn.mul %{n}, %g_{n} : {t}, {inputs[n]}",
                  f"%s_{n} = nn.reduce sum %m_{n} dims {list(range(len(SHAPES[n]) + split))} : {inputs[n]}"]
        if total:
            lines.append(f"%t_{n} = nn.add {total}, %s_{n} : tensor<{element}>, tensor<{element}>")
        total = f"%t_{n}" if total else f"%s_{n}"
    return "\n".join([*lines, f"train.yield loss({total}) : tensor<{element}>", "}", ""])


def data(micro_steps=1):
    rng = np.random.default_rng(7)
    return [{f"g_{n}": rng.standard_normal(s) for n, s in SHAPES.items()} for _ in range(UPDATES * micro_steps)]


def clipped(gradients, clauses):
    if "global_norm" in clauses:
        norm = np.sqrt(sum((g * g).sum() for g in gradients.values()))
        return {n: g * min(1.0, 2.0 / norm) for n, g in gradients.items()}
    if "param_norm" in clauses:
        return {n: g * min(1.0, 0.5 / np.linalg.norm(g)) for n, g in gradients.items()}
    return {n: np.clip(g, -0.3, 0.3) for n, g in gradients.items()} if "value" in clauses else gradients


def expected(settings, clauses, ema, start, steps):
    """Matrices after the updates, or their averages."""
    s = dict(momentum=0.95, weight_decay=0.1, nesterov=True, eps=1e-7, steps=5, match_rms=False, unclamped=False) | COEFFICIENTS | settings
    p, m, average = dict(start), {n: np.zeros(SHAPES[n]) for n in MATRICES}, dict(start)
    window = 3 if "accumulate" in clauses else 1
    for i in range(0, len(steps), window):
        mean = {n: sum(step[f"g_{n}"] for step in steps[i:i + window]) / window for n in SHAPES}
        for n, g in clipped(mean, clauses).items():
            if n not in MATRICES:
                continue
            m[n] = s["momentum"] * m[n] + (1 - s["momentum"]) * g
            u = s["momentum"] * m[n] + (1 - s["momentum"]) * g if s["nesterov"] else m[n]
            rows, columns = u.shape
            u = np.asarray(orthogonalize(jnp.array(u), jnp.array([s["a"], s["b"], s["c"]]), ns_steps=int(s["steps"]), eps=0.0))  # the norm is above ours
            scale = (0.2 * np.sqrt(max(rows, columns)) if s["match_rms"] else
                     np.sqrt(rows / columns if s["unclamped"] else max(1.0, rows / columns)))
            p[n] = p[n] * (1 - 0.02 * s["weight_decay"]) - 0.02 * scale * u
            average[n] = 0.8 * average[n] + (1 - 0.8) * p[n]
    return average if ema else p


def trained(path, start, steps, ema=""):
    with Trainer(Runtime(RUNTIME_LIBRARY), path, threads=2) as trainer:
        for n, value in start.items():
            trainer.write(n, value)
            if ema and n in MATRICES:
                trainer.write(n, value, "state", "ema")
        for step in steps:
            trainer.step(**step)
        return {n: trainer.read(n, "state", "ema") if ema and n in MATRICES else trainer.read(n) for n in SHAPES}


def start_values():
    rng = np.random.default_rng(3)
    return {n: rng.standard_normal(s) for n, s in SHAPES.items()}


def apart(got, want):
    return largest(float(np.linalg.norm(got[n] - want[n]) / np.linalg.norm(want[n])) for n in MATRICES)


def on_one_rank(folder):
    bad, start = 0, start_values()
    for name, (settings, clauses, ema) in CASES.items():
        steps = data(3 if name == "window" else 1)
        want = expected(settings, clauses, ema, start, steps)
        results = []
        ways = [], ["--disable-pass=train-fuse-optimizer,train-coalesce,train-hoist-casts"], ["--reference"]
        for options in ways if name in ("default", "clip each", "window") else ways[:1]:
            path = compile_module(module(settings | dict(bf16=False), clauses, ema), os.path.join(folder, "m.so"), *options)
            results.append(trained(path, start, steps, ema))
        error = apart(results[0], want)
        bad += check(f"{name}: optax's in f64", error <= BAR, error)
        if results[1:]:
            bad += check(f"{name}: the same bits without passes", all(np.array_equal(results[0][n], results[1][n]) for n in SHAPES))
            bad += check(f"{name}: by definitions", apart(results[0], results[2]) <= BAR)
    bad += behind_others(folder, start)
    # Of bf16 the moves are compared.
    settings, clauses, ema = CASES["default"]
    steps = [{n: g.astype(np.float32) for n, g in step.items()} for step in data()]
    narrow = {n: v.astype(np.float32) for n, v in start.items()}
    want, got = expected(settings, clauses, ema, start, steps), trained(
        compile_module(module(settings, clauses, ema, "f32"), os.path.join(folder, "m.so")), narrow, steps)
    moved = largest(float(np.linalg.norm(got[n] - want[n]) / np.linalg.norm(want[n] - start[n])) for n in MATRICES)
    return bad + check("products in bf16", 0 < moved <= BAR_BF16, moved)


def behind_others(folder, start):
    """Matrices of one bucket, each of another kind of update."""
    others = dict(nesterov=False), dict(steps=3)
    text = module(dict(bf16=False), "", "").replace("train.param", "".join(
        f"train.optimizer @{name} = muon<lr = 0.02, bf16 = false, {', '.join(f'{k} = {attribute(v)}' for k, v in settings.items())}>\n"
        for name, settings in zip(("second", "third"), others)) + "train.param", 1)
    for n, name in zip(MATRICES[1:], ("second", "third")):
        text = re.sub(rf"(@{n} .*)optimizer\(@muon\)", rf"\1optimizer(@{name})", text)
    want = {n: expected(settings, "", "", start, data())[n] for n, settings in zip(MATRICES, ({}, *others))}
    got = trained(compile_module(text, os.path.join(folder, "m.so")), start, data())
    return check("behind updates of other kinds", apart(got, want) <= BAR, apart(got, want))


def on_two_ranks(folder):
    """Each rank has a half of the sum; parameters in f32 with copies in bf16."""
    steps = [{n: np.stack([0.25 * g, 0.75 * g]).astype(np.float32) for n, g in step.items()} for step in data()]

    def work(rank):
        for step in steps:
            rank.step(**step)
        return rank.tensors()

    text = module({}, "", "", "f32", split=True)
    one, = run(work, compile_module(text, os.path.join(folder, "one.so")), 1)
    two = run(work, compile_module(text, os.path.join(folder, "two.so"), "--mesh=data=2"), 2)
    worst = largest(float(np.max(np.abs(two[0][key] - one[key]))) for key in one)
    bad = check("two ranks agree", same(two[0], two[1]))
    return bad + check("two ranks train as one", worst <= 1e-5, worst)


def refusals(folder):
    bad = 0
    source = os.path.join(folder, "m.mlir")
    for name, text, options, said in (
            ("sharded", module({}, "", "", "f32", split=True), ["--mesh=data=2", "--shard=optimizer"], "expects --shard=none"),
            ("a vector", module({}, "", "").replace("@adamw)", "@muon)"), [], "expects a whole matrix"),
            ("two scales", module(dict(match_rms=True, unclamped=True), "", ""), [], "at most one of match_rms and unclamped"),
            ("steps", module(dict(steps=0), "", ""), [], "steps from 1 to 100")):
        with open(source, "w") as f:
            f.write(text)
        done = subprocess.run([tool("trainc"), source, "-o", os.path.join(folder, "m.so"), *options], capture_output=True, text=True)
        bad += check(f"{name} is refused", done.returncode != 0 and said in done.stderr and "m.mlir:" in done.stderr, done.stderr[:300])
    return bad


def main():
    with tempfile.TemporaryDirectory() as folder:
        # Ranks first: they are forked, before JAX has threads.
        return on_two_ranks(folder) + refusals(folder) + on_one_rank(folder)


if __name__ == "__main__":
    sys.exit(main() != 0)
