# REQUIRES: numpy
# RUN: %python %s
"""Compiles a model with sets of passes left out: losses and state have the same bits.

One, two, all but one and all of the passes: every choice among any three is in one of these sets. --all: every set.
"""
import itertools
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(ROOT, "test", "Integration")]

from common import tool  # noqa: E402
from pairwise import module, train  # noqa: E402


# What gelu-epilogues.py, choose-saved.py, loss-heads.py and cuda-passes.py leave out.
ELSEWHERE = ("train-fuse-epilogues", "train-choose-saved", "train-form-loss-heads", "train-merge-launches")


def main():
    passes = subprocess.run([tool("trainc"), "--list-passes"], capture_output=True, text=True, check=True).stdout.split()
    passes = [p for p in passes if p not in ELSEWHERE]
    text, bad, count = module("lamb", "global norm", 4, "bf16 compute", True), [], 0
    want = train(text)
    every = range(1, len(passes) + 1)
    for size in every if "--all" in sys.argv else sorted({1, 2, len(passes) - 1, len(passes)}):
        for left_out in itertools.combinations(passes, size):
            count += 1
            if train(text, "--disable-pass=" + ",".join(left_out)) != want:
                bad.append(left_out)
    print(f"{count} sets of {len(passes)} passes, different: {bad}")
    return bool(bad) or count == 0


if __name__ == "__main__":
    sys.exit(main())
