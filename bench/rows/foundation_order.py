"""The row on the order of the passes: two that follow each other change places and no bit of a training, or their table says why
they cannot."""
import os

import digests
from common import ROOT, Failed
from pass_order import PIPELINES, pairs, reasons, stale, swap, swappable
from pass_tests import lit_codes
from rows import judge
from rows.closed import MESHES, RANKS

LEAST = 8
ON_GPUS = os.path.join(ROOT, "test", "Integration", "cuda-passes.py")
WINDOWS = {1: "f32", 4: "bf16"}  # the type, by micro-steps


def trainings():
    """(name, model, options of it, type, ranks, options of trainc)."""
    for model, options in digests.MODELS.items():
        for mesh, flags in MESHES.items():
            for k, element in WINDOWS.items():
                words = [*options, "--bf16", "--batch", digests.BATCH, "--accumulate", k, "--clip", 1.0]
                yield f"{model} in {element}, {mesh}, k={k}", model, words, element, RANKS[mesh], flags


def swapped_on_gpus(pairs):
    """What is wrong with the pairs that GPUs alone have, which a test swaps."""
    with open(ON_GPUS) as f:
        text = f.read()
    missing = [f"{os.path.basename(ON_GPUS)} does not swap {' and '.join(pair)}" for pair in pairs if swap(pair)[0] not in text]
    return missing or [f"{test}: {code}" for test, code in lit_codes([ON_GPUS]).items() if code != "PASS"]


def order(folder):
    swapped, count, wrong = {}, 0, [f"{second} does not follow {first}" for first, second in stale()]
    for name, model, options, element, ranks, flags in trainings():
        expected = digests.digest_of(model, options, element, ranks, flags, folder)
        for pair in swappable(*flags):
            count += 1
            swapped[pair] = True
            try:
                found = digests.digest_of(model, options, element, ranks, [*flags, *swap(pair)], folder)
            except Failed as error:
                found = str(error)
            if found != expected:
                wrong.append(f"{' and '.join(pair)}, {name}: {found}")
    every = dict.fromkeys(pair for options in PIPELINES for pair in pairs(*options))
    known = [pair for pair in every if pair in reasons()]
    others = [pair for pair in every if pair not in known and pair not in swapped]
    wrong += swapped_on_gpus(others)
    return judge(not wrong and len(swapped) >= LEAST, "; ".join([
        f"{len(swapped)} of {len(every)} pairs swapped in {count} trainings, {len(wrong)} differ",
        *map(" / ".join, swapped), f"{len(known)} pairs with a reason",
        *(f"on GPUs alone, by {os.path.basename(ON_GPUS)}: {' / '.join(pair)}" for pair in others), *wrong[:5]]))
