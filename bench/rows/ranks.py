"""Rows on several ranks, processes on this machine."""
import ctypes
import json
import os
import re
import sys
from dataclasses import replace
from statistics import median

import numpy as np

from common import ENVIRONMENT, ROOT, Failed, compile_module, run, workload_module
from rows import Outcome, judge, judge_ratios, worst
from rows.ablation import folder_of, percent
from rows.traps import TESTS, outcome
from timing import ROUNDS
from timing_passes import gains, movement
from timing_ranks import time_hoisting, time_zero1
from timing_update import per_round
from trainc_ctypes import Error
from workloads import WORKLOADS

sys.path.insert(0, os.path.join(TESTS, "Inputs"))

from ranks import run as run_ranks  # noqa: E402

MODES = ("none", "optimizer")
CHAR = WORKLOADS["gpt-char"]
HOISTING_GAIN = 1.0696  # published for the passes that these generalise


def mesh_of(ranks):
    return f"data={ranks}"


def library_of(text, path, mesh=None, mode="none", *options):
    return compile_module(text, path, *([f"--mesh={mesh}", f"--shard={mode}"] if mesh else []), *options)


# Equal training.

UPDATES = 20


def train(library, ranks, folder, *options):
    """What each rank of mpi_rank.py writes."""
    script = [sys.executable, os.path.join(ROOT, "bench", "mpi_rank.py"), library, "gpt-char", str(UPDATES), folder, *options]
    mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", str(ranks)] if ranks > 1 else []
    run([*mpirun, *script], timeout=1800, env=ENVIRONMENT)
    answers = []
    for rank in range(ranks):
        path = os.path.join(folder, f"{rank}.json")
        with open(path) as f:
            answers.append(json.load(f))
        os.remove(path)
    return answers


def training(folder):
    """gpt-char by MPI, then the small models of the test in all modes, bucket sizes and sets of passes."""
    worst_error, bad, runs = 0.0, [], 0
    for bf16 in (False, True):
        for k in (1, 4):
            text = workload_module(replace(CHAR, batch=4 if k > 1 else 8, accumulate=k), *["--bf16"] * bf16)
            one, = train(library_of(text, os.path.join(folder, "char.so")), 1, folder)
            for mesh, ranks in (("data=2", 2), ("data=4", 4), ("host=2,data=2", 4)):
                seen = []
                for mode in MODES:
                    library = library_of(text, os.path.join(folder, "char.so"), mesh, mode)
                    for way in ([], ["--plain"]):
                        what = f"{'bf16' if bf16 else 'f32'} k = {k} {mesh} {mode} {' '.join(way)}"
                        answers = train(library, ranks, folder, *way)
                        runs += 1
                        if any((a["results"], a["state"], a["copies"]) != (answers[0]["results"], answers[0]["state"],
                                                                           answers[0]["copies"]) for a in answers):
                            bad.append(f"{what}: ranks differ")
                        seen.append((answers[0]["results"], answers[0]["state"]))
                        if not bf16:
                            error = max(abs(a - b) / abs(b) for (a, _), (b, _) in zip(answers[0]["results"], one["results"]))
                            worst_error = max(worst_error, error)
                if any(s != seen[0] for s in seen):
                    bad.append(f"{what.split(' optimizer')[0]}: modes or ways differ in a bit")
    done = run([sys.executable, os.path.join(TESTS, "ranks.py"), "--full"], timeout=3600, check=False)
    lines = done.stdout.splitlines()
    failed = [line for line in lines if ": BAD" in line]
    if done.returncode and not failed:
        failed = [done.stderr.strip()[-300:]]
    return judge(worst_error <= 1e-5 and not bad and not failed and lines, "; ".join([
        f"gpt-char, {UPDATES} updates, {runs} runs: in f32 losses within {worst_error:.1e} of one rank; "
        + ("modes, window and plain MPI, and ranks equal bit by bit" if not bad else ""),
        *bad[:4], f"{len(lines) - len(failed)} of {len(lines)} comparisons of small models hold", *failed[:4]]))


# Memory.

def elements(trainer, role, names=None):
    sizes = {}
    for (r, name, _), i in trainer.tensors.items():
        t = trainer.descriptor.tensors[i]
        if r == role and (names is None or name in names):
            sizes[name] = int(np.prod([t.dims[j] for j in range(t.rank)]))
    return sum(sizes.values())


