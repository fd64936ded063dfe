"""The compiler and the runtime before this part of the project began: the commit of which results/digests.json has the digests,
built in a clone of its own, once, and kept in build/bench."""
import os
import shutil

import digests
import results
from common import BUILD, ROOT, Failed, run

TARGETS = ["trainc", "trainc-run", "trainc_runtime"]
BANDWIDTH = "23df9e6fdc94"  # the commit that lets tests ask the communicator for a bandwidth


def commit():
    known = digests.recorded()
    if not known:
        raise Failed("no digests were recorded, so that it is not known what was before")
    return known.get(results.family(), next(iter(known.values())))["commit"]


def source(targets=TARGETS, pick=None):
    """The folder of the clone, whose targets are built in `build`; the change of a later commit, `pick`, can be added."""
    folder = os.path.join(BUILD, "bench", "-".join(["before", commit(), *([pick] if pick else [])]))
    mark = os.path.join(folder, "build", "complete")
    if not os.path.exists(mark):
        shutil.rmtree(folder, ignore_errors=True)
        run(["git", "clone", "-q", "--shared", "--no-checkout", ROOT, folder])
        run(["git", "-C", folder, "checkout", "-q", "--detach", commit()])
        if pick:
            run(["git", "-C", folder, "cherry-pick", "--no-commit", pick])
        run(["cmake", "--preset", "release"], cwd=folder)
        run(["ninja", "-C", "build", *targets], cwd=folder, timeout=7200)
        with open(mark, "w"):
            pass
    return folder


def with_bandwidth():
    """The folder of a clone whose runtime can be held to a bandwidth."""
    return source(["trainc_runtime"], BANDWIDTH)


def build(folder):
    return os.path.join(folder, "build")


def program(name):
    return os.path.join(build(source()), "bin", name)


def compile_module(module, path, *options):
    """Compiles the file `module` to the shared library `path`."""
    run([program("trainc"), module, "-o", path, *options])
    return path
