"""What the scripts of this folder share: where things are, running tools, and the modules of the peers' workloads.

TRAINC_BUILD names the build folder (default: build). Everything else is relative to the repository. Tests set TRAINC_TEST_CACHE, a folder in
which the compiler keeps kernels.
"""
import functools
import math
import os
import re
import signal
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.abspath(os.environ.get("TRAINC_BUILD", os.path.join(ROOT, "build")))
PEERS = os.path.join(ROOT, "bench", "peers")
RUNTIME_LIBRARY = os.path.join(BUILD, "lib", "libtrainc_runtime.so")
KERNELS = os.environ.get("TRAINC_TEST_CACHE")
sys.path.insert(0, PEERS)

# What a shell may say of libraries, ours, a peer's or the limit's alone, is left out.
ENVIRONMENT = {k: v for k, v in os.environ.items()
               if not k.startswith(("OPENBLAS_", "OMP_", "KMP_", "MKL_", "ONEDNN_", "DNNL_", "ATEN_", "XLA_")) and k != "LD_PRELOAD"}


class Failed(Exception):
    """A tool is absent or refused; the text says which and why."""


def largest(errors):
    """The largest of errors; infinity where one is not a number, which max() leaves out unless it comes first."""
    errors = list(errors)
    return max(errors) if all(e == e for e in errors) else math.inf


def farthest(got, want):
    """The largest relative error of numbers in a row."""
    return largest(abs(g - w) / abs(w) for g, w in zip(got, want))


def tool(name):
    path = os.path.join(BUILD, "bin", name)
    if not os.access(path, os.X_OK):
        raise Failed(f"{os.path.relpath(path, ROOT)} is not built")
    return path


def run(command, timeout=600, check=True, input=None, **options):
    """Runs a command and returns what it did, its output as text. One that does not end is killed with all that it started."""
    options = {"env": ENVIRONMENT, "stdin": None if input is None else subprocess.PIPE, **options}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, **options) as process:
        try:
            output, errors = process.communicate(input, timeout)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            raise Failed(f"{shown(command)}: no end after {timeout} s") from None
    if check and process.returncode:
        raise Failed(f"{shown(command)}: exit {process.returncode}: {last_line(errors)}")
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def shown(command):
    words = [os.path.relpath(w, ROOT) if w.startswith(ROOT + os.sep) else w for w in command]
    return " ".join(words[:4]) + (" ..." if len(words) > 4 else "")


@functools.cache
def target_cpu():
    """LLVM's name of this CPU."""
    text = run(["clang-22", "-march=native", "-###", "-E", "-x", "c", "/dev/null"]).stderr
    return re.search('"-target-cpu" "([^"]+)"', text)[1]


def last_line(text):
    """The first error in the text, else its last line."""
    lines = [line.strip() for line in text.strip().splitlines()] or ["no message"]
    return next((line for line in lines if "error:" in line), lines[-1])[-300:]


def generate(model, *arguments):
    """The module that examples/MODEL.py prints."""
    return run([sys.executable, os.path.join(ROOT, "examples", f"{model}.py"), *map(str, arguments)]).stdout


def compile_module(text, path, *options, timeout=600):
    """Compiles a module to the shared library `path`; the source stays beside it."""
    source = os.path.splitext(path)[0] + ".mlir"
    with open(source, "w") as f:
        f.write(text)
    if KERNELS and not any(option.startswith("--cache-dir") for option in options):
        options = *options, f"--cache-dir={KERNELS}"
    run([tool("trainc"), source, "-o", path, *options], timeout=timeout)
    return path


def compiled(source, output, compiler, *options):
    """The program or library `output`, compiled if it is older than its source. Where there is no source it was carried."""
    if not os.path.exists(output) or os.path.exists(source) and os.path.getmtime(output) < os.path.getmtime(source):
        os.makedirs(os.path.dirname(output), exist_ok=True)
        run([compiler, source, *options, "-o", output])
    return output


def workload_module(w, *more):
    """The module of a workload of bench/peers: same model, names, batch and update."""
    common = ["--batch", w.batch, "--accumulate", w.accumulate, *more]
    if w.kind == "gpt":
        return generate("gpt", "--layers", w.layers, "--width", w.width, "--heads", w.heads, "--vocab", w.vocab,
                        "--seq", w.tokens, "--context", w.context, *common)
    return generate(w.kind, *common)


def write_npy(path, array):
    import numpy as np
    np.save(path, array)
    return path
