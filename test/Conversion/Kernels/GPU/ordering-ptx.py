# REQUIRES: ptxas, jax
# RUN: %python %s
"""The order of accesses in the PTX of the examples' kernels; with --full also in their artifacts, and of every op and gradient.

usage: ordering-ptx.py [--full]

For each chip: every atomic is between fences, nothing that a kernel writes is read as a constant, no thread has memory of its
own. The check itself complains of kernels without a fence, or with such a read. --full needs JAX, which makes the cases: each
is taken on every chip, in another type on each; an op of few cases in all types.
"""
import concurrent.futures
import os
import re
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))))
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
    """(what, text, chip)"""
    from gradients import all_cases, module, prepare_all
    by_op = {}
    for case in all_cases():
        by_op.setdefault(case.op, []).append(case)
    types = "f32", "bf16", "f16"
    for op, cases in by_op.items():
        for turn, element in enumerate(types):
            prepared = prepare_all(cases, element)
            for number, chip in enumerate(CHIPS):
                drawn = [p for i, p in enumerate(prepared) if len(cases) < len(types) or (i + number) % len(types) == turn]
                yield f"{op} {element}, {chip}", module(drawn), chip


def generated(text, chip, folder):
    """The PTX of a module's kernels as they are generated."""
    source = os.path.join(folder, "model.mlir")
    with open(source, "w") as f:
        f.write(text)
    commands = run([tool("trainc"), source, "--target=cuda", "--stop-after=commands", "-o", "-"]).stdout
    code = "".join(re.findall(r"^ *train\.kernel .*?^  }\n", commands, re.M | re.S))
    return assemble(code, chip) if code else ""


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


def jobs(full):
    """What PTX is of, and what makes it in a folder."""
    texts = list(examples())
    for what, text, chip in [(f"{what}, {chip}", text, chip) for what, text in texts for chip in CHIPS] + (list(ops()) if full else []):
        yield what, lambda folder, text=text, chip=chip: generated(text, chip, folder)
    for what, text in texts if full else ():
        for chip in CHIPS:
            yield f"{what}, artifact for {chip}", lambda folder, text=text, chip=chip: shipped(text, chip, folder)


def check(job):
    """(kernels, those with atomics, what is wrong)"""
    what, make = job
    with tempfile.TemporaryDirectory() as folder:
        codes, bad = entries(make(folder)), []
    with_atomics = {name: code for name, code in codes.items() if re.search(r"\batom\.", code)}
    for name, code in codes.items():
        bad += [f"{what}, {name}: {found}" for found in unordered(code)]
    for name, code in with_atomics.items():
        bad += [f"{what}, {name}: planted fault {i} is not found" for i, wrong in enumerate(planted(code))
                if not list(unordered(wrong))]
    return len(codes), len(with_atomics), bad


def main():
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        counts, atomics, faults = zip(*pool.map(check, jobs("--full" in sys.argv[1:])))
    bad = sum(faults, [])
    for text in bad:
        print(text)
    print(f"{sum(counts)} kernels, {sum(atomics)} with atomics, {len(bad)} faults")
    sys.exit(bool(bad) or not sum(atomics))


if __name__ == "__main__":
    main()
