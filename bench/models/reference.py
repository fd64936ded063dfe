"""PyTorch's own results for the corpus: five updates of each model whose forward draws nothing once all rates are 0.

AdamW (lr 1e-3, weight decay 0.01, the rest as torch has it) on the entry's batch five times over, from the parameters of
`models.build`, in float64 (all of it: see wide.py) and in float32, one thread, deterministic algorithms. reference.json holds

    versions                         of what made it
    models.NAME.initial              two numbers of the initial state, by which another start is told from another result
    models.NAME.f64, .f32            losses and norms: of each update, the norm of all gradients together, nothing clipped
    models.NAME.state                digest of the float64 state after the updates (see `digest`), base64 of float64 [S, 6]

A row of the digest is one tensor of `state_of`: its sum, its L2 norm, and its projections on four fixed vectors of random signs.
Where e is the error of a tensor p, each projection's difference has mean square |e|^2, so `relative_error` estimates |e| / |p|
without p.

    python -m models.reference --write [NAME ...]     makes the results, of these models or of all
    python -m models.reference --check N SEED         makes N of them anew, drawn by SEED, and compares
    python -m models.reference --sensitivity          how far a start moved by 1e-15 moves the results: what can be asked at all
"""

import argparse
import base64
import copy
import importlib.metadata
import json
import pathlib
import random
import time
import zlib

import numpy as np
import torch

from . import Entry, Example, build, cast, entries, loss_of, set_rates
from .wide import Narrow, Wide

PATH = pathlib.Path(__file__).with_name("reference.json")
PACKAGES = ("torch", "torchvision", "transformers", "timm", "diffusers", "numpy")
UPDATES, LEARNING_RATE, WEIGHT_DECAY = 5, 1e-3, 0.01
PROJECTIONS = 4
# Of a result made anew, on whatever processor: a tenth of what is asked of trainc.
LOSS_BOUND, STATE_BOUND = 1e-10, 1e-8


def start_of(name: str, dtype: torch.dtype) -> Example:
    """The entry as the reference trains it: in `dtype`, rates 0."""
    example = cast(build(name), dtype)
    set_rates(example.model)
    return example


