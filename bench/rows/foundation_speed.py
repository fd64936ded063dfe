"""The row on speed: what this compiler makes against what the one before this part made, and how long each takes to compile."""
import os
from statistics import median

import audit
import before
from common import tool
from rows import Outcome, judge_ratios, worst
from rows.ablation import folder_of
from rows.cpu_steps import STEPS
from rows.optimizer import moved
from timing import limit_program, moving_kernel, our_command, our_files, steps_of, take_turns
from timing_compile import time_compilations
from timing_update import per_round

PAIRS, SLOWER, TRIES = 15, 1.05, 3
WORKLOADS = [*((bar.workload, bar.bf16) for bar in STEPS), ("mlp-tiny", False)]


def decided(measure):
    """(text, status) of what measures, again while it is too noisy."""
    for _ in range(TRIES):
        text, status = measure()
        if status != "too noisy":
            break
    return text, status


def bar(ratios, drift):
    """(text, status) of present over former times."""
    return f"{median(ratios):.3f} (moved {drift:.2f}x)", judge_ratios(ratios, lambda r: r <= SLOWER, drift)


def time_steps(name, bf16, files, pairs):
    """Of a workload whose {side: (program, files)} are compiled."""
    commands = {side: [program, *our_command(of)[1:], "--serve"] for side, (program, of) in files.items()}
    commands["limit"] = [limit_program(), "serve", moving_kernel(name)]
    folder = os.path.dirname(files["after"][1][0])
    times = take_turns(commands, folder, pairs, steps_of(name), ours=audit.Ours(name, bf16))
    times = {side: parts["step_ms"] for side, parts in times.items()}
    return bar(per_round(times["after"], times["before"]), moved(times["limit"]))


def compare(name, bf16, folder, pairs):
    """(text, statuses) of a workload."""
    library, *data = our_files(name, folder, bf16=bf16)
    module, former = os.path.join(folder, "model.mlir"), os.path.join(folder, "before.so")
    before.compile_module(module, former)
    files = {"before": (before.program("trainc-run"), (former, *data)), "after": (tool("trainc-run"), (library, *data))}
    compilers = {"before": [before.program("trainc"), module, "-o", former], "after": [tool("trainc"), module, "-o", library]}

    def compilations():
        times = time_compilations(compilers, pairs)
        return bar(per_round(times["after"], times["before"]), moved(times["before"]))

    step = decided(lambda: time_steps(name, bf16, files, pairs))
    compilation = decided(compilations)
    return (f"{name} {'bf16' if bf16 else 'f32'}: step {step[0]}, compilation {compilation[0]}", [step[1], compilation[1]])


def speed(folder, workloads=WORKLOADS, pairs=PAIRS):
    texts, statuses = [], []
    for name, bf16 in workloads:
        text, found = compare(name, bf16, folder_of(folder, f"{name}{'-bf16' if bf16 else ''}"), pairs)
        texts.append(text)
        statuses += found
    return Outcome("; ".join([f"time over that of {before.commit()}, median of {pairs} pairs", *texts]), worst(statuses))
