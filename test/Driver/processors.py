# REQUIRES: numpy
# RUN: %python %s %runtime_lib/libtrainc_runtime.a
"""Modules in f32, bf16 and f16 compile for every processor that is named, need nothing, and use what it has.

usage: processors.py RUNTIME.a

The module that did not link is compiled for all in all types, as library or object; of the examples each for x86-64-v3 in
bf16 or f16, and one for each of the others in turn. Code for processors without AVX-512 has no instruction of it, and the
runtime has none but where it chooses by the processor. `bench/check.py right` compiles all for all.
"""
import concurrent.futures
import os
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench"))

from common import run, tool  # noqa: E402
from processors import AARCH64, EXAMPLES, TARGETS, TYPES, WITHOUT_AVX512, beyond_avx2, disassembled, example, options_of  # noqa: E402
from processors import pad, undefined, undispatched  # noqa: E402


def check(folder, number, name, text, target):
    """What is wrong with the code of a module for a target."""
    kind = ("so", "obj")[number % 2]
    source, path = (os.path.join(folder, f"m{number}.{end}") for end in ("mlir", {"so": "so", "obj": "o"}[kind]))
    with open(source, "w", encoding="utf-8") as f:
        f.write(text)
    run([tool("trainc"), source, "-o", path, f"--emit={kind}", "--threads=1", *options_of(target)])
    found = [f"undefined symbol {symbol}" for symbol in undefined(path)]
    if target in WITHOUT_AVX512:
        found += beyond_avx2(disassembled(path))[:3]
    return [f"{name} for {target}, {kind}: {what}" for what in found]


def main():
    narrow = TYPES[1:]
    cases = [(f"pad in {element}", pad(element), target) for target in [*TARGETS, *AARCH64] for element in TYPES]
    cases += [(f"{model} in {narrow[i % 2]}", example(model, narrow[i % 2]), "x86-64-v3") for i, model in enumerate(EXAMPLES)]
    for i, target in enumerate([*TARGETS[1:], *AARCH64]):
        model, element = list(EXAMPLES)[i % len(EXAMPLES)], narrow[i // len(EXAMPLES) % 2]
        cases.append((f"{model} in {element}", example(model, element), target))
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        bad = [text for found in pool.map(lambda c: check(folder, c[0], *c[1]), enumerate(cases)) for text in found]
    members = undispatched(sys.argv[1])
    bad += [f"{member}: {code}" for member, found in members.items() for code in found[:3]]
    # The checks find what they look for.
    assert beyond_avx2("   0:\t62 f1 7c 48 58 c1    \tvaddps\t%zmm1, %zmm0, %zmm0")
    assert beyond_avx2("   0: 64 62 f1 7c 08 58 c1 \tvaddps\t%xmm1, %xmm0, %xmm0")
    assert not beyond_avx2("   0: c5 fc 58 c1          \tvaddps\t%ymm1, %ymm0, %ymm0")
    assert "kernels.cpp.o" in members and "run.cpp.o" in members, list(members)
    print(f"{len(cases)} artifacts, {len(members)} objects of the runtime, {len(bad)} bad", *bad, sep="\n  ")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
