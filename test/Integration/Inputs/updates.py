"""Steps whose gradients are given, and what their updates are by NumPy in f64.

The loss is the sum of parameter times input, so that the gradient is the input.
"""
import ctypes
import functools
import os
import sys
import tempfile

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.join(ROOT, "bench"))

from common import RUNTIME_LIBRARY, compile_module, largest  # noqa: E402
from trainc_ctypes import Runtime, Trainer  # noqa: E402

UNFUSED, UNCOALESCED, UNHOISTED = (f"--disable-pass=train-{p}" for p in ("fuse-optimizer", "coalesce", "hoist-casts"))
WAYS = [(), (UNFUSED,), (UNCOALESCED,)]
BARS = dict(f64=1e-12, f32=2e-6)  # of a tensor: norm of the difference over the norm


def tensor(shape, element):
    return f"tensor<{'x'.join([*map(str, shape), element])}>"


def module(optimizers, parameters, clauses=""):
    """Parameters are (name, shape, element, optimizer or "frozen"); the gradient of p is the input gp."""
    lines, total = [optimizers], None
    for name, shape, element, optimizer in parameters:
        end = "frozen" if optimizer == "frozen" else f"optimizer(@{optimizer})"
        lines.append(f"train.param @{name} : {tensor(shape, element)} init(normal<0.5>) {end}")
    inputs = ", ".join(f"%g{name}: {tensor(shape, 'f64' if element == 'f64' else 'f32')}"
                       for name, shape, element, _ in parameters)
    lines.append(f"train.step @step({inputs}) {clauses} {{")
    for name, shape, element, _ in parameters:
        wide = "f64" if element == "f64" else "f32"
        t, w = tensor(shape, element), tensor(shape, wide)
        lines.append(f"%{name} = train.read @{name} : {t}")
        value = f"%{name}"
        if element != wide:
            lines.append(f"%w{name} = nn.cast {value} to f32 : {t}")
            value = f"%w{name}"
        lines += [f"%m{name} = nn.mul {value}, %g{name} : {w}, {w}",
                  f"%r{name} = nn.reduce sum %m{name} dims {list(range(len(shape)))} : {w}"]
        part = f"%r{name}"
        if wide == "f32":
            lines.append(f"%s{name} = nn.cast {part} to f64 : tensor<f32>")
            part = f"%s{name}"
        if total:
            lines.append(f"%t{name} = nn.add {total}, {part} : tensor<f64>, tensor<f64>")
        total = f"%t{name}" if total else part
    return "\n".join([*lines, f"train.yield loss({total}) : tensor<f64>", "}", ""])


FOLDER = tempfile.TemporaryDirectory()


@functools.cache
def compiled(text, options):
    # A checkpoint says the name of its artifact: the same for all.
    return compile_module(text, os.path.join(tempfile.mkdtemp(dir=FOLDER.name), "updates.so"), *options)


def trainer(text, *options, threads=2):
    """A trainer of the module."""
    return Trainer(Runtime(RUNTIME_LIBRARY), compiled(text, options), threads=threads, seed=1)


