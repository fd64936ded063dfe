"""The row on pass tests: every pass, every numbered constraint and every op has the tests that it must have."""
from common import run, tool
from pass_tests import constraints, passes, what_lacks, what_needs_no_pass
from rows import judge


def pass_tests(folder):
    # Without the switch a test that fails under it would say nothing.
    if run([tool("trainc-opt"), "--disable-pass=nn-decompose", "-"], input="", check=False).returncode:
        return judge(False, "trainc-opt has no --disable-pass")
    notes = what_lacks() + what_needs_no_pass()
    return judge(passes() and not notes, "; ".join(notes) or f"{len(passes())} passes, {len(constraints())} constraints")
