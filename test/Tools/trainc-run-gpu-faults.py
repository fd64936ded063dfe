# RUN: %python %s
"""trainc-run on two ranks with a GPU each: whatever NCCL does wrong in a step is reported by name, and ends both ranks within the
deadline and five seconds; what is only late is waited for.
"""
import os
import subprocess
import sys
import tempfile
import time

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(ROOT, "test", "Integration", "Inputs")]

from common import BUILD, compile_module, generate, tool  # noqa: E402
from report import check  # noqa: E402

DEADLINE, SLACK = 3, 5
LIBRARIES = {name: os.path.join(BUILD, "lib", f"libtrainc_fake_{library}.so") for name, library in
             (("TRAINC_LIBCUDA", "cuda"), ("TRAINC_LIBCUBLASLT", "cublaslt"), ("TRAINC_LIBNCCL", "nccl"))}
KINDS = ["reduce_scatter", "all_gather", "all_reduce"]  # of a step, in their order; the second step is a graph
FAULTS = {
    "never done": {"TRAINC_FAKE_NCCL_HANG": "1:0"},
    "never done, in a graph": {"TRAINC_FAKE_NCCL_HANG": "0:5"},
    "fails": {"TRAINC_FAKE_NCCL_FAIL": "1:1:3"},
    "fails in a graph": {"TRAINC_FAKE_NCCL_FAIL": "0:6:6"},
    "refused": {"TRAINC_FAKE_NCCL_REFUSE": "1:1:5"},
    "no communicator": {"TRAINC_FAKE_NCCL_REFUSE": "0:init:3"},
    "killed": {"TRAINC_FAKE_NCCL_DIE": "1:4"},
}


def start(folder, name, model, variables, steps=6):
    meeting = os.path.join(folder, name.replace(" ", "-").replace(",", ""))
    os.mkdir(meeting)
    command = [tool("trainc-run"), model, "--device=cuda", "--threads", "1", "--comm", f"file:{meeting}", "--deadline",
               str(DEADLINE), "--data", f"x={folder}/x.npy", "--data", f"y={folder}/y.npy", "--steps", str(steps)]
    return time.monotonic(), [subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder,
        env=dict(os.environ, TRAINC_RANK=str(rank), TRAINC_RANKS="2", **LIBRARIES, **variables)) for rank in range(2)]


def finish(started):
    begin, processes = started
    results = []
    for process in processes:
        try:
            out, errors = process.communicate(timeout=max(0.1, begin + 60 - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            out, errors = process.communicate()
            errors += "\n(killed by the test)"
        results.append((process.returncode, out, errors, time.monotonic() - begin))
    return results


def main():
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        rng = np.random.default_rng(1)
        np.save(os.path.join(folder, "x.npy"), rng.standard_normal((64, 64)).astype(np.float32))
        np.save(os.path.join(folder, "y.npy"), rng.integers(0, 10, 64))
        model = compile_module(generate("mlp", "--batch", 16), os.path.join(folder, "m.so"), "--target=cuda",
                               "--cuda-arch=host", "--mesh=data=2", "--shard=none")
        good = finish(start(folder, "good", model, {}))
        failed |= check("good", [r[0] for r in good] == [0, 0] and "final loss" in good[0][1], good)
        usual = max(r[3] for r in good)
        late = finish(start(folder, "late", model, {"TRAINC_FAKE_NCCL_DELAY": "1:3:1"}))
        failed |= check("late", [r[:2] for r in late] == [r[:2] for r in good], late)
        for name, variables in FAULTS.items():
            results = finish(start(folder, name, model, variables))
            text = "".join(r[2] for r in results)
            where = next(iter(variables.values())).split(":")[1]
            name_of = "ncclCommInitRankConfig" if where == "init" else \
                f"{KINDS[int(where) % 3]} '{KINDS[int(where) % 3]}', collective {where} of ranks 0 1"
            failed |= check(f"{name}: both end with a failure", all(r[0] not in (0, None) for r in results), results)
            failed |= check(f"{name}: named", name_of in text and "killed by the test" not in text, text)
            failed |= check(f"{name}: in time", all(r[3] < DEADLINE + SLACK + usual for r in results),
                            [r[3] for r in results])
    sys.exit(failed)


main()