def stored(t):
    """The bytes of a checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "state")
        t.save(path)
        with open(path, "rb") as f:
            return f.read()


def load(t, content):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "state")
        with open(path, "wb") as f:
            f.write(content)
        t.load(path)


def parameters_of(t):
    return {n: t.read(n) for n in t.names()}


def states_of(t):
    return {key: t.read(key[1], "state", key[2]) for key in t.tensors if key[0] == "state"}


def data_of(t, index):
    data = ctypes.c_void_p()
    t.runtime.call("trainc_tensor_data", t.trainer, ctypes.c_uint32(index), ctypes.byref(data))
    return data.value


def gaps(t):
    """(address, bytes) of the padding between the tensors of each arena."""
    arenas, found = {}, []
    for i in range(t.descriptor.num_tensors):
        tensor = t.descriptor.tensors[i]
        arenas.setdefault(tensor.arena, []).append((tensor.offset, tensor.bytes, i))
    for places in arenas.values():
        places.sort()
        for (offset, size, i), (following, *_) in zip(places, places[1:]):
            if following > offset + size:
                found.append((data_of(t, i) + size, following - offset - size))
    return found


def equal(a, b):
    return a.keys() == b.keys() and all(np.array_equal(a[k], b[k], equal_nan=True) for k in a)


# What updates are.

def clip_factors(gradients, kind=None, limit=0.0, left_out=()):
    """(norm of all that take part, what each gradient is multiplied with)."""
    squares = {n: float(np.sum(g * g)) for n, g in gradients.items()}
    norm = np.sqrt(sum(s for n, s in squares.items() if n not in left_out))

    def factor(n):
        if n in left_out or kind is None:
            return 1.0
        return limit / max(limit, norm if kind == "global_norm" else np.sqrt(squares[n]))

    return norm, {n: factor(n) for n in gradients}


class Sgd:
    """Of one parameter."""

    def __init__(self, lr, momentum=0.0, weight_decay=0.0, l2=0.0):
        self.lr, self.momentum, self.weight_decay, self.l2, self.v = lr, momentum, weight_decay, l2, 0.0

    def __call__(self, p, g):
        self.v = self.momentum * self.v + g + self.l2 * p
        return p - self.lr * self.v - self.lr * self.weight_decay * p


class Adam:
    def __init__(self, lr, b1=0.9, b2=0.999, eps=1e-8, weight_decay=0.0, l2=0.0):
        self.lr, self.b1, self.b2, self.eps, self.weight_decay, self.l2 = lr, b1, b2, eps, weight_decay, l2
        self.m = self.v = self.t = 0

    def __call__(self, p, g):
        g = g + self.l2 * p
        self.t += 1
        self.m = self.b1 * self.m + (1 - self.b1) * g
        self.v = self.b2 * self.v + (1 - self.b2) * g * g
        m, v = self.m / (1 - self.b1**self.t), self.v / (1 - self.b2**self.t)
        return p - self.lr * (m / (np.sqrt(v) + self.eps) + self.weight_decay * p)


class Problem:
    """Parameters {name: (shape, optimizer or "frozen")}, their first values, and a gradient of each per micro-step."""

    def __init__(self, optimizers, parameters, clauses="", steps=5, size=1.0):
        rng = np.random.default_rng(5)

        def draw(scale):
            return {n: (rng.standard_normal(s) * scale).astype(np.float32).astype(np.float64)
                    for n, (s, _) in parameters.items()}

        self.optimizers, self.parameters, self.clauses = optimizers, parameters, clauses
        self.start = draw(1.0)
        self.gradients = [draw(size) for _ in range(steps)]

    def text(self, element):
        return module(self.optimizers, [(n, s, element, o) for n, (s, o) in self.parameters.items()], self.clauses)

    def run(self, element, *options):
        """The results of all steps, and the parameters after each."""
        results, seen = [], []
        with trainer(self.text(element), *options) as t:
            for n, v in self.start.items():
                t.write(n, v)
            for gradients in self.gradients:
                results.append(t.step(**{f"g{n}": g for n, g in gradients.items()}))
                seen.append(parameters_of(t))
        return results, seen

    def check(self, what, want, norms, elements=("f64", "f32"), bars=BARS):
        """Compares the parameters after each step with `want` and the norms with `norms`, in every way to compile, and
        the ways with each other, bitwise."""
        for element in elements:
            first = None
            for options in WAYS:
                results, seen = self.run(element, *options)
                found = [r.grad_norm for r in results], seen
                first = first or found
                if found[0] != first[0] or not all(equal(a, b) for a, b in zip(seen, first[1])):
                    sys.exit(f"{what}, {element}: {' '.join(options)} changes bits")
            error = largest(float(np.linalg.norm(got[n] - w[n]) / np.linalg.norm(w[n]))
                        for got, w in zip(first[1], want) for n in w)
            off = largest(abs(got - n) / max(n, 1e-300) for got, n in zip(first[0], norms))
            print(f"{what}, {element}: parameters off by {error:.1e}, norms by {off:.1e}")
            if not (error <= bars[element] and off <= bars[element]):
                sys.exit(f"{what}, {element}: more than {bars[element]:.1e}")


def reference(problem, rules, kind=None, limit=0.0, left_out=()):
    """(parameters, norms) after each of the updates, of one micro-step each, by `rules` {parameter: Sgd or Adam}."""
    p, seen, norms = dict(problem.start), [], []
    for gradients in problem.gradients:
        gradients = {n: g for n, g in gradients.items() if n in rules}
        norm, factors = clip_factors(gradients, kind, limit, left_out)
        norms.append(norm)
        p = p | {n: rules[n](p[n], g * factors[n] if kind != "value" or n in left_out else np.clip(g, -limit, limit))
                 for n, g in gradients.items()}
        seen.append(p)
    return seen, norms
