# REQUIRES: numpy
# RUN: %python %s
"""The same script as several ranks: as torchrun starts them, and as any launcher does with RANK and WORLD_SIZE.

usage: ranks.py   (starts them itself)
       ranks.py LIBRARY ONE   (one rank; mpirun starts it so, too: ranks-mpi.py)
"""
import os
import signal
import sys
import tempfile
import threading

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))
from launch import free_port, started  # noqa: E402
from tiny import RANKS, linear, refused, trainc  # noqa: E402

RNG = np.random.default_rng(1)
BATCHES = [(RNG.standard_normal((4, 3)).astype("f"), RNG.standard_normal((4, 1)).astype("f")) for _ in range(3)]


def rank_of(library, one):
    """A rank trains on its rows; updates are those of one rank on all rows. Two steps share the communicator."""
    with trainc.load(library, seed=1, threads=1) as step, trainc.load(library, seed=2, threads=1) as other, \
            trainc.load(one, seed=1, threads=1) as whole:
        assert step.ranks == 2 and whole.ranks == 1 and f"rank {step.rank} of 2" in step.report()
        assert step._trainer.comm is other._trainer.comm
        mine = slice(2 * step.rank, 2 * step.rank + 2)
        for x, y in BATCHES:
            result, wanted = step(x[mine], y[mine]), whole(x, y)
            assert np.isclose(result.window_loss, wanted.loss, rtol=1e-5)
            assert np.isclose(result.grad_norm, wanted.grad_norm, rtol=1e-5)
        other(x[mine], y[mine])
        state, wanted = step.state_dict(), whole.state_dict()
        assert all(np.allclose(state[name], wanted[name], rtol=1e-5) for name in ("weight", "bias"))
        with refused(trainc.InvalidArgumentError, "shape (2, 3)", "shape (4, 3)"):
            step(x, y)
        if step._trainer.comm.info().hosts > 1:  # a checkpoint has its size before ranks of other hosts write to it
            saved = os.path.join(os.path.dirname(library), "hosts.safetensors")
            os.environ["TRAINC_FAULT"] = "write:2:fail"
            with refused(trainc.Error, "cannot resize"):
                step.save(saved)
            del os.environ["TRAINC_FAULT"]
            step.save(saved)
            other.load(saved)
            assert all(np.array_equal(value, other.read(name)) for name, value in step.state_dict().items())
        # A child of a process whose other thread trains closes what it has of the steps.
        held, done = threading.Event(), threading.Event()

        def hold():
            with step._trainer.lock:
                held.set()
                done.wait()

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            step.close()
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        done.set()
        thread.join()
        assert os.waitstatus_to_exitcode(status) == 0
        bootstrap = step._trainer.comm.info().bootstrap.decode().split()[0]
        print(f"rank {step.rank} of {step.ranks} by {bootstrap}", flush=True)


def compiled(folder):
    return trainc.compile(RANKS, os.path.join(folder, "ranks.so"), mesh={"data": 2}), linear(folder)


def main():
    with tempfile.TemporaryDirectory() as folder:
        libraries = compiled(folder)
        ranks = started(2, __file__, *libraries)
        said = [rank.communicate(timeout=120)[0].strip() for rank in ranks]
        assert said == ["rank 0 of 2 by tcp", "rank 1 of 2 by tcp"], said
        assert all(rank.returncode == 0 for rank in ranks)
        # Without its peers.
        with refused(trainc.MismatchError, "2 ranks", "1"):
            trainc.load(libraries[0])
        os.environ.update(WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()), RANK="0")
        with refused(trainc.CommError, "1"):
            trainc.load(libraries[0], deadline=0.5)


if __name__ == "__main__":
    rank_of(*sys.argv[1:]) if len(sys.argv) > 1 else main()
