# REQUIRES: ml_dtypes, numpy
# RUN: %python %s
"""Parameters of bf16 and f16 that updates round by chance: bit for bit by the definition (here in NumPy, from the ODS text of
train.update), the same fused, unfused and with any number of threads, again in a second run, and right on average.
"""
import os
import sys
import tempfile

import ml_dtypes
import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(ROOT, "test", "Integration", "Inputs")]

from common import RUNTIME_LIBRARY, compile_module  # noqa: E402
from report import check  # noqa: E402
from trainc_ctypes import Runtime, Trainer  # noqa: E402

SEED, UPDATES, RATE = 77, 6, 2.0**-6
SHAPES = dict(a=(7, 13), kept=(9,), b=(5003,), c=(3, 4, 5))
TYPES = dict(bf16=ml_dtypes.bfloat16, f16=np.float16)


def module(kind, optimizer):
    lines = [f"train.optimizer @o = {optimizer}", "train.param @frozen : tensor<2xf32> init(ones) frozen"]
    inputs = []
    for name, shape in SHAPES.items():
        t = f"tensor<{'x'.join(map(str, shape))}xf32>"
        lines.append(f"train.param @{name} : {t} init(normal<0.5>) optimizer(@o)")
        inputs.append(f"%{name}: {t} gradient(@{name})")
    lines.append(f"train.step @step({', '.join(inputs)})"
                 f" precision(master = {kind}, rounding = stochastic, keep_f32 = [@kept]) {{")
    return "\n".join([*lines, "  train.yield", "}", ""])


def gradients(update):
    """Small enough that the nearest number would often be the old one; some below the smallest normal f16."""
    rng = np.random.default_rng(update)
    return {n: (rng.standard_normal(s) * 10.0**rng.uniform(-7, 0, s)).astype(np.float32) for n, s in SHAPES.items()}


def train(kind, folder, optimizer="sgd<lr = 0.015625>", options=(), threads=2):
    path = compile_module(module(kind, optimizer), os.path.join(folder, "rounded.so"), *options)
    with Trainer(Runtime(RUNTIME_LIBRARY), path, threads=threads, seed=SEED) as trainer:
        seen = [{n: trainer.read(n) for n in SHAPES}]
        for update in range(UPDATES):
            given = gradients(update)
            if update == 2:
                given["a"][3, 3] = np.inf
            trainer.step(**given)
            seen.append({n: trainer.read(n) for n in SHAPES})
        return seen


def philox(counter, key):
    c, k = [np.asarray(x, np.uint64) for x in counter], [np.uint64(x) for x in key]
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    for _ in range(10):
        p0, p1 = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(p1 >> half) ^ c[1] ^ k[0], p1 & low, (p0 >> half) ^ c[3] ^ k[1], p0 & low]
        k = [(k[0] + np.uint64(0x9E3779B9)) & low, (k[1] + np.uint64(0xBB67AE85)) & low]
    return c


def words(site, update, count):
    i = np.arange(count, dtype=np.uint64)
    group = i >> np.uint64(2)
    zero = np.zeros_like(i)
    r = philox([group, zero, zero + np.uint64(update), zero], [SEED, (1 << 31) + site])
    return np.choose((i & np.uint64(3)).astype(int), r).astype(np.uint32)


def rounded(values, kind, site, update):
    """`values` (f64, exact) rounded as train.update says."""
    x = values.astype(np.float32).ravel()
    rest = np.uint32(0xFFFF if kind == "bf16" else 0x1FFF)
    magnitude = np.abs(x)
    small = (magnitude < 2.0**-14) & (kind == "f16")
    moved = np.where(small, magnitude + np.float32(2.0**-14), magnitude).astype(np.float32)
    bits = (moved.view(np.uint32) + (words(site, update, x.size) & rest)) & ~rest
    result = np.where(small, bits.view(np.float32) - np.float32(2.0**-14), bits.view(np.float32))
    result = np.copysign(result, x).astype(np.float32)
    assert np.array_equal(result.astype(TYPES[kind]).astype(np.float32), result)
    return result.reshape(values.shape)


def same(x, y):
    return all(np.array_equal(a[n], b[n]) for a, b in zip(x, y) for n in SHAPES)


def main():
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        for kind in TYPES:
            seen = train(kind, folder)
            site = {n: i + 1 for i, n in enumerate(SHAPES)}  # behind @frozen
            good, done = same(seen[3:4], seen[2:3]), 0  # the third update is skipped
            for update in range(UPDATES):
                if update == 2:
                    continue
                for n, g in gradients(update).items():
                    exact = np.float32(seen[update][n]) - np.float32(RATE) * g  # one rounding to f32, as the region does
                    wanted = exact if n == "kept" else rounded(exact, kind, site[n], done)
                    good &= np.array_equal(seen[update + 1][n], wanted)
                done += 1
            bad += check(f"{kind}: by the definition", good)
            bad += check(f"{kind}: unfused, plain layout, one thread",
                         same(seen, train(kind, folder, options=["--disable-pass=train-fuse-optimizer"]))
                         and same(seen, train(kind, folder, options=["--disable-pass=train-coalesce"]))
                         and same(seen, train(kind, folder, threads=1)))
            for optimizer in ("adamw<lr = 0.01>", "lamb<lr = 0.01>"):
                bad += check(f"{kind}: {optimizer}", same(
                    train(kind, folder, optimizer), train(kind, folder, optimizer, ["--disable-pass=train-fuse-optimizer"])))
        # The mean of many draws of the same value is the value.
        value = np.full(200000, 1.0 + 0.3 * 2.0**-7)
        mean = rounded(value, "bf16", 5, 0).mean()
        bad += check("right on average", abs(mean - value[0]) < 5 * 2.0**-7 * 0.5 / value.size**0.5)
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
