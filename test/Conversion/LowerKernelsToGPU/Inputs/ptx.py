"""Kernels as PTX, and what ptxas says of them."""
import os
import re
import shutil

from common import run
from lowered import lower

PIPELINE = (
    "builtin.module(gpu.module(convert-vector-to-scf,expand-strided-metadata,lower-affine,convert-scf-to-cf,"
    "convert-vector-to-llvm,convert-gpu-to-nvvm{{use-bare-ptr-memref-call-conv=true}},convert-nvvm-to-llvm,canonicalize,cse,"
    "reconcile-unrealized-casts),nvvm-attach-target{{chip={0} features=+ptx90 O=3}},gpu-module-to-binary{{format=isa toolkit={1}}})"
)


def toolkit():
    """Where libdevice is."""
    return os.path.dirname(os.path.dirname(os.path.realpath(shutil.which("ptxas"))))


def assemble(kernels, chip):
    """PTX by kernel, of the text of `train.kernel`s."""
    _, aliases, module = lower(kernels)
    module = f"{aliases}\nmodule attributes {{gpu.container_module}} {{\n{module}}}\n"
    binary = run(["mlir-opt", "-", f"--pass-pipeline={PIPELINE.format(chip, toolkit())}"], input=module, env=None).stdout
    ptx = re.search(r'assembly = "((?:[^"\\]|\\.)*)"', binary)[1]
    ptx = re.sub(r"\\([0-9A-F]{2})", lambda m: chr(int(m[1], 16)), ptx).replace('\\"', '"').rstrip("\0")
    return ptx


def entries(ptx):
    """The code of each kernel, by name."""
    return {m[1]: m[0] for m in re.finditer(r"^\.visible \.entry (\w+)\(.*?^}", ptx, re.M | re.S)}


def report(ptx, chip, folder):
    """{kernel: (registers, bytes of spills)}"""
    path = os.path.join(folder, f"{chip}.ptx")
    with open(path, "w") as f:
        f.write(ptx)
    text = run(["ptxas", f"-arch={chip}", "-v", path, "-o", path + ".cubin"], env=None).stderr
    found = {}
    for part in text.split("Compiling entry function")[1:]:
        spills = sum(int(n) for n in re.findall(r"(\d+) bytes spill", part))
        found[re.search(r"'(\w+)'", part)[1]] = int(re.search(r"Used (\d+) registers", part)[1]), spills
    return found
