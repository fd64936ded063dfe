"""Serves a training of several ranks, processes of one thread each on a processor of its own.

usage: serve_ranks.py LIBRARY WORKLOAD RANKS [--alone] [--whole]

LIBRARY is compiled for a mesh of RANKS or, with --alone, for one rank: then the processes run at the same time and exchange
nothing. Of an optimizer workload, compiled from update_module(), every rank gives a part of each gradient; of others, rows
of random tokens. Each line N of standard input is answered by the milliseconds of N windows, from the first rank's begin to
the last one's end, and (without --whole) of N more that are observed, those of the commands by what they do: collectives by
their kind, "norm", "update", and "step" for the rest.
"""
import argparse
import ctypes
import json
import multiprocessing
import os
import sys
import tempfile
import time

import numpy as np

from bound_update import check, load
from commands import COLLECTIVES, LISTS, Spans, commands
from common import RUNTIME_LIBRARY
from timing_passes import shape_of
from trainc_ctypes import Comm, Runtime, Trainer
from workloads import WORKLOADS



class Rank:
    """One of the processes."""

    def __init__(self, a, rank, folder):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[rank % len(cores)]})
        self.runtime, self.w, self.comm, options = Runtime(RUNTIME_LIBRARY), WORKLOADS[a.workload], None, {}
        if not a.alone:
            self.comm = Comm(self.runtime, rank=rank, ranks=a.ranks, bootstrap=f"file:{folder}".encode(), deadline=300)
            options["comm"] = self.comm.comm
        self.trainer = Trainer(self.runtime, a.library, threads=1, seed=1, **options)
        self.spans, self.rng = Spans(self.trainer), np.random.default_rng([1, rank])
        if self.w.kind == "optimizer":
            self.accumulate = 1
            self.given = load(self.trainer, self.w, 1 if a.alone else a.ranks)
            check(self.trainer, a.workload, self.prepare)
        else:
            entry = self.trainer.descriptor.entries[self.trainer.entries["step"]]
            self.accumulate = entry.accumulate
            self.inputs = {p.name.decode(): shape_of(p) for p in entry.inputs[:entry.num_inputs]}

    def prepare(self):
        """What a window needs, outside of its time: the reduction leaves sums where gradients were."""
        if self.w.kind == "optimizer":
            for address, value in self.given:
                ctypes.memmove(address, value.ctypes.data, value.nbytes)
        else:
            self.trainer.bind("step", **{name: self.rng.integers(0, self.w.vocab, shape)
                                         for name, shape in self.inputs.items()})

    def window(self, barrier):
        """(begin, end) in seconds."""
        self.prepare()
        barrier.wait()
        begin = time.perf_counter()
        for _ in range(self.accumulate):
            self.trainer.step()
        return begin, time.perf_counter()

    def observed(self, barrier):
        """{part: milliseconds} of one window."""
        with self.spans:
            self.window(barrier)
        parts = {}
        for name in LISTS:
            for command, (_, ns) in zip(self.spans.commands[name], self.spans.of[name]):
                label = command.label.decode()
                part = COLLECTIVES.get(command.kind) or next((p for p in ("norm", "update") if label.startswith(p)), "step")
                parts[part] = parts.get(part, 0.0) + int(ns) / 1e6
        return parts


def serve(a, rank, folder, barrier, pipe):
    try:
        self = Rank(a, rank, folder)
        listed = [(command.kind, command.label.decode()) for c in commands(self.trainer, "step").values() for command in c]
        pipe.send(dict(ready=dict(workload=a.workload, commands=len(listed), bytes=self.trainer.memory().total)))
        while n := pipe.recv():
            pipe.send(([self.window(barrier) for _ in range(n)],
                       [self.observed(barrier) for _ in range(0 if a.whole else n)]))
        self.trainer.close()
        if self.comm:
            self.comm.close()
    except Exception as error:
        barrier.abort()
        pipe.send(error)


def receive(pipes):
    answers = [pipe.recv() for pipe in pipes]
    for rank, answer in enumerate(answers):
        if isinstance(answer, Exception):
            sys.exit(f"rank {rank}: {type(answer).__name__}: {answer}")
    return answers


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("library")
    p.add_argument("workload", choices=WORKLOADS)
    p.add_argument("ranks", type=int)
    p.add_argument("--alone", action="store_true")
    p.add_argument("--whole", action="store_true")
    a = p.parse_args()
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(a.ranks)
    with tempfile.TemporaryDirectory() as folder:
        pipes, processes = [], []
        for rank in range(a.ranks):
            ours, theirs = context.Pipe()
            processes.append(context.Process(target=serve, args=(a, rank, folder, barrier, theirs), daemon=True))
            processes[-1].start()
            theirs.close()
            pipes.append(ours)
        print(json.dumps(receive(pipes)[0]), flush=True)
        for line in sys.stdin:
            for pipe in pipes:
                pipe.send(int(line))
            times, parts = zip(*receive(pipes))
            answer = {name: [max(p[name] for p in one) for one in zip(*parts)] for name in (parts[0] or [{}])[0]}
            answer["step_ms"] = [(max(end for _, end in one) - min(begin for begin, _ in one)) * 1e3 for one in zip(*times)]
            print(json.dumps(answer), flush=True)
        for pipe in pipes:
            pipe.send(0)
        for process in processes:
            process.join()


if __name__ == "__main__":
    main()
