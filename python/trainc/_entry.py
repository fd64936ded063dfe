"""One entry of an artifact: its inputs bound without copies, its runs, its outputs."""
import ctypes
import warnings
import weakref
from ctypes import byref, c_void_p

from ._arrays import DTYPES, NUMPY, TORCH, empty, pointer_of, view
from ._runtime import EVAL
from ._trainer import Trainer, shape_of
from .errors import InvalidArgumentError


class Port:
    """An input or output."""

    def __init__(self, port):
        self.name, self.dtype = port.name.decode(), DTYPES[port.dtype]
        self.shape, self.bytes = shape_of(port), port.bytes

    def __str__(self):
        return f"{self.name}: {self.dtype}{list(self.shape)}"


class EntryPoint:
    """Entry `name` of a trainer. What is bound stays alive until something else is bound in its place."""

    def __init__(self, trainer: Trainer, name: str):
        self.trainer, self.name, self.index = trainer, name, trainer.entries[name]
        entry = trainer.descriptor.entries[self.index]
        self.is_eval, self.accumulate = entry.kind == EVAL, entry.accumulate
        self.inputs = [Port(port) for port in entry.inputs[:entry.num_inputs]]
        self.outputs = [Port(port) for port in entry.outputs[:entry.num_outputs]]
        self._names = [port.name for port in self.inputs]
        self._shapes = [port.shape for port in self.inputs]
        self._bind_input, self._handle = trainer.runtime.library.trainc_bind_input, trainer.trainer
        count = len(self.inputs)
        self._values = [None] * count  # as given; of copies None
        self._owners = [None] * count
        self._guards = [None] * count  # a NumPy array with a weak reference is not resized in place
        self._libraries = [None] * count
        self._dtypes = [None] * count  # objects of the array's library
        self._pointers = [None] * count
        self._said = [False] * count  # that it is copied

    def __str__(self):
        outputs = f" -> {', '.join(map(str, self.outputs))}" if self.outputs else ""
        return f"{self.name}({', '.join(map(str, self.inputs))}){outputs}"

    def bind(self, inputs: tuple, named: dict) -> None:
        """Binds the inputs, in order or by name. The caller holds the trainer's lock, and the trainer is open."""
        if named or len(inputs) != len(self._names):
            inputs = self._ordered(inputs, named)
        values, libraries, shapes, dtypes = self._values, self._libraries, self._shapes, self._dtypes
        for i, value in enumerate(inputs):
            if value is values[i]:
                # The object may have been given other memory, type or strides in place.
                if libraries[i] is TORCH:
                    if (value.data_ptr() == self._pointers[i] and value.dtype is dtypes[i] and value.shape == shapes[i]
                            and value.is_contiguous() and not value.is_neg()):
                        continue
                elif libraries[i] is NUMPY:
                    if value.dtype is dtypes[i] and value.shape == shapes[i] and value.flags.c_contiguous:
                        continue
            self._bind(i, value)

    def _ordered(self, inputs, named):
        names = self._names
        if len(inputs) > len(names):
            raise InvalidArgumentError(f"{self.name} takes {len(names)} inputs ({', '.join(names)}), "
                                       f"got {len(inputs)}")
        if unknown := [name for name in named if name not in names]:
            raise InvalidArgumentError(f"{self.name} has no input {', '.join(unknown)}: expected "
                                       f"{', '.join(names) or 'none'}")
        if twice := [name for name in names[:len(inputs)] if name in named]:
            raise InvalidArgumentError(f"{self.name}: got input {', '.join(twice)} by position and by name")
        if missing := [name for name in names[len(inputs):] if name not in named]:
            got = names[:len(inputs)] + list(named)
            raise InvalidArgumentError(f"{self.name}: input {', '.join(missing)} is missing: expected "
                                       f"{', '.join(names)}, got {', '.join(got) or 'none'}")
        return (*inputs, *(named[name] for name in names[len(inputs):]))

    def _bind(self, i, value):
        port = self.inputs[i]
        try:
            dtype, shape, pointer, owner, library, copied = view(value)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"input {port.name} of {self.name}: {error}") from None
        if dtype != port.dtype or shape != port.shape:
            raise InvalidArgumentError(f"input {port.name} of {self.name}: expected {port.dtype} of shape "
                                       f"{port.shape}, got {dtype} of shape {shape}")
        status = self._bind_input(self._handle, self.index, i, pointer, port.bytes)
        if status:
            raise self.trainer.runtime.error(status)
        self._owners[i], self._libraries[i] = owner, library
        if copied or library is None:
            self._values[i] = self._guards[i] = self._pointers[i] = None
            if copied and not self._said[i]:
                self._said[i] = True
                warnings.warn(f"input {port.name} of {self.name} is copied in each call: {copied}", stacklevel=4)
            return
        self._values[i], self._dtypes[i], self._pointers[i] = owner, owner.dtype, pointer
        self._guards[i] = weakref.ref(owner)

    def read_outputs(self) -> dict:
        """Copies of the outputs by name: torch tensors if an input is one, else NumPy arrays. As `bind`."""
        results, as_torch = {}, TORCH in self._libraries
        for i, port in enumerate(self.outputs):
            data, array = c_void_p(), empty(port.dtype, port.shape, as_torch)
            self.trainer.call("trainc_output_data", self.index, i, byref(data))
            ctypes.memmove(pointer_of(array), data.value, port.bytes)
            results[port.name] = array
        return results
