"""Rows on meshes: states, gradients and parameters in pieces, parameters in parts, several groups of ranks."""
import ctypes
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, replace
from math import prod
from statistics import median

import numpy as np

import alignment
from commands import COLLECTIVES, COMPUTE, GRADIENT, MASTER, MERGED, Event, arenas
from common import ENVIRONMENT, ROOT, compile_module, farthest, largest, run, tool, workload_module
from rows import Outcome, judge, judge_ratios, worst
from rows.ranks import ALL_MODES, CHAR, elements, formula, library_of, run_ranks
from rows.traps import TESTS, outcome
from timing import ROUNDS, STEADY


UPDATES = 20
LONG = 300


def ranks_of(mesh):
    return prod(int(size) for size in re.findall(r"=(\d+)", mesh or ""))


def alike(mesh):
    """How many ranks, one after another, read the same rows."""
    return int((re.findall(r"model=(\d+)", mesh or "") or [1])[0])


def trained(library, mesh, data, **options):
    """(loss, norm) of each window, of every rank."""
    def work(rank):
        results = [rank.step(**inputs) for inputs in data]
        return [(r.window_loss, r.grad_norm) for r in results if r.closed]
    return run_ranks(work, library, ranks_of(mesh), alike=alike(mesh), **options)


def tokens(count, batch, length, vocabulary, seed=0):
    """Sequences in which the next token follows from the last one, but for some: what a model can learn in part."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(count):
        x = rng.integers(0, vocabulary, (batch, length)).astype("i4")
        y = np.where(rng.random(x.shape) < 0.7, (x * 5 + 3) % vocabulary, rng.integers(0, vocabulary, x.shape)).astype("i4")
        found.append(dict(x=x, y=y))
    return found


def llama(k, *more):
    return subprocess.run([sys.executable, os.path.join(ROOT, "examples", "llama.py"), "--batch", "4", "--accumulate", str(k),
                           *more], stdout=subprocess.PIPE, text=True, check=True).stdout


# Mesh and mode.
WAYS = [("data=2", "gradients"), ("data=4", "gradients"), ("data=2", "parameters"), ("data=4", "parameters"),
        ("model=2", "none"), *(("data=2,model=2", mode) for mode in ALL_MODES)]


def equal(folder):
    bad, worst, runs = [], 0.0, 0
    models = [("gpt-char", lambda k, *more: workload_module(replace(CHAR, batch=4, accumulate=k), *more), CHAR.tokens, CHAR.vocab),
              ("llama", llama, 128, 128)]
    for name, module, length, vocabulary in models:
        for k in (1, 4):
            data = tokens(UPDATES * k, 4, length, vocabulary)
            text, path = module(k), os.path.join(folder, "m.so")
            one, = trained(library_of(text, path), None, data)
            for mesh, mode in WAYS:
                results = trained(library_of(text, path, mesh, mode), mesh, data)
                runs += 1
                error = largest(farthest(got, want) for got, want in zip(results[0], one))
                worst = max(worst, error)
                if error > 1e-5 or any(r != results[0] for r in results):
                    bad.append(f"{name} k = {k} {mesh} {mode}: {error:.1e}")
    spread, off = bf16_spread(folder)
    bad += [f"bf16 {way}: {distance:.4f}" for way, distance in off.items() if not distance <= spread]
    groups = outcome([os.path.join(TESTS, "reduction-groups.py")], "")
    return judge(not bad and groups.status == "ok", "; ".join([
        f"{runs} runs of gpt-char and a Llama: f32 losses and norms within {worst:.1e} of one rank",
        f"gpt-char in bf16 after {LONG} updates off by at most {max(off.values()):.1e}, seeds by {spread:.1e}",
        f"four reduction groups on 2 x 2: {groups.value}", *bad[:4]]))


def bf16_spread(folder):
    """The largest difference of the last losses of three seeds, and of those of one seed on meshes from one rank."""
    data = tokens(LONG, 4, CHAR.tokens, CHAR.vocab)
    text, path = workload_module(replace(CHAR, batch=4), "--bf16"), os.path.join(folder, "m.so")

    def last(library, mesh, **options):
        return float(np.mean([loss for loss, _ in trained(library, mesh, data, **options)[0][-20:]]))

    seeds = [last(library_of(text, path), None, seed=seed) for seed in (1, 2, 3)]
    off = {f"{mesh} {mode}": abs(last(library_of(text, path, mesh, mode), mesh) - seeds[0])
           for mesh, mode in (("model=2", "none"), ("data=2", "parameters"), ("data=2,model=2", "optimizer"))}
    return max(seeds) - min(seeds), off


# Initial values and dropout.

MESHES = ["data=2", "model=2", "data=2,model=2", "data=4", "model=4", "data=2,model=4", "host=2,data=2,model=2"]


def initial(folder):
    """An odd vocabulary, so that parts are uneven, and dropout: what is equal after an update with a rate of 0 was drawn alike."""
    text = subprocess.run([sys.executable, os.path.join(ROOT, "examples", "gpt.py"), "--layers", "2", "--width", "32", "--heads", "4",
                           "--vocab", "65", "--seq", "16", "--batch", "8"], stdout=subprocess.PIPE, text=True, check=True).stdout
    path, bad = os.path.join(folder, "m.so"), []
    one, = run_ranks(lambda rank: rank.tensors(), library_of(text, path), 1)
    for mesh in MESHES:
        for mode in ("none", "parameters"):
            for tensors in run_ranks(lambda rank: rank.tensors(), library_of(text, path, mesh, mode), ranks_of(mesh)):
                if any(tensors[key].tobytes() != value.tobytes() for key, value in one.items()):
                    bad.append(f"{mesh} {mode}")
    module = loaded("rank-traps").DROPOUT_IN_PARTS
    data = loaded("rank-traps").dropout_data()
    masks, = run_ranks(masks_of(data), compile_module(module, path), 1)
    for mesh in MESHES:
        results = run_ranks(masks_of(data), library_of(module, path, mesh), ranks_of(mesh), alike=alike(mesh))
        if any(r.tobytes() != masks.tobytes() for r in results):
            bad.append(f"masks, {mesh}")
    return judge(not bad, f"{len(one)} tensors of a GPT with an odd vocabulary, and masks of dropout, equal bit by bit on"
                 f" {len(MESHES)} meshes" if not bad else "differ: " + ", ".join(bad[:6]))


def masks_of(data):
    def work(rank):
        for inputs in data:
            rank.step(**inputs)
        return rank.trainer.read("w")
    return work


def loaded(name):
    spec = importlib.util.spec_from_file_location(name.replace("-", "_"), os.path.join(TESTS, name + ".py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# Memory.

def memory(folder):
    """Parameters that are replicated and those split over `model`, each by the formula of its own; and the workspace, in which the
    buckets lie that are in use."""
    bad, most, fullest, cells = [], 0.0, 0.0, 0
    for kind, options in (("f32", []), ("bf16", ["--bf16"])):
        text = workload_module(replace(CHAR, batch=8), *options)
        sizes = {True: 0, False: 0}
        for shape, rest in re.findall(r"train\.param @[\w.]+ : tensor<([\dx]+)xf32>(.*)", text):
            sizes["[model]" in rest] += prod(map(int, shape.split("x")))
        for mesh in (None, "data=2", "model=2", "data=4", "data=2,model=2", "data=8", "data=4,model=2"):
            parts, activations = alike(mesh), 0
            for mode, size in [(mode, size) for mode in (ALL_MODES if mesh else ALL_MODES[:1]) for size in (None, 4 << 20)
                               if not size or mode in ALL_MODES[2:]]:
                way = f"{kind} {mode} on {mesh}" + (f" in buckets of {size >> 20} MiB" if size else "")
                library = library_of(text, os.path.join(folder, "m.so"), mesh, mode, *([f"--bucket-size={size}"] if size else []))
                for held, workspace, buckets, copied in run_ranks(held_bytes, library, ranks_of(mesh)):
                    want = 0.0
                    for split, count in sizes.items():
                        own = count / (parts if split else 1)
                        want += formula(own, own if copied else 0, ranks_of(mesh) // parts, mode)
                    off = held / want - 1
                    if not size:  # small buckets have more padding
                        most, cells = max(most, abs(off)), cells + 1
                    if abs(off) > 0.02 and not size:
                        bad.append(f"{way}: {100 * off:+.1f} %")
                    if mode == "none":
                        activations = workspace
                    elif mode in ("gradients", "parameters"):
                        gradients, parameters = buckets
                        limit = activations + MOST_IN_USE * (gradients + (parameters if mode == "parameters" else 0))
                        fullest = max(fullest, workspace / limit)
                        if workspace > limit:
                            bad.append(f"{way}: workspace {workspace}, at most {limit}")
    return judge(not bad, "; ".join([f"{cells} ranks: arenas within {100 * most:.2f} % of the formulas of docs/Ranks.md; of ZeRO-2 and 3"
                                     f" the workspace is at most {fullest:.2f} of that of the replicated step and {MOST_IN_USE} buckets"
                                     " of gradients, with ZeRO-3 and as many of parameters", *sorted(set(bad))[:6]]))


MOST_IN_USE = 3  # buckets of a kind that a rank holds whole at a time


def held_bytes(rank):
    """(bytes of arenas, of the workspace, (of the largest bucket of gradients, of parameters), elements that have a copy)"""
    memory, largest = rank.trainer.memory(), {}
    for arena in arenas(rank.trainer):
        for bucket in arena.buckets[:arena.num_buckets]:
            kind = "gradients" if arena.role in (GRADIENT, MERGED) else "parameters" if arena.role in (MASTER, COMPUTE) else None
            largest[kind] = max(largest.get(kind, 0), bucket.bytes)
    return (memory.persistent, memory.workspace, (largest.get("gradients", 0), largest.get("parameters", 0)),
            elements(rank.trainer, "compute"))


# Collectives.

MICRO_STEPS = 4


class Axis(ctypes.Structure):
    """trainc_axis"""
    _fields_ = [("name", ctypes.c_char_p), ("size", ctypes.c_uint64)]


class Detail(ctypes.Structure):
    """trainc_collective_detail"""
    _fields_ = [(name, ctypes.c_uint32) for name in ("axes", "piece_axes", "dtype", "phase")]


def counted(rank):
    """({(kind, axes, bytes of the range): how many} of each micro-step of two windows, {(whether `model` splits it, bytes): how many}
    of the buckets that are summed, the same of those that a micro-step gathers before it uses them, how many collectives of each
    kind the communicator counts)."""
    t, found = rank.trainer, []
    mesh = ctypes.cast(t.descriptor.axes, ctypes.POINTER(Axis))[:t.descriptor.num_axes]

    def named(mask):
        return ",".join(axis.name.decode() for i, axis in enumerate(mesh) if mask >> i & 1 and axis.size > 1)

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(Event))
    def observe(_, event):
        command = event.contents.command.contents
        if not event.contents.end and command.kind in COLLECTIVES:
            detail = Detail.from_address(command.detail)
            if detail.phase != 1:  # what is started apart counts where it is waited for
                pieces = prod(axis.size for i, axis in enumerate(mesh) if detail.piece_axes >> i & 1)
                last = command.operands[command.num_operands - 1]
                found[-1][COLLECTIVES[command.kind], named(detail.axes), last.bytes // pieces] += 1
        return 0

    x, before = np.ones((4, CHAR.tokens), "i4"), list(rank.comm.info().collectives)
    rank.runtime.call("trainc_set_observer", t.trainer, observe, None)
    for _ in range(2 * MICRO_STEPS):
        found.append(Counter())
        rank.step(x=x, y=x)
    rank.runtime.call("trainc_set_observer", t.trainer, None, None)
    after = list(rank.comm.info().collectives)
    buckets, roles = Counter(), {arena.role for arena in arenas(t)}
    for arena in arenas(t):
        if arena.role == (MERGED if MERGED in roles else GRADIENT):
            split = ".model" in arena.name.decode()
            buckets.update((split, arena.buckets[i].bytes) for i in range(arena.num_buckets))
    return found, buckets, gathered_buckets(t), dict(zip(COLLECTIVES.values(), (a - b for a, b in zip(after, before))))


def uses():
    """The parameters of gpt-char in the order in which a micro-step reads them: forward, then those that gradients need."""
    layer = ["ln_1.weight", "ln_1.bias", "attn.c_attn.weight", "attn.c_attn.bias", "attn.c_proj.weight", "attn.c_proj.bias",
             "ln_2.weight", "ln_2.bias", "mlp.c_fc.weight", "mlp.c_fc.bias", "mlp.c_proj.weight", "mlp.c_proj.bias"]
    layers = [f"h.{i}.{name}" for i in range(CHAR.layers) for name in layer]
    return ["wte.weight", "wpe.weight", *layers, "ln_f.weight", "ln_f.bias", "wte.weight", "wte.weight", "ln_f.weight",
            *(name for name in reversed(layers) if name.endswith(".weight"))]


IN_USE = 2  # buckets of a kind that stay gathered


def gathered_buckets(trainer):
    """{(whether `model` splits it, bytes): how many} of the gathers of parameters in a micro-step, if they are sharded: a bucket is
    gathered once for all uses between which no more than one other bucket of its kind is used (docs/Ranks.md)."""
    known, kept, found = arenas(trainer), {}, Counter()
    for name in uses():
        t = trainer.descriptor.tensors[trainer.tensors["parameter", name, None]]
        arena = known[t.arena]
        bucket = next(i for i in range(arena.num_buckets)
                      if 0 <= t.offset - arena.buckets[i].first < arena.buckets[i].bytes) if arena.num_buckets else 0
        last = kept.setdefault(t.arena, [])
        if bucket in last:
            last.remove(bucket)
        elif arena.num_buckets:
            found[".model" in arena.name.decode(), arena.buckets[bucket].bytes] += 1
        last.append(bucket)
        del last[:-IN_USE]
    return found


def expected(mesh, mode, buckets, gathers, last):
    """The collectives of a micro-step, by docs/Ranks.md, but for those of a few bytes: norms, losses and flags."""
    want, data, model = Counter(), ranks_of(mesh) // alike(mesh), alike(mesh)
    tokens = 4 // data * CHAR.tokens
    if model > 1:
        width, layers = 4 * tokens * CHAR.width, CHAR.layers
        want["all_reduce", "model", width] += 1 + 2 * layers + 2 * layers + 1
        want["all_reduce", "model", 4 * tokens] += 2
        want["all_gather", "model", 4 * tokens * model] += 1
    each = mode in ("gradients", "parameters")
    for (split, size), count in buckets.items():
        over = ["data"] * (data > 1) + ["model"] * (model > 1 and not split)
        if not over:
            continue
        if each or last:
            want["reduce_scatter", over[0], size] += count
            if len(over) > 1:
                want["all_reduce", over[1], size // data] += count
        # The sums or, of a sharded update, the parameters; sharded parameters before they are used.
        if last and mode != "parameters":
            want["all_gather", over[0], size] += count
    for (split, size), count in gathers.items() if mode == "parameters" else ():
        if data > 1 or model > 1 and not split:
            want["all_gather", "data" if data > 1 else "model", size] += count
    return want


SMALL = 1024  # bytes: sums of losses, norms and flags


def is_norm(key, buckets):
    """Whether it gathers the sums of squares of blocks of 4096 gradients, in f64; the last block of a tensor may be shorter."""
    kind, _, size = key
    blocks = sum(bytes // 4 // 4096 * count for (_, bytes), count in buckets.items())
    return kind == "all_gather" and SMALL <= size and abs(size / 8 - blocks) < 0.05 * blocks


def collectives(folder):
    """With buckets of the default size, and with small ones, which ZeRO-3 gathers more than once in a micro-step."""
    bad, notes = [], []
    text = workload_module(replace(CHAR, batch=4, accumulate=MICRO_STEPS))
    for mesh, mode, size in [(mesh, mode, size) for mesh in ("data=2", "model=2", "data=4", "data=2,model=2") for mode in ALL_MODES
                             for size in (None, 4 << 20) if not size or mode in ALL_MODES[2:]]:
        way = mode + (f" in buckets of {size >> 20} MiB" if size else "")
        library = library_of(text, os.path.join(folder, "m.so"), mesh, mode, *([f"--bucket-size={size}"] if size else []))
        for steps, buckets, gathers, total in run_ranks(counted, library, ranks_of(mesh), alike=alike(mesh)):
            seen = Counter()
            for i, found in enumerate(steps):
                last = (i + 1) % MICRO_STEPS == 0
                want = expected(mesh, mode, buckets, gathers, last)
                large = Counter({key: n for key, n in found.items() if key[2] >= SMALL and (
                    key in want or n > 1 or not last or mode == "none" or not is_norm(key, buckets))})
                if large != want:
                    bad.append(f"{mesh} {way}, micro-step {i + 1}: {dict(large - want)} more, {dict(want - large)} fewer")
                if not last and sum(found.values()) > sum(large.values()) and mesh == "data=2" and mode == "none":
                    bad.append(f"{mesh} {way}: ranks exchange inside a window")
                for (kind, _, _), n in found.items():
                    seen[kind] += n
            if seen != Counter(total):
                bad.append(f"{mesh} {way}: {dict(seen)} commands, {total} counted by the communicator")
        window = Counter()
        for found in steps[:MICRO_STEPS]:
            for (kind, group, size), n in found.items():
                if size >= SMALL:
                    window[kind, group] += n * size
        notes.append(f"{mesh} {way}: " + ", ".join(f"{kind} over {group} {size / 1e6:.1f} MB"
                                                    for (kind, group), size in sorted(window.items())))
    return judge(not bad, "; ".join([*(bad[:4] or [f"of each rank and micro-step as docs/Ranks.md says; in a window of"
                                                   f" {MICRO_STEPS}"]), *notes]))


# Gradient merge.

def merged(arrays, sizes):
    """(loss, norm, parameters) of windows of so many micro-batches."""
    def work(rank):
        found, first = [], 0
        for size in sizes:
            for _ in range(size):
                result = rank.step(**alignment.part(arrays, first, alignment.MICRO))
                first += alignment.MICRO
            if size < alignment.K:
                result = rank.trainer.flush()
            found.append((result.window_loss, result.grad_norm, alignment.parameters(rank.trainer)))
        return found
    return work


def merge(folder):
    """The table of bench/alignment.py: windows on a mesh against large batches on one rank."""
    bad, losses, weights, runs = [], 0.0, 0.0, 0
    one, path = alignment.Folder(folder), os.path.join(folder, "merged.so")
    for name, case in alignment.cases():
        accumulate, case = case.get("merge", f"accumulate({alignment.K})"), {k: v for k, v in case.items() if k != "merge"}
        large = alignment.large_batches(one, **case)
        sizes, element = case.get("sizes", (alignment.K,) * alignment.WINDOWS), case.get("element", "f32")
        text = alignment.module(case["optimizer"], alignment.MICRO, f"{accumulate} {case.get('clauses', '')}", element=element)
        arrays, factor = alignment.data(len(sizes), case.get("uneven", False)), case.get("factor", 1.0)
        for mesh in ("data=2", "data=2,model=2"):
            for mode in ALL_MODES:
                results = run_ranks(merged(arrays, sizes), library_of(text, path, mesh, mode), ranks_of(mesh), alike=alike(mesh),
                                    seed=alignment.SEED)
                rows = [(loss, theirs.window_loss / factor, alignment.difference(now, then))
                        for (loss, _, now), (theirs, then) in zip(results[0], large)]
                off = alignment.differences(rows)
                losses, weights, runs = max(losses, off[0]), max(weights, off[1]), runs + 1
                same = all(r[:2] == s[:2] and alignment.equal(r[2], s[2]) for other in results for r, s in zip(other, results[0]))
                if off[0] > 1e-6 or off[1] > 1e-5 or not same:
                    bad.append(f"{name} on {mesh} {mode}: losses {off[0]:.1e}, weights {off[1]:.1e}"
                               + ("" if same else ", ranks differ"))
    return judge(not bad, "; ".join([f"{runs} runs, all modes: losses within {losses:.1e} of large batches on one rank, weights within"
                                     f" {weights:.1e}", *bad[:4]]))


# Tests.

def traps(folder):
    tests = ["rank-traps.py", "reduction-groups.py", "tensor-parallel.py"]
    return outcome([os.path.join(TESTS, name) for name in tests] + [os.path.join(ROOT, "test/Transforms/Partition/partition-errors.mlir")],
                   "tests pass: an infinity in one part, an odd vocabulary, a tied head split alike and otherwise, parameters of several"
                   " groups; conflicts are refused")


def reshard(folder):
    return outcome([os.path.join(TESTS, "reshard.py"), os.path.join(TESTS, "convert-ranks.py")],
                   "tests pass: saved by 2 x 2 with parameters divided, loaded by 1, by 4 parts, by 4 of data, and back")


# The estimate.

STEPS = 10
CORES = len(os.sched_getaffinity(0))
OF_RANKS = ("latency", "reduce_scatter", "all_reduce", "all_gather")  # rates that one rank alone cannot have
PREFIXES = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


def on_ranks(count, library, *options):
    """What the first rank of trainc-run prints, with one thread each."""
    mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", str(count)]
    return run([*(mpirun if count > 1 else []), tool("trainc-run"), library, "--threads", "1", *options], timeout=600,
               env=ENVIRONMENT).stdout


def preflight(count, library):
    """{rate: number in its unit} that the preflight measures."""
    text = re.search(r"^rates: --bandwidth=(\S+)$", on_ranks(count, library, "--preflight"), re.M)[1]
    parts = [re.fullmatch(r"([\w.]+)=([\d.e+-]+)(\w?)", word).groups() for word in text.split(",")]
    return {name: float(number) * PREFIXES[prefix] for name, number, prefix in parts}


def shared(rates, ranks):
    """The rates of a rank if several share a core: each has its part of what the core does."""
    factor = max(1.0, ranks / CORES)
    return {name: rate * factor if name == "command" else rate / factor for name, rate in rates.items()}


def predicted(text, rates, mesh, mode):
    option = "--bandwidth=" + ",".join(f"{name}={rate:.6g}" for name, rate in rates.items())
    done = subprocess.run([tool("trainc"), "-", "--estimate=json", option, *([f"--mesh={mesh}", f"--shard={mode}"] if mesh else [])],
                          input=text, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)["entries"][0]


@dataclass
class Pair:
    """A prediction and the run beside it."""
    ratio: float  # predicted over measured
    share: float  # of the predicted, what is communication
    moved: float  # of the prediction by rates right before the run and that by rates right after it, the larger over the smaller


def estimate(folder):
    """Rates of computing are those of one rank, measured right before each run; those of collectives are measured once a round on the
    replicated step of as many ranks. No run is repeated."""
    parts, statuses = [], []
    text = workload_module(replace(CHAR, batch=8))
    one = library_of(text, os.path.join(folder, "one.so"))
    for count, meshes in ((1, [None]), (2, ["data=2", "model=2"]), (4, ["data=4", "data=2,model=2"])):
        cells = [(mesh, mode) for mesh in meshes for mode in (ALL_MODES if count > 1 and mesh != "model=2" else ALL_MODES[:1])]
        libraries = {cell: library_of(text, os.path.join(folder, f"m{count}.{i}.so"), *cell) for i, cell in enumerate(cells)}
        pairs = {cell: [] for cell in cells}
        for _ in range(ROUNDS):
            links = {}
            if count > 1:
                links = {name: rate for name, rate in preflight(count, libraries[cells[0]]).items() if name in OF_RANKS}
            before = preflight(1, one)
            for cell in cells:
                measured = json.loads(on_ranks(count, libraries[cell], "--benchmark", str(STEPS)).splitlines()[-1])["step_ms_median"]
                after = preflight(1, one)
                plan, later = (predicted(text, shared(rates, count) | links, *cell) for rates in (before, after))
                moved = max(plan["seconds"], later["seconds"]) / min(plan["seconds"], later["seconds"])
                pairs[cell].append(Pair(1e3 * plan["seconds"] / measured, plan["exposed"] / plan["seconds"], moved))
                before = after
        for cell, found in pairs.items():
            ratios = [pair.ratio for pair in found]
            listed = " ".join(f"{pair.ratio:.2f}" + ("*" if pair.moved > STEADY else "") for pair in found)
            parts.append(f"{cell[0] or 'one rank'} {cell[1]}: {median(ratios):.2f} of the measured ({listed}),"
                         f" {100 * median(pair.share for pair in found):.0f} % of it communication")
            statuses.append(judge_ratios(ratios, lambda r: 0.8 <= r <= 1.2, max(pair.moved for pair in found)))
    return Outcome("; ".join([*parts, f"* the rates moved by more than {STEADY} beside this run"]), worst(statuses))
