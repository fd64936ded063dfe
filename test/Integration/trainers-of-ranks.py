# REQUIRES: numpy
# RUN: %python %s
"""Trainers of one communicator: many that follow each other leave nothing, what one rank refuses ends the others at once, and a run that
an observer stops between the start and the wait of a collective leaves a trainer that a load brings back; one that is stopped on a rank
alone is saved by none. Who has the address of a tensor
may write it, though another rank is late; and what ranks have asked for is told once.
"""
import ctypes
import os
import sys
import tempfile
import time

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))

from ranks import batches, compile_module, example, mesh_option, run, same  # noqa: E402
from commands import Event  # noqa: E402
from report import check  # noqa: E402
from trainc_ctypes import Error, Trainer  # noqa: E402

MANY, DEADLINE = 70, 20
COLLECTIVES = (3, 4, 5)  # kinds of commands
SHAPES = dict(x=((8, 16), "i"), y=((8, 16), "i"))


def mappings():
    """Of shared memory."""
    with open("/proc/self/maps") as f:
        return sum("memfd:trainc" in line for line in f)


def many(rank, path):
    """Whether memory stays as it is, and the losses of the first and of the last trainer."""
    rank.trainer.close()
    before, losses = mappings(), []
    for i in range(MANY):
        trainer = Trainer(rank.runtime, path, threads=1, seed=1, comm=rank.comm.comm)
        if i in (0, MANY - 1):
            losses.append(trainer.step(**{name: rank.rows(value) for name, value in DATA[0].items()}).loss)
        trainer.close()
    return mappings() == before, losses


def refused(rank, path, other):
    """What a rank says, and how long it took: rank 1 alone has a limit, a device that is not there, another mesh."""
    said = []
    for wrong in (dict(memory_limit=4096), dict(device=b"cuda"), dict(path=other)):
        options = dict(path=path, threads=1, seed=1, comm=rank.comm.comm) | (wrong if rank.rank == 1 else {})
        begin = time.monotonic()
        try:
            Trainer(rank.runtime, **options)
        except Error as error:
            said.append((str(error), time.monotonic() - begin))
    # The communicator goes on.
    trainer = Trainer(rank.runtime, path, threads=1, seed=1, comm=rank.comm.comm)
    said.append(np.isfinite(trainer.step(**{name: rank.rows(value) for name, value in DATA[0].items()}).loss))
    trainer.close()
    return said


def phase_of(command):
    """0: a whole collective, or no collective; 1 its start; 2 its wait (trainc_collective_detail)."""
    return ctypes.cast(command.detail, ctypes.POINTER(ctypes.c_uint32))[3] if command.kind in COLLECTIVES else 0


def stopped(rank, folder):
    """Stops steps behind each start of a collective; the tensors after a load and two steps, for each of them."""
    t = rank.trainer
    rank.step(**DATA[0])
    t.save(folder)
    seen = stop = 0

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(Event))
    def observe(_, event):
        nonlocal seen
        starts = event.contents.end and phase_of(event.contents.command.contents) == 1
        seen += bool(starts)
        return starts and seen == stop

    results = []
    while True:
        seen, stop = 0, stop + 1
        rank.runtime.call("trainc_set_observer", t.trainer, observe, None)
        try:
            for inputs in DATA[1:3]:
                rank.step(**inputs)
            ended = True
        except Error:
            ended = False
        rank.runtime.call("trainc_set_observer", t.trainer, None, None)
        if ended:  # as many starts as there are
            return seen, [rank.tensors(), *results]
        t.load(folder)
        for inputs in DATA[1:3]:
            rank.step(**inputs)
        results.append(rank.tensors())
        t.load(folder)


def unsaved(rank, folder):
    """What a rank says when all save after a step that an observer has stopped on rank 1, behind the last command."""
    t, said = rank.trainer, []
    last = t.descriptor.entries[0].lists[2].count - 1

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(Event))
    def observe(_, event):
        return rank.rank == 1 and event.contents.list == 2 and event.contents.index == last and event.contents.end

    rank.runtime.call("trainc_set_observer", t.trainer, observe, None)
    try:
        rank.step(**DATA[0])
    except Error:
        pass
    for save, path in ((t.save, os.path.join(folder, "unsaved")), (t.save_checkpoint, os.path.join(folder, "unsaved-run"))):
        begin = time.monotonic()
        try:
            save(path)
        except Error as error:
            said.append((str(error), time.monotonic() - begin))
    return said


