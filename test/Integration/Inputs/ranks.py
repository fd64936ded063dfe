"""Trainings of several ranks, each a process of its own, compared."""
import multiprocessing
import os
import subprocess
import sys
import tempfile

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.join(ROOT, "bench"))

from common import RUNTIME_LIBRARY, compile_module, largest  # noqa: E402
from trainc_ctypes import Comm, Runtime, Trainer  # noqa: E402


def example(name, *options):
    """The text that examples/NAME.py prints."""
    return subprocess.run([sys.executable, os.path.join(ROOT, "examples", name + ".py"), *map(str, options)],
                          stdout=subprocess.PIPE, text=True, check=True).stdout


def mesh_option(mesh):
    return "--mesh=" + ",".join(f"{axis}={size}" for axis, size in mesh.items())


class Rank:
    """What a rank of a training can do: `trainer`, and its rows of global inputs, which `alike` ranks after another share."""

    def __init__(self, rank, ranks, path, folder, seed=1, hosts=1, threads=1, deadline=30, device=None, without=None, alike=1):
        self.rank, self.ranks, self.alike = rank, ranks, alike
        if hosts > 1:  # each a host by name, whose ranks talk through MPI to the others
            os.environ["TRAINC_HOST"] = f"host{rank * hosts // ranks}"
        if rank == without:  # a driver of GPUs
            os.environ["TRAINC_LIBCUDA"] = "/nowhere"
        self.runtime, self.comm = Runtime(RUNTIME_LIBRARY), None
        options = {} if device is None else {"device": device[rank] if isinstance(device, list) else device}
        if ranks > 1:
            bootstrap = dict(rank=rank, ranks=ranks, bootstrap=f"file:{folder}".encode()) if folder else {}
            self.comm = Comm(self.runtime, deadline=deadline, **bootstrap)
            options["comm"] = self.comm.comm
        self.trainer = Trainer(self.runtime, path, threads=threads, seed=seed, **options)

    def rows(self, array):
        size, place = len(array) * self.alike // self.ranks, self.rank // self.alike
        return array[place * size:(place + 1) * size]

    def step(self, **inputs):
        return self.trainer.step(**{name: self.rows(value) for name, value in inputs.items()})

    def tensors(self):
        """All parameters and states, whole; the compute copies too."""
        return {(role, name, state): self.trainer.read(name, role, state) for role, name, state in self.trainer.tensors
                if role != "gradient"}

    def close(self):
        self.trainer.close()
        if self.comm:
            self.comm.close()


def _child(work, rank, ranks, path, folder, options, queue):
    try:
        self = Rank(rank, ranks, path, folder, **options)
        result = work(self)
        self.close()
        queue.put((rank, result, None))
    except Exception as error:  # the parent reports it
        queue.put((rank, None, f"rank {rank}: {type(error).__name__}: {error}"))


def run(work, path, ranks, dying=(), **options):
    """What work(Rank) returns on each rank but those that die."""
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        processes = [context.Process(target=_child, args=(work, rank, ranks, path, folder, options, queue))
                     for rank in range(ranks)]
        for process in processes:
            process.start()
        results = sorted((queue.get(timeout=600) for _ in processes[len(dying):]), key=lambda r: r[0])
        for process in processes:
            process.join()
    errors = [error for _, _, error in results if error]
    if errors:
        raise RuntimeError("; ".join(errors))
    return [result for _, result, _ in results]


def same(a, b):
    """Whether two dicts of arrays are equal bit by bit."""
    return a.keys() == b.keys() and all(a[k].shape == b[k].shape and a[k].tobytes() == b[k].tobytes() for k in a)


def batches(shapes, count, vocabulary=64, seed=0):
    """`count` batches of inputs by name and (shape, type)."""
    rng = np.random.default_rng(seed)
    return [{name: (rng.integers(0, vocabulary, shape).astype("i4") if kind == "i" else
                    rng.standard_normal(shape).astype("f4")) for name, (shape, kind) in shapes.items()}
            for _ in range(count)]


__all__ = ["RUNTIME_LIBRARY", "Rank", "batches", "compile_module", "example", "mesh_option", "run", "same"]
