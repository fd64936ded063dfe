"""Rows on whole steps on the processor: against peers, and as a share of the processor's peak."""
import importlib.util
import os
import subprocess
import sys
from dataclasses import dataclass
from statistics import median

from common import PEERS, Failed
from rows import Outcome, Row, judge_ratios, worst
from timing_cpu import AMX, AVX2, FREE, PEAKS, WIDE, ort_command, time_step
from timing_update import per_round

ORT = "onnx runtime"
PIECES = 6  # products of bf16 that make one of f32 on AMX


@dataclass(frozen=True)
class Bar:
    """What a workload must reach; goals are printed, not judged."""
    workload: str
    faster: float
    bf16: bool = False
    share: float = None  # of the register peak
    faster_goal: float = None
    share_goal: float = None

    def name(self):
        return f"{self.workload}-bf16" if self.bf16 else self.workload

    def figure(self):
        return f"{self.workload} {'bf16' if self.bf16 else 'f32'}"

    def text(self):
        def least(form, value, goal):
            return f">= {form.format(value)}" + (f" (goal {form.format(goal)})" if goal else "")

        text = least("{:g} x", self.faster, self.faster_goal) + " faster than the best of PyTorch eager, compile and JAX"
        if self.share:
            peak = f"{'bf16' if self.bf16 else 'f32'} register peak"
            text += "; " + least("{:.0%}", self.share, self.share_goal) + f" of the {peak} over the whole step's flops"
        return text

    def row(self):
        return Row(self.name(), self.figure(), self.text(), self.measure)

    def measure(self, folder):
        times = time_step(self.workload, folder, self.bf16, peaks=self.share is not None)
        notes, statuses = against_peers(times, self.faster)
        if WIDE in times.ms:
            wide = per_round(times.ms[times.best_peer()], times.ms[WIDE])
            notes.append(f"{median(wide):.2f}x with the residual stream in f32, as PyTorch has it")
        if self.share:
            shares = times.shares(peak_of(times))
            statuses.append(judge_ratios(shares, lambda r: r >= self.share, times.moved))
            notes += [f"{median(shares):.0%} of the register peak", *beside(times)]
        return Outcome(f"{'; '.join(notes)} (limit moved {times.moved:.2f}x)", worst(statuses))


STEPS = [
    Bar("gpt2-124m", 1.6, share=0.70, faster_goal=1.8, share_goal=0.78),
    Bar("gpt2-124m", 1.6, bf16=True, share=0.60),
    Bar("gpt-char", 1.9, share=0.70, share_goal=0.78),
    Bar("gpt-char", 1.35, bf16=True, share=0.55, share_goal=0.78),
    Bar("many-small", 3, faster_goal=4),
    Bar("digits-cnn", 2, faster_goal=3),
    Bar("gpt-char-accum4", 1.6, share=0.70),
]


def ms(value):
    return f"{value:.3g} ms" if value < 1 else f"{value:.1f} ms"


def against_peers(times, faster, among=None):
    """(notes, statuses) of the ratio to the best peer."""
    best = times.best_peer(among)
    ratios = times.ratios(best)
    return ([f"{ms(times.ours())}, {median(ratios):.2f}x {best} ({ms(median(times.ms[best]))})"],
            [judge_ratios(ratios, lambda r: r >= faster, times.moved)])


def peak_of(times):
    kernel = PEAKS[times.bf16]
    if kernel not in times.limits:
        raise Failed(f"this processor has no peak {kernel}: {', '.join(times.limits)}")
    return kernel


def beside(times):
    """What else belongs to the share where the processor has AMX, which is not among its vector registers: products of f32
    go through it, too, as six of bf16 each."""
    if AMX not in times.limits:
        return []
    share = median(times.shares(AMX))
    return [f"{share:.0%} of AMX's peak" if times.bf16 else f"{PIECES * share:.0%} of a {PIECES}th of AMX's bf16 peak"]


# The smallest model.

def install_ort():
    """Into the environment that this runs in."""
    if not importlib.util.find_spec("onnxruntime"):
        requirements = os.path.join(PEERS, "requirements-ort.txt")
        done = subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-r", requirements],
                              stdout=sys.stderr)
        if done.returncode:
            raise Failed("pip cannot install ONNX Runtime's training")


FASTER, FASTER_THAN_ORT, MICROSECONDS = 3, 2, 10


def mlp_tiny(folder):
    install_ort()
    times = time_step("mlp-tiny", folder, more={ORT: ort_command("mlp-tiny")})
    notes, statuses = against_peers(times, FASTER, [p for p in times.ms if p not in ("trainc", ORT)])
    ratios, micros = times.ratios(ORT), [1e3 * t for t in times.ms["trainc"]]
    statuses += [judge_ratios(ratios, lambda r: r >= FASTER_THAN_ORT, times.moved),
                 judge_ratios(micros, lambda t: t <= MICROSECONDS, times.moved)]
    return Outcome(f"{median(micros):.1f} microseconds; {notes[0]}; {median(ratios):.2f}x {ORT} ({ms(median(times.ms[ORT]))})"
                   f" (limit moved {times.moved:.2f}x)", worst(statuses))


# Code for other processors.

PORTABLE = 1.2


def portable(folder):
    """The artifact has no instruction above AVX2, and all programs are restricted to it; beside it the artifact as it runs here,
    where products are the runtime's for this processor."""
    times = time_step("gpt-char", folder, options=["--target-cpu=x86-64-v3"], held=AVX2)
    notes, statuses = against_peers(times, PORTABLE, [p for p in times.ms if p not in ("trainc", FREE)])
    free = median(f / b for f, b in zip(times.ms["trainc"], times.ms[FREE]))
    return Outcome(f"{notes[0]}, all restricted to AVX2; {free:.2f}x faster with the products of this processor (limit moved"
                   f" {times.moved:.2f}x)", worst(statuses))
