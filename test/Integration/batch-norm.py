# REQUIRES: numpy
# RUN: %python %s
"""Trains a small CNN with batch norm and compares running statistics, losses and an evaluation with NumPy.

Statistics are buffers: they change with every micro-step, also within a window. The evaluation uses them.
"""
import os
import sys
import tempfile

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench"))

from common import RUNTIME_LIBRARY, compile_module  # noqa: E402
from trainc_ctypes import Runtime, Trainer  # noqa: E402

EPS, MOMENTUM = 1e-5, 0.1

MODEL = """
  %w = train.read @conv.weight : tensor<3x2x3x3xf32>
  %scale = train.read @bn.weight : tensor<3xf32>
  %shift = train.read @bn.bias : tensor<3xf32>
  %mean = train.read @bn.mean : tensor<3xf32>
  %var = train.read @bn.var : tensor<3xf32>
  %fc = train.read @fc.weight : tensor<75x4xf32>
  %c = nn.conv2d %x, %w padding [1, 1, 1, 1] : tensor<6x2x5x5xf32>, tensor<3x2x3x3xf32>
  %n, %mean1, %var1 = nn.batch_norm %c, %scale, %shift, %mean, %var MODE
      : tensor<6x3x5x5xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>
  %r = nn.relu %n : tensor<6x3x5x5xf32>
  %flat = nn.reshape %r : tensor<6x3x5x5xf32> to tensor<6x75xf32>
  %logits = nn.linear %flat, %fc : tensor<6x75xf32>, tensor<75x4xf32>
"""
MODULE = f"""
train.optimizer @o = sgd<lr = 0.1>
train.param @conv.weight : tensor<3x2x3x3xf32> init(normal<0.3>) optimizer(@o)
train.param @bn.weight : tensor<3xf32> init(ones) optimizer(@o)
train.param @bn.bias : tensor<3xf32> init(zeros) optimizer(@o)
train.param @fc.weight : tensor<75x4xf32> init(normal<0.1>) optimizer(@o)
train.buffer @bn.mean : tensor<3xf32> init(zeros)
train.buffer @bn.var : tensor<3xf32> init(ones)
train.step @step(%x: tensor<6x2x5x5xf32>, %y: tensor<6xi32>) accumulate(2) {{
{MODEL.replace("MODE", "training")}
  train.write %mean1 to @bn.mean : tensor<3xf32>
  train.write %var1 to @bn.var : tensor<3xf32>
  %loss, %count = nn.cross_entropy %logits, %y : tensor<6x4xf32>, tensor<6xi32>
  train.yield loss(%loss) weight(%count) : tensor<f32>, tensor<f32>
}}
train.eval @eval(%x: tensor<6x2x5x5xf32>) -> ("logits") {{
{MODEL.replace("MODE", "")}
  train.yield %logits : tensor<6x4xf32>
}}
"""
PARAMETERS = ["conv.weight", "bn.weight", "bn.bias", "fc.weight"]


def convolve(x, w):
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    return sum(np.einsum("nchw,oc->nohw", padded[:, :, i:i + 5, j:j + 5], w[:, :, i, j])
               for i in range(3) for j in range(3))


def forward(p, x, mean, var):
    """Logits by the given statistics, or by those of the batch; and the batch's mean and unbiased variance."""
    c = convolve(x, p["conv.weight"])
    batch = c.mean((0, 2, 3)), c.var((0, 2, 3))
    m, v = batch if mean is None else (mean, var)
    column = np.index_exp[None, :, None, None]
    n = (c - m[column]) / np.sqrt(v[column] + EPS) * p["bn.weight"][column] + p["bn.bias"][column]
    size = c[:, 0].size
    return np.maximum(n, 0).reshape(6, 75) @ p["fc.weight"], batch[0], batch[1] * size / (size - 1)


def close(what, got, want):
    error = np.max(np.abs(got - want)) / np.max(np.abs(want))
    if not error < 1e-5:
        raise SystemExit(f"{what}: relative error {error:.1e}, expected at most 1e-5")


def main():
    numbers = np.random.default_rng(1)
    mean, var = np.zeros(3), np.ones(3)
    with tempfile.TemporaryDirectory() as folder:
        library = compile_module(MODULE, os.path.join(folder, "cnn.so"))
        with Trainer(Runtime(RUNTIME_LIBRARY), library, seed=5) as trainer:
            losses = []
            x = (numbers.normal(size=(2, 6, 2, 5, 5)) + 0.5).astype(np.float32)
            y = numbers.integers(0, 4, (2, 6), dtype=np.int32)
            for step in range(20):
                p = {name: trainer.read(name).astype(np.float64) for name in PARAMETERS}
                part = step % 2
                logits, m, v = forward(p, x[part].astype(np.float64), None, None)
                result = trainer.step(x=x[part], y=y[part])
                mean, var = (1 - MOMENTUM) * mean + MOMENTUM * m, (1 - MOMENTUM) * var + MOMENTUM * v
                close(f"mean after micro-step {step}", trainer.read("bn.mean", role="buffer"), mean)
                close(f"variance after micro-step {step}", trainer.read("bn.var", role="buffer"), var)
                top = logits.max(1)
                losses.append(np.mean(top + np.log(np.exp(logits - top[:, None]).sum(1)) - logits[range(6), y[part]]))
                if part:
                    close(f"loss of update {step // 2}", result.window_loss, np.mean(losses[-2:]))
            p = {name: trainer.read(name).astype(np.float64) for name in PARAMETERS}
            want = forward(p, x[0].astype(np.float64), mean, var)[0]
            close("evaluation", trainer.eval("eval", x=x[0])["logits"], want)
            if not losses[-1] < 0.7 * losses[1]:
                raise SystemExit(f"the loss does not fall: from {losses[1]:.3f} to {losses[-1]:.3f}")


if __name__ == "__main__":
    main()
