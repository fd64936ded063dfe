# REQUIRES: amx, numpy
# RUN: %python %s
"""An artifact with tile registers is refused where the system does not keep them; one without runs.

Linux refuses them to a process that has a signal stack too small for them.
"""
import ctypes
import os
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench"))

from common import RUNTIME_LIBRARY, compile_module, run  # noqa: E402
from trainc_ctypes import Error, Runtime, Trainer  # noqa: E402

SMALL = 2048


class Stack(ctypes.Structure):
    _fields_ = [("memory", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]


def main():
    generator = os.path.join(ROOT, "test", "Driver", "Inputs", "attention.py")
    stack = ctypes.create_string_buffer(SMALL)
    with tempfile.TemporaryDirectory() as folder:
        tiles, none = (compile_module(run([sys.executable, generator, kind]).stdout, os.path.join(folder, f"{kind}.so"))
                       for kind in ("bf16", "f32"))
        if ctypes.CDLL(None).sigaltstack(ctypes.byref(Stack(ctypes.addressof(stack), 0, SMALL)), None) != 0:
            return "cannot set a signal stack"
        runtime = Runtime(RUNTIME_LIBRARY)
        with Trainer(runtime, none) as trainer:
            trainer.step()
        try:
            with Trainer(runtime, tiles):
                return "tile registers are used without the system's leave"
        except Error as e:
            features = str(e).split(" needs ")[-1].split(", which ")[0]
            return None if set(features.split(",")) == {"amx-bf16", "amx-tile"} else str(e)


if __name__ == "__main__":
    sys.exit(main())
