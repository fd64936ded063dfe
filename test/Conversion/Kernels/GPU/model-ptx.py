# REQUIRES: ptxas, numpy
# RUN: %python %s %t
"""All kernels of a GPT-2 as PTX: registers, widths of accesses, exact functions.

usage: model-ptx.py FOLDER [LAYERS]

One layer, or more, of real width (12 heads, 768, 50257 tokens), in f32 and bf16, for each chip. ptxas keeps everything in registers.
Every array of some size is read and written by 128 bits at once, attention's results and slices aside. Square roots and quotients are
rounded correctly. Atomics stand between fences.
"""
import math
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))))
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs")]

from common import generate, run, tool  # noqa: E402
from ptx import assemble, entries, report, unordered  # noqa: E402

MODEL = ("gpt", "--width", 768, "--heads", 12, "--vocab", 50257, "--batch", 4, "--seq", 1024, "--context", 1024)
LARGE = 1 << 16  # elements of an array that counts


def is_large(type):
    return math.prod(map(int, type.split("x")[:-1])) >= LARGE


def kernels_of(commands):
    """{kernel: (large arguments, large results)}, and the text of all."""
    texts = re.findall(r"^ *train\.kernel .*?^  }\n", commands, re.M | re.S)
    sizes = {}
    for text in texts:
        name = re.search(r"@(\w+)", text)[1]
        results = re.findall(r"tensor<([^>]*)>", text.rsplit("train.return", 1)[1])
        arguments = re.findall(r"%\w+: tensor<([^>]*)>", text.split(" inplace ")[0])
        if "nn.slice" in text:  # which reads a part
            arguments = []
        if "train.segment_map" in text:  # which only writes the copies in the compute type
            arguments = [type for type in arguments if type.endswith("f32")]
        sizes[name] = sum(map(is_large, arguments)), sum(map(is_large, results))
    return sizes, "".join(texts)


def bits(width):
    """Of an access like v4.b32."""
    return math.prod(map(int, re.findall(r"\d+", width)))


def complaints(name, code, arguments, results):
    if "attention" in name:
        return
    loads = stores = 0
    # Up to a label or behind a branch or a barrier, code runs as a whole.
    for block in re.split(r"^(?=\$L)|(?<=\n)(?=\t(?:@\S+ )?bra|\tbar\.sync|\tbarrier\.)", code, flags=re.M):
        accesses = re.findall(r"\b(ld|st)\.global(?:\.nc)?\.((?:v\d\.)?[a-z]\d+)", block)
        wide = [kind for kind, width in accesses if bits(width) >= 128]
        loads += wide.count("ld")
        stores += wide.count("st")
        if wide and any(kind == "st" and bits(width) < 128 for kind, width in accesses):
            yield f"stores less than 128 bits beside others: {accesses}"
    if loads < arguments:
        yield f"{loads} loads of 128 bits for {arguments} large arguments"
    if stores < results:
        yield f"{stores} stores of 128 bits for {results} large results"


def check(commands, chip, folder):
    sizes, text = kernels_of(commands)
    ptx = assemble(text, chip)
    codes, reports = entries(ptx), report(ptx, chip, folder)
    assert codes.keys() == reports.keys() == sizes.keys(), "ptxas has seen other kernels"
    bad = [f"{name}: {spills} bytes of spills" for name, (_, spills) in reports.items() if spills]
    for name, code in codes.items():
        bad += [f"{name}: {text}" for text in complaints(name, code, *sizes[name])]
        bad += [f"{name}: {text}" for text in re.findall(r"\b(?:(?:r?sqrt|div)\.(?:approx|full))[.\w]*", code)]
        bad += [f"{name}: {text}" for text in unordered(code)]
    update = max((name for name in codes if "update" in name), key=lambda name: sizes[name])
    assert "sqrt.rn.f32" in codes[update] and "div.rn.f32" in codes[update], f"{update} has no exact roots"
    return len(codes), max(registers for registers, _ in reports.values()), [f"{chip} {text}" for text in bad]


def main():
    folder, *layers = sys.argv[1:]
    os.makedirs(folder, exist_ok=True)
    bad = []
    for options in ((), ("--bf16",)):
        source = os.path.join(folder, "model.mlir")
        with open(source, "w") as f:
            f.write(generate(*MODEL, "--layers", *(layers or [1]), *options))
        commands = run([tool("trainc"), source, "--target=cuda", "--stop-after=commands", "-o", "-"]).stdout
        for chip in ("sm_80", "sm_90", "sm_100"):
            count, registers, found = check(commands, chip, folder)
            print(f"{' '.join(options):6} {chip}: {count} kernels, at most {registers} registers")
            bad += found
    print("\n".join(bad))
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
