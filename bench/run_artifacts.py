#!/usr/bin/env python3
"""Trains artifacts on this processor, or on one that QEMU emulates, and writes the numbers.

usage: run_artifacts.py JOBS RESULTS
       qemu-x86_64 -cpu Haswell python run_artifacts.py JOBS RESULTS

JOBS is a pickled list of dicts: `library`; `updates`, how many; `threads`, 2 where none are given; `parameters`, {name: value} set before; `inputs`, {entry:
{name: array}}, drawn by the ports of the step where there are none; `evals` and `gradients`, what is read in the end. RESULTS
is a list of dicts in the same order: `losses` and `norms` of all updates, `evals` and `gradients` by name; or texts of what
was refused. Needs NumPy alone.
"""
import pickle
import sys

import numpy as np

from common import RUNTIME_LIBRARY
from trainc_ctypes import Error, Runtime, Trainer


def drawn(trainer, rng, ranks=1):
    """Random arrays for the inputs of the step, with the rows of all ranks."""
    entry = trainer.descriptor.entries[trainer.entries["step"]]
    for i in range(entry.num_inputs):
        port = entry.inputs[i]
        shape = [port.dims[d] * (ranks if d == 0 else 1) for d in range(port.rank)]
        yield port.name.decode(), rng.standard_normal(shape) if port.dtype < 4 else rng.integers(0, 10, shape)


def result_of(job, runtime):
    rng = np.random.default_rng(3)
    with Trainer(runtime, job["library"], threads=job.get("threads", 2), seed=1) as trainer:
        for name, value in job.get("parameters", {}).items():
            trainer.write(name, value)
        inputs = job.get("inputs", {})
        for entry, arrays in inputs.items():
            trainer.bind(entry, **arrays)
        accumulate = trainer.descriptor.entries[trainer.entries["step"]].accumulate
        losses, norms = [], []
        for _ in range(job["updates"]):
            for _ in range(accumulate):
                done = trainer.step(**({} if inputs else dict(drawn(trainer, rng))))
            losses.append(done.window_loss)
            norms.append(done.grad_norm)
        evals = {name: trainer.eval(name)["r"] for name in job.get("evals", ())}
        scale = trainer.scalar("read_scale") if job.get("gradients") else 1
        gradients = {name: trainer.read(name, "gradient").astype(np.float64) * scale for name in job.get("gradients", ())}
        return {"losses": np.array(losses), "norms": np.array(norms), "evals": evals, "gradients": gradients}


def main():
    with open(sys.argv[1], "rb") as f:
        jobs = pickle.load(f)
    runtime, results = Runtime(RUNTIME_LIBRARY), []
    for job in jobs:
        try:
            results.append(result_of(job, runtime))
        except Error as e:
            results.append(str(e))
    with open(sys.argv[2], "wb") as f:
        pickle.dump(results, f)


if __name__ == "__main__":
    main()
