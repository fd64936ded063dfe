"""The emulator's C API (test/Equipment/include/trainc/emulator.h) on NumPy arrays."""

import ctypes
import os

import numpy as np


class Fault(Exception):
    """A launch that failed; `status` is the number, the text is the report."""

    def __init__(self, status, report):
        super().__init__(report)
        self.status = status


class Counts(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_uint64)
        for name in "launches blocks threads accesses warp_operations barriers".split()
    ]


def aligned(values, dtype=None):
    """A copy that begins at a multiple of 256 bytes, as a device's allocations do."""
    values = np.asarray(values, dtype)
    memory = np.empty(values.nbytes + 256, np.uint8)
    start = -memory.ctypes.data % 256
    result = memory[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    result[...] = values
    return result


def to_bf16(values):
    """float32 to the bits of bf16, rounded to nearest even."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def from_bf16(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


class Device:
    """An emulated device with one loaded image."""

    def __init__(self, library, image, seed=0, late=False):
        self.lib = lib = ctypes.CDLL(os.fspath(library))
        pointer, status = ctypes.c_void_p, ctypes.c_int
        lib.trainc_emu_create.restype = pointer
        lib.trainc_emu_find.restype = pointer
        lib.trainc_emu_report.restype = ctypes.c_char_p
        lib.trainc_emu_destroy.restype = None
        lib.trainc_emu_set_seed.restype = None
        lib.trainc_emu_set_limit.restype = None
        lib.trainc_emu_set_late_stores.restype = None
        lib.trainc_emu_get_counts.restype = None
        for name in ("register", "unregister", "load", "launch"):
            getattr(lib, f"trainc_emu_{name}").restype = status
        self.device = pointer(lib.trainc_emu_create())
        lib.trainc_emu_set_seed(self.device, ctypes.c_uint64(seed))
        lib.trainc_emu_set_late_stores(self.device, ctypes.c_int(late))
        with open(image, "rb") as file:
            data = file.read()
        self.module = pointer()
        self.check(
            lib.trainc_emu_load(
                self.device, data, ctypes.c_size_t(len(data)), ctypes.byref(self.module)
            )
        )

    def check(self, status):
        if status:
            raise Fault(status, self.lib.trainc_emu_report(self.device).decode())

    def close(self):
        self.lib.trainc_emu_destroy(self.device)
        self.device = None

    def set_limit(self, accesses):
        self.lib.trainc_emu_set_limit(self.device, ctypes.c_uint64(accesses))

    def counts(self):
        counts = Counts()
        self.lib.trainc_emu_get_counts(self.device, ctypes.byref(counts))
        return {name: getattr(counts, name) for name, _ in Counts._fields_}

    def launch(self, kernel, grid, block, *arguments, shared=0):
        """Runs a kernel. Arrays are registered for the launch, under the names arg0,
        arg1, ...; NumPy scalars are passed as they are."""
        grid, block = (
            (ctypes.c_uint32 * 3)(*((list(x) if np.ndim(x) else [x]) + [1, 1])[:3])
            for x in (grid, block)
        )
        kept, registered = [], []
        pointers = (ctypes.c_void_p * max(1, len(arguments)))()
        try:
            for i, argument in enumerate(arguments):
                if isinstance(argument, np.ndarray):
                    address = argument.ctypes.data
                    if address not in registered:
                        self.check(
                            self.lib.trainc_emu_register(
                                self.device,
                                ctypes.c_void_p(address),
                                ctypes.c_size_t(argument.nbytes),
                                f"arg{i}".encode(),
                            )
                        )
                        registered.append(address)
                    argument = np.uint64(address)
                value = np.array([argument])
                kept.append(value)
                pointers[i] = value.ctypes.data
            found = self.lib.trainc_emu_find(self.module, kernel.encode())
            if not found:
                raise KeyError(f"the image has no kernel {kernel}")
            self.check(
                self.lib.trainc_emu_launch(
                    self.device,
                    self.module,
                    ctypes.c_void_p(found),
                    grid,
                    block,
                    ctypes.c_uint32(shared),
                    pointers,
                )
            )
        finally:
            for address in registered:
                self.lib.trainc_emu_unregister(self.device, ctypes.c_void_p(address))
