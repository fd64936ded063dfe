# RUN: %python %s %trainc_src %trainc_build
"""Sources of the compiler include what they use: they compile without the precompiled headers that the build gives them.

Some, drawn by the commit; all of them with --all (scripts/lint.sh --includes).
"""
import concurrent.futures
import json
import os
import random
import shlex
import subprocess
import sys

SOME = 6


def without_precompiled(command):
    """The arguments after the compiler's, checking alone, without each `-Xclang OPTION -Xclang FILE` of a precompiled header."""
    words, kept = shlex.split(command), []
    while words:
        if words[:2] in (["-Xclang", "-include-pch"], ["-Xclang", "-include"]):
            words = words[4:]
        elif words[0] in ("-o", "-c"):
            words = words[2:] if words[0] == "-o" else words[1:]
        else:
            kept.append(words.pop(0))
    compiler = next(i for i, w in enumerate(kept) if "clang++" in os.path.basename(w) or os.path.basename(w) == "c++")
    return kept[compiler:] + ["-fsyntax-only"]


def check(entry):
    done = subprocess.run(without_precompiled(entry["command"]), cwd=entry["directory"], capture_output=True, text=True)
    return done.stderr if done.returncode else ""


root, build = sys.argv[1:3]
with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as f:
    entries = sorted((e for e in json.load(f) if "-include-pch" in e["command"]), key=lambda e: e["file"])
if not entries:
    sys.exit(print("nothing is built with precompiled headers"))
if "--all" not in sys.argv:
    head = subprocess.run(["git", "-C", root, "rev-parse", "HEAD"], capture_output=True, text=True).stdout
    entries = random.Random(head).sample(entries, SOME)
with concurrent.futures.ThreadPoolExecutor(2) as pool:
    errors = [e for e in pool.map(check, entries) if e]
print(f"{len(entries)} sources: " + " ".join(os.path.basename(e["file"]) for e in entries))
sys.exit("\n".join(errors) or 0)
