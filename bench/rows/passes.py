"""The row on pass tests: every pass, every numbered constraint and every op has the tests that it must have."""
import json
import os
import tempfile

from common import BUILD, ROOT, run, tool
from pass_tests import constraints, passes, positive_tests, what_lacks
from rows import judge

LIT = "/usr/lib/llvm-22/bin/lit"


def lit_codes(tests, *options):
    """How each test ends: {path under test/: PASS, FAIL, ...}."""
    tests = [os.path.join(BUILD, "test", os.path.relpath(t, os.path.join(ROOT, "test"))) for t in tests]
    with tempfile.NamedTemporaryFile("r", suffix=".json") as results:
        run([LIT, "-q", "-o", results.name, *options, *tests], check=False, timeout=2 * 3600)
        return {test["name"].split(" :: ")[-1]: test["code"] for test in json.load(results)["tests"]}


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
    known, notes = passes(), what_lacks()
    if has_switch():
        complaints = {a: c for a, f in known.items() if (c := complaint_about_disabling(a, f))}
        notes += [f"positive test of {a} {c}" for a, c in complaints.items()]
    else:
        notes.append("trainc-opt has no --disable-pass")
    return judge(known and not notes, "; ".join(notes) or f"{len(known)} passes, {len(constraints())} constraints")
