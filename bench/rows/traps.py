"""The rows on known traps of step passes, and on names: each runs tests of test/Integration."""
import glob
import os

from common import ROOT
from rows import judge
from rows.passes import lit_codes

TRAPS = os.path.join(ROOT, "test", "Integration", "traps")


def traps(folder):
    tests = sorted(path for path in glob.glob(os.path.join(TRAPS, "*")) if os.path.isfile(path))
    codes = lit_codes(tests)
    bad = {os.path.basename(name): code for name, code in codes.items() if code != "PASS"}
    return judge(len(codes) == len(tests) and not bad, f"{len(codes)} traps, {len(codes) - len(bad)} hold"
                 + "".join(f"; {name} {code}" for name, code in bad.items()))
