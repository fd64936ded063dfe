"""Rows on the update alone: clip and AdamW of 124 million parameters, of gradients that stand in memory."""
from statistics import median

from rows import Outcome, judge_ratios, worst
from timing_update import LIMIT, LIMIT_WITH_COPY, per_round, time_tensor_counts, time_update

WORKLOADS = ["optimizer-124m", "optimizer-124m-300"]
UPDATE_SPEED, BOTH, EVEN, FASTER_THAN_TORCH, FASTER_THAN_OPTAX, COPY_SPEED = 0.95, 1.30, 0.03, 1.3, 2.7, 0.93


def moved(kernel):
    return max(kernel) / min(kernel)


def update_limit(folder):
    """Norm and update against the limit kernel, and 148 tensors against 300."""
    times = time_tensor_counts(folder)
    kernel = times["limit"][LIMIT]
    parts, statuses = [], []

    def bar(text, ratios, good):
        statuses.append(judge_ratios(ratios, good, moved(kernel)))
        parts.append(text.format(median(ratios)))

    for program, tensors in (("few", 148), ("many", 300)):
        ours = times[program]
        bar(f"{tensors} tensors: update at {{:.2f}} of the limit's speed", per_round(kernel, ours["update"]),
            lambda r: r >= UPDATE_SPEED)
        bar("whole call {:.2f} of its time", per_round(ours["step_ms"], kernel), lambda r: r <= BOTH)
    bar("300 against 148 {:.3f}", per_round(times["many"]["step_ms"], times["few"]["step_ms"]),
        lambda r: abs(r - 1) <= EVEN)
    return Outcome("; ".join(parts) + f" (limit moved {moved(kernel):.2f}x)", worst(statuses))


def update_peers(folder):
    parts, statuses = [], []
    for name in WORKLOADS:
        times = time_update(name, folder)
        kernel = times["limit"][LIMIT]
        ratios = {peer: per_round(t["step_ms"], times["trainc"]["step_ms"]) for peer, t in times.items()
                  if peer not in ("trainc", "limit")}
        torch = min((peer for peer in ratios if peer != "jax"), key=lambda peer: median(ratios[peer]))
        statuses += [judge_ratios(ratios[torch], lambda r: r >= FASTER_THAN_TORCH, moved(kernel)),
                     judge_ratios(ratios["jax"], lambda r: r >= FASTER_THAN_OPTAX, moved(kernel))]
        parts.append(f"{name} {median(ratios[torch]):.2f}x {torch}, {median(ratios['jax']):.2f}x optax"
                     f" (limit moved {moved(kernel):.2f}x)")
    return Outcome("; ".join(parts), worst(statuses))


def update_copy(folder):
    """The update that also writes the parameters in bf16, against the limit kernel that does."""
    times = time_update("optimizer-124m", folder, peers=False, bf16=True)
    kernel = times["limit"][LIMIT_WITH_COPY]
    ratios = per_round(kernel, times["trainc"]["update"])
    return Outcome(f"update at {median(ratios):.2f} of the limit's speed (limit moved {moved(kernel):.2f}x)",
                   judge_ratios(ratios, lambda r: r >= COPY_SPEED, moved(kernel)))
