# REQUIRES: numpy
# RUN: %python %s
"""Compares the draws of dropout, in the loss and in its gradient, with a NumPy Philox, also by index of a part; and resumes within a window.

The loss is the sum of two dropouts of a parameter of ones, so its gradient is the sum of their scaled masks.
"""
import os
import sys
import tempfile

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench"))

from common import RUNTIME_LIBRARY, compile_module  # noqa: E402
from oracle.philox import dropout  # noqa: E402
from trainc_ctypes import Runtime, Trainer  # noqa: E402

RATE, SHAPE, SEED, ACCUMULATE = 0.25, (7, 13), (1 << 40) + 3, 2
MODULE = f"""
train.optimizer @o = sgd<lr = 0.0>
train.param @w : tensor<7x13xf32> init(ones) optimizer(@o)
train.step @step() accumulate({ACCUMULATE}) {{
  %w = train.read @w : tensor<7x13xf32>
  %a = nn.dropout %w rate {RATE} : tensor<7x13xf32>
  %b = train.recompute -> tensor<7x13xf32> {{
    %d = nn.dropout %w rate {RATE} : tensor<7x13xf32>
    train.yield %d : tensor<7x13xf32>
  }}
  %c = nn.add %a, %b : tensor<7x13xf32>, tensor<7x13xf32>
  %loss = nn.reduce sum %c dims [0, 1] : tensor<7x13xf32>
  train.yield loss(%loss) : tensor<f32>
}}
train.eval @eval() -> ("w") {{
  %w = train.read @w : tensor<7x13xf32>
  %a = nn.dropout %w rate {RATE} : tensor<7x13xf32>
  train.yield %a : tensor<7x13xf32>
}}
"""
# Element (i, j) draws by index first + i + 16 j.
PART = f"""
train.optimizer @o = sgd<lr = 0.0>
train.param @w : tensor<7x13xf32> init(ones) optimizer(@o)
train.step @step(%first: tensor<i64>) {{
  %w = train.read @w : tensor<7x13xf32>
  %a = nn.dropout %w rate {RATE} site 3 first %first strides [1, 16] : tensor<7x13xf32>
  %loss = nn.reduce sum %a dims [0, 1] : tensor<7x13xf32>
  train.yield loss(%loss) : tensor<f32>
}}
"""


def mask(site, update, micro_step):
    return dropout(SHAPE, RATE, SEED, site, update, micro_step)


def main():
    runtime = Runtime(RUNTIME_LIBRARY)
    with tempfile.TemporaryDirectory() as folder:
        library = compile_module(MODULE, os.path.join(folder, "dropout.so"))
        checkpoint = os.path.join(folder, "middle.safetensors")
        seen = []
        with Trainer(runtime, library, seed=SEED) as trainer:
            for step in range(3 * ACCUMULATE):
                update, micro_step = divmod(step, ACCUMULATE)
                if step == 3:
                    trainer.save(checkpoint)
                trainer.step()
                want = sum(mask(site, update, micro_step) for site in range(2))
                got = trainer.read("w", role="gradient")
                seen.append(got.copy())
                if micro_step:
                    got = got - seen[-2]
                if not np.allclose(got, want, rtol=1e-6):
                    raise SystemExit(f"micro-step {step}: {np.sum(~np.isclose(got, want))} draws differ")
                loss = trainer.scalar("micro_loss")
                if not np.isclose(loss, want.sum(), rtol=1e-6):
                    raise SystemExit(f"micro-step {step}: loss {loss}, expected {want.sum()}")
            if not (trainer.eval("eval")["w"] == 1).all():
                raise SystemExit("dropout acts in an evaluation")
        with Trainer(runtime, library, seed=0) as trainer:
            trainer.load(checkpoint)
            for step in range(3, 3 * ACCUMULATE):
                trainer.step()
                if not (trainer.read("w", role="gradient") == seen[step]).all():
                    raise SystemExit(f"micro-step {step}: a resumed run draws other numbers")
        with Trainer(runtime, compile_module(PART, os.path.join(folder, "part.so")), seed=SEED) as trainer:
            trainer.step(first=5)
            want = dropout((256,), RATE, SEED, 3, 0, 0)[5 + np.arange(7)[:, None] + 16 * np.arange(13)]
            if not np.allclose(trainer.read("w", role="gradient"), want, rtol=1e-6):
                raise SystemExit("the draws of a part are not by its index")


if __name__ == "__main__":
    main()
