# REQUIRES: numpy
# RUN: %python %s
"""Dropout inside attention, its output and gradients, against NumPy with the draws of the definition: processors, code by
definitions, and the GPU of tests.

Steps with a learning rate of 0 train q, k and v in windows of two, so that each micro-step draws other numbers; an eval has no
dropout.
"""
import os
import sys
import tempfile

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench"))

from common import BUILD, RUNTIME_LIBRARY, compile_module  # noqa: E402
from oracle.philox import dropout  # noqa: E402
from trainc_ctypes import Runtime, Trainer  # noqa: E402

for variable, name in (("TRAINC_LIBCUDA", "cuda"), ("TRAINC_LIBCUBLASLT", "cublaslt")):
    os.environ[variable] = os.path.join(BUILD, "lib", f"libtrainc_fake_{name}.so")

SEED, ACCUMULATE = (1 << 40) + 3, 2
BARS = {"f64": 1e-12, "f32": 1e-5, "bf16": 2e-2, "f16": 3e-3}
# Element type, B, Tq, Tk, H, Hk, D, rate, and words of the op; rows of keys of a multiple of 4, and not; blocks of 16 and of 32.
CASES = [
    ("f64", 2, 9, 8, 4, 2, 5, 0.25, ""),
    ("f64", 1, 41, 41, 2, 1, 8, 0.1, "causal"),
    ("f32", 2, 70, 67, 2, 2, 16, 0.5, "causal scale 0.3"),
    ("f32", 1, 150, 150, 4, 2, 16, 0.1, "causal window 40"),
    ("f32", 1, 5, 3, 2, 1, 4, 0.9, ""),
    ("bf16", 1, 33, 64, 2, 2, 32, 0.1, ""),
    ("f16", 1, 20, 20, 2, 1, 16, 0.1, "causal"),
]


def type_of(shape, element):
    return f"tensor<{'x'.join(map(str, shape))}x{element}>"


class Case:
    def __init__(self, element, b, tq, tk, h, hk, d, rate, words):
        self.element, self.rate, self.words, self.scores = element, rate, words, (b, h, tq, tk)
        self.shapes = {"q": (b, tq, h, d), "k": (b, tk, hk, d), "v": (b, tk, hk, d)}
        self.scale = float(words.split("scale ")[1]) if "scale" in words else d**-0.5
        rng = np.random.default_rng(len(words) + tq)
        self.values = {name: rng.standard_normal(shape) for name, shape in self.shapes.items()}
        self.dout = rng.integers(-3, 4, self.shapes["q"]).astype(float)  # exact in every type

    def text(self):
        q, k = (type_of(self.shapes[x], self.element) for x in "qk")
        wide = type_of(self.shapes["q"], "f64")
        reads = "\n".join(f"  %{x} = train.read @{x} : {q if x == 'q' else k}" for x in "qkv")
        op = f"%o, %l = nn.attention %q, %k, %v {self.words} dropout {self.rate} : {q}, {k}"
        params = "\n".join(f"train.param @{x} : {q if x == 'q' else k} init(zeros) optimizer(@o)" for x in "qkv")
        return f"""
train.optimizer @o = sgd<lr = 0.0>
{params}
train.step @step(%wide: {wide}) -> ("out") accumulate({ACCUMULATE}) {{
{reads}
  %d = nn.cast %wide to {self.element} : {wide}
  {op}
  %p = nn.mul %o, %d : {q}, {q}
  %s = nn.reduce sum %p dims [0, 1, 2, 3] : {q}
  %loss = nn.cast %s to f64 : tensor<{self.element}>
  train.yield %o loss(%loss) : {q}, tensor<f64>
}}
train.eval @eval() -> ("out") {{
{reads}
  {op}
  train.yield %o : {q}
}}
"""

    def reference(self, draws, values):
        """(output, gradients) by the definition; `draws` is what probabilities are multiplied by."""
        group = self.shapes["q"][2] // self.shapes["k"][2]
        q, k, v = values["q"], *(np.repeat(values[x], group, 2) for x in "kv")
        scores = self.scale * np.einsum("bihd,bjhd->bhij", q, k)
        if "causal" in self.words:
            i, j = np.indices(scores.shape[2:])
            last = i + scores.shape[3] - scores.shape[2]
            window = int(self.words.split("window ")[1]) if "window" in self.words else np.inf
            scores = np.where((j <= last) & (j > last - window), scores, -np.inf)
        top = scores.max(-1, keepdims=True)
        p = np.exp(scores - np.where(np.isfinite(top), top, 0))
        p /= np.maximum(p.sum(-1, keepdims=True), 1e-300)  # a query may see no key
        out = np.einsum("bhij,bjhd->bihd", p * draws, v)
        dp = np.einsum("bihd,bjhd->bhij", self.dout, v) * draws
        ds = self.scale * p * (dp - (p * dp).sum(-1, keepdims=True))
        grads = {"q": np.einsum("bhij,bjhd->bihd", ds, k), "k": np.einsum("bhij,bihd->bjhd", ds, q),
                 "v": np.einsum("bhij,bihd->bjhd", p * draws, self.dout)}
        for x in "kv":
            grads[x] = grads[x].reshape(*self.shapes[x][:3], group, -1).sum(3)
        return out, grads

    def draws(self, update, micro_step):
        keys = self.scores[-1]
        return dropout((*self.scores[:3], keys + -keys % 4), self.rate, SEED, 0, update, micro_step)[..., :keys]

    def check(self, trainer, what):
        for name, value in self.values.items():
            trainer.write(name, value)
        values = {name: trainer.read(name).astype(np.float64) for name in "qkv"}

        def near(name, got, want):
            error = np.abs(np.asarray(got, np.float64) - want).max() / np.abs(want).max()
            if not error <= BARS[self.element]:
                raise SystemExit(f"{what}, {name}: {error:.1e} from the definition")

        totals = {}
        for step in range(2 * ACCUMULATE):
            update, micro_step = divmod(step, ACCUMULATE)
            draws = self.draws(update, micro_step)
            if not 0 < (draws == 0).mean() < 1:
                raise SystemExit(f"{what}: nothing or all is dropped out")
            trainer.step(wide=self.dout)
            out, grads = self.reference(draws, values)
            near(f"output of micro-step {step}", trainer.outputs("step")["out"], out)
            totals = {x: grads[x] + (totals[x] if micro_step else 0) for x in "qkv"}
            for x in "qkv":
                near(f"gradient of {x} in micro-step {step}", trainer.read(x, role="gradient"), totals[x])
        out, _ = self.reference(np.ones(self.scores), values)
        near("eval", trainer.eval("eval")["out"], out)


def main():
    runtime = Runtime(RUNTIME_LIBRARY)
    with tempfile.TemporaryDirectory() as folder:
        for case in map(lambda c: Case(*c), CASES):
            path = os.path.join(folder, "case.so")
            for options, devices in ((["--target=cuda,cpu", "--cuda-arch=host"], (b"cpu", b"cuda")), (["--reference"], (b"cpu",))):
                library = compile_module(case.text(), path, *options)
                for device in devices:
                    with Trainer(runtime, library, seed=SEED, device=device) as trainer:
                        case.check(trainer, f"{case.element} {case.scores} {case.words} {options[0]} {device.decode()}")


if __name__ == "__main__":
    main()
