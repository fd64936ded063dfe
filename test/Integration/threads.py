# REQUIRES: numpy
# RUN: %python %s
"""A step gives the same bits on any number of threads. The GPT has products whose k is cut in two, where there is AMX: their
halves are added while the next commands run."""
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "bench")]

from common import compile_module, generate, tool  # noqa: E402

SHAPE = ("--layers", 3, "--width", 64, "--heads", 4, "--vocab", 64, "--batch", 4, "--seq", 64)


def state(library, folder, threads):
    """All that is stored after some updates."""
    path = os.path.join(folder, "state.safetensors")
    subprocess.run([tool("trainc-run"), library, "--benchmark", "8", "--save", path, "--threads", str(threads)], check=True,
                   stdout=subprocess.DEVNULL)
    with open(path, "rb") as f:
        return f.read()


def main():
    with tempfile.TemporaryDirectory() as folder:
        library = compile_module(generate("gpt", *SHAPE), os.path.join(folder, "model.so"))
        one = state(library, folder, 1)
        bad = [n for n in (2, 3, 8) for _ in range(5) if state(library, folder, n) != one]
    print(f"{len(one)} bytes of state; different with these threads: {bad}")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
