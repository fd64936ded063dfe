#!/usr/bin/env python3
"""Exports, compiles and trains models of the corpus as models/reference.py does, and says how far they are from PyTorch.

usage: agreement.py [--anew] [--json FILE] [NAME ...]
       agreement.py --held-out HASH [--count N] [--json FILE] [NAME ...]
       agreement.py --bf16 [--json FILE] [NAME ...]

A model agrees, is refused (at export, with a reason), fails later (when compiled, loaded or run), or is wrong. It agrees if of
five updates of AdamW in float64 losses and norms are within 1e-9 and parameters and buffers within 1e-7; and in float32 losses
within 1e-5 of PyTorch's, and the first norm no farther from float64 than 3 times PyTorch's float32 and 1e-6. Where ours are not,
"limit" says how far PyTorch's own losses in float32 are from its float64, and "moves" how far, at the most, from four starts that
are off by a rounding: one may turn a comparison (a ReLU, a maximum), of which Adam makes whole steps.

Models that drop out or add noise are also trained in float64 as they are, against PyTorch with the draws that trainc defines:
"drawn" is the largest of the three distances over its bar. Above 1 a model agrees if PyTorch's own, "drawn_moves", is at least
half as far when its start is off by a rounding.

--anew has PyTorch's results made by the PyTorch at hand, in place of those that reference.json holds of the newest one.
--json keeps results, and takes those it has. With --held-out, models that models/registry_draw.py draws by a hash are trained
with such draws in float64. With --bf16, ten models are trained with each of our precisions of bf16, from several starts; one
agrees if the mean distance of its losses from float64 is at most 1.5 times that of torch.autocast.
"""
import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
import warnings

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(ROOT, "python"), os.path.join(ROOT, "bench")]
os.environ.setdefault("TRAINC_BUILD", os.path.join(ROOT, "build"))

import torch  # noqa: E402

import models  # noqa: E402
import trainc  # noqa: E402
import trainc.torch  # noqa: E402
from models import drawn, reference  # noqa: E402
from models.wide import Wide  # noqa: E402

LOSS, STATE = 1e-9, 1e-7
LOSS_F32, NORM_F32, TIMES_F32 = 1e-5, 1e-6, 3
NUDGES, ROUNDING, ROUNDING_F64 = 4, 2.0**-23, 2.0**-52
TIMES_BF16, STARTS_BF16, KINDS_BF16 = 1.5, 12, ("bf16", "autocast", "torch")
BF16 = ("resnet18", "convnext-t", "vit-tv", "bert", "ernie", "t5", "gpt2", "llama", "unet2d", "dlrm")


class FailsLater(Exception):
    """What was exported could not be compiled, loaded or run."""


def exported(example, dtype, precision=None):
    """What is exported of an example."""
    optimizer = torch.optim.AdamW(example.model.parameters(), lr=reference.LEARNING_RATE, weight_decay=reference.WEIGHT_DECAY)
    with Wide() if dtype == torch.float64 else contextlib.nullcontext():
        return trainc.torch.export(example.model, example.batch, example.loss, optimizer, precision=precision)


def updates_of(step, example):
    """Losses, norms and state after the updates."""
    batch = example.batch
    results = [step(**batch) if isinstance(batch, dict) else step(*batch) for _ in range(reference.UPDATES)]
    state = reference.numpy_state(example.model)
    state |= {name: value for name, value in step.state_dict().items() if name in state}
    return [r.loss for r in results], [r.grad_norm for r in results], state


def trained(example, dtype):
    """What updates_of() gives of an example in `dtype`."""
    module = exported(example, dtype)
    try:
        with module.step(threads=1, seed=drawn.SEED) as step:
            return updates_of(step, example)
    except trainc.Error as error:
        raise FailsLater(f"{dtype}: {error}") from error


def distances(name, found, expected):
    """Of losses, norms and state in float64, and the tensor that is farthest."""
    losses, norms, state = found
    errors = reference.state_errors(name, state, expected)
    worst = max(errors, key=errors.get)
    loss, norm = (reference.farthest(found, expected["f64"][kind], ROUNDING_F64) for found, kind in ((losses, "losses"), (norms, "norms")))
    return loss, norm, errors[worst], worst


