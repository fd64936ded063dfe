"""The C interface of the runtime (runtime.h, step_abi.h) by ctypes: the one binding that Python has.

Structures have the names of the headers without `trainc_`. All calls release the GIL.
"""
import ctypes
import functools
import operator
import os
from ctypes import (POINTER, Structure, c_char_p, c_double, c_int, c_int32, c_int64, c_uint32, c_uint64, c_void_p)

from .errors import Error, InvalidArgumentError, error_of

PACKAGE = os.path.dirname(os.path.abspath(__file__))

# trainc_role, as their tensors are called here
ROLES = ["parameter", "compute", "gradient", "state", "buffer"]
# trainc_dtype: numbers by the names of the dialects
F32, F64, BF16, F16, I8, I16, I32, I64, BOOL, U8 = range(10)
STEP, EVAL = range(2)  # kinds of entries
COMMANDS = ["launch", "gemm", "copy", "reduce_scatter", "all_reduce", "all_gather", "convolution"]  # by their kinds
READ, WRITE = 1, 2  # access of operands
SETTABLE = 1  # a flag of scalars
COMM_NO_WINDOW = 1  # a flag of communicators
TRAINER_NO_INIT, TRAINER_PIN_THREADS, TRAINER_NO_GRAPHS = 1, 2, 4
(UPDATE, MICRO_STEP, LOSS_SUM, WEIGHT_SUM, MICRO_LOSS, MICRO_WEIGHT, GRAD_NORM, CLIP_FACTOR, FINITE, SKIPPED,
 LOSS_SCALE) = range(11)  # trainc_fixed_scalar
STOP, FIXED_SCALARS = 16, 17  # the last one, and how many a window has


def _structure(name, fields):
    """A structure class; a field is (type, names separated by spaces)."""
    return type(name, (Structure,), {"_fields_": [(f, kind) for kind, names in fields for f in names.split()]})


Port = _structure("Port", [(c_char_p, "name"), (c_uint32, "dtype rank"), (POINTER(c_int64), "dims"),
                           (c_uint64, "bytes"), (POINTER(c_uint64), "splits"), (c_uint64, "gradient")])
List = _structure("List", [(c_uint64, "count"), (c_void_p, "commands")])
Entry = _structure("Entry", [(c_char_p, "name"),
                             (c_uint32, "kind accumulate num_inputs num_outputs num_checks window"),
                             (POINTER(Port), "inputs outputs"), (c_void_p, "checks"), (List * 3, "lists"),
                             (c_uint64, "workspace_bytes")])
Tensor = _structure("Tensor", [(c_char_p, "name state"), (c_uint32, "role dtype rank arena"),
                               (c_uint64, "offset bytes"), (POINTER(c_int64), "dims"), (c_void_p, "splits"),
                               (c_int32, "group"), (c_uint32, "init"), (c_double, "init_a init_b"),
                               (c_void_p, "init_data")])
Operand = _structure("Operand", [(c_uint32, "base access"), (c_uint64, "offset bytes"), (c_uint32, "dtype reserved")])
Command = _structure("Command", [(c_uint32, "kind kernel"), (c_int64, "tiles"), (c_uint32, "num_operands rate"),
                                 (POINTER(Operand), "operands"), (c_void_p, "detail"), (c_char_p, "label location"),
                                 (c_int64, "flops")])
Event = _structure("Event", [(c_uint32, "end entry list index"), (POINTER(Command), "command"), (c_uint64, "time_ns")])
OBSERVER = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(Event))
Scalar = _structure("Scalar", [(c_char_p, "name"), (c_double, "init"), (c_uint32, "flags reserved")])
Axis = _structure("Axis", [(c_char_p, "name"), (c_uint64, "size")])
Descriptor = _structure("Descriptor", [
    (c_uint64, "magic"), (c_uint32, "abi_version num_structs"), (POINTER(c_uint32), "struct_bytes"),
    (c_char_p, "name compiler triple cpu features"),
    (c_uint64, "plan_hash state_hash schedule_hash"),
    (c_uint32, "num_arenas num_tensors num_scalars num_groups num_entries num_kernels scalar_arena workspace_arena"
               " num_axes num_windows"),
    (c_void_p, "arenas"), (POINTER(Tensor), "tensors"), (POINTER(Scalar), "scalars"), (POINTER(c_char_p), "groups"),
    (POINTER(Entry), "entries"), (c_void_p, "kernels functions"), (POINTER(Axis), "axes"),
    (c_uint32, "target num_images"), (c_void_p, "images next"), (c_double, "divisor")])
