"""Rows on whole steps against what the machine can do, and models of PyTorch against PyTorch, as the machine is and restricted to AVX2."""
import ctypes.util
import json
import os
from dataclasses import replace
from statistics import median

import audit
import results as tables
from common import ENVIRONMENT, Failed, compile_module, generate, run, tool, workload_module, write_npy
from rows import Outcome, judge_ratios, pytorch, worst
from rows.cpu_steps import PIECES, against_peers
from rows.pytorch import STEPS, against_best, for_each_model, group, peaks_of, peers_of, step_of, timed
from timing import limit_program, our_command, our_files, precision, steps_of, take_turns
from timing_cpu import AMX, AVX2, time_step
from timing_update import per_round
from workloads import WORKLOADS

V3 = "x86-64-v3"
BELOW_AMX = ["env", "ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16"]


def has(unit):
    return unit in tables.family().replace(",", "").split()


# Shares of the limit: the flops of a step's products, without recomputation, at the peak of the fastest unit for their type, and the
# bytes of its state and of what it keeps for gradients of products at the bandwidth of a copy (trainc --work-report).

LIMITED = ("gpt2-124m", "gpt-char", "gpt-char-bf16", "bert-base", "resnet18", "many-small")
SHARES = {"AVX2": 0.75, "AVX-512": 0.70, "AMX": 0.58, "AMX bf16": 0.42}
SMALL_SHARES = {"AVX2": 0.40, "AVX-512": 0.32, "AMX": 0.25}


def levels():
    """{widest unit: (the CPU that ours is compiled for, words before each command, that of the limit's kernels)}."""
    widest = next(unit for unit in ("AMX", "AVX-512", "AVX2") if has(unit))
    found = {widest: ("native", [], "native")}
    if widest == "AMX":
        found["AVX-512"] = ("cooperlake", BELOW_AMX, "native")  # all that this machine has but AMX, AVX512-BF16, too
    if widest != "AVX2":
        found["AVX2"] = (V3, AVX2, V3)
    return found


def noted(cpu, held, *options):
    """What the table says of an artifact for a CPU whose program is held to a level."""
    return (f"--target-cpu={cpu}", *options, *(f"({word})" for word in held if "=" in word))


def work_of(report):
    """(flops by type, bytes) of an update of the only step."""
    step, = json.loads(report)["steps"]
    k = step["accumulate"]
    return {kind: k * flops for kind, flops in step["matrix_flops"].items()}, step["state_bytes"] + k * step["saved_bytes"]


def limited_command(name, cpu, folder):
    """(the command of a model or workload, its work)."""
    bf16, workload = name.endswith("-bf16"), name.removesuffix("-bf16")
    if workload in WORKLOADS:
        os.makedirs(folder)
        source = os.path.join(folder, "source.mlir")
        with open(source, "w") as f:
            f.write(workload_module(WORKLOADS[workload], *precision(bf16)))
        work = run([tool("trainc"), "--work-report=json", source]).stdout
        return our_command(our_files(workload, folder, f"--target-cpu={cpu}", bf16=bf16)), work_of(work)
    work = run(step_of(workload, "trainc", "--work"), env=ENVIRONMENT, timeout=1800).stdout
    return step_of(workload, "trainc", "--target-cpu", cpu), work_of(work)


def limit_ms(work, round_ms, amounts, unit):
    """Milliseconds of a step at the limits that one round had."""
    flops, moved = work

    def rate(kernel):  # per millisecond
        return amounts[kernel] / round_ms[kernel]

    peaks = {"f32": rate("fma_registers")}
    peaks["bf16"] = max(rate(k) for k in ("fma_registers", "bf16_registers", AMX) if k in amounts and (k != AMX or unit == "AMX"))
    if unit == "AMX":
        peaks["f32"] = max(peaks["f32"], rate(AMX) / PIECES)
    return sum(n / peaks[kind] for kind, n in flops.items()) + moved / rate("copy")


def shares(name, unit, folder, rounds=5):
    """(shares of the limit in each round, milliseconds of ours, its work, how far the limit moved)."""
    cpu, held, limit_cpu = levels()[unit]
    command, work = limited_command(name, cpu, os.path.join(folder, f"{name}-{unit}"))
    ready, steps = {}, steps_of(name.removesuffix("-bf16")) if name.removesuffix("-bf16") in WORKLOADS else STEPS
    times = take_turns({"trainc": [*held, *command, "--serve"], "limit": [limit_program(limit_cpu), "serve", "copy", "registers"]}, folder,
                       rounds, steps, ready, ours=audit.Ours(name.removesuffix("-bf16"), name.endswith("-bf16"), noted(cpu, held))
                       if name.removesuffix("-bf16") in WORKLOADS else None)
    amounts, ours, limit = ready["limit"]["limits"], times["trainc"]["step_ms"], times["limit"]
    limits = [limit_ms(work, {k: limit[k][i] for k in amounts}, amounts, unit) for i in range(len(ours))]
    return per_round(limits, ours), median(ours), median(limits), work, max(max(limit[k]) / min(limit[k]) for k in ("fma_registers", "copy"))


