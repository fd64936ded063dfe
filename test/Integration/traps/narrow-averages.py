# REQUIRES: numpy
# RUN: %python %s
"""Averages of parameters that are stored in bf16 or f16 stay in f32; an evaluation by them has them rounded once, in every way to
compile."""
import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "Inputs"))
from updates import WAYS, trainer  # noqa: E402

MODULE = """
train.optimizer @o = adamw<lr = 0.1> ema(0.9)
train.param @w : tensor<6x7xSTORED> init(normal<0.5>) optimizer(@o)
train.step @step(%x: tensor<6x7xf32>) CLAUSES {
  %w = train.read @w : tensor<6x7xSTORED>
  %c = nn.cast %w to f32 : tensor<6x7xSTORED>
  %z = nn.mul %c, %x : tensor<6x7xf32>, tensor<6x7xf32>
  %l = nn.reduce sum %z dims [0, 1] : tensor<6x7xf32>
  train.yield loss(%l) : tensor<f32>
}
train.eval @average() -> ("w", "twice") weights(ema) {
  %w = train.read @w : tensor<6x7xSTORED>
  %c = nn.cast %w to f32 : tensor<6x7xSTORED>
  %t = nn.add %w, %w : tensor<6x7xSTORED>, tensor<6x7xSTORED>
  %d = nn.cast %t to f32 : tensor<6x7xSTORED>
  train.yield %c, %d : tensor<6x7xf32>, tensor<6x7xf32>
}
"""


def rounded(x, element):
    """To the nearest, then even; in f32."""
    if element == "f16":
        return x.astype(np.float16).astype(np.float32)
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view(np.float32)


def main():
    rng = np.random.default_rng(3)
    # They begin with what the parameter is, listed values, too.
    for stored, clauses in (("bf16", ""), ("f16", ""), ("f32", "precision(compute = f16, master = f16)")):
        for init in ("dense<3.0>", f"dense<{(np.arange(42) / 2).reshape(6, 7).tolist()}>"):
            text = MODULE.replace("STORED", stored).replace("CLAUSES", clauses).replace("normal<0.5>", f"{init} : tensor<6x7x{stored}>")
            with trainer(text) as t:
                want = t.read("w")
                if not np.array_equal(t.read("w", "state", "ema"), want) or not want.any():
                    sys.exit(f"{stored} {clauses} {init}: begins with {t.read('w', 'state', 'ema')}")
    for element, stored, clauses in (("bf16", "bf16", ""), ("f16", "f16", ""), ("bf16", "f32", "precision(compute = bf16, master = bf16)")):
        for options in WAYS:
            with trainer(MODULE.replace("STORED", stored).replace("CLAUSES", clauses), *options) as t:
                for _ in range(3):
                    t.step(x=rng.standard_normal((6, 7)))
                average, found = t.read("w", "state", "ema"), t.eval("average")
            want = rounded(average, element)
            if np.array_equal(want, average) or not np.array_equal(found["w"], want) or not np.array_equal(found["twice"], 2 * want):
                sys.exit(f"{stored} {clauses} {options}: {found['w'][0]} for {want[0]}, of {average[0]}")


if __name__ == "__main__":
    main()