def written(rank):
    """The largest gradient after rank 0 has written its own at their addresses. Rank 1 sums the gradients late."""
    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(Event))
    def observe(_, event):
        waits = event.contents.list == 2 and phase_of(event.contents.command.contents) == 2
        if waits and not event.contents.end:
            time.sleep(0.5 * rank.rank)
        return waits and event.contents.end

    rank.runtime.call("trainc_set_observer", rank.trainer.trainer, observe, None)
    try:
        rank.step(**DATA[0])
    except Error:  # all that was started is done
        pass
    most = 0
    for role, name, _ in rank.trainer.tensors:
        if role == "gradient":
            data, tensor = rank.trainer.held(name, role)
            values = np.frombuffer((ctypes.c_char * tensor.bytes).from_address(data), "f")
            if rank.rank == 0:
                values[:] = 1e30
            most = max(most, np.abs(values).max())
    return most


def stops(rank):
    """`stop` of steps, before and after all ranks ask, whose next steps have no result, and after rank 0 does."""
    def stop():
        return rank.step(**DATA[0]).stop
    said = [stop()]
    rank.trainer.call("trainc_request_stop")
    for _ in range(3):
        rank.trainer.hand_over()
    said += [stop(), stop()]
    if rank.rank == 0:
        rank.trainer.call("trainc_request_stop")
    return [*said, stop(), stop()]


DATA = batches(SHAPES, 3, 50)
TEXT = example("gpt", "--layers", 2, "--width", 32, "--heads", 2, "--vocab", 50, "--batch", 8, "--seq", 16)


def main():
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        def compiled(name, mesh, *options):
            return compile_module(TEXT, os.path.join(folder, name + ".so"), mesh_option(mesh), *options)
        one = compiled("one", dict(data=2), "--shard=optimizer")
        results = run(lambda rank: many(rank, one), one, 2)
        bad += check(f"{MANY} trainers of one communicator leave no memory", all(kept for kept, _ in results))
        bad += check("the last of them trains as the first", all(first == last for _, (first, last) in results), results)

        results = run(written, one, 2)
        bad += check("no rank reads a tensor whose address another has", results[1] < 1e20, results)
        results = run(lambda rank: unsaved(rank, folder), one, 2, deadline=DEADLINE)
        bad += check("all ranks say at once that one has no state to save",
                     all(len(said) == 2 and all(("rank 1: " in text) == (rank == 0) and "no state to save" in text and seconds < DEADLINE / 2
                                                for text, seconds in said) for rank, said in enumerate(results)), results)
        results = run(stops, one, 2)
        bad += check("each request to stop is told once, to all", results == [[0, 2, 0, 1, 0]] * 2, results)

        other = compiled("other", dict(data=4), "--shard=optimizer")
        results = run(lambda rank: refused(rank, one, other), one, 2, deadline=DEADLINE)
        for i, text in enumerate(("memory_limit is 4096", "'cuda'", "compiled for 4 ranks")):
            said = [result[i] for result in results]
            bad += check(f"all ranks say '{text}' at once", all(text in s and seconds < DEADLINE / 2 for s, seconds in said), said)
        bad += check("and go on", all(result[3] for result in results))

        for mode, more in (("gradients", ["--bucket-size=4096"]), ("parameters", [])):
            path = compiled(mode, dict(data=2), f"--shard={mode}", *more)
            results = run(lambda rank: stopped(rank, os.path.join(folder, "of-" + mode)), path, 2)
            for rank, (starts, tensors) in enumerate(results):
                bad += check(f"{mode}: rank {rank} was stopped behind {starts} starts", starts > 1)
                bad += check(f"{mode}: rank {rank} goes on as if nothing had been", all(same(tensors[0], t) for t in tensors[1:]))
    return bad


if __name__ == "__main__":
    sys.exit(main() > 0)
