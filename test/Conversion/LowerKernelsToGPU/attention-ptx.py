# REQUIRES: ptxas
# RUN: %python %s %S/attention.mlir %t
"""Attention as PTX: its instructions, and that ptxas keeps all in registers.

usage: attention-ptx.py KERNELS FOLDER
"""
import os
import re
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs")]

from lowered import lower  # noqa: E402

# Where libdevice is.
TOOLKIT = os.path.dirname(os.path.dirname(os.path.realpath(shutil.which("ptxas"))))
PIPELINE = (
    "builtin.module(gpu.module(convert-vector-to-scf,expand-strided-metadata,lower-affine,convert-scf-to-cf,"
    "convert-vector-to-llvm,convert-gpu-to-nvvm{{use-bare-ptr-memref-call-conv=true}},convert-nvvm-to-llvm,canonicalize,cse,"
    "reconcile-unrealized-casts),nvvm-attach-target{{chip={0} features=+ptx90 O=3}},gpu-module-to-binary{{format=isa toolkit={1}}})"
)


def check(text, chip, folder, head_size):
    """Complains about spills in the kernels of `text`."""
    _, _, module = lower(text)
    module = f"module attributes {{gpu.container_module}} {{\n{module}}}\n"
    binary = subprocess.run(["mlir-opt", "-", f"--pass-pipeline={PIPELINE.format(chip, TOOLKIT)}"], input=module, text=True,
                            check=True, stdout=subprocess.PIPE).stdout
    ptx = re.search(r'assembly = "((?:[^"\\]|\\.)*)"', binary)[1]
    ptx = re.sub(r"\\([0-9A-F]{2})", lambda m: chr(int(m[1], 16)), ptx).rstrip("\0")
    path = os.path.join(folder, f"{chip}.ptx")
    with open(path, "w") as f:
        f.write(ptx)
    report = subprocess.run(["ptxas", f"-arch={chip}", "-v", path, "-o", path + ".cubin"], text=True, check=True,
                            stderr=subprocess.PIPE).stderr
    spills = [int(n) for n in re.findall(r"(\d+) bytes spill", report)]
    assert len(spills) == 6 and not any(spills), f"{chip}, head size {head_size}: {report}"
    for instruction in ("mma.sync.aligned.m16n8k16", "ldmatrix.sync.aligned.m8n8.x4.trans", "cp.async.cg.shared.global"):
        assert instruction in ptx, f"{chip}, head size {head_size}: no {instruction}"


def main():
    source, folder = sys.argv[1:]
    os.makedirs(folder, exist_ok=True)
    with open(source) as f:
        text = f.read()
    for chip in ("sm_80", "sm_90", "sm_100"):
        for head_size in (64, 128):
            check(text.replace("3x64x", f"3x{head_size}x"), chip, folder, head_size)


if __name__ == "__main__":
    main()
