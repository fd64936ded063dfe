"""Rows on what the step passes are worth: a step with a pass against the same without it."""
import os
from dataclasses import replace
from statistics import median

from common import compile_module, workload_module
from rows import Outcome, judge, judge_ratios, worst
from timing_passes import (BF16, MANY_TENSORS, cast_elements, gains, many_tensors, movement, time_casts, time_fusion,
                           time_window_of_one)
from workloads import WORKLOADS

NOT_SLOWER, EQUAL = 0.98, 0.02
FUSION_GAIN, CASTS_GAIN = 1.138, 1.0696  # published for the passes that these generalise


def folder_of(folder, name):
    path = os.path.join(folder, name.replace(" ", "-"))
    os.mkdir(path)
    return path


def percent(ratios):
    return f"{100 * (median(ratios) - 1):+.1f} %"


def fusion(folder):
    """One norm and one update for all tensors against them per tensor, on GPTs of 304 tensors."""
    parts, statuses, best = [], [], []
    for point in MANY_TENSORS:
        times = time_fusion(point, folder_of(folder, point))
        step, phase = gains(times), gains(times, "apply")
        statuses += [judge_ratios(step, lambda r: r >= NOT_SLOWER, movement(times)),
                     judge_ratios(phase, lambda r: r > 1, movement(times))]
        best.append(judge_ratios(step, lambda r: r >= FUSION_GAIN, movement(times)))
        parts.append(f"{point} {percent(step)} (update {median(phase):.2f}x)")
    statuses.append("ok" if "ok" in best else worst(best))
    return Outcome(f"tokens/s by width x tokens: {', '.join(parts)}; {times['on']['commands']} commands against"
                   f" {times['off']['commands']}", worst(statuses))


def casts(folder):
    """Parameters in bf16 written by the update against casts in every micro-step."""
    parts, statuses = [], []
    for name in BF16:
        times = time_casts(name, folder_of(folder, name))
        least = CASTS_GAIN if name == "gpt2-124m-accum4" else NOT_SLOWER
        statuses.append(judge_ratios(gains(times), lambda r: r >= least, movement(times)))
        parts.append(f"{name} {percent(gains(times))}")
    return Outcome("; ".join(parts), worst(statuses))


def cast_count(folder):
    """Elements of parameters cast in a window, counted while it runs."""
    small, counts, good = replace(WORKLOADS["gpt-char"], batch=2, tokens=64, context=64), [], True
    for recompute in ([], ["--recompute"]):
        for k in (1, 4, 16):
            inside = folder_of(folder, f"{k}{''.join(recompute)}")
            text = workload_module(replace(small, accumulate=k), "--bf16", *recompute)
            on, n = cast_elements(compile_module(text, os.path.join(inside, "on.so")), small.vocab)
            off, _ = cast_elements(compile_module(text, os.path.join(inside, "off.so"),
                                                  "--disable-pass=train-hoist-casts"), small.vocab)
            good &= on == n > 0
            how = f"k = {k}{' recomputed' if recompute else ''}"
            counts.append(f"{how}: {on / max(n, 1):.2f} against {off / max(n, 1):.2f}")
    return judge(good, f"casts per window, of {n:,} elements: {'; '.join(counts)}")


def window_of_one(folder):
    """`accumulate(1)` against no such clause: the same forms, the same library, the same time."""
    pairs = time_window_of_one(many_tensors("64 x 64"), folder)
    ratio = sum(median(gains(times)) for times in pairs) / len(pairs)
    return Outcome(f"forms and library equal; time {ratio:.3f}",
                   judge_ratios([ratio], lambda r: abs(r - 1) <= EQUAL, max(map(movement, pairs))))
