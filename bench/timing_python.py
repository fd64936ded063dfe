"""What a call of a step costs in Python above the C call, and what `import trainc` takes.

usage: timing_python.py [--torch]   (tensors of torch instead of NumPy's arrays)

A tiny MLP on one thread: rounds of calls from Python and from C take turns. What else runs only adds to a round, so the
figure is the difference of the shortest ones; that of the medians stands beside it.
"""
import ctypes
import os
import subprocess
import sys
import tempfile
import time
from statistics import median

from common import BUILD, ROOT, compile_module, compiled, generate

sys.path.insert(0, os.path.join(ROOT, "python"))

import trainc  # noqa: E402

ROUNDS, CALLS, ARRAYS = 40, 5_000, 500
BARS = {"same tensors": 4.0, "new tensors": 8.0}  # microseconds
IMPORT_BAR = 0.2  # seconds


def maker(use_torch):
    if use_torch:
        import torch
        return lambda: (torch.rand(4, 8), torch.randint(4, (4,), dtype=torch.int32))
    import numpy as np
    rng = np.random.default_rng(1)
    return lambda: (rng.random((4, 8), np.float32), rng.integers(0, 4, 4, np.int32))


def in_c(step, steps):
    """Microseconds of a step in C."""
    seconds = steps.trainc_bench_steps(step._run, step._trainer.trainer, 0, CALLS)
    assert seconds > 0
    return seconds / CALLS * 1e6


def in_python(step, batches):
    begin = time.perf_counter()
    for _ in range(CALLS // len(batches)):
        for x, y in batches:
            step(x, y)
    return (time.perf_counter() - begin) / CALLS * 1e6


def import_seconds():
    program = "import time; t = time.perf_counter(); import trainc; print(time.perf_counter() - t)"
    return min(float(subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True,
                                    cwd=os.path.join(ROOT, "python")).stdout) for _ in range(5))


def main():
    make = maker("--torch" in sys.argv)
    source = os.path.join(ROOT, "bench", "steps.c")
    steps = ctypes.CDLL(compiled(source, os.path.join(BUILD, "bench", "libsteps.so"), "clang-22", "-std=gnu11", "-O2",
                                 "-shared", "-fPIC", "-I" + os.path.join(ROOT, "runtime", "include")))
    steps.trainc_bench_steps.restype = ctypes.c_double
    steps.trainc_bench_steps.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64]
    with tempfile.TemporaryDirectory() as folder:
        text = generate("mlp", "--inputs", 8, "--hidden", 16, "--classes", 4, "--batch", 4)
        path = compile_module(text, os.path.join(folder, "mlp.so"))
        with trainc.load(path, threads=1) as step:
            sides = {"same tensors": [make()], "new tensors": [make() for _ in range(ARRAYS)]}
            calls, base = {name: [] for name in sides}, []
            step(*sides["same tensors"][0])
            for _ in range(ROUNDS):
                for name, batches in sides.items():
                    base.append(in_c(step, steps))
                    calls[name].append(in_python(step, batches))
    failed = False
    print(f"the C call: {min(base):.2f} us, median {median(base):.2f}")
    for name, bar in BARS.items():
        above = min(calls[name]) - min(base)
        failed |= above > bar
        print(f"{name}: {above:.2f} us above it (at most {bar:g}), median {median(calls[name]) - median(base):.2f}")
    seconds = import_seconds()
    print(f"import trainc: {seconds:.3f} s (at most {IMPORT_BAR:g})")
    sys.exit(failed or seconds > IMPORT_BAR)


if __name__ == "__main__":
    main()
