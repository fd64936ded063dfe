# REQUIRES: numpy
# RUN: %python %s
"""Trainings of two ranks over a network that is pretended to be slow (TRAINC_TEST_BANDWIDTH): in every mode the bits of one that
is not, and no update takes less than its collectives' bytes over the bandwidth."""
import os
import sys
import tempfile
import time

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "test", "Integration", "Inputs"), os.path.join(ROOT, "bench")]

from ranks import compile_module, example, run, same  # noqa: E402
from report import check  # noqa: E402

MODEL = ("gpt", "--layers", 2, "--width", 32, "--heads", 2, "--vocab", 64, "--seq", 16, "--batch", 4, "--accumulate", 2)
UPDATES, BANDWIDTH = 3, 1e6


def training(rank):
    """(losses and norms, all tensors, [(seconds, bytes) of each update])."""
    rng, seen, updates = np.random.default_rng(1), [], []
    while len(updates) < UPDATES:
        before, begin, closed = sum(rank.comm.info().bytes), time.perf_counter(), False
        while not closed:
            result = rank.step(**{name: rng.integers(0, 64, (4, 16)) for name in "xy"})
            closed = result.closed
        updates.append((time.perf_counter() - begin, sum(rank.comm.info().bytes) - before))
        seen.append((result.window_loss, result.grad_norm))
    return seen, rank.tensors(), updates


def main():
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for mode in ("none", "optimizer", "gradients", "parameters"):
            library = compile_module(example(*MODEL), os.path.join(folder, "model.so"), "--mesh=data=2", f"--shard={mode}",
                                     "--bucket-size=16384")
            os.environ.pop("TRAINC_TEST_BANDWIDTH", None)
            expected = run(training, library, 2)
            os.environ["TRAINC_TEST_BANDWIDTH"] = f"{BANDWIDTH:g}"
            for rank, (losses, tensors, updates) in enumerate(run(training, library, 2)):
                equal = losses == expected[rank][0] and same(tensors, expected[rank][1])
                failed |= check(f"{mode}, rank {rank}: the same bits", equal)
                shares = [seconds * BANDWIDTH / bytes for seconds, bytes in updates if bytes]
                failed |= check(f"{mode}, rank {rank}: time", len(shares) == UPDATES and min(shares) >= 1, shares)
    return failed


if __name__ == "__main__":
    sys.exit(main())
