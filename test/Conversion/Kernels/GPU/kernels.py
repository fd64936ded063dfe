# REQUIRES: numpy
# RUN: %python %s %runtime_lib/libtrainc_emulator.so %t
"""Kernels of whole models on the emulator against the CPU target: each kernel's body is also an eval.

usage: kernels.py EMULATOR FOLDER [MODEL]
"""
import os
import re
import subprocess
import sys

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))))
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(ROOT, "test", "Target", "GPU", "Inputs"),
                os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs")]

from common import RUNTIME_LIBRARY, compile_module, generate, tool  # noqa: E402
from emulator import Device, aligned, from_bf16, to_bf16  # noqa: E402
from lowered import emulate  # noqa: E402
from trainc_ctypes import Runtime, Trainer  # noqa: E402

MODELS = {
    "gpt": ("gpt", "--layers", 1, "--width", 48, "--heads", 3, "--vocab", 101, "--batch", 3, "--seq", 20, "--context", 20),
    "gpt-bf16": ("gpt", "--layers", 1, "--width", 64, "--heads", 2, "--vocab", 1537, "--batch", 2, "--seq", 16, "--context",
                 16, "--bf16"),
    "gpt-rows": ("gpt", "--layers", 1, "--width", 32, "--heads", 1, "--vocab", 9001, "--batch", 1, "--seq", 6, "--context", 6,
                 "--bf16"),
    "llama": ("llama", "--layers", 1, "--width", 64, "--heads", 4, "--seq", 24, "--batch", 2),
    "cnn": ("cnn", "--batch", 5),
    "mlp": ("mlp", "--batch", 300),
}
FLOATS = {"f32": np.float32, "f64": np.float64, "f16": np.float16}
INTEGERS = {"i1": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64}
STEP = """
train.optimizer @never(%p: f32, %g: f32) {
  train.yield %p : f32
}
train.param @none : tensor<1xf32> init(ones) optimizer(@never)
train.step @step(%x: tensor<1xf32>) {
  %p = train.read @none : tensor<1xf32>
  %y = nn.mul %p, %x : tensor<1xf32>, tensor<1xf32>
  %s = nn.reduce sum %y dims [0] : tensor<1xf32>
  train.yield loss(%s) : tensor<f32>
}
"""


class Kernel:
    def __init__(self, text):
        head, self.body = re.match(r" *train\.kernel ([^\n]*) \{\n(.*)\n *\}\n$", text, re.S).groups()
        self.text = text
        self.name = re.match(r"@(\w+)", head)[1]
        self.arguments = re.findall(r"(%\w+): tensor<([^>]*)>", head)
        self.inplace = [int(i) for i in re.search(r"inplace \[(.*)\]", head)[1].split(",")]
        self.operations, end = self.body.rsplit("train.return ", 1)
        values, types = end.split(" : ")
        self.results = list(zip(values.split(", "), re.findall(r"tensor<([^>]*)>", types)))

    def is_of_tensors(self):
        """Whether an eval can do the same."""
        return "train." not in self.operations

    def eval(self):
        """The kernel as an eval on f32 for bf16."""
        head, before, after, results = [], [], [], []
        for name, type in self.arguments:
            if type.endswith("bf16"):
                head.append(f"{name}w: tensor<{type[:-4]}f32>")
                before.append(f"{name} = nn.cast {name}w to bf16 : tensor<{type[:-4]}f32>")
            else:
                head.append(f"{name}: tensor<{type}>")
        for i, (value, type) in enumerate(self.results):
            if type.endswith("bf16"):
                after.append(f"%r{i}w = nn.cast {value} to f32 : tensor<{type}>")
                results.append((f"%r{i}w", type[:-4] + "f32"))
            else:
                results.append((value, type))
        outputs = ", ".join(f'"r{i}"' for i in range(len(results)))
        return (f"train.eval @{self.name}({', '.join(head)}) -> ({outputs}) {{\n" + "\n".join(before) + "\n" + self.operations
                + "\n".join(after) + f"\ntrain.yield {', '.join(v for v, _ in results)} : "
                + ", ".join(f"tensor<{t}>" for _, t in results) + "\n}\n")


