"""Rows on time and memory."""
import json
import math
import os
import statistics
import time

import audit
from common import PEERS, Failed, compile_module, generate, largest, run, tool, workload_module
from rows import Outcome, judge, judge_ratios, worst
from run import SUITES
from timing import Served, movement, our_command, our_files, peer_commands, ratios, time_workload
from workloads import WORKLOADS, describe

FASTER = 1.3


def verdict(times):
    """(ratio to the best peer, its name, status) of one workload."""
    by_peer = ratios(times)
    best = min(by_peer, key=lambda peer: statistics.median(by_peer[peer]))
    status = judge_ratios(by_peer[best], lambda r: r >= FASTER, movement(times))
    return statistics.median(by_peer[best]), best, status


def step_time(folder):
    parts, statuses = [], set()
    for name in SUITES["step"].names:
        inside = os.path.join(folder, name)
        os.mkdir(inside)
        try:
            times = time_workload(name, inside)
        except Failed as e:
            parts.append(f"{name}: {e}")
            statuses.add("short")
            continue
        ratio, best, status = verdict(times)
        statuses.add(status)
        parts.append(f"{name} {ratio:.2f}x {best} (limit moved {movement(times):.2f}x)")
    return Outcome("; ".join(parts), worst(statuses))


def reported_mb(library_source, *options):
    """Bytes that `trainc --memory-report=json` promises, in MB as the kernel counts (2^20)."""
    text = run([tool("trainc"), library_source, "--memory-report=json", *options]).stdout
    return json.loads(text)["total"] / 2**20


def measured_mb(command, folder, steps=3):
    """VmHWM of a program over timed steps, reset after its warm-up."""
    with Served("trainc", [*command, "--serve"], folder) as served:
        served.answer()
        pid = served.process.pid
        with open(f"/proc/{pid}/clear_refs", "w") as f:
            f.write("5")
        served.block(steps)
        with open(f"/proc/{pid}/status") as f:
            return next(int(line.split()[1]) / 1024 for line in f if line.startswith("VmHWM"))


def growth(peaks):
    """How much more each doubling of T adds than the one before: 2 if linear, 4 if quadratic."""
    added = [b - a for a, b in zip(peaks, peaks[1:])]
    return largest(b / a if a > 0 else math.inf for a, b in zip(added, added[1:]))


def attention_memory(folder):
    reported, measured = [], []
    for tokens in (512, 1024, 2048, 4096):
        text = generate("gpt", "--layers", 2, "--width", 256, "--heads", 8, "--vocab", 128, "--batch", 1, "--seq", tokens)
        library = compile_module(text, os.path.join(folder, f"{tokens}.so"))
        reported.append(reported_mb(os.path.join(folder, f"{tokens}.mlir")))
        measured.append(measured_mb([tool("trainc-run"), library], folder))
    factors = growth(reported), growth(measured)
    return judge(max(factors) <= 2.2, f"a doubling of T adds at most {factors[0]:.2f}x (report) and {factors[1]:.2f}x"
                 f" (measured) what the one before added; {measured[0]:.0f} to {measured[-1]:.0f} MB")


def compile_seconds(w, folder, *options, before=lambda: None):
    """The better of three compilations, whole process; `before` each."""
    source, library = os.path.join(folder, "model.mlir"), os.path.join(folder, "model.so")
    with open(source, "w") as f:
        f.write(workload_module(w))
    seconds = []
    for _ in range(3):
        before()
        start = time.perf_counter()
        run([tool("trainc"), source, "-o", library, "--time", *options])
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def compile_time(folder):
    from dataclasses import replace
    w = WORKLOADS["gpt2-124m"]
    whole, small = compile_seconds(w, folder), compile_seconds(replace(w, layers=2), folder)
    return judge(whole <= 8 and whole <= 1.5 * small, f"{whole:.2f} s; {whole / small:.2f}x of 2 layers ({small:.2f} s)")


def reports_of_peers(name, *options, peers=None):
    """What each peer, or those that are named, prints of a workload when it does not serve. All sides are noted."""
    audit.Ours(name).note("trainc", len(os.sched_getaffinity(0)))
    reports = {peer: json.loads(run([*command, *options], cwd=PEERS).stdout.splitlines()[-1])
               for peer, command in peer_commands(name).items() if peers is None or peer in peers}
    for peer, report in reports.items():
        audit.note(peer, report["settings"], report["dtype"], report["threads"], describe(name))
    return reports


def memory_of(name, folder):
    """(MB of ours while it steps, MB by its report, MB of the best peer, its name)."""
    files = our_files(name, folder)
    reported = reported_mb(os.path.join(folder, "model.mlir"))
    ours = measured_mb(our_command(files), folder)
    peers = {peer: report["step_rss_mb"] for peer, report in reports_of_peers(name).items()}
    best = min(peers, key=peers.get)
    return ours, reported, peers[best], best


def memory(folder):
    ours, reported, peer, best = memory_of("gpt2-124m", folder)
    good = abs(ours - reported) <= 0.05 * reported + 60 and ours <= 0.8 * peer
    return judge(good, f"{ours:.0f} MB, report {reported:.0f} MB, {ours / peer:.2f}x of {best} ({peer} MB)")
