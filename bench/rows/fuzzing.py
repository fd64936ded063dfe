"""The row on bad input: runs the fuzzers of test/Fuzz at their full size, with sanitizers in the compiler's own code."""
import json
import os
import sys

import results
from common import BUILD, ROOT, run
from rows import judge

MUTANTS, VALID, CHECKPOINTS = 20000, 2000, 20000
LIMIT = 2 * 3600


def bad_input(folder):
    run(["cmake", "--preset", "asan"], cwd=ROOT)
    sanitized = os.path.join(ROOT, "build-asan")
    run(["ninja", "-C", sanitized, "trainc-fuzz"], timeout=3 * 3600)
    path = os.path.join(folder, "fuzz.json")
    # A run that was cut off goes on, with the same code and fuzzer.
    fuzzer = results.git("rev-parse", "HEAD:test/Fuzz")[:8]
    parts = os.path.join(sanitized, f"fuzz-{results.code()}-{fuzzer}.jsonl")
    run([sys.executable, os.path.join(ROOT, "test", "Fuzz", "fuzz.py"), "--mutants", str(MUTANTS), "--valid", str(VALID),
         "--checkpoints", str(CHECKPOINTS), "--build", sanitized, "--runtime-build", BUILD, "--json", path, "--resume", parts],
        timeout=LIMIT, check=False)
    with open(path) as f:
        r = json.load(f)
    good = (r["mutants"] >= MUTANTS and r["reached_passes"] >= MUTANTS / 2 and r["valid"] >= VALID
            and r["checkpoints"] >= CHECKPOINTS
            and not any(r[k] for k in ("crashes", "hangs", "silent_rejections", "different_results")))
    return judge(good, f"seed {r['seed']}: {r['mutants']} mutants, {r['reached_passes']} reached the passes; {r['valid']}"
                 f" valid; {r['crashes']} crashes, {r['hangs']} hangs, {r['silent_rejections']} rejections without a"
                 f" located diagnostic, {r['different_results']} differences; {r['checkpoints']} checkpoint files")
