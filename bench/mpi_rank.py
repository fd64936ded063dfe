"""One rank of a training under mpirun: mpi_rank.py LIBRARY WORKLOAD UPDATES FOLDER [--plain]

Trains on this rank's rows of the workload's batches, then writes FOLDER/RANK.json: losses and norms of the updates, a digest of
all parameters and states and one of the compute copies. --plain exchanges through MPI with all peers. Without mpirun it is one
rank alone.
"""
import argparse
import hashlib
import json
import os
from dataclasses import replace

from common import RUNTIME_LIBRARY
from trainc_ctypes import NO_WINDOW, Comm, Runtime, Trainer, shape_of
from workloads import WORKLOADS, batches


def digest(trainer, copies):
    sum = hashlib.sha256()
    for role, name, state in sorted(trainer.tensors, key=str):
        if role != "gradient" and (role == "compute") == copies:
            sum.update(trainer.read(name, role, state).tobytes())
    return sum.hexdigest()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("library")
    p.add_argument("workload", choices=WORKLOADS)
    p.add_argument("updates", type=int)
    p.add_argument("folder")
    p.add_argument("--plain", action="store_true")
    a = p.parse_args()
    runtime = Runtime(RUNTIME_LIBRARY)
    comm = Comm(runtime, flags=NO_WINDOW if a.plain else 0, deadline=120)
    info = comm.info()
    trainer = Trainer(runtime, a.library, threads=1, seed=1, comm=comm.comm if info.ranks > 1 else None)
    entry = trainer.descriptor.entries[trainer.entries["step"]]
    rows, tokens = shape_of(entry.inputs[0])  # of this rank
    data = batches(replace(WORKLOADS[a.workload], batch=rows * info.ranks, tokens=tokens, accumulate=entry.accumulate))
    mine = slice(info.rank * rows, (info.rank + 1) * rows)
    results, before = [], list(comm.info().collectives)
    for _ in range(a.updates):
        for x, y in data:
            result = trainer.step(x=x[mine], y=y[mine])
        results.append((result.window_loss, result.grad_norm))
    counts = [after - b for after, b in zip(comm.info().collectives, before)]
    answer = dict(bootstrap=info.bootstrap.decode(), results=results, state=digest(trainer, False),
                  copies=digest(trainer, True), collectives=counts, persistent=trainer.memory().persistent)
    trainer.close()
    comm.close()
    with open(os.path.join(a.folder, f"{info.rank}.json"), "w") as f:
        json.dump(answer, f)


if __name__ == "__main__":
    main()
