"""Kernels as code of GPU threads."""
import os
import re

from common import run, tool


def lower(kernels):
    """Of the text of `train.kernel`s: (attributes of the launches by name, aliases, the gpu.module)."""
    kernels = re.sub(" order (lanes|sequence)", "", kernels)  # of CPUs
    text = run([tool("trainc-opt"), "-", "--train-lower-kernels-to-gpu"], input=kernels).stdout
    launches = {name: {key: int(n) for key, n in re.findall(r"(\w+) = (\d+)", abi)}
                for name, abi in re.findall(r"train\.kernel @(\w+)\(.*?abi = #train\.abi<(.*?)>", text)}
    module = re.search(r"^  gpu\.module @gpu_kernels.*?^  }\n", text, re.M | re.S)[0]
    return launches, "\n".join(re.findall(r"^#.*$", text, re.M)), module


def emulate(kernels, folder):
    """(attributes of the launches by name, path of the image for the emulator)"""
    launches, aliases, module = lower(kernels)
    source, image = (os.path.join(folder, name) for name in ("kernels.mlir", "kernels.so"))
    with open(source, "w") as f:
        f.write(aliases + "\n" + module)
    run([tool("trainc-emulate"), source, "-o", image], timeout=3600)
    return launches, image
