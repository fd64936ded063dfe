"""Timing a step with one pass and without it: both artifacts take turns in one process and end with the same bits."""
import os
import statistics
import time

import numpy as np

from commands import Spans, commands, copied_elements, elements_cast
from common import RUNTIME_LIBRARY, Failed, compile_module, generate, workload_module
from timing import ROUNDS
from trainc_ctypes import Runtime, Trainer, shape_of
from workloads import WORKLOADS

# GPTs of 25 x 12 + 4 = 304 tensors: {name: (width, tokens per step)}.
MANY_TENSORS = {f"{width} x {tokens}": (width, tokens) for width in (64, 128, 256) for tokens in (16, 64, 256)}
VOCABULARY = 512
PLACES = 4  # pairs of runs of each order: where memory lies differs from run to run
BF16 = ["gpt-char-accum4", "gpt2-124m", "gpt2-124m-accum4"]
BLOCK_SECONDS = 0.4


def many_tensors(point):
    width, tokens = MANY_TENSORS[point]
    length = min(tokens, 64)
    return generate("gpt", "--layers", 25, "--width", width, "--heads", width // 16, "--vocab", VOCABULARY,
                    "--batch", tokens // length, "--seq", length)


class Windows:
    """A trainer, and what its windows took, each of other random tokens."""

    def __init__(self, runtime, library, vocabulary):
        self.trainer = Trainer(runtime, library)
        entry = self.trainer.descriptor.entries[self.trainer.entries["step"]]
        self.accumulate, self.vocabulary = entry.accumulate, vocabulary
        self.inputs = {p.name.decode(): shape_of(p) for p in entry.inputs[:entry.num_inputs]}
        self.rng = np.random.default_rng(1)
        self.spans = Spans(self.trainer)
        self.parts = dict(step_ms=[], apply=[])

    def window(self):
        """Milliseconds of one."""
        self.trainer.bind("step", **{name: self.rng.integers(0, self.vocabulary, shape)
                                     for name, shape in self.inputs.items()})
        begin = time.perf_counter()
        for _ in range(self.accumulate):
            self.trainer.step()
        return (time.perf_counter() - begin) * 1e3

    def observed(self):
        """Milliseconds of one window in the commands after its backward passes."""
        with self.spans:
            self.window()
        return self.spans.ms("apply")

    def block(self, windows):
        self.parts["step_ms"].append(statistics.median(self.window() for _ in range(windows)))
        self.parts["apply"].append(statistics.median(self.observed() for _ in range(max(3, windows // 4))))


def expect_equal(a, b):
    for name in a.names():
        if not np.array_equal(a.read(name).view(np.uint8), b.read(name).view(np.uint8)):
            raise Failed(f"parameter {name} depends on the pass")


def time_pair(libraries, vocabulary, rounds=ROUNDS):
    """{name: {part: [median ms of each round]}} of {name: library}: windows, their part 'apply', its 'commands'."""
    runtime, pair = Runtime(RUNTIME_LIBRARY), {}
    try:
        for name, library in libraries.items():
            pair[name] = Windows(runtime, library, vocabulary)
        slowest = max(min(p.window() for _ in range(3)) for p in pair.values())
        windows = min(200, max(3, int(BLOCK_SECONDS * 1e3 / slowest)))
        for turn in range(rounds):
            for name in list(pair)[::1 if turn % 2 else -1]:
                pair[name].block(windows)
        expect_equal(*(p.trainer for p in pair.values()))
        return {name: dict(p.parts, commands=len(commands(p.trainer, "step")["apply"])) for name, p in pair.items()}
    finally:
        for p in pair.values():
            p.trainer.close()


def with_and_without(text, disabled, folder):
    """{'on', 'off': library} of a module compiled with all passes, and with all but one."""
    return {"on": compile_module(text, os.path.join(folder, "on.so")),
            "off": compile_module(text, os.path.join(folder, "off.so"), f"--disable-pass={disabled}")}


def time_fusion(point, folder, rounds=ROUNDS):
    """A point of MANY_TENSORS with one norm and one update for all tensors ('on'), and with them per tensor ('off')."""
    return time_pair(with_and_without(many_tensors(point), "train-fuse-optimizer", folder), VOCABULARY, rounds)


def time_casts(name, folder, rounds=ROUNDS):
    """A workload in bf16 whose update writes the parameters in bf16 ('on'), and whose every micro-step casts them."""
    w = WORKLOADS[name]
    return time_pair(with_and_without(workload_module(w, "--bf16"), "train-hoist-casts", folder), w.vocab, rounds)


def time_window_of_one(text, folder, rounds=ROUNDS):
    """Pairs of a step with `accumulate(1)` ('on') and without the clause; Failed if a form or the library differs. Where its
    memory lies makes more of a difference than 2 % to one run: in every second pair the other one has it first.
    """
    head = "train.step @step("
    line = next(line for line in text.splitlines() if line.startswith(head))
    texts = dict(on=text.replace(line, line.replace(") clip(", ") accumulate(1) clip(", 1)), off=text)
    if texts["on"] == text:
        raise Failed("the step has no clip to stand before")
    libraries, written = {}, {}
    for name, text in texts.items():
        inside = os.path.join(folder, name)
        os.mkdir(inside)
        libraries[name] = compile_module(text, os.path.join(inside, "model.so"), f"--dump={inside}/forms")
        forms = [f"forms/{form}" for form in sorted(os.listdir(f"{inside}/forms"))]
        written[name] = {path: open(os.path.join(inside, path), "rb").read() for path in ["model.so", *forms]}
    differing = [path for path in written["on"] if written["on"][path] != written["off"].get(path)]
    if differing:
        raise Failed(f"accumulate(1) changes {', '.join(differing)}")
    return [time_pair({name: libraries[name] for name in order}, VOCABULARY, rounds)
            for order in (("on", "off"), ("off", "on")) * PLACES]


def cast_elements(library, vocabulary):
    """(elements of parameters cast in one window, elements of all copies of parameters)."""
    windows = Windows(Runtime(RUNTIME_LIBRARY), library, vocabulary)
    with windows.trainer as trainer:
        windows.observed()
        casts = sum(int(runs) * elements_cast(trainer, command) for name, listed in windows.spans.commands.items()
                    for command, (runs, _) in zip(listed, windows.spans.of[name]))
        return casts, copied_elements(trainer)


def gains(times, part="step_ms"):
    """off / on of each round."""
    return [off / on for off, on in zip(times["off"][part], times["on"][part])]


def movement(times):
    """How far the slower side itself moved between the rounds."""
    return max(times["off"]["step_ms"]) / min(times["off"]["step_ms"])
