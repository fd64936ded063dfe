"""The row on bad input: runs the fuzzers of test/Fuzz at their full size."""
import json
import os
import sys

from common import ROOT, Failed, run
from rows import judge

MUTANTS, VALID = 20000, 2000


def bad_input(folder):
    script = os.path.join(ROOT, "test", "Fuzz", "fuzz.py")
    if not os.path.exists(script):
        raise Failed("there is no fuzzer yet (test/Fuzz/fuzz.py)")
    path = os.path.join(folder, "fuzz.json")
    run([sys.executable, script, "--mutants", str(MUTANTS), "--valid", str(VALID), "--json", path], timeout=3600,
        check=False)
    with open(path) as f:
        r = json.load(f)
    good = (r["mutants"] >= MUTANTS and r["reached_passes"] >= MUTANTS / 2 and r["valid"] >= VALID
            and not any(r[k] for k in ("crashes", "hangs", "silent_rejections", "different_results")))
    return judge(good, f"seed {r['seed']}: {r['mutants']} mutants, {r['reached_passes']} reached the passes; {r['valid']}"
                 f" valid; {r['crashes']} crashes, {r['hangs']} hangs, {r['silent_rejections']} rejections without a"
                 f" located diagnostic, {r['different_results']} differences; {r['checkpoints']} checkpoint files")
