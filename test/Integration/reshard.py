# REQUIRES: numpy, safetensors
# RUN: %python %s
"""Checkpoints of several ranks: any number of ranks goes on with them, replicated or sharded, also inside a window; other programs can read
them, with batches of another size, too; and a save that fails on one rank fails on all and leaves the old file.
"""
import json
import os
import sys
import tempfile

import numpy as np
from safetensors import safe_open

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))

from ranks import batches, compile_module, example, mesh_option, run, same  # noqa: E402
from report import check  # noqa: E402
from trainc_ctypes import Error  # noqa: E402

K, BATCH, SEQ, VOCABULARY = 4, 24, 8, 64  # every number of ranks below divides the batch
GPT = ["--layers", 1, "--width", 32, "--heads", 4, "--seq", SEQ, "--vocab", VOCABULARY, "--batch", BATCH, "--accumulate", K,
       "--lr", "0.01", "--optimizer", "adam"]
MODES, SAVERS = ("none", "optimizer"), dict(host=2, data=2)
EACH_MODES = *MODES, "gradients", "parameters"
EACH = ("--merge-buffer=sharded",)
DATA = batches(dict(x=((BATCH, SEQ), "i"), y=((BATCH, SEQ), "i")), 4 * K, VOCABULARY)
CLOSED, OPEN = K, K + 2  # micro-steps after which states are saved


def gpt(*options):
    """The step alone: what an artifact evaluates is not in its checkpoints."""
    return example("gpt", *GPT, *options).split("\ntrain.eval")[0]


def closing(rank, begin, end):
    """Loss, norm and weight of the windows that end in these micro-steps."""
    results = [rank.step(**inputs) for inputs in DATA[begin:end]]
    return np.array([(r.window_loss, r.grad_norm, r.window_weight) for r in results if r.closed])


def saving(folder):
    """Saves after CLOSED and OPEN micro-steps and goes on; the windows after CLOSED, and tensors as they were and at the end."""
    def work(rank):
        closing(rank, 0, CLOSED)
        rank.trainer.set_metadata("position", "17")
        rank.trainer.save(os.path.join(folder, "closed"))
        before = rank.tensors()
        closing(rank, CLOSED, OPEN)
        rank.trainer.save(os.path.join(folder, "open"))
        gradients = {n: rank.trainer.read(n, "gradient") for n in rank.trainer.names("gradient")}
        return closing(rank, OPEN, 4 * K), rank.tensors(), before, gradients
    return work


def loading(folder, hidden=False):
    """Goes on from both files (that all ranks but the first do not find): the windows, and the tensors at the end."""
    def work(rank):
        found = []
        for name, begin in ("closed", CLOSED), ("open", OPEN):
            rank.trainer.load(os.path.join(folder, "elsewhere" if hidden and rank.rank else "", name))
            found.append((closing(rank, begin, 4 * K), rank.tensors()))
        return found, rank.trainer.get_metadata("position")
    return work


def contents(path):
    with safe_open(path, "numpy") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()


def reverse(path, other):
    """Writes the same tensors, the last one first, as other programs may, without the checksum."""
    with open(path, "rb") as file:
        header, data = json.loads(file.read(int.from_bytes(file.read(8), "little"))), file.read()
    metadata = {key: value for key, value in header.pop("__metadata__").items() if "checksum" not in key}
    header, pieces, end = dict(reversed(header.items())), [], 0
    for tensor in header.values():
        begin, stop = tensor["data_offsets"]
        pieces.append(data[begin:stop])
        tensor["data_offsets"] = end, end + stop - begin
        end += stop - begin
    text = json.dumps({"__metadata__": metadata, **header}).encode()
    os.makedirs(os.path.dirname(other), exist_ok=True)
    with open(other, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + b"".join(pieces))


def check_files(what, folder, before, gradients):
    """`before` is the state at CLOSED, `gradients` those of each rank at OPEN."""
    tensors, metadata = contents(os.path.join(folder, "closed"))
    names = {("parameter", None): "{0}", ("buffer", None): "{0}"}
    want = {names.get((role, state), "optimizer/{0}/{1}").format(name, state): value
            for (role, name, state), value in before.items() if role != "compute"}
    bad = check(f"{what}: the file has the whole tensors", same({n: tensors.get(n) for n in want}, want))
    bad += check(f"{what}: and scalars, nothing else", all(n in want or n.startswith("scalar/") for n in tensors))
    bad += check(f"{what}: metadata", metadata["user.position"] == "17" and metadata["trainc.update"] == "1")
    tensors, metadata = contents(os.path.join(folder, "open"))
    bad += check(f"{what}: sums of each rank in a window", metadata["trainc.window_ranks"] == str(len(gradients)) and all(
        np.array_equal(tensors[f"rank/{r}/gradient/{n}"], value) for r, own in enumerate(gradients) for n, value in own.items()))
    return bad


