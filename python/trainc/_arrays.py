"""Memory of NumPy arrays, torch tensors and what has DLPack or __array_interface__, as the runtime takes it.

Neither NumPy nor torch is imported before an array of it is given or asked for, or weights are looked at.
"""
import ctypes
import math
import sys
import zlib
from ctypes import POINTER, Structure, c_char_p, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p, py_object
from typing import Any, NamedTuple

from .errors import InvalidArgumentError, UnsupportedError

# By trainc_dtype; the names that NumPy (with ml_dtypes) and torch share.
DTYPES = ["float32", "float64", "bfloat16", "float16", "int8", "int16", "int32", "int64", "bool", "uint8"]
SIZES = [4, 8, 2, 2, 1, 2, 4, 8, 1, 1]
NUMPY, TORCH = "NumPy", "torch"


class View(NamedTuple):
    """Dense memory of an array in row-major order."""
    dtype: str
    shape: tuple
    pointer: Any  # an address, or an object at it
    owner: Any  # what keeps the memory alive
    library: Any  # of the array: NUMPY, TORCH or None
    copied: str | None  # why this is a copy, if it is one


_Memory = ctypes.c_char * 0  # from_buffer is the fastest way to an array's address


class _DLTensor(Structure):
    _fields_ = [("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32),
                ("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16), ("shape", POINTER(c_int64)),
                ("strides", POINTER(c_int64)), ("byte_offset", c_uint64)]


_DL_HOST = (1, 3)  # kDLCPU, kDLCUDAHost: memory that a processor reads
_DL_CODES = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 6: "bool"}
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype, _capsule_pointer.argtypes = c_void_p, [py_object, c_char_p]

_names: dict = {}  # of dtypes of NumPy and torch, as in DTYPES


def _name(dtype) -> str:
    return _names.setdefault(dtype, str(getattr(dtype, "name", dtype)).removeprefix("torch."))


_views: dict = {}  # by the type of an array
_new = tuple.__new__  # a View without the cost of its constructor


def view(value) -> View:
    """The memory of an array. What is not dense, aligned and in native byte order is copied; `copied` says so."""
    return (_views.get(type(value)) or _find_view(value))(value)


def _find_view(value):
    kind, modules = type(value), sys.modules
    if "torch" in modules and isinstance(value, modules["torch"].Tensor):
        return _views.setdefault(kind, _torch_view)
    if "numpy" in modules and isinstance(value, modules["numpy"].ndarray):
        return _views.setdefault(kind, _numpy_view)
    if hasattr(value, "__dlpack__"):
        return _dlpack_view
    if hasattr(value, "__array_interface__"):
        import numpy
        return lambda value: _numpy_view(numpy.asarray(value))
    raise InvalidArgumentError(f"expected a NumPy array, a torch tensor or an object with __dlpack__, "
                               f"got {kind.__module__}.{kind.__qualname__}")


def _torch_view(tensor) -> View:
    if not tensor.is_cpu:
        raise InvalidArgumentError(f"expected a tensor in memory of the host, got one on device {tensor.device}; "
                                   "use .cpu()")
    copied, dtype = None, tensor.dtype
    try:
        if tensor.is_neg():
            tensor, copied = tensor.resolve_neg(), "it is the negative of other memory"
        if not tensor.is_contiguous():
            tensor, copied = tensor.contiguous(), "it is not contiguous"
        pointer = tensor.data_ptr()
    except RuntimeError:
        raise InvalidArgumentError(f"expected a dense tensor, got one of layout {tensor.layout}") from None
    if not pointer and tensor.numel():
        raise InvalidArgumentError("expected a tensor with memory, got one without storage")
    return _new(View, (_names.get(dtype) or _name(dtype), tensor.shape, pointer, tensor, TORCH, copied))


def _numpy_view(array) -> View:
    numpy, flags, dtype, copied = sys.modules["numpy"], array.flags, array.dtype, None
    if flags.carray and dtype.isnative and type(array) is numpy.ndarray:
        try:
            return _new(View, (_names.get(dtype) or _name(dtype), array.shape, _Memory.from_buffer(array), array, NUMPY,
                               None))
        except ValueError:  # a type that the buffer protocol lacks
            pass
    if isinstance(array, numpy.ma.MaskedArray):
        raise InvalidArgumentError("expected an array without a mask, got a masked array; use .filled(value)")
    if not flags.c_contiguous:
        copied = "it is not contiguous"
    elif not dtype.isnative:
        copied = "its bytes are in another order"
    elif not flags.aligned:
        copied = "it is not aligned"
    if copied:
        array = numpy.array(array, dtype.newbyteorder("="), order="C")
    return View(_name(dtype), array.shape, array.__array_interface__["data"][0], array, NUMPY, copied)


def _dlpack_view(value) -> View:
    device, number = value.__dlpack_device__()
    if device not in _DL_HOST:
        raise InvalidArgumentError(f"expected an array in memory of the host, got one on DLPack device "
                                   f"{int(device)}:{number}")
    capsule = value.__dlpack__()  # gives back what it has when it is collected
    tensor = _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    kind = _DL_CODES.get(tensor.code, f"DLPack type {tensor.code} of bits ")
    dtype = kind if kind == "bool" else f"{kind}{tensor.bits}" + (f"x{tensor.lanes}" if tensor.lanes != 1 else "")
    shape = tuple(tensor.shape[:tensor.ndim])
    if tensor.strides and math.prod(shape):
        step = 1
        for size, stride in zip(reversed(shape), reversed(tensor.strides[:tensor.ndim])):
            if size != 1 and stride != step:
                import numpy
                return _numpy_view(numpy.from_dlpack(value))
            step *= size
    return View(dtype, shape, (tensor.data or 0) + tensor.byte_offset, capsule, None, None)


def _memory_of(view: View):
    address = view.pointer if isinstance(view.pointer, int) else ctypes.addressof(view.pointer)
    size = math.prod(view.shape) * SIZES[DTYPES.index(view.dtype)]
    return (ctypes.c_char * size).from_address(address)


def checksum(view: View, start: int = 0) -> int:
    """CRC-32 of the memory, behind that of others."""
    return zlib.crc32(_memory_of(view), start)


# Of floating types: an integer of their size, and infinity as one.
_INFINITIES = {"float32": (c_uint32, 0x7F800000), "float64": (c_uint64, 0x7FF << 52), "bfloat16": (c_uint16, 0x7F80), "float16": (c_uint16, 0x7C00)}
_PIECE = 1 << 16  # numbers that are looked at together: they stay in the cache


def holds_nan(view: View) -> bool:
    """Whether one of the numbers is a NaN."""
    return first_not_finite(view.dtype, _memory_of(view), infinities=False) is not None


def first_not_finite(dtype: str, memory: Any, infinities: bool = True) -> tuple[int, str] | None:
    """Of numbers in memory the index of the first NaN or infinity, and which it is: without its sign a NaN is above infinity, as an integer."""
    if dtype not in _INFINITIES:
        return None
    kind, infinity = _INFINITIES[dtype]
    data = memoryview(memory).cast("B")
    numbers = data.cast(kind._type_)
    sign = 1 << 8 * ctypes.sizeof(kind) - 1
    try:
        import numpy
        bits = numpy.frombuffer(data, kind)
        wrong = (bits[i:i + _PIECE] << 1 > kind(infinity << 1).value - infinities for i in range(0, len(bits), _PIECE))
        found = next((i * _PIECE + int(those.argmax()) for i, those in enumerate(wrong) if those.any()), None)
    except ImportError:
        found = next((i for i, number in enumerate(numbers) if number & ~sign > infinity - infinities), None)
    if found is None:
        return None
    return found, "nan" if numbers[found] & ~sign > infinity else "-inf" if numbers[found] & sign else "inf"


def empty(dtype: str, shape: tuple, as_torch: bool):
    """A new array of a type of DTYPES, of NumPy or torch."""
    if as_torch:
        import torch
        return torch.empty(shape, dtype=getattr(torch, dtype), device="cpu")  # whatever the default device is
    import numpy
    if dtype == "bfloat16":
        try:
            import ml_dtypes
        except ImportError:
            raise UnsupportedError("NumPy has no bfloat16: install ml_dtypes, or ask for torch tensors") from None
        return numpy.empty(shape, ml_dtypes.bfloat16)
    return numpy.empty(shape, dtype)


def pointer_of(array) -> int:
    """The address of a dense array that `empty` made."""
    return array.data_ptr() if hasattr(array, "data_ptr") else array.__array_interface__["data"][0]
