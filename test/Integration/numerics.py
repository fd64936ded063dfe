# REQUIRES: numpy
# RUN: %python %s
"""The elementary functions of f32 have the bits that numerics.def gave when they were recorded (--record), whatever the
version of LLVM, for this CPU and for AVX2 alone: digests of the values at one argument of each 65,536 that f32 has. Their
error is what the description of the operation says, near zeros of the function, too. Those of f64 that portable bits need are
within 2 units in the last place of a C library's."""
import hashlib
import json
import os
import sys
import tempfile

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench"))

from common import RUNTIME_LIBRARY, compile_module  # noqa: E402
from trainc_ctypes import Runtime, Trainer  # noqa: E402

RECORDED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs", "numerics.json")
COUNT = 1 << 16
TYPE = f"tensor<{COUNT}xf32>"
UNARY = {"exp": "exp", "log": "log", "tanh": "tanh", "erf": "erf", "sin": "sin", "cos": "cos", "sigmoid": "sigmoid", "silu": "silu",
         "gelu_tanh": "gelu %x tanh", "gelu_erf": "gelu %x erf"}
MAPPED = ["log1p", "expm1", "log2"]  # no operations of their own


# A module has a step.
STEP = """train.optimizer @o = sgd<lr = 0.0>
train.param @p : tensor<f32> init(ones) optimizer(@o)
train.step @step() {
  %p = train.read @p : tensor<f32>
  train.yield loss(%p) : tensor<f32>
}
"""


def module():
    lines = [f"  %{name} = nn.{op if ' ' in op else op + ' %x'} : {TYPE}" for name, op in UNARY.items()]
    lines.append(f"  %pow = nn.pow %x, %y : {TYPE}, {TYPE}")
    for name in MAPPED:
        lines += [f"  %{name} = nn.map(%x) : ({TYPE}) -> {TYPE} {{", "  ^bb0(%a: f32):", f"    %b = math.{name} %a : f32",
                  "    nn.yield %b : f32", "  }"]
    names = [*UNARY, *MAPPED, "pow"]
    return STEP + "\n".join([f"train.eval @eval(%x: {TYPE}, %y: {TYPE}) -> ({', '.join(json.dumps(name) for name in names)}) {{", *lines,
                      f"  train.yield {', '.join('%' + name for name in names)} : {', '.join([TYPE] * len(names))}", "}"])


def inputs():
    """Each pattern of the upper 16 bits, with lower ones that are spread; and exponents from -8 to 8, some of them whole."""
    index = np.arange(COUNT, dtype=np.uint32)
    x = (index << np.uint32(16) | index * np.uint32(40503) % np.uint32(COUNT)).view(np.float32)
    y = (index * np.uint32(48271) % np.uint32(4096)).astype(np.float32) / np.float32(256) - np.float32(8)
    return x, np.where(index % 3 == 0, np.round(y), y).astype(np.float32)


def digest(values):
    values = np.where(np.isnan(values), np.float32(np.nan), values).astype(np.float32)
    return hashlib.sha256(values.tobytes()).hexdigest()[:16]


# The largest relative error, and of which arguments: as NNPointwiseOps.td says.
PRECISION = [("exp", 9e-8, -87, 88), ("log", 9e-8, 1e-30, 1e30), ("tanh", 3e-7, -87, 88),
             *((name, bound, -limit, limit) for name in ("sin", "cos") for bound, limit in ((1.2e-7, 8), (3e-7, 6.5e6)))]


