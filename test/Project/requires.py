# RUN: %python %s %trainc_src
"""Each Python test REQUIRES the packages that it imports, itself or through our modules and scripts, and no other. JAX has
NumPy and ml_dtypes with it."""
import ast
import glob
import os
import re
import sys

PACKAGES = {"jax": "jax", "optax": "jax", "numpy": "numpy", "ml_dtypes": "ml_dtypes", "safetensors": "safetensors",
            "torch": "torch"}

root = sys.argv[1]
modules = {}
for folder in ("bench", "examples", "test"):
    for path in sorted(glob.glob(os.path.join(root, folder, "**", "*.py"), recursive=True)):
        modules.setdefault(os.path.basename(path)[:-3], []).append(path)


def imported(path):
    """The top-level names of all modules that a file imports, what it imports from `rows`, and the scripts that it names."""
    with open(path, encoding="utf-8") as f:
        tree = ast.parse(f.read())
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (a.name.split(".")[0] for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or "rows"  # from . import X: the modules beside it
            yield module.split(".")[0]
            yield from (a.name for a in node.names if module == "rows")
        elif isinstance(node, ast.Constant) and re.fullmatch(r"\w+\.py", str(node.value)):
            yield node.value[:-3]


def find(name, user):
    """Our modules of that name: those nearest to the user, by the folders that they share."""
    found = modules.get(name, [])
    shared = [len(os.path.commonpath([path, user])) for path in found]
    return [path for path, n in zip(found, shared) if n == max(shared)]


def needed(path, seen):
    """The features of what a file imports."""
    features = set()
    seen.add(path)
    for name in imported(path):
        if name in PACKAGES:
            features.add(PACKAGES[name])
        for other in find(name, path):
            if other not in seen:
                features |= needed(other, seen)
    return features


errors, tests = [], 0
for path in sorted(glob.glob(os.path.join(root, "test", "**", "*.py"), recursive=True)):
    with open(path, encoding="utf-8") as f:
        text = f.read()
    if os.path.basename(os.path.dirname(path)) == "Inputs" or not re.search(r"^# RUN[:]", text, re.M):
        continue
    tests += 1
    required = set(re.findall(r"[\w-]+", " ".join(re.findall(r"^# REQUIRES[:](.*)", text, re.M))))
    wanted, given = needed(path, set()), required & set(PACKAGES.values())
    if "jax" in wanted:
        wanted -= {"numpy", "ml_dtypes"}
    if wanted != given:
        errors.append(f"{os.path.relpath(path, root)}: expects to require {', '.join(sorted(wanted))}, got"
                      f" {', '.join(sorted(given)) or 'none'}")
print(f"{tests} tests")
sys.exit("\n".join(errors) or 0)
