"""Rows on several ranks, processes on this machine."""
import ctypes
import json
import os
import re
import sys
from dataclasses import replace
from statistics import median

import numpy as np

from commands import Event, elements_cast
from common import BUILD, ENVIRONMENT, ROOT, Failed, compile_module, farthest, run, tool, workload_module
from rows import Outcome, judge, judge_ratios, worst
from rows.ablation import folder_of, percent
from rows.traps import TESTS, outcome
from timing import ROUNDS
from timing_passes import gains, movement
from timing_ranks import TORCH, time_hoisting, time_zero1
from timing_update import per_round
from trainc_ctypes import Error, shape_of
from workloads import WORKLOADS

sys.path.insert(0, os.path.join(TESTS, "Inputs"))

from ranks import run as run_ranks  # noqa: E402

MODES = ("none", "optimizer")
ALL_MODES = *MODES, "gradients", "parameters"
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
                # In longer windows the others sum in another order, which small models compare.
                for mode in ALL_MODES if k == 1 else MODES:
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
                            error = farthest(*([loss for loss, _ in run["results"]] for run in (answers[0], one)))
                            worst_error = max(worst_error, error)
                if any(s != seen[0] for s in seen):
                    bad.append(f"{'bf16' if bf16 else 'f32'} k = {k} {mesh}: modes or ways differ in a bit")
    done = run([sys.executable, os.path.join(TESTS, "ranks.py"), "--full"], timeout=3600, check=False)
    lines = done.stdout.splitlines()
    failed = [line for line in lines if ": BAD" in line]
    if done.returncode and not failed:
        failed = [done.stderr.strip()[-300:]]
    return judge(worst_error <= 1e-5 and not bad and not failed and lines, "; ".join([
        f"gpt-char, {UPDATES} updates, {runs} runs: in f32 losses within {worst_error:.1e} of one rank; "
        + ("modes, window and plain MPI, and ranks equal bit by bit" if not bad else ""),
        *bad[:4], f"{len(lines) - len(failed)} of {len(lines)} comparisons of small models hold", *failed[:4]]))


# Precision over a long run.

LONG = 1000


def precision(folder):
    """gpt-char in bf16 on a text: replicated with casts in every micro-step against sharded with copies that the update
    writes. The curve goes to build/bench/precision.svg."""
    run([os.path.join(ROOT, "scripts", "setup.sh"), "--demo"], cwd=ROOT)
    run([sys.executable, os.path.join(ROOT, "examples", "data", "make_text.py"),
         os.path.join(ROOT, "build/demo/text/usr/share/doc/jargon-text/jargon.txt.gz"), folder])
    text, curve = workload_module(CHAR, "--bf16"), os.path.join(BUILD, "bench", "precision.svg")
    os.makedirs(os.path.dirname(curve), exist_ok=True)
    logs, states = [], []
    for mode, more in (("none", ["--disable-pass=train-hoist-casts"]), ("optimizer", [])):
        library = library_of(text, os.path.join(folder, f"{mode}.so"), mesh_of(2), mode, *more)
        run(["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2", tool("trainc-run"), library, "--threads", "1",
             "--data", os.path.join(folder, "train_tokens.npy"), "--steps", str(LONG), "--svg", curve,
             "--log", os.path.join(folder, f"{mode}.jsonl"), "--save", os.path.join(folder, f"{mode}.safetensors")],
            timeout=3000)
        logs.append([(r["loss"], r["grad_norm"]) for r in lines_of(os.path.join(folder, f"{mode}.rank0.jsonl"))])
        states.append(saved(os.path.join(folder, f"{mode}.safetensors")))
    equal = [a == b for a, b in zip(*logs)]
    first = f"losses differ from update {equal.index(False) + 1} on" if False in equal else "losses and norms equal bit by bit"
    tensors = states[0] == states[1]
    return judge(len(equal) == LONG and all(equal) and tensors, f"{len(equal)} updates from loss {logs[0][0][0]:.3f} to"
                 f" {logs[0][-1][0]:.3f}: {first}; {len(states[0])} tensors of the state"
                 f" {'equal' if tensors else 'differ'}; curve in precision.svg")


def saved(path):
    """{name: (type, shape, bytes)} of a .safetensors file."""
    with open(path, "rb") as f:
        header, data = json.loads(f.read(int.from_bytes(f.read(8), "little"))), f.read()
    return {name: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])]) for name, t in header.items()
            if name != "__metadata__"}


def lines_of(path):
    with open(path) as f:
        return [r for r in map(json.loads, f) if "loss" in r]


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
    """Bytes of a rank: what it computes with, gradients, and masters with a copy and states, each whole or in pieces."""
    level = ALL_MODES.index(mode)
    optimizer, gradients, computed = (ranks if level >= least else 1 for least in (1, 2, 3))
    return ((2 * copied + 4 * (parameters - copied)) / computed + 4 * parameters / gradients
            + (4 * copied + 8 * parameters) / optimizer)


def memory(folder):
    bad, most, notes = [], 0.0, []
    for kind, options in (("f32", []), ("bf16", ["--bf16"])):
        text = workload_module(replace(CHAR, batch=24), *options)
        for ranks in (1, 2, 3, 4, 8):
            sizes = {}
            for mode in ALL_MODES if ranks > 1 else MODES[:1]:
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


