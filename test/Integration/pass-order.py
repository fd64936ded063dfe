# REQUIRES: numpy
# RUN: %python %s
"""Each two passes that follow each other can change places, and a training keeps its bits, or the second one's description says
why it cannot. Here of a small GPT on two ranks; bench/check.py foundation has more."""
import os
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(ROOT, "test", "Integration", "Inputs")]

from pass_order import PIPELINES, pairs, phases, reasons, stale, swap, swappable  # noqa: E402
from ranks import batches, compile_module, example, run, same  # noqa: E402
from report import check  # noqa: E402

FLAGS = ["--mesh=data=2", "--shard=parameters", "--bucket-size=4096"]
MODEL = ("gpt", "--layers", 2, "--width", 24, "--heads", 3, "--vocab", 37, "--seq", 11, "--context", 16, "--dropout", 0.1, "--bf16",
         "--batch", 4, "--accumulate", 2, "--clip", 1.0)
ON_GPUS = [("train-merge-launches", "train-plan-gemms")]  # cuda-passes.py


def training(rank):
    """(losses and norms, all tensors) of some updates."""
    shape = ((4, 11), "i")
    results = [rank.step(**batch) for batch in batches(dict(x=shape, y=shape), 6, vocabulary=37)]
    return [(result.loss, result.grad_norm) for result in results], rank.tensors()


def trained(folder, *options):
    """By rank."""
    return run(training, compile_module(example(*MODEL), os.path.join(folder, "model.so"), *FLAGS, *options), 2)


def main():
    failed = check("reasons are of passes that follow each other", not stale(), stale())
    failed |= check("each reason says something", all(len(r.split()) > 4 for r in reasons().values()), reasons())
    swapped = swappable(*FLAGS)
    others = {pair for options in PIPELINES for pair in pairs(*options)} - set(reasons()) - set(swapped)
    failed |= check("every pair", others == set(ON_GPUS), others)
    with tempfile.TemporaryDirectory() as folder:
        expected = trained(folder)
        for pair in swapped:
            name = f"{pair[1]} before {pair[0]}"
            failed |= check(f"{name}: the order", pair[::-1] in pairs(*FLAGS, *swap(pair)), phases(*FLAGS, *swap(pair)))
            found = trained(folder, *swap(pair))
            equal = all(a[0] == b[0] and same(a[1], b[1]) for a, b in zip(found, expected))
            failed |= check(f"{name}: the same bits", equal, [losses for losses, _ in (*found, *expected)])
    return failed


if __name__ == "__main__":
    sys.exit(main())
