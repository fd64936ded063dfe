# RUN: %python %s
"""`import trainc` is fast and brings neither torch nor NumPy nor jax; the version is one; the program runs."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))
from tiny import ROOT, refused, trainc  # noqa: E402

BAR = 0.2  # seconds

PROGRAM = """
import sys, time
begin = time.perf_counter()
import trainc
assert not {"numpy", "torch", "jax"} & set(sys.modules), sorted(sys.modules)
print(time.perf_counter() - begin)
"""


def run(*arguments, **environment):
    return subprocess.run([sys.executable, *arguments], stdout=subprocess.PIPE, text=True, check=True,
                          env={**os.environ, "PYTHONPATH": os.path.join(ROOT, "python"), **environment}).stdout


seconds = min(float(run("-c", PROGRAM)) for _ in range(3))
assert seconds <= BAR, f"import trainc took {seconds:.3f} s, expected at most {BAR}"

with open(os.path.join(ROOT, "VERSION"), encoding="utf-8") as file:
    version = file.read().strip()
assert trainc.__version__ == version
assert run("-m", "trainc", "--version").startswith(f"trainc {version}")
for name in trainc.__all__:
    assert getattr(trainc, name)

# Where the build is not, the error says where it was looked for.
os.environ["TRAINC_BUILD"] = "/nowhere"
with refused(trainc.Error, "bin/trainc", "/nowhere", "TRAINC_BUILD"):
    trainc.compile("module\n")
