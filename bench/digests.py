#!/usr/bin/env python3
"""Digests of what the four examples train to: losses, norms and states of 20 updates, in f32, bf16 and f16, on 1, 2 and 4 ranks
in every mode, in windows of 1 and 2 micro-batches. A change of the compiler that promises the same bits leaves them alone.

usage: digests.py [--record | --change WHY --since COMMIT] [--only TEXT]

Compares with results/digests.json, which holds them by CPU family, each of the commit that recorded it; --record writes them
there. --change adds those that differ, of which COMMIT, the first that gives them, changed the bits on purpose, and why. The exit
status is 0 if all are equal. Needs NumPy.
"""
import argparse
import hashlib
import json
import os
import sys
import tempfile

import numpy as np

import results
from common import ROOT, compile_module
from losses import state_digest
from processors import of_type
from run_artifacts import drawn

sys.path.insert(0, os.path.join(ROOT, "test", "Integration", "Inputs"))

from ranks import example, run  # noqa: E402

RECORD = os.path.join(results.FOLDER, "digests.json")
UPDATES, BATCH = 20, 8
MODES = ("none", "optimizer", "gradients", "parameters")
MODELS = {
    "mlp": ["--inputs", 12, "--hidden", 40, 23, "--classes", 10],
    "cnn": ["--height", 12, "--width", 12, "--filters", 4, 6],
    "gpt": ["--layers", 2, "--width", 24, "--heads", 3, "--vocab", 37, "--seq", 11, "--context", 16, "--dropout", 0.1],
    "llama": ["--layers", 2, "--width", 24, "--heads", 4, "--kv-heads", 2, "--vocab", 37, "--seq", 11],
}


def cases():
    """(its name, model, options, type, ranks, options of trainc)."""
    for model, options in MODELS.items():
        for element in ("f32", "bf16", "f16"):
            for k in (1, 2):
                for ranks in (1, 2, 4):
                    for mode in MODES if ranks > 1 else (None,):
                        yield (" ".join([model, element, f"k={k}", f"ranks={ranks}", *([mode] if mode else [])]), model,
                               [*options, "--bf16", "--batch", BATCH, "--accumulate", k, "--clip", 1.0], element, ranks,
                               [f"--mesh=data={ranks}", f"--shard={mode}"] if mode else [])


def training(rank):
    digest, rng = hashlib.sha256(), np.random.default_rng(1)
    updates = 0
    while updates < UPDATES:
        result = rank.step(**dict(drawn(rank.trainer, rng, rank.ranks)))
        if result.closed:
            updates += 1
            digest.update(np.array([result.window_loss, result.grad_norm]).tobytes())
    return state_digest(rank.trainer, digest)[:16], bool(np.isfinite(result.window_loss))


def digest_of(model, options, element, ranks, flags, folder, **how):
    text = of_type(example(model, *options), element)
    answers = run(training, compile_module(text, os.path.join(folder, "model.so"), *flags), ranks, **how)
    if len(set(answers)) > 1:
        return "ranks differ"
    digest, finite = answers[0]
    return digest if finite else "no finite loss"


def digests(only=""):
    """{case: digest} of the compiler and runtime that are built."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, *case in cases():
            if only in name:
                found[name] = digest_of(*case, folder)
    return found


def recorded():
    """{CPU family: {commit, digests, and changes, each {commit, why, digests}}}."""
    if not os.path.exists(RECORD):
        return {}
    with open(RECORD) as f:
        return json.load(f)


def expected(known):
    """{case: digest} of a family, by its last change."""
    digests = dict(known["digests"])
    for change in known.get("changes", []):
        digests |= change["digests"]
    return digests


def write(known):
    with open(RECORD, "w") as f:
        json.dump(known, f, indent=1)
        f.write("\n")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--record", action="store_true")
    p.add_argument("--change", metavar="WHY")
    p.add_argument("--since", metavar="COMMIT")
    p.add_argument("--only", default="", metavar="TEXT")
    a = p.parse_args()
    if bool(a.change) != bool(a.since):
        p.error("expected --change WHY and --since COMMIT together")
    found, known = digests(a.only), recorded()
    if a.record:
        write(known | {results.family(): dict(commit=results.commit(), digests=found)})
        return 0
    ours = known.setdefault(results.family(), dict(commit="nothing", digests={}))
    was = expected(ours)
    other = {name: digest for name, digest in found.items() if digest != was.get(name)}
    if a.change:
        ours.setdefault("changes", []).append(dict(commit=results.git("rev-parse", a.since)[:12], why=a.change, digests=other))
        write(known)
        return 0
    for name, digest in other.items():
        print(f"{name}: {digest}, recorded: {was.get(name)}")
    print(f"{len(found) - len(other)} of {len(found)} equal those of {ours['commit']}, with its changes")
    return bool(other)


if __name__ == "__main__":
    sys.exit(main())
