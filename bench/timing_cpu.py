"""Timing steps on the processor against peers and against its peaks of arithmetic, in turns."""
import os
import sys
from statistics import median

from audit import Ours
from common import PEERS
from timing import (ROUNDS, WIDE_RESIDUAL, limit_program, moving_kernel, our_command, our_files, peer_commands, precision, steps_of,
                    take_turns)
from timing_update import per_round
from workloads import WORKLOADS, flops

PEAKS = {False: "fma_registers", True: "bf16_registers"}  # by whether the step is in bf16
AMX = "amx_registers"
# Holds a program to AVX2: our runtime, ATen and Inductor, oneDNN, MKL, XLA.
AVX2 = ["env", "TRAINC_AVX2_ONLY=1", "ATEN_CPU_CAPABILITY=avx2", "ONEDNN_MAX_CPU_ISA=AVX2", "MKL_ENABLE_INSTRUCTIONS=AVX2",
        "XLA_FLAGS=--xla_cpu_max_isa=AVX2"]
FREE = "trainc with all"  # of the processor, where 'trainc' is restricted to some
WIDE = "trainc, residual in f32"  # beside 'trainc' in bf16, which has it in bf16


class StepTimes:
    """Of a workload: {program: [median ms of each round]} of ours ('trainc') and the peers, the same of the limit's
    kernels, and what each of these computes in FLOPs."""

    def __init__(self, name, bf16, times, work):
        self.name, self.bf16, self.limits, self.work = name, bf16, times.pop("limit"), work
        self.ms = {program: parts["step_ms"] for program, parts in times.items()}
        kernel = self.limits.get(moving_kernel(name)) or self.limits["step_ms"]
        self.moved = max(kernel) / min(kernel)

    def ours(self):
        return median(self.ms["trainc"])

    def ratios(self, peer):
        """Peer / ours of each round."""
        return per_round(self.ms[peer], self.ms["trainc"])

    def best_peer(self, among=None):
        return min(among or (p for p in self.ms if not p.startswith("trainc")), key=lambda peer: median(self.ratios(peer)))

    def shares(self, peak):
        """Of each round: the step's FLOPs per second over those of a kernel."""
        step = flops(WORKLOADS[self.name])
        return [step * limit / (ours * self.work[peak]) for ours, limit in zip(self.ms["trainc"], self.limits[peak])]


def ort_command(name):
    return [sys.executable, os.path.join(PEERS, "ort_peer.py"), "--workload", name, "--serve"]


def time_step(name, folder, bf16=False, rounds=ROUNDS, options=(), peaks=False, more=None, held=()):
    """StepTimes of a workload. With `peaks` the limit includes the peaks of arithmetic; `more` are other peers {name: command}.
    The words `held` stand before our command and those of peers, and ours takes its turn without them, too, as FREE. A transformer in
    bf16 takes its turn with the peers' residual stream, too, as WIDE."""
    ours = [*our_command(our_files(name, folder, *options, bf16=bf16)), "--serve"]
    peers = {peer: [*held, *c, "--serve"] for peer, c in peer_commands(name, *precision(bf16)).items()}
    beside = {FREE: ours} if held else {}
    if bf16 and WORKLOADS[name].kind == "gpt":
        place = os.path.join(folder, "wide")
        os.makedirs(place)
        beside[WIDE] = [*held, *our_command(our_files(name, place, *options, bf16=True, more=WIDE_RESIDUAL)), "--serve"]
    commands = {"trainc": [*held, *ours], **beside, **peers, **(more or {}),
                "limit": [limit_program(), "serve", moving_kernel(name), *(["registers"] if peaks else [])]}
    ready = {}
    noted = {"trainc": Ours(name, bf16, (*options, *(f"({word})" for word in held if "=" in word))), FREE: Ours(name, bf16, tuple(options)),
             WIDE: Ours(name, bf16, tuple(options), wide=True)}
    times = take_turns(commands, folder, rounds, steps_of(name), ready, ours=noted)
    return StepTimes(name, bf16, times, ready["limit"]["limits"])
