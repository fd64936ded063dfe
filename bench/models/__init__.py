"""The corpus of models for the PyTorch export: the table of README.md, and a builder for each of its rows.

    example = models.build("gpt2")
    loss = models.loss_of(example)        # a scalar; example.model is in train() mode, float32, on the CPU

Parameters and batches are the same on every machine: the batch is drawn by NumPy's RandomState (whose streams are
frozen), and so is each parameter that the model's own initialisation draws at random (see `_redraw`).
"""

import copy
import importlib
import pathlib
import random
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from .wide import Wide

Batch = tuple | dict[str, torch.Tensor]


class Example(NamedTuple):
    """A model with one batch.

    `loss(model, *batch)` or `loss(model, **batch)` is a scalar or (scalar, {name: tensor}); None: the output's `.loss`.
    """

    model: torch.nn.Module
    batch: Batch
    loss: Callable[..., torch.Tensor] | None


@dataclass(frozen=True)
class Entry:
    """A row of the table with its builder. `random` says what the forward draws, "" where it draws nothing;
    `rates` tells that all of it comes from rates held by modules, which `set_rates` can set to 0."""

    name: str
    set: str
    file: str
    source: str
    what: str
    builder: Callable[["Draw"], Example]
    random: str
    rates: bool


class Draw:
    """Draws of a batch, of the given shape, by the frozen stream of NumPy's RandomState."""

    def __init__(self, name: str) -> None:
        self._state = np.random.RandomState(zlib.crc32(name.encode()))

    def normal(self, *shape: int) -> torch.Tensor:
        """Standard normal, float32."""
        return torch.from_numpy(self._state.randn(*shape).astype(np.float32))

    def uniform(self, *shape: int) -> torch.Tensor:
        """Uniform in [0, 1), float32."""
        return torch.from_numpy(self._state.random_sample(shape).astype(np.float32))

    def integers(self, low: int, high: int, *shape: int) -> torch.Tensor:
        """Uniform in {low, ..., high - 1}, int64."""
        return torch.from_numpy(self._state.randint(low, high, shape).astype(np.int64))


_builders: dict[str, tuple[str, Callable[[Draw], Example], str, bool]] = {}


def model(name: str, random: str = "", rates: bool = True):
    """Registers a builder under the name of its row; `random` and `rates` as in Entry."""

    def register(builder: Callable[[Draw], Example]) -> Callable[[Draw], Example]:
        if name in _builders:
            raise ValueError(f"two builders of {name}")
        _builders[name] = (builder.__module__.rsplit(".", 1)[1], builder, random, rates or not random)
        return builder

    return register


def entries() -> dict[str, Entry]:
    """All entries by name, in the table's order. Raises ValueError where table and builders differ."""
    text = pathlib.Path(__file__).with_name("README.md").read_text()
    rows = [re.split(r"\s*\|\s*", line)[1:-1] for line in text.splitlines() if re.search(r"\| [AB] \|", line)]
    for file in sorted({row[2] for row in rows}):
        importlib.import_module(f"{__name__}.{file}")
    listed = {row[0]: row[2] for row in rows}
    built = {name: value[0] for name, value in _builders.items()}
    if listed != built or len(listed) != len(rows):
        raise ValueError(f"README.md and the builders differ: {sorted(set(listed.items()) ^ set(built.items()))}")
    return {
        name: Entry(name, set_, file, source, what, *_builders[name][1:]) for name, set_, file, source, what in rows
    }


def build(entry: Entry | str, start: int = 0) -> Example:
    """Builds an entry, the corpus's by name: model in train() mode and float32, batch, loss. Other starts have other
    parameters."""
    if isinstance(entry, str):
        entry = entries()[entry]
    example = _construct(entry, 0)
    state = np.random.RandomState(zlib.crc32(entry.name.encode()) ^ (1 + start))
    _redraw(example.model, _construct(entry, 1).model, state)
    return example


