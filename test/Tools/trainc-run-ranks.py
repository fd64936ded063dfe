# REQUIRES: numpy
# RUN: %python %s %t
"""trainc-run on several ranks: the numbers of one rank, also resumed at other counts; a stop that all agree on; a file that nobody may
write is replaced; what dies, hangs or does not fit is named, and ends all ranks within the deadline.

usage: trainc-run-ranks.py FOLDER [--faults N SET]   (--faults: kills and stops ranks at N random moments, alone; of the
states in pieces, all in pieces ('divided') or also in parts ('parts'))
"""
import ctypes
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(ROOT, "test", "Integration", "Inputs")]

from common import compile_module, tool  # noqa: E402
from ranks import example, mesh_option  # noqa: E402
from report import check  # noqa: E402

DEADLINE = 2
GPT = ["--layers", 1, "--width", 32, "--heads", 2, "--seq", 16, "--batch", 8, "--vocab", 64, "--accumulate", 2]
NUMBERS = """
train.mesh @mesh(data = 1)
train.optimizer @o = adam<lr = 4.0e-7, eps = 1.0e-8>
train.param @w : tensor<4xf32> init(ones) optimizer(@o)
train.step @step(%x: tensor<8x4xf32> split([data])) {
  %w = train.read @w : tensor<4xf32>
  %two = nn.constant dense<2.0> : tensor<f32>
  %p = nn.mul %x, %w : tensor<8x4xf32>, tensor<4xf32>
  %q = nn.mul %p, %two : tensor<8x4xf32>, tensor<f32>
  %s = nn.reduce sum %q dims [0, 1] : tensor<8x4xf32>
  train.yield loss(%s) : tensor<f32>
}
"""
BAD = []


