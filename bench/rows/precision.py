"""The row on the numbers of whole steps on the processor: against f64, and bit by bit for any number of threads."""
import json
import os
import sys
from dataclasses import replace
from importlib import metadata

import numpy as np

import audit
from common import ENVIRONMENT, PEERS, ROOT, Failed, compile_module, largest, run, workload_module
from losses import BAR, state_digest, updates_of
from rows import judge
from timing import WIDE_RESIDUAL
from workloads import CHECKED_STEPS, WORKLOADS, batches, describe, initial_values, write_safetensors

# How many parameters and batches each is trained with in bf16: rounding grows as it likes on the way down, by a factor of 2
# from one to the other, and a peer's mean of three by 1.5. One of gpt2-124m takes JAX six minutes.
TRAININGS = {"gpt2-124m": 1, "gpt-char": 3, "many-small": 12}
UPDATES, THREADS, FARTHER = 20, (2, 1, 3), 1.5
# By the type of the residual stream between layers: how the generators ask for it. --bf16 alone is what a user gets.
DEFAULT = "bf16"
OURS = {"bf16": ["--bf16"], "f32": ["--bf16", *WIDE_RESIDUAL]}
PEERS_OWN = {"jax": "bf16", "torch": "f32"}  # what the peers that are timed have
NUMBERS = ("loss", "gradient_norm")


def by_peer(name, w, kind, folder):
    """The arrays that bench/oracle/updates.py writes."""
    peer, compute, *residual = kind.split("-")
    audit.note(peer, f"{peer} {metadata.version(peer)}", ", residual stream in ".join([compute, *residual]), len(os.sched_getaffinity(0)),
               describe(name))
    path = os.path.join(folder, f"{name}-{w.seed}-{kind}.npz")
    run([sys.executable, os.path.join(ROOT, "bench", "oracle", "updates.py"), name, str(w.seed), kind, str(UPDATES), path],
        timeout=1800, env={**ENVIRONMENT, "PYTHONPATH": os.path.join(ROOT, "bench")})
    return np.load(path)


def by_trainc(w, options, folder, numbers_of_threads=THREADS):
    """({'loss', 'gradient_norm', parameter: array}, whether all numbers of threads give the same bits)."""
    library = compile_module(workload_module(w, *options), os.path.join(folder, "model.so"))
    values, runs = os.path.join(folder, "values.safetensors"), []
    write_safetensors(values, dict(initial_values(w)))
    kept = {}

    def finish(trainer):
        if not kept:
            kept.update((name, trainer.read(name)) for name in trainer.names())
        return state_digest(trainer)

    for threads in numbers_of_threads:
        runs.append(updates_of(library, values, batches(w), UPDATES, threads, finish))
    losses, norms = zip(*runs[0][0])
    return dict(kept, loss=losses, gradient_norm=norms), all(r == runs[0] for r in runs)


def relative(got, want, key):
    """The relative error of a number in each update that both have."""
    count = min(len(got[key]), len(want[key]))
    return np.abs(np.array(got[key][:count]) / np.array(want[key][:count]) - 1)


def worst_number(got, want):
    return largest(float(relative(got, want, key).max()) for key in NUMBERS)


def distances(got, want, w):
    """How far from f64, as norms: of the losses of all updates as a part of the losses, and of the parameters as a part of how
    far they moved. (The last losses of a batch that is learnt by heart are near 0: relative errors of each would measure them
    alone.)"""
    apart = moved = 0.0
    for name, start in initial_values(w):
        apart += np.square(got[name].astype(np.float64) - want[name]).sum()
        moved += np.square(want[name] - start).sum()
    losses = np.linalg.norm(got["loss"] - want["loss"]) / np.linalg.norm(want["loss"])
    return np.array([losses, np.sqrt(apart / moved)])


def reference(name, exact):
    """The numbers that are kept of the first updates; this run's f64 must be the same."""
    with open(os.path.join(PEERS, "reference_losses.json")) as f:
        workload = json.load(f)["workloads"][name]
    kept = {key: workload[f"{key}_f64"] for key in NUMBERS}
    if any(not np.allclose(exact[key][:CHECKED_STEPS], kept[key], rtol=1e-9) for key in NUMBERS):
        raise Failed(f"{name}: JAX in f64 is not what reference_losses.json has")
    return kept


def root_mean_square(distances):
    return np.sqrt(np.square(distances).mean(axis=0))


def trained_in_bf16(name, w, exact, folder, numbers_of_threads):
    """({program and type of its residual stream: distances from f64}, whether all numbers of threads give the same bits)."""
    found, equal = {}, True
    for residual, options in OURS.items():
        got, same = by_trainc(w, options, folder, numbers_of_threads if residual == DEFAULT else THREADS[:1])
        found["trainc", residual] = distances(got, exact, w)
        equal &= same
    for peer in PEERS_OWN:
        for residual in OURS:
            found[peer, residual] = distances(by_peer(name, w, f"{peer}-bf16-{residual}", folder), exact, w)
    return found, equal


def updates(folder):
    """Judged is trainc's default against each peer, with the peer's own residual type and with ours: the nearer one counts."""
    notes, good = [], True
    for name, trainings in TRAININGS.items():
        all_found = []
        for residual in (None, *OURS):
            audit.Ours(name, residual is not None, wide=residual == "f32").note("trainc", len(os.sched_getaffinity(0)))
        for i in range(trainings):
            w = replace(WORKLOADS[name], seed=WORKLOADS[name].seed + 100 * i)
            exact = by_peer(name, w, "jax-f64", folder)
            if i == 0:
                f32, equal = by_trainc(w, [], folder)
                first = worst_number(f32, reference(name, exact))
                rounded = worst_number(f32, exact), worst_number(by_peer(name, w, "jax-f32", folder), exact)
            found, same = trained_in_bf16(name, w, exact, folder, THREADS if i == 0 else THREADS[:1])
            equal &= same
            all_found.append(found)
        off = {key: root_mean_square([found[key] for found in all_found]) for key in all_found[0]}
        ours = off["trainc", DEFAULT]
        good &= first <= BAR and equal and all((ours <= FARTHER * theirs).all() for (peer, _), theirs in off.items()
                                               if peer != "trainc")
        table = ", ".join(f"{peer} ({residual}{', its own' if PEERS_OWN.get(peer) == residual else ''}"
                          f"{', the default' if (peer, residual) == ('trainc', DEFAULT) else ''})"
                          f" {losses:.1e} {parameters:.1e}" for (peer, residual), (losses, parameters) in off.items())
        ratios = ", ".join(f"{(ours / theirs).max():.2f} of {peer} ({residual})" for (peer, residual), theirs in off.items()
                           if peer != "trainc")
        notes.append(f"{name}: f32 within {first:.1e} in {CHECKED_STEPS} updates, {rounded[0]:.1e} in all (JAX's {rounded[1]:.1e});"
                     f" bf16 of {trainings}, off in losses and parameters, by residual type: {table}; the default's larger ratio is"
                     f" {ratios}; {len(THREADS)} numbers of threads {'equal' if equal else 'DIFFER'}")
    return judge(good, "; ".join(notes))