def check_loads(bf16, folder):
    """States that 4 ranks save."""
    bad, kind = 0, "bf16" if bf16 else "f32"
    text = gpt(*["--bf16"] * bf16)
    library = os.path.join(folder, "gpt.so")  # whose name is in the checkpoints
    saved = {}
    for mode in MODES:
        path = os.path.join(folder, f"{kind}-{mode}")
        os.makedirs(path)
        results = run(saving(path), compile_module(text, library, mesh_option(SAVERS), f"--shard={mode}"), 4)
        bad += check_files(f"{kind} {mode}", path, results[0][2], [r[3] for r in results])
        saved[mode] = path, results[0]
    for name in "closed", "open":
        files = [open(os.path.join(saved[mode][0], name), "rb").read() for mode in MODES]
        bad += check(f"{kind}: same file of both modes, {name}", files[0] == files[1])
    path, (went_on, _, _, _) = saved["optimizer"]
    for ranks in 1, 2, 3, 4, 8:
        for mode in MODES[:1] if ranks == 1 else MODES[1:] if bf16 and ranks in (2, 3) else MODES:
            mesh = SAVERS if ranks == 4 else dict(data=ranks)
            compile_module(text, library, mesh_option(mesh), f"--shard={mode}")
            results = run(loading(path), library, ranks)
            found, position = results[0]
            if not bf16 and (ranks, mode) in ((3, "none"), (4, "optimizer"), (8, "optimizer")):
                turned = os.path.join(folder, "turned")
                for name in "closed", "open":
                    reverse(os.path.join(path, name), os.path.join(turned, name))
                others = run(loading(turned, hidden=True), library, ranks)
                bad += check(f"{kind}, the last tensor first, loaded by {ranks}, {mode}: next loss", all(
                    np.allclose(a[0][0], b[0][0], rtol=1e-6) for r, _ in others for a, b in zip(r, found)))
                results += run(loading(path, hidden=True), library, ranks)
            what = f"{kind}, saved by 4, loaded by {ranks}, {mode}"
            bad += check(f"{what}: ranks agree", all(p == "17" == position and np.array_equal(a[0], b[0]) and same(a[1], b[1])
                                                     for r, p in results for a, b in zip(r, found)))
            for (windows, tensors), when in zip(found, ("between windows", "inside a window")):
                if ranks == 4:
                    _, (want, end, _, _) = saved[mode]
                    bad += check(f"{what}, {when}: same bits", np.array_equal(windows, want) and same(tensors, end))
                error = np.abs(windows - went_on) / np.abs(went_on)
                bad += check(f"{what}, {when}: next loss", len(windows) == 3 and error[0, 0] <= 1e-6, error[0, 0])
                bad += check(f"{what}, {when}: later losses", error.max() <= (3e-2 if bf16 else 1e-5), error.max())
    return bad


def check_other_save(folder):
    """A state that one rank saves."""
    bad, library = 0, os.path.join(folder, "gpt.so")
    text, path = gpt(), os.path.join(folder, "one")
    os.makedirs(path)
    (went_on, *_), = run(saving(path), compile_module(text, library), 1)
    for mode in MODES:
        results = run(loading(path), compile_module(text, library, mesh_option(dict(data=3)), f"--shard={mode}"), 3)
        for (windows, _), when in zip(results[0][0], ("between windows", "inside a window")):
            error = np.abs(windows - went_on) / np.abs(went_on)
            bad += check(f"saved by 1, loaded by 3, {mode}, {when}", error[0, 0] <= 1e-6 and error.max() <= 1e-5, error)
    return bad


