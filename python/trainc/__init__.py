"""Compiles one training step of a neural network ahead of time, and trains with it.

    path = trainc.compile("gpt.mlir", "gpt.so")
    step = trainc.load(path, threads=2)
    for x, y in batches:
        result = step(x, y)
    step.save("gpt.safetensors")

`trainc.torch` and `trainc.jax` write such modules from models; they are imported by who needs them, as are torch, JAX and NumPy.
"""
import os as _os

_folder = _os.path.dirname(_os.path.abspath(__file__))
_version_file = _os.path.join(_folder, "VERSION")  # as installed, else in the source tree
if not _os.path.exists(_version_file):
    _version_file = _os.path.join(_folder, "..", "..", "VERSION")
with open(_version_file, encoding="utf-8") as _file:
    __version__ = _file.read().strip()

from .compiler import compile  # noqa: E402
from .errors import (CommError, CompileError, DeviceError, Error, InvalidArgumentError, MismatchError,  # noqa: E402
                     NotFiniteError, NotFoundError, OutOfMemoryError, OutOfRangeError, UnsupportedError)
from .step import Step, StepResult, load  # noqa: E402

__all__ = ["CommError", "CompileError", "DeviceError", "Error", "InvalidArgumentError", "MismatchError",
           "NotFiniteError", "NotFoundError", "OutOfMemoryError", "OutOfRangeError", "Step", "StepResult", "UnsupportedError",
           "compile", "load", "__version__"]
