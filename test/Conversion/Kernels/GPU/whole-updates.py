# REQUIRES: jax
# RUN: %python %s %runtime_lib/libtrainc_emulator.so --quick
"""Whole updates as GPU kernels, on the emulator, against the CPU target: norms with every clip, every optimizer, moving
averages, loss scales, rounding by chance.

usage: whole-updates.py EMULATOR [--json FILE] [--quick] [NAME ...]

Before each step both have the same state. All that the step leaves is compared, tensors by the norm of the difference over
the norm; what counts something is to be equal.
"""
import argparse
import ctypes
import json
import os
import sys
import tempfile

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(HERE))))
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(ROOT, "test", "Integration"),
                os.path.join(ROOT, "test", "Integration", "Inputs"), os.path.join(ROOT, "test", "Target", "GPU", "Inputs"),
                os.path.join(HERE, "Inputs")]

import optimizers  # noqa: E402
from common import RUNTIME_LIBRARY, Failed, compile_module, largest  # noqa: E402
from emulator import Fault  # noqa: E402
from lists import Lists, show  # noqa: E402
from trainc_ctypes import Error, Runtime, Trainer  # noqa: E402
from updates import data_of, module  # noqa: E402

# Those of f64 are clipped by norms of others in f32, too.
BARS = {"f64": 1e-9, "f32": 2e-6, "bf16": 2**-9, "f16": 2**-12}
ARENAS = {"parameter": "arena.master", "gradient": "arena.grad", "buffer": "arena.buffer", "compute": "arena.compute"}
COUNTS = {"update", "skipped", "finite", "micro_step", "stop", "loss_scale", "loss_scale_age"}
STEPS = 3
# Of many groups at once: name, shape, element, optimizer.
GROUPS = """train.schedule @lr = warmup_linear<peak = 0.05, warmup = 3.0, total = 20.0>
train.optimizer @decayed = adamw<lr = @lr, weight_decay = 0.1> ema(0.9)
train.optimizer @plain = adamw<lr = @lr, weight_decay = 0.0, lr_multiplier = 0.5> ema(0.5)
train.optimizer @unclipped = adamw<lr = 0.02> clip(false)
train.optimizer @layer = lamb<lr = 0.01, weight_decay = 0.02>
train.optimizer @ratio = lars<lr = 0.5>
train.optimizer @descent = sgd<lr = 0.1>
"""
PARAMETERS = [("a", (7, 5), "f32", "decayed"), ("b", (1,), "f32", "plain"), ("c", (130, 57), "f32", "layer"),
              ("d", (33,), "f32", "frozen"), ("e", (400, 30), "f32", "decayed"), ("f", (65,), "bf16", "plain"),
              ("g", (40,), "bf16", "decayed"), ("h", (19, 3), "f64", "descent"), ("i", (4097,), "f32", "unclipped"),
              ("l", (5, 5), "f32", "ratio"), ("m", (64,), "f32", "descent")]
ROUNDED = dict(a=(7, 13), kept=(9,), b=(5003,), c=(3, 4, 5))


def given(precision, optimizer):
    """A step whose inputs are the gradients."""
    types = {name: f"tensor<{'x'.join(map(str, shape))}xf32>" for name, shape in ROUNDED.items()}
    return "\n".join([f"train.optimizer @o = {optimizer}",
                      *(f"train.param @{n} : {t} init(normal<0.5>) optimizer(@o)" for n, t in types.items()),
                      f"train.step @step({', '.join(f'%{n}: {t} gradient(@{n})' for n, t in types.items())})"
                      f" accumulate(2) clip(global_norm<1.0>) precision({precision}) {{", "  train.yield", "}", ""])


def cases():
    """(name, module, {input: shape}, an input to be made infinite in the second step, or None)."""
    shapes = {f"g{n}": s for n, s, *_ in PARAMETERS}
    for clip in ("", "clip(global_norm<3.0>)", "clip(param_norm<2.0>)", "clip(value<0.5>)"):
        for clauses in (clip, f"{clip} accumulate(2)"):
            yield f"groups {clauses}".strip(), module(GROUPS, PARAMETERS, clauses), shapes, "ge"
    for kind in ("bf16", "f16"):
        for optimizer in ("sgd<lr = 0.015625>", "adamw<lr = 0.01, weight_decay = 0.1>"):
            name = optimizer.split("<")[0]
            yield (f"rounding {kind} {name}", given(f"master = {kind}, rounding = stochastic, keep_f32 = [@kept]", optimizer),
                   ROUNDED, "a")
            yield f"copies {kind} {name}", given(f"compute = {kind}, keep_f32 = [@kept]", optimizer), ROUNDED, "b"
    for name, declarations, clauses, _ in optimizers.rules():
        yield (name, optimizers.module(declarations, clauses, "f32"), {f"g{n}": s for n, s in optimizers.SHAPES.items()},
               None)