TrainerOptions = _structure("TrainerOptions", [
    (c_uint64, "size"), (c_uint32, "threads flags"), (c_uint64, "memory_limit seed"),
    (c_void_p, "parallel_for parallel_context comm"), (c_char_p, "device"), (c_double, "timeout")])
CommOptions = _structure("CommOptions", [
    (c_uint64, "size"), (c_char_p, "bootstrap"), (c_uint32, "rank ranks"), (c_double, "deadline"),
    (c_uint32, "flags reserved"), (c_void_p, "report report_context")])
CommInfo = _structure("CommInfo", [
    (c_uint32, "rank ranks host hosts host_rank host_ranks"), (c_double, "deadline"), (c_char_p, "bootstrap"),
    (c_uint64 * 5, "collectives bytes")])
ConvertOptions = _structure("ConvertOptions", [
    (c_uint64, "size"), (c_char_p, "device dtype"), (c_uint32, "blocking what include_integers reserved"),
    (c_uint64, "memory_limit"), (c_void_p, "artifact")])
Memory = _structure("Memory", [(c_uint64, "persistent workspace outputs scratch total limit peak staging"
                                          " converted_beside converted_by_host")])
StepResult = _structure("StepResult", [
    (c_double, "loss weight window_loss window_weight grad_norm clip_factor loss_scale"), (c_uint64, "update skipped"),
    (c_uint32, "micro_step closed updated finite stop reserved")])

_OUT = POINTER(c_void_p)
_TEXT = POINTER(c_char_p)
# Functions that return a status, and their parameters.
_CALLS = {
    "artifact_open": [c_char_p, _OUT],
    "trainer_create": [c_void_p, POINTER(TrainerOptions), _OUT],
    "bind_input": [c_void_p, c_uint32, c_uint32, c_void_p, c_uint64],
    "output_data": [c_void_p, c_uint32, c_uint32, _OUT],
    "step": [c_void_p, c_uint32, POINTER(StepResult)],
    "eval": [c_void_p, c_uint32],
    "flush": [c_void_p, POINTER(StepResult)],
    "request_stop": [c_void_p],
    "get_scalar": [c_void_p, c_char_p, POINTER(c_double)],
    "get_scalar_at": [c_void_p, c_uint32, POINTER(c_double)],
    "set_scalar": [c_void_p, c_char_p, c_double],
    "tensor_read": [c_void_p, c_uint32, c_uint32, c_void_p, c_uint64],
    "tensor_write": [c_void_p, c_uint32, c_uint32, c_void_p, c_uint64],
    "tensor_get": [c_void_p, c_uint32, POINTER(POINTER(Tensor))],
    "tensor_data": [c_void_p, c_uint32, _OUT],
    "tensor_part": [c_void_p, c_uint32, POINTER(c_uint64), POINTER(c_uint64)],
    "save": [c_void_p, c_char_p],
    "save_checkpoint": [c_void_p, c_char_p, c_uint32, _TEXT],
    "load": [c_void_p, c_char_p],
    "load_parameters": [c_void_p, c_char_p],
    "set_metadata": [c_void_p, c_char_p, c_char_p],
    "get_metadata": [c_void_p, c_char_p, _TEXT],
    "convert": [c_void_p, POINTER(ConvertOptions)],
    "memory_use": [c_void_p, POINTER(Memory)],
    "memory_report": [c_void_p, _TEXT],
    "set_observer": [c_void_p] * 3,
    "operand_read": [c_void_p, c_uint32, POINTER(Command), c_uint32, c_uint64, c_void_p, c_uint64],
    "comm_create": [POINTER(CommOptions), _OUT],
    "comm_get_info": [c_void_p, POINTER(CommInfo)],
    "comm_barrier": [c_void_p],
    "comm_agree": [c_void_p, c_char_p, c_uint64],
}
# All others: what they return, and their parameters.
_OTHERS = {
    "status_name": (c_char_p, [c_int]),
    "last_error": (c_char_p, []),
    "version": (c_char_p, []),
    "runtime_info": (c_char_p, []),
    "artifact_close": (None, [c_void_p]),
    "artifact_descriptor": (POINTER(Descriptor), [c_void_p]),
    "trainer_destroy": (None, [c_void_p]),
    "trainer_descriptor": (POINTER(Descriptor), [c_void_p]),
    "trainer_device": (c_char_p, [c_void_p]),
    "trainer_notice": (c_char_p, [c_void_p]),
    "trainer_threads": (c_uint32, [c_void_p]),
    "load_notice": (c_char_p, [c_void_p]),
    "comm_destroy": (None, [c_void_p]),
}


