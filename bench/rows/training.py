"""Rows on what training reaches."""
import json
import os
import sys

from common import ROOT, Failed, compile_module, generate, run, tool
from rows import judge


def held_out_accuracy(model, folder):
    """Trains an example on the digits and evaluates it on the held-out ones, all by trainc-run."""
    library = compile_module(generate(model, "--digits"), os.path.join(folder, f"{model}.so"))
    log = os.path.join(folder, f"{model}.jsonl")

    def data(part):
        return (f"{name}={os.path.join(ROOT, 'examples', 'data', f'digits_{part}_{name}.npy')}" for name in "xy")

    command = [tool("trainc-run"), library, "--steps", "1500", "--log", log]
    command += [word for d in data("train") for word in ("--data", d)]
    command += [word for d in data("test") for word in ("--eval-data", d)]
    run(command)
    with open(log) as f:
        accuracies = [r["accuracy"] for r in map(json.loads, f) if r.get("accuracy") is not None]
    if not accuracies:
        raise Failed(f"trainc-run logged no accuracy of {model}")
    return accuracies[-1]


def digits(folder):
    mlp, cnn = held_out_accuracy("mlp", folder), held_out_accuracy("cnn", folder)
    return judge(mlp >= 0.95 and cnn >= 0.97, f"MLP {mlp:.4f}, CNN {cnn:.4f}")


def losses(folder):
    path = os.path.join(folder, "losses.json")
    done = run([sys.executable, os.path.join(ROOT, "bench", "losses.py"), "--json", path], timeout=1800, check=False)
    if not os.path.exists(path):
        raise Failed(f"bench/losses.py: {done.stderr.strip().splitlines()[-1] if done.stderr else 'no result'}")
    with open(path) as f:
        results = json.load(f)
    text = "; ".join(f"{name} {r}" if isinstance(r, str) else f"{name} {max(r):.1e}" for name, r in results.items())
    return judge(done.returncode == 0, text)
