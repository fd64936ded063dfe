"""The compiler and the runtime before this part of the project began: the commit of which results/digests.json has the digests,
built in a clone of its own, once, and kept in build/bench."""
import hashlib
import os
import shutil

import digests
import results
from common import BUILD, ROOT, Failed, run

TARGETS = ["trainc", "trainc-run", "trainc_runtime"]
# The communicator, and what it needs of the runtime, of which tests ask for a bandwidth: then had no such option.
COMMUNICATOR = ["runtime/src/comm", "runtime/src/core/status.h", "runtime/src/core/status.cpp"]


def commit():
    known = digests.recorded()
    if not known:
        raise Failed("no digests were recorded, so that it is not known what was before")
    return known.get(results.family(), next(iter(known.values())))["commit"]


def content(paths):
    """A word for the present content of files and folders."""
    digest = hashlib.sha256()
    for path in paths:
        path = os.path.join(ROOT, path)
        for file in sorted(os.scandir(path), key=lambda f: f.name) if os.path.isdir(path) else [path]:
            with open(file, "rb") as f:
                digest.update(f.read())
    return digest.hexdigest()[:8]


def clone(folder, present):
    run(["git", "clone", "-q", "--shared", "--no-checkout", ROOT, folder])
    run(["git", "-C", folder, "checkout", "-q", "--detach", commit()])
    for path in present:
        copy = shutil.copytree if os.path.isdir(os.path.join(ROOT, path)) else shutil.copy
        if copy is shutil.copytree:
            shutil.rmtree(os.path.join(folder, path))
        copy(os.path.join(ROOT, path), os.path.join(folder, path))


def source(targets=TARGETS, present=()):
    """The folder of the clone, whose targets are built in `build`; the files and folders `present` are as they are now."""
    name = "-".join(["before", commit(), *([content(present)] if present else [])])
    folder = os.path.join(BUILD, "bench", name)
    mark = os.path.join(folder, "build", "complete")
    if not os.path.exists(mark):
        shutil.rmtree(folder, ignore_errors=True)
        clone(folder, present)
        run(["cmake", "--preset", "release"], cwd=folder)
        run(["ninja", "-C", "build", *targets], cwd=folder, timeout=7200)
        with open(mark, "w"):
            pass
    return folder


def with_bandwidth():
    """The folder of a clone whose runtime can be held to a bandwidth."""
    return source(["trainc_runtime"], COMMUNICATOR)


def build(folder):
    return os.path.join(folder, "build")


def program(name):
    return os.path.join(build(source()), "bin", name)


def compile_module(module, path, *options):
    """Compiles the file `module` to the shared library `path`."""
    run([program("trainc"), module, "-o", path, *options])
    return path
