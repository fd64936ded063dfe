# REQUIRES: jax
# RUN: %python %s
"""Trains parameters of many groups, by one update for all and by one for each, in every layout of the state, and compares
all that is stored, bitwise.

Groups differ in rule, numbers, clip and average, parameters in element type and size; one is frozen. A gradient that is not
finite, in the third update, must leave everything as it was. Between tensors, NaN is written before the first update.
"""
import ctypes
import os
import sys
import tempfile

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench"))

from common import RUNTIME_LIBRARY, compile_module  # noqa: E402
from trainc_ctypes import Runtime, Trainer  # noqa: E402

UPDATES, BAD = 6, 2
OPTIMIZERS = """train.schedule @lr = warmup_linear<peak = 0.05, warmup = 3.0, total = 20.0>
train.optimizer @decayed = adamw<lr = @lr, weight_decay = 0.1> ema(0.9)
train.optimizer @plain = adamw<lr = @lr, weight_decay = 0.0, lr_multiplier = 0.5> ema(0.5)
train.optimizer @unclipped = adamw<lr = 0.02> clip(false)
train.optimizer @layer = lamb<lr = 0.01, weight_decay = 0.02>
train.optimizer @layers = lamb<lr = 0.03, weight_decay = 0.01>
train.optimizer @ratio = lars<lr = 0.5>
train.optimizer @descent = sgd<lr = 0.1>
"""
# name, shape, element, optimizer
PARAMETERS = [("a", (7, 5), "f32", "decayed"), ("b", (1,), "f32", "plain"), ("c", (130, 257), "f32", "layer"),
              ("d", (33,), "f32", "frozen"), ("e", (400, 300), "f32", "decayed"), ("f", (65,), "bf16", "plain"),
              ("g", (40,), "bf16", "decayed"), ("h", (19, 3), "f64", "descent"), ("i", (4097,), "f32", "unclipped"),
              ("j", (8192,), "f32", "layers"), ("k", (31,), "bf16", "layers"), ("l", (5, 5), "f32", "ratio"),
              ("m", (64,), "f32", "descent")]
VARIANTS = [["--disable-pass=train-fuse-optimizer"], ["--disable-pass=train-coalesce"],
            *([f"--align-size={n}"] for n in (8, 16, 64, 4096))]
CLIPS = ["", "clip(global_norm<3.0>)", "clip(param_norm<2.0>)", "clip(value<0.5>)"]


def tensor(shape, element):
    return f"tensor<{'x'.join([*map(str, shape), element])}>"


def module(clip):
    """The loss is the sum of parameter times input, so that the gradient is the input."""
    lines, total = [OPTIMIZERS], None
    for name, shape, element, optimizer in PARAMETERS:
        end = "frozen" if optimizer == "frozen" else f"optimizer(@{optimizer})"
        lines.append(f"train.param @{name} : {tensor(shape, element)} init(normal<0.5>) {end}")
    inputs = ", ".join(f"%g{name}: {tensor(shape, 'f64' if element == 'f64' else 'f32')}"
                       for name, shape, element, _ in PARAMETERS)
    lines.append(f"train.step @step({inputs}) {clip} {{")
    for name, shape, element, _ in PARAMETERS:
        wide = "f64" if element == "f64" else "f32"
        t, w = tensor(shape, element), tensor(shape, wide)
        lines.append(f"%{name} = train.read @{name} : {t}")
        value = f"%{name}"
        if element == "bf16":
            lines.append(f"%w{name} = nn.cast {value} to f32 : {t}")
            value = f"%w{name}"
        lines += [f"%m{name} = nn.mul {value}, %g{name} : {w}, {w}",
                  f"%r{name} = nn.reduce sum %m{name} dims {list(range(len(shape)))} : {w}"]
        part = f"%r{name}"
        if wide == "f32":
            lines.append(f"%s{name} = nn.cast {part} to f64 : tensor<f32>")
            part = f"%s{name}"
        if total:
            lines.append(f"%t{name} = nn.add {total}, {part} : tensor<f64>, tensor<f64>")
        total = f"%t{name}" if total else part
    return "\n".join([*lines, f"train.yield loss({total}) : tensor<f64>", "}", ""])


def stored(trainer):
    """The bytes of a checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "state")
        trainer.save(path)
        return {f: open(os.path.join(path, f), "rb").read() for f in sorted(os.listdir(path))} if os.path.isdir(path) \
            else {"": open(path, "rb").read()}


def spoil_padding(trainer):
    """Writes NaN between the tensors of each arena; the number of bytes."""
    tensors, arenas, spoiled = trainer.descriptor.tensors, {}, 0
    for i in range(trainer.descriptor.num_tensors):
        arenas.setdefault(tensors[i].arena, []).append((tensors[i].offset, tensors[i].bytes, i))
    for places in arenas.values():
        places.sort()
        for (offset, size, i), (following, *_) in zip(places, places[1:]):
            data = ctypes.c_void_p()
            trainer.runtime.call("trainc_tensor_data", trainer.trainer, ctypes.c_uint32(i), ctypes.byref(data))
            ctypes.memset(data.value + size, 0xFF, following - offset - size)
            spoiled += following - offset - size
    return spoiled


def train(library, start=None):
    """What the updates report, what is stored in the end, the number of padding bytes; `start` is a checkpoint."""
    rng = np.random.default_rng(5)
    seen = []
    with Trainer(Runtime(RUNTIME_LIBRARY), library, threads=2, seed=1) as trainer:
        if start:
            trainer.load(start)
        spoiled = spoil_padding(trainer)
        for i in range(UPDATES):
            gradients = {f"g{n}": rng.standard_normal(s) * 0.1 for n, s, _, _ in PARAMETERS}
            before = {n: trainer.read(n) for n, *_ in PARAMETERS}
            if i == BAD:
                gradients["gj"][77] = np.inf
            result = trainer.step(**gradients)
            after = {n: trainer.read(n) for n, *_ in PARAMETERS}
            moved = {n for n in after if not np.array_equal(before[n], after[n])}
            expected = set() if i == BAD else {n for n, *_, o in PARAMETERS if o != "frozen"}
            if (i > 0 or start) and moved != expected:
                sys.exit(f"update {i + 1} changed {sorted(moved)}, expected {sorted(expected)}")
            seen.append((result.grad_norm, result.clip_factor, result.finite))
        return repr(seen), stored(trainer), spoiled


def main():
    for clip in CLIPS:
        with tempfile.TemporaryDirectory() as folder:
            def path(name):
                return os.path.join(folder, name)

            def compiled(way, *options):
                # A checkpoint says the name of its artifact: the same for all.
                os.makedirs(path(way), exist_ok=True)
                return compile_module(module(clip), path(os.path.join(way, "groups.so")), *options)

            default = compiled("default")
            want = train(default)
            for name, content in want[1].items():
                with open(path("state") + name, "wb") as f:
                    f.write(content)
            again = train(default, path("state"))
            for options in VARIANTS:
                library = compiled("".join(options), *options)
                for run, of in ((train(library), want), (train(library, path("state")), again)):
                    if run[0] != of[0]:
                        sys.exit(f"{clip} {options}: norms differ: {run[0]} and {of[0]}")
                    if run[1] != of[1]:
                        sys.exit(f"{clip} {options}: what is stored differs")
                print(f"{clip or 'no clip'} {options[0]}: equal, padding of {run[2]} bytes was NaN")


if __name__ == "__main__":
    main()