def state_of(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The parameters (a tied one once), then the floating buffers of the state dict, in the module's order."""
    kept = module.state_dict(keep_vars=True)
    parameters = dict(module.named_parameters())
    buffers = {k: v for k, v in module.named_buffers() if k in kept and v.is_floating_point()}
    return {k: v.detach() for k, v in (parameters | buffers).items()}


def digest(name: str, state: dict[str, np.ndarray]) -> np.ndarray:
    """Rows of float64 [len(state), 6] for the model `name`: sum, L2 norm, four projections of each tensor."""
    rows = []
    for key, tensor in state.items():
        flat = np.asarray(tensor, dtype=np.float64).ravel()
        bits = np.random.RandomState(zlib.crc32(f"{name}/{key}".encode())).bytes(-(-PROJECTIONS * flat.size // 8))
        signs = np.unpackbits(np.frombuffer(bits, np.uint8))[: PROJECTIONS * flat.size].reshape(PROJECTIONS, -1)
        total = flat.sum()
        # A sign is 2 b - 1: the projection is twice the sum of what b selects, less the sum.
        rows.append([total, np.sqrt((flat * flat).sum()), *(2 * flat[row.view(bool)].sum() - total for row in signs)])
    return np.array(rows)


def relative_error(found: np.ndarray, expected: np.ndarray, sizes: list[int]) -> np.ndarray:
    """Estimates |e| / |p| of each tensor from two digests; `sizes` are the tensors' numbers of elements.

    |p| is not taken below one update's size, LEARNING_RATE x sqrt(size): a bias whose true gradient is 0 (before a batch norm,
    of the keys) starts at 0 and holds rounding noise only.
    """
    root = np.sqrt(np.array(sizes))
    difference = found - expected
    error = np.maximum(np.abs(difference[:, 0]) / root, np.abs(difference[:, 1]))
    error = np.maximum(error, np.sqrt((difference[:, 2:] ** 2).mean(axis=1)))
    return error / np.maximum(expected[:, 1], LEARNING_RATE * root)


def train(name: str, example: Example) -> tuple[list[float], list[float]]:
    """Trains in place. Returns the losses and the gradient norms of the updates."""
    torch.manual_seed(0)
    optimizer = torch.optim.AdamW(
        example.model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, foreach=False
    )
    wide = next(p for p in example.model.parameters()).dtype == torch.float64
    losses, norms = [], []
    for _ in range(UPDATES):
        optimizer.zero_grad()
        if wide:
            with Wide():
                loss = loss_of(example)
                loss.backward()
        else:
            loss = loss_of(example)
            loss.backward()
        gradients = [p.grad for p in example.model.parameters() if p.grad is not None]
        losses.append(float(loss.detach()))
        norms.append(float(sum(g.double().square().sum() for g in gradients).sqrt()))
        optimizer.step()
    if not np.isfinite(losses + norms).all():
        raise ValueError(f"{name}: losses {losses} and norms {norms} are not all finite")
    return losses, norms


def numpy_state(example: Example) -> dict[str, np.ndarray]:
    return {k: v.double().numpy() for k, v in state_of(example.model).items()}


def make(entry: Entry) -> dict:
    """One model's results, as reference.json holds them."""
    example = start_of(entry.name, torch.float64)
    initial = digest(entry.name, numpy_state(example))
    wide = train(entry.name, example)
    rows = digest(entry.name, numpy_state(example))
    single = train(entry.name, start_of(entry.name, torch.float32))

    def numbers(values: tuple[list[float], list[float]], digits: int) -> dict:
        return {k: [float(f"{v:.{digits}g}") for v in part] for k, part in zip(("losses", "norms"), values)}

    return {
        "initial": [float(initial[:, 1].sum()), float(initial[:, 2].sum())],
        "f64": numbers(wide, 17),
        "f32": numbers(single, 9),
        "state": base64.b64encode(rows.astype("<f8").tobytes()).decode(),
    }


def rows_of(result: dict, count: int) -> np.ndarray:
    """The digest [count, 6] in a result, `count` tensors."""
    return np.frombuffer(base64.b64decode(result["state"]), "<f8").reshape(count, 2 + PROJECTIONS)


def farthest(found: list[float], expected: list[float]) -> float:
    """The largest relative difference."""
    return max(abs(f - e) / max(abs(e), 1e-300) for f, e in zip(found, expected, strict=True))


def differences(name: str, found: dict, expected: dict) -> dict[str, float]:
    """Largest relative differences of two results of one model: initial, loss, norm, state (float64), loss32, norm32."""
    sizes = [v.numel() for v in state_of(build(name).model).values()]
    return {
        "initial": farthest(found["initial"], expected["initial"]),
        "loss": farthest(found["f64"]["losses"], expected["f64"]["losses"]),
        "norm": farthest(found["f64"]["norms"], expected["f64"]["norms"]),
        "state": float(relative_error(rows_of(found, len(sizes)), rows_of(expected, len(sizes)), sizes).max()),
        "loss32": farthest(found["f32"]["losses"], expected["f32"]["losses"]),
        "norm32": farthest(found["f32"]["norms"], expected["f32"]["norms"]),
    }


def versions() -> dict[str, str]:
    return {package: importlib.metadata.version(package) for package in PACKAGES}


def write(chosen: list[Entry]) -> None:
    """Makes the results of `chosen` and puts them into reference.json, which keeps the others."""
    kept = json.loads(PATH.read_text())["models"] if PATH.exists() else {}
    for entry in chosen:
        start = time.perf_counter()
        kept[entry.name] = make(entry)
        print(
            f"{entry.name:22} {kept[entry.name]['f64']['losses'][-1]:.12f} {time.perf_counter() - start:6.1f} s",
            flush=True,
        )
    order = [name for name in entries() if name in kept]
    text = json.dumps({"versions": versions(), "models": {name: kept[name] for name in order}}, separators=(",", ":"))
    PATH.write_text(text.replace('},"', '},\n"') + "\n")
    print(f"{len(order)} models, {PATH.stat().st_size} bytes")


def check(chosen: list[Entry]) -> int:
    """Makes the results of `chosen` anew. Prints the differences; returns the number of models beyond the bounds."""
    stored = json.loads(PATH.read_text())
    if stored["versions"] != versions():
        print(f"made by {stored['versions']}, found {versions()}")
    beyond = 0
    for entry in chosen:
        found = differences(entry.name, make(entry), stored["models"][entry.name])
        bad = max(found["initial"], found["loss"], found["norm"]) > LOSS_BOUND or found["state"] > STATE_BOUND
        beyond += bad
        print(
            f"{entry.name:22} " + " ".join(f"{k} {v:.1e}" for k, v in found.items()) + (" BEYOND" if bad else ""),
            flush=True,
        )
    return beyond


def sensitivity(chosen: list[Entry]) -> None:
    """Prints how far five updates in float64 move when the start is moved by 1e-15, how far float32 is from float64, and
    which operations yield a narrower type within what should be float64."""
    stored = json.loads(PATH.read_text())["models"]
    for entry in chosen:
        example, expected = start_of(entry.name, torch.float64), stored[entry.name]
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for parameter in example.model.parameters():
                signs = torch.randint(0, 2, parameter.shape, generator=generator, dtype=torch.float64) * 2 - 1
                parameter.mul_(1 + 1e-15 * signs)
        state, narrow = copy.deepcopy(example.model.state_dict()), Narrow()
        with Wide(), narrow:
            loss_of(example)
        example.model.load_state_dict(state)
        losses, norms = train(entry.name, example)
        sizes = [v.numel() for v in state_of(example.model).values()]
        state = relative_error(digest(entry.name, numpy_state(example)), rows_of(expected, len(sizes)), sizes).max()
        print(
            f"{entry.name:22} loss {farthest(losses, expected['f64']['losses']):.1e} "
            f"norm {farthest(norms, expected['f64']['norms']):.1e} state {state:.1e}   float32: "
            f"loss {farthest(expected['f32']['losses'], expected['f64']['losses']):.1e} "
            f"first norm {farthest(expected['f32']['norms'][:1], expected['f64']['norms'][:1]):.1e} {narrow.found or ''}",
            flush=True,
        )


def main() -> int:
    parser = argparse.ArgumentParser(prog="models.reference", description=__doc__.split("\n")[0])
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", nargs="*", metavar="NAME")
    action.add_argument("--check", nargs=2, type=int, metavar=("N", "SEED"))
    action.add_argument("--sensitivity", nargs="*", metavar="NAME")
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True, warn_only=True)
    fixed = {name: entry for name, entry in entries().items() if entry.rates}
    if arguments.check:
        count, seed = arguments.check
        return 1 if check(random.Random(seed).sample(list(fixed.values()), count)) else 0
    names = arguments.write if arguments.write is not None else arguments.sensitivity
    chosen = [fixed[name] for name in names] if names else list(fixed.values())
    (write if arguments.write is not None else sensitivity)(chosen)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
