"""The runtime's C interface (runtime.h) from Python, as far as the checks need it: trainers whose tensors are NumPy arrays.

Floating types that NumPy lacks are read and written as float32.
"""
import ctypes
import os
from ctypes import POINTER, Structure, byref, c_char_p, c_double, c_int, c_int32, c_int64, c_uint32, c_uint64, c_void_p

import numpy as np

ROLES = ["parameter", "compute", "gradient", "state", "buffer"]
F32, BF16, F16 = 0, 2, 3
NO_WINDOW = 1  # a flag of communicators
NO_GRAPHS = 4  # a flag of trainers
DTYPES = {0: np.float32, 1: np.float64, 4: np.int8, 5: np.int16, 6: np.int32, 7: np.int64, 8: np.bool_, 9: np.uint8}


class Port(Structure):
    _fields_ = [("name", c_char_p), ("dtype", c_uint32), ("rank", c_uint32), ("dims", POINTER(c_int64)),
                ("bytes", c_uint64), ("splits", POINTER(c_uint64))]


class List(Structure):
    _fields_ = [("count", c_uint64), ("commands", c_void_p)]


class Entry(Structure):
    _fields_ = [("name", c_char_p), ("kind", c_uint32), ("accumulate", c_uint32), ("num_inputs", c_uint32),
                ("num_outputs", c_uint32), ("num_checks", c_uint32), ("reserved", c_uint32), ("inputs", POINTER(Port)),
                ("outputs", POINTER(Port)), ("checks", c_void_p), ("lists", List * 3), ("workspace_bytes", c_uint64)]


class Tensor(Structure):
    _fields_ = [("name", c_char_p), ("state", c_char_p), ("role", c_uint32), ("dtype", c_uint32), ("rank", c_uint32),
                ("arena", c_uint32), ("offset", c_uint64), ("bytes", c_uint64), ("dims", POINTER(c_int64)),
                ("splits", c_void_p),
                ("group", c_int32), ("init", c_uint32), ("init_a", c_double), ("init_b", c_double),
                ("init_data", c_void_p)]


class Descriptor(Structure):
    _fields_ = [("magic", c_uint64), ("abi_version", c_uint32), ("size", c_uint32),
                *((name, c_char_p) for name in ("name", "compiler", "triple", "cpu", "features")),
                ("plan_hash", c_uint64), ("state_hash", c_uint64), ("schedule_hash", c_uint64),
                *((name, c_uint32) for name in ("num_arenas", "num_tensors", "num_scalars", "num_groups", "num_entries",
                                                "num_kernels", "scalar_arena", "workspace_arena", "num_axes",
                                                "reserved")),
                ("arenas", c_void_p), ("tensors", POINTER(Tensor)), ("scalars", c_void_p), ("groups", c_void_p),
                ("entries", POINTER(Entry)), ("kernels", c_void_p), ("functions", c_void_p),
                ("axes", c_void_p)]


class Options(Structure):
    _fields_ = [("size", c_uint64), ("threads", c_uint32), ("flags", c_uint32), ("memory_limit", c_uint64),
                ("seed", c_uint64), ("parallel_for", c_void_p), ("parallel_context", c_void_p), ("comm", c_void_p),
                ("device", c_char_p), ("timeout", c_double)]


class CommOptions(Structure):
    _fields_ = [("size", c_uint64), ("bootstrap", c_char_p), ("rank", c_uint32), ("ranks", c_uint32),
                ("deadline", c_double), ("flags", c_uint32), ("reserved", c_uint32), ("report", c_void_p),
                ("report_context", c_void_p)]


class CommInfo(Structure):
    _fields_ = [*((name, c_uint32) for name in ("rank", "ranks", "host", "hosts", "host_rank", "host_ranks")),
                ("deadline", c_double), ("bootstrap", c_char_p), ("collectives", c_uint64 * 5), ("bytes", c_uint64 * 5)]


class ConvertOptions(Structure):
    _fields_ = [("size", c_uint64), ("device", c_char_p), ("dtype", c_char_p), ("blocking", c_uint32),
                ("what", c_uint32), ("include_integers", c_uint32), ("reserved", c_uint32), ("memory_limit", c_uint64),
                ("artifact", c_void_p)]


class Memory(Structure):
    _fields_ = [(name, c_uint64) for name in ("persistent", "workspace", "outputs", "scratch", "total", "limit", "peak",
                                                  "staging", "converted_beside", "converted_by_host")]


class StepResult(Structure):
    _fields_ = [*((name, c_double) for name in ("loss", "weight", "window_loss", "window_weight", "grad_norm",
                                                "clip_factor", "loss_scale")),
                ("update", c_uint64), ("skipped", c_uint64),
                *((name, c_uint32) for name in ("micro_step", "closed", "updated", "finite", "stop",
                                                "reserved"))]


class Error(Exception):
    pass


