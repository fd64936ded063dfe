"""A trainer in another process, for another architecture: remote.c, run by qemu, with the methods of trainc_ctypes.Trainer.

Floating types that NumPy lacks are read and written as float32.
"""
import os
import subprocess
from types import SimpleNamespace

import numpy as np

from common import BUILD, ROOT, compiled
from trainc_ctypes import BF16, DTYPES, F16, F32, Error
from trainc._runtime import ROLES

AARCH64_LIB = os.path.join(os.environ.get("TRAINC_BUILD_AARCH64", os.path.join(ROOT, "build-aarch64")), "lib")
# What a step answers.
NUMBERS = ("loss", "weight", "window_loss", "window_weight", "grad_norm", "clip_factor")
FLAGS = ("closed", "finite", "updated")
QEMU = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", "-cpu"]


def program():
    """remote.c for AArch64."""
    archive = os.path.join(AARCH64_LIB, "libtrainc_runtime.a")
    output = os.path.join(BUILD, "bench", "remote-aarch64")
    if os.path.exists(output) and os.path.getmtime(output) < os.path.getmtime(archive):
        os.remove(output)
    return compiled(os.path.join(ROOT, "bench", "remote.c"), output, "clang-22", "--target=aarch64-linux-gnu", "-fuse-ld=lld", "-O1",
                    "-I" + os.path.join(ROOT, "runtime", "include"), archive, "-lm", "-ldl", "-pthread")


def shape(text):
    return tuple(int(size) for size in text.split("x") if size)


class Trainer:
    """Of an artifact for AArch64, on a CPU that qemu knows."""

    def __init__(self, path, cpu="max", threads=2, seed=0):
        self.process = subprocess.Popen([*QEMU, cpu, program(), path, str(threads), str(seed)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)
        self.tensors, self.entries, self.kinds, self.ports = {}, {}, [], []
        self.descriptor = SimpleNamespace(entries=self.ports)
        while True:
            kind, *words = self.line().split("\t")
            if kind == "end":
                break
            if kind == "tensor":
                role, name, state, dtype, dims = words
                self.tensors[ROLES[int(role)], name, state or None] = len(self.kinds)
                self.kinds.append((int(dtype), shape(dims)))
            elif kind == "entry":
                self.entries[words[0]] = len(self.ports)
                self.ports.append(SimpleNamespace(input={}, output={}, accumulate=int(words[1])))
            else:
                getattr(self.ports[-1], kind)[words[0]] = int(words[1]), shape(words[2])

    def line(self):
        text = self.process.stdout.readline().decode().rstrip("\n")
        if not text or text.startswith("error"):
            raise Error(text or f"the trainer ended with {self.process.wait()}")
        return text

    def ask(self, request, data=b""):
        self.process.stdin.write(request.encode() + b"\n" + data)
        self.process.stdin.flush()
        return self.line().split()[1:]

    def close(self):
        self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def bind(self, entry, **inputs):
        e = self.entries[entry]
        names = list(self.ports[e].input)
        for name, value in inputs.items():
            dtype, dims = self.ports[e].input[name]
            array = np.ascontiguousarray(value, DTYPES[dtype]).reshape(dims)
            self.ask(f"bind {e} {names.index(name)} {array.nbytes}", array.tobytes())

    def step(self, entry="step", **inputs):
        self.bind(entry, **inputs)
        words = self.ask(f"step {self.entries[entry]}")
        return SimpleNamespace(**dict(zip(NUMBERS, map(float.fromhex, words))), **dict(zip(FLAGS, map(int, words[len(NUMBERS):]))))

    def eval(self, entry, **inputs):
        self.bind(entry, **inputs)
        self.ask(f"eval {self.entries[entry]}")
        return self.outputs(entry)

    def outputs(self, entry="step"):
        self.ask(f"outputs {self.entries[entry]}")
        outputs = {}
        for name, (dtype, dims) in self.ports[self.entries[entry]].output.items():
            size = 2 if dtype in (BF16, F16) else np.dtype(DTYPES[dtype]).itemsize
            bits = self.process.stdout.read(size * int(np.prod(dims, dtype=np.int64)))
            if dtype == BF16:
                array = (np.frombuffer(bits, np.uint16).astype(np.uint32) << 16).view(np.float32)
            else:
                array = np.frombuffer(bits, np.float16 if dtype == F16 else DTYPES[dtype])
            outputs[name] = array.astype(np.float32 if dtype == F16 else array.dtype).reshape(dims)
        return outputs

    def _tensor(self, role, name, state):
        index = self.tensors[role, name, state]
        dtype, dims = self.kinds[index]
        return index, F32 if dtype in (BF16, F16) else dtype, dims

    def read(self, name, role="parameter", state=None):
        index, dtype, dims = self._tensor(role, name, state)
        array = np.empty(dims, DTYPES[dtype])
        self.ask(f"read {index} {dtype} {array.nbytes}")
        return np.frombuffer(self.process.stdout.read(array.nbytes), array.dtype).reshape(dims)

    def write(self, name, value, role="parameter", state=None):
        index, dtype, dims = self._tensor(role, name, state)
        array = np.ascontiguousarray(value, DTYPES[dtype]).reshape(dims)
        self.ask(f"write {index} {dtype} {array.nbytes}", array.tobytes())

    def scalar(self, name):
        return float.fromhex(self.ask(f"scalar {name}")[0])

    def save(self, path):
        self.ask(f"save {path}")

    def load(self, path):
        self.ask(f"load {path}")
