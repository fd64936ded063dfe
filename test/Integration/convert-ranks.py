# REQUIRES: numpy, safetensors
# RUN: %python %s
"""The state of several ranks, converted by all of them: to another type, to an artifact of other types, meshes, modes and buckets, and
on loading. What they save is what one rank saves that converts alike, and they go on as from that file. What one rank cannot do, or
does otherwise, is refused by all and changes nothing.
"""
import json
import os
import re
import resource
import signal
import sys
import tempfile
import threading
import time

import numpy as np
from safetensors import safe_open

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))

from ranks import batches, compile_module, mesh_option, run  # noqa: E402
from report import check  # noqa: E402
from trainc_ctypes import Error  # noqa: E402

PARAMETERS, GRADIENTS, STATES = 1, 2, 4
BROADCAST = 3  # a kind of collectives
MODULE = """
train.mesh @mesh(host = 1, data = 1)
train.optimizer @kept(%p: f32, %g: f32, %m: f32, %lr: f64) state(STATE = 0.0) hyper(lr = 0.05) {
  %b = arith.constant 0.9 : f32
  %m1 = math.fma %b, %m, %g : f32
  %rate = arith.truncf %lr : f64 to f32
  %d = arith.mulf %rate, %m1 : f32
  %p1 = arith.subf %p, %d : f32
  train.yield %p1, %m1 : f32, f32
}
train.param @embed : tensor<500x65xTYPE> init(normal<0.5>) optimizer(@kept)
train.param @w : tensor<65x40xTYPE> init(normal<0.3>) optimizer(@kept)
train.param @b : tensor<40xTYPE> init(uniform<-0.1, 0.1>) optimizer(@kept)
train.param @fixed : tensor<65xTYPE> init(uniform<0.5, 1.5>) frozen
train.buffer @seen : tensor<3xi64> init(constant<70000.0>)
train.step @step(%x: tensor<16xi32> split([host, data]), %y: tensor<16xi32> split([host, data]))
    accumulate(3) clip(global_norm<1.0>) PRECISION {
  %e = train.read @embed : tensor<500x65xTYPE>
  %w = train.read @w : tensor<65x40xTYPE>
  %b = train.read @b : tensor<40xTYPE>
  %f = train.read @fixed : tensor<65xTYPE>
  %h = nn.embedding %e, %x : tensor<500x65xTYPE>, tensor<16xi32>
  %d = nn.dropout %h rate 0.2 : tensor<16x65xTYPE>
  %s = nn.mul %d, %f : tensor<16x65xTYPE>, tensor<65xTYPE>
  %o = nn.linear %s, %w, %b : tensor<16x65xTYPE>, tensor<65x40xTYPE>, tensor<40xTYPE>
  %sum, %count = nn.cross_entropy %o, %y : tensor<16x40xTYPE>, tensor<16xi32>
  train.yield loss(%sum) weight(%count) : tensor<f32>, tensor<f32>
}
"""
# Parameters and computing in f32; in bf16 with masters in f32; parameters in bf16 without masters.
KINDS = {"f32": ("f32", ""), "mixed": ("f32", "precision(compute = bf16)"), "bf16": ("bf16", "")}
TWO, FOUR, HYBRID = dict(data=2), dict(data=4), dict(host=2, data=2)
PARTS, COLUMNS = dict(data=2, model=2), dict(model=4)
SPLITS = {"embed": "split([model])", "w": "split([], [model])", "b": "split([model])"}
# From an artifact (kind, mesh and options) to another one.
CASES = [(("f32", TWO, "--shard=none"), ("mixed", TWO, "--shard=optimizer")),
         (("mixed", TWO, "--shard=optimizer"), ("bf16", TWO, "--shard=optimizer")),
         (("bf16", TWO, "--shard=optimizer", "--bucket-size=4096"), ("mixed", TWO, "--shard=none")),
         (("mixed", FOUR, "--shard=optimizer"), ("mixed", HYBRID, "--shard=optimizer", "--bucket-size=4096")),
         (("mixed", HYBRID, "--shard=optimizer"), ("f32", FOUR, "--shard=optimizer")),
         (("mixed", FOUR, "--shard=optimizer", "--merge-buffer=sharded"),
          ("bf16", HYBRID, "--shard=optimizer", "--merge-buffer=sharded", "--bucket-size=4096")),
         (("mixed", FOUR, "--shard=parameters"), ("bf16", HYBRID, "--shard=gradients", "--bucket-size=4096")),
         (("bf16", TWO, "--shard=gradients"), ("mixed", TWO, "--shard=parameters", "--bucket-size=4096")),
         (("mixed", HYBRID, "--shard=parameters"), ("mixed", FOUR, "--shard=optimizer", "--merge-buffer=sharded")),
         (("mixed", PARTS, "--shard=parameters"), ("f32", FOUR, "--shard=gradients", "--bucket-size=4096")),
         (("f32", FOUR, "--shard=parameters"), ("bf16", PARTS, "--shard=optimizer", "--merge-buffer=sharded")),
         (("mixed", PARTS, "--shard=optimizer"), ("bf16", PARTS, "--shard=optimizer", "--bucket-size=4096")),
         (("mixed", COLUMNS, "--merge-buffer=sharded"), ("f32", PARTS, "--shard=gradients")),
         (("bf16", PARTS, "--shard=gradients"), ("mixed", COLUMNS, "--merge-buffer=sharded")),
         (("f32", FOUR, "--shard=none"), ("bf16", HYBRID, "--shard=optimizer"))]