class Runtime:
    def __init__(self, path):
        self.library = ctypes.CDLL(os.path.abspath(path))
        for name in ("trainc_last_error", "trainc_status_name", "trainc_runtime_info", "trainc_version",
                     "trainc_trainer_device"):
            getattr(self.library, name).restype = c_char_p
        self.library.trainc_trainer_device.restype = self.library.trainc_trainer_notice.restype = c_char_p
        self.library.trainc_artifact_descriptor.restype = POINTER(Descriptor)

    def call(self, name, *arguments):
        status = getattr(self.library, name)(*arguments)
        if status:
            raise Error(f"{name}: {self.library.trainc_status_name(c_int(status)).decode()}: "
                        f"{self.library.trainc_last_error().decode()}")

    def info(self):
        return self.library.trainc_runtime_info().decode()


class Comm:
    """A communicator; `options` as trainc_comm_options."""

    def __init__(self, runtime, **options):
        self.runtime, self.comm = runtime, c_void_p()
        options = CommOptions(size=ctypes.sizeof(CommOptions), **options)
        runtime.call("trainc_comm_create", byref(options), byref(self.comm))

    def info(self):
        info = CommInfo()
        self.runtime.call("trainc_comm_get_info", self.comm, byref(info))
        return info

    def barrier(self):
        self.runtime.call("trainc_comm_barrier", self.comm)

    def close(self):
        self.runtime.library.trainc_comm_destroy(self.comm)


def shape_of(port):
    return tuple(port.dims[i] for i in range(port.rank))


