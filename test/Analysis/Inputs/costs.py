"""Compares what test-print-cost says that ops compute and move with their loops, and sees that every nn op has a case.

usage: costs.py <source folder> <output of trainc-opt --test-print-cost>
"""
import os
import re
import sys

root, printed = sys.argv[1:]
sys.path.insert(0, os.path.join(root, "bench"))
import pass_tests

UNITS = ("matrix", "vector", "functions", "read", "written")
# Where an op computes or moves something else than its definition in linalg, at least in one case, and why.
EXCEPTED = {
    ("nn.sort", "vector"): "the definition compares all pairs; a kernel merges, log2 n times",
    ("nn.conv2d_input_grad", "vector"): "the definition adds up columns; a kernel sums in its contraction",
    ("nn.slice", "read"): "operands count whole",
    ("nn.part", "read"): "operands count whole",
    ("nn.gather", "read"): "operands count whole",
    ("nn.max_pool2d", "read"): "operands count whole, also what no window sees",
    ("nn.batch_norm", "written"): "results count, also running statistics that are as they were",
}
NO_WORK = {"nn.yield"}  # ends the region of an nn.map


def pairs(rows, columns, window):
    """The pairs of a query and a key that a causal attention admits."""
    return sum(j <= i + columns - rows and (not window or j > i + columns - rows - window)
               for i in range(rows) for j in range(columns))


def numbers(text):
    return {unit: float(n) for unit, n in re.findall(rf"({'|'.join(UNITS)}) (\S+)", text)}


errors, seen, differ = [], set(), set()
with open(printed, encoding="utf-8") as f:
    lines = f.read().splitlines()
for line in lines:
    where, op, rest = re.fullmatch(r"(\w+): (\S+) (.*)", line).groups()
    own, _, loops = rest.partition(", loops ")
    own, loops = numbers(own), numbers(loops)
    seen.add(op)
    causal = re.fullmatch(r"causal_(\d+)_(\d+)_(\d+)", where)
    if causal:
        rows, columns, window = map(int, causal.groups())
        wanted = loops["matrix"] * pairs(rows, columns, window) / (rows * columns)
        if own["matrix"] != wanted:
            errors.append(f"{line}: expects {wanted} of the admitted pairs")
    elif op.startswith("nn."):
        differ |= {(op, unit) for unit in UNITS if own[unit] != loops[unit]}
        errors += [f"{line}: {unit}" for unit in UNITS if own[unit] != loops[unit] and (op, unit) not in EXCEPTED]
wanted = {op for op in pass_tests.operations() if op.startswith("nn.")} - NO_WORK
errors += [f"{op}: {unit} differs in no case" for op, unit in EXCEPTED.keys() - differ]
errors += [f"{op} has no case" for op in sorted(wanted - seen)]
print(f"{len(lines)} cases of {len(seen)} ops")
sys.exit("\n".join(errors) or 0)