def share(folder):
    texts, statuses = [], []
    for unit in levels():
        for name in LIMITED:
            found, ours, limit, (flops, moved), drift = shares(name, unit, folder)
            if name == "many-small":
                bar = SMALL_SHARES[unit]
            else:
                bar = SHARES["AMX bf16" if unit == "AMX" and name.endswith("bf16") else unit]
            statuses.append(judge_ratios(found, lambda s, bar=bar: s >= bar, drift))
            texts.append(f"{unit} {name} {median(found):.0%} (bar {bar:.0%}; {ours:.1f} ms of {limit:.1f}: {sum(flops.values()) / 1e9:.1f} GFLOP,"
                         f" {moved / 1e6:.0f} MB; moved {drift:.2f}x)")
    return Outcome("; ".join(texts), worst(statuses))


# Models of PyTorch against PyTorch.

TRANSFORMERS = ("gpt2", "bert-base", "llama-100m", "vit-b-16")  # those of AVX2
CNNS = ("resnet18", "resnet50", "convnext-t", "mobilenetv3", "efficientnet-b0", "unet")


def with_tcmalloc(model):
    """The commands of the peers, of two of them with another allocator, too."""
    library = ctypes.util.find_library("tcmalloc_minimal")
    if not library:
        raise Failed("tcmalloc is not installed: run scripts/setup.sh --bench")
    return {**peers_of(model), **{f"{peer} with tcmalloc": ["env", f"LD_PRELOAD={library}", *step_of(model, peer)] for peer in ("eager", "compile")}}


def timed_avx2(model, folder):
    """(what `timed` gives, our share of the limit); JAX takes its turn on gpt2-124m, of which there is a twin in it."""
    if model in WORKLOADS:
        place = os.path.join(folder, model)
        os.makedirs(place)
        step = time_step(model, place, options=[f"--target-cpu={V3}"], held=AVX2)
        timing = {peer: step.ratios(peer) for peer in step.ms if not peer.startswith("trainc")}, step.ours(), step.moved, {}
    else:
        timing = timed(model, folder, ("--target-cpu", V3), AVX2, with_tcmalloc(model))
    return timing, median(shares(model, "AVX2", folder)[0])


def share_text(model, timing, share):
    """The best peer's share is ours over the ratio of the times."""
    return f"{model} {share:.0%} of the limit, the best peer {share / median(against_best(model, timing)[1]):.0%}"


def peers_avx2(folder):
    transformers = (*TRANSFORMERS, "gpt2-124m")
    found = for_each_model("avx2", lambda model: timed_avx2(model, folder), transformers + CNNS, anywhere=True)
    times = {model: timing for model, (timing, _) in found.items()}
    notes, statuses = group(times, transformers, 1.25, 1.1)
    more, others = group(times, CNNS, 1.1, 1.0)
    return Outcome("; ".join([f"transformers {notes[0]}", *notes[1:], f"CNNs {more[0]}", *more[1:],
                              *(share_text(model, *found[model]) for model in found)]), worst(statuses + others))


def small_avx2(folder):
    notes, statuses = [], []
    for name, bar in ("digits-cnn", 2.0), ("many-small", 3.0), ("mlp-tiny", 3.0):
        place = os.path.join(folder, name)
        os.makedirs(place)
        step = time_step(name, place, options=[f"--target-cpu={V3}"], held=AVX2)
        peers = [p for p in step.ms if p != "trainc" and not p.startswith("trainc with")]
        more, found = against_peers(step, bar, peers)
        notes, statuses = notes + [f"{name} {more[0]} (bar {bar}x, moved {step.moved:.2f}x)"], statuses + found
    return Outcome("; ".join(notes), worst(statuses))


