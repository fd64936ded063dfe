#!/usr/bin/env python3
"""Times compiled steps against others that take turns with them in one run, and prints ratios.

usage: run.py [--suite SUITE] [--workload NAME ...] [--rounds N] [--disable-pass NAME ...] [--json FILE]
       run.py --suite cuda [--pack FOLDER] [--cuda-arch ARCH,...] [--part PART ...] [--tiny] [--json FILE]

  step       a whole step against PyTorch, JAX and the machine's limit
  optimizer  clip and AdamW alone, of gradients that stand in memory, against the same
  ablation   a step against the same compiled without one of the step passes
  ranks      the update of 2 ranks of one thread, sharded, against the same replicated without communication (both ranks
             at once) and PyTorch's ZeroRedundancyOptimizer
  cuda       steps, updates and checks on a GPU. --pack makes the folder that can be carried to a machine with a GPU, where
             FOLDER/run.py measures (bench/cuda/run.py) and neither the compiler nor this repository is needed; without
             --pack it is done here. --tiny packs for FOLDER/run.py --dry-run alone

Needs the environment of bench/peers/requirements.txt (bench/check.py makes it in .venv-bench) and an idle machine. A
ratio is the median over the rounds of the peer's time divided by ours in the same round.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from statistics import median
from typing import Callable

import timing_passes
from common import Failed
from timing import ROUNDS, movement, ratios, time_workload
from timing_passes import BF16, MANY_TENSORS, gains, time_casts, time_fusion
from timing_ranks import time_zero1
from timing_update import LIMIT, LIMIT_WITH_COPY, READ, per_round, time_update


@dataclass(frozen=True)
class Suite:
    names: list  # of workloads
    columns: list
    measure: Callable  # (name, folder, rounds, options of trainc) -> times
    cells: Callable  # (times) -> texts, one per column


def ms(times):
    return f"{median(times):.3g}"


def faster(a, b):
    return f"{median(per_round(a, b)):.2f}x"


STEP_PROGRAMS = ["trainc", "torch eager", "torch compile", "jax"]


def measure_step(name, folder, rounds, options):
    return time_workload(name, folder, rounds, options=options)


def step_cells(times):
    r = {peer: median(v) for peer, v in ratios(times).items()}
    best = min(r, key=r.get)
    return [*(ms(times[p]) for p in STEP_PROGRAMS), f"{r[best]:.2f}x {best}", f"{movement(times):.2f}x"]


UPDATE_PEERS = ["torch fused", "torch foreach", "torch compiled", "jax"]
UPDATES = {"optimizer-124m": ("optimizer-124m", False), "optimizer-124m-300": ("optimizer-124m-300", False),
           "optimizer-124m-bf16": ("optimizer-124m", True)}  # with a copy of the parameters in bf16


def measure_update(name, folder, rounds, options):
    workload, bf16 = UPDATES[name]
    return time_update(workload, folder, rounds, bf16=bf16, options=options)


def update_cells(times):
    ours, limit = times["trainc"], times["limit"]
    kernel = limit[LIMIT if LIMIT in limit else LIMIT_WITH_COPY]
    peers = [times[p]["step_ms"] for p in UPDATE_PEERS]
    return [*(ms(ours[part]) for part in ("step_ms", "norm", "update")), *map(ms, (kernel, limit[READ], *peers)),
            f"{median(per_round(kernel, ours['update'])):.2f}", f"{median(per_round(ours['step_ms'], kernel)):.2f}",
            *(faster(peer, ours["step_ms"]) for peer in peers), f"{max(kernel) / min(kernel):.2f}x"]


def measure_ablation(name, folder, rounds, _):
    return time_fusion(name, folder, rounds) if name in MANY_TENSORS else time_casts(name, folder, rounds)


def ablation_cells(times):
    return [*(ms(times[side][part]) for part in ("step_ms", "apply") for side in ("on", "off")),
            f"{100 * (median(gains(times)) - 1):+.1f} %", f"{median(gains(times, 'apply')):.2f}x",
            f"{times['on']['commands']}, {times['off']['commands']}", f"{timing_passes.movement(times):.2f}x"]


RANK_PARTS = ["reduce_scatter", "norm", "all_reduce", "update", "all_gather"]


def measure_ranks(name, folder, rounds, options):
    return time_zero1(name, folder, rounds, options)


def rank_cells(times):
    ours, alone, torch = (times[side]["step_ms"] for side in ("sharded", "alone", "torch zero1"))
    return [ms(ours), *(ms(times["sharded"].get(part, [0])) for part in RANK_PARTS), ms(alone), ms(torch), faster(torch, ours),
            f"{median(per_round(ours, alone)):.2f}", f"{max(alone) / min(alone):.2f}x"]


SUITES = {
    "step": Suite(["gpt2-124m", "gpt-char", "many-small", "mlp-tiny", "digits-cnn"],
                  [*(f"{p} ms" for p in STEP_PROGRAMS), "faster than the best peer", "limit moved"],
                  measure_step, step_cells),
    "optimizer": Suite(list(UPDATES),
                       ["trainc ms", "norm ms", "update ms", "limit ms", "read ms", *(f"{p} ms" for p in UPDATE_PEERS),
                        "limit / update", "trainc / limit", *(f"faster than {p}" for p in UPDATE_PEERS), "limit moved"],
                       measure_update, update_cells),
    "ablation": Suite([*MANY_TENSORS, *BF16],
                      ["on ms", "off ms", "apply on ms", "apply off ms", "tokens/s", "apply faster",
                       "commands of apply on, off", "off moved"], measure_ablation, ablation_cells),
    "ranks": Suite(["optimizer-124m"],
                   ["sharded ms", *(f"{part} ms" for part in RANK_PARTS), "alone ms", "torch zero1 ms",
                    "faster than torch", "sharded / alone", "alone moved"], measure_ranks, rank_cells),
}


def run_on_gpu(a):
    from timing_cuda import ARCHS, has_device, pack
    only = [word for part in a.part or [] for word in ("--only", part)]
    options = dict(archs=ARCHS if a.cuda_arch is None else a.cuda_arch, sizes=["tiny"] if a.tiny else ["full", "tiny"])
    if a.part:
        options["parts"] = a.part
    if a.pack:
        return bool(pack(a.pack, **options))
    if not has_device():
        sys.exit("run.py: there is no GPU here; with --pack FOLDER the suite is made for a machine that has one")
    with tempfile.TemporaryDirectory() as folder:
        pack(folder, **options)
        return subprocess.call([sys.executable, f"{folder}/run.py", *only, *(["--json", os.path.abspath(a.json)] if a.json else [])])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--suite", choices=[*SUITES, "cuda"], default="step")
    p.add_argument("--workload", action="append", help="only this one")
    p.add_argument("--rounds", type=int, default=ROUNDS)
    p.add_argument("--disable-pass", action="append", default=[], metavar="NAME", help="compile ours without it")
    p.add_argument("--json", help="write the times of each workload here")
    p.add_argument("--pack", metavar="FOLDER", help="cuda: make what is carried to a GPU, in a new folder")
    p.add_argument("--cuda-arch", metavar="ARCH,...", help="cuda: GPUs to compile for; '' for the driver of tests alone")
    p.add_argument("--part", action="append", help="cuda: only this part, see bench/cuda/catalog.py")
    p.add_argument("--tiny", action="store_true", help="cuda: only what a dry run needs")
    a = p.parse_args()
    if a.suite == "cuda":
        from timing_cuda import catalog
        for part in a.part or []:
            if part not in catalog.PARTS:
                p.error(f"expected one of the parts {', '.join(catalog.PARTS)}, got '{part}'")
        try:
            return run_on_gpu(a)
        except Failed as e:
            sys.exit(f"run.py: {e}")
    suite, results, failed = SUITES[a.suite], {}, False
    if a.suite == "ablation" and a.disable_pass:
        p.error("the ablation itself says which passes are disabled")
    for name in a.workload or []:
        if name not in suite.names:
            p.error(f"expected one of {', '.join(suite.names)}, got '{name}'")
    print(f"| workload | {' | '.join(suite.columns)} |\n|{'---|' * (1 + len(suite.columns))}")
    for name in a.workload or suite.names:
        with tempfile.TemporaryDirectory() as folder:
            try:
                results[name] = suite.measure(name, folder, a.rounds, [f"--disable-pass={d}" for d in a.disable_pass])
                print(f"| {' | '.join([name, *suite.cells(results[name])])} |", flush=True)
            except Failed as e:
                failed = True
                print(f"| {name} | {e} |", flush=True)
    if a.json:
        with open(a.json, "w") as f:
            json.dump(results, f)
    return failed


if __name__ == "__main__":
    sys.exit(main())
