# REQUIRES: numpy, torch
# RUN: %venv_torch %s %t
"""The examples on PyTorch models learn: the last losses are well below the first."""
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
EXAMPLES = [("digits.py", "3"), ("text.py", "gpt2", "--steps", "60"), ("text.py", "bert", "--steps", "60"), ("text.py", "ernie", "--steps", "60"),
            ("text.py", "llama-lora", "--steps", "60"), ("images.py", "resnet18", "--steps", "40"), ("images.py", "unet", "--steps", "40")]

folder = sys.argv[1]
os.makedirs(folder, exist_ok=True)
paths = os.pathsep.join([os.path.join(ROOT, "python"), os.environ.get("PYTHONPATH", "")])
for script, *arguments in EXAMPLES:
    done = subprocess.run([sys.executable, "-W", "ignore", os.path.join(ROOT, "examples", "pytorch", script), *arguments], cwd=folder,
                          env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    first, last = (float(re.search(rf"{which} loss(?:es)? ([\d.]+)", done.stdout)[1]) for which in ("first", "last"))
    print(f"{script} {' '.join(arguments)}: {first:.3f} to {last:.3f}", flush=True)
    assert last < 0.9 * first, done.stdout
