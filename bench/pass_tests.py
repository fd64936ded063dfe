#!/usr/bin/env python3
"""Which tests passes and dialects lack: of a pass a positive, a does-not-fire and an error test; of a numbered constraint of
an op a case in invalid*.mlir; of an op a round trip in ops*.mlir.

usage: pass_tests.py

Prints what is missing, and which positive tests pass although their pass does nothing.
"""
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.environ.get("TRAINC_BUILD") or os.path.join(ROOT, "build")
LIT = "/usr/lib/llvm-22/bin/lit"


def table_files(pattern):
    for path in sorted(glob.glob(os.path.join(ROOT, "include", "trainc", "**", pattern), recursive=True)):
        with open(path) as f:
            yield path, f.read()


def passes():
    """{argument: folder of its tests}."""
    return {argument: os.path.dirname(path).replace(os.path.join("include", "trainc"), "test")
            for path, text in table_files("Passes.td") for argument in re.findall(r':\s*Pass<"([^"]+)"', text)}


def constraints():
    """{(op, number)} of the (Cn) in the descriptions of ops."""
    found = set()
    for _, text in table_files("*Ops.td"):
        dialects = dict(NN="nn", Train="train")
        for dialect, definition in re.findall(r"^def (NN|Train)_\w+Op\b(.*?)(?=^def |^class |\Z)", text, re.S | re.M):
            name = re.search(r'<"(\w+)"', definition)
            description = re.search(r"let description = \[\{(.*?)\}\];", definition, re.S)
            if name and description:
                found |= {(f"{dialects[dialect]}.{name[1]}", int(n)) for n in re.findall(r"\(C(\d+)\)", description[1])}
    return found


def tested_constraints():
    """{(op, number)} of the expected errors in the invalid tests of the dialects."""
    found = set()
    for path in glob.glob(os.path.join(ROOT, "test", "Dialect", "*", "invalid*.mlir")):
        with open(path) as f:
            for case in re.split(r"^// -----", f.read(), flags=re.M):
                ops = set(re.findall(r"\b(?:nn|train)\.\w+", case))
                for message in re.findall(r"expected-error\S*.*?\{\{(.*)\}\}", case):
                    numbers = {int(n) for n in re.findall(r"C(\d+)", message)}
                    named = set(re.findall(r"\b(?:nn|train)\.\w+", message)) or ops
                    found |= {(op, n) for op in named for n in numbers}
    return found


def positive_tests(argument, folder):
    stem = argument.split("-", 1)[1]
    names = (f for n in (stem, argument) for f in glob.glob(os.path.join(folder, "**", f"{n}.mlir"), recursive=True))
    return sorted(set(names))


def missing_tests(argument, folder):
    """What kinds of tests a pass lacks."""
    positive = positive_tests(argument, folder)
    text = "".join(open(p).read() for name in positive for p in glob.glob(name.removesuffix(".mlir") + "*.mlir"))
    missing = []
    if not positive:
        missing.append("positive")
    if not re.search(r"does not fire|does nothing|unchanged", text, re.I):
        missing.append("does-not-fire")
    if not any(os.path.exists(p.removesuffix(".mlir") + "-errors.mlir") for p in positive):
        missing.append("error")
    return missing


def operations():
    """The names of the ops of both dialects."""
    for _, text in table_files("*Ops.td"):
        for dialect, mnemonic in re.findall(r'^def (NN|Train)_\w+Op\s*:\s*\w+<\s*"(\w+)"', text, re.M):
            yield f"{dialect.lower()}.{mnemonic}"


def round_trips():
    """The ops that stand in a file which is read again after it was printed, and compared."""
    found = set()
    for path in glob.glob(os.path.join(ROOT, "test", "Dialect", "*", "ops*.mlir")):
        with open(path) as f:
            text = f.read()
        if "--verify-roundtrip" in text:
            body = re.sub(r"//.*", "", text)
            found |= set(re.findall(r"\b(?:nn|train)\.\w+", body))
    return found


def what_lacks():
    """A line for each kind of test that is missing somewhere."""
    lines = []
    lacking = {a: m for a, f in passes().items() if (m := missing_tests(a, f))}
    if lacking:
        lines.append(f"{len(lacking)} passes lack tests: "
                     + ", ".join(f"{a} ({'/'.join(m)})" for a, m in lacking.items()))
    wanted = constraints()
    if untested := sorted(wanted - tested_constraints()):
        lines.append(f"{len(untested)} of {len(wanted)} constraints have no case: "
                     + ", ".join(f"{op} (C{n})" for op, n in untested))
    if untested := sorted(set(operations()) - round_trips()):
        lines.append(f"{len(untested)} operations have no round trip: " + ", ".join(untested))
    return lines


def lit_codes(tests, *options, **environment):
    """How each test ends: {path under test/: PASS, FAIL, ...}."""
    tests = [os.path.join(BUILD, "test", os.path.relpath(t, os.path.join(ROOT, "test"))) for t in tests]
    with tempfile.NamedTemporaryFile("r", suffix=".json") as results:
        subprocess.run([LIT, "-q", "-o", results.name, *options, *tests], stdout=subprocess.DEVNULL, timeout=2 * 3600,
                       env={**os.environ, **environment})
        return {test["name"].split(" :: ")[-1]: test["code"] for test in json.load(results)["tests"]}


def what_needs_no_pass():
    """A line for each positive test that fails, and for each pass of which no positive test fails when it is a no-op."""
    tests = {argument: positive_tests(argument, folder) for argument, folder in passes().items()}
    codes = lit_codes([path for paths in tests.values() for path in paths])
    lines = [f"{name}: {code}" for name, code in codes.items() if code != "PASS"]
    return lines + [f"positive test of {argument} passes without its pass" for argument, paths in tests.items()
                    if paths and "FAIL" not in lit_codes(paths, "-D", f"disable_pass={argument}").values()]


if __name__ == "__main__":
    known = len(passes()), len(constraints()), len(list(operations()))
    if 0 in known:
        sys.exit(f"expects passes, constraints and operations, got {known}")
    print("{} passes, {} constraints, {} operations".format(*known))
    sys.exit("\n".join(what_lacks() + what_needs_no_pass()) or 0)
