"""PyTorch's own results for the corpus: five updates of each model whose forward draws nothing once all rates are 0.

AdamW (lr 1e-3, weight decay 0.01, the rest as torch has it) on the entry's batch five times over, from the parameters
of `models.build`, in float64 (all of it: see wide.py) and in float32, one thread, deterministic algorithms.
reference.json holds

    versions                   of what made it
    models.NAME.initial        two numbers of the initial state, by which another start is told from another result
    models.NAME.f64, .f32      losses and norms: of each update, the norm of all gradients together, nothing clipped
    models.NAME.state          digest of the float64 state after the updates, base64 of float64 [S, 6]
    models.NAME.parameters     how many of the S tensors are parameters; the others are buffers
    models.NAME.noise          which of them (by number) have gradients of rounding noise only, see `NOISE`

A row of the digest is one tensor of `state_of`: its sum, its L2 norm, and its projections on four fixed vectors of
random signs. Where e is the error of a tensor p, each projection's difference has mean square |e|^2, so
`state_errors` estimates |e| / |p| without p.

    python -m models.reference --write [NAME ...]        makes the results, of these models or of all
    python -m models.reference --check N SEED            makes N of them anew, drawn by SEED, and compares
    python -m models.reference --sensitivity [NAME ...]  moves the start by 1e-15: what can be asked of the results
"""

import argparse
import base64
import contextlib
import copy
import importlib.metadata
import json
import math
import pathlib
import random
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from common import largest

from . import Example, build, cast, entries, loss_of, set_rates
from .wide import Narrow, Wide

PATH = pathlib.Path(__file__).with_name("reference.json")
PACKAGES = ("torch", "torchvision", "transformers", "timm", "diffusers", "numpy")
UPDATES, LEARNING_RATE, WEIGHT_DECAY = 5, 1e-3, 0.01
PROJECTIONS = 4
# A bias before a batch norm or of the keys has the gradient 0, of which rounding leaves less than this part of the norm
# of all gradients. Adam divides it by its own size: such a tensor holds what rounding gave it.
NOISE = 1e-13
# Of a result made anew, on whatever processor: a tenth of what is asked of trainc.
LOSS_BOUND, STATE_BOUND = 1e-10, 1e-8


def start_of(name: str, dtype: torch.dtype, start: int = 0) -> Example:
    """The entry as the reference trains it: in `dtype`, rates 0; or from another start."""
    example = cast(build(name, start), dtype)
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


def state_errors(name: str, state: dict[str, np.ndarray], result: dict) -> dict[str, float]:
    """Estimates |e| / |p| of each tensor of `state`, the state found after the updates, from the model's result.

    |p| is not taken below sqrt(size) times: the learning rate, one update's size, for a parameter; 1 for one whose
    gradient is noise; 0.1, the momentum of running statistics, for a buffer.
    """
    root = np.sqrt([np.size(tensor) for tensor in state.values()])
    expected = np.frombuffer(base64.b64decode(result["state"]), "<f8").reshape(len(state), 2 + PROJECTIONS)
    difference = digest(name, state) - expected
    error = np.maximum(np.abs(difference[:, 0]) / root, np.abs(difference[:, 1]))
    error = np.maximum(error, np.sqrt((difference[:, 2:] ** 2).mean(axis=1)))
    floor = np.full(len(state), LEARNING_RATE)
    floor[result["noise"]] = 1.0
    floor[result["parameters"] :] = 0.1
    return dict(zip(state, error / np.maximum(expected[:, 1], floor * root), strict=True))


@dataclass(frozen=True)
class Training:
    """Of each update the loss and the norm of all gradients; then the state, and what reference.json says of it."""

    losses: list[float]
    norms: list[float]
    state: dict[str, np.ndarray]
    parameters: int
    noise: list[int]


