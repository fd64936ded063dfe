"""Rows on what is promised bit for bit, and on checkpoints."""
import json
import os
import random
import re
import signal
import subprocess
import time

from common import ENVIRONMENT, Failed, compile_module, generate, run, tool
from rows import judge

DELAYED_KILLS = 20
SEED = 7


def model_and_data(model, folder):
    """A small model with awkward sizes, two micro-batches per update, and the data arguments for it."""
    import numpy as np
    rng = np.random.default_rng(SEED)
    if model == "gpt":
        text = generate("gpt", "--layers", 2, "--width", 99, "--heads", 3, "--vocab", 101, "--batch", 5, "--seq", 37,
                        "--context", 41, "--accumulate", 2)
        np.save(os.path.join(folder, "tokens.npy"), rng.integers(0, 101, 20000).astype(np.int32))
        data = ["--data", os.path.join(folder, "tokens.npy")]
    else:
        text = generate(model, "--batch", 33, "--accumulate", 2)
        np.save(os.path.join(folder, "x.npy"), rng.standard_normal((500, 64)).astype(np.float32))
        np.save(os.path.join(folder, "y.npy"), rng.integers(0, 10, 500).astype(np.int32))
        data = ["--data", f"x={os.path.join(folder, 'x.npy')}", "--data", f"y={os.path.join(folder, 'y.npy')}"]
    return compile_module(text, os.path.join(folder, f"{model}.so")), data


def train(library, data, directory, steps, *options, **environment):
    """Trains until update `steps`; returns ([(step, loss, norm)], bytes of the latest checkpoint)."""
    log = os.path.join(directory, "log.jsonl")
    os.makedirs(directory, exist_ok=True)
    if os.path.exists(log) and "--resume" not in options:
        os.remove(log)
    run([tool("trainc-run"), library, *data, "--steps", str(steps), "--checkpoint-dir", directory, "--log", log,
         "--seed", str(SEED), *options], env={**ENVIRONMENT, **environment})
    with open(log) as f:
        rows = [(r["step"], r["loss"], r["grad_norm"]) for r in map(json.loads, f) if "loss" in r]
    return rows, latest(directory)


def latest(directory):
    with open(os.path.join(directory, "latest")) as f:
        name = f.read().strip()
    with open(os.path.join(directory, name), "rb") as f:
        return f.read()


def reproducible(folder):
    notes, good = [], True
    for model in ("gpt", "cnn", "mlp"):
        library, data = model_and_data(model, folder)
        runs = {name: train(library, data, os.path.join(folder, f"{model}-{name}"), 12, "--threads", threads)
                for name, threads in (("once", "2"), ("again", "2"), ("one", "1"))}
        for what, other in (("two runs", "again"), ("1 and 2 threads", "one")):
            same = runs["once"] == runs[other]
            good &= same
            if not same:
                part = "losses" if runs["once"][0] != runs[other][0] else "checkpoints"
                notes.append(f"{model}: {what} differ in {part}")
    return judge(good, "; ".join(notes) or "gpt, cnn and mlp: all equal over 12 updates")


def resume(folder):
    notes = []
    for model in ("gpt", "cnn", "mlp"):
        library, data = model_and_data(model, folder)
        straight = train(library, data, os.path.join(folder, f"{model}-20"), 20)
        halves = os.path.join(folder, f"{model}-10-10")
        first, _ = train(library, data, halves, 10)
        rows, checkpoint = train(library, data, halves, 20, "--resume")
        if len(rows) == 10:  # the log of the second process alone
            rows = first + rows
        if rows != straight[0]:
            notes.append(f"{model}: losses differ")
        if checkpoint != straight[1]:
            notes.append(f"{model}: checkpoints differ")
    return judge(not notes, "; ".join(notes) or "gpt, cnn and mlp: all equal")


class Saves:
    """A run that saves after every update, the checkpoints it must produce, and what is left of it when it is killed."""

    def __init__(self, folder):
        self.folder = folder
        self.library, self.data = model_and_data("mlp", folder)
        self.updates = 4
        clean = os.path.join(folder, "clean")
        train(self.library, self.data, clean, self.updates, "--checkpoint-every", "1")
        self.expected = {}
        for name in os.listdir(clean):
            if number := re.fullmatch(r"step-(\d+)\.safetensors", name):
                with open(os.path.join(clean, name), "rb") as f:
                    self.expected[int(number[1])] = f.read()
        if len(self.expected) != self.updates:
            raise Failed(f"expected {self.updates} checkpoints, got {len(self.expected)}")

    def start(self, directory, fault):
        command = [tool("trainc-run"), self.library, *self.data, "--steps", str(self.updates), "--checkpoint-every", "1",
                   "--keep", "2", "--checkpoint-dir", directory, "--seed", str(SEED)]
        return subprocess.Popen(command, env={**ENVIRONMENT, "TRAINC_FAULT": fault}, stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL)

    def check(self, directory):
        """Loads the latest checkpoint in a new process, which ends as the undisturbed run; returns a complaint or None."""
        if not os.path.exists(os.path.join(directory, "latest")):
            done = [n for n in os.listdir(directory) if re.fullmatch(r"step-\d+\.safetensors", n)]
            return "the file 'latest' is gone" if len(done) > 1 else None  # the first save alone may lack it
        with open(os.path.join(directory, "latest")) as f:
            name = f.read().strip()
        step = int(re.search(r"\d+", name)[0])
        if latest(directory) != self.expected[step]:
            return f"{name} is not what the undisturbed run saved"
        run([tool("trainc-run"), self.library, *self.data, "--steps", str(self.updates), "--checkpoint-dir", directory,
             "--resume", "--seed", str(SEED)])
        if step < self.updates and latest(directory) != self.expected[self.updates]:
            return f"going on from {name} ends elsewhere"
        return None


def kill(folder):
    saves, notes, hits = Saves(folder), [], {}
    for operation in ("open", "write", "fsync", "rename", "remove"):
        hits[operation] = 0
        while True:
            directory = os.path.join(folder, f"{operation}-{hits[operation] + 1}")
            os.makedirs(directory)
            process = saves.start(directory, f"{operation}:{hits[operation] + 1}:kill")
            if process.wait(timeout=120) != -signal.SIGKILL:
                break
            hits[operation] += 1
            try:
                complaint = saves.check(directory)
            except Failed as e:
                complaint = str(e)
            if complaint:
                notes.append(f"{operation} {hits[operation]}: {complaint}")
    rng = random.Random(SEED)
    for i in range(DELAYED_KILLS):
        directory = os.path.join(folder, f"delayed-{i}")
        os.makedirs(directory)
        process = saves.start(directory, "*:*:delay=20")
        time.sleep(rng.uniform(0.05, 1.0))
        process.kill()
        process.wait()
        try:
            complaint = saves.check(directory)
        except Failed as e:
            complaint = str(e)
        if complaint:
            notes.append(f"kill at a random moment: {complaint}")
    counts = ", ".join(f"{n} {operation}" for operation, n in hits.items())
    reached = min(hits["write"], hits["fsync"], hits["rename"]) > 0
    return judge(not notes and reached, "; ".join(notes[:3]) or f"killed before each of {counts}, and at {DELAYED_KILLS}"
                 " random moments of slowed saves: all load")
