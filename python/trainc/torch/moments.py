"""Moments and counts of optimizers of torch.optim, in and out of a step."""
from __future__ import annotations

import contextlib
import hashlib
import inspect
import itertools
import json
import os
import shutil
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from ..errors import InvalidArgumentError, MismatchError, UnsupportedError
from ..step import EMA, Step
from .optim import KINDS, Group
from .scalers import Scaler
from .schedulers import SchedulerState, same

_ADAM = {"exp_avg": "m", "exp_avg_sq": "v", "max_exp_avg_sq": "v_max"}
_OF_ALL_ELEMENTS = "mu_product"  # one number there, the same in every element here
# What a state is called there and here.
STATES: dict[type, dict[str, str]] = {
    torch.optim.SGD: {"momentum_buffer": "trace"}, torch.optim.Adam: _ADAM, torch.optim.AdamW: _ADAM, torch.optim.RAdam: _ADAM,
    torch.optim.NAdam: {**_ADAM, _OF_ALL_ELEMENTS: _OF_ALL_ELEMENTS},
    torch.optim.Adamax: {"exp_avg": "m", "exp_inf": "v"}, torch.optim.Adagrad: {"sum": "sum"},
    torch.optim.Adadelta: {"square_avg": "e_g", "acc_delta": "e_x"},
    torch.optim.RMSprop: {"square_avg": "v", "grad_avg": "m", "momentum_buffer": "trace"},
    torch.optim.Muon: {"momentum_buffer": "m"}}

UNCOUNTED = (torch.optim.SGD, torch.optim.Muon)  # their states have no "step"
# What a number is called there, where it has another name here; of a tuple also its place.
_KEYS: dict[str, Any] = {"b1": ("betas", 0), "b2": ("betas", 1), "l2": "weight_decay", "decay": "alpha", "steps": "ns_steps",
                         **{name: ("ns_coefficients", i) for i, name in enumerate("abc")}}
_NO_NUMBERS = {"params", "lr", "foreach", "fused", "capturable", "differentiable", "maximize", "decoupled_weight_decay"}
_NUMBERS = {key for kind in STATES for key in inspect.signature(kind).parameters} - _NO_NUMBERS


# What launchers set to the same value on all ranks of a job, and to others for other jobs.
_JOB = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE", "PMI_PORT", "SLURM_JOB_ID", "SLURM_STEP_ID")


@contextlib.contextmanager
def _shared_folder(step: Step) -> Iterator[str]:
    """A temporary folder, the same one on all ranks: of several hosts where they work, which they share."""
    if not step._trainer.comm:
        with tempfile.TemporaryDirectory() as folder:
            yield folder
        return
    info, barrier = step._trainer.comm.info(), step._trainer.comm.barrier
    job = info.bootstrap.decode() + str([os.environ.get(name) for name in _JOB])
    meeting = hashlib.sha256(job.encode()).hexdigest()[:16]
    folder = os.path.join(tempfile.gettempdir() if info.hosts == 1 else os.getcwd(), f".trainc-{meeting}")
    os.makedirs(folder, 0o700, exist_ok=True)
    barrier()
    try:
        yield folder
    finally:
        barrier()
        if info.rank == 0:
            shutil.rmtree(folder, ignore_errors=True)


def _set_computed(step: Step, scalars: Mapping[str, float]) -> None:
    """Counts that the step computes are set by a checkpoint alone: one of this state with other counts."""
    with _shared_folder(step) as folder:
        path, failed = os.path.join(folder, "state.safetensors"), None
        step.save(path)
        if step.rank == 0:
            try:
                _write_scalars(path, {step._held_names[name]: value for name, value in scalars.items()})
            except OSError as error:  # the others must know before they load it
                failed = error
        try:
            step._trainer.agree("whether a file of the state could be changed", failed is None)
        finally:
            if failed:
                raise failed
        step.load(path)


def _write_scalars(path: str, scalars: Mapping[str, float]) -> None:
    with open(path, "r+b") as f:
        size, = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(size))
        for name, value in scalars.items():
            f.seek(8 + size + header[f"scalar/{name}"]["data_offsets"][0])
            f.write(struct.pack("<d", value))
        del header["__metadata__"]["trainc.checksum"]
        text = json.dumps(header, separators=(",", ":")).encode()
        f.seek(8)
        f.write(text + b" " * (size - len(text)))