def with_draws(entry):
    """{"drawn"}: the largest distance over its bar of a model that is trained with its rates and noise; above 1 also
    {"drawn_moves"}: how far PyTorch's own training is, at the most, of starts that are off by a rounding."""
    name = entry if isinstance(entry, str) else entry.name

    def example():
        return models.cast(models.build(entry), torch.float64)

    found = trained(example(), torch.float64)  # first: what torch.export cannot capture is refused
    expected = reference.described(name, drawn.trained(example()))

    def over_bar(found):
        loss, norm, state, _ = distances(name, found, expected)
        return max(loss / LOSS, norm / LOSS, state / STATE)

    distance, moved = over_bar(found), []
    for seed in range(NUDGES if distance > 1 else 0):
        start = example()
        reference.nudge(start.model, ROUNDING_F64, seed)
        training = drawn.trained(start)
        moved.append(over_bar((training.losses, training.norms, training.state)))
    return {"drawn": distance, **({"drawn_moves": max(moved)} if moved else {})}


def is_as_drawn(found):
    """Two programs that are off by roundings may be twice as far apart as one is from itself."""
    return found.get("drawn", 0.0) <= max(1, 2 * found.get("drawn_moves", 0.0))


def moves(name, wide):
    """How far PyTorch's losses in float32 are from those in float64, at the most, of starts that are off by a rounding."""
    losses = []
    for seed in range(NUDGES):
        example = reference.start_of(name, torch.float32)
        reference.nudge(example.model, ROUNDING, seed)
        losses.append(reference.train(example).losses)
    return max(reference.farthest(found, wide) for found in losses)


def expected_of(name, anew):
    """PyTorch's results; None if the model draws with all rates 0."""
    if not anew:
        return json.loads(reference.PATH.read_text())["models"].get(name)
    return reference.make(name)[0] if models.entries()[name].rates else None


def measure(name, anew=False):
    """{"status", and "loss", "norm", "state", "loss32", "norm32", "drawn", "moves": relative distances, or "reason"}"""
    expected = expected_of(name, anew)
    start = time.perf_counter()
    try:
        random = with_draws(name) if models.entries()[name].random else {}
        if expected is None:
            if models.entries()[name].rates:
                raise FailsLater("reference.json has no result of it")
            return {"status": "agrees" if is_as_drawn(random) else "wrong", **random, "seconds": round(time.perf_counter() - start, 1)}
        found = trained(reference.start_of(name, torch.float64), torch.float64)
        losses32, norms32, _ = trained(reference.start_of(name, torch.float32), torch.float32)
    except trainc.UnsupportedError as error:
        return {"status": "refused", "reason": str(error)}
    except FailsLater as error:
        return {"status": "fails later", "reason": str(error)}
    loss, norm, state, worst = distances(name, found, expected)
    loss32 = reference.farthest(losses32, expected["f32"]["losses"])
    limit = reference.farthest(expected["f32"]["losses"], expected["f64"]["losses"])
    first = expected["f64"]["norms"][0]
    norm32, theirs = (abs(n - first) / first for n in (norms32[0], expected["f32"]["norms"][0]))
    wide = loss <= LOSS and norm <= LOSS and state <= STATE and is_as_drawn(random)
    narrow = loss32 <= LOSS_F32 and norm32 <= TIMES_F32 * theirs + NORM_F32
    moved = {"moves": moves(name, expected["f64"]["losses"])} if wide and not narrow else {}
    return {"status": "agrees" if wide and narrow else "agrees in f64" if wide else "wrong", "loss": loss, "norm": norm,
            "state": state, **random, **moved, "loss32": loss32, "limit": limit, "norm32": norm32, "tensor": worst,
            "seconds": round(time.perf_counter() - start, 1)}


def measure_held_out(entry):
    """As measure() of a model that has no result in reference.json."""
    start = time.perf_counter()
    try:
        found = with_draws(entry)
    except trainc.UnsupportedError as error:
        return {"status": "refused", "reason": str(error)}
    except FailsLater as error:
        return {"status": "fails later", "reason": str(error)}
    return {"status": "agrees" if is_as_drawn(found) else "wrong", **found, "seconds": round(time.perf_counter() - start, 1)}


