# REQUIRES: numpy
# RUN: %python %s
"""Elements at the edges of their types, against NumPy: quotients of integers in rows of odd lengths, by zero and past the range;
whole powers; remainders; ramps past what is exact; rows that stand in no thread's stack; sums that are cast to narrower types and back; sums of products of which one is broadcast. By the kernels of this
machine, of AVX2 and by definitions.
"""
import os
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench"))

from common import RUNTIME_LIBRARY, compile_module  # noqa: E402
from trainc_ctypes import Runtime, Trainer  # noqa: E402

INTEGERS = {"i8": np.int8, "i32": np.int32, "i64": np.int64}
FLOATS = {"f32": np.float32, "f64": np.float64}
LENGTHS = 1, 5, 8, 13, 64


def quotient(x, y):
    """Toward zero; by 0 it is -1, and the least number by -1 is itself."""
    least = np.iinfo(x.dtype).min
    past = (x == least) & (y == -1)
    divisor = np.where((y == 0) | past, 1, y).astype(object)
    exact = np.abs(x.astype(object)) // np.abs(divisor) * np.where((x < 0) == (divisor < 0), 1, -1)
    return np.where(y == 0, -1, np.where(past, least, exact)).astype(x.dtype)


def quotients():
    rng = np.random.default_rng(3)
    for element, dtype in INTEGERS.items():
        for n in LENGTHS:
            kind = f"tensor<3x{n}x{element}>"
            least = np.iinfo(dtype).min
            x = rng.choice(np.array([7, -7, 100, least, least + 1], dtype), (3, n))
            y = rng.choice(np.array([0, -1, 1, -2, 3], dtype), (3, n))
            yield dict(x=(kind, x), y=(kind, y)), f"%r = nn.div %x, %y : {kind}, {kind}", kind, quotient(x, y)
            y = np.where(y == 0, 5, np.abs(y)).astype(dtype)
            body = f"""%r = nn.map(%x, %y) : ({kind}, {kind}) -> {kind} {{
            ^bb0(%a: {element}, %b: {element}):
              %q = arith.divsi %a, %b : {element}
              %m = arith.remsi %a, %b : {element}
              %t = arith.addi %q, %q : {element}
              %s = arith.addi %t, %m : {element}
              nn.yield %s : {element}
            }}"""
            yield dict(x=(kind, x), y=(kind, y)), body, kind, 2 * quotient(x, y) + np.fmod(x, y)
            body = body.replace("divsi", "divui").replace("remsi", "remui")
            y = np.where(x == least, -1, y).astype(dtype)
            a, b = (v.view(f"u{v.itemsize}") for v in (x, y))
            yield dict(x=(kind, x), y=(kind, y)), body, kind, (2 * (a // b) + a % b).view(dtype)


def powers():
    kind, x = "tensor<4x13xf32>", np.linspace(-2, 2, 52, dtype=np.float32).reshape(4, 13)
    for exponent in 0, 3, -2:
        body = f"""%r = nn.map(%x) : ({kind}) -> {kind} {{
        ^bb0(%a: f32):
          %i = arith.constant {exponent} : i32
          %p = math.fpowi %a, %i : f32, i32
          nn.yield %p : f32
        }}"""
        yield dict(x=(kind, x)), body, kind, x ** np.float32(exponent)
    for n in 1, 13:
        x, y = np.full(n, -1, np.float32), np.full(n, 2 ** 24 + 1, np.int32)
        kind, whole = f"tensor<{n}xf32>", f"tensor<{n}xi32>"
        body = f"""%r = nn.map(%x, %y) : ({kind}, {whole}) -> {kind} {{
        ^bb0(%a: f32, %i: i32):
          %p = math.fpowi %a, %i : f32, i32
          nn.yield %p : f32
        }}"""
        yield dict(x=(kind, x), y=(whole, y)), body, kind, x


def ramps():
    """Rounded to their type, whether stored or not."""
    for element, n in (("bf16", 300), ("f16", 2100)):
        x = np.zeros((2, n), np.float32)
        body = f"""%i = nn.iota dim 1 : tensor<2x{n}x{element}>
        %f = nn.cast %i to f32 : tensor<2x{n}x{element}>
        %r = nn.add %f, %x : tensor<2x{n}xf32>, tensor<2x{n}xf32>"""
        exact = np.arange(n) < {"bf16": 256, "f16": 2048}[element]
        pairs = 2 * np.round(np.arange(n) / 2)  # to even
        yield dict(x=(f"tensor<2x{n}xf32>", x)), body, f"tensor<2x{n}xf32>", np.tile(np.where(exact, np.arange(n), pairs), (2, 1))


def long_rows():
    n, kind = 250_000, "tensor<2x250000xf32>"
    x = np.random.default_rng(5).standard_normal((2, n)).astype(np.float32)
    body = f"""%p = nn.softmax %x dim 1 : {kind}
        %l = nn.log_softmax %x dim 1 : {kind}
        %q = nn.mul %p, %l : {kind}, {kind}
        %r = nn.reduce sum %q dims [1] : {kind}"""
    powers = np.exp(x.astype(np.float64))
    p = powers / powers.sum(1, keepdims=True)
    yield dict(x=(kind, x)), body, "tensor<2xf32>", (p * np.log(p)).sum(1)


def remainders():
    """Exact, also near a multiple and of numbers far larger than the divisor."""
    values = [7, -7, 1e30, -1e30, 3.3, 0.3, -0.3, 0, np.inf, np.nan, 6 - 1e-6, 1e9 + 0.5, -0.0]
    divisors = [3, -3, 0.1, 7, np.inf, -np.inf, 0, np.nan, 1e-3, 3, 2, 0.25, 1]
    for element, dtype in FLOATS.items():
        kind = f"tensor<13x13x{element}>"
        x, y = np.meshgrid(np.array(values, dtype), np.array(divisors, dtype))
        body = f"""%r = nn.map(%x, %y) : ({kind}, {kind}) -> {kind} {{
        ^bb0(%a: {element}, %b: {element}):
          %m = arith.remf %a, %b : {element}
          nn.yield %m : {element}
        }}"""
        with np.errstate(invalid="ignore"):
            yield dict(x=(kind, x), y=(kind, y)), body, kind, np.fmod(x, y)


def sums():
    """An integer or a bit between two casts is what it is."""
    for element, dtype, each, by, cut in (("f32", np.float32, 0.3, "i32", np.int32), ("f32", np.float32, 0.3, "i1", bool),
                                          ("f32", np.float32, -0.2, "i8", np.int8), ("i32", np.int32, 100, "i8", np.int8),
                                          ("f64", np.float64, 0.1, "f32", np.float32)):
        x = np.full((4, 8), each, dtype)
        body = f"""%s = nn.reduce sum %x dims [1] keep : tensor<4x8x{element}>
        %n = nn.cast %s to {by} : tensor<4x1x{element}>
        %r = nn.cast %n to {element} : tensor<4x1x{by}>"""
        expected = x.sum(1, keepdims=True, dtype=dtype).astype(cut).astype(dtype)
        yield dict(x=(f"tensor<4x8x{element}>", x)), body, f"tensor<4x1x{element}>", expected


def products():
    rng = np.random.default_rng(4)
    x, y, w = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((4, 3), (1, 3), (3, 8)))
    given = dict(x=("tensor<4x3xf32>", x), y=("tensor<1x3xf32>", y), w=("tensor<3x8xf32>", w))
    for order in ("%a, %b : tensor<4x8xf32>, tensor<1x8xf32>", "%b, %a : tensor<1x8xf32>, tensor<4x8xf32>"):
        body = f"""%a = nn.matmul %x, %w : tensor<4x3xf32>, tensor<3x8xf32>
        %b = nn.matmul %y, %w : tensor<1x3xf32>, tensor<3x8xf32>
        %s = nn.add {order}
        %r = nn.concat %s, %s dim 0 : tensor<4x8xf32>, tensor<4x8xf32>"""
        yield given, body, "tensor<8x8xf32>", np.tile(x @ w + y @ w, (2, 1))


STEP = """
train.optimizer @o = sgd<lr = 1.0>
train.param @w : tensor<3x8xf32> init(ones) optimizer(@o)
train.buffer @h : tensor<4x8xf32> init(zeros)
train.step @step(%y: tensor<1x3xf32>) {
  %w = train.read @w : tensor<3x8xf32>
  %h = train.read @h : tensor<4x8xf32>
  %m = nn.matmul %y, %w : tensor<1x3xf32>, tensor<3x8xf32>
  %s = nn.add %h, %m : tensor<4x8xf32>, tensor<1x8xf32>
  train.write %s to @h : tensor<4x8xf32>
  %l = nn.reduce sum %m dims [0, 1] : tensor<1x8xf32>
  train.yield loss(%l) : tensor<f32>
}
"""


def module(cases):
    """An eval of each."""
    text = STEP
    for i, (given, body, kind, _) in enumerate(cases):
        inputs = ", ".join(f"%{name}: {of}" for name, (of, _) in given.items())
        text += f"""train.eval @case{i}({inputs}) -> ("r") {{
        {body}
        train.yield %r : {kind}
}}
"""
    return text


def main():
    runtime, wrong = Runtime(RUNTIME_LIBRARY), []
    cases = [*quotients(), *powers(), *remainders(), *ramps(), *long_rows(), *sums(), *products()]
    with tempfile.TemporaryDirectory() as folder:
        for options in (), ("--target-cpu=x86-64-v3",), ("--reference",):
            library = compile_module(module(cases), os.path.join(folder, "model.so"), *options)
            with Trainer(runtime, library) as trainer:
                for i, (given, body, kind, expected) in enumerate(cases):
                    found = trainer.eval(f"case{i}", **{name: value for name, (_, value) in given.items()})["r"]
                    if not np.allclose(found, expected, rtol=2e-6, atol=0, equal_nan=True):
                        wrong.append(f"{options} {kind}: {found}, expected {expected} of\n{body}")
                trainer.step(y=np.array([[1, 2, 3]], np.float32))
                state = trainer.read("h", "buffer")
            if not np.array_equal(state, np.full((4, 8), 6)):
                wrong.append(f"{options}: a broadcast product is added to a buffer as {state}")
    print("\n\n".join(wrong[:10]) or f"{len(cases)} cases as NumPy's")
    return 1 if wrong else 0


if __name__ == "__main__":
    # By a thread of little stack.
    threading.stack_size(1 << 19)
    with ThreadPoolExecutor(1) as pool:
        sys.exit(pool.submit(main).result())
