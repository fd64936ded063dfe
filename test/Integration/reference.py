# REQUIRES: numpy
# RUN: %python %s
"""Trains small models as compiled by default, by definitions (--reference), and with passes left out, and compares.
The executor by definitions is the oracle of kernels, fusion and layout: gradients and plans are judged by JAX.

usage: reference.py [MODEL ...]

The losses of five updates, and the parameters after them, are bitwise equal; code by definitions of models with attention
or convolution, whose kernels may sum in an order of their own, within 1e-5. Models with attention are trained by SGD: the
gradient of the keys' bias is 0 but for rounding, which Adam would blow up to the size of an update.
"""
import argparse
import os
import sys
import tempfile

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench"))

from common import RUNTIME_LIBRARY, compile_module, generate, largest  # noqa: E402
from trainc_ctypes import Runtime, Trainer  # noqa: E402

UPDATES, TOLERANCE = 5, 1e-5
GPT = ["--layers", 2, "--width", 21, "--heads", 3, "--vocab", 37, "--batch", 3, "--seq", 11, "--optimizer", "sgd"]
MODELS = {
    "mlp": ["--batch", 7, "--accumulate", 2],
    "cnn": ["--batch", 5],
    "gpt": [*GPT, "--context", 16],
    "llama": ["--layers", 2, "--width", 24, "--heads", 4, "--kv-heads", 2, "--vocab", 37, "--batch", 3, "--seq", 11,
              "--optimizer", "sgd"],
}
VARIANTS = {"reference": ["--reference"], "no fusion": ["--disable-pass=fuse-kernels"],
            "no reuse": ["--disable-pass=reuse-memory"],
            "an update each": ["--disable-pass=train-fuse-optimizer"],
            "no canonicalization": ["--disable-pass=canonicalize"]}
OWN_ORDER = {"cnn", "gpt", "llama"}


def train(library):
    """(losses, parameters) of five updates on random batches."""
    rng = np.random.default_rng(3)
    losses = []
    with Trainer(Runtime(RUNTIME_LIBRARY), library, threads=2, seed=1) as trainer:
        entry = trainer.descriptor.entries[trainer.entries["step"]]
        for _ in range(UPDATES * entry.accumulate):
            inputs = {}
            for i in range(entry.num_inputs):
                port = entry.inputs[i]
                shape = [port.dims[d] for d in range(port.rank)]
                inputs[port.name.decode()] = rng.standard_normal(shape) if port.dtype < 4 else rng.integers(0, 10, shape)
            losses.append(trainer.step(**inputs).loss)
        return np.array(losses), {name: trainer.read(name) for name in trainer.names()}


def distance(got, want):
    """The largest over losses and tensors of the norm of the difference over the norm."""
    pairs = [(got[0], want[0])] + [(got[1][name], value) for name, value in want[1].items()]
    return largest(float(np.linalg.norm(np.float64(g) - w) / (np.linalg.norm(w) or 1.0)) for g, w in pairs)


def equal(got, want):
    return np.array_equal(got[0], want[0]) and all(np.array_equal(got[1][n], v) for n, v in want[1].items())


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", nargs="*", metavar="MODEL")
    bad = 0
    for model in p.parse_args().models or MODELS:
        text = generate(model, *MODELS[model])
        with tempfile.TemporaryDirectory() as folder:
            want = train(compile_module(text, os.path.join(folder, "default.so")))
            for name, options in VARIANTS.items():
                got = train(compile_module(text, os.path.join(folder, "variant.so"), *options))
                close = name == "reference" and model in OWN_ORDER and distance(got, want) <= TOLERANCE
                good = close or equal(got, want)
                print(f"{model:6} {name:20} {'equal' if equal(got, want) else f'{distance(got, want):.1e}'}"
                      f"{'' if good else '  BAD'}", flush=True)
                bad += not good
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
