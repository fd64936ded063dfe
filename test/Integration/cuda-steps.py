# REQUIRES: numpy
# RUN: %python %s
# RUN: env TRAINC_EMULATOR_ULPS=2 TRAINC_FAKE_CUDA_LATE=1 %python %s
"""Whole steps for GPUs, on the driver and the cuBLASLt of tests, against the same artifact on the processor.

usage: cuda-steps.py [--full]   (also a CNN, and a model like Llama)

An MLP and a small GPT with windows, clip, AdamW, a schedule, and in bf16: losses, parameters, outputs of evals. Checkpoints
go from one to the other bit by bit. Bars hold, too, where functions are wrong by two units in the last place and blocks
see each other's stores late. And a concat of more tensors than a kernel of a GPU has arguments.
"""
import ctypes
import os
import re
import subprocess
import sys
import tempfile

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(ROOT, "test", "Integration", "Inputs")]

from common import BUILD, RUNTIME_LIBRARY, compile_module, generate, tool  # noqa: E402
from report import check  # noqa: E402
from trainc_ctypes import Runtime, Trainer  # noqa: E402

DRIVER = os.path.join(BUILD, "lib", "libtrainc_fake_cuda.so")
os.environ["TRAINC_LIBCUDA"] = DRIVER
os.environ["TRAINC_LIBCUBLASLT"] = os.path.join(BUILD, "lib", "libtrainc_fake_cublaslt.so")
UPDATES = 5


class Counts(ctypes.Structure):
    """trainc_fake_cuda_counts."""
    _fields_ = [(name, ctypes.c_uint64) for name in ("contexts", "allocations", "pinned", "streams", "events", "modules",
                                                     "graphs", "executables", "pending", "launches", "copies", "fills",
                                                     "graph_launches", "calls", "event_waits", "queries")]


def counts():
    result = Counts()
    ctypes.CDLL(DRIVER).trainc_fake_cuda_get_counts(ctypes.byref(result))
    return result


def draw(rng, trainer, entry="step"):
    """Inputs by name: numbers, labels, tokens."""
    e = trainer.descriptor.entries[trainer.entries[entry]]
    limit = 10 if e.inputs[0].dtype == 0 else 64
    inputs = {}
    for i in range(e.num_inputs):
        port = e.inputs[i]
        shape = tuple(port.dims[k] for k in range(port.rank))
        inputs[port.name.decode()] = rng.standard_normal(shape).astype(np.float32) if port.dtype == 0 \
            else rng.integers(0, limit, shape)
    return inputs


SMALL = ("gpt", "--layers", 2, "--width", 64, "--heads", 2, "--vocab", 67, "--seq", 16, "--batch", 2)
CASES = {  # name: (module, bar of losses)
    "mlp, k = 4": (("mlp", "--accumulate", 4, "--schedule", "warmup_cosine", "warmup=2", "total=9"), 1e-5),
    "gpt, bf16, k = 2": ((*SMALL, "--bf16", "--accumulate", 2), 2e-2),
    "gpt, dropout": ((*SMALL, "--dropout", 0.1), 1e-4),
}


MORE = {
    "cnn": (("cnn", "--batch", 4), 1e-4),
    "llama, k = 2": (("llama", "--layers", 1, "--width", 32, "--heads", 4, "--vocab", 64, "--seq", 16, "--batch", 2,
                      "--accumulate", 2), 1e-4),
    "gpt, recompute": ((*SMALL, "--recompute"), 1e-4),
}