def train(example: Example, loss_function: Callable[[], torch.Tensor] | None = None) -> Training:
    """Trains in place. `loss_function` computes the example's loss in another way."""
    torch.manual_seed(0)
    parameters = dict(example.model.named_parameters())
    optimizer = torch.optim.AdamW(parameters.values(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, foreach=False)
    wide = Wide if next(iter(parameters.values())).dtype == torch.float64 else contextlib.nullcontext
    losses, norms, parts = [], [], []
    for _ in range(UPDATES):
        optimizer.zero_grad()
        with wide():
            loss = loss_function() if loss_function else loss_of(example)
            loss.backward()
        each = {name: float(p.grad.double().norm()) for name, p in parameters.items() if p.grad is not None}
        losses.append(float(loss.detach()))
        norms.append(math.sqrt(sum(norm * norm for norm in each.values())))
        parts.append({name: norm / norms[-1] for name, norm in each.items()})
        optimizer.step()
    if not np.isfinite(losses + norms).all():
        raise ValueError(f"losses {losses} and norms {norms} are not all finite")
    largest = {name: max(part.get(name, 0.0) for part in parts) for name in set().union(*parts)}
    noise = [i for i, name in enumerate(parameters) if largest.get(name, 1.0) < NOISE]  # without gradient: frozen
    return Training(losses, norms, numpy_state(example.model), len(parameters), noise)


def numpy_state(module: torch.nn.Module) -> dict[str, np.ndarray]:
    """The state of `state_of`, in float64."""
    return {name: tensor.double().numpy() for name, tensor in state_of(module).items()}


def make(name: str) -> tuple[dict, Training]:
    """One model's results, as reference.json holds them, and the training in float64."""
    example = start_of(name, torch.float64)
    initial = digest(name, numpy_state(example.model))
    wide, single = train(example), train(start_of(name, torch.float32))

    def rounded(values: list[float], digits: int) -> list[float]:
        return [float(f"{value:.{digits}g}") for value in values]

    return {
        "initial": [float(initial[:, 1].sum()), float(initial[:, 2].sum())],
        **described(name, wide),
        "f32": {"losses": rounded(single.losses, 9), "norms": rounded(single.norms, 9)},
    }, wide


def described(name: str, wide: Training) -> dict:
    """A training in float64 as reference.json holds it."""
    return {
        "f64": {"losses": wide.losses, "norms": wide.norms},
        "state": base64.b64encode(digest(name, wide.state).astype("<f8").tobytes()).decode(),
        "parameters": wide.parameters,
        "noise": wide.noise,
    }


def farthest(found: list[float], expected: list[float], rounding: float = 0.0) -> float:
    """The largest relative difference. One below `rounding` times the largest value is none: where a loss has become 1e-9 of
    what it was, its terms, of the size that they had, are rounded by as much."""
    least = rounding * max(map(abs, expected))
    return largest(abs(f - e) / max(abs(e), 1e-300) if not abs(f - e) <= least else 0.0 for f, e in zip(found, expected, strict=True))


def versions() -> dict[str, str]:
    return {package: importlib.metadata.version(package) for package in PACKAGES}


def write(chosen: list[str]) -> None:
    """Makes the results of `chosen` and puts them into reference.json, which keeps the others."""
    kept = json.loads(PATH.read_text())["models"] if PATH.exists() else {}
    for name in chosen:
        start = time.perf_counter()
        kept[name], training = make(name)
        print(f"{name:22} {training.losses[-1]:.12f} {time.perf_counter() - start:6.1f} s", flush=True)
    order = [name for name in entries() if name in kept]
    text = json.dumps({"versions": versions(), "models": {name: kept[name] for name in order}}, separators=(",", ":"))
    PATH.write_text(text.replace(']},"', ']},\n"') + "\n")
    print(f"{len(order)} models, {PATH.stat().st_size} bytes")


def check(chosen: list[str]) -> int:
    """Makes the results of `chosen` anew. Prints the differences; returns the number of models beyond the bounds."""
    stored = json.loads(PATH.read_text())
    if stored["versions"] != versions():
        print(f"made by {stored['versions']}, found {versions()}")
    beyond = 0
    for name in chosen:
        expected = stored["models"][name]
        found, training = make(name)
        initial = farthest(found["initial"], expected["initial"])
        loss, norm = (farthest(found["f64"][k], expected["f64"][k]) for k in ("losses", "norms"))
        loss32, norm32 = (farthest(found["f32"][k], expected["f32"][k]) for k in ("losses", "norms"))
        state = max(state_errors(name, training.state, expected).values())
        bad = max(initial, loss, norm) > LOSS_BOUND or state > STATE_BOUND
        beyond += bad
        print(
            f"{name:22} initial {initial:.1e} loss {loss:.1e} norm {norm:.1e} state {state:.1e}   "
            f"float32: loss {loss32:.1e} norm {norm32:.1e}{'   BEYOND' if bad else ''}",
            flush=True,
        )
    return beyond


def nudge(module: torch.nn.Module, by: float, seed: int) -> None:
    """Multiplies each element of each parameter by 1 + by or 1 - by."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            signs = torch.randint(0, 2, parameter.shape, generator=generator, dtype=parameter.dtype) * 2 - 1
            parameter.mul_(1 + by * signs)


def sensitivity(chosen: list[str]) -> None:
    """Prints how far five updates in float64 move when the start is moved by 1e-15, how far float32 is from float64,
    and which operations yield a narrower type within what should be float64."""
    stored = json.loads(PATH.read_text())["models"]
    for name in chosen:
        example, narrow = start_of(name, torch.float64), Narrow()
        state = copy.deepcopy(example.model.state_dict())
        with Wide(), narrow:
            loss_of(example)
        example.model.load_state_dict(state)
        nudge(example.model, 1e-15, 0)
        found, wide, single = train(example), stored[name]["f64"], stored[name]["f32"]
        print(
            f"{name:22} loss {farthest(found.losses, wide['losses']):.1e} "
            f"norm {farthest(found.norms, wide['norms']):.1e} "
            f"state {max(state_errors(name, found.state, stored[name]).values()):.1e}   "
            f"float32: loss {farthest(single['losses'], wide['losses']):.1e} "
            f"first norm {farthest(single['norms'][:1], wide['norms'][:1]):.1e} {narrow.found or ''}",
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
    fixed = [name for name, entry in entries().items() if entry.rates]
    if arguments.check:
        count, seed = arguments.check
        return 1 if check(random.Random(seed).sample(fixed, count)) else 0
    names = arguments.write if arguments.write is not None else arguments.sensitivity
    if unknown := set(names) - set(fixed):
        parser.error(f"{sorted(unknown)} are no models, or draw in their forward with all rates 0")
    (write if arguments.write is not None else sensitivity)(names or fixed)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
