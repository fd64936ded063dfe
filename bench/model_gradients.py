#!/usr/bin/env python3
"""Compares every parameter's gradient of whole models, in f32, with JAX in f64.

usage: model_gradients.py [--json FILE] [WORKLOAD ...]

The error of a model is that of its worst tensor: the norm of the difference over the norm of JAX's gradient. Exits 1 if
one is above 1e-3.
"""
import argparse
import json
import os
import sys
import tempfile
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from common import RUNTIME_LIBRARY, Failed, compile_module, generate, largest, workload_module
from losses import LLAMA
from trainc_ctypes import Runtime, Trainer
from workloads import WORKLOADS, batches, initial_values, write_safetensors

jax.config.update("jax_enable_x64", True)
NAMES = ["mlp-tiny", "digits-cnn", "many-small", "gpt-char", "llama"]
BAR = 1e-3


def reference(name):
    """(module text, initial values, (x, y), gradients in f64); the module accumulates two micro-batches."""
    if name == "llama":
        from oracle import llama_jax
        options = [word for k, v in LLAMA.items() for word in (f"--{k.replace('_', '-')}", v)]
        values, data = llama_jax.initial_values(**LLAMA), llama_jax.batch(**LLAMA)
        p = {k: jnp.array(v, jnp.float64) for k, v in values.items()}
        return (generate("llama", *options, "--accumulate", 2), values, data,
                jax.grad(lambda p: llama_jax.loss_of(p, *data, **LLAMA))(p))
    from jax_models import load, load_data, loss_and_gradients
    w = WORKLOADS[name]
    gradients = loss_and_gradients(w, jnp.float64, load(w, jnp.float64), load_data(w))[1]
    return workload_module(replace(w, accumulate=2)), dict(initial_values(w)), batches(w)[0], gradients


def gradients_of_window(trainer, x, y):
    """{parameter: averaged gradient} after a window of two equal micro-batches."""
    for _ in range(2):
        trainer.step(x=x, y=y)
    scale = trainer.scalar("read_scale")
    return {name: trainer.read(name, "gradient").astype(np.float64) * scale for name in trainer.names("gradient")}


def worst(name):
    text, values, (x, y), want = reference(name)
    with tempfile.TemporaryDirectory() as folder:
        library, file = os.path.join(folder, "model.so"), os.path.join(folder, "values.safetensors")
        compile_module(text, library)
        write_safetensors(file, values)
        with Trainer(Runtime(RUNTIME_LIBRARY), library) as trainer:
            trainer.load_parameters(file)
            got = gradients_of_window(trainer, x, y)
    if set(got) != set(want):
        raise Failed(f"gradients of other parameters: {sorted(set(got) ^ set(want))[:3]}")
    return largest(float(np.linalg.norm(got[k] - want[k]) / np.linalg.norm(want[k])) for k in want)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=f"default: {' '.join(NAMES)}")
    p.add_argument("--json", help="write {workload: error or text} here")
    a = p.parse_args()
    results = {}
    for name in a.workloads or NAMES:
        try:
            results[name] = worst(name)
            print(f"{name:12} {results[name]:.1e}", flush=True)
        except Failed as e:
            results[name] = str(e)
            print(f"{name:12} {e}", flush=True)
    if a.json:
        with open(a.json, "w") as f:
            json.dump(results, f)
    return any(isinstance(r, str) or not r <= BAR for r in results.values())


if __name__ == "__main__":
    sys.exit(main())