def loss_of(example: Example) -> torch.Tensor:
    """The loss of one forward, a scalar."""
    model_, batch, loss = example
    call = loss if loss is not None else lambda m, *a, **k: m(*a, **k).loss
    result = call(model_, **batch) if isinstance(batch, dict) else call(model_, *batch)
    return result[0] if isinstance(result, tuple) else result


def cast(example: Example, dtype: torch.dtype) -> Example:
    """The example with the model (in place) and the floating tensors of the batch in `dtype`."""

    def to(value):
        return value.to(dtype) if torch.is_tensor(value) and value.is_floating_point() else value

    batch = example.batch
    batch = {k: to(v) for k, v in batch.items()} if isinstance(batch, dict) else tuple(to(v) for v in batch)
    return Example(torch.nn.Module.to(example.model, dtype), batch, example.loss)  # diffusers' own `to` warns


def set_rates(module: torch.nn.Module, rate: float = 0.0) -> None:
    """Sets every rate of dropout, drop path, stochastic depth and router jitter held as a number by a module."""
    pattern = re.compile(r"^p$|drop|jitter")
    for part in module.modules():
        dropping = "drop" in type(part).__name__.lower() or type(part).__name__ == "StochasticDepth"
        for name, value in list(vars(part).items()):
            if isinstance(value, float) and pattern.search(name) and (name != "p" or dropping):
                setattr(part, name, rate)
    config = getattr(module, "config", None)
    for name, value in list(vars(config).items()) if hasattr(config, "__dict__") else []:
        if isinstance(value, float) and pattern.search(name):
            setattr(config, name, rate)


def draws(entry: Entry, rates: bool) -> bool:
    """Whether the loss depends on the generator's seed, with the rates of the modules or with all of them 0.

    In float64, and from the same state each time: a drop path behind a layer scale of 1e-6 is lost in float32.
    """
    example = cast(build(entry), torch.float64)
    if not rates:
        set_rates(example.model)
    state = copy.deepcopy(example.model.state_dict())
    losses = set()
    for seed in range(2, 8):
        example.model.load_state_dict(state)
        torch.manual_seed(seed)
        with Wide():
            losses.add(float(loss_of(example).detach()))
    return len(losses) > 1


def _construct(entry: Entry, seed: int) -> Example:
    """Runs the builder with the global generators seeded."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    example = entry.builder(Draw(entry.name))
    example.model.train()
    return example


def _redraw(module: torch.nn.Module, other: torch.nn.Module, state: np.random.RandomState) -> None:
    """Draws anew each floating parameter and buffer in which `module` and `other` (built by another seed) differ.

    torch's generators may round differently on different processors; a tensor's mean and deviation, to two digits, do
    not. Uniform of that mean (where it is above half the deviation, else 0) and deviation; elements that are 0 in both
    stay 0.
    """

    def two_digits(value: float) -> float:
        return float(f"{value:.1e}")

    mine = dict(module.named_parameters()) | dict(module.named_buffers())
    others = dict(other.named_parameters()) | dict(other.named_buffers())
    for name, tensor in mine.items():
        first, second = tensor.detach().double(), others[name].detach().double()
        if torch.equal(first, second):
            continue
        if not tensor.is_floating_point():
            raise ValueError(f"{name} is drawn at random and of type {tensor.dtype}, expected a floating type")
        drawn = (first != 0) | (second != 0)
        values = first[drawn]
        if (values == values[0]).all():  # one number: nothing to take a deviation of
            mean, deviation = 0.0, two_digits(abs(float(values[0])))
        else:
            mean, deviation = float(values.mean()), two_digits(float(values.std()))
            mean = two_digits(mean) if abs(mean) > deviation / 2 else 0.0
        unit = torch.from_numpy(state.random_sample(tuple(first.shape)) * 2 - 1)
        with torch.no_grad():
            tensor.copy_(torch.where(drawn, mean + deviation * 3**0.5 * unit, 0.0))