# What saves: its options, and how many ranks; and what loads that: ranks, mode, options, and whether the first rank alone has the file.
LOADS = {(EACH, 4): [(4, "none", EACH, False), (4, "optimizer", EACH, False), (4, "gradients", EACH, False),
                     (4, "parameters", EACH, False), (2, "none", EACH, False), (8, "optimizer", EACH, True),
                     (8, "parameters", (), True), (1, "none", (), False), (3, "none", (), True), (4, "optimizer", (), False)],
         ((), 4): [(4, "none", EACH, False), (3, "optimizer", EACH, True), (2, "gradients", (), False)],
         ((), 1): [(2, "optimizer", EACH, False), (3, "parameters", (), False)]}


def check_each_micro_step(folder):
    """Gradients summed over ranks in each micro-step: others go on with the sums of an open window, and with those of others."""
    bad, text, library = 0, gpt(), os.path.join(folder, "gpt.so")

    def compiled(ranks, mode, options):
        mesh = SAVERS if ranks == 4 else dict(data=ranks)
        return compile_module(text, library, *([mesh_option(mesh), f"--shard={mode}", *options] if ranks > 1 else []))

    for (options, savers), loads in LOADS.items():
        saved = {}
        for mode in EACH_MODES if options else MODES[1:]:
            path = os.path.join(folder, f"each-{savers}-{mode}{''.join(options)}")
            os.makedirs(path)
            saved[mode] = path, run(saving(path), compiled(savers, mode, options), savers)
        path, results = saved["optimizer"]
        who = f"saved by {savers} {''.join(options)}"
        if options:
            states = [contents(os.path.join(saved[mode][0], "open"))[0] for mode in EACH_MODES]
            bad += check(f"{who}: same file of all modes", all(same(states[0], state) for state in states))
            sums = {f"gradient/{n}": value for n, value in results[0][3].items()}
            bad += check(f"{who}: one sum of all ranks", all(same(results[0][3], r[3]) for r in results) and sums and
                         same(sums, {n: states[0].get(n) for n in sums}) and not [n for n in states[0] if "/gradient/" in n])
        for ranks, mode, how, hidden in loads:
            results = run(loading(path, hidden), compiled(ranks, mode, how), ranks)
            what = f"{who}, loaded by {ranks}, {mode} {''.join(how)}"
            for (windows, tensors), when, again in zip(results[0][0], ("between windows", "inside a window"), (0, 1)):
                went_on, end = saved[mode if options else "optimizer"][1][0][:2]
                bad += check(f"{what}, {when}: ranks agree", all(
                    np.array_equal(windows, r[0][again][0]) and same(tensors, r[0][again][1]) for r in results))
                error = np.abs(windows - went_on) / np.abs(went_on)
                bad += check(f"{what}, {when}: next loss", len(windows) == 3 and error[0, 0] <= 1e-6, error[0, 0])
                bad += check(f"{what}, {when}: later losses", error.max() <= 1e-5, error.max())
                if ranks == savers and how == options:
                    bad += check(f"{what}, {when}: same bits", np.array_equal(windows, went_on) and same(tensors, end))
    return bad


# Parts of parameters: the mesh, mode and options that save, and those that load, of which an odd vocabulary divides none.
MIXED = dict(data=2, model=2)
PARTS = {(("data", 2), ("model", 2), "parameters"): [
             (None, "none", ()), (dict(model=4), "none", ()), (dict(data=4), "optimizer", ()), (dict(data=4), "parameters", ()),
             (MIXED, "none", ()), (MIXED, "optimizer", EACH), (MIXED, "parameters", ()), (dict(model=2), "gradients", ())],
         (("data", 2), ("model", 2), "none"): [
             (None, "none", ()), (dict(model=4), "optimizer", ()), (dict(data=4), "none", ()), (MIXED, "none", ())],
         (("model", 4), "optimizer"): [(None, "none", ()), (MIXED, "parameters", ()), (dict(data=2), "none", ())],
         (("data", 4), "parameters"): [(MIXED, "parameters", ()), (dict(model=4), "none", ())],
         ("none",): [(MIXED, "parameters", ()), (MIXED, "none", ()), (dict(model=4), "none", ())]}


