#!/usr/bin/env python3
"""Compares k accumulated micro-batches with one batch k times as large, window by window, in the same order.

usage: alignment.py [--json FILE]

The model is a perceptron of 6 linear layers and 3 layer norms of width 128, in f32, with the mean squared error: 48
micro-batches of 32 against 12 batches of 128. The first table shows the mean loss of each window beside the batch's,
and the largest difference of a parameter after it. The cases after it are other updates, sums of means, uneven weights,
windows that are closed early, and one micro-batch with an infinity, whose window must leave no trace. Adam divides by
the size of gradients, also of those that are as small as their rounding errors: in f32 its epsilon is 1e-6, in f64
1e-8.

Exits 1 if a loss is off by more than 1e-7 or a parameter by more than 1e-6 (f64: 1e-12), or if a parameter changes
inside a window.
"""
import argparse
import json
import os
import sys
import tempfile

import numpy as np

from common import ROOT, RUNTIME_LIBRARY, compile_module, largest
from trainc_ctypes import Runtime, Trainer

sys.path.insert(0, os.path.join(ROOT, "examples"))
from trainc_text import MESH, SPLIT, Module  # noqa: E402

WIDTH, OUTPUTS, MICRO, K, WINDOWS, SEED = 128, 16, 32, 4, 12, 3
BARS = dict(f32=(1e-7, 1e-6), f64=(1e-12, 1e-12))  # of losses (relative where above 1) and weights
SGD, ADAM, ADAM32 = "sgd<lr = 0.01>", "adam<lr = 0.001>", "adam<lr = 0.001, eps = 1.0e-6>"
SUM = f"accumulate({K}, average = false)"
CLIP = "clip(global_norm<0.1>)"


def module(optimizer, batch, clauses="", factor=1.0, element="f32"):
    """The model on `batch` examples, each element of whose loss has a weight; the loss is `factor` times their mean. On
    several ranks each pair of linear layers is split by columns, then by rows."""
    m = Module(element)
    m.lines.append(MESH)
    m.lines.append(f"train.optimizer @optimizer = {optimizer}")
    for i in range(3):
        m.norm(f"norm{i}", WIDTH)
        m.linear(f"up{i}", WIDTH, WIDTH, init="normal<0.06>", split=1)
        m.linear(f"down{i}", WIDTH, WIDTH if i < 2 else OUTPUTS, init="normal<0.06>", split=0)

    def loss(body, x, y, w):
        for i in range(3):
            x = body.norm("layer_norm", x, f"norm{i}")
            x = body.linear(body.pointwise("gelu", body.linear(x, f"up{i}"), " tanh"), f"down{i}")
        total, count = body.op(f"nn.mse {x.name}, {y.name} weights {w.name} : {x.type}, {y.type}, {w.type}",
                               ((), element), ((), element))
        if factor != 1.0:
            by = body.op(f"nn.constant dense<{factor}> : tensor<{element}>", ((), element))
            total = body.binary("mul", total, by)
        return total, count

    shapes = [("x", (batch, WIDTH), element), ("y", (batch, OUTPUTS), element), ("w", (batch, OUTPUTS), element)]
    m.step(shapes, loss, " " + clauses, SPLIT)
    return str(m)


