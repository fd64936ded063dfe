# REQUIRES: numpy
# RUN: %python %s
"""Whole steps for GPUs, on the driver, cuBLASLt and NCCL of tests, against the same artifact on processors, after several
updates: by how far weights moved with SGD and momentum, by the moments with Adam, by the bits of an update of equal moments.

Loss scales in bf16 and f16, static and dynamic, with an infinity in an input: the same updates are skipped, scales are equal,
on one rank and on two.
"""
import os
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))

from ranks import compile_module, example, mesh_option, run as run_ranks  # noqa: E402
from common import BUILD, RUNTIME_LIBRARY, largest  # noqa: E402
from report import check  # noqa: E402
from trainc_ctypes import Runtime, Trainer  # noqa: E402

for variable, library in (("TRAINC_LIBCUDA", "cuda"), ("TRAINC_LIBCUBLASLT", "cublaslt"), ("TRAINC_LIBNCCL", "nccl")):
    os.environ[variable] = os.path.join(BUILD, "lib", f"libtrainc_fake_{library}.so")
os.environ["TRAINC_FAKE_CUDA_DEVICES"] = "2"

UPDATES = 6
BATCH = 8
MLP = ("mlp", "--batch", BATCH)
GPT = ("gpt", "--layers", 1, "--width", 32, "--heads", 2, "--vocab", 64, "--seq", 16, "--batch", 2)
SGD, MOMENTUM = ("--optimizer", "sgd", "--lr", 0.05), ("--optimizer", "sgd", "momentum=0.9", "--lr", 0.02)
BARS = {"f32": 1e-4, "bf16": 2e-2, "f16": 2e-2}
DYNAMIC = "loss_scale(dynamic<init = 1024.0, growth = 2.0, backoff = 0.5, interval = 2.0, min = 1.0>)"
MOVES = {"sgd": SGD, "momentum": MOMENTUM, "momentum, k = 3": (*MOMENTUM, "--accumulate", 3), "adamw": ("--optimizer", "adamw")}


def module(model, element, options=(), scale=None):
    text = example(*model, *options, *(["--bf16"] if element != "f32" else []))
    if element == "f16":
        assert "compute = bf16" in text
        text = text.replace("compute = bf16", "compute = f16")
    if scale:
        assert ") precision(" in text
        text = text.replace(") precision(", f") {scale} precision(", 1)
    return text


def inputs_of(trainer, count):
    """Micro-batches; a function of nothing but their number."""
    e, rng = trainer.descriptor.entries[trainer.entries["step"]], np.random.default_rng(5)
    drawn = []
    for _ in range(count):
        drawn.append({})
        for i in range(e.num_inputs):
            port = e.inputs[i]
            shape = tuple(port.dims[k] for k in range(port.rank))
            drawn[-1][port.name.decode()] = rng.standard_normal(shape).astype(np.float32) if port.dtype == 0 else \
                rng.integers(0, 10 if "x" in drawn[-1] and drawn[-1]["x"].dtype == np.float32 else 64, shape)
    return drawn


def tensors(trainer):
    return {(role, name, state): trainer.read(name, role, state).astype(np.float64) for role, name, state in trainer.tensors
            if role in ("parameter", "state")}


def trained(runtime, path, device):
    """Tensors before and after the updates."""
    with Trainer(runtime, path, threads=2, seed=3, device=device) as trainer:
        before, k = tensors(trainer), trainer.descriptor.entries[0].accumulate
        for batch in inputs_of(trainer, UPDATES * k):
            trainer.step(**batch)
        return before, tensors(trainer)


def distance(a, b, scale):
    return float(np.linalg.norm(a - b) / (np.linalg.norm(scale) or 1.0))


def moves(runtime, path, element, what):
    """How far weights are apart by how far they moved, states by their size; of v, a square, twice that."""
    before, cpu = trained(runtime, path, b"cpu")
    _, gpu = trained(runtime, path, b"cuda")
    adam, worst = any(state == "v" for _, _, state in cpu), {}
    for key in cpu:
        role, name, state = key
        if role == "parameter" and adam:
            continue  # a quotient of the moments: its sign is that of noise where the gradient is 0
        scale = cpu[key] - before[key] if role == "parameter" else cpu[key]
        bar = BARS[element] * (2 if state == "v" else 1)
        group = state or "weights"
        error = largest([distance(cpu[key], gpu[key], scale) / bar])
        worst[group] = max(worst.get(group, (0, "")), (error, name))
    good = bool(worst) and all(part < 1 for part, _ in worst.values())
    return check(f"{what}: {', '.join(worst)} within {BARS[element]:g}", good, worst)


