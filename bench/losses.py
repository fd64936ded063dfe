#!/usr/bin/env python3
"""Compares the first five losses and gradient norms of compiled steps with JAX, from the same initial values.

usage: losses.py [--json FILE] [WORKLOAD ...]

The workloads are those of bench/peers, against its reference_losses.json (float64), and `llama`, against the model in
bench/oracle/llama_jax.py. Exits 1 if a loss or a norm is farther off than 1e-4 relative. Needs the environment of
bench/peers/requirements.txt.
"""
import argparse
import hashlib
import json
import os
import sys
import tempfile

from common import PEERS, RUNTIME_LIBRARY, Failed, compile_module, farthest, generate, workload_module
from trainc_ctypes import Runtime, Trainer
from workloads import CHECKED_STEPS, WORKLOADS, batches, initial_values, write_safetensors

NAMES = ["mlp-tiny", "digits-cnn", "many-small", "gpt-char", "gpt-char-accum4", "gpt2-124m", "gpt2-124m-accum4", "llama"]
BAR = 1e-4
LLAMA = dict(layers=3, width=120, heads=6, kv_heads=2, hidden=200, vocab=97, seq=33, batch=3)


def updates_of(library, values, data, count=CHECKED_STEPS, threads=0, finish=lambda trainer: None):
    """([(loss, gradient norm)] of the first updates of a library from the parameters in a file, what `finish` makes of the
    trainer then); `data` are the micro-batches of one update."""
    rows = []
    with Trainer(Runtime(RUNTIME_LIBRARY), library, threads=threads) as trainer:
        trainer.load_parameters(values)
        for _ in range(count):
            for x, y in data:
                result = trainer.step(x=x, y=y)
            rows.append((result.window_loss, result.grad_norm))
        return rows, finish(trainer)


def state_digest(trainer, digest=None):
    """Of all parameters and states, bit by bit, after what `digest` has."""
    digest = digest or hashlib.sha256()
    for role, name, state in sorted(trainer.tensors, key=str):
        if role in ("parameter", "state"):
            digest.update(f"{role} {name} {state}".encode())
            digest.update(trainer.read(name, role, state).tobytes())
    return digest.hexdigest()


def first_updates(module, parameters, data, folder):
    """[(loss, gradient norm)] of the first updates; `data` are the micro-batches of one update."""
    library, values = os.path.join(folder, "model.so"), os.path.join(folder, "values.safetensors")
    compile_module(module, library)
    write_safetensors(values, parameters)
    return updates_of(library, values, data)[0]


def compare(name):
    """Largest relative error of the losses and of the gradient norms."""
    with tempfile.TemporaryDirectory() as folder:
        if name == "llama":
            from oracle import llama_jax
            module = generate("llama", *(word for k, v in LLAMA.items() for word in (f"--{k.replace('_', '-')}", v)))
            parameters, data = llama_jax.initial_values(**LLAMA), llama_jax.batch(**LLAMA)
            want = llama_jax.first_updates(parameters, data, CHECKED_STEPS, **LLAMA)
            got = first_updates(module, parameters, [data], folder)
        else:
            w = WORKLOADS[name]
            with open(os.path.join(PEERS, "reference_losses.json")) as f:
                reference = json.load(f)["workloads"][name]
            want = list(zip(reference["loss_f64"], reference["gradient_norm_f64"]))
            got = first_updates(workload_module(w), dict(initial_values(w)), batches(w), folder)
    return [farthest(g, w) for g, w in zip(zip(*got), zip(*want))]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=f"default: {' '.join(NAMES)}")
    p.add_argument("--json", help="write {workload: [loss error, norm error] or text} here")
    a = p.parse_args()
    results = {}
    for name in a.workloads or NAMES:
        if name not in NAMES:
            p.error(f"expected one of {', '.join(NAMES)}, got {name}")
        try:
            results[name] = loss, norm = compare(name)
            verdict = "ok" if max(loss, norm) <= BAR else "short"
            print(f"{name:18} loss {loss:.1e}  gradient norm {norm:.1e}  {verdict}", flush=True)
        except Failed as e:
            results[name] = str(e)
            print(f"{name:18} short: {e}", flush=True)
    if a.json:
        with open(a.json, "w") as f:
            json.dump(results, f)
    return any(isinstance(r, str) or not max(r) <= BAR for r in results.values())


if __name__ == "__main__":
    sys.exit(main())