BEFORE, AFTER = 7, 5  # micro-steps; the conversion is inside a window
DATA = batches(dict(x=((16,), "i"), y=((16,), "i")), BEFORE + AFTER, 40)


def text_of(kind, state="m", rows=500):
    dtype, precision = KINDS[kind]
    text = MODULE.replace("TYPE", dtype).replace("PRECISION", precision).replace("STATE", state)
    return text.replace("500x65", f"{rows}x65")


class Artifacts:
    """Compiled modules, all of one name: it is in the checkpoints."""

    def __init__(self, folder):
        self.folder, self.made = folder, {}

    def get(self, kind, mesh=None, *options, **text):
        key = kind, str(mesh), *options, *text.values()
        if key not in self.made:
            path = os.path.join(self.folder, str(len(self.made)))
            os.mkdir(path)
            module = text_of(kind, **text)
            if "model" in (mesh or {}):
                module = re.sub(r"(train\.param @(embed|w|b) .*)", lambda m: f"{m[1]} {SPLITS[m[2]]}", module)
                module = module.replace("data = 1)", "data = 1, model = 1)")
            self.made[key] = compile_module(module, os.path.join(path, "model.so"), *([mesh_option(mesh)] if mesh else []),
                                            *options)
        return self.made[key]


def rounded(values, dtype):
    """Values of f32 in another type, to nearest even."""
    if dtype == "f32":
        return values
    bits = values.view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16).astype(np.uint32).view(np.float32)


def copies_are_casts(rank, kind):
    """Whether all compute copies on this rank are the casts of the masters, which are in pieces."""
    trainer = rank.trainer
    copies = [name for name in trainer.names() if ("compute", name, None) in trainer.tensors]
    dtype = "f32" if kind == "f32" else "bf16"
    return (len(copies) == 4) == (kind == "mixed") and all(
        trainer.read(name, "compute").tobytes() == rounded(trainer.read(name), dtype).tobytes() for name in copies)


def contents(path):
    """Tensors of a checkpoint by name: type, shape and bytes. Sums of an open window are left out: they are each rank's own."""
    data = bytes_of(path)
    size = int.from_bytes(data[:8], "little")
    header, data = json.loads(data[8:8 + size]), data[8 + size:]
    return {name: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])]) for name, t in header.items()
            if name != "__metadata__" and not name.startswith(("rank/", "gradient/"))}


def bytes_of(path):
    with open(path, "rb") as f:
        return f.read()


def steps(rank, begin, end):
    results = [rank.step(**inputs) for inputs in DATA[begin:end]]
    return [(r.loss, r.window_loss, r.grad_norm if r.closed else None) for r in results]


def refusal(call, *arguments, **options):
    try:
        call(*arguments, **options)
    except Error as error:
        return str(error)
    return ""


def convert(rank, kind, to_kind, to, path):
    """One way for one rank and for several, which saves each state; what is bad."""
    trainer, bad = rank.trainer, []

    def save(name, kind):
        trainer.save(path(name))
        if not copies_are_casts(rank, kind):
            bad.append(f"copies after {name}")

    save("before", kind)
    trainer.convert(dtype=b"bf16", what=PARAMETERS)
    save("parameters", kind)
    trainer.convert(dtype=b"f64", what=STATES)
    save("states", kind)
    if "was converted to" not in refusal(trainer.flush) + refusal(rank.step, **DATA[0]):
        bad.append("it runs")
    trainer.load(path("parameters"))
    save("reloaded", kind)
    trainer.convert(to)
    save("artifact", to_kind)
    return bad


