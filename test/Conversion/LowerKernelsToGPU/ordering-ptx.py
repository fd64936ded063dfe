# REQUIRES: ptxas, jax
# RUN: %python %s
"""The order of accesses in the PTX of the examples' kernels; with --full also in their artifacts, and of every op and gradient.

usage: ordering-ptx.py [--full]

For each chip: every atomic is between fences, nothing that a kernel writes is read as a constant, no thread has memory of its
own. The check itself complains of kernels without a fence, or with such a read. --full needs JAX, which makes the cases.
"""
import os
import re
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(ROOT, "test", "Integration"),
                os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs")]

from common import compile_module, generate, run, tool  # noqa: E402
from ptx import assemble, entries, unordered  # noqa: E402

CHIPS = "sm_80", "sm_90", "sm_100"
EXAMPLES = {"mlp": ("--batch", 300), "cnn": ("--batch", 64), "llama": ("--layers", 1),
            "gpt": ("--layers", 1, "--width", 192, "--heads", 3, "--batch", 4)}
FENCE = "\tfence.acq_rel.gpu;\n"


def examples():
    for model, options in EXAMPLES.items():
        for precision in ((), ("--bf16",)):
            yield " ".join((model, *precision)), generate(model, *options, *precision)


def ops():
    from gradients import Prepared, all_cases, module
    by_op = {}
    for case in all_cases():
        by_op.setdefault(case.op, []).append(case)
    for op, cases in by_op.items():
        for element in ("f32", "bf16", "f16"):
            yield f"{op} {element}", module([Prepared(i, case, element) for i, case in enumerate(cases)])


def kernels(text, folder):
    source = os.path.join(folder, "model.mlir")
    with open(source, "w") as f:
        f.write(text)
    commands = run([tool("trainc"), source, "--target=cuda", "--stop-after=commands", "-o", "-"]).stdout
    return "".join(re.findall(r"^ *train\.kernel .*?^  }\n", commands, re.M | re.S))


def shipped(text, chip, folder):
    """The PTX in an artifact."""
    path = compile_module(text, os.path.join(folder, "model.so"), "--target=cuda", f"--cuda-arch={chip}")
    with open(path, "rb") as f:
        return re.search(rb"\.version \d.*?(?=\0)", f.read(), re.S)[0].decode()


def planted(code):
    """Variants of a kernel with an atomic that are wrong."""
    before, after = [m.start() for m in re.finditer(re.escape(FENCE), code)][:2]
    yield code[:before] + code[before + len(FENCE):]
    yield code[:after] + code[after + len(FENCE):]
    yield re.sub(r"(?s)(.*)\bld\.global\.(?!nc)", r"\1ld.global.nc.", code)  # the last read: of what other blocks wrote
    yield code.replace("st.shared", "st.local", 1)


def main():
    full = "--full" in sys.argv[1:]
    bad, count, atomics = [], 0, 0

    def check(what, ptx):
        nonlocal count, atomics
        for name, code in entries(ptx).items():
            count += 1
            bad.extend(f"{what}, {name}: {found}" for found in unordered(code))
            if re.search(r"\batom\.", code):
                atomics += 1
                bad.extend(f"{what}, {name}: planted fault {i} is not found" for i, wrong in enumerate(planted(code))
                           if not list(unordered(wrong)))

    with tempfile.TemporaryDirectory() as folder:
        for what, text in (*examples(), *(ops() if full else ())):
            code = kernels(text, folder)
            for chip in CHIPS if code else ():
                check(f"{what}, {chip}", assemble(code, chip))
        for what, text in examples() if full else ():
            for chip in CHIPS:
                check(f"{what}, artifact for {chip}", shipped(text, chip, folder))
    for text in bad:
        print(text)
    print(f"{count} kernels, {atomics} with atomics, {len(bad)} faults")
    sys.exit(bool(bad) or not atomics)


if __name__ == "__main__":
    main()
