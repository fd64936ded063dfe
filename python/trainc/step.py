"""Training with a compiled step."""
import functools
import math
import os
import re
import threading
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from ctypes import byref, c_char_p, c_double
from typing import Any, NamedTuple

from . import _runtime
from ._arrays import DTYPES, SIZES, checksum, empty, holds_nan, pointer_of, view
from ._entry import EntryPoint
from ._files import tensors_with_nan
from ._observer import CheckFinite, Observer, Profile
from ._report import trained
from ._result import StepResult
from ._trainer import Comm, Trainer, held_names, shape_of
from .errors import InvalidArgumentError, MismatchError, NotFoundError, warn

_FLOATS = DTYPES[:4]  # the runtime converts these into each other
EMA = "ema"  # the state that is a moving average of a parameter


class LoadResult(NamedTuple):
    """What `Step.load_state_dict` did not find: names that the dict lacks, and names that the step lacks."""
    missing_keys: list
    unexpected_keys: list


_shared_comm: weakref.ref | None = None
_shared_comm_lock = threading.Lock()


def _communicator(deadline: float) -> Comm:
    """The communicator of this process, shared by its steps: ranks find each other as runtime.h says."""
    global _shared_comm
    with _shared_comm_lock:
        comm = _shared_comm and _shared_comm()
        if comm is None or not comm.comm:
            comm = Comm(_runtime.runtime(), deadline=deadline)
            _shared_comm = weakref.ref(comm)
        return comm


def _bytes_of(limit: int | str | None) -> int:
    """A size in bytes: a number, or text with K, M or G."""
    if limit is None:
        return 0
    match = re.fullmatch(r"([0-9]{1,20})([KMG]?)", str(limit))
    size = int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]] if match else 0
    if not 0 < size < 1 << 64:
        raise InvalidArgumentError(f"expected memory_limit in bytes below 2**64, or as text with K, M or G, got {limit!r}")
    return size


def _same(a: Any, b: Any) -> bool:
    """Whether two arrays of one shape have the same numbers; a NaN is one."""
    return bool(((a == b) | (a != a) & (b != b)).all())


