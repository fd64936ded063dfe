"""A trainer of the runtime and its tables, by names. `Step` is made of it; so are the benchmarks."""
import math
import os
import threading
import weakref
from collections.abc import Sequence
from ctypes import POINTER, byref, c_char_p, c_double, c_void_p, sizeof

from . import _runtime
from ._runtime import ROLES, Runtime, c_path, c_text, c_whole
from .errors import Error, InvalidArgumentError, NotFoundError

_EXIT_SECONDS = 60.0  # how long a process that ends waits for a daemon thread's call


class Comm:
    """A communicator of all ranks; all of them make it. `options` are those of trainc_comm_options.

    Its trainers take turns by `lock`.
    """

    def __init__(self, runtime: Runtime, **options):
        self.runtime, self.comm, self.lock = runtime, c_void_p(), threading.RLock()
        options = _runtime.CommOptions(size=sizeof(_runtime.CommOptions), **options)
        runtime.call("trainc_comm_create", byref(options), byref(self.comm))
        self._finalizer = weakref.finalize(self, _collect, weakref.ref(self), self.lock, _destroy_comm, runtime.library, self.comm)
        _alive.add(self)

    def forget(self):
        self._finalizer.detach()
        self.comm.value, self.lock = None, threading.RLock()

    def close(self) -> None:
        with self.lock:
            if self._finalizer.detach():
                _destroy_comm(self.runtime.library, self.comm)

    def info(self) -> _runtime.CommInfo:
        info = _runtime.CommInfo()
        self.runtime.call("trainc_comm_get_info", self.comm, byref(info))
        return info

    def barrier(self) -> None:
        self.runtime.call("trainc_comm_barrier", self.comm)


def _destroy_comm(library, comm):
    library.trainc_comm_destroy(comm)
    comm.value = None


def _destroy(library, trainer, artifact, comm):
    """`comm` is held until here: it outlives its trainers."""
    library.trainc_trainer_destroy(trainer)
    library.trainc_artifact_close(artifact)
    trainer.value = artifact.value = None


def _collect(reference, lock, destroy, *arguments):
    """Destroys what nobody uses any more. If its owner is there yet the process ends, and a daemon thread may be in a call: its next one
    waits for ever, and what this one uses is left to the system if it does not return."""
    owner = reference()
    if owner:
        owner.lock = threading.RLock()
        owner.lock.acquire()
    if lock.acquire(timeout=_EXIT_SECONDS if owner else -1):
        destroy(*arguments)
        if not owner:
            lock.release()


_alive: weakref.WeakSet = weakref.WeakSet()


def _forget_all():
    for handle in list(_alive):
        handle.forget()


# A forked child (a worker of a DataLoader) has their memory but not their threads.
os.register_at_fork(after_in_child=_forget_all)


def held_names(held: Sequence[str], windows: Sequence[str]) -> dict[str, str]:
    """Names of scalars, and those that the artifact has. Of several steps that train different parameters each has its own, `critic.update`,
    where the artifact's have no prefix for the first one. There is one seed."""
    if len(windows) < 2:
        return {name: name for name in held}
    first, seeds = set(held[:_runtime.FIXED_SCALARS]) - {"seed"}, {f"{window}.seed" for window in windows}
    return {f"{windows[0]}.{name}" if name in first or name.startswith("loss_scale.") else name: name for name in held if name not in seeds}


def shape_of(port) -> tuple:
    """The shape of a port or tensor of the tables."""
    return tuple(port.dims[:port.rank])


