"""The row on the numbers of whole steps on the processor: against f64, and bit by bit for any number of threads."""
import json
import os
import sys

import numpy as np

from common import PEERS, ROOT, Failed, compile_module, run, workload_module
from losses import BAR, state_digest, updates_of
from rows import judge
from timing import precision
from workloads import CHECKED_STEPS, WORKLOADS, batches, initial_values, write_safetensors

NAMES = ["gpt2-124m", "gpt-char", "many-small"]
UPDATES, THREADS, FARTHER = 20, (2, 1, 3), 1.5


def by_jax(name, kind, folder):
    """The arrays that bench/oracle/updates.py writes."""
    path = os.path.join(folder, f"{name}-{kind}.npz")
    run([sys.executable, os.path.join(ROOT, "bench", "oracle", "updates.py"), name, kind, str(UPDATES), path], timeout=1800,
        env={**os.environ, "PYTHONPATH": os.path.join(ROOT, "bench")})
    return np.load(path)


def by_trainc(name, bf16, folder):
    """({'loss', 'gradient_norm', parameter: array}, whether all numbers of threads give the same bits)."""
    w = WORKLOADS[name]
    library = compile_module(workload_module(w, *precision(bf16)), os.path.join(folder, "model.so"))
    values, runs = os.path.join(folder, "values.safetensors"), []
    write_safetensors(values, dict(initial_values(w)))
    kept = {}

    def finish(trainer):
        if not kept:
            kept.update((name, trainer.read(name)) for name in trainer.names())
        return state_digest(trainer)

    for threads in THREADS:
        runs.append(updates_of(library, values, batches(w), UPDATES, threads, finish))
    losses, norms = zip(*runs[0][0])
    return dict(kept, loss=losses, gradient_norm=norms), all(r == runs[0] for r in runs)


def relative(got, want, key):
    """The relative error of a number in each update."""
    return np.abs(np.array(got[key]) / np.array(want[key]) - 1)


def distances(got, want, w):
    """How far from f64: of the losses (root of the mean square), and of the parameters as a part of how far they moved."""
    apart = moved = 0.0
    for name, start in initial_values(w):
        apart += np.square(got[name].astype(np.float64) - want[name]).sum()
        moved += np.square(want[name] - start).sum()
    return dict(losses=float(np.sqrt(np.square(relative(got, want, "loss")).mean())), parameters=float(np.sqrt(apart / moved)))


def check_reference(name, exact):
    """The f64 of this run is the one that is kept."""
    with open(os.path.join(PEERS, "reference_losses.json")) as f:
        reference = json.load(f)["workloads"][name]
    for ours, kept in (("loss", "loss_f64"), ("gradient_norm", "gradient_norm_f64")):
        if not np.allclose(exact[ours][:CHECKED_STEPS], reference[kept], rtol=1e-9):
            raise Failed(f"{name}: JAX in f64 is not what reference_losses.json has")


def updates(folder):
    notes, good = [], True
    for name in NAMES:
        w, exact = WORKLOADS[name], by_jax(name, "f64", folder)
        check_reference(name, exact)
        f32, equal32 = by_trainc(name, False, folder)
        bf16, equal16 = by_trainc(name, True, folder)
        error = max(relative(f32, exact, key).max() for key in ("loss", "gradient_norm"))
        ours, theirs = distances(bf16, exact, w), distances(by_jax(name, "bf16", folder), exact, w)
        ratios = {what: ours[what] / theirs[what] for what in ours}
        good &= bool(error <= BAR) and max(ratios.values()) <= FARTHER and equal32 and equal16
        far = ", ".join(f"{what} {ours[what]:.1e} = {r:.2f}x JAX's" for what, r in ratios.items())
        notes.append(f"{name}: f32 within {error:.1e}; bf16 from f64: {far}; threads"
                     f" {'equal' if equal32 and equal16 else 'DIFFER'}")
    return judge(good, "; ".join(notes))