def bf16_avx2(folder):
    commands, ours, option = {"limit": [limit_program(V3), "serve", "fma_registers"]}, {}, f"--target-cpu={V3}"
    for kind in "f32", "bf16":
        place = os.path.join(folder, f"gpt-char-{kind}")
        os.makedirs(place)
        commands[kind] = [*AVX2, *our_command(our_files("gpt-char", place, option, bf16=kind == "bf16")), "--serve"]
        ours[kind] = audit.Ours("gpt-char", kind == "bf16", (option,))
    turns = {side: parts["step_ms"] for side, parts in take_turns(commands, folder, 5, steps_of("gpt-char"), ours=ours).items()}
    ratios, drift = per_round(turns["bf16"], turns["f32"]), max(turns["limit"]) / min(turns["limit"])
    return Outcome(f"gpt-char in bf16 {median(ratios):.2f}x the time of f32 (moved {drift:.2f}x)",
                   judge_ratios(ratios, lambda r: r <= 1.05, drift))


TRANSFORMERS_FASTER = {"AMX": 1.8, "AVX-512": 1.4}


def peers(folder):
    """As the machine is; peak memory is that of a process that has loaded the artifact, as in the row of PyTorch models."""
    unit = next((unit for unit in TRANSFORMERS_FASTER if has(unit)), None)
    if not unit:
        return Outcome("its bars are those of AVX2: row peers-avx2", "cannot run here (no AVX-512)")
    times = for_each_model("peers", lambda model: timed(model, folder), pytorch.TRANSFORMERS + CNNS)
    notes, statuses = group(times, pytorch.TRANSFORMERS, TRANSFORMERS_FASTER[unit], 1.0)
    more, found = group(times, CNNS, 1.2, 1.0)
    notes, statuses = [f"transformers {notes[0]}", *notes[1:], f"CNNs {more[0]}", *more[1:]], statuses + found
    for model in CNNS:
        ours, theirs = peaks_of(model)
        statuses.append("ok" if ours["alone_peak_mb"] <= theirs["peak_mb"] else "short")
        notes.append(f"{model} {ours['alone_peak_mb']:.0f} of {theirs['peak_mb']:.0f} MB")
    return Outcome("; ".join(notes), worst(statuses))


# The loss head: what it costs and saves against logits that stand whole.

HEAD_TIME, HEAD_SAVES = 1.03, 0.70
LEFT_OUT = "--disable-pass=train-form-loss-heads"
GPT_HEAD = replace(WORKLOADS["gpt2-124m"], tokens=1024)
LLAMA_HEAD = dict(layers=4, width=768, heads=12, kv_heads=4, hidden=2048, vocab=128256, seq=512, batch=2)


def heads():
    """{name: (module, rows, classes)}."""
    llama = LLAMA_HEAD
    options = [word for name, value in llama.items() for word in (f"--{name.replace('_', '-')}", value)]
    return {"gpt2-124m 4 x 1024": (workload_module(GPT_HEAD), 4 * 1024, GPT_HEAD.vocab),
            "Llama with 128k classes 2 x 512": (generate("llama", *options), llama["batch"] * llama["seq"], llama["vocab"])}


def loss_head(folder):
    import numpy as np
    texts, statuses = [], []
    for name, (text, rows, classes) in heads().items():
        place = os.path.join(folder, name.replace(" ", "-"))
        os.makedirs(place)
        tokens = write_npy(os.path.join(place, "tokens.npy"), np.random.default_rng(1).integers(0, classes, 40 * rows).astype(np.int32))
        commands, totals = {"limit": [limit_program(), "serve", "update_4r3w"]}, {}
        for kind, options in ("heads", []), ("logits", [LEFT_OUT]):
            source = os.path.join(place, f"{kind}.mlir")
            with open(source, "w") as f:
                f.write(text)
            totals[kind] = json.loads(run([tool("trainc"), "--memory-report=json", source, *options]).stdout)["total"]
            library = compile_module(text, os.path.join(place, f"{kind}.so"), *options)
            commands[kind] = [tool("trainc-run"), library, "--data", tokens, "--serve"]
        times = {side: parts["step_ms"] for side, parts in take_turns(commands, place, 5, 2).items()}
        drift, ratios = max(times["limit"]) / min(times["limit"]), per_round(times["heads"], times["logits"])
        saved = (totals["logits"] - totals["heads"]) / (2 * rows * classes * 4)
        statuses += [judge_ratios(ratios, lambda r: r <= HEAD_TIME, drift), "ok" if saved >= HEAD_SAVES else "short"]
        texts.append(f"{name}: {median(ratios):.2f}x the time of logits that stand whole (moved {drift:.2f}x), less memory by {saved:.0%} of"
                     f" logits and their gradient: {totals['heads'] / 1e6:.0f} of {totals['logits'] / 1e6:.0f} MB")
    return Outcome("; ".join(texts), worst(statuses))