def close(a, b, bar):
    """As far apart as `bar`, relative to the largest."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return bool(np.all(np.isfinite(b))) and float(np.max(np.abs(a - b), initial=0)) <= bar * max(1.0, float(np.max(np.abs(a))))


def run(runtime, path, bar):
    failed = False
    with Trainer(runtime, path, threads=2, seed=3, device=b"cpu") as cpu, \
            Trainer(runtime, path, threads=2, seed=3, device=b"cuda") as gpu:
        rng, k = np.random.default_rng(1), cpu.descriptor.entries[0].accumulate
        losses, before, launches = [], counts().graph_launches, []
        for i in range(UPDATES * k):
            batch = draw(rng, cpu)
            a, b = cpu.step(**batch), gpu.step(**batch)
            losses.append((a.loss, b.loss, a.grad_norm, b.grad_norm))
            launches.append(counts().graph_launches)
        a, b, c, d = np.transpose(losses)
        failed |= check("losses", close(a, b, bar) and not np.array_equal(a[:1], a[-1:]), f"{a} {b}")
        failed |= check("norms", close(c, d, 10 * bar), f"{c} {d}")
        # All lists but those of the first window are graphs, and none is of two parts.
        wanted = before + (UPDATES - 1) * (k + 1) + max(k - 2, 0)
        failed |= check("graphs", launches[-1] == wanted, f"{launches} {wanted}")
        for name in cpu.names():
            x, y = cpu.read(name), gpu.read(name)
            if not close(x, y, 10 * bar):
                failed |= check(f"parameter {name}", False, np.max(np.abs(x - y)))
        for entry in cpu.entries:
            e = cpu.descriptor.entries[cpu.entries[entry]]
            if e.kind == 1:
                batch = draw(rng, cpu, entry)
                x, y = cpu.eval(entry, **batch), gpu.eval(entry, **batch)
                for name in x:
                    failed |= check(f"output {name} of {entry}", close(x[name], y[name], 10 * bar))
        failed |= move(runtime, path, rng, gpu)
    return failed


def same(a, b):
    return all(np.array_equal(a.read(name, role, state), b.read(name, role, state))
               for role, name, state in a.tensors if role != "gradient")


def move(runtime, path, rng, gpu):
    """In the middle of a window if there is one: to the processor, back, and on as if nothing had been."""
    failed = False
    with tempfile.TemporaryDirectory() as folder, Trainer(runtime, path, threads=2, device=b"cpu") as cpu, \
            Trainer(runtime, path, threads=2, device=b"cuda") as other:
        gpu.step(**draw(rng, gpu))
        gpu.save(os.path.join(folder, "a"))
        cpu.load(os.path.join(folder, "a"))
        failed |= check("to the processor", same(gpu, cpu))
        cpu.save(os.path.join(folder, "b"))
        other.load(os.path.join(folder, "b"))
        for _ in range(3):
            batch = draw(rng, gpu)
            a, b = gpu.step(**batch), other.step(**batch)
        gpu.flush(), other.flush()
        failed |= check("on the GPU again", same(gpu, other) and bytes(a) == bytes(b))
    return failed


def join(runtime, folder):
    """A concat of 2,400 tensors, on three levels of kernels."""
    count = 2400
    names = [f"%p{i}" for i in range(count)]
    types = [f"tensor<{1 + i % 3}x2xf32>" for i in range(count)]
    text = "\n".join([
        "train.optimizer @o = sgd<lr = 0.1>",
        *(f"train.param @{name[1:]} : {t} init(normal<1.0>) optimizer(@o)" for name, t in zip(names, types)),
        "train.step @step() {", f"%p0 = train.read @p0 : {types[0]}", f"%l = nn.reduce sum %p0 dims [0, 1] : {types[0]}",
        "train.yield loss(%l) : tensor<f32>", "}",
        "train.eval @joined() -> (\"r\") {", *(f"{name} = train.read @{name[1:]} : {t}" for name, t in zip(names, types)),
        f"%r = nn.concat {', '.join(names)} dim 0 : {', '.join(types)}", f"train.yield %r : tensor<{2 * count}x2xf32>", "}"])
    path = compile_module(text, os.path.join(folder, "joined.so"), "--target=cuda", "--cuda-arch=host")
    kernels = subprocess.run([tool("trainc"), os.path.join(folder, "joined.mlir"), "--target=cuda", "--stop-after=commands", "-o", "-"],
                             capture_output=True, text=True, check=True).stdout
    most = max(head.count("%arg") for head in re.findall(r"train\.kernel @\w*concat\w*\((.*?)\) inplace", kernels))
    with Trainer(runtime, path, threads=1, seed=3, device=b"cuda") as trainer:
        found = trainer.eval("joined")["r"]
        wanted = np.concatenate([trainer.read(name[1:]) for name in names])
    return check("many tensors joined", most == 48 and np.array_equal(found, wanted), f"{most} arguments")


def main():
    failed = False
    runtime = Runtime(RUNTIME_LIBRARY)
    with tempfile.TemporaryDirectory() as folder:
        for i, (name, (module, bar)) in enumerate((CASES | (MORE if "--full" in sys.argv else {})).items()):
            print(name)
            path = compile_module(generate(*(str(word) for word in module)), os.path.join(folder, f"{i}.so"),
                                  "--target=cuda,cpu", "--cuda-arch=host")
            failed |= run(runtime, path, bar)
        failed |= join(runtime, folder)
    left = counts()
    failed |= check("nothing is left", not any((left.contexts, left.allocations, left.pinned, left.events, left.pending)))
    sys.exit(failed)


main()
