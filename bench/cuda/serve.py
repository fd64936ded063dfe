"""Serves a step, or an update alone, of ours on a GPU: serve.py LIBRARY WORKLOAD [--update] [--no-graphs] [--commands].

Does the first updates and says their losses (of an update alone: norms of all parameters). Each line N of standard input is
answered by the milliseconds of one of N steps that are handed over at once; with --commands also by those of the device in
the commands of the norm and of the update, or in all. --profile says of each command what it does and takes, and ends.
"""
import argparse
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE)]

import numpy as np  # noqa: E402

from bound_update import load, parameter_norm  # noqa: E402
from commands import LISTS, Spans, commands  # noqa: E402
from common import RUNTIME_LIBRARY  # noqa: E402
from measure import block_ms, blocks  # noqa: E402
from trainc_ctypes import NO_GRAPHS, Runtime, Trainer  # noqa: E402
from workloads import ALL_WORKLOADS, CHECKED_STEPS, batches, initial_values  # noqa: E402

DATA = os.path.join(os.path.dirname(os.path.dirname(HERE)), "data")
KINDS = ["launch", "product", "fill", "copy", "reduce_scatter", "all_reduce", "all_gather"]


class Step:
    """One update, all its micro-steps."""

    def __init__(self, trainer, workload):
        self.trainer = trainer
        values, self.batches = initial(workload)
        for name, value in values:
            trainer.write(name, value)
        self.one = len(self.batches) == 1
        if self.one:
            self.bind(*self.batches[0])

    def bind(self, x, y):
        self.trainer.bind("step", x=x, y=y)

    def __call__(self):
        for batch in self.batches:
            if not self.one:
                self.bind(*batch)
            self.trainer.hand_over()

    def first(self):
        """[(loss, gradient norm)] of the first updates."""
        rows = []
        for _ in range(CHECKED_STEPS):
            for batch in self.batches:
                self.bind(*batch)
                result = self.trainer.step()
            rows.append((result.window_loss, result.grad_norm))
        return rows


class Update:
    """Clip and optimizer alone, of gradients that stand where the trainer keeps them."""

    def __init__(self, trainer, workload):
        self.trainer = trainer
        load(trainer, ALL_WORKLOADS[workload])

    def __call__(self):
        self.trainer.hand_over()

    def first(self):
        rows = []
        for _ in range(CHECKED_STEPS):
            result = self.trainer.step()
            rows.append((parameter_norm(self.trainer), result.grad_norm))
        return rows


def initial(workload):
    """(initial values, micro-batches of an update); those that need more than NumPy are carried."""
    carried = os.path.join(DATA, f"{workload}.npz")
    if os.path.exists(carried):
        a = np.load(carried)
        return [(n[2:], a[n]) for n in a.files if n.startswith("p:")], [(a["x"], a["y"])]
    return initial_values(ALL_WORKLOADS[workload]), batches(ALL_WORKLOADS[workload])


def observed(spans, step, update):
    with spans:
        step()
    if not update:
        return dict(commands=sum(spans.ms(name) for name in LISTS))
    apply, after = spans.ms("apply"), spans.ms("apply", "update")
    return dict(apply=apply, norm=apply - after, update=after)


def profile(trainer, step, spans, times=20):
    """[{list, kind, label, ms, bytes, flops, runs of an update}] of the commands."""
    with spans:
        for _ in range(times):
            step()
    rows = []
    for name, every in commands(trainer, "step").items():
        for command, (runs, ns) in zip(every, spans.of[name]):
            operands = command.operands[:command.num_operands]
            rows.append(dict(list=name, kind=KINDS[command.kind] if command.kind < len(KINDS) else str(command.kind),
                             label=(command.label or b"?").decode(), ms=int(ns) / 1e6 / times,
                             bytes=sum(o.bytes * bin(o.access & 3).count("1") for o in operands) * int(runs) // times,
                             flops=command.flops * int(runs) // times, runs=int(runs) / times))
    return rows


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("library")
    p.add_argument("workload")
    for option in ("--update", "--no-graphs", "--commands", "--profile"):
        p.add_argument(option, action="store_true")
    p.add_argument("--device", default="cuda")
    a = p.parse_args()
    with Trainer(Runtime(RUNTIME_LIBRARY), a.library, flags=NO_GRAPHS * a.no_graphs, device=a.device.encode()) as trainer:
        step = (Update if a.update else Step)(trainer, a.workload)
        loss, norm = zip(*step.first())
        spans = Spans(trainer) if a.commands or a.profile else None
        about = dict(loss=loss, norm=norm, device=trainer.device())
        if a.profile:
            about["commands"] = profile(trainer, step, spans)
        print(json.dumps(dict(ready=about)), flush=True)
        for count in blocks():
            answer = dict(step_ms=[block_ms(step, trainer.wait, count)])
            if a.commands:
                for _ in range(count):
                    for part, ms in observed(spans, step, a.update).items():
                        answer.setdefault(part, []).append(ms)
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
