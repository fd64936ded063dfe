"""The row on upstream's clean-ups: inserted anywhere between our passes they change no bit."""
import json
import os
import random
import re
import sys
from unittest import mock

import digests
from common import BUILD, ROOT, RUNTIME_LIBRARY, Failed, run, tool
from rows import judge
from trainc_ctypes import Runtime

sys.path[:0] = [os.path.join(ROOT, "test", "Fuzz", "Inputs")]


CLEANUPS = ["canonicalize", "cse", "sccp", "symbol-dce", "loop-invariant-code-motion", "remove-dead-values"]
ALL = ",".join(CLEANUPS)
PLANS = "train-plan-memory"
MESHES = {"one rank": [], "data=2": ["--mesh=data=2", "--shard=parameters"], "host=2, data=2": ["--mesh=host=2,data=2", "--shard=optimizer"]}
RANKS = {"one rank": 1, "data=2": 2, "host=2, data=2": 4}
MODULES, SEED, MORE_MEMORY, LIMIT, GPU_UPDATES = 200, 1, 1.05, 0.75, 3


def insert(passes, after=None):
    return [f"--insert-passes={passes}"] + [f"--insert-after={after}"] * (after is not None)


def memory(source, *options):
    """Bytes in all, and of the workspace of each entry."""
    report = json.loads(run([tool("trainc"), source, "--memory-report=json", *options]).stdout)
    return report["total"], {entry["name"]: entry["workspace"] for entry in report["entries"]}


def examples():
    """(name, model, options of it, ranks, options of trainc)."""
    for model, options in digests.MODELS.items():
        for mesh, flags in MESHES.items():
            for k in (1, 4):
                yield (f"{model}, {mesh}, k={k}", model, [*options, "--batch", digests.BATCH, "--accumulate", k, "--clip", 1.0],
                       RANKS[mesh], flags)


def pipeline():
    """The arguments of the passes to form 3, in order, each once."""
    done = run([tool("trainc-opt"), "--trainc-to-commands", "--dump-pass-pipeline", "-o", os.devnull, os.devnull], check=False)
    return list(dict.fromkeys(re.findall(r"^ +((?:train|nn)-[\w-]+|canonicalize|cse)", done.stderr, re.M)))


def planned():
    """Those that run once memory is planned, but the verifier, behind which nothing does."""
    passes = pipeline()
    return [name for name in passes[passes.index(PLANS):] if name != "train-verify-form"]


def on_examples(folder):
    """What is wrong, and how many trainings were compared."""
    wrong, count, most, behind = [], 0, 1.0, planned()
    for name, model, options, ranks, flags in examples():
        source = os.path.join(folder, "model.mlir")  # as compile_module writes it
        expected = digests.digest_of(model, options, "f32", ranks, flags, folder)
        total, plain = memory(source, *flags)
        for passes in [*CLEANUPS, ALL]:
            count += 1
            try:
                if digests.digest_of(model, options, "f32", ranks, [*flags, *insert(passes)], folder) != expected:
                    wrong.append(f"{passes} changes {name}")
                    continue
                most = max(most, memory(source, *flags, *insert(passes))[0] / total)
            except Failed as error:
                wrong.append(f"{passes}, {name}: {error}")
        for after in behind:
            if memory(source, *flags, *insert(ALL, after))[1] != plain:
                wrong.append(f"{ALL} after {after} changes the memory of {name}")
    if most > MORE_MEMORY:
        wrong.append(f"memory {most:.2f}x")
    return wrong, f"{count} trainings of examples, memory at most {most:.3f}x"


def limited(folder):
    """A memory limit holds, with the same bits."""
    options = [*digests.MODELS["gpt"], "--batch", digests.BATCH]
    expected = digests.digest_of("gpt", options, "f32", 1, [], folder)
    source = os.path.join(folder, "model.mlir")
    total, entries = memory(source)
    flags = [f"--memory-limit={int(total - (1 - LIMIT) * max(entries.values()))}"]
    found = digests.digest_of("gpt", options, "f32", 1, [*flags, *insert(ALL)], folder)
    return [] if found == expected else ["a memory limit changes bits"]


FAKES = {f"TRAINC_LIB{name.upper()}": os.path.join(BUILD, "lib", f"libtrainc_fake_{name}.so") for name in ("cuda", "cublaslt")}


def on_gpus(folder):
    """The examples for GPUs, a few updates, with all clean-ups together, on the driver of tests."""
    wrong = []
    with mock.patch.dict(os.environ, FAKES), mock.patch.object(digests, "UPDATES", GPU_UPDATES):
        for model, options in digests.MODELS.items():
            plain, cleaned = (digests.digest_of(model, [*options, "--batch", digests.BATCH, "--clip", 1.0], "f32", 1,
                                                ["--target=cuda", "--cuda-arch=host", *flags], folder, device=b"cuda") for flags in ([], insert(ALL)))
            wrong += [f"{ALL} changes {model} for GPUs"] * (cleaned != plain)
    return wrong


def on_random_modules(folder):
    import runner
    import valid
    runtime, names, behind, wrong = Runtime(RUNTIME_LIBRARY), pipeline(), planned(), []
    for number in range(MODULES):
        rng = random.Random(f"{SEED} closed {number}")
        module, after, passes = valid.module(f"{SEED} valid {number}"), rng.choice(names), rng.choice([*CLEANUPS, ALL])
        source = os.path.join(folder, "random.mlir")
        with open(source, "w") as f:
            f.write(module.text)
        seen, took = [], []
        try:
            for i, options in enumerate(([], insert(passes, after))):
                took.append(memory(source, *options)[0])
                library = os.path.join(folder, f"random{number}-{i}.so")
                run([tool("trainc"), source, "-o", library, *options])
                seen.append(runner.run(runtime, library, module.inputs, number, 1))
                os.remove(library)
        except Failed as error:
            wrong.append(f"module {number}, {passes} after {after}: {error}")
            continue
        wrong += [f"module {number}, {passes} after {after}: {what[0]}" for what in seen[0]
                  if seen[0][what].tobytes() != seen[1][what].tobytes()][:1]
        if took[1] > (1.0 if after in behind else MORE_MEMORY) * took[0]:
            wrong.append(f"module {number}, {passes} after {after}: {took[1]} bytes, without it {took[0]}")
    return wrong


def closed(folder):
    wrong, text = on_examples(folder)
    wrong += limited(folder)
    wrong += on_gpus(folder)
    wrong += on_random_modules(folder)
    return judge(not wrong, "; ".join([f"{text}; {len(digests.MODELS)} examples for GPUs; {MODULES} random modules, seed {SEED}:"
                                       f" {len(wrong)} faults", *wrong[:5]]))
