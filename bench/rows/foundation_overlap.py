"""The row on overlap: collectives in flight while something is computed, and what that is worth, as the machine is and over a
slow network."""
import json
import os
import sys
from statistics import median

import audit
import before
from common import BUILD, ROOT, Failed, compile_module, run, tool, workload_module
from rows import Outcome, judge_ratios, worst
from rows.ablation import folder_of
from rows.optimizer import moved
from timing import limit_program, moving_kernel, take_turns
from timing_update import per_round
from workloads import WORKLOADS, batches, write_safetensors

WORKLOAD, BUCKETS = "gpt-char", "--bucket-size=4194304"  # of 43 MB of gradients
MODES, RANKS = ("gradients", "parameters"), (2, 4)
BANDWIDTH = 1e9  # bytes per second
PAIRS, WINDOWS, SLOWER = 9, 3, 1.05
KINDS = {"REDUCE_SCATTER": "reductions", "ALL_GATHER": "gathers"}
PROFILED = 2  # updates


# Counting.

def in_flight(path):
    """{kind: (in flight while something is computed, all)} of a window, by a profile of windows of one micro-step."""
    with open(path) as f:
        events = json.load(f)["traceEvents"]
    steps = sum(event["name"].startswith("step ") for event in events)
    started, counts = [], {kind: [0, 0] for kind in KINDS}  # of what is started whether something was computed since
    for about in (e["args"] for e in sorted(events, key=lambda e: e["ts"]) if "kind" in e["args"]):
        kind, phase = about["kind"], about.get("phase")
        if kind in ("LAUNCH", "GEMM"):
            started = [(of, True) for of, _ in started]
        elif phase == "start":
            started.append((kind, False))
        else:
            begun, beside = started.pop(0) if phase == "wait" else (kind, False)  # in the order of their starts
            if begun != kind:
                raise Failed(f"{path}: {kind} waits for {begun}")
            if kind in KINDS:
                counts[kind][0] += beside
                counts[kind][1] += 1
    if started or not steps or any(count % steps for pair in counts.values() for count in pair):
        raise Failed(f"{path}: {counts} in {steps} steps, {len(started)} not waited for")
    return {kind: tuple(count // steps for count in pair) for kind, pair in counts.items()}


def profiled(library, ranks, data, folder):
    """What in_flight() says of each rank, which is the same."""
    run(["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", str(ranks), tool("trainc-run"), library, "--threads", "1",
         "--data", data, "--no-shuffle", "--steps", str(PROFILED), "--profile", os.path.join(folder, "profile.json")])
    found = [in_flight(os.path.join(folder, f"profile.rank{rank}.json")) for rank in range(ranks)]
    if any(f != found[0] for f in found):
        raise Failed(f"{library}: ranks differ: {found}")
    return found[0]


# Timing.

def served(source, build, library, workload, ranks, delayed):
    """The command of ranks that the scripts and the runtime of a source folder serve."""
    variables = [f"TRAINC_BUILD={build}", *([f"TRAINC_TEST_BANDWIDTH={BANDWIDTH:g}"] if delayed else [])]
    return ["env", *variables, sys.executable, os.path.join(source, "bench", "serve_ranks.py"), library, workload, str(ranks),
            "--whole"]


def time_overlap(workload, libraries, ranks, delayed, folder, pairs):
    """(present over former time of each round, how far the limit moved)."""
    former = before.with_bandwidth() if delayed else before.source()
    commands = {"before": served(former, before.build(former), libraries["before"], workload, ranks, delayed),
                "after": served(ROOT, BUILD, libraries["after"], workload, ranks, delayed),
                "limit": [limit_program(), "serve", moving_kernel(workload)]}
    options = (f"{ranks} ranks", *([f"{BANDWIDTH:g} bytes/s"] if delayed else []))
    times = take_turns(commands, folder, pairs, WINDOWS, ours=audit.Ours(workload, options=options))
    times = {side: parts["step_ms"] for side, parts in times.items()}
    return per_round(times["after"], times["before"]), moved(times["limit"])


def measure(workload, bucket, mode, ranks, folder, pairs):
    """(text, statuses) of one mode on some ranks."""
    options = [f"--mesh=data={ranks}", f"--shard={mode}", bucket]
    libraries = {"after": compile_module(workload_module(WORKLOADS[workload]), os.path.join(folder, "after.so"), *options)}
    libraries["before"] = before.compile_module(os.path.join(folder, "after.mlir"), os.path.join(folder, "before.so"), *options)
    data = os.path.join(folder, "data.safetensors")
    (x, y), = batches(WORKLOADS[workload])
    write_safetensors(data, dict(x=x, y=y))
    counts = profiled(libraries["after"], ranks, data, folder)
    statuses = ["ok" if all(counts[kind][0] for kind in KINDS) else "short"]
    texts = [f"{counts[kind][0]} of {counts[kind][1]} {name} in flight" for kind, name in KINDS.items()]
    for delayed in (False, True):
        ratios, drift = time_overlap(workload, libraries, ranks, delayed, folder, pairs)
        good = (lambda r: r < 1) if delayed else (lambda r: r <= SLOWER)
        statuses.append(judge_ratios(ratios, good, drift))
        texts.append(f"{'delayed' if delayed else 'time'} {median(ratios):.3f} (limit moved {drift:.2f}x)")
    return f"{mode} on {ranks}: {', '.join(texts)}", statuses


def overlap(folder, workload=WORKLOAD, bucket=BUCKETS, pairs=PAIRS):
    texts, statuses = [], []
    for mode in MODES:
        for ranks in RANKS:
            text, found = measure(workload, bucket, mode, ranks, folder_of(folder, f"{mode}-{ranks}"), pairs)
            texts.append(text)
            statuses += found
    return Outcome("; ".join([f"{workload}, time over that of {before.commit()}, delayed to {BANDWIDTH / 1e9:g} GB/s", *texts]),
                   worst(statuses))