class Trainer:
    """An artifact (path of a shared library) and one training state of it. `close` frees both.

    `options` are those of trainc_trainer_options. `make_comm()` gives the Comm of an artifact for several ranks.
    Calls by `call` may come from any thread: they wait for each other.
    """

    def __init__(self, runtime: Runtime, path, threads=0, seed=0, make_comm=None, **options):
        self.runtime, self.lock, self.comm, self.forked = runtime, threading.RLock(), None, False
        self.artifact, self.trainer, self.descriptor = c_void_p(), c_void_p(), None
        runtime.call("trainc_artifact_open", c_path(path), byref(self.artifact))
        self._finalizer = self._make_finalizer()
        _alive.add(self)
        try:
            self.read_tables()
            if make_comm and self.ranks > 1:
                self.comm = make_comm()
                self.lock, options["comm"] = self.comm.lock, self.comm.comm
                self._finalizer.detach()
                self._finalizer = self._make_finalizer()  # the last made is the first called when the process exits
            options = _runtime.TrainerOptions(size=sizeof(_runtime.TrainerOptions), threads=c_whole("threads", threads, 32),
                                              seed=c_whole("seed", seed, 53), **options)
            with self.lock:  # of several ranks it communicates
                runtime.call("trainc_trainer_create", self.artifact, byref(options), byref(self.trainer))
        except BaseException:
            self.close()
            raise

    def _make_finalizer(self):
        return weakref.finalize(self, _collect, weakref.ref(self), self.lock, _destroy, self.runtime.library, self.trainer, self.artifact,
                                self.comm)

    def read_tables(self):
        self.descriptor = self.runtime.library.trainc_artifact_descriptor(self.artifact).contents
        d = self.descriptor
        self.ranks = math.prod(axis.size for axis in d.axes[:d.num_axes])
        self.entries = {entry.name.decode(): i for i, entry in enumerate(d.entries[:d.num_entries])}
        self.tensors = {(ROLES[t.role], t.name.decode(), t.state.decode() if t.state else None): i
                        for i, t in enumerate(d.tensors[:d.num_tensors])}

    def close(self) -> None:
        with self.lock:
            if self._finalizer.detach():
                _destroy(self.runtime.library, self.trainer, self.artifact, self.comm)
            self.descriptor = None  # its memory is that of the artifact

    def forget(self):
        self._finalizer.detach()
        self.forked, self.lock = True, threading.RLock()
        self.trainer.value = self.artifact.value = self.descriptor = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def closed_error(self) -> Error:
        if self.forked:
            return InvalidArgumentError("this step was loaded in another process: load one in this process")
        return InvalidArgumentError("this step is closed")

    def call(self, name: str, *arguments) -> None:
        """Calls a function of this trainer that returns a status."""
        with self.lock:
            if not self.trainer:
                raise self.closed_error()
            self.runtime.call(name, self.trainer, *arguments)

    def ask(self, name: str):
        """The same of one that returns a value."""
        with self.lock:
            if not self.trainer:
                raise self.closed_error()
            return getattr(self.runtime.library, name)(self.trainer)

    def text(self, name: str) -> str | None:
        """The same of one that returns a text or null."""
        text = self.ask(name)
        return text and text.decode()

    def agree(self, what: str, value: int) -> None:
        """A MismatchError on all ranks that call it with other values."""
        with self.lock:
            if not self.trainer:
                raise self.closed_error()
            if self.comm:
                self.runtime.call("trainc_comm_agree", self.comm.comm, what.encode(), value)

    # Tensors.

    def names(self, role="parameter") -> list:
        return [name for r, name, _ in self.tensors if r == role]

    def find(self, role: str, name: str, state: str | None = None) -> int:
        """The index of a tensor."""
        if (role, name, state) not in self.tensors:
            raise NotFoundError(f"the artifact has no {role} {name}" + (f" {state}" if state else ""))
        return self.tensors[role, name, state]

    def held(self, name, role="parameter", state=None):
        """The tensor as the trainer holds it now: address, and entry with its type and bytes."""
        i = self.find(role, name, state)
        tensor, data = POINTER(_runtime.Tensor)(), c_void_p()
        self.call("trainc_tensor_get", i, byref(tensor))
        self.call("trainc_tensor_data", i, byref(data))
        return data.value, tensor.contents

    # Scalars and metadata.

    def scalar(self, name: str) -> float:
        value = c_double()
        self.call("trainc_get_scalar", name.encode(), byref(value))
        return value.value

    def scalar_at(self, index: int) -> float:
        value = c_double()
        self.call("trainc_get_scalar_at", index, byref(value))
        return value.value

    def set_scalar(self, name: str, value: float) -> None:
        self.call("trainc_set_scalar", name.encode(), value)

    def set_metadata(self, key: str, value: str | None) -> None:
        self.call("trainc_set_metadata", c_text("a key of metadata", key), None if value is None else c_text(f"metadata {key}", value))

    def get_metadata(self, key: str) -> str | None:
        value = c_char_p()
        with self.lock:
            self.call("trainc_get_metadata", c_text("a key of metadata", key), byref(value))
            return value.value and value.value.decode()

    # Checkpoints and conversion.

    def save(self, path) -> None:
        self.call("trainc_save", c_path(path))

    def save_checkpoint(self, directory, keep=0) -> str:
        """Saves to a file of its own in the folder, and returns its path."""
        path = c_char_p()
        with self.lock:
            self.call("trainc_save_checkpoint", c_path(directory), c_whole("keep", keep, 32), byref(path))
            return os.fsdecode(path.value)

    def load(self, path) -> None:
        self.call("trainc_load", c_path(path))

    def load_parameters(self, path) -> None:
        self.call("trainc_load_parameters", c_path(path))

    def convert(self, path=None, **options) -> None:
        """Converts the state in place; with the path of an artifact, goes on with that one."""
        artifact = c_void_p()
        if path:
            self.runtime.call("trainc_artifact_open", c_path(path), byref(artifact))
        request = _runtime.ConvertOptions(size=sizeof(_runtime.ConvertOptions), artifact=artifact, **options)
        try:
            self.call("trainc_convert", byref(request))
        except Error:
            self.runtime.library.trainc_artifact_close(artifact)
            raise
        if path:
            self.runtime.library.trainc_artifact_close(self.artifact)
            self.artifact.value = artifact.value
            self.read_tables()

    # What it is and takes.

    def device(self) -> str:
        """Where it runs: "cpu", or "cuda:0 (NAME, sm_90)"."""
        return self.text("trainc_trainer_device")

    def notice(self) -> str | None:
        """Why it does not run on a GPU, or None."""
        return self.text("trainc_trainer_notice")

    def memory(self) -> _runtime.Memory:
        memory = _runtime.Memory()
        self.call("trainc_memory_use", byref(memory))
        return memory
