"""Rows on the processor beside whole steps: attention, memory, compilation, recomputing, neighbours."""
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from statistics import median

from common import (ENVIRONMENT, ROOT, RUNTIME_LIBRARY, Failed, compile_module, generate, run, tool,
                    workload_module)
from liveness import plan_and_bound
from losses import state_digest, updates_of
from rows import Outcome, judge, judge_ratios, worst
from rows.cpu_steps import ms
from rows.optimizer import moved
from rows.speed import compile_seconds, memory_of, reported_mb, reports_of_peers
from timing import ROUNDS, Served, limit_program, moving_kernel, our_command, our_files, precision, steps_of, take_turns
from timing_attention import OPERATION, WRITTEN_OUT, time_attention
from timing_cpu import time_step
from timing_update import per_round
from workloads import WORKLOADS, batches


def knows(option):
    return option in run([tool("trainc"), "--help"]).stdout


# Attention.

FASTER_THAN_WRITTEN_OUT, FASTER_THAN_TORCH = 1.6, 1.4


def attention(folder):
    """Alone in both types, and beside it a whole step of as many tokens."""
    notes, statuses = [], []
    for bf16 in (False, True):
        times = time_attention("attention-1024", folder, bf16)
        drift = moved(times["limit"])
        ratios = {p: per_round(times[p], times[OPERATION]) for p in times if p not in (OPERATION, "limit")}
        torch = min((p for p in ratios if p.startswith("torch")), key=lambda p: median(ratios[p]))
        statuses += [judge_ratios(ratios[WRITTEN_OUT], lambda r: r >= FASTER_THAN_WRITTEN_OUT, drift),
                     judge_ratios(ratios[torch], lambda r: r >= FASTER_THAN_TORCH, drift)]
        notes.append(f"{'bf16' if bf16 else 'f32'} {ms(median(times[OPERATION]))}, {median(ratios[WRITTEN_OUT]):.2f}x our own"
                     f" products and softmax, {median(ratios[torch]):.2f}x {torch} (limit moved {drift:.2f}x)")
    step = time_step("gpt2-124m-long", folder)
    best = step.best_peer()
    return Outcome("; ".join([*notes, f"gpt2-124m at 1 x 1024 tokens {median(step.ratios(best)):.2f}x {best}"
                                      f" (limit moved {step.moved:.2f}x)"]), worst(statuses))


# Memory.

OF_PEER, OVER_BOUND = 0.72, 1.10


def memory(folder):
    ours, _, peer, best = memory_of("gpt2-124m", folder)
    plan, bound = plan_and_bound(os.path.join(folder, "model.so"))
    return judge(ours <= OF_PEER * peer and plan <= OVER_BOUND * bound,
                 f"{ours:.0f} MB, {ours / peer:.2f}x of {best} ({peer} MB); workspace {plan / 2**20:.1f} MB,"
                 f" {plan / bound:.3f}x of the most that is alive at one command")


# Compilation.

COLD, WARM, CACHE = 5, 0.5, "--cache-dir"


def compile_time(folder):
    cache, notes, good = os.path.join(folder, "cache"), [], True
    option = [f"{CACHE}={cache}"] if knows(CACHE) else []
    for name in ("gpt2-124m", "many-small"):
        w = WORKLOADS[name]
        seconds = compile_seconds(w, folder, *option, before=lambda: shutil.rmtree(cache, ignore_errors=True))
        good &= seconds <= COLD
        peers = {peer: report["compile_s"]
                 for peer, report in reports_of_peers(name, "--steps", "2", peers=("torch compile", "jax")).items()}
        if option:
            warm = compile_seconds(w, folder, *option)  # the last compilation filled the cache
            good &= name != "gpt2-124m" or warm <= WARM
        again = f"{warm:.2f} s warm" if option else f"trainc has no {CACHE}"
        notes.append(f"{name} {seconds:.2f} s cold, {again}, {', '.join(f'{p} {s:.1f} s' for p, s in peers.items())}")
    return judge(good and option, "; ".join(notes))


# Recomputing.

KEPT, SLOWER, LIMIT, UPDATES = 0.6, 1.2, "--memory-limit", 5


def bytes_of(source):
    """(all, the workspace) of a module by its report."""
    report = json.loads(run([tool("trainc"), source, "--memory-report=json"]).stdout)
    return report["total"], next(a["bytes"] for a in report["arenas"] if a["name"] == "workspace")