def held(rank):
    """(bytes of arenas, elements of parameters, of those with a copy, of those that a rank has masters of)."""
    t = rank.trainer
    first, count, own = ctypes.c_uint64(), ctypes.c_uint64(), 0
    for (role, _, _), i in t.tensors.items():
        if role == "parameter":
            rank.runtime.call("trainc_tensor_part", t.trainer, ctypes.c_uint32(i), ctypes.byref(first), ctypes.byref(count))
            own += count.value
    return t.memory().persistent, elements(t, "parameter"), elements(t, "compute"), own


def formula(parameters, copied, ranks, mode):
    """Bytes of a rank: gradients and what it computes with whole; states, and masters with a copy, in pieces."""
    parts = ranks if mode == "optimizer" else 1
    computed = 2 * copied + 4 * (parameters - copied)
    return 4 * parameters + computed + 4 * copied / parts + 8 * parameters / parts


def memory(folder):
    bad, most, notes = [], 0.0, []
    for kind, options in (("f32", []), ("bf16", ["--bf16"])):
        text = workload_module(replace(CHAR, batch=24), *options)
        for ranks in (1, 2, 3, 4, 8):
            sizes = {}
            for mode in MODES if ranks > 1 else MODES[:1]:
                cells = [("", [])]
                if kind == "bf16" and mode == "optimizer":
                    cells.append((" unhoisted", ["--disable-pass=train-hoist-casts"]))
                for name, more in cells:
                    library = library_of(text, os.path.join(folder, "m.so"), mesh_of(ranks) if ranks > 1 else None, mode, *more)
                    results = run_ranks(held, library, ranks)
                    for size, parameters, copied, _ in results:
                        off = size / formula(parameters, copied, ranks, mode) - 1
                        most = max(most, abs(off))
                        if abs(off) > 0.02:
                            bad.append(f"{kind}{name} {mode} on {ranks}: {100 * off:+.1f} %")
                    sizes[mode + name] = max(size for size, *_ in results)
            if "optimizer unhoisted" in sizes:
                ratio = sizes["optimizer"] / sizes["optimizer unhoisted"]
                notes.append(f"{ranks}: {ratio:.3f}")
                if not (abs(ratio - 1) <= 0.02 if ranks == 2 else ratio < 1):
                    bad.append(f"hoisted over unhoisted on {ranks}: {ratio:.3f}")
    return judge(not bad, "; ".join([f"arenas within {100 * most:.2f} % of the formula",
                                     "hoisted over unhoisted, sharded, by ranks " + ", ".join(notes), *bad[:4]]))


# The four cells.

WINDOWS = {1: 6, 4: 3, 16: 1}  # in a block, by micro-steps
BAR_POINT = ("gpt2-124m-accum4", 4, "optimizer")


def cells(folder):
    """Copies that the update writes against casts in every micro-step, replicated and sharded."""
    parts, statuses = [], ["ok"]
    for name in ("gpt-char", "gpt2-124m-accum4"):
        for k in (1, 4, 16):
            for mode in MODES:
                point = (name, k, mode)
                times = time_hoisting(name, k, mode, folder, ROUNDS if point == BAR_POINT else 3, WINDOWS[k])
                tokens = k * max(WORKLOADS[name].batch, 2) * WORKLOADS[name].tokens
                rates = [tokens / median(times[side]["step_ms"]) * 1e3 for side in ("on", "off")]
                parts.append(f"{name} k = {k} {mode} {rates[0]:,.0f} against {rates[1]:,.0f} ({percent(gains(times))})")
                if point == BAR_POINT:
                    statuses.append(judge_ratios(gains(times), lambda r: r >= HOISTING_GAIN, movement(times)))
    text = workload_module(replace(CHAR, batch=2, accumulate=4), "--bf16")
    results = run_ranks(held, library_of(text, os.path.join(folder, "part.so"), mesh_of(2), "optimizer"), 2)
    shares = [own / parameters for _, parameters, copied, own in results]
    whole = (results[0][1] - results[0][2]) / results[0][1]  # kept in f32, on every rank
    statuses.append("ok" if all(abs(s - 0.5) <= 0.02 + whole for s in shares) else "short")
    return Outcome("tokens/s: " + "; ".join(parts) + "; parameters that a rank casts in a window: "
                   + " and ".join(f"{s:.3f}" for s in shares) + " of all", worst(statuses))


