"""Timing, memory, and the JSON line which every peer prints."""
import argparse
import json
import os
import resource
import statistics
import sys
import time

from workloads import ALL_WORKLOADS, describe


def refuse_slow_openblas():
    for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
        if os.environ.get(name):
            raise SystemExit(f"unset {name} first: it slows every program that uses OpenBLAS")


def arguments(**extra):
    """--workload, --threads, --bf16, --steps, --serve and `extra` options {name: choices}; pins the process to its threads.
    Call it before a framework is imported: thread pools are sized from the affinity mask."""
    p = argparse.ArgumentParser()
    p.add_argument("--workload", choices=ALL_WORKLOADS, required=True)
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--bf16", action="store_true", help="bf16 compute, f32 master weights")
    p.add_argument("--steps", type=int, help="timed updates")
    p.add_argument("--serve", action="store_true", help="time N steps for each line N of standard input")
    for name, choices in extra.items():
        p.add_argument("--" + name, choices=choices, default=choices[0])
    a = p.parse_args()
    refuse_slow_openblas()
    os.environ["OMP_NUM_THREADS"] = str(a.threads)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:a.threads])
    a.steps = a.steps or ALL_WORKLOADS[a.workload].steps
    return a


def peak_rss_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _machine_seconds():
    """CPU seconds that all processes of the machine (and, as steal, its neighbours) have used."""
    with open("/proc/stat") as f:
        t = [int(x) for x in f.readline().split()[1:9]]
    return (sum(t) - t[3] - t[4]) / os.sysconf("SC_CLK_TCK")


class Foreign:
    """Cores that others used while this object lived: a timed run is good only if this stays near 0."""

    def __init__(self):
        self.start = time.perf_counter(), _machine_seconds(), sum(os.times()[:4])

    def cores(self):
        wall, machine, own = (b - a for a, b in zip(self.start, (time.perf_counter(), _machine_seconds(),
                                                                sum(os.times()[:4]))))
        return round(max(0.0, (machine - own) / wall), 2) if wall > 0.5 else None  # the counters tick every 10 ms


def step_peak_rss_mb(reset=False):
    """Peak of the resident set since the last reset: what a step needs, without import, compilation and set-up."""
    if reset:
        with open("/proc/self/clear_refs", "w") as f:
            f.write("5")
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) / 1024 for line in f if line.startswith("VmHWM"))


def _wait_until_quiet():
    """Returns once this process's own threads have stopped spinning, so that whoever is timed next has the cores."""
    end = time.perf_counter() + 1
    while time.perf_counter() < end:
        used = time.process_time()
        time.sleep(0.02)
        if time.process_time() - used < 0.001:
            return


def blocks():
    """N of each line of standard input."""
    return map(int, sys.stdin)


def block_ms(step, wait, count):
    """Milliseconds of one of `count` steps that are handed over one after the other; `wait` returns when they are done.
    Some more come first, so that clocks have risen."""
    for _ in range(count // 5 + 1):
        step()
    wait()
    t = time.perf_counter()
    for _ in range(count):
        step()
    wait()
    return (time.perf_counter() - t) * 1e3 / count


def serve(peer, a, loss, step, wait=None, *, settings, precision=None, data=None):
    """For each line N of standard input: runs N steps and prints the list of their milliseconds. Ends the process.
    With `wait`, steps only hand over work, and the list has one number: block_ms(). `settings` says which version runs how,
    `precision` more than the type of the products, `data` what a workload is that workloads.py does not know."""
    _wait_until_quiet()
    dtype = "bf16" if a.bf16 else "f32"
    print(json.dumps(dict(ready=dict(peer=peer, workload=a.workload, dtype=dtype, threads=a.threads, loss=loss, settings=settings,
                                     precision=precision or dtype, data=data or describe(a.workload)))), flush=True)
    for count in blocks():
        ms = [block_ms(step, wait, count)] if wait else []
        for _ in range(0 if wait else count):
            t = time.perf_counter()
            step()
            ms.append(round((time.perf_counter() - t) * 1e3, 5))
        _wait_until_quiet()
        print(json.dumps(ms), flush=True)
    raise SystemExit


def report(peer, a, step_s, optimizer_s, compile_s, loss, foreign, step_rss, peak_rss=None, *, settings):
    ms = [t * 1e3 for t in step_s]
    print(json.dumps(dict(
        peer=peer, workload=a.workload, dtype="bf16" if a.bf16 else "f32", threads=a.threads, steps=len(ms),
        step_ms_min=round(min(ms), 5), step_ms_median=round(statistics.median(ms), 5),
        optimizer_ms_min=round(min(optimizer_s) * 1e3, 5) if optimizer_s else None, compile_s=round(compile_s, 2),
        peak_rss_mb=round(peak_rss or peak_rss_mb()), step_rss_mb=round(step_rss), foreign_cores=foreign,
        loss=[float(f"{x:.9g}") for x in loss], settings=settings)), flush=True)
