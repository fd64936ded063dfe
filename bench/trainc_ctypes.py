"""The binding of python/trainc as the checks use it: trainers whose inputs are copies of what NumPy makes of anything.

Floating types that NumPy lacks are read and written as float32.
"""
import ctypes
import os
import sys
from ctypes import byref, c_void_p

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "python"))

from trainc import _runtime, _trainer  # noqa: E402
from trainc._runtime import BF16, COMM_NO_WINDOW, F16, F32, TRAINER_NO_GRAPHS, StepResult  # noqa: E402
from trainc._trainer import Comm, shape_of  # noqa: E402
from trainc.errors import Error  # noqa: E402

__all__ = ["BF16", "DTYPES", "F16", "F32", "NO_GRAPHS", "NO_WINDOW", "Comm", "Error", "Runtime", "Trainer", "shape_of"]

NO_WINDOW, NO_GRAPHS = COMM_NO_WINDOW, TRAINER_NO_GRAPHS
DTYPES = {0: np.float32, 1: np.float64, 4: np.int8, 5: np.int16, 6: np.int32, 7: np.int64, 8: np.bool_, 9: np.uint8}


class Runtime(_runtime.Runtime):
    """The runtime at a path. Its errors say what was called."""

    def call(self, name, *arguments):
        try:
            super().call(name, *arguments)
        except Error as error:
            raise Error(f"{name}: {error.status}: {error}", error.status) from None


class Trainer(_trainer.Trainer):
    """An artifact (path of a .so) and one training state of it. `close` frees both."""

    def __init__(self, runtime, path, threads=0, seed=0, **options):
        self.bound = {}
        super().__init__(runtime, path, threads, seed, **options)

    def bind(self, entry, **inputs):
        """Copies the arrays and lends the copies, by input name."""
        e = self.entries[entry]
        ports = self.descriptor.entries[e]
        index = {ports.inputs[i].name.decode(): i for i in range(ports.num_inputs)}
        for name, value in inputs.items():
            if name not in index:
                raise Error(f"expected one of the inputs {', '.join(index)} of {entry}, got {name}")
            port = ports.inputs[index[name]]
            array = np.array(value, DTYPES[port.dtype], order="C")  # a copy: the caller may change its own
            if array.shape != shape_of(port):
                raise Error(f"input {name} of {entry}: expected shape {shape_of(port)}, got {array.shape}")
            self.call("trainc_bind_input", e, index[name], array.ctypes.data, array.nbytes)
            self.bound[entry, name] = array

    def bind_pointer(self, entry, index, data, nbytes):
        """Lends memory that lives on as input `index`, without a copy."""
        self.call("trainc_bind_input", self.entries[entry], index, data, nbytes)

    def step(self, entry="step", **inputs):
        self.bind(entry, **inputs)
        result = StepResult()
        self.call("trainc_step", self.entries[entry], byref(result))
        return result

    def hand_over(self, entry="step"):
        """A step without its result: on a GPU it returns before the step is done."""
        self.call("trainc_step", self.entries[entry], None)

    def wait(self):
        """Returns when all that was handed over is done."""
        self.scalar("loss_scale")

    def flush(self):
        result = StepResult()
        self.call("trainc_flush", byref(result))
        return result

    def eval(self, entry, **inputs):
        """The outputs by name."""
        self.bind(entry, **inputs)
        self.call("trainc_eval", self.entries[entry])
        return self.outputs(entry)

    def outputs(self, entry="step"):
        """Those of the last run, by name."""
        e = self.entries[entry]
        ports, outputs = self.descriptor.entries[e], {}
        for i in range(ports.num_outputs):
            port, data = ports.outputs[i], c_void_p()
            self.call("trainc_output_data", e, i, byref(data))
            bits = ctypes.string_at(data.value, port.bytes) if port.bytes else b""
            if port.dtype == BF16:
                array = (np.frombuffer(bits, np.uint16).astype(np.uint32) << 16).view(np.float32)
            elif port.dtype == F16:
                array = np.frombuffer(bits, np.float16).astype(np.float32)
            else:
                array = np.frombuffer(bits, DTYPES[port.dtype])
            outputs[port.name.decode()] = array.reshape(shape_of(port))
        return outputs

    def _tensor(self, role, name, state):
        i = self.find(role, name, state)
        t = self.descriptor.tensors[i]
        return i, F32 if t.dtype in (BF16, F16) else t.dtype, shape_of(t)

    def read(self, name, role="parameter", state=None):
        i, dtype, shape = self._tensor(role, name, state)
        array = np.empty(shape, DTYPES[dtype])
        self.call("trainc_tensor_read", i, dtype, array.ctypes.data, array.nbytes)
        return array

    def write(self, name, value, role="parameter", state=None):
        i, dtype, shape = self._tensor(role, name, state)
        array = np.ascontiguousarray(value, DTYPES[dtype]).reshape(shape)
        self.call("trainc_tensor_write", i, dtype, array.ctypes.data, array.nbytes)

    def convert(self, path=None, **options):
        super().convert(path, **options)
        if path:
            self.bound = {}