SAVED = ("before", "parameters", "states", "reloaded", "artifact")


def converting(kind, to_kind, to, path, alike):
    def work(rank):
        trainer = rank.trainer
        steps(rank, 0, BEFORE)
        sums = {name: trainer.read(name, "gradient") for name in trainer.names("gradient")}
        bad = convert(rank, kind, to_kind, to, path)
        trainer.save(path("artifact"))
        if not all(np.array_equal(value, trainer.read(name, "gradient")) for name, value in sums.items()):
            bad.append("sums of the window")
        if (trainer.scalar("update"), trainer.scalar("micro_step")) != divmod(BEFORE, 3):
            bad.append("scalars")
        if trainer.read("seen", "buffer").tolist() != [70000] * 3:
            bad.append("integers")
        rank.alike = alike
        losses = steps(rank, BEFORE, BEFORE + AFTER)
        trainer.save(path("end"))
        return bad, losses, trainer.memory().total
    return work


def converting_alone(kind, to_kind, to, saved, path):
    def work(rank):
        rank.trainer.load(saved)
        return convert(rank, kind, to_kind, to, path)
    return work


def loading(kind, saved, path, hidden):
    """From a file of other types, which with `hidden` the first rank alone finds."""
    def work(rank):
        rank.trainer.load(saved + ".absent" if hidden and rank.rank else saved)
        bad = [] if copies_are_casts(rank, kind) else ["copies"]
        rank.trainer.save(path("artifact"))
        losses = steps(rank, BEFORE, BEFORE + AFTER)
        rank.trainer.save(path("end"))
        return bad, losses, rank.trainer.memory().total
    return work


def check_case(folder, artifacts, start, to):
    ranks, what, bad = int(np.prod(list(start[1].values()))), f"{start} to {to}", 0

    def path(prefix):
        return lambda name: os.path.join(folder, f"{prefix}-{name}")

    many, one, again = path("many"), path("one"), path("again")
    alike = to[1].get("model", 1)
    results = run(converting(start[0], to[0], artifacts.get(*to), many, alike), artifacts.get(*start), ranks,
                  alike=start[1].get("model", 1))
    bad += check(f"{what}: each rank's own", not any(r[0] for r in results), results)
    complaints, = run(converting_alone(start[0], to[0], artifacts.get(to[0]), many("before"), one), artifacts.get(start[0]), 1)
    bad += check(f"{what}: one rank", not complaints, complaints)
    for name in SAVED:
        bad += check(f"{what}: {name} is saved as by one rank", contents(many(name)) == contents(one(name)))
    for hidden in False, True:
        others = run(loading(to[0], many("reloaded"), again, hidden), artifacts.get(*to), ranks, alike=alike)
        bad += check(f"{what}: loads the state of other types", not any(r[0] for r in others), others)
        bad += check(f"{what}: as it was converted", bytes_of(again("artifact")) == bytes_of(many("artifact")))
        bad += check(f"{what}: goes on as that", [r[1] for r in results] == [r[1] for r in others] and
                     bytes_of(again("end")) == bytes_of(many("end")))
        bad += check(f"{what}: memory of that", [r[2] for r in results] == [r[2] for r in others], (results, others))
    return bad


def check_sums(folder, artifacts, saved):
    """One rank whose sums are bf16 takes over those that 4 ranks have saved in an open window: each is rounded, and each sum."""
    def work(rank):
        rank.trainer.convert(dtype=b"bf16", what=GRADIENTS)
        rank.trainer.load(saved)
        return {name: rank.trainer.read(name, "gradient") for name in rank.trainer.names("gradient")}

    sums, = run(work, artifacts.get("f32"), 1)
    data, bad = safe_open(saved, "numpy"), 0
    for name, found in sums.items():
        want = np.zeros_like(found)
        for rank in range(4):
            want = rounded(want + rounded(data.get_tensor(f"rank/{rank}/gradient/{name}"), "bf16"), "bf16")
        bad += check(f"sums of 4 ranks, added in bf16: {name}", np.array_equal(found, want) and found.any())
    return bad