def _copied(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value.clone() if isinstance(value, torch.Tensor) else value for key, value in values.items()}


class _Found(NamedTuple):
    """In a state_dict(): the moments by parameter and name here, the counts of updates that they have had, and what the step does not
    train: values by the number of a parameter, param_groups by their place."""

    moments: dict[tuple[str, str], torch.Tensor]
    counts: set[int]
    values: dict[int, dict[str, Any]]
    groups: dict[int, dict[str, Any]]


@dataclass(frozen=True)
class Moments:
    """Of an optimizer its kind, its groups as state_dict() has them, the names of its parameters by their numbers there, its groups in
    the step, its scheduler, and the scalar that counts its updates."""

    kind: type
    groups: list[dict[str, Any]]
    names: dict[int, str]
    compiled: list[Group]
    scheduler: SchedulerState | None
    update: str = "update"

    @staticmethod
    def of(optimizer: torch.optim.Optimizer, scheduler: Any, names: Mapping[int, str], compiled: Sequence[Group], update: str) -> Moments:
        """`names` are those of parameters by id()."""
        groups = optimizer.state_dict()["param_groups"]
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        numbers = [number for group in groups for number in group["params"]]
        return Moments(type(optimizer), groups, {number: names[id(p)] for number, p in zip(numbers, parameters)}, list(compiled),
                       None if scheduler is None else SchedulerState.of(scheduler), update)

    def find(self, step: Step, state: Any) -> _Found:
        if not isinstance(state, Mapping) or not {"state", "param_groups"} <= state.keys():
            got = f"one with {', '.join(map(str, state)) or 'nothing'}" if isinstance(state, Mapping) else type(state).__name__
            raise MismatchError(f"expected the state_dict() of {self.kind.__name__}, with state and param_groups, got {got}")
        expected, got = ([list(group["params"]) for group in groups] for groups in (self.groups, state["param_groups"]))
        if expected != got:
            sizes = [" + ".join(str(len(group)) for group in groups) or "0" for groups in (expected, got)]
            raise MismatchError(f"expected an optimizer of {sizes[0]} parameters in the groups of the exported one, got {sizes[1]}")
        if unknown := [number for number in state["state"] if number not in self.names]:
            raise MismatchError(f"expected states of the parameters {', '.join(map(str, self.names))}, got {', '.join(map(str, unknown))}")
        for ours, theirs in zip(self.groups, state["param_groups"]):
            expected, got = (sorted(_NUMBERS & group.keys()) for group in (ours, theirs))
            if expected != got:
                raise MismatchError(f"expected the state of {self.kind.__name__}, whose groups have {', '.join(expected)}, got groups with "
                                    f"{', '.join(got)}")
        held, given, counts, kept = self._held(step), {}, set(), {}
        with_states = {name for name, _ in held}
        for number, values in state["state"].items():
            name = self.names[number]
            if name not in with_states:  # frozen in the step, or in a group that reads none
                kept[number] = _copied(values)
                continue
            counts |= {int(values["step"])} if "step" in values else set()
            given |= {(name, STATES[self.kind].get(key, key)): value for key, value in values.items() if key != "step" and value is not None}
        if given.keys() != held and given:
            wrong = [f"{name} has no {kind} in the step" for name, kind in sorted(given.keys() - held)]
            wrong += [f"{name} has no {kind} in the optimizer" for name, kind in sorted(held - given.keys())]
            raise MismatchError("; ".join(wrong))
        self._refuse_shapes(step, given)
        if not counts and held and not (given and self.kind in UNCOUNTED):
            counts = {0}
        groups = {i: dict(theirs) for i, (theirs, group) in enumerate(zip(state["param_groups"], self.compiled)) if not self._is_in(step, group)}
        return _Found(given, counts, kept, groups)

    @staticmethod
    def _refuse_shapes(step: Step, given: Mapping[tuple[str, str], torch.Tensor]) -> None:
        wrong = []
        for (name, kind), value in given.items():
            try:
                if kind != _OF_ALL_ELEMENTS:
                    step._fitting(f"{kind} of {name}", step._tensor(name, kind), value)
                elif value.numel() != 1:
                    wrong.append(f"{kind} of {name}: expected one number, got shape {tuple(value.shape)}")
            except InvalidArgumentError as error:
                wrong.append(str(error))
        if wrong:
            raise MismatchError("the state of the optimizer does not fit the step:\n  " + "\n  ".join(wrong))

    def refuse_count(self, step: Step, found: _Found, count: int) -> None:
        """With dampening the first update differs from those that have momentum."""
        damped = {name for group in self.compiled if group.settings.get("dampening") for name in group.parameters}
        if bool(found.moments) != bool(count) and any(name in damped for name, _ in self._held(step)):
            got, expected = ("momentum", "none") if found.moments else ("no momentum", "some")
            raise MismatchError(f"{self.kind.__name__} with dampening has {got} after {count} updates: expected {expected}")

    def write(self, step: Step, found: _Found) -> None:
        """Without moments: those of an optimizer that has had no update."""
        given = found.moments
        step.untrained[self.compiled[0].name] = found._replace(moments={})
        for name, kind in sorted(self._held(step)) if not given else ():  # in one order on all ranks
            start = 1.0 if kind == _OF_ALL_ELEMENTS else self.compiled[0].settings.get("initial_accumulator_value", 0.0)
            step.write(name, step.read(name, kind, as_torch=True).fill_(start), kind)
        for (name, kind), value in given.items():
            if kind == _OF_ALL_ELEMENTS:
                value = value.to(given[name, "m"]).reshape(()).expand_as(given[name, "m"]).contiguous()
            step.write(name, value, kind)

    def numbers(self, step: Step, state: Mapping[str, Any], count: int) -> dict[str, float]:
        """Scalars that have other values in the step. What cannot be set there must be as it is."""
        changed, wrong = {}, []
        for exported, theirs, group in zip(self.groups, state["param_groups"], self.compiled):
            if not self._is_in(step, group):
                continue
            raw = {**exported, **theirs}
            theirs = {k: v.item() if isinstance(v, torch.Tensor) else v for k, v in raw.items()}
            found, here = self._numbers_of(theirs, group), self._numbers_of(group.settings, group)
            for name in here | found:
                scalar = f"{group.name}.{name}"
                settable = step._scalars.get(scalar)
                value = group.scheduled[name](count) if name in group.scheduled else here.get(name)
                wanted = 0.0 if found.get(name) is None and settable else found.get(name)
                scheduled = name == "lr" and group.scheduled
                if not settable and not same(raw["lr"] if scheduled else wanted, value, group.settings["initial_lr"] if scheduled else 0.0):
                    why = f", its schedule's after {count} updates" if name in group.scheduled else ""
                    wrong.append(f"{name} of {group.name} is {wanted}, expected {value}{why}")
                elif settable and {wanted} != {*step._values_of(scalar).values()}:
                    changed[scalar] = wanted
            if group.scheduled and "initial_lr" in theirs and not same(theirs["initial_lr"], group.settings["initial_lr"]):
                wrong.append(f"initial_lr of {group.name} is {theirs['initial_lr']}, expected {group.settings['initial_lr']}")
        if wrong:
            raise MismatchError("the step is compiled with other numbers than the optimizer has: " + "; ".join(wrong))
        return changed

    def _numbers_of(self, settings: Mapping[str, Any], group: Group) -> dict[str, Any]:
        """The numbers and flags by name here. Where Adagrad's sums begin is none of them: its state has the sums."""
        _, numbers, flags = KINDS[self.kind](settings)
        decoupled = settings.get("decoupled_weight_decay", True) or not settings["weight_decay"] or self.kind is not torch.optim.AdamW
        numbers.pop("initial_accumulator_value", None)
        return numbers | flags | {name: settings.get(name, False) for name in ("maximize", "amsgrad")} | {"decoupled_weight_decay": decoupled}

    def _held(self, step: Step) -> set[tuple[str, str]]:
        names = set(self.names.values())
        return {(name, kind) for name, kind in step.optimizer_states() if name in names and kind != EMA}

    @staticmethod
    def _is_in(step: Step, group: Group) -> bool:
        """One whose parameters are all frozen is not."""
        return any(name in step._scalars for name in (f"{group.name}.lr", f"{group.name}.schedule"))

    def rates(self, step: Step) -> dict[str, Callable[[Step], float]]:
        """By the names that learning rates would have as scalars, those that follow a schedule: of the next update."""
        return {f"{group.name}.{name}": lambda step, value=value: value(int(step.get(self.update)))
                for group in self.compiled if self._is_in(step, group) for name, value in group.scheduled.items()}

    def store(self, step: Step) -> dict[str, Any]:
        """A state_dict() of the optimizer with the step's moments and numbers; of a schedule the rate of the next update. What the step
        does not train is as it was loaded."""
        update, held, values = int(step.get(self.update)), self._held(step), {}
        kept = step.untrained.get(self.compiled[0].name, _Found({}, set(), {}, {}))
        for number, name in self.names.items():
            moments = {key: step.read(name, kind, as_torch=True) for key, kind in STATES[self.kind].items() if (name, kind) in held}
            if _OF_ALL_ELEMENTS in moments:
                moments[_OF_ALL_ELEMENTS] = moments[_OF_ALL_ELEMENTS].flatten()[0].clone()
            counted = {"step": torch.tensor(float(update), device="cpu")} if self.kind not in UNCOUNTED else {}
            if moments and (update or any(bool(x.any()) for key, x in moments.items() if key != _OF_ALL_ELEMENTS)):
                values[number] = counted | moments
            elif number in kept.values:
                values[number] = _copied(kept.values[number])
        exported = [kept.groups.get(i, group) for i, group in enumerate(self.groups)]
        return {"state": values, "param_groups": [self._stored(step, *both) for both in zip(exported, self.compiled)]}

    def store_scheduler(self, step: Step) -> dict[str, Any] | None:
        """The state_dict() of its scheduler, or None."""
        def rates(updates: int) -> list[float]:
            return [group.scheduled["lr"](updates) for group in self.compiled]

        return self.scheduler and self.scheduler.after(int(step.get(self.update)), rates)

    def _stored(self, step: Step, exported: Mapping[str, Any], group: Group) -> dict[str, Any]:
        settings, update = dict(exported), int(step.get(self.update))
        values = {name: value(update) for name, value in group.scheduled.items()}
        for scalar, settable in step._scalars.items():
            owner, _, name = scalar.rpartition(".")
            if owner == group.name and settable:
                values[name] = step.get(scalar)
        for name, value in values.items():
            key = _KEYS.get(name, name)
            if isinstance(key, tuple):
                settings[key[0]] = tuple(value if i == key[1] else v for i, v in enumerate(settings[key[0]]))
            elif key in settings and settings[key] != value:
                settings[key] = torch.full_like(settings[key], value) if isinstance(settings[key], torch.Tensor) else value
        return settings


