# REQUIRES: numpy
# RUN: %python %s
"""Trains a small GPT with and without recomputed blocks, and in bf16.

Recomputation must not change a bit and must lower the workspace; bf16 stays within 1 % of f32.
"""
import json
import os
import sys
import tempfile

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench"))

from common import RUNTIME_LIBRARY, compile_module, generate, run, tool  # noqa: E402
from trainc_ctypes import Runtime, Trainer  # noqa: E402

BATCH, SEQ = 3, 40


def train(folder, *options):
    """[(loss, gradient norm)] of a few updates, and the bytes of the workspace."""
    module = generate("gpt", "--layers", 6, "--width", 48, "--heads", 3, "--batch", BATCH, "--seq", SEQ, "--lr", 1e-3,
                      *options)
    library = compile_module(module, os.path.join(folder, "gpt.so"))
    report = json.loads(run([tool("trainc"), os.path.join(folder, "gpt.mlir"), "--memory-report=json"]).stdout)
    numbers, rows = np.random.default_rng(3), []
    x = numbers.integers(0, 128, (BATCH, SEQ), dtype=np.int32)
    with Trainer(Runtime(RUNTIME_LIBRARY), library, seed=9) as trainer:
        for _ in range(8):
            result = trainer.step(x=x, y=np.roll(x, -1, 1))
            rows.append((result.window_loss, result.grad_norm))
    return rows, report


def workspace(report):
    return next(entry["workspace"] for entry in report["entries"] if entry["name"] == "step")


def main():
    with tempfile.TemporaryDirectory() as folder:
        base = None
        for options in ([], ["--dropout", 0.1], ["--bf16", "--dropout", 0.1]):
            kept, plain = train(folder, *options)
            again, small = train(folder, *options, "--recompute")
            if kept != again:
                raise SystemExit(f"{options}: recomputation changes the losses: {kept} and {again}")
            if not workspace(small) < 0.5 * workspace(plain):
                raise SystemExit(f"{options}: workspace {workspace(plain)}, recomputed {workspace(small)}: "
                                 "expected less than half")
            if not kept[-1][0] < kept[0][0] - 0.1:
                raise SystemExit(f"{options}: the loss does not fall: {kept}")
            losses = [loss for loss, _ in kept]
            if base and not np.allclose(losses, base, rtol=1e-2):
                raise SystemExit(f"losses in bf16 {losses}, in f32 {base}: expected within 1 %")
            base = losses if options else None


if __name__ == "__main__":
    main()
