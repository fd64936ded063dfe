"""Files that are written whole."""
import contextlib
import os
import tempfile
from collections.abc import Iterator

from .errors import NotFoundError


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
