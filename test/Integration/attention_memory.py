# REQUIRES: numpy
# RUN: %python %s
"""Checks that the planned memory of a GPT's step grows linearly with the tokens of a sequence, from 512 to 4096."""
import os
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench"))

from common import compile_module, generate  # noqa: E402


def workspace(length, folder):
    """Megabytes of activations and workspace."""
    module = generate("gpt", "--layers", 1, "--width", 64, "--heads", 2, "--vocab", 65, "--batch", 1,
                      "--seq", length, "--context", length)
    report = compile_module(module, os.path.join(folder, "report.txt"), "--memory-report")
    with open(report) as f:
        line = next(line for line in f if line.startswith("workspace "))
    return float(line.split()[-2])


def main():
    lengths = [512, 1024, 2048, 4096]
    with tempfile.TemporaryDirectory() as folder:
        sizes = [workspace(length, folder) for length in lengths]
    for length, size in zip(lengths, sizes):
        print(f"{length:5} tokens  {size:8.3f} MB  {1000 * size / length:.3f} kB per token")
    return any(large > 2.1 * small for small, large in zip(sizes, sizes[1:]))


if __name__ == "__main__":
    sys.exit(main())