def autocast_loss(example):
    with torch.autocast("cpu", torch.bfloat16):
        return models.loss_of(example)


def losses_in_bf16(name, precision, folder):
    """Of each start."""
    module = exported(reference.start_of(name, torch.float32), torch.float32, precision)
    path, losses = os.path.join(folder, f"{precision}.so"), []
    try:
        trainc.compile(module, path)
        for start in range(STARTS_BF16):
            example = reference.start_of(name, torch.float32, start)
            module.weights |= {key: value for key, value in example.model.state_dict().items() if key in module.weights}
            with module.load(path, threads=1) as step:
                losses.append(updates_of(step, example)[0])
    except trainc.Error as error:
        raise FailsLater(f"{precision}: {error}") from error
    return losses


def measure_bf16(name):
    """{"status", and "bf16", "autocast", "torch": the farthest loss from float64's, relative, the mean over the starts}"""
    began = time.perf_counter()
    try:
        with tempfile.TemporaryDirectory() as folder:
            found = {precision: losses_in_bf16(name, precision, folder) for precision in KINDS_BF16[:2]}
    except trainc.UnsupportedError as error:
        return {"status": "refused", "reason": str(error)}
    except FailsLater as error:
        return {"status": "fails later", "reason": str(error)}
    wide, narrow = ([reference.start_of(name, dtype, start) for start in range(STARTS_BF16)] for dtype in (torch.float64, torch.float32))
    expected = [reference.train(example).losses for example in wide]
    found["torch"] = [reference.train(example, lambda e=example: autocast_loss(e)).losses for example in narrow]
    mean = {kind: statistics.mean(map(reference.farthest, losses, expected)) for kind, losses in found.items()}
    good = max(mean["bf16"], mean["autocast"]) <= TIMES_BF16 * mean["torch"]
    return {"status": "agrees" if good else "wrong", **mean, "seconds": round(time.perf_counter() - began, 1)}


def held_out(drawn_by, count):
    """{name: what measures it} of the models that a hash draws."""
    from models import registry_draw
    chosen = [entry for entry, reason in registry_draw.draw(drawn_by, count) if not reason]
    return {entry.name: lambda e=entry: measure_held_out(e) for entry in chosen}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--anew", action="store_true")
    p.add_argument("--json", metavar="FILE")
    p.add_argument("--held-out", metavar="HASH")
    p.add_argument("--count", type=int, default=30)
    p.add_argument("--bf16", action="store_true")
    p.add_argument("names", nargs="*", metavar="NAME")
    a = p.parse_args()
    warnings.simplefilter("ignore")
    results = {}
    if a.json and os.path.exists(a.json):
        with open(a.json) as f:
            results = json.load(f)
    if a.held_out:
        todo = {name: measured for name, measured in held_out(a.held_out, a.count).items() if not a.names or name in a.names}
    elif a.bf16:
        todo = {name: lambda n=name: measure_bf16(n) for name in a.names or BF16}
    else:
        todo = {name: lambda n=name: measure(n, a.anew) for name in a.names or models.entries()}
    for name, measured in todo.items():
        if name in results and not a.names:
            continue
        try:
            results[name] = measured()
        except Exception as error:  # a defect of the exporter, or of this program
            results[name] = {"status": "fails later", "reason": f"{type(error).__name__}: {error}"}
        r = results[name]
        print(f"{name:22} {r['status']:13}", *(f"{k} {r[k]:.1e}" for k in ("loss", "norm", "state", "drawn", "drawn_moves", "loss32", "limit", "moves", "norm32", *KINDS_BF16) if k in r),
              r.get("tensor", ""), r.get("seconds", ""), (r.get("reason", "").splitlines() or [""])[0][:160], flush=True)
        if a.json:
            with open(a.json, "w") as f:
                json.dump(results, f, indent=1)
    counts = {status: sum(r["status"] == status for r in results.values()) for status in sorted({r["status"] for r in results.values()})}
    print(", ".join(f"{n} {status}" for status, n in counts.items()))


if __name__ == "__main__":
    main()
