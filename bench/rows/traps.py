"""The rows on known traps of step passes and on names: tests of test/Integration."""
import glob
import os

from common import ROOT
from pass_tests import lit_codes
from rows import judge

TESTS = os.path.join(ROOT, "test", "Integration")


def outcome(tests, what):
    codes = lit_codes(tests)
    bad = [f"{name}: {code}" for name, code in codes.items() if code != "PASS"]
    text = "; ".join([f"{len(codes) - len(bad)} of {len(tests)} {what}", *bad])
    return judge(tests and len(codes) == len(tests) and not bad, text)


def traps(folder):
    return outcome(sorted(p for p in glob.glob(os.path.join(TESTS, "traps", "*")) if os.path.isfile(p)), "traps hold")


def no_name_rules(folder):
    return outcome([os.path.join(TESTS, "names.py")], "tests pass: gpt, cnn, a module of groups and one of"
                   " everything have the same plan, commands, memory and tables under other names")


def bad_input(folder):
    return outcome([os.path.join(TESTS, "refusals.py")], "tests pass: what is illegal is refused with a"
                   " clear error, nothing changed")
