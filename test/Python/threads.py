# REQUIRES: numpy
# RUN: %python %s
"""Calls release the GIL; two steps at once, and several threads on one, are safe; a forked child is told; a process ends while a daemon
thread trains."""
import os
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))
from tiny import linear, refused, trainc  # noqa: E402

# A product that takes a while: about 34 GFLOP.
LONG = """\
train.optimizer @sgd = sgd<lr = 0.1>
train.param @w : tensor<2048x2048xf32> init(normal<0.01>) optimizer(@sgd)
train.step @step(%x: tensor<1024x2048xf32>) {
  %0 = train.read @w : tensor<2048x2048xf32>
  %1 = nn.matmul %x, %0 : tensor<1024x2048xf32>, tensor<2048x2048xf32>
  %2 = nn.matmul %1, %0 : tensor<1024x2048xf32>, tensor<2048x2048xf32>
  %3 = nn.reduce sum %2 dims [0, 1] : tensor<1024x2048xf32>
  train.yield loss(%3) : tensor<f32>
}
"""
RNG = np.random.default_rng(1)
X, Y = RNG.standard_normal((4, 3)).astype("f"), RNG.standard_normal((4, 1)).astype("f")


def releases_the_gil(folder):
    """Another thread begins and ends while a step runs, though the interpreter itself would not switch for 1000 s."""
    with trainc.load(trainc.compile(LONG, os.path.join(folder, "long.so")), threads=1) as step:
        x, go, ended = np.ones((1024, 2048), "f"), threading.Event(), []
        step(x)

        def count():
            go.wait()
            for _ in range(1000):
                pass
            ended.append(time.monotonic())

        thread = threading.Thread(target=count)
        thread.start()
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1000)
        go.set()
        step(x)
        end = time.monotonic()
        sys.setswitchinterval(interval)
        thread.join()
        assert ended[0] < end, "a step holds the GIL"


def train(path, seed, calls=300):
    with trainc.load(path, threads=2, seed=seed) as step:
        losses = [step(X, Y).loss for _ in range(calls)]
        return losses, step.state_dict()["weight"].tobytes()


def at_once(path):
    """Two steps in two threads; then several threads on one, which saves and is closed meanwhile."""
    alone = {seed: train(path, seed) for seed in (1, 2)}
    together = {}
    threads = [threading.Thread(target=lambda seed=seed: together.update({seed: train(path, seed)})) for seed in alone]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == alone

    step, done, errors = trainc.load(path, threads=2), [], []

    def work(i):
        try:
            x = X + i
            for _ in range(500):
                result = step(x, Y)
                done.append(result.update + result.skipped)
        except trainc.Error as error:
            errors.append(str(error))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    while len(done) < 100:
        step.state_dict()
    step.close()
    for thread in threads:
        thread.join()
    assert sorted(done) == list(range(1, len(done) + 1)) and set(errors) <= {"this step is closed"}, errors


def states_whole(path):
    """An optimizer's state is read and written by one thread, without an update of another in between."""
    class Optimizer:
        def store(self, step, *_):
            other = threading.Thread(target=take, args=(step._trainer.lock,))
            other.start()
            other.join()

        load = store

    def take(lock):
        free.append(lock.acquire(blocking=False))
        if free[-1]:
            lock.release()

    free = []
    with trainc.load(path, threads=1) as step:
        step.exported_optimizer = Optimizer()
        step.torch_optimizer()
        step.load_torch_optimizer({})
    assert free == [False, False], free


def forked(path):
    """A child has no threads of it: its calls are errors, and its end does no harm to the parent."""
    step = trainc.load(path, threads=2, seed=1)
    first = step(X, Y).loss
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with refused(trainc.InvalidArgumentError, "another process"):
                step(X, Y)
            step.close()
            del step
            with trainc.load(path, threads=2, seed=1) as own:
                status = 0 if own(X, Y).loss == first else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert step(X, Y).update == 2


# The main thread of a process, which ends while a daemon thread is in a call, or has the lock and never gives it back.
ENDING = """\
import sys, threading, time
sys.path.insert(0, sys.argv[1])
import numpy as np
import trainc, trainc._trainer
library, ending = sys.argv[2:]
step, x, begun = trainc.load(library, threads=1), np.ones((1024, 2048), "f"), threading.Event()
def work():
    while ending == "call":
        begun.set()
        step(x)
    with step._trainer.lock:
        begun.set()
        time.sleep(1000)
trainc._trainer._EXIT_SECONDS = 60 if ending == "call" else 0.2
threading.Thread(target=work, daemon=True).start()
begun.wait()
time.sleep(0.1)
"""


def ends(library):
    """What a daemon thread uses is freed after its call, or not at all; nothing is said."""
    for ending in ("call", "call", "lock"):
        done = subprocess.run([sys.executable, "-c", ENDING, os.path.dirname(os.path.dirname(trainc.__file__)), library, ending],
                              capture_output=True, text=True, timeout=50)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), (ending, done)


with tempfile.TemporaryDirectory() as temporary:
    releases_the_gil(temporary)
    library = linear(temporary)
    at_once(library)
    states_whole(library)
    forked(library)
    ends(os.path.join(temporary, "long.so"))
