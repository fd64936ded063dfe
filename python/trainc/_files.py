"""Files: those that are written whole, and weights in safetensors files."""
import contextlib
import json
import mmap
import os
import struct
import tempfile
from collections.abc import Collection, Iterator

from ._arrays import first_not_finite
from .errors import NotFoundError

_FLOATS = {"F64": "float64", "F32": "float32", "BF16": "bfloat16", "F16": "float16"}


@contextlib.contextmanager
def temporary(name: str, folder: str | None = None) -> Iterator[str]:
    """The path of a new file of this name, which goes at the end."""
    with tempfile.TemporaryDirectory(prefix=".trainc-", dir=folder) as own:
        yield os.path.join(own, name)


@contextlib.contextmanager
def beside(path: str | os.PathLike) -> Iterator[str]:
    """The path of a new file, which takes the place of `path` at the end; not if an error is raised."""
    if os.path.exists(path) and not os.path.isfile(path):  # a device
        yield os.fspath(path)
        return
    folder, name = os.path.split(os.path.realpath(path))
    if not os.path.isdir(folder):
        raise NotFoundError(f"there is no folder {folder}")
    with temporary(name, folder) as new:
        yield new
        os.replace(new, os.path.join(folder, name))


def tensors_with_nan(path: str | os.PathLike, names: Collection[str]) -> list[str]:
    """Those of `names` in a safetensors file that hold a NaN. Of what is no such file, of which the runtime says what is wrong, none."""
    if not os.path.isfile(path):
        return []
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as memory, memoryview(memory) as data:
            size, = struct.unpack_from("<Q", data)
            header, found = json.loads(bytes(data[8:8 + size])), []
            for name in header.keys() & names:
                begin, end = header[name]["data_offsets"]
                with data[8 + size + begin:8 + size + end] as part:
                    found += [name] if first_not_finite(_FLOATS.get(header[name]["dtype"], ""), part, infinities=False) else []
            return sorted(found)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, struct.error):
        return []
