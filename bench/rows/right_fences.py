"""The row on order between blocks of GPUs: fences in the PTX of all kernels, and an emulator that orders by fences alone."""
import os
import sys

from common import last_line, run
from rows import judge
from rows.cuda import TEST, tests, tests_pass, with_toolkit


def fences(folder):
    script = os.path.join(TEST, "Conversion", "Kernels", "GPU", "ordering-ptx.py")
    done = run([sys.executable, script, "--full"], timeout=3600, check=False, env=with_toolkit())
    lines = done.stdout.strip().splitlines() or [last_line(done.stderr)]
    old = tests_pass(tests("Conversion/Kernels/GPU", "fences.mlir") + tests("Target/GPU", "emulate-blocks.mlir"),
                     "the emulator reports kernels without fences at their first launch")
    return judge(done.returncode == 0 and old.status == "ok", "; ".join(lines[-1:] + lines[:-1][:3] + [old.value]))
