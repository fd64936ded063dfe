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


def sources(code):
    """{register: the parameters that its value was computed from} of a kernel; what is loaded comes from none."""
    found, moves = {}, []
    for line in code.splitlines():
        if match := re.match(r"\s*(?:@!?%p\d+ )?(\S+)\s+(%rd\d+), (.*);", line):
            op, register, operands = match.groups()
            if op.startswith("ld.param"):
                found.setdefault(register, set()).update(re.findall(r"param_\d+", operands))
            elif not op.startswith(("ld.", "atom.")):
                moves.append((register, re.findall(r"%rd\d+", operands)))
    while any(found.get(a, set()) - found.get(to, set()) for to, operands in moves for a in operands):
        for to, operands in moves:
            for a in operands:
                found.setdefault(to, set()).update(found.get(a, ()))
    return found


def unordered(code):
    """What is wrong with the order of a kernel's accesses.

    Atomics are relaxed: each is between fences of the device before the next barrier, label or branch. What a kernel
    writes is never read by the cache of constants, which no fence empties. No thread has memory of its own, but for what
    libdevice's sine and cosine need to reduce large arguments.
    """
    lines = [line.strip() for line in code.splitlines()]

    def fenced(steps):
        for line in steps:
            if line.startswith("fence.acq_rel.gpu"):
                return True
            if re.match(r"\$L|(@\S+ )?(bra|bar|ret|atom|red)\b", line):
                return False
        return False

    for i, line in enumerate(lines):
        if re.match(r"(@\S+ )?(atom|red)\b", line):
            if not fenced(reversed(lines[:i])):
                yield f"no fence before '{line}'"
            if not fenced(lines[i + 1:]):
                yield f"no fence behind '{line}'"
    origins = sources(code)

    def parameters(access):
        return set().union(*(origins.get(r, set()) for r in re.findall(access + r"\S*\s.*?\[(%rd\d+)", code)))

    if both := parameters(r"ld\.global\S*\.nc") & parameters(r"(?:st|atom|red)\.global"):
        yield f"ld.global.nc of what is written: {sorted(both)}"
    if "__cudart_i2opi_f" not in code:
        yield from re.findall(r"\b(?:ld|st)\.local[.\w]*", code)


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
