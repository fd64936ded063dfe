# REQUIRES: numpy
# RUN: %python %s
"""Conversions to bf16 and f16 on every target that the machine runs: rounded once to nearest even, denormals kept; constants that
`precision` narrows stay finite.

What is expected is computed in f64, by scaling with powers of two. Every element is compared, NaN as NaN.
"""
import os
import sys
import tempfile

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench"))

from common import RUNTIME_LIBRARY, compile_module  # noqa: E402
from trainc_ctypes import Error, Runtime, Trainer  # noqa: E402

TARGETS = ["x86-64-v3", "x86-64-v4", "haswell", "skylake-avx512", "cooperlake", "sapphirerapids", "znver3", "znver4",
           "znver5", "native"]
# Bits of the fraction, the least exponent of a normal number, and the first number that is infinite.
FORMATS = {"bf16": (7, -126, 2.0**128), "f16": (10, -14, 2.0**16)}

MODULE = """
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<2xf32> init(ones) optimizer(@o)
train.step @step(%x: tensor<2xf32>) {
  %w = train.read @w : tensor<2xf32>
  %y = nn.mul %x, %w : tensor<2xf32>, tensor<2xf32>
  %loss = nn.reduce sum %y dims [0] : tensor<2xf32>
  train.yield loss(%loss) : tensor<f32>
}
"""
CAST = """
train.eval @FROM_TO(%x: tensor<COUNTxFROM>) -> ("r") {
  %r = nn.map(%x) : (tensor<COUNTxFROM>) -> tensor<COUNTxFROM> {
  ^bb0(%a: FROM):
    %h = arith.truncf %a : FROM to TO
    %w = arith.extf %h : TO to FROM
    nn.yield %w : FROM
  }
  train.yield %r : tensor<COUNTxFROM>
}
"""
# The same by way of memory.
STORED = """
train.eval @stored_TO(%x: tensor<COUNTxf32>) -> ("r") {
  %h = nn.cast %x to TO : tensor<COUNTxf32>
  %t = nn.reshape %h : tensor<COUNTxTO> to tensor<1xCOUNTxTO>
  %g = nn.transpose %t [1, 0] : tensor<1xCOUNTxTO>
  %r = nn.cast %g to f32 : tensor<COUNTx1xTO>
  train.yield %r : tensor<COUNTx1xf32>
}
"""
# Arithmetic of narrow numbers in a region of the user's: f32's, rounded.
SUM = """
train.eval @sum_TO(%x: tensor<COUNTxf32>) -> ("r") {
  %r = nn.map(%x) : (tensor<COUNTxf32>) -> tensor<COUNTxf32> {
  ^bb0(%a: f32):
    %h = arith.truncf %a : f32 to TO
    %third = arith.constant 0.333 : TO
    %s = arith.addf %h, %third : TO
    %less = arith.cmpf olt, %s, %third : TO
    %t = arith.select %less, %h, %s : TO
    %w = arith.extf %t : TO to f32
    nn.yield %w : f32
  }
  train.yield %r : tensor<COUNTxf32>
}
"""
# Attention of which the first query sees no key; its row is not in the loss.
HIDDEN = """
train.optimizer @o = sgd<lr = 0.01>
train.param @w : tensor<4x4xf32> init(normal<0.5>) optimizer(@o)
train.step @step(%x: tensor<4x4xf32>, %keep: tensor<4x4xi32>, %y: tensor<4xi32>) CLAUSES {
  %w = train.read @w : tensor<4x4xf32>
  %h = nn.matmul %x, %w : tensor<4x4xf32>, tensor<4x4xf32>
  %s = nn.matmul %h, %h transpose_rhs : tensor<4x4xf32>, tensor<4x4xf32>
  %z = nn.constant dense<0> : tensor<i32>
  %k = nn.compare ne %keep, %z : tensor<4x4xi32>, tensor<i32>
  %low = nn.constant dense<-3.4028235e38> : tensor<f32>
  %m = nn.select %k, %s, %low : tensor<4x4xi1>, tensor<4x4xf32>, tensor<f32>
  %p = nn.softmax %m dim 1 : tensor<4x4xf32>
  %v = nn.matmul %p, %h : tensor<4x4xf32>, tensor<4x4xf32>
  %l, %n = nn.cross_entropy %v, %y : tensor<4x4xf32>, tensor<4xi32>
  train.yield loss(%l) weight(%n) : tensor<f32>, tensor<f32>
}
"""


def rounded(values, element):
    """The numbers of a narrow type that are nearest to those of f64."""
    fraction, least, infinite = FORMATS[element]
    with np.errstate(over="ignore", invalid="ignore"):
        exponent = np.maximum(np.frexp(values)[1] - 1, least)
        scaled = np.rint(np.ldexp(values, fraction - exponent))  # exact but for rint
        result = np.ldexp(scaled, exponent - fraction)
    result = np.where(np.isfinite(values), result, values)
    return np.where(np.abs(result) >= infinite, np.copysign(np.inf, values), result)


