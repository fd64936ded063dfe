# REQUIRES: numpy
# RUN: %python %s
"""trainc-run on two ranks with a GPU each, on the driver, the cuBLASLt and the NCCL of tests, one of which has a fault: an error, a
refusal, a hang, a death, a call that does not return, at collectives of a step that runs plainly and of one that is a graph. Both
ranks end with a status other than 0 within the deadline and 5 seconds, and name the collective. What is late by less than the
deadline changes nothing.
"""
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(ROOT, "test", "Integration", "Inputs")]

from ranks import compile_module, example, mesh_option, run  # noqa: E402
from common import BUILD, tool  # noqa: E402
from report import check  # noqa: E402

for variable, library in (("TRAINC_LIBCUDA", "cuda"), ("TRAINC_LIBCUBLASLT", "cublaslt"), ("TRAINC_LIBNCCL", "nccl")):
    os.environ[variable] = os.path.join(BUILD, "lib", f"libtrainc_fake_{library}.so")

STEPS = 3  # one runs plainly, one is recorded, and one is that graph again
SHORT, LONG = 4, 30  # deadlines; NCCL's own errors and deaths must not need theirs
START = 10  # seconds for a busy machine to start two processes


class Run:
    """trainc-run on two ranks; `faults` are those of NCCL on rank 1, `own` is what else its environment has."""

    def __init__(self, folder, model, deadline, own=None, device=("--device=cuda",), **faults):
        self.started, self.deadline = time.monotonic(), deadline
        meeting = tempfile.mkdtemp(dir=folder)
        faults = {f"TRAINC_FAKE_NCCL_{name}": f"1:{value}" for name, value in faults.items()}
        self.processes = [subprocess.Popen(
            [tool("trainc-run"), model, "--data", "data.npy", "--threads", "1", "--steps", str(STEPS), *device, "--comm",
             f"file:{meeting}", "--deadline", str(deadline)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder,
            env=dict(os.environ, TRAINC_RANK=str(rank), TRAINC_RANKS="2", **faults, **(own or {} if rank else {})))
            for rank in range(2)]

    def wait(self):
        """(status, output, errors) of each rank; the status of one that is late is "late"."""
        results = []
        for process in self.processes:
            try:
                left = self.started + self.deadline + 5 + START - time.monotonic()
                output, errors = process.communicate(timeout=max(left, 0))
                results.append((process.returncode, output, errors))
            except subprocess.TimeoutExpired:
                process.kill()
                results.append(("late", *process.communicate()))
        self.seconds = time.monotonic() - self.started
        return results


def per_step(path):
    """How many collectives of NCCL a step has: the others are those of the start."""
    def work(rank):
        counts = []
        for _ in range(2):
            rank.step(x=np.zeros((4, 8), "i4"), y=np.zeros((4, 8), "i4"))
            counts.append(sum(rank.comm.info().collectives))
        return counts[1] - counts[0]
    counts = run(work, path, 2, device=b"cuda")
    assert counts[0] == counts[1] > 2, counts
    return counts[0]


def final_loss(output):
    found = re.search(r"final loss (\S+)", output)
    return found and found[1]


def named(text):
    """The numbers of collectives that are named, with all that is known of them."""
    return {int(number) for number in re.findall(
        r"(?:all_reduce|reduce_scatter|all_gather) '.*?', collective (\d+) of ranks 0 1, \d+ bytes, on CUDA device 0 "
        r"\(emulated GPU\), has waited \d+\.\d s; peers: [01] \(host \S+, pid \d+, (?:alive|dead)\)", text)}


def main():
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        np.save(os.path.join(folder, "data.npy"), (np.arange(2000) * 7919 % 64).astype("u2"))
        module = example("gpt", "--batch", 4, "--layers", 1, "--width", 16, "--heads", 1, "--seq", 8, "--vocab", 64)
        path = compile_module(module, os.path.join(folder, "step.so"), "--target=cuda,cpu", "--cuda-arch=host",
                              mesh_option(dict(data=2)), "--shard=optimizer")
        count = per_step(path)
        good = Run(folder, path, LONG).wait()
        failed |= check("no fault", all(r[0] == 0 for r in good), good)
        loss = final_loss(good[0][1])
        last = (STEPS - 1) * count  # the first collective of the last step

        def expect(what, started, statuses, number, wanted, seconds=None):
            results = started.wait()
            texts = "\n".join(r[2] for r in results)
            # Who is left of two may not have come as far on a busy machine.
            found = named(texts) if -signal.SIGKILL in statuses else number in named(texts)
            fine = [r[0] for r in results] == statuses and found and wanted in texts
            return check(f"{what} at collective {number}", fine and (not seconds or started.seconds < seconds),
                         (started.seconds, results))

        # An error of NCCL at every collective of the first step, and in the last one; deaths. The deadline is not needed.
        errors = [("error", dict(FAIL=f"{number}:6"), [1, 1], number, "NCCL failed: ncclCommGetAsyncError: remote process exited")
                  for number in (*range(count), last, last + count - 1)]
        deaths = [("death", dict(DIE=number), [1, -signal.SIGKILL], number, "rank 1 is dead") for number in (0, last + 1)]
        refusal = ("refusal", dict(REFUSE="1:5"), [1, 1], 1, "invalid usage (refused as asked for): calling NCCL: ")
        cases = [*errors, *deaths, refusal]
        for i in range(0, len(cases), 2):  # two at a time
            for (what, _, *wanted), started in [(case, Run(folder, path, LONG, **case[1])) for case in cases[i:i + 2]]:
                failed |= expect(what, started, *wanted, LONG)
        # These wait for the deadline. A call does not return in a plain step, and in the one that is recorded.
        start = Run(folder, path, SHORT, HANG="init")
        hangs = [(number, Run(folder, path, SHORT, HANG=number)) for number in (1, last + 1)]
        stuck = [(number, Run(folder, path, SHORT, STUCK=number)) for number in (1, count + 1)]
        launch = Run(folder, path, SHORT, {"TRAINC_FAKE_CUDA_STUCK": "2"})
        for number, started in hangs:
            failed |= expect("hang", started, [1, 1], number, f"nothing within {SHORT} s: ")
        for number, started in stuck:
            failed |= expect("a call that does not return", started, [1, 1], number, "and the wait does not return: calling NCCL")
        failed |= expect("a launch that does not return", launch, [1, 1], count, "and the wait does not return: launching a graph")
        results = start.wait()
        failed |= check("hang at the start", [r[0] for r in results] == [1, 1] and "starting NCCL" in results[0][2] + results[1][2],
                        results)
        # What one rank has not.
        for library, device, wanted in (
                ("TRAINC_LIBCUDA", ["--device=cuda"], "rank 1: 'step' cannot run on a GPU: no CUDA driver: absent.so"),
                ("TRAINC_LIBNCCL", [], "'step' cannot run on a GPU: rank 1: no NCCL: absent.so")):
            results = Run(folder, path, LONG, {library: "absent.so"}, device).wait()
            failed |= check(f"no {library} on a rank, {device}", [r[0] for r in results] == [1, 1] and wanted in results[0][2],
                            results)
        late = Run(folder, path, LONG, DELAY=f"{last}:1").wait()
        failed |= check("a late rank", all(r[0] == 0 for r in late) and final_loss(late[0][1]) == loss is not None, late)
    sys.exit(failed)


main()
