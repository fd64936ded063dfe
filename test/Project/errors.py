# REQUIRES: numpy
# RUN: %python %s
"""The largest of errors is infinity where one is not a number, and tests and rows take it by common.largest(), as max() would pass that over."""
import ast
import glob
import math
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench"))

from common import largest  # noqa: E402

nan = math.nan
assert largest([0.0, 2.0, 1.0]) == 2.0
assert all(largest(errors) == math.inf for errors in ([nan], [0.0, nan], [nan, 0.0], [1.0, nan, 2.0], iter([0.0, nan])))

OF_ERRORS = re.compile(r"\b(norm|abs|distance|error|errors_of|apart|relative)\(")
found = []
for path in (p for folder in ("bench", "test") for p in glob.glob(os.path.join(ROOT, folder, "**", "*.py"), recursive=True)):
    with open(path) as f:
        text = f.read()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "max" and len(node.args) == 1:
            inner = ast.get_source_segment(text, node.args[0])
            if OF_ERRORS.search(inner) and "nanmax" not in inner:
                found.append(f"{os.path.relpath(path, ROOT)}:{node.lineno}: max({inner})")
assert not found, "\n".join(["use common.largest():", *found])
