"""The row on the order of the passes: two that follow each other change places and no bit of a training, or their table says why
they cannot."""
import digests
from common import Failed
from pass_order import PIPELINES, pairs, reasons, stale, swap, swappable
from rows import judge
from rows.closed import MESHES, RANKS

LEAST = 8
WINDOWS = {1: "f32", 4: "bf16"}  # the type, by micro-steps


def trainings():
    """(name, model, options of it, type, ranks, options of trainc)."""
    for model, options in digests.MODELS.items():
        for mesh, flags in MESHES.items():
            for k, element in WINDOWS.items():
                words = [*options, "--bf16", "--batch", digests.BATCH, "--accumulate", k, "--clip", 1.0]
                yield f"{model} in {element}, {mesh}, k={k}", model, words, element, RANKS[mesh], flags


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
    others = [pair for pair in every if pair not in known and pair not in swapped]  # test/Integration/cuda-passes.py swaps them
    return judge(not wrong and len(swapped) >= LEAST, "; ".join([
        f"{len(swapped)} of {len(every)} pairs swapped in {count} trainings, {len(wrong)} differ",
        *map(" / ".join, swapped), f"{len(known)} pairs with a reason",
        *(f"on GPUs alone: {' / '.join(pair)}" for pair in others), *wrong[:5]]))
