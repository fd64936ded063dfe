"""Timing ranks: several processes that train together, against the same otherwise compiled, in turns."""
import contextlib
import json
import os
import statistics
import sys
from dataclasses import replace

import audit
from common import PEERS, ROOT, compile_module, run, workload_module
from timing import ROUNDS, Served, take_turns
from timing_update import update_module
from workloads import WORKLOADS, describe

STEPS, RANKS = 10, 2


def ranks_command(library, workload, *options, ranks=RANKS):
    return [sys.executable, os.path.join(ROOT, "bench", "serve_ranks.py"), library, workload, str(ranks), *options]


TORCH = {"torch zero1": "zero1", "torch ddp": "ddp", "torch fsdp": "fsdp"}


def torch_update(strategy, workload, steps):
    """Milliseconds of gradients' all-reduce or reduce-scatter, clip and update: the median of each over `steps` steps. Neither is
    what writes the gradients, nor what FSDP gathers in the forward pass."""
    done = run([sys.executable, os.path.join(PEERS, "zero1_torch.py"), "--workload", workload, "--strategy", strategy, "--ranks",
                str(RANKS), "--steps", str(steps)], cwd=PEERS, timeout=1200)
    answer = json.loads(done.stdout.strip().splitlines()[-1])
    audit.note(f"torch {strategy}", answer["settings"], answer["dtype"], f"{answer['ranks']} ranks x {answer['threads']}",
               describe(workload))
    exchange = answer["backward_and_all_reduce_ms_median"] - answer["backward_alone_ms_median"]
    return exchange + answer["optimizer_ms_median"]


def time_zero1(name, folder, rounds=ROUNDS, options=()):
    """{program: {part: [median ms of each round]}} of the update of a workload: 'sharded' over ranks, 'alone' on each of them
    at once, whole and without communication, and those of TORCH."""
    text = update_module(WORKLOADS[name])
    sharded = compile_module(text, os.path.join(folder, "sharded.so"), f"--mesh=data={RANKS}", "--shard=optimizer", *options)
    alone = compile_module(text, os.path.join(folder, "alone.so"), *options)
    commands = dict(sharded=ranks_command(sharded, name), alone=ranks_command(alone, name, "--alone"))
    times = {peer: dict(step_ms=[]) for peer in TORCH}
    with contextlib.ExitStack() as stack:
        served = [stack.enter_context(Served(program, command, folder)) for program, command in commands.items()]
        for s in served:
            s.answer()
            audit.Ours(name, options=tuple(options)).note(s.name, f"{RANKS} ranks x 1")
        for turn in range(rounds + 1):  # the first turn only warms up
            for s in served:
                for part, ms in s.block(STEPS).items():
                    if turn:
                        times.setdefault(s.name, {}).setdefault(part, []).append(statistics.median(ms))
            for peer, strategy in TORCH.items() if turn else ():
                times[peer]["step_ms"].append(torch_update(strategy, name, STEPS))
    return times


def time_hoisting(name, accumulate, mode, folder, rounds, windows):
    """({side: bytes of a rank}, what take_turns() returns) of a workload in bf16 on 2 ranks: 'on' with copies of parameters that the update writes,
    'off' with casts in every micro-step. A micro-step has the workload's batch, of at least a row for each rank."""
    w = WORKLOADS[name]
    w = replace(w, batch=max(w.batch, RANKS), accumulate=accumulate)
    text, commands, ready = workload_module(w, "--bf16"), {}, {}
    for side, options in (("on", []), ("off", ["--disable-pass=train-hoist-casts"])):
        library = compile_module(text, os.path.join(folder, f"{mode}-{accumulate}-{side}.so"), f"--mesh=data={RANKS}",
                                 f"--shard={mode}", *options)
        commands[side] = ranks_command(library, name, "--whole")
    times = take_turns(commands, folder, rounds, windows, ready)
    return {side: about["bytes"] for side, about in ready.items()}, times
