"""Files of a pack: shared libraries are carried compressed, as PTX and code for several GPUs take much room."""
import contextlib
import json
import lzma
import os
import shutil
import tempfile

FOLDER = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def compress(source, target):
    with open(source, "rb") as f, lzma.open(target + ".xz", "wb", preset=6) as out:
        shutil.copyfileobj(f, out)


def unpack(path, target):
    with lzma.open(path + ".xz", "rb") as f, open(target, "wb") as out:
        shutil.copyfileobj(f, out)


@contextlib.contextmanager
def unpacked(path):
    """The library that is carried as `path`.xz, for as long as it is needed."""
    with tempfile.TemporaryDirectory() as folder:
        target = os.path.join(folder, os.path.basename(path))
        unpack(path, target)
        yield target


def packed():
    """What packing said of the pack."""
    with open(os.path.join(FOLDER, "artifacts", "pack.json")) as f:
        return json.load(f)