class Run:
    """trainc-run on `ranks` ranks that find each other by files; each calls `before` first."""

    def __init__(self, folder, ranks, model, *options, own=lambda rank: (), before=None):
        self.started, meeting = time.monotonic(), os.path.join(folder, f"meet{time.monotonic_ns()}")
        os.mkdir(meeting)
        self.processes = [subprocess.Popen(
            [tool("trainc-run"), own_model(model, rank), "--threads", "1",
             *(["--comm", f"file:{meeting}", "--deadline", str(DEADLINE)] if ranks > 1 else []), *map(str, options),
             *own(rank)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder, preexec_fn=before,
            env=dict(os.environ, **(dict(TRAINC_RANK=str(rank), TRAINC_RANKS=str(ranks)) if ranks > 1 else {})))
            for rank in range(ranks)]

    def wait(self, but=None, limit=60):
        """(status, output, errors) of each rank; None of rank `but`, which is killed at the end."""
        results = []
        for rank, process in enumerate(self.processes):
            if rank == but:
                results.append(None)
                continue
            try:
                output, errors = process.communicate(timeout=limit)
            except subprocess.TimeoutExpired:
                process.kill()
                output, errors = process.communicate()
                results.append(("hang", output, errors))
                continue
            results.append((process.returncode, output, errors))
        if but is not None:
            self.processes[but].kill()
            self.processes[but].communicate()
        return results


def own_model(model, rank):
    return model[rank] if isinstance(model, list) else model


def losses(output):
    return [float(x) for x in re.findall(r"(?:first|final|eval) loss (\S+)", output)]


def expect(what, good, detail=""):
    if check(what, good, detail):
        BAD.append(what)


def same_numbers(folder, models, data):
    one, = Run(folder, 1, models[1], *data, "--steps", 10, "--checkpoint-dir", "c1").wait()
    expect("one rank", one[0] == 0, one)
    for ranks in (2, 4):
        results = Run(folder, ranks, models[ranks], *data, "--steps", 10, "--log", f"l{ranks}.jsonl").wait()
        status, output, errors = results[0]
        expect(f"{ranks} ranks", all(r[0] == 0 for r in results), results)
        expect(f"{ranks} ranks: losses", np.allclose(losses(output), losses(one[1]), rtol=1e-5), output)
        expect(f"{ranks} ranks: one prints", all(not r[1] and not r[2] for r in results[1:]), results)
        expect(f"{ranks} ranks: processors", "ranks and their processors: 0 on" in errors, errors)
        expect(f"{ranks} ranks: logs", all(os.path.exists(f"{folder}/l{ranks}.rank{i}.jsonl") for i in range(ranks)))
    # Resumed at another number of ranks, where one rank left off.
    Run(folder, 2, models[2], *data, "--steps", 5, "--checkpoint-dir", "c2").wait()
    for ranks in (1, 2, 4):
        shutil.copytree(f"{folder}/c2", f"{folder}/r{ranks}")
        results = Run(folder, ranks, models[ranks], *data, "--steps", 10, "--resume", "--checkpoint-dir",
                      f"r{ranks}").wait()
        contents(f"{folder}/r{ranks}/step-000010.safetensors")
        expect(f"resumed on {ranks}", results[0][0] == 0 and
               np.allclose(losses(results[0][1])[-1], losses(one[1])[-1], rtol=1e-5), results[0])


CRC = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    CRC.append(byte)


def crc32c(data):
    left = 0xFFFFFFFF
    for byte in data:
        left = left >> 8 ^ CRC[(left ^ byte) & 255]
    return left ^ 0xFFFFFFFF


def contents(path):
    """The tensors of a checkpoint: type, shape and bytes by name. All ranks together have made its checksum."""
    with open(path, "rb") as f:
        data = f.read()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    metadata = header.pop("__metadata__")
    expect(f"checksum of {os.path.basename(path)}", metadata["trainc.checksum"] == f"crc32c:{crc32c(data[start:]):08x}", metadata)
    return {name: (t["dtype"], t["shape"], data[start:][slice(*t["data_offsets"])]) for name, t in header.items()}


def converts(folder, models, data):
    """What 2 ranks have saved, in other types."""
    saved, wanted = ["--resume=c2"], {}
    for ranks in (1, 2, 4):
        for what in ("parameters", "parameters+states"):
            path = f"{ranks}-{what}"
            results = Run(folder, ranks, models[ranks], *saved, "--convert", f"dtype=bf16,what={what}", "--save", path).wait()
            expect(f"{what} converted by {ranks}", all(r[0] == 0 and (not i or not r[1] + r[2]) for i, r in enumerate(results)),
                   results)
            found = contents(f"{folder}/{path}")
            types = [{t[0] for name, t in found.items() if name.startswith("optimizer/") == states and "scalar/" not in name}
                     for states in (False, True)]
            expect(f"{what} converted by {ranks}: types", types == [{"BF16"}, {"BF16" if "states" in what else "F32"}], types)
            expect(f"{what} converted by {ranks}: as by one", found == wanted.setdefault(what, found))
        results = Run(folder, ranks, models[ranks], *data, f"--resume={ranks}-parameters", "--steps", 10).wait()
        expect(f"converted, resumed on {ranks}", all(r[0] == 0 for r in results) and "final loss" in results[0][1], results)
    fails("no such type", Run(folder, 4, models[4], *saved, "--convert", "dtype=i8", "--save", "x").wait(),
          "a state cannot be converted to 'i8'")
    expect("nothing is saved then", not os.path.exists(f"{folder}/x"))


def may_write_no_other():
    """Root, too, may not write read-only files."""
    drop_capability, write_any_file = 24, 1
    ctypes.CDLL(None).prctl(drop_capability, write_any_file, 0, 0, 0)


def replaces(folder, models):
    path = f"{folder}/read-only"
    for what in ("saved", "replaced"):
        results = Run(folder, 4, models[4], "--save", path, before=may_write_no_other).wait()
        expect(f"a file that nobody may write is {what}", all(r[0] == 0 for r in results), results)
        contents(path)
        mode = os.stat(path).st_mode & 0o777
        os.chmod(path, 0o444)
    expect("nobody may write it then", mode == 0o444, oct(mode))


def stops(folder, models, data):
    run = Run(folder, 4, models[4], *data, "--steps", 10 ** 6, "--checkpoint-dir", "stopped")
    time.sleep(1.5)
    run.processes[2].send_signal(signal.SIGUSR1)
    results = run.wait()
    text = results[0][2]
    step = re.search(r"stopped after step (\d+), which is saved", text)
    expect("stopped by SIGUSR1 on one rank", all(r[0] == 130 for r in results) and step is not None, results)
    if step:
        saved = f"{folder}/stopped/step-{int(step[1]):06d}.safetensors"
        expect("the step of the stop is saved", os.path.exists(saved), os.listdir(f"{folder}/stopped"))


def fails(what, results, *wanted, once=True):
    """Every rank that is there ends with 1, and one says why."""
    there = [r for r in results if r]
    texts = [line for r in there for line in r[2].split("\n") if "error:" in line]
    expect(what, all(r[0] == 1 for r in there) and all(any(w in t for t in texts) for w in wanted) and
           (not once or len(texts) == 1), results)


def mismatches(folder, models, data):
    fails("another number of ranks", Run(folder, 3, models[2], *data, "--steps", 2).wait(),
          "compiled for 2 ranks (host = 1, data = 2, model = 1), there are 3")
    fails("a rank alone", Run(folder, 1, models[2], *data, "--steps", 2).wait(), "there is 1")
    fails("a rank of a mesh of one", Run(folder, 2, models[1], *data, "--steps", 2).wait(), "compiled for 1 ranks")
    fails("another artifact on a rank", Run(folder, 2, [models[2], models["other"]], *data, "--steps", 2).wait(),
          "the command line", once=True)
    fails("another seed on a rank", Run(folder, 2, models[2], *data, "--steps", 2,
                                        own=lambda rank: ["--seed", str(rank)]).wait(), "the command line")
    os.makedirs(f"{folder}/own", exist_ok=True)
    shutil.copy(models["other"], f"{folder}/own/a.so")
    for rank in range(2):  # by one name
        os.makedirs(f"{folder}/host{rank}", exist_ok=True)
        shutil.copy(models[2] if rank == 0 else models["other"], f"{folder}/host{rank}/m.so")
        np.save(f"{folder}/host{rank}/d.npy", np.arange(2000 + rank, dtype="u2") % 64)
    # Another number in the tables, or in a kernel's code; and what each rank compiles of one source, by another path.
    numbers = [("rate", "4.0e-7", "1.0e-7"), ("eps", "1.0e-8", "1.0e-9"), ("factor", "2.0", "3.0"), ("same", "2.0", "2.0")]
    for what, old, new in numbers:
        for rank, number in enumerate((old, new)):
            text = NUMBERS.replace(old, number)
            if what == "same":
                compile_module("// Another line.\n" * rank + text, f"{folder}/host{rank}/{what}.so", "--mesh=data=2")
            else:
                shutil.move(compile_module(text, f"{folder}/{what}.so", "--mesh=data=2"), f"{folder}/host{rank}/{what}.so")
            np.save(f"{folder}/host{rank}/few.npy", np.ones((8, 4), "f4"))
    places = [f"{folder}/host{rank}" for rank in range(2)]
    for what, use, wanted in (("artifact", lambda r: ["m.so", "--data", data[1]], "ranks differ in the artifact"),
                              ("data", lambda r: [models[2], "--data", "d.npy"], "ranks differ in the data"),
                              *((what, lambda r, what=what: [f"{what}.so", "--data", "x=few.npy"],
                                 None if old == new else "ranks differ in the artifact") for what, old, new in numbers)):
        meeting = os.path.join(folder, f"meet{time.monotonic_ns()}")
        os.mkdir(meeting)
        run = Run.__new__(Run)
        run.processes = [subprocess.Popen([tool("trainc-run"), *use(rank), "--steps", "2", "--threads", "1", "--comm",
                                           f"file:{meeting}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                          cwd=places[rank], env=dict(os.environ, TRAINC_RANK=str(rank), TRAINC_RANKS="2"))
                         for rank in range(2)]
        if wanted:
            fails(f"another {what} by the same name", run.wait(), wanted)
        else:
            results = run.wait()
            expect("what each rank has compiled for itself", all(r[0] == 0 for r in results), results)


def named_in(texts, rank, pid):
    return re.search(rf"((reduce_scatter|all_reduce|all_gather|broadcast|barrier) '.*collective \d+|fence) of ranks .*"
                     rf"(missing|not done): (\d \(.*\), )*{rank} \(host \S+, pid {pid}", texts)


def await_checkpoint(folder, limit=60):
    """Waits until a checkpoint is finished."""
    end = time.monotonic() + limit
    while not os.path.exists(os.path.join(folder, "latest")) and time.monotonic() < end:
        time.sleep(0.01)


def faults(folder, models, data, count):
    """Ranks die, hang or are late at random moments after the first checkpoint, of a save too: what is late by less than the
    deadline is waited for."""
    rng = random.Random(5)
    for i in range(count):
        how = ["kill", "stop", "delay", "too long a delay"][i % 4]
        run = Run(folder, 4, models[4], *data, "--steps", 10 ** 6, "--checkpoint-dir", f"f{i}", "--checkpoint-every", 3,
                  "--keep", 2)
        await_checkpoint(f"{folder}/f{i}")
        time.sleep(rng.random())
        rank, at = rng.randrange(4), time.monotonic()
        victim = run.processes[rank]
        victim.send_signal(signal.SIGKILL if how == "kill" else signal.SIGSTOP)
        if how == "delay":
            time.sleep(rng.random() * DEADLINE / 2)
            victim.send_signal(signal.SIGCONT)
            time.sleep(0.5)
            going_on = all(p.poll() is None for p in run.processes)
            rng.choice(run.processes).send_signal(signal.SIGUSR1)
            results = run.wait(limit=DEADLINE + 5)
            expect(f"fault {i}, {how} of rank {rank}", going_on and all(r[0] == 130 for r in results), results)
        else:
            late = how == "too long a delay"
            if late:
                time.sleep(DEADLINE + 1 + rng.random())
                victim.send_signal(signal.SIGCONT)
            results = run.wait(but=None if late else rank, limit=DEADLINE + 5)
            seconds = time.monotonic() - at
            there = [r for r in results if r]
            expect(f"fault {i}, {how} of rank {rank}", all(r[0] == 1 for r in there) and
                   named_in("".join(r[2] for r in there), rank, victim.pid) is not None and seconds < DEADLINE + 5,
                   (seconds, results))
        loaded, = Run(folder, 1, models[1], "--resume", "--checkpoint-dir", f"f{i}", "--save", f"s{i}").wait()
        expect(f"fault {i}: the last checkpoint loads", loaded[0] == 0, loaded)
        shutil.rmtree(f"{folder}/f{i}", ignore_errors=True)


def main():
    folder = os.path.abspath(sys.argv[1])
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    np.save(f"{folder}/tokens.npy", np.random.default_rng(0).integers(0, 64, 4000).astype("u2"))
    data = ["--data", f"{folder}/tokens.npy"]
    text = example("gpt", *GPT, "--lr", "0.003")
    models = {ranks: compile_module(text, f"{folder}/m{ranks}.so", mesh_option(dict(data=ranks)), "--shard=optimizer")
              for ranks in (1, 2, 4)}
    models["other"] = compile_module(example("gpt", *GPT, "--lr", "0.004"), f"{folder}/other.so", mesh_option(dict(data=2)),
                                     "--shard=optimizer")
    divided = models | {ranks: compile_module(text, f"{folder}/d{ranks}.so", mesh_option(dict(data=ranks)), f"--shard={mode}")
                        for ranks, mode in ((2, "gradients"), (4, "parameters"))}
    parts = models | {ranks: compile_module(text, f"{folder}/p{ranks}.so", mesh_option(mesh), f"--shard={mode}")
                      for ranks, mesh, mode in ((2, dict(model=2), "none"), (4, dict(data=2, model=2), "parameters"))}
    if len(sys.argv) > 2:
        faults(folder, dict(pieces=models, divided=divided, parts=parts)[sys.argv[4]], data, int(sys.argv[3]))
    else:
        same_numbers(folder, models, data)
        converts(folder, models, data)
        replaces(folder, models)
        stops(folder, models, data)
        mismatches(folder, models, data)
        faults(folder, models, data, 4)
        for name, some in ("divided", divided), ("parts", parts):
            os.mkdir(f"{folder}/{name}")
            same_numbers(f"{folder}/{name}", some, data)
            converts(f"{folder}/{name}", some, data)
            stops(f"{folder}/{name}", some, data)
            faults(f"{folder}/{name}", some, data, 4)
    sys.exit(len(BAD) > 0)


if __name__ == "__main__":
    main()
