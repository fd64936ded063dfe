# REQUIRES: numpy
# RUN: %python %s
"""Several ranks train as one does: in every mode and mesh, windows of one and of several, f32 and bf16; and all modes, bucket sizes and
sets of passes give the same bits on every rank. So do those which sum gradients in each micro-step; what they exchange is counted.

usage: ranks.py [--full]   (all combinations; without, some)
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))

from ranks import batches, compile_module, example, mesh_option, run, same  # noqa: E402
from common import tool  # noqa: E402
from report import check  # noqa: E402

UPDATES = 4
MESHES = [dict(data=2), dict(data=4), dict(host=2, data=2)]
WAYS = [("--shard=none",), ("--shard=optimizer",), ("--shard=optimizer", "--bucket-size=4096"),
        ("--shard=optimizer", "--disable-pass=train-fuse-optimizer"),
        ("--shard=optimizer", "--disable-pass=train-hoist-casts"), ("--shard=none", "--disable-pass=train-coalesce"),
        ("--shard=optimizer", "--reference")]
# In these, gradients are summed in each micro-step, if they are not merged in full: else, and in windows of one, the bits
# are those of the others.
BUCKET_WAYS = [("--shard=gradients",), ("--shard=parameters",), ("--shard=gradients", "--bucket-size=4096"),
               ("--shard=parameters", "--bucket-size=4096"),
               ("--shard=parameters", "--bucket-size=4096", "--disable-pass=fuse-kernels,reuse-memory"),
               ("--shard=parameters", "--bucket-size=4096", "--disable-pass=train-prefetch,train-defer-reduce"),
               ("--shard=parameters", "--disable-pass=train-hoist-casts,train-fuse-optimizer,train-coalesce")]
EACH = "--merge-buffer=sharded"
EACH_WAYS = [("--shard=none",), ("--shard=optimizer",), ("--shard=optimizer", "--bucket-size=4096"),
             ("--shard=optimizer", "--disable-pass=train-fuse-optimizer,train-overlap-reduce,train-coalesce")]
# Name, generator, options, inputs, bar in f32 for losses and norms against one rank.
MODELS = [("mlp", "mlp", ["--batch", 16, "--hidden", 90], dict(x=((16, 64), "f"), y=((16,), "i")), 10),
          ("gpt", "gpt", ["--batch", 4, "--layers", 1, "--width", 32, "--heads", 2, "--seq", 16, "--vocab", 64,
                          "--context", 16], dict(x=((4, 16), "i"), y=((4, 16), "i")), 64)]


def training(data):
    def work(rank):
        results = []
        for inputs in data:
            result = rank.step(**inputs)
            if result.closed:
                results.append((result.window_loss, result.grad_norm, result.window_weight))
        collectives = list(rank.comm.info().collectives) if rank.comm else None
        return np.array(results), rank.tensors(), collectives, rank.trainer.memory().persistent
    return work


def merged_bytes(path, *options):
    """What trainc says that the module of `path` has of merged gradients."""
    report = subprocess.run([tool("trainc"), os.path.splitext(path)[0] + ".mlir", "--memory-report=json", *options],
                            stdout=subprocess.PIPE, check=True).stdout
    return sum(arena["bytes"] for arena in json.loads(report)["arenas"] if arena["role"] == "merged gradients")


def check_way(what, results, one, bar, first):
    """All ranks' `results` against those of one rank, and bit by bit against `first`."""
    losses, tensors, *_ = results[0]
    bad = check(f"{what}: ranks agree", all(np.array_equal(losses, r[0]) and same(tensors, r[1]) for r in results))
    error = np.max(np.abs(losses - one[0]) / np.abs(one[0]))
    bad += check(f"{what}: as one rank", error < bar, error)
    return bad + check(f"{what}: same bits as replicated",
                       np.array_equal(first[0], losses) and same(masters(first[1]), masters(tensors)))


def masters(tensors):
    return {key: value for key, value in tensors.items() if key[0] != "compute"}


def compare(name, generator, options, shapes, vocabulary, folder, full):
    bad = 0
    for bf16 in (False, True):
        for k in (1, 3):
            if not full and bf16 != (k == 3):
                continue
            text = example(generator, *options, "--accumulate", k, "--lr", "0.01", *(["--bf16"] if bf16 else []))
            work = training(batches(shapes, UPDATES * k, vocabulary))
            one, = run(work, compile_module(text, os.path.join(folder, "one.so")), 1)
            for mesh in MESHES if full else MESHES[bf16::2]:
                first = None
                for way in WAYS + [way if k == 1 else (*way, "--merge-buffer=full") for way in BUCKET_WAYS]:
                    if "--reference" in way and (bf16 or generator != "mlp"):
                        continue  # other bits by definition
                    path = compile_module(text, os.path.join(folder, "some.so"), mesh_option(mesh), *way)
                    results = run(work, path, int(np.prod(list(mesh.values()))))
                    first = first or results[0]
                    bad += check_way(f"{name} {'bf16' if bf16 else 'f32'} k = {k} {mesh} {' '.join(way)}", results, one,
                                     2e-2 if bf16 else 1e-5, first)
    return bad


def compare_each_micro_step(name, generator, options, shapes, vocabulary, folder, full):
    """Sums of gradients in each micro-step, in windows of 4."""
    bad, k = 0, 4
    for bf16 in (False, True) if full else (name == "gpt",):
        text = example(generator, *options, "--accumulate", k, "--lr", "0.01", *["--bf16"] * bf16)
        work = training(batches(shapes, UPDATES * k, vocabulary))
        one, = run(work, compile_module(text, os.path.join(folder, "one.so")), 1)
        for mesh in MESHES if full else MESHES[1 + bf16:2 + bf16]:
            ranks, first, persistent = int(np.prod(list(mesh.values()))), None, {}
            for way in EACH_WAYS:
                path = os.path.join(folder, "some.so")
                results = run(work, compile_module(text, path, mesh_option(mesh), EACH, *way), ranks)
                first = first or results[0]
                what = f"{name} {'bf16' if bf16 else 'f32'} {mesh} {EACH} {' '.join(way)}"
                bad += check_way(what, results, one, 2e-2 if bf16 else 1e-5, first)
                (scatters, sums, gathers, *_), persistent[way] = results[0][2:]
                (_, _, counts, less), *_ = run(work, compile_module(text, path, mesh_option(mesh), *way), ranks)
                # Once per window are the sums of losses and what is gathered.
                bad += check(f"{what}: gradients are summed {k} times per window", scatters == k * counts[0] > 0 and
                             sums - UPDATES == k * (counts[1] - UPDATES) and gathers == counts[2],
                             (results[0][2], counts))
                more = merged_bytes(path, mesh_option(mesh), EACH, *way)
                bad += check(f"{what}: memory of merged gradients", persistent[way] - less == more > 0,
                             (persistent[way] - less, more))
            for way in BUCKET_WAYS:
                results = run(work, compile_module(text, path, mesh_option(mesh), *way), ranks)
                what = f"{name} {'bf16' if bf16 else 'f32'} k = {k} {mesh} {' '.join(way)}"
                bad += check_way(what, results, one, 2e-2 if bf16 else 1e-5, first)
                if not way[1:]:  # of the same buckets and passes: padding, which is most of a small model, differs with them
                    memory = persistent["--shard=optimizer",]
                    bad += check(f"{what}: less memory", results[0][3] < memory, (results[0][3], memory))
    return bad


def main():
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(sum(one(*model, folder, "--full" in sys.argv) for model in MODELS
                     for one in (compare, compare_each_micro_step)) != 0)


if __name__ == "__main__":
    main()
