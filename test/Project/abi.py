# REQUIRES: numpy
# RUN: %python %s
"""The numbers by which bench/ and the package read an artifact are those of the ABI."""
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(ROOT, "python")]

import commands  # noqa: E402
from trainc import _arrays, _runtime  # noqa: E402

with open(os.path.join(ROOT, "runtime", "include", "trainc", "step_abi.def")) as f:
    entries = re.findall(r"^TRAINC_(\w+)\((\w+), (\d+)(?:, (\d+))?", f.read(), re.M)
listed = {(kind, name): int(number) for kind, name, number, _ in entries}
for name in ("MASTER", "COMPUTE", "GRADIENT", "MERGED"):
    assert getattr(commands, name) == listed["ROLE", name], name
assert commands.COLLECTIVES == {listed["COMMAND", name.upper()]: name for name in ("reduce_scatter", "all_reduce", "all_gather")}
assert commands.LISTS == [name.lower() for kind, name, *_ in entries if kind == "LIST"]
assert commands.ELEMENT_BYTES == [int(size) for kind, *_, size in entries if kind == "DTYPE"]
assert _runtime.COMMANDS == [name.lower() for kind, name, *_ in entries if kind == "COMMAND"]
assert _arrays.SIZES == [int(size) for kind, *_, size in entries if kind == "DTYPE"]
