# Each operation on the emulator against what the PTX ISA says it does.
#
# REQUIRES: numpy
# RUN: trainc-emulate %S/Inputs/operations.mlir -o %t.so
# RUN: %python %s %runtime_lib/libtrainc_emulator.so %t.so

import math
import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))
from emulator import Device, aligned, from_bf16, to_bf16  # noqa: E402

device = Device(sys.argv[1], sys.argv[2])
rng = np.random.default_rng(2)


def check(name, actual, expected):
    np.testing.assert_array_equal(actual, expected, err_msg=name)


# Warps. Every lane brings 10 * lane + 1 to the shuffles.
out = aligned(np.full((32, 32), -1), np.int32)
device.launch("warp", 1, 32, out)
lanes = np.arange(32)
columns = {
    0: lanes,
    1: (1 << lanes) - 1,
    2: lanes % 16 * 10 + 1,  # of segments of 8: what is beyond the last lane of one's own is not read
    3: lanes >= 16,
    8: (lanes ^ 16) * 10 + 1,
    9: lanes >= 0,
    27: np.where(lanes < 16, (lanes ^ 1) * 10 + 1, 0xFFFFFFFF),
    28: 0xFFFFFFFF,
}
for i, column in columns.items():
    check(f"column {i}", out[:, i].view(np.uint32), np.asarray(column).astype(np.uint32))

# Places in grids and blocks.
out = aligned(np.zeros((192, 6)), np.int32)
device.launch("places", [2, 2, 2], [4, 3, 2], out)
z, y, x, tz, ty, tx = np.indices((2, 2, 2, 2, 3, 4)).reshape(6, -1)
check("places", out, np.stack([tx, ty, tz, x, y, z], 1))


group, place = lanes // 4, lanes % 4


def multiply(kernel, encode, decode):
    """Compares d = a b + c, with fragments as the PTX ISA lays them out."""
    a, b = (encode(rng.normal(size=shape)) for shape in ((16, 16), (16, 8)))
    c = rng.normal(size=(16, 8)).astype(np.float32)
    at = [  # two neighbours along k per word
        [(group[i] + r, 2 * place[i] + k + j) for k in (0, 8) for r in (0, 8) for j in (0, 1)]
        for i in range(32)
    ]
    bt = [[(2 * place[i] + k + j, group[i]) for k in (0, 8) for j in (0, 1)] for i in range(32)]
    ct = [[(group[i] + r, 2 * place[i] + j) for r in (0, 8) for j in (0, 1)] for i in range(32)]
    aw, bw, cw = (
        aligned(np.array([[m[at] for at in row] for row in table]))
        for m, table in ((a, at), (b, bt), (c, ct))
    )
    device.launch(kernel, 1, 32, aw, bw, cw)
    expected = decode(a).astype(np.float64) @ decode(b).astype(np.float64) + c
    d = np.zeros((16, 8))
    for i in range(32):
        for value, (row, column) in zip(cw[i], ct[i]):
            d[row, column] = value
    np.testing.assert_allclose(d, expected, rtol=1e-6, atol=1e-6, err_msg=kernel)


def to_f16(values):
    return values.astype(np.float16)


multiply("mma_f16", to_f16, np.asarray)
multiply("mma_bf16", to_bf16, from_bf16)
# The sum is cut off behind each 8 products: 1 + 1.5 * 2^-24, twice.
a, b = aligned(np.full((32, 8), 2.0**-13), np.float16), aligned(np.full((32, 4), 1.5 * 2.0**-14), np.float16)
c = aligned(np.ones((32, 4)), np.float32)
device.launch("mma_f16", 1, 32, a, b, c)
check("mma cuts off", c, np.ones((32, 4)))

# ldmatrix: 8 rows of 16 bytes are the first 16 of 32 words of 8 bytes.
x = aligned(rng.integers(0, 2**62, size=32), np.int64)
out = aligned(np.zeros((32, 2)), np.uint32)
device.launch("matrices", 1, 32, x, out)
matrix = x.view(np.uint16)[:64].reshape(8, 8).astype(np.uint32)
pairs = [matrix[group, 2 * place] | matrix[group, 2 * place + 1] << 16]
pairs.append(matrix.T[group, 2 * place] | matrix.T[group, 2 * place + 1] << 16)
check("ldmatrix", out, np.stack(pairs, 1))

# cp.async with zero fill.
x = aligned(rng.integers(1, 100, size=(32, 4)), np.int32)
y = aligned(np.full((32, 4), -1), np.int32)
device.launch("zero_fill", 1, 32, x, y)
check("zero fill", y, np.where(np.arange(4) < (lanes % 5)[:, None], x, 0))

# Atomics, of two blocks.
n, f, h = aligned([0, -1], np.int32), aligned([0], np.int32), aligned([7, 0], np.uint16)
device.launch("atomics", 2, 16, n, f, h)
check("atomics", n, [32, 15])
check("compare and swap", f, [16])
check("atomics of bf16", h, [7, to_bf16([16.0])[0]])

# Masked accesses.
x, y = aligned(rng.normal(size=30), np.float32), aligned(np.zeros(30), np.float32)
device.launch("masked", 1, 8, x, y)
check("masked", y, -x)

# Conversions at every boundary, and functions.
edges = [0.0, -0.0, 1.0, -1.5, 65504.0, 65519.9, 65520.0, 1e6, -1e6, 2.0**-14, 2.0**-15, 3e-8]
edges += [2.0**-25, 2.0**-24 * 1.5, 1.0 + 2.0**-11, 1.0 + 3 * 2.0**-11, 1.0 + 2.0**-8, 1e-45]
edges += [1.0 + 3 * 2.0**-8, 3.3e38, math.inf, -math.inf]
x = aligned(np.concatenate([edges, rng.normal(size=64 - len(edges)) * 10]), np.float32)
b, h = aligned(np.zeros(64), np.uint16), aligned(np.zeros(64), np.float16)
e, d = aligned(np.zeros((64, 6)), np.float32), aligned(np.zeros(64), np.float64)
device.launch("arithmetic", 1, 64, x, b, h, e, d)
with np.errstate(all="ignore"):
    check("bf16", b, to_bf16(x))
    check("f16", h.view(np.uint16), x.astype(np.float16).view(np.uint16))
    check("f64", d, x.astype(np.float64) ** 2)
    wide, size = x.astype(np.float64), np.abs(x.astype(np.float64))
    erf = np.array([math.erf(value) for value in wide])
    functions = np.stack(
        [np.log(size), np.tanh(wide), erf, size**wide, np.sqrt(size), np.fmod(wide, 3)], 1
    ).astype(np.float32)
    np.testing.assert_allclose(e, functions, rtol=1e-6, atol=1e-45)
device.close()