GIVEN = """train.optimizer @o = {optimizer}
train.param @a : tensor<37x13xf32> init(normal<0.5>) optimizer(@o)
train.param @b : tensor<5003xf32> init(normal<0.5>) optimizer(@o)
train.step @step(%a: tensor<37x13xf32> gradient(@a), %b: tensor<5003xf32> gradient(@b)) {{
  train.yield
}}
"""
OPTIMIZERS = ["sgd<lr = 0.1>", "sgd<lr = 0.1, momentum = 0.9>", "adamw<lr = 0.01, weight_decay = 0.1>"]


def given(runtime, folder):
    """Of given gradients, states and weights an update has one result, bit by bit."""
    failed, shapes = False, dict(a=(37, 13), b=(5003,))
    for i, optimizer in enumerate(OPTIMIZERS):
        path = compile_module(GIVEN.format(optimizer=optimizer), os.path.join(folder, f"given-{i}.so"), "--target=cuda,cpu",
                              "--cuda-arch=host")
        results, rng = [], np.random.default_rng(i)
        gradients = [{n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()} for _ in range(UPDATES)]
        for device in (b"cpu", b"cuda"):
            with Trainer(runtime, path, threads=2, seed=3, device=device) as trainer:
                for gradient in gradients:
                    trainer.step(**gradient)
                results.append(tensors(trainer))
        cpu, gpu = results
        wrong = [key for key in cpu if not np.array_equal(cpu[key], gpu[key])]
        failed |= check(f"update of {optimizer.split('<')[0]}: equal bits", len(cpu) >= 2 and not wrong, wrong)
    return failed


def scaled_steps(trainer, step, planted):
    """Per update: scale, finite, skipped so far."""
    seen = []
    for i, batch in enumerate(inputs_of(trainer, UPDATES)):
        if i in planted:
            batch["x"] = np.array(batch["x"])
            batch["x"].flat[3] = np.inf
        result = step(**batch)
        seen.append((trainer.scalar("loss_scale"), bool(result.finite), trainer.scalar("skipped")))
    return seen, tensors(trainer)


def scales(runtime, folder):
    failed = False
    for element in ("bf16", "f16"):
        for name, scale, planted in (("static", "loss_scale(1024.0)", ()), ("static, infinity", "loss_scale(1024.0)", (2,)),
                                     ("dynamic, infinities", DYNAMIC, (1, 4))):
            text = module(MLP, element, MOMENTUM, scale)
            path = os.path.join(folder, f"scale-{element}.so")
            compile_module(text, path, "--target=cuda,cpu", "--cuda-arch=host")
            results = []
            for device in (b"cpu", b"cuda"):
                with Trainer(runtime, path, threads=2, seed=3, device=device) as trainer:
                    results.append(scaled_steps(trainer, trainer.step, planted))
            what = f"{element}, {name} scale"
            failed |= compare(what, *results, len(planted), element)
            compile_module(text, path, "--target=cuda,cpu", "--cuda-arch=host", mesh_option(dict(data=2)), "--shard=optimizer")

            def work(rank):
                return scaled_steps(rank.trainer, rank.trainer.step, planted if rank.rank == 0 else ())

            cpu, gpu = (run_ranks(work, path, 2, device=device) for device in (b"cpu", b"cuda"))
            for rank in range(2):
                failed |= compare(f"{what}, rank {rank} of 2", cpu[rank], gpu[rank], len(planted), element)
    return failed


def compare(what, cpu, gpu, planted, element):
    failed = check(f"{what}: the same updates and scales", cpu[0] == gpu[0] and cpu[0][-1][2] == planted, f"{cpu[0]} {gpu[0]}")
    wrong = {key: distance(cpu[1][key], gpu[1][key], cpu[1][key]) for key in cpu[1]}
    worst = largest(wrong.values())
    return check(f"{what}: tensors", np.isfinite(worst) and worst < BARS[element], wrong) or failed


def main():
    failed, runtime = False, Runtime(RUNTIME_LIBRARY)
    with tempfile.TemporaryDirectory() as folder:
        for name, model in (("mlp", MLP), ("gpt", GPT)):
            for element in ("f32", "bf16", "f16"):
                for optimizer, options in MOVES.items():
                    path = compile_module(module(model, element, options), os.path.join(folder, "model.so"), "--target=cuda,cpu",
                                          "--cuda-arch=host")
                    failed |= moves(runtime, path, element, f"{name}, {element}, {optimizer}")
        failed |= given(runtime, folder)
        failed |= scales(runtime, folder)
    sys.exit(failed)


if __name__ == "__main__":
    main()