@dataclass(frozen=True)
class Optimizers:
    """Optimizers whose updates are counted together, in their order, `listed` unless it is one; and their scaler."""

    parts: tuple[Moments, ...]
    listed: bool
    scaler: Scaler | None

    def load(self, step: Step, states: Any, updates: Any = None, scheduler: Any = None, scaler: Any = None) -> None:
        """Writes the moments, the count of updates and the numbers of state_dict()s into the step. MismatchError of what does not fit;
        nothing has changed then."""
        self.ready(step, states, updates, scheduler, scaler)()

    def ready(self, step: Step, states: Any, updates: Any = None, scheduler: Any = None, scaler: Any = None) -> Callable[[], None]:
        """What writes them, when all has been found to fit."""
        states = self._each("states", "optimizers", states)
        counts = self._counts(updates, scheduler)
        found = [part.find(step, state) for part, state in zip(self.parts, states)]
        before = int(step.get(self.parts[0].update))
        count = self._count(found, counts, before)
        numbers: dict[str, float] = {}
        for part, state, its in zip(self.parts, states, found):
            part.refuse_count(step, its, count)
            numbers |= part.numbers(step, state, count)
        computed = {self.parts[0].update: count}
        if scaler is not None:
            if self.scaler is None or self.scaler.state is None:
                raise MismatchError("the state of a scaler: expected none, as the step was exported without a GradScaler")
            numbers, age = numbers | self.scaler.numbers(step, scaler), self.scaler.age(scaler)
            computed |= age
        computed = {name: value for name, value in computed.items() if step.get(name) != value}

        def write() -> None:
            step._trainer.agree("the numbers of the optimizer", zlib.crc32(repr((count, numbers, computed)).encode()))
            for name, value in numbers.items():
                step.set(name, value)
            for part, its in zip(self.parts, found):
                part.write(step, its)
            if computed:
                _set_computed(step, computed)

        return write

    def _each(self, what: str, of: str, given: Any) -> Sequence[Any]:
        if not self.listed:
            return [given]
        if not isinstance(given, list | tuple) or len(given) != len(self.parts):
            got = len(given) if isinstance(given, list | tuple) else type(given).__name__
            raise MismatchError(f"expected a list of the {what} of {len(self.parts)} {of}, got {got}")
        return given

    def _counts(self, updates: Any, scheduler: Any) -> set[int]:
        """Of updates, that are given and that schedulers have."""
        if updates is not None and (not isinstance(updates, int) or updates < 0):
            raise MismatchError(f"updates: expected a number of updates, got {updates!r}")
        counts = set() if updates is None else {updates}
        for part, state in zip(self.parts, self._each("states", "schedulers", scheduler)) if scheduler is not None else ():
            if part.scheduler is None and state is not None:
                raise MismatchError(f"the state of a scheduler: expected none, as {part.kind.__name__} was exported without one")
            counts |= {part.scheduler.updates_of(state)} if part.scheduler else set()
        if len(counts) > 1:
            raise MismatchError(f"updates= and the schedulers have {', '.join(map(str, sorted(counts)))} updates: expected one count for all")
        return counts

    def _count(self, found: Sequence[_Found], given: set[int], before: int) -> int:
        """Of updates: one count for all."""
        counted = set().union(*(its.counts for part, its in zip(self.parts, found) if part.kind not in UNCOUNTED))
        # One that does not count had as many as those that do.
        counts = counted or set().union(*(its.counts for its in found))
        if len(counts | given) > 1:
            both = "".join(f", and updates= or the scheduler {updates}" for updates in given)
            raise MismatchError(f"parameters have had {', '.join(map(str, sorted(counts)))} updates{both}: expected one count for all")
        if not counts | given and any(group.scheduled for part in self.parts for group in part.compiled):
            raise MismatchError(f"the state of {self.parts[0].kind.__name__} has no count of updates, which the schedule needs: expected "
                                "load_torch_optimizer(state, scheduler=scheduler.state_dict())")
        # Without a count the step's own goes on; what has a momentum buffer has had an update.
        return next(iter(given | counts), max(before, int(any(its.moments for its in found))))

    def rates(self, step: Step) -> dict[str, Callable[[Step], float]]:
        return {name: rate for part in self.parts for name, rate in part.rates(step).items()}

    def store(self, step: Step) -> Any:
        states = [part.store(step) for part in self.parts]
        return states if self.listed else states[0]

    def store_scheduler(self, step: Step) -> Any:
        """The state_dict() of the scheduler, or a list with None for optimizers without; None of none."""
        states = [part.store_scheduler(step) for part in self.parts]
        return None if states.count(None) == len(states) else states if self.listed else states[0]

    def store_scaler(self, step: Step) -> dict[str, Any] | None:
        return self.scaler.store(step) if self.scaler and self.scaler.state else None


