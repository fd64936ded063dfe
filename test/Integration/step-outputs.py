# REQUIRES: numpy
# RUN: %python %s
"""Outputs of a step: of each micro-step, before its update, in every precision, on processors, the GPU of tests and ranks; the
training is the same as without them."""
import os
import sys
import tempfile

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(ROOT, "test", "Integration", "Inputs")]

from common import BUILD, RUNTIME_LIBRARY, compile_module  # noqa: E402
from ranks import mesh_option, run  # noqa: E402
from trainc_ctypes import Runtime, Trainer  # noqa: E402

for variable, name in (("TRAINC_LIBCUDA", "cuda"), ("TRAINC_LIBCUBLASLT", "cublaslt")):
    os.environ[variable] = os.path.join(BUILD, "lib", f"libtrainc_fake_{name}.so")

ROWS, ACCUMULATE = 8, 2
MODULE = f"""
train.mesh @mesh(data = 1)
train.optimizer @o = adamw<lr = 0.01>
train.param @w : tensor<6x5xf32> init(normal<0.5>) optimizer(@o)
train.step @step(%x: tensor<{ROWS}x6xf32> split([data]), %y: tensor<{ROWS}xi32> split([data])) OUTPUTS accumulate({ACCUMULATE}) CLAUSES {{
  %w = train.read @w : tensor<6x5xf32>
  %z = nn.matmul %x, %w : tensor<{ROWS}x6xf32>, tensor<6x5xf32>
  %loss, %n = nn.cross_entropy %z, %y : tensor<{ROWS}x5xf32>, tensor<{ROWS}xi32>
  %best = nn.argmax %z dim 1 : tensor<{ROWS}x5xf32>
  %same = nn.compare eq %best, %y : tensor<{ROWS}xi32>, tensor<{ROWS}xi32>
  %counts = nn.cast %same to f32 : tensor<{ROWS}xi1>
  %correct = nn.reduce sum %counts dims [0] : tensor<{ROWS}xf32>
  train.yield YIELDED loss(%loss) weight(%n) : TYPES tensor<f32>, tensor<f32>
}}
"""
NAMES = {"z": f"tensor<{ROWS}x5xf32>", "correct": "tensor<f32>", "same": f"tensor<{ROWS}xi1>", "w": "tensor<6x5xf32>", "x": f"tensor<{ROWS}x6xf32>"}


def text(outputs, clauses=""):
    names = list(NAMES) if outputs else []
    return (MODULE.replace("OUTPUTS", "-> (%s)" % ", ".join(f'"{n}"' for n in names) if outputs else "").replace("CLAUSES", clauses)
            .replace("YIELDED", ", ".join(f"%{n}" for n in names)).replace("TYPES", "".join(f"{NAMES[n]}, " for n in names)))


def data():
    rng = np.random.default_rng(5)
    return [dict(x=rng.standard_normal((ROWS, 6), np.float32), y=rng.integers(0, 5, ROWS).astype(np.int32)) for _ in range(5)]


def require(what, good, *seen):
    if not good:
        raise SystemExit(f"{what}: {seen}")


def trained(trainer, compare=None, close=1e-6):
    """Losses and weights after every micro-step; `compare` names what is checked."""
    seen = []
    for batch in data():
        w = trainer.read("w")
        result = trainer.step(**batch)
        if compare:
            got = trainer.outputs()
            z = batch["x"] @ w
            require(f"{compare}: z", np.allclose(got["z"], z, rtol=close, atol=close), got["z"] - z)
            require(f"{compare}: same", (got["same"] == (got["z"].argmax(1) == batch["y"])).all(), got["same"])
            require(f"{compare}: correct", got["correct"] == got["same"].sum(), got["correct"])
            require(f"{compare}: w", (got["w"] == w).all(), got["w"] - w)
            require(f"{compare}: x", (got["x"] == batch["x"]).all())
        seen += [result.loss, trainer.read("w")]
    trainer.flush()
    return seen + [trainer.read("w")]


def rank_outputs(rank):
    """Of a rank: z and same are its rows, correct is of all."""
    seen = []
    for batch in data():
        rank.step(**batch)
        seen.append(rank.trainer.outputs() | {"batch": {k: rank.rows(v) for k, v in batch.items()}})
    return seen


def main():
    runtime = Runtime(RUNTIME_LIBRARY)
    with tempfile.TemporaryDirectory() as folder:
        def compiled(name, *arguments, options=()):
            return compile_module(text(*arguments), os.path.join(folder, name + ".so"), *options)

        for precision, close in (("", 1e-6), ("precision(compute = bf16)", 2e-2), ("precision(compute = f16) loss_scale(dynamic)", 2e-3)):
            kind = precision.split("= ")[-1][:4].strip(")") or "f32"
            options = ("--target=cuda,cpu", "--cuda-arch=host")
            plain, path = (compiled(f"{kind}{o}", o, precision, options=options) for o in (False, True))
            for device in (b"cpu", b"cuda"):
                with Trainer(runtime, plain, seed=2, device=device) as trainer:
                    want = trained(trainer)
                with Trainer(runtime, path, seed=2, device=device) as trainer:
                    got = trained(trainer, f"{kind} on {device.decode()}", close)
                require(f"{kind} on {device.decode()}: another training", all(np.array_equal(a, b) for a, b in zip(want, got)))
        for mode in "none", "optimizer", "parameters":
            path = compiled(mode, True, options=[mesh_option(dict(data=2)), f"--shard={mode}"])
            both = run(rank_outputs, path, 2)
            for step in range(len(data())):
                for outputs in (r[step] for r in both):
                    z = outputs["batch"]["x"] @ outputs["w"]
                    require(f"{mode}: z", np.allclose(outputs["z"], z, rtol=1e-6, atol=1e-6), outputs["z"] - z)
                    require(f"{mode}: same", (outputs["same"] == (z.argmax(1) == outputs["batch"]["y"])).all())
                require(f"{mode}: correct", all(r[step]["correct"] == sum(o[step]["same"].sum() for o in both) for r in both))
    print("outputs of steps: ok")


if __name__ == "__main__":
    main()
