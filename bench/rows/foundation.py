"""Rows on the compiler's structure: same results as before it changed, the contract of compiler and runtime, readable code."""
import glob
import os
import re

import digests
import results
from common import ROOT, Failed
from pass_tests import lit_codes
from rows import judge
from rows.traps import outcome


def same_results(folder):
    """Of the CPU family of which digests were recorded: what was recorded once stands, but for what later commits changed on purpose."""
    known = digests.recorded().get(results.family())
    if not known:
        raise Failed(f"no digests of {results.family()} were recorded: run digests.py --record at the commit that begins this part")
    found, expected = digests.digests(), digests.expected(known)
    other = [name for name, digest in expected.items() if found.get(name) != digest]

    def equal(record):
        return sum(found.get(name) == digest for name, digest in record["digests"].items())

    later = [f"those of {change['commit']}: {equal(change)}, as {change['why']}" for change in known.get("changes", [])]
    return judge(not other, "; ".join([f"{equal(known)} of {len(expected)} trainings give the digests of {known['commit']}", *later,
                                       *other[:6]]))


CONTRACT = ["Runtime/tables.c", "Runtime/artifact.c", "Runtime/convert.c", "Integration/cuda-ranks.py", "Integration/refusals.py",
            "Tools/trainc-run-ranks.py"]


def bad_input(folder):
    return outcome([path for name in ("Dialect/Train/invalid*", "Transforms/Verify/verify-form*", "Transforms/Commands/*-errors.mlir")
                    for path in sorted(glob.glob(os.path.join(ROOT, "test", name)))], "tests pass: operations, forms, what passes refuse")


def contract(folder):
    codes = lit_codes([os.path.join(ROOT, "test", name) for name in CONTRACT])
    bad = [f"{name}: {code}" for name, code in codes.items() if code not in ("PASS", "FLAKYPASS")]
    return judge(len(codes) == len(CONTRACT) and not bad, "; ".join([f"{len(codes) - len(bad)} of {len(CONTRACT)} tests pass", *bad]))


LONGEST_FUNCTION, LONGEST_FILE = 100, 600
TABLES, GPU_EMITTERS = {"getOptimizerRules", "definitions"}, os.path.join("lib", "Conversion", "Kernels", "GPU", "")
FOLDERS = ("lib", "include", "tools")
CONTROL = re.compile(r"^\s*(if|for|while|switch|else|do|namespace|struct|class|enum|union|extern|try)\b|=\s*\{$")


def functions(lines):
    """(name, lines) of the functions of a formatted file, those in classes too: what ends at the brace of its first line's indent. Signatures
    may have several lines."""
    for i, line in enumerate(lines):
        if not line.endswith("{") or CONTROL.search(line):
            continue
        first = i
        while first and "(" not in lines[first] and not re.search(r"[;{}:]$|^$|^ *//", lines[first - 1]):
            first -= 1
        while first and not re.search(r"[;{}:]$|^$|^ *//", lines[first - 1]):
            first -= 1
        indent = re.match(r"^( {0,2})\S", lines[first])
        if not indent:
            continue
        head = " ".join(lines[first:i + 1])
        name = re.search(r"([\w~]+)\(", head)
        if not name or CONTROL.search(head):
            continue
        end = next((j for j in range(i + 1, len(lines)) if lines[j].startswith(indent[1] + "}")), None)
        if end:
            yield name[1], end - first + 1


def readable(folder):
    long_functions, long_files, code = [], [], 0
    for top in FOLDERS:
        for path in sorted(glob.glob(os.path.join(ROOT, top, "**", "*.*"), recursive=True)):
            if not path.endswith((".cpp", ".h", ".td", ".def")):
                continue
            with open(path) as f:
                lines = f.read().splitlines()
            name = os.path.relpath(path, ROOT)
            code += sum(1 for line in lines if line.strip() and not line.strip().startswith("//"))
            if len(lines) > LONGEST_FILE:
                long_files.append(f"{name} {len(lines)}")
            if path.endswith((".cpp", ".h")) and not name.startswith(GPU_EMITTERS):
                long_functions += [f"{function} of {name} {length}" for function, length in functions(lines)
                                   if length > LONGEST_FUNCTION and function not in TABLES]
    return judge(not long_functions and not long_files, "; ".join([
        f"{code} lines of code without comments", f"functions above {LONGEST_FUNCTION} lines: {', '.join(long_functions) or 'none'}",
        f"files above {LONGEST_FILE}: {', '.join(long_files) or 'none'}"]))