def angles():
    """Small numbers of both signs, and multiples of pi/2 up to 6.5e6 and their neighbors: zeros of sine and cosine."""
    small = np.geomspace(1e-30, 1, COUNT // 8, dtype=np.float32)
    multiples = (np.pi / 2 * np.geomspace(1, 6.5e6 * 2 / np.pi, COUNT // 4).astype(np.int64)).astype(np.float32)
    up, down = np.nextafter(multiples, np.float32(np.inf)), np.nextafter(multiples, np.float32(0))
    return np.concatenate([small, -small, multiples, up, -down])


def imprecise(results, x):
    """What differs by more from NumPy's functions of f64."""
    bad = []
    for name, bound, low, high in PRECISION:
        # A kernel takes denormal numbers as 0.
        chosen = (x > low) & (x < high) & (np.abs(x) > 2e-38)
        expected = getattr(np, name)(x[chosen].astype(np.float64))
        error = np.abs(results[name][chosen] - expected) / np.maximum(np.abs(expected), 1e-300)
        if not error.max() < bound:
            i = int(np.argmax(error))
            bad.append(f"{name} of {x[chosen][i]!r}: {results[name][chosen][i]!r}, expected {expected[i]!r}; error {error[i]:.2g}")
    return bad


WIDE = ["exp", "log", "sin", "cos"]


def wide_functions(runtime, folder):
    """What is wrong with the functions of f64."""
    rng = np.random.default_rng(2)
    spread = rng.uniform(-745, 710, COUNT), np.exp(rng.uniform(-740, 709, COUNT)), rng.uniform(-2e9, 2e9, COUNT)
    near = rng.uniform(-2, 2, COUNT), 1 + rng.uniform(-0.5, 1, COUNT) ** 5, rng.uniform(-4, 4, COUNT)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, 1e-310, -1.0, 1.0, 709.7, 709.9, -745.2])
    wide = TYPE.replace("f32", "f64")
    lines = [f"  %{name} = nn.{name} %{x} : {wide}" for name, x in zip(WIDE, ("x", "y", "z", "z"))]
    lines.append(f"  %pow = nn.pow %y, %e : {wide}, {wide}")
    names = [*WIDE, "pow"]
    text = STEP + "\n".join([
        f"train.eval @eval(%x: {wide}, %y: {wide}, %z: {wide}, %e: {wide}) -> ({', '.join(json.dumps(name) for name in names)}) {{",
        *lines, f"  train.yield {', '.join('%' + name for name in names)} : {', '.join([wide] * len(names))}", "}"])
    path = compile_module(text, os.path.join(folder, "wide.so"), "--portable-bits")
    bad = []
    for x, y, z in (spread, near):
        for values in (x, y, z):
            values[:len(special)] = special
        z[np.isinf(z)] = 1.0
        e = np.clip(z, -2, 2)
        with Trainer(runtime, path) as trainer, np.errstate(all="ignore"):
            found = trainer.eval("eval", x=x, y=y, z=z, e=e)
            # A power's error is that of its exponent, which is that of the logarithm.
            expected = dict(exp=(np.exp(x), 2), log=(np.log(y), 2), sin=(np.sin(z), 2), cos=(np.cos(z), 2),
                            pow=(y ** e, 4 + 2 * np.abs(np.nan_to_num(e * np.log(y), posinf=0, neginf=0))))
            for name, (values, units) in expected.items():
                same = (found[name] == values) | (np.isnan(found[name]) & np.isnan(values))
                apart = np.abs(found[name] - values) / np.maximum(np.spacing(np.abs(values)), 5e-324)
                # Of angles what is near a multiple of pi has the error of pi's parts.
                far = same | (apart <= units) | (np.abs(found[name] - values) < (1e-16 if name in ("sin", "cos") else 0))
                if not far.all():
                    i = int(np.argmin(far))
                    bad.append(f"{name} of f64, case {i}: {found[name][i]!r}, expected {values[i]!r}")
    return bad


def main():
    runtime = Runtime(RUNTIME_LIBRARY)
    x, y = inputs()
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for target in "native", "x86-64-v3":
            path = compile_module(module(), os.path.join(folder, f"{target}.so"), f"--target-cpu={target}")
            with Trainer(runtime, path) as trainer:
                results = trainer.eval("eval", x=x, y=y)
                found[target] = {name: digest(value) for name, value in results.items()}
                if target == "native":
                    near = trainer.eval("eval", x=angles(), y=y)
                    precise = imprecise(results, x) + imprecise(near, angles())
                    # -0 stays.
                    precise += [] if np.signbit(results["sin"][x == 0]).tolist() == np.signbit(x[x == 0]).tolist() else ["sin of -0"]
        wide = wide_functions(runtime, folder)
    if sys.argv[1:] == ["--record"]:
        with open(RECORDED, "w") as f:
            json.dump(found["native"], f, indent=1)
            f.write("\n")
    with open(RECORDED) as f:
        recorded = json.load(f)
    bad = [f"{name} for {target}: {values.get(name)}, recorded {value}" for target, values in found.items()
           for name, value in recorded.items() if values.get(name) != value]
    print(f"{len(recorded)} functions; different: {bad or 'none'}; {precise or 'precise'}; {wide or 'those of f64 are exact'}")
    return bool(bad) or bool(precise) or bool(wide) or set(recorded) != set(found["native"])


if __name__ == "__main__":
    sys.exit(main())
