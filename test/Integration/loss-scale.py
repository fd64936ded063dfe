# REQUIRES: numpy
# RUN: %python %s
"""The loss scale: no result depends on a static one that is a power of two; a dynamic one follows its rule; small gradients
of f16 survive with one and are 0 without; those of parameters that are only stored in f16 need none.

The rule in Python is PyTorch's GradScaler, but that the scale does not fall below `min`.
"""
import os
import sys
import tempfile

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(ROOT, "test", "Integration", "Inputs")]

from common import RUNTIME_LIBRARY, compile_module  # noqa: E402
from report import check  # noqa: E402
from trainc_ctypes import Runtime, Trainer  # noqa: E402

UPDATES, LARGEST = 40, float(np.finfo(np.float32).max)
MODULE = """train.optimizer @o = adamw<lr = 0.01>
train.param @w : tensor<8x4xf32> init(normal<0.5>) optimizer(@o)
train.step @step(%x: tensor<5x8xf32>, %t: tensor<5x4xf32>) accumulate(2) clip(global_norm<1.0>) CLAUSES {
  %w = train.read @w : tensor<8x4xf32>
  %y = nn.matmul %x, %w : tensor<5x8xf32>, tensor<8x4xf32>
LOSS
  train.yield loss(%s) : tensor<f32>
}
"""
LOSS = """  %p = nn.mul %y, %t : tensor<5x4xf32>, tensor<5x4xf32>
  %s = nn.reduce sum %p dims [0, 1] : tensor<5x4xf32>"""
SMALL = """  %p, %n = nn.mse %y, %t : tensor<5x4xf32>, tensor<5x4xf32>
  %c = nn.constant dense<1.0e-9> : tensor<f32>
  %s = nn.mul %p, %c : tensor<f32>, tensor<f32>"""


def train(clauses, folder, bad=(), size=1.0, loss=LOSS):
    """Per update (scale before, finite, norm), then the parameter; inputs of the micro-steps in `bad` hold an infinity."""
    library = compile_module(MODULE.replace("CLAUSES", clauses).replace("LOSS", loss), os.path.join(folder, "scaled.so"))
    rng = np.random.default_rng(7)
    seen = []
    with Trainer(Runtime(RUNTIME_LIBRARY), library, threads=2, seed=1) as trainer:
        for i in range(UPDATES):
            scale = trainer.scalar("loss_scale")
            for k in range(2):
                x, t = rng.standard_normal((5, 8)), rng.standard_normal((5, 4)) * size
                if 2 * i + k in bad:
                    x[3, 2] = np.inf
                result = trainer.step(x=x, t=t)
            seen.append((scale, bool(result.finite), result.grad_norm))
        return seen, trainer.read("w"), trainer.scalar("skipped")


def rule(finite, init, growth, backoff, interval, least):
    scale, age, scales = init, 0, []
    for good in finite:
        scales.append(scale)
        if not good:
            scale, age = max(scale * backoff, least), 0
            continue
        age += 1
        if age == interval:
            scale, age = scale * growth if scale * growth <= LARGEST else scale, 0
    return scales


def main():
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        plain, weights, _ = train("", folder)
        scaled, same, _ = train("loss_scale(1024.0)", folder)
        bad += check("a static scale changes no bit", np.array_equal(weights, same)
                     and [s[2] for s in plain] == [s[2] for s in scaled] and scaled[0][0] == 1024.0)
        broken = {9, 10, 11, 30, 31, 64, 65, 66, 67, 68}
        windows = sorted({b // 2 for b in broken})
        for numbers in ((4096.0, 2.0, 0.5, 3, 1.0), (8.0, 4.0, 0.25, 5, 2.0), (2.0**126, 2.0, 0.5, 2, 1.0)):
            init, growth, backoff, interval, least = numbers
            clause = (f"loss_scale(dynamic<init = {init!r}, growth = {growth}, backoff = {backoff},"
                      f" interval = {interval}, min = {least}>)")
            seen, _, skipped = train(clause, folder, broken, 1e-30 if init > 1e30 else 1.0)
            finite = [i not in windows for i in range(UPDATES)]
            bad += check(f"dynamic {numbers}", [s[0] for s in seen] == rule(finite, *numbers)
                         and [s[1] for s in seen] == finite and skipped == len(windows))
        norms = [train(clauses, folder, loss=SMALL)[0][0][2]
                 for clauses in ("", "precision(compute = f16)", "precision(compute = f16) loss_scale(1048576.0)")]
        bad += check("f16 loses small gradients without a scale", norms[1] == 0 and abs(norms[2] / norms[0] - 1) < 1e-2)
        stored = [train(f"precision(compute = {compute}, master = f16)", folder, loss=SMALL)[0][0][2] for compute in ("f32", "bf16")]
        bad += check("parameters stored in f16 lose none", all(abs(norm / norms[0] - 1) < 1e-2 for norm in stored))
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
