#!/usr/bin/env python3
"""What models train to with --portable-bits on every kind of CPU that is at hand: losses and states of 20 updates, or of 3 of large models.

usage: portable.py [--record] [--only TEXT] [--cpus NAME ...] [--threads N ...]

Each model is compiled for each kind (x86-64-v3, and x86-64-v4, AMX and AArch64 where they can run: what this machine's CPU
lacks is restricted or emulated by qemu), and trains there by trainc-run, on 1, 2 and 3 threads. All must give the digest that
results/portable.json holds; --record writes it there. The exit status is 0 if all are equal. Needs NumPy.
"""
import argparse
import hashlib
import json
import os
import shutil
import sys
import tempfile

import numpy as np

import results
from common import ENVIRONMENT, ROOT, compile_module, generate, run, tool
from processors import of_type
from workloads import write_safetensors

sys.path.insert(0, os.path.join(ROOT, "examples"))
from trainc_text import Module  # noqa: E402

RECORD = os.path.join(results.FOLDER, "portable.json")
UPDATES, FEW, EXAMPLES = 20, 3, 64
ARM_BUILD = os.environ.get("TRAINC_BUILD_AARCH64", os.path.join(ROOT, "build-aarch64"))


class Cpu:
    """A kind of CPU: options of trainc, and what runs trainc-run there; or why it cannot run here."""

    def __init__(self, name, options, command, missing=None, **environment):
        self.name, self.options, self.command, self.missing = name, options, command, missing
        self.environment = {**ENVIRONMENT, **environment}


def flags_here():
    with open("/proc/cpuinfo") as f:
        return set(f.read().split())


def cpus():
    flags = flags_here()
    lacks = {"avx512": None if {"avx512f", "avx512bw", "avx512vl"} <= flags else "no AVX-512",
             "amx": None if {"amx_bf16", "amx_tile"} <= flags else "no AMX"}
    arm_run = os.path.join(ARM_BUILD, "bin", "trainc-run")
    arm = ("no qemu-aarch64" if not shutil.which("qemu-aarch64") else
           None if os.path.exists(arm_run) else f"no {os.path.relpath(arm_run, ROOT)}")
    qemu = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", "-cpu"]
    triple = "--target-triple=aarch64-linux-gnu"
    return [Cpu("avx2", ["--target-cpu=x86-64-v3"], [tool("trainc-run")], TRAINC_AVX2_ONLY="1"),
            Cpu("avx512", ["--target-cpu=x86-64-v4"], [tool("trainc-run")], lacks["avx512"]),
            Cpu("amx", ["--target-cpu=sapphirerapids"], [tool("trainc-run")], lacks["amx"]),
            Cpu("neoverse-n1", [triple, "--target-cpu=neoverse-n1"], [*qemu, "neoverse-n1", arm_run], arm),
            Cpu("aarch64", [triple, "--target-cpu=generic"], [*qemu, "max", arm_run], arm)]


#===-- Models -------------------------------------------------------------===#

def lstm(batch, accumulate, steps=7, inputs=20, width=37, classes=6, schedule="cosine"):
    """A module of an LSTM over a few steps, written out."""
    lines, element = [], "f32"

    def of(*shape):
        return f"tensor<{'x'.join(map(str, shape))}x{element}>"

    def op(text):
        lines.append(f"  %v{len(lines)} = {text}")
        return f"%v{len(lines) - 1}"

    parameters = {"wx": (inputs, 4 * width), "wh": (width, 4 * width), "b": (4 * width,), "out": (width, classes), "bias": (classes,)}
    read = {name: op(f"train.read @{name} : {of(*shape)}") for name, shape in parameters.items()}
    state = memory = op(f"nn.constant dense<0.0> : {of(batch, width)}")
    for t in range(steps):
        x = op(f"nn.slice %x offsets [0, {t}, 0] sizes [{batch}, 1, {inputs}] strides [1, 1, 1] : {of(batch, steps, inputs)}")
        x = op(f"nn.reshape {x} : {of(batch, 1, inputs)} to {of(batch, inputs)}")
        x = op(f"nn.linear {x}, {read['wx']}, {read['b']} : {of(batch, inputs)}, {of(*parameters['wx'])}, {of(4 * width)}")
        h = op(f"nn.linear {state}, {read['wh']} : {of(batch, width)}, {of(*parameters['wh'])}")
        gates = op(f"nn.add {x}, {h} : {of(batch, 4 * width)}, {of(batch, 4 * width)}")
        parts = [op(f"nn.slice {gates} offsets [0, {i * width}] sizes [{batch}, {width}] strides [1, 1] : {of(batch, 4 * width)}")
                 for i in range(4)]
        i, f, o = (op(f"nn.sigmoid {part} : {of(batch, width)}") for part in parts[:3])
        g = op(f"nn.tanh {parts[3]} : {of(batch, width)}")
        pair = f"{of(batch, width)}, {of(batch, width)}"
        kept, new = op(f"nn.mul {f}, {memory} : {pair}"), op(f"nn.mul {i}, {g} : {pair}")
        memory = op(f"nn.add {kept}, {new} : {pair}")
        shown = op(f"nn.tanh {memory} : {of(batch, width)}")
        state = op(f"nn.mul {o}, {shown} : {pair}")
    logits = op(f"nn.linear {state}, {read['out']}, {read['bias']} : {of(batch, width)}, {of(width, classes)}, {of(classes)}")
    head = ["train.optimizer @o = adam<lr = 0.01>"]
    head += [f"train.param @{name} : {of(*shape)} init(normal<0.2>) optimizer(@o)" for name, shape in parameters.items()]
    head += [f"train.step @step(%x: {of(batch, steps, inputs)}, %y: tensor<{batch}xi32>) accumulate({accumulate}) "
             "clip(global_norm<1.0>) precision(compute = bf16) {"]
    tail = [f"  %sum, %count = nn.cross_entropy {logits}, %y : {of(batch, classes)}, tensor<{batch}xi32>",
            "  train.yield loss(%sum) weight(%count) : tensor<f32>, tensor<f32>", "}"]
    return "\n".join([*head, *lines, *tail]) + "\n"