@dataclass(frozen=True)
class OptimizersByStep:
    """Those of steps that train different parameters, by the steps' names."""

    parts: dict[str, Optimizers]

    def load(self, step: Step, states: Any, updates: Any = None, scheduler: Any = None, scaler: Any = None) -> None:
        more = dict(updates=updates, scheduler=scheduler, scaler=scaler)
        for what, given in {"states": states, **more}.items():
            if (what == "states" or given is not None) and not isinstance(given, Mapping):
                raise MismatchError(f"expected the {what} of {', '.join(self.parts)}, by name, got {type(given).__name__}")
            # Not every step has a scheduler or a scaler.
            few = what in ("scheduler", "scaler")
            if given is not None and not (given.keys() <= self.parts.keys() if few else given.keys() == self.parts.keys()):
                raise MismatchError(f"expected the {what} of {', '.join(self.parts)}, by name, got {', '.join(map(str, given)) or 'none'}")
        for write in [part.ready(step, states[name], **{what: given.get(name) if given else None for what, given in more.items()})
                      for name, part in self.parts.items()]:
            write()

    def rates(self, step: Step) -> dict[str, Callable[[Step], float]]:
        return {name: rate for part in self.parts.values() for name, rate in part.rates(step).items()}

    def store(self, step: Step) -> dict[str, Any]:
        return {name: part.store(step) for name, part in self.parts.items()}

    def store_scheduler(self, step: Step) -> dict[str, Any] | None:
        return {name: state for name, part in self.parts.items() if (state := part.store_scheduler(step)) is not None} or None

    def store_scaler(self, step: Step) -> dict[str, Any] | None:
        return {name: state for name, part in self.parts.items() if (state := part.store_scaler(step)) is not None} or None