def inputs():
    """Numbers of f32 at all distances from those of bf16 and f16, and of f64 very near to the middle of two."""
    rng = np.random.default_rng(7)
    bits = rng.integers(0, 2**32, 6000, dtype=np.uint64)
    low = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFF, 0x1000, 0x1001, 0x17FF, 0x1800, 0x3000, 0xFFFF], np.uint64)
    upper = np.concatenate([np.arange(0, 0x180), np.arange(0x7F70, 0x7F90), np.arange(0x3300, 0x3900, 3),
                            np.arange(0x477F, 0x4782)]).astype(np.uint64)
    bits = np.concatenate([bits, (upper[:, None] << 16 | low).ravel()])
    f32 = np.concatenate([bits, bits | 1 << 31]).astype(np.uint32).view(np.float32)
    f32 = f32[~np.isnan(f32) | (np.arange(len(f32)) % 5 == 0)]
    middles = np.concatenate([(upper << 16 | 0x8000), (upper << 16 | 0x1000)]).astype(np.uint32).view(np.float32)
    middles = middles[np.isfinite(middles)].astype(np.float64)
    near = np.concatenate([middles, middles * (1 + 2.0**-45), middles * (1 - 2.0**-45)])
    with np.errstate(invalid="ignore"):
        wide = f32.astype(np.float64)
    f64 = np.concatenate([near, -near, wide, [1e300, -1e300, 1e-300, 65519.999999999, 65520]])
    return {"f32": f32, "f64": f64}


def expect(name, got, expected):
    got = got.astype(np.float64)
    wrong = np.flatnonzero(~((got == expected) & (np.signbit(got) == np.signbit(expected)) | np.isnan(got) & np.isnan(expected)))
    assert not len(wrong), f"{name}: {len(wrong)} of {len(got)} wrong, element {wrong[0]}: {got[wrong[0]]!r}, expected " \
                           f"{expected[wrong[0]]!r}"


def check_hidden():
    batch = dict(x=np.random.default_rng(0).standard_normal((4, 4), np.float32), keep=np.tril(np.ones((4, 4), np.int32), -1),
                 y=np.array([-100, 1, 2, 3], np.int32))
    seen = []
    with tempfile.TemporaryDirectory() as folder:
        for clauses in ("", "precision(compute = bf16)", "precision(compute = f16) loss_scale(16.0)"):
            library = compile_module(HIDDEN.replace("CLAUSES", clauses), os.path.join(folder, "hidden.so"))
            with Trainer(Runtime(RUNTIME_LIBRARY), library, threads=1, seed=1) as trainer:
                seen.append(trainer.step(**batch))
                assert seen[-1].updated, f"{clauses}: loss {seen[-1].loss}, skipped"
    assert all(abs(s.loss / seen[0].loss - 1) < 1e-2 and abs(s.grad_norm / seen[0].grad_norm - 1) < 2e-2 for s in seen), seen


def main():
    check_hidden()
    data = inputs()
    casts = [(source, to) for source in data for to in FORMATS]
    text = MODULE + "".join(CAST.replace("FROM", source).replace("TO", to).replace("COUNT", str(len(data[source])))
                            for source, to in casts)
    text += "".join((SUM + STORED).replace("TO", to).replace("COUNT", str(len(data["f32"]))) for to in FORMATS)
    ran = []
    for target in TARGETS:
        with tempfile.TemporaryDirectory() as folder:
            library = compile_module(text, os.path.join(folder, "casts.so"), f"--target-cpu={target}")
            try:
                trainer = Trainer(Runtime(RUNTIME_LIBRARY), library, threads=1)
            except Error as e:
                assert "another --target-cpu" in str(e), e
                continue
            with trainer, np.errstate(over="ignore", invalid="ignore"):
                for source, to in casts:
                    values = data[source]
                    got = trainer.eval(f"{source}_{to}", x=values)["r"]
                    expect(f"{target}, {source} to {to}", got, rounded(values.astype(np.float64), to))
                for to in FORMATS:
                    third = rounded(np.float64(0.333), to)
                    narrow = rounded(data["f32"].astype(np.float64), to)
                    total = rounded((narrow.astype(np.float32) + np.float32(third)).astype(np.float64), to)
                    got = trainer.eval(f"sum_{to}", x=data["f32"])["r"]
                    expect(f"{target}, sum of {to}", got, np.where(total < third, narrow, total))
                    expect(f"{target}, {to} in memory", trainer.eval(f"stored_{to}", x=data["f32"])["r"].ravel(), narrow)
            ran.append(target)
    assert {"x86-64-v3", "native"} <= set(ran), ran
    print("same bits on", ", ".join(ran))


if __name__ == "__main__":
    main()
