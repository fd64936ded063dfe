"""Serves causal attention, forward and backward: serve_attention.py LIBRARY WORKLOAD.

LIBRARY is compiled from timing_attention.attention_module(): q, k and v are its parameters. Each line N of standard input is
answered by the milliseconds, in each of N steps, of all commands but those of the update, which changes nothing.
"""
import json
import sys

import numpy as np

from commands import Spans
from common import RUNTIME_LIBRARY
from trainc_ctypes import Runtime, Trainer, shape_of
from workloads import ATTENTION, CHECKED_STEPS, attention_inputs


def main():
    library, workload = sys.argv[1:]
    values = attention_inputs(ATTENTION[workload])
    with Trainer(Runtime(RUNTIME_LIBRARY), library) as trainer:
        given = shape_of(trainer.descriptor.entries[trainer.entries["step"]].inputs[0])
        heads_first = given[1] == ATTENTION[workload].heads

        def laid_out(x):
            return x.swapaxes(1, 2) if heads_first else x

        for name in "qkv":
            trainer.write(name, laid_out(values[name]))
        trainer.bind("step", g=laid_out(values["g"]))
        for _ in range(CHECKED_STEPS):
            trainer.step()
        norms = [float(np.linalg.norm(trainer.read(name, "gradient").astype(np.float64))) for name in "qkv"]
        print(json.dumps(dict(ready=dict(workload=workload, loss=norms))), flush=True)
        spans = Spans(trainer)
        for line in sys.stdin:
            ms = []
            for _ in range(int(line)):
                with spans:
                    trainer.step()
                ms.append(spans.ms("first"))
            print(json.dumps(ms), flush=True)


if __name__ == "__main__":
    main()