def optimizers_of(optimizer: Any, scheduler: Any, scaler: Scaler | None, names: Mapping[int, str], groups: Sequence[Group],
                  update: str = "update") -> Optimizers:
    """`names` are those of parameters by id(), `groups` all of the optimizer, or of all in turn; `update` is the scalar that counts."""
    listed, rest = not isinstance(optimizer, torch.optim.Optimizer), iter(groups)
    optimizers = optimizer if listed else [optimizer]
    schedulers = scheduler if listed and scheduler is not None else [scheduler] * len(optimizers)
    return Optimizers(tuple(Moments.of(o, s, names, list(itertools.islice(rest, len(o.param_groups))), update)
                            for o, s in zip(optimizers, schedulers)), listed, scaler)


def _taken(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Its state_dict(), with the tensors that it has now. Fused updates of SGD do not count as changes of a tensor: those are copied."""
    state = optimizer.state_dict()
    fused = {number for group in state["param_groups"] if group.get("fused") and type(optimizer) is torch.optim.SGD for number in group["params"]}
    return {**state, "state": {number: (_copied if number in fused else dict)(values) for number, values in state["state"].items()}}


def _has_begun(optimizer: torch.optim.Optimizer, values: Mapping[str, Any]) -> bool:
    """Whether the state of a parameter is another one than it begins with."""
    if "step" not in values or int(values["step"]):
        return True
    return "sum" in values and bool((values["sum"] != optimizer.defaults["initial_accumulator_value"]).any())


class Begun:
    """What an optimizer has done before it is exported: its state, which is its own, and which must not have changed when it is read."""

    def __init__(self, optimizer: Any, scheduler: Any, scaler: Scaler | None):
        many = not isinstance(optimizer, torch.optim.Optimizer)
        schedulers = [s for s in (scheduler if isinstance(scheduler, list | tuple) else [scheduler]) if s is not None]
        optimizers = optimizer if many else [optimizer]
        states = [_taken(o) for o in optimizers]
        self.states: Any = states if many else states[0]
        stepped = sorted({s.last_epoch for s in schedulers})
        if len(stepped) > 1:
            raise UnsupportedError(f"the schedulers have done {', '.join(map(str, stepped))} updates: expected one count for all")
        self.updates = stepped[0] if stepped else None
        moments = [values for state in states for values in state["state"].values()]
        self._tensors = [(x, x._version) for values in moments for x in values.values() if isinstance(x, torch.Tensor)]
        counts = {int(values["step"]) for values in moments if "step" in values}
        # Those of parameters that the step does not train may differ.
        if self.updates is not None and counts and self.updates not in counts:
            done = ", ".join(map(str, sorted(counts)))
            raise UnsupportedError(f"the optimizer has done {done} updates, its scheduler {self.updates}: a schedule is stepped once per update")
        self.scaler = scaler and scaler.state
        begun = any(_has_begun(o, values) for o, state in zip(optimizers, states) for values in state["state"].values())
        self.any = bool(self.updates or scaler and scaler.has_begun or begun)

    def check(self) -> None:
        if any(x._version != version for x, version in self._tensors):
            raise InvalidArgumentError("the optimizer has done updates since the export, which has taken its state: export again")