# On which rank what differs from the rest, and what all say. Those of `own` are one rank's failures, which the others report as its.
def refused_options(artifacts):
    other, two, alone = artifacts.get("f32", FOUR, state="v"), artifacts.get("f32", TWO), artifacts.get("f32")
    merged = artifacts.get("f32", FOUR, "--merge-buffer=sharded")
    good, bf16, differ = artifacts.get("mixed", FOUR), dict(dtype=b"bf16"), "ranks differ in what a state is to be converted to"
    return [("no such type", True, 2, dict(dtype=b"i8"), bf16, "cannot be converted to 'i8'"),
            ("a memory limit", True, 1, dict(dtype=b"f64", memory_limit=4096), dict(dtype=b"f64"), "memory_limit is 4096"),
            ("a memory limit, to an artifact", True, 3, dict(path=good, memory_limit=4096), dict(path=good), "memory_limit is 4096"),
            ("another type", False, 1, dict(dtype=b"f16"), bf16, differ),
            ("other tensors", False, 3, dict(dtype=b"bf16", what=STATES), bf16, differ),
            ("integers", False, 2, dict(dtype=b"bf16", include_integers=1), bf16, differ),
            ("nothing", False, 0, {}, bf16, differ),
            ("no artifact", False, 1, bf16, dict(path=good), differ),
            ("another artifact", False, 1, dict(path=other), dict(path=good), differ),
            ("merged sums of a window", False, None, {}, dict(path=merged), "each rank's own in one of artifacts"),
            ("another optimizer", False, None, {}, dict(path=other), "missing: 'optimizer/w/v'"),
            ("another number of ranks", False, None, {}, dict(path=two), "is compiled for 2 ranks (host = 1, data = 2), there are 4"),
            ("no mesh", False, None, {}, dict(path=alone), "there are 4")]


def count_mappings():
    """Of memory that ranks share."""
    with open("/proc/self/maps") as f:
        return sum("memfd:trainc" in line for line in f)


def refusing(options, path):
    def work(rank):
        trainer, seen, mapped = rank.trainer, [], 0
        steps(rank, 0, BEFORE)
        trainer.save(path("before"))
        total = trainer.memory().total
        for _, _, at, own, rest, _ in options:
            text = refusal(trainer.convert, **(own if rank.rank == at else rest))
            trainer.save(path("after"))
            rank.comm.barrier()
            seen.append((text, bytes_of(path("before")) == bytes_of(path("after")), trainer.memory().total == total))
            rank.comm.barrier()
        trainer.convert()  # nothing, on all
        for _ in range(70):  # more often than a communicator has groups
            trainer.convert(options[2][4]["path"])
            mapped = mapped or count_mappings()
        same = count_mappings() == mapped
        results = steps(rank, BEFORE, BEFORE + 2)  # closes the window; sums of the next may be others
        trainer.convert(options[9][4]["path"])
        return seen, results + steps(rank, BEFORE + 2, BEFORE + AFTER), same
    return work


def check_refusals(folder, artifacts):
    options, bad = refused_options(artifacts), 0
    results = run(refusing(options, lambda name: os.path.join(folder, f"refused-{name}")), artifacts.get("f32", FOUR), 4)
    for i, (what, owned, at, _, _, text) in enumerate(options):
        texts = [r[0][i][0] for r in results]
        bad += check(f"{what} on rank {at}: refused by all", all(text in t for t in texts) and all(
            (f"rank {at}: " in t) == (owned and r != at) for r, t in enumerate(texts)), texts)
        bad += check(f"{what} on rank {at}: nothing changes", all(r[0][i][1:] == (True, True) for r in results), results)
    bad += check("and they go on", all(len(r[1]) == AFTER for r in results))
    return bad + check("memory of peers that is not used is not mapped", all(r[2] for r in results))


MEBIBYTE = 1 << 20


def status(key):
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith(key + ":"))


def resident():
    """Bytes of this rank's own memory, with what peers may read and without what it reads of theirs."""
    shared, own = 0, False
    with open("/proc/self/smaps") as f:
        for line in f:
            fields = line.split()
            if not fields[0].endswith(":"):
                own = "memfd:trainc" in line and fields[1] == "rw-s"
            elif own and fields[0] == "Rss:":
                shared += int(fields[1]) * 1024
    return status("RssAnon") + shared