def check_parts(folder):
    bad, library = 0, os.path.join(folder, "gpt.so")
    text = gpt("--vocab", VOCABULARY + 1)

    def compiled(mesh, mode, options):
        return compile_module(text, library, *([mesh_option(mesh), f"--shard={mode}", *options] if mesh else []))

    for (*axes, mode), loads in PARTS.items():
        mesh = dict(axes)
        ranks, path = int(np.prod([size for _, size in axes])), os.path.join(folder, "-".join(map(str, (*axes, mode))))
        os.makedirs(path)
        results = run(saving(path), compiled(mesh, mode, ()), ranks, alike=alike(mesh))
        went_on, end, before, _ = results[0]
        tensors, _ = contents(os.path.join(path, "closed"))
        bad += check(f"parts saved by {mesh}, {mode}: the file has whole tensors", all(
            tensors[name if role == "parameter" else f"optimizer/{name}/{state}"].tobytes() == value.tobytes()
            for (role, name, state), value in before.items() if role in ("parameter", "state")))
        for to, how, options in loads:
            count = int(np.prod(list(to.values()))) if to else 1
            hidden = how == "none" and count > 1
            results = run(loading(path, hidden), compiled(to, how, options), count, alike=alike(to))
            what = f"parts saved by {mesh}, {mode}, loaded by {to}, {how} {' '.join(options)}"
            bad += check(f"{what}: ranks agree", all(np.array_equal(a[0], b[0]) and same(a[1], b[1])
                                                     for r, _ in results for a, b in zip(r, results[0][0])))
            for (windows, tensors), when in zip(results[0][0], ("between windows", "inside a window")):
                error = np.abs(windows - went_on) / np.abs(went_on)
                bad += check(f"{what}, {when}: next loss", len(windows) == 3 and error[0, 0] <= 1e-6, error[0, 0])
                bad += check(f"{what}, {when}: later losses", error.max() <= 1e-5, error.max())
                if (to or {}, how, options) == (mesh, mode, ()):
                    bad += check(f"{what}, {when}: same bits", np.array_equal(windows, went_on) and same(tensors, end))
    return bad


# Ranks, mode and options that save in a window of BATCH, and that go on with batches half as large.
HALVES = [((2, "none", ()), (1, "none", ())), ((2, "none", ()), (2, "optimizer", ())), ((3, "optimizer", EACH), (2, "optimizer", EACH)),
          ((1, "none", ()), (3, "optimizer", EACH))]


