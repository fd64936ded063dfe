# REQUIRES: numpy
# RUN: %python %s
"""Steps for GPUs without each of the optional passes, and without all of them: the same losses, norms and parameters.

With two thirds of the workspace, for which values are computed again, the same bits; so it is with two passes swapped that GPUs
alone have.
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(ROOT, "test", "Integration", "Inputs")]

from common import BUILD, RUNTIME_LIBRARY, compile_module, generate, largest, run, tool  # noqa: E402
from report import check  # noqa: E402
from trainc_ctypes import Runtime, Trainer  # noqa: E402

for variable, library in (("TRAINC_LIBCUDA", "cuda"), ("TRAINC_LIBCUBLASLT", "cublaslt")):
    os.environ[variable] = os.path.join(BUILD, "lib", f"libtrainc_fake_{library}.so")
MODEL = ("gpt", "--layers", 1, "--width", 32, "--heads", 2, "--vocab", 64, "--seq", 8, "--batch", 2)
MODELS = {"f32, k = 2": ((*MODEL, "--accumulate", 2, "--ema", 0.9), 1e-5), "bf16": ((*MODEL, "--bf16"), 2e-2)}


def train(runtime, path, known):
    """Losses, norms and parameters; of an artifact that is `known` what they were."""
    with open(path, "rb") as f:
        text = f.read()
    if text not in known:
        known[text] = train_anew(runtime, path)
    return known[text]


def train_anew(runtime, path):
    with Trainer(runtime, path, threads=1, seed=3, device=b"cuda") as t:
        rng, seen = np.random.default_rng(1), []
        for _ in range(4):  # two windows
            r = t.step(x=rng.integers(0, 64, (2, 8)), y=rng.integers(0, 64, (2, 8)))
            seen.append((r.loss, r.grad_norm))
        return np.array(seen), {name: t.read(name) for name in t.names()}


def limited(source, options):
    """The option that leaves two thirds of the workspace."""
    report = json.loads(run([tool("trainc"), source, "--memory-report=json", *options]).stdout)
    workspace = next(a["bytes"] for a in report["arenas"] if a["name"] == "workspace")
    return f"--memory-limit={report['total'] - workspace // 3}"


def main():
    failed, runtime = False, Runtime(RUNTIME_LIBRARY)
    passes = subprocess.run([tool("trainc"), "--list-passes"], check=True, capture_output=True, text=True).stdout.split()
    with tempfile.TemporaryDirectory() as folder:
        for name, (model, bar) in MODELS.items():
            known = {}

            def result(*disabled):
                options = [f"--disable-pass={','.join(disabled)}"] if disabled else []
                path = compile_module(generate(*model), os.path.join(folder, "model.so"), "--target=cuda", "--cuda-arch=host", *options)
                return train(runtime, path, known)
            losses, parameters = result()
            options = ["--target=cuda", "--cuda-arch=host"]
            limit = limited(os.path.join(folder, "model.mlir"), options)
            for more in (limit, "--swap-passes=train-merge-launches,train-plan-gemms"):
                other, values = train(runtime, compile_module(generate(*model), os.path.join(folder, "model.so"), *options, more), known)
                error = np.max(np.abs(other - losses)) + largest(np.max(np.abs(values[p] - parameters[p])) for p in parameters)
                failed |= check(f"{name}, {more}", error == 0, error)
            for disabled in (*([p] for p in passes), passes):
                other, values = result(*disabled)
                error = largest([float(np.max(np.abs(other - losses)) / np.max(np.abs(losses)))]
                            + [float(np.max(np.abs(values[p] - parameters[p]))) for p in parameters])
                failed |= check(f"{name}, without {' '.join(disabled)}", error <= bar, error)
    sys.exit(failed)


main()