def c_whole(what: str, value: int, bits: int) -> int:
    """A number that C's type holds, of which ctypes would take the lower bits."""
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if not 0 <= number < 1 << bits:
        raise InvalidArgumentError(f"{what}: expected an integer from 0 to 2**{bits} - 1, got {value!r}")
    return number


def c_text(what: str, value: str | bytes) -> bytes:
    """A text without zero bytes, of which C would read the beginning alone."""
    data = value.encode() if isinstance(value, str) else value
    if b"\0" in data:
        raise InvalidArgumentError(f"{what}: expected text without zero bytes, got one at byte {data.index(0)}")
    return data


def c_path(path: str | bytes | os.PathLike) -> bytes:
    return c_text("a path", os.fsencode(path))


class Runtime:
    """The runtime's library at `path`, with the parameters and results of its functions declared."""

    def __init__(self, path: str):
        try:
            self.library = ctypes.CDLL(os.path.abspath(path))
        except OSError as error:
            raise Error(f"cannot open the runtime: {error}", "TRAINC_NOT_FOUND") from None
        for name, arguments in _CALLS.items():
            self._declare(name, c_int, arguments)
        for name, (result, arguments) in _OTHERS.items():
            self._declare(name, result, arguments)

    def _declare(self, name, result, arguments):
        function = getattr(self.library, "trainc_" + name)
        function.restype, function.argtypes = result, arguments

    def error(self, status: int) -> Error:
        """The exception for what the last call of this thread returned."""
        return error_of(self.library.trainc_status_name(status).decode(), self.library.trainc_last_error().decode())

    def call(self, name: str, *arguments) -> None:
        """Calls a function that returns a status."""
        status = getattr(self.library, name)(*arguments)
        if status:
            raise self.error(status)

    def info(self) -> str:
        """One line about this machine as the runtime sees it."""
        return self.library.trainc_runtime_info().decode()


def find(*path: str) -> str:
    """A file of the build, such as ("bin", "trainc"): in the folder that TRAINC_BUILD names, else in this package."""
    build = os.environ.get("TRAINC_BUILD")
    found = os.path.join(build or PACKAGE, *path)
    if not os.path.exists(found):
        hint = "in TRAINC_BUILD" if build else "in the package; from a source tree, set TRAINC_BUILD to a build folder"
        raise Error(f"{os.path.join(*path)} is not {hint} ({found})", "TRAINC_NOT_FOUND")
    return found


@functools.cache
def runtime() -> Runtime:
    """The runtime of this installation, opened on the first call; of the same version as the package."""
    from . import __version__
    found = Runtime(find("lib", "libtrainc_runtime.so"))
    version = found.library.trainc_version().decode()
    if version != __version__:
        raise Error(f"expected the runtime of trainc {__version__}, got {version}", "TRAINC_ABI_MISMATCH")
    return found