def check_halves(folder):
    """Sums of gradients are divided by a power of two that follows from the terms of the whole batch."""
    halves, bad, library = [{n: v[i:i + BATCH // 2] for n, v in d.items()} for d in DATA[:3] for i in (0, BATCH // 2)], 0, "halves.so"
    path = os.path.join(folder, "halves")

    def compiled(batch, accumulate, ranks, mode, options):
        return compile_module(gpt("--batch", batch, "--accumulate", accumulate), os.path.join(folder, library),
                              *([mesh_option(dict(data=ranks)), f"--shard={mode}", *options] if ranks > 1 else []))

    def saves(rank):
        for inputs in DATA[:2]:
            rank.step(**inputs)
        rank.trainer.save(path)

    def goes_on(rank, begin=4):
        if begin:
            rank.trainer.load(path)
        result = [rank.step(**inputs) for inputs in halves[begin:]][-1]
        return np.array([result.window_loss, result.window_weight, result.grad_norm]), result.closed

    (want, _), = run(lambda rank: goes_on(rank, 0), compiled(BATCH // 2, 6, 1, "none", ()), 1)
    for saver, loader in HALVES:
        run(saves, compiled(BATCH, K, *saver), saver[0])
        for found, closed in run(goes_on, compiled(BATCH // 2, K, *loader), loader[0]):
            bad += check(f"a window of {saver} with half batches of {loader}", closed and np.allclose(found, want, rtol=1e-5), (found, want))
    return bad


def alike(mesh):
    """How many ranks, one after another, have the same rows of a batch."""
    return (mesh or {}).get("model", 1)


def refusal(call, *arguments):
    try:
        call(*arguments)
    except Error as error:
        return str(error)
    return None


# Which rank's I/O fails, and what the message says. The first rank alone makes the file, moves it into place, writes `latest` and removes
# old checkpoints.
FAULTS = [(0, "open:1:fail", "cannot create"), (0, "write:1:fail", "cannot write"), (0, "rename:1:fail", "cannot replace"),
          (2, "open:1:fail", "cannot open"), (1, "write:2:fail", "cannot write"), (2, "fsync:1:fail", "cannot sync")]
# After these the checkpoint is whole, and `latest` or the folder is not yet as it should be.
LATE_FAULTS = [(0, "rename:2:fail", "cannot replace"), (0, "remove:1:fail", "cannot remove")]


def failing(folder):
    """Error, `latest` and the folder after a save, after one with each fault, and after another one."""
    def work(rank):
        seen = []

        def save(fault=None):
            closing(rank, 0, K)
            if fault:
                os.environ["TRAINC_FAULT"] = fault
            error = refusal(rank.trainer.save_checkpoint, folder, 1)
            os.environ.pop("TRAINC_FAULT", None)
            rank.comm.barrier()
            with open(os.path.join(folder, "latest")) as file:
                seen.append((error, file.read().strip(), sorted(name for name in os.listdir(folder) if name != ".lock")))
            rank.comm.barrier()

        save()
        for at, fault, _ in FAULTS + LATE_FAULTS:
            save(fault if rank.rank == at else None)
        save()
        return seen
    return work


def name_of(update):
    return f"step-{update:06d}.safetensors"


def check_failing_saves(folder, library):
    path = os.path.join(folder, "failing")
    results = run(failing(path), library, 3)
    bad, last = 0, 1
    for i, (at, fault, text) in enumerate(FAULTS + LATE_FAULTS, 1):
        what = f"rank {at} fails to {fault}"
        errors = [seen[i][0] for seen in results]
        bad += check(f"{what}: on all ranks", all(e and text in e for e in errors) and all(
            (f"rank {at}: " in e) == (r != at) for r, e in enumerate(errors)), errors)
        _, latest, files = results[0][i]
        if (at, fault, text) in FAULTS:
            bad += check(f"{what}: the old file stays, alone", latest == name_of(1) and files == ["latest", latest], files)
        else:
            last = i + 1 if "remove" in fault else last
            bad += check(f"{what}: all is whole", latest == name_of(last) and name_of(1) in files and name_of(i + 1) in files
                         and not [n for n in files if n.startswith(".")], files)
    error, latest, files = results[0][-1]
    return bad + check("a save after all that", error is None and files == ["latest", latest], (error, files))


def refusing(folder):
    """What ranks say that load different files, or one that the first does not find; whether their state is what it was; and
    whether they have a state, or its parameters, of a file that the first rank alone finds."""
    def work(rank):
        def path(name, other):
            return os.path.join(folder, name if rank.rank == 0 else other)

        trainer, states = rank.trainer, []
        for name in "a", "b":
            closing(rank, 0, K)
            trainer.save(os.path.join(folder, name))
            states.append(rank.tensors())
        texts = [refusal(load, path(*names)) for names in (("a", "b"), ("absent", "b"), ("absent", "absent"))
                 for load in (trainer.load, trainer.load_parameters)]
        unchanged = same(states[1], rank.tensors())
        trainer.load(path("a", "absent"))
        loaded = same(states[0], rank.tensors())
        trainer.load_parameters(path("b", "absent"))
        mixed = {key: states[key[0] != "state"][key] for key in states[0]}
        return texts, (unchanged, loaded, same(mixed, rank.tensors())), closing(rank, 0, K).shape
    return work


def check_refusals(folder, library):
    path = os.path.join(folder, "refusing")
    os.makedirs(path)
    results, bad = run(refusing(path), library, 3), 0
    for i, (what, text) in enumerate((("files that differ", "ranks differ in the checkpoint"),
                                      ("a file that the first rank does not find", "NOT_FOUND"),
                                      ("a file that no rank finds", "NOT_FOUND"))):
        bad += check(f"{what}: refused by all", all(t and text in t for r in results for t in r[0][2 * i:2 * i + 2]), results)
    bad += check("refused loads change nothing", all(r[1][0] for r in results))
    bad += check("state of a file that the first rank alone finds", all(r[1][1] for r in results))
    bad += check("parameters of a file that the first rank alone finds", all(r[1][2] for r in results))
    return bad + check("and they go on", all(r[2] == (1, 3) for r in results), results)


def main():
    with tempfile.TemporaryDirectory() as folder:
        bad = check_loads(False, folder) + check_loads(True, folder) + check_other_save(folder)
        bad += check_each_micro_step(folder) + check_parts(folder) + check_halves(folder)
        library = compile_module(gpt(), os.path.join(folder, "three.so"), "--mesh=data=3", "--shard=optimizer")
        sys.exit(bad + check_failing_saves(folder, library) + check_refusals(folder, library) != 0)


if __name__ == "__main__":
    main()