# Start, synchronisation, one rank.

def rounded(values):
    """f32 to bf16, to nearest even, as f32."""
    bits = values.view(np.uint32).astype(np.uint64)
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return bits.astype(np.uint32).view(np.float32)


def started(path):
    """(what the ranks compute with is the cast of the masters, all bytes, peak over plan) after making and after loading
    `path`; the error of a load from a file that the first rank alone can read."""
    def work(rank):
        def state():
            t, good = rank.trainer, True
            tensors = rank.tensors()
            for (role, name, _), value in tensors.items():
                if role == "compute":
                    good &= np.array_equal(value, rounded(tensors["parameter", name, None]))
            return good, [(key, value.tobytes()) for key, value in tensors.items()]

        t = rank.trainer
        seen = [state(), t.memory().peak / t.memory().total]
        t.load(path)
        seen += [state(), t.memory().peak / t.memory().total]
        error = None
        if rank.ranks > 1:
            try:
                t.load(path if rank.rank == 0 else path + ".elsewhere")
            except Error as e:
                error = str(e)
        return seen, error
    return work


def saving(path):
    def work(rank):
        rank.step(x=np.ones((4, CHAR.tokens)), y=np.ones((4, CHAR.tokens)))
        rank.trainer.save(path)
    return work


def start(folder):
    text = workload_module(replace(CHAR, layers=2, batch=4), "--bf16")
    path, bad, errors, peak, first = os.path.join(folder, "state"), [], set(), 0.0, None
    library = library_of(text, os.path.join(folder, "m.so"))
    run_ranks(saving(path), library, 1)
    for ranks in (1, 2, 4):
        for mode in MODES if ranks > 1 else MODES[:1]:
            mesh = mesh_of(ranks) if ranks > 1 else None
            results = run_ranks(started(path), library_of(text, os.path.join(folder, "m.so"), mesh, mode), ranks)
            for (made, peak_made, loaded, peak_loaded), error in results:
                first = first or (made[1], loaded[1])
                if not (made[0] and loaded[0]):
                    bad.append(f"{ranks} {mode}: a copy is not the cast of its master")
                if (made[1], loaded[1]) != first:
                    bad.append(f"{ranks} {mode}: not the bits of one rank")
                peak = max(peak, peak_made, peak_loaded)
                errors |= {error} - {None}
    note = f"a file that the first rank alone can read is refused: {sorted(errors)[0][:80]}" if errors else \
        "also from a file that the first rank alone can read"
    return judge(not bad and peak <= 1 and not errors, "; ".join(
        [*(sorted(set(bad))[:4] or ["copies equal on all ranks and those of one rank, from the seed and from a file"]),
         f"peak {peak:.3f} of the plan", note]))


def counting(rank):
    """Collectives of each micro-step of two windows of 4."""
    counts, before = [], list(rank.comm.info().collectives)
    for _ in range(8):
        rank.step(x=np.ones((4, CHAR.tokens)), y=np.ones((4, CHAR.tokens)))
        after = list(rank.comm.info().collectives)
        counts.append([a - b for a, b in zip(after, before)])
        before = after
    return counts


def synchronisation(folder):
    bad, notes = [], []
    text = workload_module(replace(CHAR, batch=4, accumulate=4))
    for mesh, ranks in (("data=2", 2), ("host=2,data=2", 4)):
        for mode in MODES:
            library = library_of(text, os.path.join(folder, "m.so"), mesh, mode)
            buckets = len(set(run_ranks(buckets_of, library, ranks)[0]))
            for counts in run_ranks(counting, library, ranks):
                inside = [c for i, c in enumerate(counts) if (i + 1) % 4]
                if any(map(any, inside)) or counts[3] != counts[7] or counts[3][0] != buckets:
                    bad.append(f"{mesh} {mode}: {counts}")
            notes.append(f"{mesh} {mode}: {buckets} buckets, {counts[3][0]} reduce_scatter, {counts[3][1]} all_reduce,"
                         f" {counts[3][2]} all_gather")
    return judge(not bad, "; ".join([*(bad[:2] or ["none but in a window's last micro-step"]), *notes]))


