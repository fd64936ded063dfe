"""The row on pass tests: every pass and every numbered constraint has the tests that it must have."""
import glob
import json
import os
import re

from common import BUILD, ROOT, run, tool
from rows import judge

LIT = "/usr/lib/llvm-22/bin/lit"


def table_files(pattern):
    for path in sorted(glob.glob(os.path.join(ROOT, "include", "trainc", "**", pattern), recursive=True)):
        with open(path) as f:
            yield path, f.read()


def passes():
    """{argument: folder of its tests}."""
    return {argument: os.path.join(ROOT, "test", os.path.basename(os.path.dirname(path)))
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


def lit_codes(tests, *options):
    """How each test ends: {path under test/: PASS, FAIL, ...}."""
    results = os.path.join(BUILD, "test", "passes.json")
    tests = [os.path.join(BUILD, "test", os.path.relpath(t, os.path.join(ROOT, "test"))) for t in tests]
    run([LIT, "-q", "-o", results, *options, *tests], check=False)
    with open(results) as f:
        codes = {test["name"].split(" :: ")[-1]: test["code"] for test in json.load(f)["tests"]}
    os.remove(results)
    return codes


def complaint_about_disabling(argument, folder):
    """None if the positive tests of the pass succeed with it and fail when it is a no-op."""
    tests = positive_tests(argument, folder)
    if not tests:
        return None
    if set(lit_codes(tests).values()) != {"PASS"}:
        return "does not pass at all"
    if "FAIL" not in lit_codes(tests, "-D", f"disable_pass={argument}").values():
        return "passes without its pass"
    return None


def has_switch():
    """Whether trainc-opt takes --disable-pass: else a test that fails under it would say nothing."""
    return run([tool("trainc-opt"), "--disable-pass=nn-decompose", "-"], input="", check=False).returncode == 0


def pass_tests(folder):
    known, notes = passes(), []
    lacking = {a: m for a, f in known.items() if (m := missing_tests(a, f))}
    if lacking:
        notes.append(f"{len(lacking)} passes lack tests: " + ", ".join(f"{a} ({'/'.join(m)})" for a, m in lacking.items()))
    if has_switch():
        complaints = {a: c for a, f in known.items() if (c := complaint_about_disabling(a, f))}
        notes += [f"positive test of {a} {c}" for a, c in complaints.items()]
    else:
        notes.append("trainc-opt has no --disable-pass")
    wanted, tested = constraints(), tested_constraints()
    untested = sorted(wanted - tested)
    if untested:
        notes.append(f"{len(untested)} of {len(wanted)} constraints have no case: "
                     + ", ".join(f"{op} (C{n})" for op, n in untested[:6]) + (" ..." if len(untested) > 6 else ""))
    return judge(known and not notes, "; ".join(notes) or f"{len(known)} passes, {len(wanted)} constraints")
