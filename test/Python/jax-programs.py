# REQUIRES: jax
# RUN: %python %s
"""Random programs of jax.numpy on three parameters: losses and gradients in f64 against JAX's. `jax-programs.py FIRST END` tries other seeds."""
import os
import sys
import tempfile

os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0"  # compiles faster

import jax
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))
from jax_random import IDS, PARAMETERS, expected, program  # noqa: E402
from tiny import trainc  # noqa: E402

import trainc.jax  # noqa: E402

jax.config.update("jax_enable_x64", True)
CACHE = os.path.join(os.environ.get("TRAINC_TEST_CACHE") or tempfile.gettempdir(), "jax")
FIRST, END = map(int, sys.argv[1:] or (0, 60))
TOGETHER = 20  # programs of one module


def differences(cases):
    """Of (seed, program, source, loss and gradients): those that differ alone, too."""
    def loss(params, ids):
        return sum(made(*p, ids) for p, (_, made, *_) in zip(params, cases))

    exported = trainc.jax.export(loss, [PARAMETERS] * len(cases), (IDS,), optimizer=trainc.jax.sgd(1.0))
    with exported.step(threads=1, cache_dir=CACHE) as step:
        total, after = step(IDS).loss, exported.params(step)
    wrong = [(case, j) for case, new in zip(cases, after) for j, (x, y, g) in enumerate(zip(PARAMETERS, new, case[3][1]))
             if not np.abs(x - y - g).max() <= 1e-9 * (1 + np.abs(g).max())]
    if not wrong and abs(total - sum(case[3][0] for case in cases)) > 1e-9 * (1 + abs(total)):
        wrong = [(case, "loss") for case in cases]
    if len(cases) > 1 and wrong:
        return [d for case in cases for d in differences([case])] or [f"programs {[case[0] for case in cases]} together"]
    return [f"program {seed}, {where}\n{source}" for (seed, _, source, _), where in wrong]


cases = [(seed, *program(seed)) for seed in range(FIRST, END)]
cases = [(*case, found) for case in cases if (found := expected(case[1]))]
assert len(cases) > 0.7 * (END - FIRST), len(cases)
different = [d for i in range(0, len(cases), TOGETHER) for d in differences(cases[i:i + TOGETHER])]
print("\n\n".join(different))
assert not different, f"{len(different)} of {len(cases)} programs differ"
print(f"{len(cases)} programs agree")