def buckets_of(rank):
    """The gradients' buckets, as (arena, first byte)."""
    from commands import Bucket, arenas
    gradients = {t.arena for t in rank.trainer.descriptor.tensors[:rank.trainer.descriptor.num_tensors] if t.role == 2}
    known = arenas(rank.trainer)
    return [(a, known[a].buckets[i].first) for a in gradients for i in range(known[a].num_buckets)]


def content(path):
    """The file; of a form, but for the mesh itself."""
    with open(path, "rb") as f:
        return re.sub(rb"^ *train\.mesh .*\n", b"", f.read(), flags=re.M) if path.endswith(".mlir") else f.read()


def one_rank(folder):
    """A mesh of one rank and splits over it against a module without them, at the same places of the text."""
    texts, bad = {}, []
    for name, options in (("f32", []), ("bf16", ["--bf16"])):
        with_mesh = workload_module(replace(CHAR, accumulate=4), *options)
        split = " split([host, data])"
        without = with_mesh.replace("train.mesh", "// train.mesh", 1).replace(split, " " * len(split))
        if with_mesh.count(split) < 2 or with_mesh.count("train.mesh") != 1:
            raise Failed("the generator writes no mesh")
        for what, text, more in (("without", without, []), ("mesh", with_mesh, []),
                                 ("option", with_mesh, ["--mesh=host=1,data=1"])):
            inside = folder_of(folder, f"{name}-{what}")
            compile_module(text, os.path.join(inside, "model.so"), f"--dump={inside}/forms", *more)
            forms = [f"forms/{form}" for form in sorted(os.listdir(f"{inside}/forms")) if not form.startswith("0")]
            texts[what] = {p: content(os.path.join(inside, p)) for p in ["model.so", *forms]}
        bad += [f"{name}: {path} with {what}" for what in ("mesh", "option") for path in texts["without"]
                if texts[what].get(path) != texts["without"][path]]
    return judge(not bad, "forms from 1 on and libraries equal" if not bad else "differ: " + ", ".join(bad))


# Tests, and the update against PyTorch.

def rank_traps(folder):
    return outcome([os.path.join(TESTS, "rank-traps.py")], "tests pass: same skips, norms and state on all ranks, and those"
                   " of one")


def reshard(folder):
    return outcome([os.path.join(TESTS, "reshard.py")], "tests pass: saved by 4 and by 1, loaded by 1, 2, 3, 4 and 8, also"
                   " inside a window; saves that fail on one rank")


def faults(folder, runs=100):
    """Ranks of trainc-run that are killed or stopped at random moments, of saves too."""
    script = os.path.join(ROOT, "test", "Tools", "trainc-run-ranks.py")
    done = run([sys.executable, script, folder, "--faults", str(runs)], timeout=3600, check=False)
    lines = done.stdout.splitlines()
    bad = [line.split(":")[0] for line in lines if ": BAD" in line]
    good = sum(line.endswith(": ok") for line in lines)
    return judge(not bad and good == 2 * runs, f"{runs} runs of 4 ranks, killed or stopped while they step or save:"
                 f" {good} of {2 * runs} checks hold" + "".join(f"; {name}" for name in bad))


def mismatches(folder):
    return outcome([os.path.join(ROOT, "test", "Tools", "trainc-run-ranks.py")], "tests pass: other numbers of ranks,"
                   " artifacts, data and options are refused before the first step, one rank says so, all end")


def zero1(folder):
    times = time_zero1("optimizer-124m", folder)
    ours, alone, torch = (times[side]["step_ms"] for side in ("sharded", "alone", "torch zero1"))
    moved = max(alone) / min(alone)
    peer, whole = per_round(torch, ours), per_round(ours, alone)
    return Outcome(f"{median(ours):.0f} ms; {median(peer):.1f}x PyTorch's; {median(whole):.2f} of the replicated one's (which"
                   f" moved {moved:.2f}x)", worst([judge_ratios(peer, lambda r: r >= 5, moved),
                                             judge_ratios(whole, lambda r: r <= 1.1, moved)]))
