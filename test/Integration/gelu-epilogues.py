# REQUIRES: numpy
# RUN: %python %s
"""Gelu and its slope as epilogues of products give the bits of kernels of their own: GPTs whose products are AMX's, where
there is AMX, and a library's, all of them with AVX2 only; in f32, bf16 and f16."""
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "bench")]

from common import compile_module, generate, tool  # noqa: E402

# 4 x 93 tokens make edges of blocks; 2 x 5 tokens go to a library.
SIZES = {"large": ("--layers", 2, "--width", 160, "--heads", 4, "--vocab", 64, "--batch", 4, "--seq", 93),
         "small": ("--layers", 1, "--width", 24, "--heads", 2, "--vocab", 32, "--batch", 2, "--seq", 5)}


def trained(text, folder, held, *options):
    """The whole state after some updates."""
    library = compile_module(text, os.path.join(folder, "model.so"), *(["--target-cpu=x86-64-v3"] if held else []), *options)
    state = os.path.join(folder, "state.safetensors")
    subprocess.run([tool("trainc-run"), library, "--benchmark", "4", "--save", state], check=True, stdout=subprocess.DEVNULL,
                   env={**os.environ, **({"TRAINC_AVX2_ONLY": "1"} if held else {})})
    with open(state, "rb") as f:
        return f.read()


def epilogues(text, folder):
    """How many the compiler made."""
    path = os.path.join(folder, "m.mlir")
    with open(path, "w") as f:
        f.write(text)
    commands = subprocess.run([tool("trainc"), path, "--stop-after=commands", "-o", "-"], capture_output=True, text=True,
                              check=True).stdout
    return commands.count(" epilogue ")


def main():
    bad = []
    for size, shape in SIZES.items():
        for element in "f32", "bf16", "f16":
            text = generate("gpt", *shape, *(["--bf16"] if element != "f32" else [])).replace(
                "compute = bf16", f"compute = {element}")
            for held in False, True:
                name = f"{size} {element}{' with AVX2' if held else ''}"
                with tempfile.TemporaryDirectory() as folder:
                    count = epilogues(text, folder)
                    with_them = trained(text, folder, held)
                    without = trained(text, folder, held, "--disable-pass=train-fuse-epilogues")
                layers = shape[1]
                print(f"{name}: {count} epilogues, {len(with_them)} bytes of state")
                if count < 2 * layers or with_them != without:
                    bad.append(name)
    print(f"different: {bad}")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
