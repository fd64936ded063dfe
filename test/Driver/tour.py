# RUN: %python %s %trainc_src
"""docs/Tour.md names every pass, and the files that it names exist."""
import glob
import os
import re
import sys

root = sys.argv[1]


def read(path):
    with open(os.path.join(root, path), encoding="utf-8") as f:
        return f.read()


tour = read("docs/Tour.md")
errors = []
for path in glob.glob(os.path.join(root, "include", "trainc", "**", "Passes.td"), recursive=True):
    for name in re.findall(r'Pass<"([\w-]+)"', read(path)):
        if f"`{name}`" not in tour:
            errors.append(f"the tour lacks the pass {name}")
table = tour[tour.index("## Key files"):]
for row in re.findall(r"^\| (`.*?) \|", table, re.M):
    folder = ""
    for path in re.findall(r"`([\w./+-]+)`", row):
        if "/" in path:
            folder = os.path.dirname(path)
        if not os.path.exists(os.path.join(root, path if "/" in path else os.path.join(folder, path))):
            errors.append(f"the tour names {path}, which does not exist")
sys.exit("\n".join(errors) or 0)