def data(windows, uneven=False):
    """Inputs of `windows` big batches; if `uneven`, most examples of some micro-batches count 0."""
    rng = np.random.default_rng(11)
    total = windows * K * MICRO
    x = rng.standard_normal((total, WIDTH)).astype(np.float32)
    y = 0.5 * np.tanh(x @ rng.standard_normal((WIDTH, OUTPUTS)) / 8).astype(np.float32)
    w = np.ones((total, OUTPUTS), np.float32)
    if uneven:
        kept = np.repeat(rng.uniform(0.02, 1.0, total // MICRO), MICRO)
        w[rng.uniform(size=total) > kept] = 0
    return x, y, w


def part(arrays, first, count):
    return {name: a[first:first + count] for name, a in zip("xyw", arrays)}


def parameters(trainer):
    return {n: trainer.read(n) for n in trainer.names()}


def equal(a, b):
    return all(np.array_equal(a[n], b[n]) for n in a)


def difference(a, b):
    return largest(float(np.abs(a[n] - b[n]).max()) for n in a)


class Folder:
    """Compiles modules and makes trainers of them."""

    def __init__(self, path):
        self.path, self.runtime, self.libraries = path, Runtime(RUNTIME_LIBRARY), {}

    def trainer(self, text, *options):
        key = text, *options
        if key not in self.libraries:
            self.libraries[key] = compile_module(text, os.path.join(self.path, f"m{len(self.libraries)}.so"), *options)
        return Trainer(self.runtime, self.libraries[key], threads=2, seed=SEED)

    def move(self, source, target):
        """The state of one trainer into another."""
        path = os.path.join(self.path, "state")
        source.save(path)
        target.load(path)


def accumulate(trainer, arrays, first, sizes):
    """The micro-steps of one window, closed by a flush if fewer than K; (last result, whether nothing moved before)."""
    before, still = parameters(trainer), True
    for i in range(sizes):
        if i:
            still &= equal(before, parameters(trainer))
        result = trainer.step(**part(arrays, first + i * MICRO, MICRO))
    if sizes < K:
        still &= equal(before, parameters(trainer))
        result = trainer.flush()
    return result, still


def large_batches(folder, optimizer, clauses="", factor=1.0, sizes=(K,) * WINDOWS, uneven=False, element="f32"):
    """(result, parameters) of each window, whose micro-batches are one batch; `sizes` says how many they are."""
    arrays, first, big, found = data(len(sizes), uneven), 0, None, []
    for window, size in enumerate(sizes):
        if not window or size != sizes[window - 1]:
            previous, big = big, folder.trainer(module(optimizer, MICRO * size, clauses, factor, element))
            if previous:
                folder.move(previous, big)
                previous.close()
        found.append((big.step(**part(arrays, first, size * MICRO)), parameters(big)))
        first += size * MICRO
    big.close()
    return found


def compare(folder, optimizer, clauses="", merge=f"accumulate({K})", factor=1.0, sizes=(K,) * WINDOWS,
            uneven=False, element="f32"):
    """Rows (mean loss of the window, of the batch, largest difference of a parameter), the largest differences of
    losses and of parameters, and what went wrong; `sizes` are the micro-batches of each window."""
    arrays, rows, wrong, first = data(WINDOWS, uneven), [], [], 0
    large = large_batches(folder, optimizer, clauses, factor, sizes, uneven, element)
    with folder.trainer(module(optimizer, MICRO, f"{merge} {clauses}", element=element)) as micro:
        for window, (size, (theirs, weights)) in enumerate(zip(sizes, large)):
            ours, still = accumulate(micro, arrays, first, size)
            first += size * MICRO
            rows.append((ours.window_loss, theirs.window_loss / factor, difference(parameters(micro), weights)))
            if not still:
                wrong.append(f"parameters changed inside window {window + 1}")
            if not ours.closed or not ours.updated or ours.update != window + 1:
                wrong.append(f"window {window + 1} ended without its update")
            if abs(ours.grad_norm / theirs.grad_norm - 1) > 1e-5:
                wrong.append(f"window {window + 1}: norms {ours.grad_norm} and {theirs.grad_norm}")
            if "clip" in clauses and not ours.clip_factor < 1:
                wrong.append(f"window {window + 1} was not clipped")
    losses, weights = differences(rows)
    if not (losses <= BARS[element][0] and weights <= BARS[element][1]):
        wrong.append(f"losses off by {losses:.1e}, weights by {weights:.1e}")
    return rows, losses, weights, wrong


def differences(rows):
    """The largest of losses, relative where above 1, and of parameters."""
    return largest(abs(a - b) / max(1.0, abs(b)) for a, b, _ in rows), largest(r[2] for r in rows)


def everything(trainer):
    """All parameters, their compute copies and states."""
    roles = ("parameter", "compute", "state")
    return {key: trainer.read(key[1], key[0], key[2]) for key in trainer.tensors if key[0] in roles}


def poisoned(folder, place, optimizer="adamw<lr = 0.001, weight_decay = 0.1>", windows=4, bad=1):
    """In f16, an infinity in micro-batch `place` of window `bad`; what went wrong."""
    clauses = f"accumulate({K}) {CLIP} precision(compute = f16) loss_scale(1024.0)"
    arrays, wrong = data(windows), []
    spoiled = (arrays[0].copy(), *arrays[1:])
    spoiled[0][(bad * K + place) * MICRO + 5, 7] = np.inf
    text = module(optimizer, MICRO, clauses)
    with folder.trainer(text) as with_it, folder.trainer(text) as without:
        for window in range(windows):
            first = window * K * MICRO
            before = everything(with_it)
            result, still = accumulate(with_it, spoiled, first, K)
            if not still:
                wrong.append(f"parameters changed inside window {window + 1}")
            if window != bad:
                other, _ = accumulate(without, arrays, first, K)
                if result.window_loss != other.window_loss or result.grad_norm != other.grad_norm:
                    wrong.append(f"window {window + 1} differs from a run without the infinity")
            elif not equal(before, everything(with_it)):
                wrong.append("the skipped window changed a parameter, copy or state")
            if (result.updated, result.finite) != ((0, 0) if window == bad else (1, 1)):
                wrong.append(f"window {window + 1}: updated {result.updated}, finite {result.finite}")
            if result.skipped != (window >= bad) or result.update != window + (window < bad):
                wrong.append(f"window {window + 1}: {result.skipped} skipped, {result.update} updates")
        if not equal(everything(with_it), everything(without)):
            wrong.append("the window left a trace in a parameter, copy or state")
    return wrong


def cases():
    """name -> arguments of `compare`; the first is the published table."""
    yield "SGD", dict(optimizer=SGD)
    yield "SGD, sum of means", dict(optimizer=SGD, merge=SUM, factor=float(K))
    yield "SGD, uneven weights", dict(optimizer=SGD, uneven=True)
    yield "SGD, sum, uneven weights", dict(optimizer=SGD, merge=SUM, factor=float(K), uneven=True)
    early = [4, 3, 1, 4, 2, 4, 4, 4, 3, 4, 4, 4]
    for element, adam in (("f32", ADAM32), ("f64", ADAM)):
        both = dict(optimizer=adam, clauses=CLIP, element=element)
        yield f"Adam, clip, {element}", both
        yield f"Adam, clip, sum of means, {element}", dict(both, merge=SUM, factor=float(K))
        yield f"Adam, clip, closed early, {element}", dict(both, sizes=early, uneven=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--json", help="write {case: {loss, weight: largest differences, wrong: list}} here")
    a = p.parse_args()
    results = {}
    with tempfile.TemporaryDirectory() as path:
        folder = Folder(path)
        for name, arguments in cases():
            rows, losses, weights, wrong = compare(folder, **arguments)
            if not results:
                print(f"{name}\nwindow  mean of {K} x {MICRO}  batch of {K * MICRO}  difference  weights differ by")
                for i, (ours, theirs, worst) in enumerate(rows):
                    print(f"{i + 1:6} {ours:15.8f} {theirs:13.8f} {abs(ours - theirs):11.1e} {worst:13.1e}")
                print()
            results[name] = dict(loss=losses, weight=weights, wrong=wrong)
            print(f"{name:36} losses {losses:.1e}  weights {weights:.1e}  {'; '.join(wrong) or 'ok'}", flush=True)
        for place in range(K):
            name = f"f16, infinity in micro-batch {place + 1}"
            wrong = poisoned(folder, place)
            results[name] = dict(loss=0.0, weight=0.0, wrong=wrong)
            print(f"{name:36} {'; '.join(wrong) or 'ok: no trace, one skip'}", flush=True)
    if a.json:
        with open(a.json, "w") as f:
            json.dump(results, f)
    return any(r["wrong"] for r in results.values())


if __name__ == "__main__":
    sys.exit(main())
