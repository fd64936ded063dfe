# REQUIRES: numpy
# RUN: %python %s
"""What the workspace holds at each command (bench/liveness.py), and that no plan is below it."""
import os
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench"))

from common import compile_module, generate  # noqa: E402
from liveness import live_bytes, plan_and_bound  # noqa: E402

READ, WRITE = True, False
CASES = {
    "kept until its last use": ([[(0, 8, WRITE)], [(8, 12, WRITE)], [(0, 8, READ)], [(8, 12, READ)]], [8, 12, 12, 4]),
    "never read": ([[(0, 8, WRITE)], [(8, 12, WRITE)]], [8, 4]),
    "written again": ([[(0, 8, WRITE)], [(8, 12, WRITE)], [(0, 8, WRITE)], [(0, 8, READ)]], [8, 4, 8, 8]),
    "in place": ([[(0, 8, WRITE)], [(0, 8, WRITE), (0, 8, READ)], [(0, 8, READ)]], [8, 8, 8]),
    "in parts": ([[(0, 8, WRITE)], [], [(4, 8, READ)], [(0, 4, WRITE)]], [8, 4, 4, 4]),
    "overlapping": ([[(0, 8, WRITE), (4, 12, WRITE)], [(0, 12, READ)]], [12, 12]),
}

wrong = [name for name, (steps, want) in CASES.items() if live_bytes(steps) != want]
with tempfile.TemporaryDirectory() as folder:
    for name, text in {"gpt": generate("gpt", "--layers", 2, "--width", 64, "--heads", 2, "--vocab", 50, "--seq", 32),
                       "cnn": generate("cnn", "--batch", 5)}.items():
        plan, bound = plan_and_bound(compile_module(text, os.path.join(folder, f"{name}.so")))
        print(f"{name}: planned {plan}, alive {bound}")
        if not 0 < bound <= plan <= 1.1 * bound:
            wrong.append(name)
if wrong:
    sys.exit(f"wrong: {', '.join(wrong)}")