def casts_of_window(rank):
    """Elements of parameters that a rank casts in a window, and of all copies. What the update casts is what it writes over
    a mark in the copies; what other commands cast is known by their operands."""
    mark, t, counts = 0xFFFF, rank.trainer, [0, 0]  # of update, of others
    copies = []
    for role, name, _ in t.tensors:
        if role == "compute":
            address, tensor = t.held(name, role)
            copies.append(np.ctypeslib.as_array((ctypes.c_uint16 * (tensor.bytes // 2)).from_address(address)))
    kept = [c.copy() for c in copies]

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(Event))
    def observe(_, event):
        command = event.contents.command.contents
        if command.label.startswith(b"update"):
            for copy, before in zip(copies, kept):
                if event.contents.end:
                    written = copy != mark
                    counts[0] += int(written.sum())
                    np.copyto(copy, before, where=~written)
                else:
                    before[:] = copy
                    copy[:] = mark
        elif not event.contents.end:
            counts[1] += elements_cast(t, command)
        return 0

    rank.runtime.call("trainc_set_observer", t.trainer, observe, None)
    entry = t.descriptor.entries[t.entries["step"]]
    ones = np.ones(shape_of(entry.inputs[0]))
    for _ in range(entry.accumulate):
        t.step(x=ones, y=ones)
    rank.runtime.call("trainc_set_observer", t.trainer, None, None)
    return counts, sum(map(len, copies))


def count_casts(folder):
    """(elements of parameters that ranks cast in a window over all that have copies, what is wrong with it)"""
    notes, bad = [], []
    for ranks in (2, 4):
        for k in (1, 4, 16):
            text = workload_module(replace(CHAR, batch=ranks, tokens=64, context=64, accumulate=k), "--bf16")
            results, unhoisted = (
                run_ranks(casts_of_window, library_of(text, os.path.join(folder, "m.so"), mesh_of(ranks), "optimizer", *more),
                          ranks) for more in ((), ("--disable-pass=train-hoist-casts",)))
            all = results[0][1]
            shares = [update / all for (update, _), _ in results]
            if (sum(update for (update, _), _ in results) != all or any(others for (_, others), _ in results)
                    or any(abs(share * ranks - 1) > 0.02 for share in shares)):
                bad.append(f"casts on {ranks} ranks, k = {k}: {results}")
            notes.append(f"{ranks} ranks, k = {k}: {min(shares):.3f} to {max(shares):.3f} against"
                         f" {max(sum(counts) for counts, _ in unhoisted) / all:.2f}")
    return "casts of a rank in a window, over all copies: " + "; ".join(notes), bad


def cells(folder):
    """Copies that the update writes against casts in every micro-step, replicated and sharded."""
    parts, statuses = [], ["ok"]
    for name in ("gpt-char", "gpt2-124m-accum4"):
        for k in (1, 4, 16):
            for mode in MODES:
                point = (name, k, mode)
                size, times = time_hoisting(name, k, mode, folder, ROUNDS if point == BAR_POINT else 3, WINDOWS[k])
                tokens = k * max(WORKLOADS[name].batch, 2) * WORKLOADS[name].tokens
                rates = [tokens / median(times[side]["step_ms"]) * 1e3 for side in ("on", "off")]
                parts.append(f"{name} k = {k} {mode} {rates[0]:,.0f} against {rates[1]:,.0f} ({percent(gains(times))}), "
                             f"{size['on'] >> 20} against {size['off'] >> 20}")
                if point == BAR_POINT:
                    statuses.append(judge_ratios(gains(times), lambda r: r >= HOISTING_GAIN, movement(times)))
    counts, bad = count_casts(folder)
    statuses.append("short" if bad else "ok")
    return Outcome("tokens/s, and MiB of a rank: " + "; ".join(parts) + "; " + "; ".join([counts, *bad]), worst(statuses))


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
        split = re.compile(r" split\([^)]*\)( blocks \[[^]]*\])?")
        without = split.sub(lambda m: " " * len(m[0]), with_mesh.replace("train.mesh", "// train.mesh", 1))
        if len(split.findall(with_mesh)) < 2 or with_mesh.count("train.mesh") != 1:
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


def faults(folder, models="pieces", runs=100):
    """Ranks of trainc-run that are killed, stopped or delayed at random moments, of saves too."""
    script = os.path.join(ROOT, "test", "Tools", "trainc-run-ranks.py")
    done = run([sys.executable, script, folder, "--faults", str(runs), models], timeout=3600, check=False)
    lines = done.stdout.splitlines()
    bad = [line.split(":")[0] for line in lines if ": BAD" in line]
    good = sum(line.endswith(": ok") for line in lines)
    return judge(not bad and good == 2 * runs, f"{runs} runs of 4 ranks, killed, stopped or delayed while they step or save:"
                 f" {good} of {2 * runs} checks hold" + "".join(f"; {name}" for name in bad))


def bad_input(folder):
    tests = ["Tools/trainc-run-ranks.py", "Dialect/Train/invalid-mesh.mlir", "Transforms/Source/set-mesh-errors.mlir",
             "Transforms/Partition/partition-errors.mlir"]
    return outcome([os.path.join(ROOT, "test", test) for test in tests], "tests pass: batches that do not divide, annotations"
                   " in conflict, unknown axes; other numbers of ranks, artifacts, data and options are refused before the"
                   " first step, one rank says so, all end")


def zero1(folder):
    times = time_zero1("optimizer-124m", folder)
    ours, alone = (times[side]["step_ms"] for side in ("sharded", "alone"))
    moved, whole = max(alone) / min(alone), per_round(ours, alone)
    peers = {peer: per_round(times[peer]["step_ms"], ours) for peer in TORCH}
    others = ", ".join(f"{median(ratios):.1f}x {peer}" for peer, ratios in peers.items())
    return Outcome(f"{median(ours):.0f} ms; {others}; {median(whole):.2f} of the replicated one's (which moved {moved:.2f}x)",
                   worst([judge_ratios(peers["torch zero1"], lambda r: r >= 5, moved),
                          judge_ratios(whole, lambda r: r <= 1.1, moved)]))