def recompute(folder):
    """A long step that must do with less memory, against itself."""
    name = "gpt2-124m-long"
    w = WORKLOADS[name]
    library, values, data = our_files(name, folder)
    total, workspace = bytes_of(os.path.join(folder, "model.mlir"))
    limit = int(total - (1 - KEPT) * workspace)
    what = f"limit {limit / 2**20:.0f} of {total / 2**20:.0f} MB"
    if not knows(LIMIT):
        return judge(False, f"trainc has no {LIMIT} ({what})")
    option = f"{LIMIT}={limit}"
    less = compile_module(workload_module(w), os.path.join(folder, "less.so"), option)
    fits = reported_mb(os.path.join(folder, "less.mlir"), option) <= limit / 2**20
    runs = [updates_of(path, values, batches(w), UPDATES, finish=state_digest) for path in (library, less)]
    commands = {program: [*our_command((path, values, data)), "--serve"] for program, path in (("free", library), ("less", less))}
    times = take_turns({**commands, "limit": [limit_program(), "serve", moving_kernel(name)]}, folder, ROUNDS, steps_of(name))
    free, limited, kernel = (times[program]["step_ms"] for program in ("free", "less", "limit"))
    ratios, drift = per_round(limited, free), moved(kernel)
    statuses = ["ok" if fits and runs[0] == runs[1] else "short", judge_ratios(ratios, lambda r: r <= SLOWER, drift)]
    return Outcome(f"{median(ratios):.2f}x the time ({ms(median(limited))}), {what}{'' if fits else ' not kept'}; {UPDATES} updates"
                   f" {'bitwise equal' if runs[0] == runs[1] else 'differ'} (limit moved {drift:.2f}x)", worst(statuses))


# Neighbours.

BESIDE_SPINNER, POOL_STEPS = 2.2, 20


@contextlib.contextmanager
def spinner():
    """Another process that uses all of one processor."""
    core = min(os.sched_getaffinity(0))
    process = subprocess.Popen([sys.executable, "-c", f"import os\nos.sched_setaffinity(0, {{{core}}})\nwhile True: pass"])
    try:
        time.sleep(0.5)
        yield
    finally:
        process.kill()
        process.wait()


def beside_spinner(folder):
    """([busy / quiet of each round], how far the limit moved) of gpt-char's step."""
    name, quiet, busy, kernel = "gpt-char", [], [], []
    with (Served("trainc", [*our_command(our_files(name, folder)), "--serve"], folder) as ours,
          Served("limit", [limit_program(), "serve", moving_kernel(name)], folder) as limit):
        for served in (ours, limit):
            served.answer()
        for turn in range(ROUNDS + 1):  # the first turn only warms up
            alone = median(ours.block(steps_of(name))["step_ms"])
            with spinner():
                beside = median(ours.block(steps_of(name))["step_ms"])
            still = median(limit.block(steps_of(name))["step_ms"])
            if turn:
                quiet.append(alone)
                busy.append(beside)
                kernel.append(still)
    return per_round(busy, quiet), moved(kernel)


def beside_pool(folder):
    """What went wrong when a program trained beside its own OpenMP threads; each run is ended if it hangs."""
    program = os.path.join(folder, "openmp")
    run(["cc", "-O2", "-Wall", "-Werror", "-fopenmp", "-pthread", f"-I{ROOT}/runtime/include",
         os.path.join(ROOT, "bench", "programs", "openmp.c"), f"-L{os.path.dirname(RUNTIME_LIBRARY)}", "-ltrainc_runtime",
         f"-Wl,-rpath,{os.path.dirname(RUNTIME_LIBRARY)}", "-o", program])
    wrong = []
    for bf16 in (False, True):
        text, seen = generate("gpt", "--layers", 2, "--width", 256, "--heads", 4, "--vocab", 512, "--batch", 4, "--seq", 128,
                              *precision(bf16)), []
        library = compile_module(text, os.path.join(folder, "pool.so"))
        for way in ("alone", "beside"):
            state = os.path.join(folder, f"{way}.safetensors")
            done = run([program, library, state, str(POOL_STEPS), way], env=ENVIRONMENT)
            regions = int(done.stderr.split()[0])
            if (regions > 2 * POOL_STEPS) != (way == "beside"):
                wrong.append(f"{regions} parallel regions {way}")
            with open(state, "rb") as f:
                seen.append((done.stdout, f.read()))
        if seen[0] != seen[1] or len(seen[0][0].split()) != POOL_STEPS:
            wrong.append(f"{'bf16' if bf16 else 'f32'}: results differ")
    return wrong


def neighbours(folder):
    ratios, drift = beside_spinner(folder)
    try:
        wrong = beside_pool(folder)
    except Failed as e:
        wrong = [str(e)]
    text = "; ".join(wrong) or f"beside an OpenMP pool {POOL_STEPS} steps in f32 and bf16 end, with equal losses and states"
    return Outcome(f"{median(ratios):.2f}x the quiet step beside a spinning process (limit moved {drift:.2f}x); {text}",
                   worst([judge_ratios(ratios, lambda r: r <= BESIDE_SPINNER, drift), "short" if wrong else "ok"]))