def split(type):
    *shape, element = type.split("x")
    return tuple(map(int, shape)), element


def values(rng, type, signed):
    shape, element = split(type)
    if element in INTEGERS:
        return rng.integers(0, 2 if element == "i1" else 7, shape).astype(INTEGERS[element])
    x = rng.standard_normal(shape).astype(FLOATS.get(element, np.float32))
    if not signed:
        x = np.abs(x) + FLOATS.get(element, np.float32)(0.1)
    return from_bf16(to_bf16(x)) if element == "bf16" else x


def stored(x, element):
    """As it stands on the device."""
    if element == "bf16":
        return aligned(to_bf16(x))
    return aligned(np.array(x, np.uint8) if element == "i1" else x)


def shown(x, element):
    return from_bf16(x) if element == "bf16" else x.astype(np.bool_) if element == "i1" else x


def run(device, kernel, launch, arrays):
    """The results, by number."""
    held = [stored(x, split(type)[1]) for x, (_, type) in zip(arrays, kernel.arguments)]
    results, more = [], []
    for index, (_, type) in zip(kernel.inplace, kernel.results):
        shape, element = split(type)
        if index < 0:
            more.append(stored(np.zeros(shape, INTEGERS.get(element, FLOATS.get(element, np.float32))), element))
        results.append(held[index] if index >= 0 else more[-1])
    if "scratch" in launch:
        more.append(aligned(np.zeros(launch["scratch"], np.uint8)))
    device.launch(kernel.name, launch["workgroups"], launch["threads"], *held, *more)
    if "scratch" in launch and more[-1][:4 << 14].any():
        raise AssertionError("leaves counters that are not 0")
    return [shown(x, split(type)[1]) for x, (_, type) in zip(results, kernel.results)]


def difference(a, b, element):
    if element in INTEGERS:
        return float((a != b).any())
    a, b = a.astype(np.float64), b.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    # A single value may be a sum of numbers near 1 that cancel.
    scale = np.max(np.abs(np.where(np.isfinite(b), b, 0)), initial=1 if b.size == 1 else 1e-3)
    return float(np.max(np.where(same, 0, np.abs(a - b)) / scale, initial=0))


def main():
    emulator, folder, *only = sys.argv[1:]
    os.makedirs(folder, exist_ok=True)
    rng, bad, count = np.random.default_rng(3), [], 0
    for model in only or MODELS:
        source = os.path.join(folder, "model.mlir")
        with open(source, "w") as f:
            f.write(generate(*MODELS[model]))
        commands = subprocess.run([tool("trainc"), source, "--stop-after=commands", "-o", "-"], check=True,
                                  capture_output=True, text=True).stdout
        # Gradients of attention have an operand more on a GPU: see attention.py.
        kernels = [Kernel(text) for text in re.findall(r"^ *train\.kernel .*?^  }\n", commands, re.M | re.S)
                   if "attention_grad" not in text]
        launches, image = emulate("".join(k.text for k in kernels), folder)
        tensors = [k for k in kernels if k.is_of_tensors()]
        library = compile_module(STEP + "".join(k.eval() for k in tensors), os.path.join(folder, "evals.so"))
        device = Device(emulator, image)
        with Trainer(Runtime(RUNTIME_LIBRARY), library, threads=1) as trainer:
            for kernel in tensors:
                for signed in (True, False):
                    arrays = [values(rng, type, signed) for _, type in kernel.arguments]
                    expected = trainer.eval(kernel.name, **{
                        name[1:] + "w" * type.endswith("bf16"): x for x, (name, type) in zip(arrays, kernel.arguments)})
                    found = run(device, kernel, launches[kernel.name], arrays)
                    for i, (_, type) in enumerate(kernel.results):
                        element = split(type)[1]
                        error = difference(found[i], np.array(expected[f"r{i}"]), element)
                        bound = {"bf16": 2e-2, "f16": 2e-3, "f64": 1e-12}.get(element, 2e-5)
                        count += 1
                        if not error <= bound:
                            bad.append(f"{model} {kernel.name} result {i} ({type}): {error:.1e}")
        device.close()
    print("\n".join(bad) or f"{count} results agree")
    sys.exit(len(bad) > 0)


if __name__ == "__main__":
    main()