class Trainer:
    """An artifact (path of a .so) and one training state of it. `close` frees both."""

    def __init__(self, runtime, path, threads=0, seed=0, **options):
        self.runtime, self.bound = runtime, {}
        self.artifact, self.trainer = c_void_p(), c_void_p()
        runtime.call("trainc_artifact_open", os.fsencode(path), byref(self.artifact))
        options = Options(size=ctypes.sizeof(Options), threads=threads, seed=seed, **options)
        try:
            runtime.call("trainc_trainer_create", self.artifact, byref(options), byref(self.trainer))
        except Error:
            self.close()
            raise
        self.read_tables()

    def read_tables(self):
        self.descriptor = self.runtime.library.trainc_artifact_descriptor(self.artifact).contents
        self.entries = {self.descriptor.entries[i].name.decode(): i for i in range(self.descriptor.num_entries)}
        self.tensors = {}
        for i in range(self.descriptor.num_tensors):
            t = self.descriptor.tensors[i]
            self.tensors[ROLES[t.role], t.name.decode(), t.state.decode() if t.state else None] = i

    def close(self):
        library = self.runtime.library
        library.trainc_trainer_destroy(self.trainer)
        library.trainc_artifact_close(self.artifact)
        self.trainer = self.artifact = c_void_p()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def bind(self, entry, **inputs):
        """Copies the arrays and lends the copies, by input name."""
        e = self.entries[entry]
        ports = self.descriptor.entries[e]
        index = {ports.inputs[i].name.decode(): i for i in range(ports.num_inputs)}
        for name, value in inputs.items():
            if name not in index:
                raise Error(f"expected one of the inputs {', '.join(index)} of {entry}, got {name}")
            i = index[name]
            port = ports.inputs[i]
            array = np.array(value, DTYPES[port.dtype], order="C")  # a copy: the caller may change its own
            if array.shape != shape_of(port):
                raise Error(f"input {name} of {entry}: expected shape {shape_of(port)}, got {array.shape}")
            self.runtime.call("trainc_bind_input", self.trainer, c_uint32(e), c_uint32(i),
                              array.ctypes.data_as(c_void_p), c_uint64(array.nbytes))
            self.bound[entry, name] = array

    def bind_pointer(self, entry, index, data, nbytes):
        """Lends memory that lives on as input `index`, without a copy."""
        self.runtime.call("trainc_bind_input", self.trainer, c_uint32(self.entries[entry]), c_uint32(index),
                          c_void_p(data), c_uint64(nbytes))

    def step(self, entry="step", **inputs):
        self.bind(entry, **inputs)
        result = StepResult()
        self.runtime.call("trainc_step", self.trainer, c_uint32(self.entries[entry]), byref(result))
        return result

    def hand_over(self, entry="step"):
        """A step without its result: on a GPU it returns before the step is done."""
        self.runtime.call("trainc_step", self.trainer, c_uint32(self.entries[entry]), None)

    def wait(self):
        """Returns when all that was handed over is done."""
        self.scalar("loss_scale")

    def device(self):
        return self.runtime.library.trainc_trainer_device(self.trainer).decode()

    def flush(self):
        result = StepResult()
        self.runtime.call("trainc_flush", self.trainer, byref(result))
        return result

    def eval(self, entry, **inputs):
        """The outputs by name."""
        self.bind(entry, **inputs)
        e = self.entries[entry]
        self.runtime.call("trainc_eval", self.trainer, c_uint32(e))
        ports, outputs = self.descriptor.entries[e], {}
        for i in range(ports.num_outputs):
            port, data = ports.outputs[i], c_void_p()
            self.runtime.call("trainc_output_data", self.trainer, c_uint32(e), c_uint32(i), byref(data))
            bits = np.ctypeslib.as_array((ctypes.c_uint8 * port.bytes).from_address(data.value)) if port.bytes else b""
            if port.dtype not in DTYPES:
                raise Error(f"output {port.name.decode()} has a type that NumPy lacks")
            outputs[port.name.decode()] = np.frombuffer(bytes(bits), DTYPES[port.dtype]).reshape(shape_of(port))
        return outputs

    def names(self, role="parameter"):
        return [name for r, name, _ in self.tensors if r == role]

    def _tensor(self, role, name, state):
        if (role, name, state) not in self.tensors:
            raise Error(f"the artifact has no {role} {name}" + (f" {state}" if state else ""))
        i = self.tensors[role, name, state]
        t = self.descriptor.tensors[i]
        dtype = F32 if t.dtype in (BF16, F16) else t.dtype
        return i, dtype, shape_of(t)

    def read(self, name, role="parameter", state=None):
        i, dtype, shape = self._tensor(role, name, state)
        array = np.empty(shape, DTYPES[dtype])
        self.runtime.call("trainc_tensor_read", self.trainer, c_uint32(i), c_uint32(dtype),
                          array.ctypes.data_as(c_void_p), c_uint64(array.nbytes))
        return array

    def write(self, name, value, role="parameter", state=None):
        i, dtype, shape = self._tensor(role, name, state)
        array = np.ascontiguousarray(value, DTYPES[dtype]).reshape(shape)
        self.runtime.call("trainc_tensor_write", self.trainer, c_uint32(i), c_uint32(dtype),
                          array.ctypes.data_as(c_void_p), c_uint64(array.nbytes))

    def scalar(self, name):
        value = c_double()
        self.runtime.call("trainc_get_scalar", self.trainer, name.encode(), byref(value))
        return value.value

    def set_scalar(self, name, value):
        self.runtime.call("trainc_set_scalar", self.trainer, name.encode(), c_double(value))

    def save(self, path):
        self.runtime.call("trainc_save", self.trainer, os.fsencode(path))

    def save_checkpoint(self, directory, keep=0):
        """Saves to a file of its own in the folder, and returns its path."""
        path = c_char_p()
        self.runtime.call("trainc_save_checkpoint", self.trainer, os.fsencode(directory), c_uint32(keep), byref(path))
        return os.fsdecode(path.value)

    def set_metadata(self, key, value):
        self.runtime.call("trainc_set_metadata", self.trainer, key.encode(), value.encode())

    def get_metadata(self, key):
        value = c_char_p()
        self.runtime.call("trainc_get_metadata", self.trainer, key.encode(), byref(value))
        return value.value and value.value.decode()

    def convert(self, path=None, **options):
        """Converts the state in place; with the path of an artifact, goes on with that one."""
        artifact = c_void_p()
        if path:
            self.runtime.call("trainc_artifact_open", os.fsencode(path), byref(artifact))
        request = ConvertOptions(size=ctypes.sizeof(ConvertOptions), artifact=artifact, **options)
        try:
            self.runtime.call("trainc_convert", self.trainer, byref(request))
        except Error:
            self.runtime.library.trainc_artifact_close(artifact)
            raise
        if path:
            self.runtime.library.trainc_artifact_close(self.artifact)
            self.artifact, self.bound = artifact, {}
            self.read_tables()

    def device(self):
        """Where it runs: "cpu", or "cuda:0 (NAME, sm_90)"."""
        return self.runtime.library.trainc_trainer_device(self.trainer).decode()

    def notice(self):
        """Why it does not run on a GPU, or None."""
        notice = self.runtime.library.trainc_trainer_notice(self.trainer)
        return notice and notice.decode()

    def memory(self):
        memory = Memory()
        self.runtime.call("trainc_memory_use", self.trainer, byref(memory))
        return memory

    def held(self, name, role="parameter", state=None):
        """The tensor as the trainer holds it now: address, and entry with its type and bytes."""
        i, _, _ = self._tensor(role, name, state)
        tensor, data = POINTER(Tensor)(), c_void_p()
        self.runtime.call("trainc_tensor_get", self.trainer, c_uint32(i), byref(tensor))
        self.runtime.call("trainc_tensor_data", self.trainer, c_uint32(i), byref(data))
        return data.value, tensor.contents

    def load(self, path):
        self.runtime.call("trainc_load", self.trainer, os.fsencode(path))

    def load_parameters(self, path):
        self.runtime.call("trainc_load_parameters", self.trainer, os.fsencode(path))
