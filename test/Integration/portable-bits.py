# REQUIRES: numpy
# RUN: %python %s
"""With --portable-bits six models train to the same bits for AVX2, for AVX-512 and for AArch64, as far as they can run here,
on 1 and 3 threads: those that bench/results/portable.json has. `bench/check.py portable` runs all of its cases."""
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench"))

from portable import MODELS, digests, recorded  # noqa: E402


def main():
    known, bad, count = recorded()["digests"], [], 0
    # Every second one in bf16 and windows.
    cases = [f"{model} {'bf16 k=4' if i % 2 else 'f32 k=1'}" for i, model in enumerate(MODELS)] + ["convnet bf16 k=1"]
    for case in cases:
        for cpus, threads in ((["avx2", "avx512"], (1, 3)), (["neoverse-n1"], (3,))):
            found, _ = digests(cpus, case, threads)
            for cpu, digest in found.get(case, {}).items():
                count += 1
                if digest != known.get(case):
                    bad.append(f"{case} for {cpu}: {digest}, recorded: {known.get(case)}")
    print(f"{count} trainings; {bad or 'the same bits'}")
    return bool(bad) or count < len(cases)


if __name__ == "__main__":
    sys.exit(main())
