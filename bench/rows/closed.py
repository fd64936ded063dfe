"""The row on upstream's clean-ups: inserted anywhere between our passes they change no bit."""
import json
import os
import random
import re
import sys

import digests
from common import ROOT, RUNTIME_LIBRARY, Failed, run, tool
from rows import judge
from trainc_ctypes import Runtime

sys.path[:0] = [os.path.join(ROOT, "test", "Fuzz", "Inputs")]


CLEANUPS = ["canonicalize", "cse", "sccp", "symbol-dce", "loop-invariant-code-motion", "remove-dead-values"]
ALL = ",".join(CLEANUPS)
PLANNED = ["train-plan-memory", "train-overlap-reduce"]  # what runs once memory is planned
MESHES = {"one rank": [], "data=2": ["--mesh=data=2", "--shard=parameters"], "host=2, data=2": ["--mesh=host=2,data=2", "--shard=optimizer"]}
RANKS = {"one rank": 1, "data=2": 2, "host=2, data=2": 4}
MODULES, SEED, MORE_MEMORY, LIMIT = 200, 1, 1.05, 0.75


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


def on_examples(folder):
    """What is wrong, and how many trainings were compared."""
    wrong, count, most = [], 0, 1.0
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
        for after in PLANNED:
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


def pipeline():
    """The arguments of the passes to form 3."""
    done = run([tool("trainc-opt"), "--trainc-to-commands", "--dump-pass-pipeline", "-o", os.devnull, os.devnull], check=False)
    return sorted(set(re.findall(r"^ +((?:train|nn)-[\w-]+|canonicalize|cse)", done.stderr, re.M)))


def on_random_modules(folder):
    import runner
    import valid
    runtime, names, wrong = Runtime(RUNTIME_LIBRARY), pipeline(), []
    for number in range(MODULES):
        rng = random.Random(f"{SEED} closed {number}")
        module, after, passes = valid.module(f"{SEED} valid {number}"), rng.choice(names), rng.choice([*CLEANUPS, ALL])
        source = os.path.join(folder, "random.mlir")
        with open(source, "w") as f:
            f.write(module.text)
        seen = []
        try:
            for i, options in enumerate(([], insert(passes, after))):
                library = os.path.join(folder, f"random{number}-{i}.so")
                run([tool("trainc"), source, "-o", library, *options])
                seen.append(runner.run(runtime, library, module.inputs, number, 1))
                os.remove(library)
        except Failed as error:
            wrong.append(f"module {number}, {passes} after {after}: {error}")
            continue
        wrong += [f"module {number}, {passes} after {after}: {what[0]}" for what in seen[0]
                  if seen[0][what].tobytes() != seen[1][what].tobytes()][:1]
    return wrong


def closed(folder):
    wrong, text = on_examples(folder)
    wrong += limited(folder)
    wrong += on_random_modules(folder)
    return judge(not wrong, "; ".join([f"{text}; {MODULES} random modules, seed {SEED}: {len(wrong)} faults", *wrong[:5]]))
