"""Serves the update alone, of gradients that stand in memory: bound_update.py LIBRARY WORKLOAD.

LIBRARY is compiled from update_module(). Each line N of standard input is answered by the milliseconds of N calls of
trainc_step, and, of N more calls that are observed, those of the commands of the norm and of the update.
"""
import json
import math
import sys
import time

import numpy as np

from commands import Spans
from common import PEERS, RUNTIME_LIBRARY, Failed
from trainc_ctypes import Runtime, Trainer
from workloads import CHECKED_STEPS, WORKLOADS, gradients, initial_values


def load(trainer, w, ranks=1):
    """Writes parameters and gradients, equal parts of them for each of several ranks, and binds each gradient where it
    already is. Returns their addresses and values."""
    given = []
    for name, value in initial_values(w):
        trainer.write(name, value)
    for i, (name, value) in enumerate(gradients(w)):
        value /= ranks
        trainer.write(name, value, "gradient")
        given.append((trainer.held(name, "gradient")[0], value))
        trainer.bind_pointer("step", i, given[-1][0], value.nbytes)
    return given


def parameter_norm(trainer):
    """L2 norm of all parameters."""
    return math.sqrt(sum(float(np.sum(np.square(trainer.read(name).astype(np.float64)))) for name in trainer.names()))


def check(trainer, workload, prepare=lambda: None):
    """Does the first updates, each after `prepare()`, and compares them with the reference."""
    with open(f"{PEERS}/reference_losses.json") as f:
        reference = json.load(f)["workloads"][workload]
    for i in range(CHECKED_STEPS):
        prepare()
        result = trainer.step()
        for what, value in (("gradient", result.grad_norm), ("parameter", parameter_norm(trainer))):
            expected = reference[f"{what}_norm_f64"][i]
            if not math.isclose(value, expected, rel_tol=1e-6):
                raise Failed(f"update {i + 1}: expected a {what} norm of {expected}, got {value}")


def milliseconds(trainer):
    begin = time.perf_counter()
    trainer.step()
    return (time.perf_counter() - begin) * 1e3


def parts(trainer, spans):
    """(norm, update) of one call."""
    with spans:
        trainer.step()
    update = spans.ms("apply", "update")
    return spans.ms("apply") - update, update


def main():
    library, workload = sys.argv[1:]
    with Trainer(Runtime(RUNTIME_LIBRARY), library) as trainer:
        load(trainer, WORKLOADS[workload])
        check(trainer, workload)
        spans = Spans(trainer)
        print(json.dumps(dict(ready=dict(workload=workload))), flush=True)
        for line in sys.stdin:
            steps = [milliseconds(trainer) for _ in range(int(line))]
            norm, update = zip(*(parts(trainer, spans) for _ in range(int(line))))
            print(json.dumps(dict(step_ms=steps, norm=norm, update=update)), flush=True)


if __name__ == "__main__":
    main()
