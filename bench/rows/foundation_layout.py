"""The row on the layout: steps without train-coalesce, where each parameter is a bucket of its own, against steps with it."""
import os
from statistics import median

import audit
import digests
from common import compile_module, tool, workload_module
from rows import judge
from rows.ablation import folder_of
from rows.optimizer import moved
from timing import ROUNDS, take_turns
from timing_compile import time_compilations
from timing_passes import gains, movement, time_pair
from timing_ranks import ranks_command
from timing_update import per_round
from workloads import WORKLOADS, parameters

NAMES = ["many-small", "gpt2-124m", "gpt-deep"]
PASS, MODES, TIMED, RANKS = "train-coalesce", ("none", "optimizer", "gradients", "parameters"), "optimizer", 2
COMPILATIONS, WINDOWS = 3, 4
SIDES = {"on": [], "off": [f"--disable-pass={PASS}"]}


def libraries(text, folder, *options):
    return {side: compile_module(text, os.path.join(folder, f"{side}.so"), *options, *more) for side, more in SIDES.items()}


def digest(library, ranks):
    """What a training on it gives: one digest, if the ranks agree."""
    return sorted(set(digests.run(digests.training, library, ranks)))


def differs(pair, ranks):
    on, off = (digest(library, ranks) for library in pair.values())
    return on != off or len(on) != 1


def time_ranks(name, pair, folder, rounds):
    """{side: what take_turns() returns}."""
    commands = {side: ranks_command(library, name, "--whole") for side, library in pair.items()}
    return take_turns(commands, folder, rounds, WINDOWS, ours=audit.Ours(name))


def measure(name, folder, rounds):
    """(text, what is wrong) of a workload."""
    w, wrong = WORKLOADS[name], []
    text = workload_module(w)
    pair = libraries(text, folder)
    alone = time_pair(pair, w.vocab, rounds)  # fails if a parameter differs
    if differs(pair, 1):
        wrong.append(f"{name}: bits differ on one rank")
    module = os.path.join(folder, "on.mlir")
    commands = {side: [tool("trainc"), module, "-o", os.path.join(folder, f"{side}.so"), *more] for side, more in SIDES.items()}
    compilations = time_compilations(commands, COMPILATIONS)
    for mode in MODES:
        pair = libraries(text, folder, f"--mesh=data={RANKS}", f"--shard={mode}")
        if differs(pair, RANKS):
            wrong.append(f"{name}: bits differ on {RANKS} ranks, {mode}")
        if mode == TIMED:
            ranks = time_ranks(name, pair, folder, rounds)
    return (f"{name}, {len(parameters(w))} tensors: {median(gains(alone)):.2f}x on 1 rank (moved {movement(alone):.2f}x),"
            f" {median(gains(ranks)):.2f}x on {RANKS}, {TIMED} (moved {movement(ranks):.2f}x), compilation"
            f" {median(per_round(compilations['off'], compilations['on'])):.2f}x of"
            f" {median(compilations['on']) / 1e3:.2f} s (moved {moved(compilations['on']):.2f}x)", wrong)


def layout(folder, names=NAMES, rounds=ROUNDS):
    texts, wrong = [], []
    for name in names:
        text, faults = measure(name, folder_of(folder, name), rounds)
        texts.append(text)
        wrong += faults
    return judge(not wrong, "; ".join([f"time without {PASS} over that with it: {texts[0]}", *texts[1:],
                                       *(wrong or [f"bits equal in {', '.join(MODES)}"])]))
