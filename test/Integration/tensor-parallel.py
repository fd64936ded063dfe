# REQUIRES: numpy
# RUN: %python %s
"""Ranks that have parts of the weights train as one does: linear layers by columns and rows, heads of attention, packed
and grouped, rows of embeddings, classes of the loss; in every mode of gradients and states, windows of one and of several,
f32 and bf16; also with parts of sequences in between (`train.constrain`). Initial values are those of one rank, bit by bit,
and all modes give the same bits.

usage: tensor-parallel.py [--full]   (all combinations; without, some)
"""
import os
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))

from ranks import batches, compile_module, example, mesh_option, run, same  # noqa: E402
from report import check  # noqa: E402

UPDATES = 4
MESHES = [dict(model=2), dict(data=2, model=2), dict(model=4), dict(host=2, model=2)]
WAYS = [("--shard=none",), ("--shard=optimizer",), ("--shard=gradients",), ("--shard=parameters",),
        ("--shard=parameters", "--bucket-size=4096"), ("--shard=optimizer", "--disable-pass=train-fuse-optimizer"),
        ("--shard=none", "--disable-pass=train-hoist-casts,train-coalesce")]
# Name, generator, options, the most ranks that can divide it.
MODELS = [("gpt", ["--batch", 4, "--layers", 2, "--width", 32, "--heads", 4, "--seq", 16, "--vocab", 64, "--context", 16,
                   "--dropout", 0.1, "--attention-dropout", 0.2], 4),
          ("gpt", ["--batch", 4, "--layers", 1, "--width", 32, "--heads", 4, "--seq", 16, "--vocab", 65, "--context", 16,
                   "--dropout", 0.1, "--sequence-parallel", "--recompute"], 4),
          ("llama", ["--batch", 4, "--layers", 1, "--width", 32, "--heads", 4, "--kv-heads", 2, "--seq", 16, "--vocab", 64,
                     "--attention-dropout", 0.1], 2)]
SHAPES = dict(x=((4, 16), "i"), y=((4, 16), "i"))


def training(data):
    def work(rank):
        first, results = rank.tensors(), []
        for inputs in data:
            result = rank.step(**inputs)
            if result.closed:
                results.append((result.window_loss, result.grad_norm, result.window_weight))
        return np.array(results), first, rank.tensors()
    return work


def masters(tensors):
    return {key: value for key, value in tensors.items() if key[0] != "compute"}


def check_way(what, results, one, bar, first):
    """All ranks' `results` against those of one rank, and bit by bit against `first`."""
    losses, initial, tensors = results[0]
    bad = check(f"{what}: ranks agree", all(np.array_equal(losses, r[0]) and same(tensors, r[2]) for r in results))
    bad += check(f"{what}: initial values", same(masters(initial), masters(one[1])))
    error = np.max(np.abs(losses - one[0]) / np.abs(one[0]))
    bad += check(f"{what}: as one rank", error < bar, error)
    return bad + check(f"{what}: same bits as replicated",
                       np.array_equal(first[0], losses) and same(masters(first[2]), masters(tensors)))


def ways_of(turn, full):
    """All ways, or the first, which others are compared with, and two more by turns."""
    others = WAYS[1:]
    return WAYS if full else [WAYS[0], *(others[(2 * turn + i) % len(others)] for i in range(2))]


def compare(name, options, most, folder, full):
    bad, turn = 0, 0
    for bf16 in (False, True):
        for k in (1, 3):
            if not full and bf16 != (k == 3):
                continue
            text = example(name, *options, "--accumulate", k, "--lr", "0.01", *(["--bf16"] if bf16 else []))
            work = training(batches(SHAPES, UPDATES * k))
            one, = run(work, compile_module(text, os.path.join(folder, "one.so")), 1)
            for mesh in MESHES if full else MESHES[:2] if not bf16 else MESHES[2:]:
                if mesh["model"] > most:
                    continue
                first, turn = None, turn + 1
                for way in ways_of(turn, full):
                    if k > 1 and way[0] in ("--shard=gradients", "--shard=parameters"):
                        way = (*way, "--merge-buffer=full")
                    path = compile_module(text, os.path.join(folder, "some.so"), mesh_option(mesh), *way)
                    results = run(work, path, int(np.prod(list(mesh.values()))), alike=mesh["model"])
                    first = first or results[0]
                    what = f"{name} {'bf16' if bf16 else 'f32'} k = {k} {mesh} {' '.join(way)}"
                    bad += check_way(what, results, one, 2e-2 if bf16 else 1e-5, first)
    return bad


def main():
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(sum(compare(*model, folder, "--full" in sys.argv) for model in MODELS) != 0)


if __name__ == "__main__":
    main()