def slice_of(lists, role, name, state):
    """The array on the device of a tensor of the trainer, and its element type."""
    prefix = f"arena.state.{state}" if role == "state" else ARENAS[role]
    found = [v for (arena, part), v in lists.slices.items() if part == name and arena.startswith(prefix + ".")
             or (arena, part) == (prefix, name)]
    return found[0] if found else None


def held(trainer, i, array):
    """The bytes of tensor `i`, as an array like `array`."""
    memory = (ctypes.c_uint8 * array.nbytes).from_address(data_of(trainer, i))
    return np.frombuffer(memory, array.dtype).reshape(array.shape)


def difference(trainer, lists):
    """The largest error over the bar of its type, and what has it."""
    worst = 0.0, "nothing"
    for (role, name, state), i in trainer.tensors.items():
        place = slice_of(lists, role, name, state)
        if place is None:
            raise AssertionError(f"the lists have no {role} {name} {state or ''}")
        array, element = place
        want, got = (show(a, element).astype(np.float64) for a in (held(trainer, i, array), array))
        if not np.array_equal(np.isfinite(want), np.isfinite(got)):
            return np.inf, f"{role} {name} {state or ''}"
        want, got = (np.where(np.isfinite(a), a, 0) for a in (want, got))
        error = np.linalg.norm(got - want) / (np.linalg.norm(want) or 1.0) / BARS[element]
        worst = max(worst, (float(error), f"{role} {name} {state or ''}"))
    for name, memory in lists.scalars.items():
        want, got = trainer.scalar(name), float(memory)
        same = want == got or (np.isnan(want) and np.isnan(got))
        if not same:
            error = np.inf if name in COUNTS else largest([abs(got - want) / max(abs(want), 1e-30) / BARS["f32"]])
            worst = max(worst, (error, f"scalar {name}"))
    return worst


def follow(trainer, lists, inputs):
    """One step on the emulator, as the runtime does it, from the trainer's state."""
    for (role, name, state), i in trainer.tensors.items():
        place = slice_of(lists, role, name, state)
        if place:
            place[0][...] = held(trainer, i, place[0])
    for name, memory in lists.scalars.items():
        memory[...] = trainer.scalar(name)
    scalars = lists.scalars
    lists.run("step.next" if scalars["micro_step"] > 0 else "step.first", inputs)
    scalars["micro_step"] += 1
    if scalars["micro_step"] >= trainer.descriptor.entries[trainer.entries["step"]].accumulate:
        scalars["window"][...] = scalars["micro_step"]
        lists.run("step.apply")
        scalars["micro_step"][...] = 0


def check(text, shapes, infinite, emulator):
    """The largest error over its bar, and what has it."""
    rng, worst = np.random.default_rng(5), (0.0, "nothing")
    with tempfile.TemporaryDirectory() as folder:
        lists = Lists(text, emulator, folder)
        library = compile_module(text, os.path.join(folder, "step.so"))
        with Trainer(Runtime(RUNTIME_LIBRARY), library, threads=1, seed=3) as trainer:
            for step in range(STEPS):
                gradients = {n: rng.standard_normal(s) * 0.1 for n, s in shapes.items()}
                if step == 1 and infinite:
                    gradients[infinite].flat[3] = np.inf
                with np.errstate(over="ignore"):
                    follow(trainer, lists, gradients.values())
                trainer.step(**gradients)
                worst = max(worst, difference(trainer, lists))
        lists.close()
    return worst


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("emulator", metavar="EMULATOR")
    p.add_argument("names", nargs="*", metavar="NAME", help="how they begin")
    p.add_argument("--json", help="write {name: error over its bar, or text} here")
    p.add_argument("--quick", action="store_true", help="groups, and one of each kind")
    a = p.parse_intermixed_args()
    quick = ("groups clip(global", "groups clip(param_norm<2.0>) accumulate", "groups clip(value<0.5>)", "rounding bf16 adamw",
             "copies f16 sgd", "adafactor", "lion settings", "ema")
    results, bad = {}, []
    for name, text, shapes, infinite in cases():
        if not name.startswith(tuple(a.names) or (quick if a.quick else "")):
            continue
        try:
            error, where = check(text, shapes, infinite, a.emulator)
            results[name] = error
            print(f"{name:60} {error:.2f} of the bar, {where}", flush=True)
            bad += [name] * (not error <= 1)
        except (Failed, Error, Fault, NotImplementedError, AssertionError) as e:
            results[name] = str(e)
            print(f"{name:60} {e}", flush=True)
            bad.append(name)
    if a.json:
        with open(a.json, "w") as f:
            json.dump(results, f)
    print(f"{len(results)} updates, {len(bad)} bad")
    return not results or bool(bad)


if __name__ == "__main__":
    sys.exit(main())