class Step:
    """One training state of an artifact: parameters, optimizer states, and the threads that step them.

    Calling it runs its step on one batch: `step(x, y)` in the order of the entry's inputs, or by name, `step(**batch)`; of
    several steps the one whose inputs have the batch's shapes. Those of steps that train different parameters are called by
    name, `step.train("critic", x)`. Inputs are NumPy arrays, torch tensors, or anything with `__dlpack__` or `__array_interface__`, of
    the type and shape that the entry has. They are lent, not copied, and kept alive until others take their place;
    what is not dense, aligned and in native byte order is copied, with one warning. Nothing is cast.

    Calls release the GIL. Those of several threads wait for each other. After a fork the child has to load its own. A process that ends
    waits for the call of a daemon thread, a minute at most.
    """

    def __init__(self, path: str | os.PathLike, threads: int = 0, device: Any = None, seed: int = 0,
                 memory_limit: int | str | None = None, pin_threads: bool = False, timeout: float = 0.0,
                 deadline: float = 0.0):
        self.path = os.fspath(path)
        self.exported_optimizer: Any = None
        self.untrained: dict[str, Any] = {}  # what its states have that is not trained here, as it was loaded, by its first group's name
        self.tied: Mapping[str, Sequence[str]] = {}  # other names of a tensor, by the step's
        # Of the model: what is wrong with a value, which the step has in another form.
        self.left_out: Mapping[str, Callable[["Step", Any], str | None] | None] = {}
        self.added: frozenset[str] = frozenset()  # tensors that the model's state dict has not
        self.rates: Mapping[str, Callable[["Step"], float]] = {}  # learning rates that are no scalars: they follow schedules
        self.optimizers: Mapping[str, str] = {}  # their kinds, by the names of groups
        self.notes: Sequence[str] = ()  # more lines of the report
        self.clones: Mapping[str, str] = {}  # of scalars of a group with parameters in f32 and in f64 those of its second type
        if not os.path.exists(self.path):
            raise NotFoundError(f"there is no artifact {self.path}")
        self._trainer = Trainer(
            _runtime.runtime(), self.path, threads, seed, lambda: _communicator(deadline),
            device=None if device is None else _runtime.c_text("device", str(device)), memory_limit=_bytes_of(memory_limit), timeout=timeout,
            flags=_runtime.TRAINER_PIN_THREADS if pin_threads else 0)
        t = self._trainer
        entries = [EntryPoint(t, name) for name in t.entries]
        self._evals = {e.name: e for e in entries if e.is_eval}
        self._steps = [e for e in entries if not e.is_eval]
        self._entry = next(iter(self._steps), None)  # the last one that ran
        self._windows: dict[str, list[EntryPoint]] = {}  # steps that train the same parameters, by the first one's name
        for e in self._steps:
            first = next(other for other in self._steps if other.window == e.window)
            self._windows.setdefault(first.name, []).append(e)
        self._run = t.runtime.library.trainc_step
        self._tensors = {name: i for (role, name, _), i in t.tensors.items() if role in ("parameter", "buffer")}
        d = t.descriptor  # gone when the step is closed
        self._table = [(DTYPES[tensor.dtype], shape_of(tensor)) for tensor in d.tensors[:d.num_tensors]]
        self._held_names = held_names([s.name.decode() for s in d.scalars[:d.num_scalars]], list(self._windows))
        flags = {s.name.decode(): s.flags for s in d.scalars[:d.num_scalars]}
        self._scalars = {name: flags[held] & _runtime.SETTABLE for name, held in self._held_names.items()}
        self._lazy, self._number = not t.device().startswith("cpu"), 0
        self._observer: Observer | None = None
        self._eager = False  # results are read at once until a window is closed
        if notice := t.notice():
            warn(notice)
        launched = os.environ.get("WORLD_SIZE") or os.environ.get("OMPI_COMM_WORLD_SIZE") or "1"
        if t.ranks == 1 and launched != "1":
            warn(f"{self.path} is compiled for one rank, but {launched} were started: each trains alone. "
                 f"Compile it with mesh={{'data': {launched}}}")

    def __repr__(self):
        state = self.device if self._trainer.trainer else "closed"
        return f"<trainc.Step {self.path}: {self._entry or 'no step'}, {state}>"

    # Running.

    def __call__(self, *inputs: Any, **named: Any) -> StepResult:
        """One micro-batch; the update too, if it closes the accumulation window."""
        if len(self._windows) > 1:
            raise InvalidArgumentError(f"{self.path} has steps that train different parameters, {', '.join(self._windows)}: "
                                       "call one by step.train(name, ...)")
        return self._micro_step(self._steps, inputs, named)

    def train(self, name: str, /, *inputs: Any, **named: Any) -> StepResult:
        """As a call of the step, by the name that it has among those that train different parameters: each has counters, an
        accumulation window, a clip and a loss scale of its own."""
        if name not in self._windows:
            raise NotFoundError(f"{self.path} has no step {name}: expected {', '.join(self._windows) or 'none'}")
        return self._micro_step(self._windows[name], inputs, named)

    def _micro_step(self, steps, inputs, named):
        """One of `steps`, that of the inputs' shapes if there are several."""
        trainer = self._trainer
        with trainer.lock:
            if not trainer.trainer:
                raise trainer.closed_error()
            if not steps:
                raise NotFoundError(f"{self.path} has no step")
            entry = steps[0] if len(steps) == 1 else self._step_of(steps, inputs, named)
            entry.bind(inputs, named)
            self._entry = entry
            values = None if self._lazy and not self._eager else _runtime.StepResult()
            self._number += 1
            status = self._run(trainer.trainer, entry.index, values)
            if status:
                raise trainer.runtime.error(status)
            if values and values.closed:
                self._eager = False
            if self._observer:
                self._observer.end()
            return StepResult(values, self, self._number) if self._lazy or entry.outputs else StepResult(values)

    def _step_of(self, steps, inputs, named):
        """The first one that fits, else the smallest one that fits when it is filled up."""
        for entry in steps:
            if entry.fits(inputs, named):
                return entry
        if larger := [entry for entry in steps if entry.fits(inputs, named, filled=True)]:
            return min(larger, key=lambda entry: sum(port.bytes for port in entry.inputs))
        def said(value: Any) -> str:
            return (str(tuple(value.shape)) if hasattr(value, "shape") else
                    repr(value) if value is None or isinstance(value, int | float | str) else type(value).__name__)

        given = [said(v) for v in inputs] + [f"{name}: {said(v)}" for name, v in named.items()]
        raise InvalidArgumentError(f"no step takes inputs of shapes {', '.join(given)}: expected those of one of {'; '.join(map(str, steps))}"
                                   + steps[0].advice)

    def _read_outputs(self, number):
        """Those of call `number`, of which only the last one's are there."""
        with self._trainer.lock:
            if number != self._number:
                raise InvalidArgumentError("outputs of a step are read before the next call that changes the state: got a result "
                                           "whose outputs were not")
            return self._entry.read_outputs()

    def _read_result(self, number):
        """The result of call `number` from the scalars, which are of the last one."""
        trainer = self._trainer
        with trainer.lock:
            if number != self._number:
                raise InvalidArgumentError("on a GPU the result of a step is read before the next call that changes "
                                           "the state: got a result that was not")
            first = self._entry.window * _runtime.FIXED_SCALARS

            def at(fixed):
                return trainer.scalar_at(first + fixed)

            values = _runtime.StepResult(
                weight=at(_runtime.MICRO_WEIGHT), window_weight=at(_runtime.WEIGHT_SUM),
                grad_norm=at(_runtime.GRAD_NORM), clip_factor=at(_runtime.CLIP_FACTOR),
                loss_scale=at(_runtime.LOSS_SCALE), update=int(at(_runtime.UPDATE)),
                skipped=int(at(_runtime.SKIPPED)), micro_step=int(at(_runtime.MICRO_STEP)),
                finite=at(_runtime.FINITE) != 0)
            values.loss = at(_runtime.MICRO_LOSS) / values.weight if values.weight else float("nan")
            values.window_loss = (at(_runtime.LOSS_SUM) / values.window_weight if values.window_weight
                                  else float("nan"))
            values.closed = values.micro_step == 0
            values.updated = values.closed and values.finite
            values.stop = int(at(_runtime.STOP)) if values.closed else 0
            return values

    def eval(self, name: str, /, *inputs: Any, **named: Any) -> dict:
        """Runs eval entry `name`. Its outputs by name, memory of their own: torch tensors if an input is one, else
        NumPy arrays (those in bfloat16 need ml_dtypes). Does not disturb an open accumulation window."""
        if name not in self._evals:
            raise NotFoundError(f"{self.path} has no eval {name}: expected {', '.join(self._evals) or 'none'}")
        entry = self._evals[name]
        with self._trainer.lock:
            if not self._trainer.trainer:
                raise self._trainer.closed_error()
            entry.bind(inputs, named)
            self._trainer.call("trainc_eval", entry.index)
            if self._observer:
                self._observer.end()
            return entry.read_outputs()

    def expect(self, entry: str, names: Sequence[str], constants: Mapping[str, Any] = {}, unsigned: Collection[str] = (),
               items: Sequence[str] | None = None, examples: Any = None, narrows: bool = False,
               shapes: Mapping[str, Sequence[int]] = {}, unsigned_outputs: Collection[str] = (), advice: str = "") -> None:
        """Says of what batches for an entry consist, in their order: names that are no inputs may then be given, too. Those in
        `constants` must have these values, those in `shapes` these shapes; the others are not looked at. Inputs in `unsigned` and outputs
        in `unsigned_outputs` are uint8. A batch that holds dicts, lists or tuples has `items`, and `names` are those of the leaves: `b_x` in
        a dict `b`, `b_0` in a tuple. `examples`, of trainc.torch.examples, fills smaller batches up. With `narrows` NumPy's arrays of 64
        bits are taken for inputs of 32. `advice`, what takes other shapes, is said where one is refused."""
        found = {e.name: e for e in (*self._steps, *self._evals.values())}
        if entry not in found:
            raise NotFoundError(f"{self.path} has no entry {entry}")
        found[entry].expect(names, constants, unsigned, items, examples, narrows, shapes, unsigned_outputs, advice)

    def flush(self) -> StepResult:
        """Closes all open accumulation windows: their updates run with what they have. The result is that of the last one;
        without any, `closed` is False."""
        values = _runtime.StepResult()
        with self._trainer.lock:
            self._number += 1
            self._trainer.call("trainc_flush", byref(values))
            if self._observer:
                self._observer.end()
        return StepResult(values)

    def check_finite(self, infinities: bool = True) -> CheckFinite:
        """Within `with step.check_finite():` a call raises a NotFiniteError if an operation of it wrote a NaN or an infinity (or a NaN alone):
        it says which is the first, and its line in the model. The call is done then, as it is without. Much slower."""
        return CheckFinite(self, infinities)

    def profile(self) -> Profile:
        """Within `with step.profile() as profile:` each operation is timed: `print(profile.table())`,
        `profile.export_chrome_trace(path)`. Operations then run one after the other."""
        return Profile(self)

    def request_stop(self) -> None:
        """Asks all ranks to stop: `stop` of their next result that closes a window is not 0."""
        with self._trainer.lock:
            self._eager = True  # a result says how many have asked, once
            self._trainer.call("trainc_request_stop")

    # Parameters and buffers.

    def state_dict(self, as_torch: bool = False, ema: bool = False) -> dict:
        """Copies of all parameters and buffers by name: NumPy arrays, or torch tensors; with `ema` the moving averages of the parameters
        that have one.

        With several ranks all of them call it, and get whole tensors.
        """
        tensors = self._tensors
        if ema:
            averages = {name: i for (role, name, state), i in self._trainer.tensors.items() if role == "state" and state == EMA}
            if not averages:
                raise NotFoundError(f"{self.path} has no moving averages of parameters: expected a module with ema")
            tensors = tensors | averages
        with self._trainer.lock:
            return {name: self._read(i, as_torch) for name, i in tensors.items()}

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> LoadResult:
        """Copies arrays or tensors into parameters and buffers of their names; optimizer states stay, but for averages before any update.

        Floating types convert into each other (to nearest even), all others only to themselves. Shapes that differ, NaNs,
        and with `strict` names that one side lacks, are a MismatchError that lists them all; nothing has changed then. With several ranks
        all of them call it, with the same values: other ones are a MismatchError, too.
        """
        state, wrong = self._without_ties(state)
        missing = [name for name in self._tensors if name not in state and name not in self.added]
        unexpected = [name for name in state if name not in self._tensors and name not in self.left_out]
        wrong += [f"{name}: {said}" for name, wrong_of in self.left_out.items()
                  if name in state and wrong_of and (said := wrong_of(self, state[name]))]
        views = {}
        for name, i in self._tensors.items():
            if name in state:
                try:
                    views[i] = self._fitting(name, i, state[name])
                    wrong += [f"{name}: holds NaN, expected numbers"] if name not in self.added and holds_nan(views[i]) else []
                except InvalidArgumentError as error:
                    wrong.append(str(error))
        if strict:
            wrong += [f"{name}: missing" for name in missing] + [f"{name}: unexpected" for name in unexpected]
        if wrong:
            raise MismatchError("the state dict does not fit the step:\n  " + "\n  ".join(wrong))
        with self._trainer.lock:
            self._agree("the state dict", list(views.values()))
            begins = not any(self._scalar(full) for full in self._scalars if f".{full}".endswith(".update"))
            for name, i in self._tensors.items():
                average = self._trainer.tensors.get(("state", name, EMA)) if begins else None
                for index in (i, average):
                    if i in views and index is not None:
                        self._write(index, views[i])
        return LoadResult(missing, unexpected)

    def _without_ties(self, state: Mapping[str, Any]) -> tuple[dict, list]:
        """The state with one name for each tensor, and what is wrong: names of one tensor that have two values."""
        state, wrong = dict(state), []
        for name, others in self.tied.items():
            for other in others:
                if other not in state:
                    continue
                value = state.pop(other)
                first = state.setdefault(name, value)
                shapes = {getattr(v, "shape", None) for v in (first, value)}
                if first is not value and (len(shapes) > 1 or None not in shapes and not _same(first, value)):
                    wrong.append(f"{other} and {name} are one tensor, but have two values")
        return state, wrong

    def read(self, name: str, state: str | None = None, as_torch: bool = False):
        """A copy of a parameter or buffer, or of its optimizer state `state`, such as "m"."""
        return self._read(self._tensor(name, state), as_torch)

    def write(self, name: str, value: Any, state: str | None = None) -> None:
        """Copies an array or tensor into one of those; types as in `load_state_dict`."""
        i = self._tensor(name, state)
        v = self._fitting(name, i, value)
        with self._trainer.lock:
            self._agree(name, [v])
            self._write(i, v)

    def optimizer_states(self) -> list[tuple[str, str]]:
        """(parameter, state) of all optimizer states, as `read` and `write` take them."""
        return [(name, state) for role, name, state in self._trainer.tensors if role == "state"]

    def load_torch_optimizer(self, state: Any, updates: Any = None, *, scheduler: Any = None, scaler: Any = None) -> None:
        """Goes on from the moments, the count of updates and the numbers (lr, ...) of `optimizer.state_dict()`, of the optimizer that was
        exported; `scheduler` and `scaler` are the `state_dict()` of those that were exported with it. Where the optimizer has no count (SGD,
        Muon) a schedule needs that of the scheduler, or `updates`."""
        optimizer = self._exported_optimizer()
        with self._trainer.lock:
            optimizer.load(self, state, updates, scheduler, scaler)

    def torch_optimizer(self) -> Any:
        """What `load_state_dict` of the exported optimizer takes, to go on in PyTorch."""
        optimizer = self._exported_optimizer()
        with self._trainer.lock:
            return optimizer.store(self)

    def torch_scheduler(self) -> Any:
        """The same of the exported scheduler."""
        return self._stored_beside("scheduler")

    def torch_scaler(self) -> Any:
        """The same of the exported GradScaler."""
        return self._stored_beside("scaler")

    def _stored_beside(self, what):
        optimizer = self._exported_optimizer()
        with self._trainer.lock:
            state = getattr(optimizer, f"store_{what}")(self)
        if state is None:
            raise NotFoundError(f"this step was exported without a {'GradScaler' if what == 'scaler' else what}")
        return state

    def _exported_optimizer(self):
        if self.exported_optimizer is None:
            raise InvalidArgumentError("this step was not made by Exported.step(): which parameter of an optimizer is which is not known")
        return self.exported_optimizer

    def _tensor(self, name, state):
        if state:
            return self._trainer.find("state", name, state)
        if name not in self._tensors:
            raise NotFoundError(f"{self.path} has no parameter or buffer {name}")
        return self._tensors[name]

    def _fitting(self, name, index, value):
        """The memory of `value`, of the shape of a tensor, and of its type or one that converts to it."""
        dtype, shape = self._table[index]
        try:
            v = view(value)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{name}: {error}") from None
        if v.shape != shape or v.dtype != dtype and not {v.dtype, dtype} <= set(_FLOATS):
            raise InvalidArgumentError(f"{name}: expected {dtype} of shape {shape}, "
                                       f"got {v.dtype} of shape {tuple(v.shape)}")
        return v

    def _agree(self, what, views):
        """Each rank keeps its part of what it is given, which must be the same on all."""
        if self._trainer.comm:
            self._trainer.agree(what, functools.reduce(lambda sum, v: checksum(v, sum), views, 0))

    def _read(self, index, as_torch):
        dtype, shape = self._table[index]
        array = empty(dtype, shape, as_torch)
        self._trainer.call("trainc_tensor_read", index, DTYPES.index(dtype), pointer_of(array), array.nbytes)
        return array

    def _write(self, index, v):
        dtype = DTYPES.index(v.dtype)
        self._trainer.call("trainc_tensor_write", index, dtype, v.pointer, math.prod(v.shape) * SIZES[dtype])

    # Scalars.

    def get(self, name: str) -> float:
        """A scalar: "update", "seed", "loss_scale", a hyperparameter "group.lr"; "lr" alone if all groups agree. Of steps that train different
        parameters each has its own, "critic.update"; "update" alone if they agree. A learning rate is that of the next update. (A schedule by
        its own name is the rate of the last one, 0 before the first.)"""
        return self._agreed(name)

    def set(self, name: str, value: float) -> None:
        """Sets a scalar from the next call on: one by its full name, or, "lr", that of all groups if they agree."""
        names = self._scalars_of(name)
        try:
            value = c_double(value).value
        except (TypeError, ValueError, OverflowError):
            raise InvalidArgumentError(f"{name}: expected a number, got {value!r}") from None
        if name not in names:
            self._agreed(name)
        if fixed := [full for full in names if not self._scalars.get(full)]:
            why = ", follows its schedule and" if fixed[0] in self.rates else ""
            raise InvalidArgumentError(f"{', '.join(fixed)}{why} cannot be set: expected "
                                       f"{', '.join(n for n, settable in self._scalars.items() if settable)}")
        with self._trainer.lock:
            self._number += 1
            for full in names:
                self._trainer.set_scalar(self._held_names[full], value)

    def _scalars_of(self, name):
        known = [*self._scalars, *self.rates]
        names = [name] if name in known else [full for full in known if full.endswith("." + name)]
        if not names:
            raise NotFoundError(f"{self.path} has no scalar {name}: expected {', '.join(known)}")
        return list(dict.fromkeys(own for full in names for own in (full, self.clones.get(full, full))))

    def _scalar(self, full):
        return self._trainer.scalar(self._held_names[full])

    def _values_of(self, name):
        """The scalars of this name, by their full ones."""
        return {full: self.rates[full](self) if full in self.rates else self._scalar(full) for full in self._scalars_of(name)}

    def _numbers_of(self, group):
        """The hyperparameters of a group."""
        return {name: self._values_of(full)[full] for full in (*self._scalars, *self.rates) for owner, _, name in [full.rpartition(".")]
                if owner == group and name != "schedule"}

    def _agreed(self, name):
        """The one value of these scalars."""
        values = self._values_of(name)
        if len(set(values.values())) > 1:
            steps = any(full.rpartition(".")[0] in self._windows for full in values)
            where, expected = (("types", "one value, as set() gives to both") if name in values else
                               ("steps" if steps else "groups", "the full name of one"))
            raise InvalidArgumentError(f"{name} differs between {where}: {', '.join(f'{full} = {value:g}' for full, value in values.items())}; "
                                       f"expected {expected}")
        return next(iter(values.values()))

    # Checkpoints: safetensors files, see runtime.h.

    def save(self, path: str | os.PathLike) -> None:
        """Saves the whole state, atomically: what is at `path` is the old file or the new one."""
        self._trainer.save(path)

    def save_checkpoint(self, directory: str | os.PathLike, keep: int = 0) -> str:
        """Saves to a file of its own in the folder, which `load(directory)` finds; keeps the last `keep` (0: all) of
        this run. Returns its path."""
        return self._trainer.save_checkpoint(directory, keep)

    def load(self, path: str | os.PathLike) -> None:
        """Loads a whole state, of a file or the latest in a folder. What does not fit is a MismatchError that lists
        all differences; nothing has changed then."""
        with self._trainer.lock:
            self._number += 1
            self._trainer.load(path)
            self._eager = True  # an open window may have come with another loss scale, which ends with it
            notice = self._trainer.text("trainc_load_notice") or ""
        # What is the same to the digits that it prints is no news.
        lines = [line for line in notice.splitlines() if not re.search(r" is (\S+), as in the .* (?:has|with) \1$", line)]
        if lines:
            warn("\n".join(lines))

    def load_weights(self, path: str | os.PathLike) -> None:
        """Loads parameters, and buffers as far as the safetensors file has them; all else stays, but for averages before any update. NaNs
        are refused, and nothing has changed then."""
        wrong = tensors_with_nan(path, self._tensors.keys() - self.added)
        try:
            self._trainer.agree("whether weights hold NaN", bool(wrong))
        finally:
            if wrong:
                raise MismatchError(f"{path}: {', '.join(wrong)} holds NaN, expected numbers")
        self._trainer.load_parameters(path)

    def set_metadata(self, key: str, value: str | None) -> None:
        """Keeps a text that is saved and loaded with the state (a data position); None removes it."""
        self._trainer.set_metadata(key, value)

    def get_metadata(self, key: str) -> str:
        """Such a text, of this state or the one that was loaded."""
        return self._trainer.get_metadata(key)

    # What it is.

    @property
    def threads(self) -> int:
        """Threads that compute, with the caller's."""
        return self._trainer.ask("trainc_trainer_threads")

    @property
    def device(self) -> str:
        """Where it runs: "cpu", or "cuda:0 (NAME, sm_90)"."""
        return self._trainer.device()

    @property
    def rank(self) -> int:
        """The number of this process among the ranks; 0 of one."""
        return self._trainer.comm.info().rank if self._trainer.comm else 0

    @property
    def ranks(self) -> int:
        """How many processes train together."""
        return self._trainer.ranks

    def report(self) -> str:
        """What is trained by what, what runs where, and what memory it takes, as text for people."""
        text = c_char_p()
        with self._trainer.lock:
            trainer = self._trainer
            d = trainer.ask("trainc_trainer_descriptor").contents
            trainer.call("trainc_memory_report", byref(text))
            lines = [f"{self.path}: {d.name.decode()} by {d.compiler.decode()} for {d.cpu.decode()}, "
                     f"on {self.device}, {self.threads} threads, rank {self.rank} of {self.ranks}"]
            lines += trained(d, self.optimizers, self._numbers_of) + list(self.notes)
            for entry in (*self._steps, *self._evals.values()):
                counts = [entry_list.count for entry_list in d.entries[entry.index].lists]
                lines.append(f"eval {entry}: {counts[0]} commands" if entry.is_eval else
                             f"step {entry}: {counts[0]} commands for the first of {entry.accumulate} micro-batches, "
                             f"{counts[1]} for each other, {counts[2]} for the update")
            return "\n".join([*lines, text.value.decode().rstrip()])

    def close(self) -> None:
        """Stops the threads and frees everything; later calls raise. Also done when the last reference goes."""
        self._trainer.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def load(path: str | os.PathLike, weights: str | os.PathLike | Mapping[str, Any] | None = None, *, threads: int = 0,
         device: Any = None, seed: int = 0, memory_limit: int | str | None = None, pin_threads: bool = False,
         timeout: float = 0.0, deadline: float = 0.0) -> Step:
    """Opens the artifact `path` (a shared library that `compile` wrote) and makes a training state of it.

    weights: parameters and buffers to start from, a safetensors file or a state dict, without NaNs. Else initial values
        as the source has them, drawn by `seed`.
    threads: that compute; 0: all processors of the process. Results do not depend on it.
    device: None: a GPU if the artifact has code for one that is there, else the CPU; "cpu", "cuda" or "cuda:N", or a torch.device.
    memory_limit: the most that it may take, in bytes or as "2G"; OutOfMemoryError says how much is needed.
    pin_threads: binds each thread to a processor.
    timeout: seconds that a wait for a GPU may take; 0: the runtime's default.
    deadline: seconds that a wait for another rank may take, of the process's first step; 0: the runtime's default.

    An artifact for several ranks is loaded by as many processes, started by torchrun, mpirun or srun; they find each
    other by what these set in the environment. Artifacts run code: load those alone that you trust.
    """
    step = Step(path, threads, device, seed, memory_limit, pin_threads, timeout, deadline)
    try:
        if isinstance(weights, Mapping):
            step.load_state_dict(weights)
        elif weights is not None:
            step.load_weights(weights)
    except BaseException:
        step.close()
        raise
    return step
