#!/usr/bin/env python3
"""Times compiled steps against PyTorch, JAX and the machine's limit, all taking turns in one run, and prints ratios.

usage: run.py --suite step [--workload NAME ...] [--rounds N] [--disable-pass NAME ...] [--json FILE]

Needs the environment of bench/peers/requirements.txt (bench/check.py makes it in .venv-bench) and an idle machine. A
ratio is the median over the rounds of the peer's time divided by ours in the same round.
"""
import argparse
import json
import statistics
import sys
import tempfile

from common import Failed
from timing import ROUNDS, movement, ratios, time_workload

SUITES = {"step": ["gpt2-124m", "gpt-char", "many-small", "mlp-tiny", "digits-cnn"]}
PROGRAMS = ["trainc", "torch eager", "torch compile", "jax"]


def ms(times):
    return f"{statistics.median(times):.3g}"


def line(name, times):
    r = {peer: statistics.median(v) for peer, v in ratios(times).items()}
    best = min(r, key=r.get)
    cells = [name, *(ms(times[p]) for p in PROGRAMS), f"{r[best]:.2f}x {best}", f"{movement(times):.2f}x"]
    return "| " + " | ".join(cells) + " |"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--suite", choices=SUITES, default="step")
    p.add_argument("--workload", action="append", help="only this one")
    p.add_argument("--rounds", type=int, default=ROUNDS)
    p.add_argument("--disable-pass", action="append", default=[], metavar="NAME", help="compile ours without it")
    p.add_argument("--json", help="write {workload: {program: [ms of each round]}} here")
    a = p.parse_args()
    results, failed = {}, False
    print(f"| workload | {' ms | '.join(PROGRAMS)} ms | faster than the best peer | limit moved |\n|{'---|' * 7}")
    for name in a.workload or SUITES[a.suite]:
        with tempfile.TemporaryDirectory() as folder:
            try:
                results[name] = time_workload(name, folder, a.rounds,
                                              options=[f"--disable-pass={d}" for d in a.disable_pass])
                print(line(name, results[name]), flush=True)
            except Failed as e:
                failed = True
                print(f"| {name} | {e} |", flush=True)
    if a.json:
        with open(a.json, "w") as f:
            json.dump(results, f)
    return failed


if __name__ == "__main__":
    sys.exit(main())