def measuring(to, few_files):
    """What a rank without memory makes all say; by conversion, bytes that the account and the system had above the larger state, and how far
    the two are apart after it; and the types and sums of what was converted.
    """
    def work(rank):
        trainer, found, texts = rank.trainer, [], []
        steps(rank, 0, 3)
        trainer.convert(dtype=b"f64", what=GRADIENTS)  # activations are not resident afterwards, and not used here
        trainer.convert(dtype=b"f32", what=GRADIENTS)
        values = [trainer.read("embed"), trainer.read("embed", "state", "m")]

        def without(kind, limit, **options):
            old = resource.getrlimit(kind)
            if rank.rank == 1:
                resource.setrlimit(kind, (limit, old[1]))
            texts.append(refusal(trainer.convert, **options))
            resource.setrlimit(kind, old)

        def measured(**options):
            rank.comm.barrier()
            before, own, most = trainer.memory(), resident(), status("VmRSS")
            with open("/proc/self/clear_refs", "w") as f:
                f.write("5")  # VmHWM starts again from VmRSS
            rank.comm.barrier()
            trainer.convert(**options)
            after = trainer.memory()
            # The workspace is not resident before the next step.
            kept = after.total - after.workspace - (before.total - before.workspace)
            found.append((after.peak - max(before.total, after.total), status("VmHWM") - max(most, status("VmRSS")),
                          abs(resident() - own - kept)))
            rank.comm.barrier()

        without(resource.RLIMIT_AS, status("VmSize") + 4 * MEBIBYTE, dtype=b"f64")
        if few_files:  # of shared memory
            without(resource.RLIMIT_FSIZE, MEBIBYTE, path=to)
        measured(dtype=b"f64")
        measured(dtype=b"f32")
        measured(dtype=b"bf16", what=STATES)
        measured(dtype=b"f32", what=STATES)
        measured(path=to)
        same = [np.array_equal(rounded(old, "bf16"), new)
                for old, new in zip(values, (trainer.read("embed"), trainer.read("embed", "state", "m")))]
        return texts, found, same
    return work


def check_memory(folder, artifacts):
    """Of arenas of 7 to 31 MiB."""
    bad = 0
    for mode in "--shard=none", "--shard=optimizer", "--shard=parameters":
        start, to = (artifacts.get(kind, TWO, mode, rows=60000) for kind in ("mixed", "bf16"))
        results = run(measuring(to, mode != "--shard=none"), start, 2)
        texts = [r[0] for r in results]
        bad += check(f"{mode}: no memory on one rank", all("cannot allocate" in t[0] and ("rank 1: " in t[0]) == (i == 0)
                                                           for i, t in enumerate(texts)), texts)
        bad += check(f"{mode}: no shared memory on one rank", all("rank 1: cannot make" in t for own in texts for t in own[1:]), texts)
        bad += check(f"{mode}: values", all(all(r[2]) for r in results), results)
        for what, limit, column in (("account", MEBIBYTE, 0), ("system", MEBIBYTE, 1), ("account and system", 3 * MEBIBYTE, 2)):
            most = [max(f[column] for f in r[1]) for r in results]
            bad += check(f"{mode}: memory by the {what}: {most}", max(most) <= limit, results)
    return bad


def dying(to):
    """Rank 1 dies while parts go through the ranks."""
    def work(rank):
        def die():
            while rank.comm.info().collectives[BROADCAST] < 10:
                time.sleep(1e-4)
            os.kill(os.getpid(), signal.SIGKILL)

        steps(rank, 0, 1)
        if rank.rank == 1:
            threading.Thread(target=die, daemon=True).start()
        texts = [refusal(rank.trainer.convert, to)]
        return texts + [refusal(call) for call in (rank.trainer.flush, lambda: steps(rank, 1, 2), lambda: rank.trainer.save("x"))]
    return work


def check_death(artifacts):
    start, to = (artifacts.get("mixed", FOUR, mode, rows=60000) for mode in ("--shard=optimizer", "--shard=none"))
    results, bad = run(dying(to), start, 4, dying=[1]), 0
    bad += check("a rank dies: named", all("COMM_FAILED" in t[0] and "rank 1 is dead" in t[0] and "broadcast 'embed'" in t[0]
                                           for t in results), results)
    return bad + check("a rank dies: half a state is of no use", all("ended half-way" in text for t in results for text in t[1:]), results)


def main():
    with tempfile.TemporaryDirectory() as folder:
        artifacts = Artifacts(folder)
        bad = sum(check_case(folder, artifacts, *case) for case in CASES)
        bad += check_sums(folder, artifacts, os.path.join(folder, "many-before"))
        sys.exit(bad + check_refusals(folder, artifacts) + check_memory(folder, artifacts) + check_death(artifacts) != 0)


if __name__ == "__main__":
    main()
