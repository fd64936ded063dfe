# REQUIRES: numpy
# RUN: %python %s
"""A parameter that is used twice has one gradient, the sum of both uses, which counts once in the norm, and one
update."""
import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "Inputs"))
from updates import UNCOALESCED, UNFUSED, Adam, largest, trainer  # noqa: E402

ROWS, WIDTH, BATCH, UPDATES, K, LIMIT = 11, 6, 5, 4, 2, 0.05
MODULE = """train.optimizer @o = adam<lr = 0.01>
train.param @table : tensor<11x6xf64> init(normal<0.5>) optimizer(@o)
train.param @scale : tensor<6xf64> init(normal<0.5>) optimizer(@o)
train.step @step(%ids: tensor<5xi32>, %y: tensor<5xi32>) accumulate(2) clip(global_norm<0.05>) {
  %table = train.read @table : tensor<11x6xf64>
  %again = train.read @table : tensor<11x6xf64>
  %scale = train.read @scale : tensor<6xf64>
  %x = nn.embedding %table, %ids : tensor<11x6xf64>, tensor<5xi32>
  %h = nn.mul %x, %scale : tensor<5x6xf64>, tensor<6xf64>
  %logits = nn.matmul %h, %again transpose_rhs : tensor<5x6xf64>, tensor<11x6xf64>
  %sum, %count = nn.cross_entropy %logits, %y : tensor<5x11xf64>, tensor<5xi32>
  train.yield loss(%sum) weight(%count) : tensor<f64>, tensor<f64>
}
"""


def gradients(p, ids, y):
    """Of the sum of the losses."""
    x = p["table"][ids]
    h = x * p["scale"]
    logits = h @ p["table"].T
    e = np.exp(logits - logits.max(1, keepdims=True))
    d = e / e.sum(1, keepdims=True)
    d[np.arange(BATCH), y] -= 1
    dh = d @ p["table"]
    table = d.T @ h
    np.add.at(table, ids, dh * p["scale"])
    return {"table": table, "scale": (dh * x).sum(0)}


def main():
    for options in ((), (UNFUSED,), (UNCOALESCED,), ("--reference",)):
        rng = np.random.default_rng(4)
        p = {"table": rng.standard_normal((ROWS, WIDTH)), "scale": rng.standard_normal(WIDTH)}
        rules = {n: Adam(0.01) for n in p}
        with trainer(MODULE, *options) as t:
            if len([key for key in t.tensors if key[0] == "state"]) != 4:
                sys.exit("expected two states for each of two parameters")
            for n, v in p.items():
                t.write(n, v)
            for update in range(UPDATES):
                total = {n: 0.0 for n in p}
                for _ in range(K):
                    ids, y = rng.integers(0, ROWS, BATCH), rng.integers(0, ROWS, BATCH)
                    result = t.step(ids=ids, y=y)
                    total = {n: total[n] + g for n, g in gradients(p, ids, y).items()}
                mean = {n: g / (K * BATCH) for n, g in total.items()}
                norm = np.sqrt(sum(np.sum(g * g) for g in mean.values()))
                p = {n: rules[n](p[n], mean[n] * LIMIT / max(norm, LIMIT)) for n in p}
                error = largest(np.linalg.norm(t.read(n) - v) / np.linalg.norm(v) for n, v in p.items())
                if not (error < 1e-12 and abs(result.grad_norm / norm - 1) < 1e-12):
                    sys.exit(f"{options}: update {update + 1}: off by {error:.1e}, norm {result.grad_norm}, not {norm}")
        print(f"{' '.join(options) or 'default'}: parameters off by {error:.1e}")


if __name__ == "__main__":
    main()
