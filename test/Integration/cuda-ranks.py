# REQUIRES: numpy
# RUN: %python %s
"""Two and four ranks with a GPU each, on the driver, cuBLASLt and NCCL of tests, against the same artifact on processors:
losses, parameters, optimizer states that are in pieces; collectives that are started apart; windows; checkpoints of one in the other.
"""
import os
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))

from ranks import batches, compile_module, example, mesh_option, run  # noqa: E402
from common import BUILD  # noqa: E402
from report import check  # noqa: E402

for variable, library in (("TRAINC_LIBCUDA", "cuda"), ("TRAINC_LIBCUBLASLT", "cublaslt"), ("TRAINC_LIBNCCL", "nccl")):
    os.environ[variable] = os.path.join(BUILD, "lib", f"libtrainc_fake_{library}.so")

os.environ["TRAINC_FAKE_CUDA_DEVICES"] = "4"

GPT = ("gpt", "--batch", 4, "--layers", 1, "--width", 32, "--heads", 2, "--seq", 8, "--vocab", 64)
TOKENS = {"x": ((4, 8), "i"), "y": ((4, 8), "i")}
DIGITS = {"x": ((32, 64), "f"), "y": ((32,), "i")}
TWO, FOUR, PARTS = dict(data=2), dict(host=2, data=2), dict(model=2)
CASES = {  # name: (module, inputs, mesh, options)
    "none": (("mlp", "--batch", 32), DIGITS, TWO, ["--shard=none"]),
    "gpt, none": (GPT, TOKENS, TWO, ["--shard=none"]),
    "optimizer, k = 2": (("mlp", "--batch", 32, "--accumulate", 2), DIGITS, TWO,
                         ["--shard=optimizer", "--bucket-size=4096", "--merge-buffer=sharded"]),
    "optimizer, bf16": ((*GPT, "--bf16"), TOKENS, TWO, ["--shard=optimizer"]),
    "2 x 2, optimizer": (("mlp", "--batch", 32), DIGITS, FOUR, ["--shard=optimizer", "--bucket-size=4096"]),
    "2 x 2, gradients, k = 2": (("mlp", "--batch", 32, "--accumulate", 2), DIGITS, FOUR, ["--shard=gradients", "--bucket-size=4096"]),
    "parameters, k = 2": (("mlp", "--batch", 32, "--accumulate", 2), DIGITS, TWO, ["--shard=parameters", "--bucket-size=4096"]),
    "parameters, bf16": ((*GPT, "--bf16"), TOKENS, TWO, ["--shard=parameters"]),
    "tensor 2": (GPT, TOKENS, PARTS, ["--shard=none"]),
    "tensor 2, odd, by sequence, bf16": ((*GPT, "--vocab", 65, "--sequence-parallel", "--bf16"), TOKENS, PARTS, []),
    "tensor 2, llama": (("llama", *GPT[1:], "--kv-heads", 2), TOKENS, PARTS, []),
    "2 x tensor 2, parameters, k = 2": ((*GPT, "--accumulate", 2), TOKENS, dict(data=2, model=2),
                                        ["--shard=parameters", "--bucket-size=4096"]),
}


def training(data, saved, loaded):
    """Steps; then a checkpoint in the middle of a window, if there is one, which another run takes over."""
    def work(rank):
        if loaded:
            rank.trainer.load(loaded)
        results = []
        for i, inputs in enumerate(data):
            result = rank.step(**inputs)
            results.append((result.loss, result.grad_norm if result.closed else 0, result.update))
            if i == len(data) - 2 and saved:
                rank.trainer.save(saved)
        rank.trainer.flush()
        return np.array(results), rank.tensors(), rank.trainer.device()
    return work


def close(a, b, bar):
    return bool(np.all(np.isfinite(b))) and float(np.max(np.abs(a - b), initial=0)) <= bar * max(1.0, float(np.max(np.abs(a))))


def compare(what, cpu, gpu, bar):
    failed = check(f"{what}: ranks agree", all(np.array_equal(gpu[0][1][key], rank[1][key]) for rank in gpu for key in rank[1]))
    for rank in range(len(gpu)):
        failed |= check(f"{what}: losses of rank {rank}", close(cpu[rank][0], gpu[rank][0], bar),
                        f"{cpu[rank][0]} {gpu[rank][0]}")
    wrong = [key for key in cpu[0][1] if not close(cpu[0][1][key], gpu[0][1][key], bar)]
    return check(f"{what}: tensors", not wrong, wrong) or failed


def place(rank):
    return rank.trainer.device(), rank.trainer.notice()


def choose(path):
    """Where one rank has no GPU."""
    places = run(place, path, 2, without=1)
    failed = check("without a GPU at rank 1: both on processors", [device for device, _ in places] == ["cpu", "cpu"], places)
    failed |= check("without a GPU at rank 1: why", places[0][1].startswith("rank 1 has no GPU for it; ")
                    and places[1][1].startswith("no CUDA driver: "), places)
    try:
        failed |= check("without a GPU at rank 1: refused", False, run(place, path, 2, without=1, device=b"cuda"))
    except RuntimeError as error:
        text = str(error)  # of both ranks, for the same reason
        failed |= check("without a GPU at rank 1: refused", text.count("TRAINC_UNSUPPORTED") == 2 and
                        text.count("cannot run on a GPU: no CUDA driver: /nowhere") == 2, text)
    try:
        failed |= check("a GPU and a processor", False, run(place, path, 2, device=[b"cuda", b"cpu"]))
    except RuntimeError as error:
        failed |= check("a GPU and a processor", str(error).count("all ranks need one kind of device") == 2, error)
    return failed


def main():
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for i, (name, (module, shapes, mesh, options)) in enumerate(CASES.items()):
            path = compile_module(example(*module), os.path.join(folder, f"{i}.so"), "--target=cuda,cpu", "--cuda-arch=host",
                                  mesh_option(mesh), *options)
            data, ranks, alike = batches(shapes, 5, 10), int(np.prod(list(mesh.values()))), mesh.get("model", 1)
            bar = 3e-2 if "bf16" in name else 1e-4
            saved = os.path.join(folder, f"{i}.safetensors")
            cpu = run(training(data, saved, None), path, ranks, device=b"cpu", alike=alike)
            os.environ["TRAINC_FAKE_CUDA_SEED"] = "-1"  # what is called last comes first, where events allow it
            gpu = run(training(data, None, None), path, ranks, device=b"cuda", alike=alike)
            del os.environ["TRAINC_FAKE_CUDA_SEED"]
            failed |= compare(name, cpu, gpu, bar)
            devices = [r[2].split()[0] for r in cpu + gpu]
            failed |= check(f"{name}: devices", devices == ["cpu"] * ranks + [f"cuda:{rank}" for rank in range(ranks)],
                            devices)
            # The processors' checkpoint, and on.
            again = run(training(data[-1:], None, saved), path, ranks, device=b"cuda", alike=alike)
            failed |= compare(f"{name}, resumed", [(r[-1:], t) for r, t, _ in cpu], again, bar)
            if i == 0:
                failed |= choose(path)
    sys.exit(failed)


main()