def convnet(batch, accumulate, size=24, classes=6):
    """A module of convolutions of real sizes: each way in which the runtime computes them."""
    module = Module()
    module.lines.append("train.optimizer @optimizer = adam<lr = 0.001>")
    # (its name, channels, outputs, window, stride, groups)
    layers = [("stem", 3, 40, 5, 1, 1), ("winograd", 40, 48, 3, 1, 1), ("depthwise", 48, 48, 3, 1, 48), ("pointwise", 48, 33, 1, 1, 1),
              ("grouped", 33, 66, 3, 1, 3), ("strided", 66, 35, 3, 2, 1)]
    for name, channels, outputs, window, _, groups in layers:
        fan_in = channels // groups * window * window
        module.param(f"{name}.weight", (outputs, channels // groups, window, window), f"normal<{(2 / fan_in) ** 0.5:.4f}>")
        module.param(f"{name}.bias", (outputs,), "zeros")
    features = layers[-1][2] * (size // 4) ** 2
    module.linear("fc", features, classes)

    def loss(body, x, y):
        for name, _, outputs, window, stride, groups in layers:
            w, b, pad = body.read(f"{name}.weight"), body.read(f"{name}.bias"), window // 2
            x = body.op(f"nn.conv2d {x.name}, {w.name} bias {b.name} strides [{stride}, {stride}] padding [{pad}, {pad}, {pad}, {pad}]"
                        f" groups {groups} : {x.type}, {w.type}, {b.type}",
                        ((batch, outputs, x.shape[2] // stride, x.shape[3] // stride), x.element))
            x = body.pointwise("relu", x)
        pooled = (batch, outputs, size // 4, size // 4)
        x, _ = body.op(f"nn.max_pool2d {x.name} window [2, 2] : {x.type}", (pooled, x.element), (pooled, "i32"))
        return body.cross_entropy(body.linear(body.reshape(x, (batch, features)), "fc"), y)

    module.step([("x", (batch, 3, size, size), "f32"), ("y", (batch,), "i32")], loss,
                f" accumulate({accumulate}) clip(global_norm<1.0>) precision(compute = bf16)")
    return str(module)


# Sizes that fill no block of a GEMM, and sums that are longer than one.
MODELS = {
    "mlp": ["--inputs", 300, "--hidden", 131, 23, "--classes", 10],
    "cnn": ["--height", 12, "--width", 12, "--filters", 5, 9],
    "gpt": ["--layers", 2, "--width", 45, "--heads", 3, "--vocab", 137, "--seq", 37, "--dropout", 0.1],
    "llama": ["--layers", 2, "--width", 48, "--heads", 4, "--kv-heads", 2, "--vocab", 97, "--seq", 21],
    "lstm": [],
}
# Large ones, of a few updates: convolutions, and a loss head of several chunks (2^22 logits and more).
LARGE = {"convnet": [], "head": ["--layers", 1, "--width", 24, "--heads", 2, "--vocab", 2711, "--seq", 389]}
SCHEDULES = {"gpt": ["--schedule", "warmup_cosine", "warmup=5", "total=30"]}
BATCH = 4


def module(model, element, k):
    written = {"lstm": lstm, "convnet": convnet}
    if model in written:
        return of_type(written[model](BATCH, k), element)
    options = [*{**MODELS, **LARGE}[model], *SCHEDULES.get(model, []), "--batch", BATCH, "--accumulate", k, "--bf16"]
    return of_type(generate("gpt" if model == "head" else model, *options), element)


def write_data(text, path):
    """Random examples of the inputs of a module's step."""
    import re
    rng, tensors = np.random.default_rng(5), {}
    head = re.search(r"train.step @\w+\((.*?)\) ?(?:accumulate|clip|precision|\{)", text).group(1)
    for name, shape, kind in re.findall(r"%(\w+): tensor<((?:\d+x)*)(f32|i32)>", head):
        dims = [EXAMPLES, *map(int, shape.split("x")[1:-1])]
        tensors[name] = (rng.standard_normal(dims).astype(np.float32) if kind == "f32" else
                         rng.integers(0, 6, dims).astype(np.int32))
    write_safetensors(path, tensors)


def cases():
    """(its name, the module, updates) of each training."""
    for model in (*MODELS, *LARGE):
        for element in ("f32", "bf16"):
            for k in (1, 4) if model in MODELS else (1,):
                yield f"{model} {element} k={k}", module(model, element, k), UPDATES if model in MODELS else FEW


#===-- Digests ------------------------------------------------------------===#

def file_digest(path, digest=None):
    digest = digest or hashlib.sha256()
    with open(path, "rb") as f:
        digest.update(f.read())
    return digest.hexdigest()[:16]


def digest_of(library, data, cpu, threads, folder, log=True, updates=UPDATES):
    """Of the state after some updates, and, with `log`, of their losses."""
    state, losses = os.path.join(folder, "state.safetensors"), os.path.join(folder, "log.jsonl")
    for path in (state, losses):
        if os.path.exists(path):
            os.remove(path)
    run([*cpu.command, library, "--data", data, "--steps", str(updates), "--seed", "3", "--threads", str(threads), "--save", state,
         "--log", losses], env=cpu.environment)
    digest = hashlib.sha256()
    if log:
        with open(losses) as f:
            for line in map(json.loads, f):
                if "loss" in line:
                    digest.update(repr((line["loss"], line.get("grad_norm"))).encode())
    return file_digest(state, digest)


def digests(wanted=None, only="", threads=(1, 2, 3)):
    """{case: {CPU: digest, or those of its threads, if they differ}}, and {CPU: why it cannot run}."""
    found, missing = {}, {cpu.name: cpu.missing for cpu in cpus() if cpu.missing and (not wanted or cpu.name in wanted)}
    here = [cpu for cpu in cpus() if not cpu.missing and (not wanted or cpu.name in wanted)]
    with tempfile.TemporaryDirectory() as folder:
        for name, text, updates in cases():
            if only not in name:
                continue
            data = os.path.join(folder, "data.safetensors")
            write_data(text, data)
            for cpu in here:
                library = compile_module(text, os.path.join(folder, "model.so"), "--portable-bits", *cpu.options)
                each = {digest_of(library, data, cpu, n, folder, updates=updates) for n in threads}
                found.setdefault(name, {})[cpu.name] = " ".join(sorted(each))
    return found, missing


def recorded():
    if not os.path.exists(RECORD):
        return {"commit": "nothing", "digests": {}}
    with open(RECORD) as f:
        return json.load(f)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--record", action="store_true")
    p.add_argument("--only", default="", metavar="TEXT")
    p.add_argument("--cpus", nargs="+", metavar="NAME", choices=[cpu.name for cpu in cpus()])
    p.add_argument("--threads", nargs="+", type=int, default=[1, 2, 3])
    a = p.parse_args()
    found, missing = digests(a.cpus, a.only, a.threads)
    known = recorded()
    for cpu, why in missing.items():
        print(f"{cpu}: cannot run here: {why}")
    if a.record:
        first = {name: next(iter(of.values())) for name, of in found.items()}
        with open(RECORD, "w") as f:
            json.dump(dict(commit=results.commit(), digests=first), f, indent=1)
            f.write("\n")
        known = recorded()
    bad = 0
    for name, of in found.items():
        expected = known["digests"].get(name)
        if set(of.values()) != {expected}:
            bad += 1
            print(f"{name}: {', '.join(f'{cpu} {digest}' for cpu, digest in of.items())}; recorded: {expected}")
    print(f"{len(found) - bad} of {len(found)} equal those of {known['commit']}")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
