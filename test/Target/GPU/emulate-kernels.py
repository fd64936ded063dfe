# Kernels on the emulator against NumPy, in the natural and in a shuffled order.
#
# REQUIRES: numpy
# RUN: trainc-emulate %S/Inputs/kernels.mlir -o %t.so
# RUN: %python %s %runtime_lib/libtrainc_emulator.so %t.so 0
# RUN: %python %s %runtime_lib/libtrainc_emulator.so %t.so 7

import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))
from emulator import Device, aligned, from_bf16, to_bf16  # noqa: E402

device = Device(sys.argv[1], sys.argv[2], int(sys.argv[3]))
rng = np.random.default_rng(1)


def normal(*shape):
    return aligned(rng.normal(size=shape), np.float32)


# elementwise: exp may differ in the last bit, the sum may cancel.
x, y = normal(1024), normal(1024)
device.launch("elementwise", 4, 64, x, y, np.float32(3))
np.testing.assert_allclose(y, x * np.float32(3) + np.exp(x), rtol=1e-6, atol=1e-6)

# block_sum: sums in another order than NumPy's.
x, sums = normal(1024), normal(4)
device.launch("block_sum", 4, 256, x, sums)
np.testing.assert_allclose(sums, x.reshape(4, 256).sum(1), rtol=1e-5, atol=1e-4)

# layer_norm: one rounding to bf16 at the end.
x, scale = aligned(to_bf16(normal(8, 128))), normal(128)
y = aligned(np.zeros((8, 128)), np.uint16)
device.launch("layer_norm", 2, [32, 4], x, scale, y)
wide = from_bf16(x).astype(np.float64)
expected = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
expected *= scale
np.testing.assert_allclose(from_bf16(y), expected, rtol=2.0**-8, atol=1e-6)

# matmul: sums over k in order, each product rounded.
a, b, c = normal(32, 48), normal(48, 32), normal(32, 32)
device.launch("matmul", [2, 2], [16, 16], a, b, c)
expected = np.zeros((32, 32), np.float32)
for k in range(48):
    expected += a[:, k : k + 1] * b[k : k + 1]
np.testing.assert_array_equal(c, expected)

# tensor: products are exact, the sum is rounded once.
a, b, c = aligned(to_bf16(normal(16, 16))), aligned(to_bf16(normal(16, 8))), normal(16, 8)
device.launch("tensor", 1, 32, a, b, c)
expected = from_bf16(a).astype(np.float64) @ from_bf16(b).astype(np.float64)
np.testing.assert_allclose(c, expected, rtol=1e-6, atol=1e-6)

# embedding: some rows get many sums, some none.
index = aligned(rng.integers(0, 7, size=64), np.int32)
dy, grad = normal(64, 16), aligned(np.zeros((10, 16)), np.float32)
device.launch("embedding", 64, 16, index, dy, grad)
expected = np.zeros((10, 16))
np.add.at(expected, index, dy)
np.testing.assert_allclose(grad, expected, rtol=1e-5, atol=1e-5)
assert not grad[7:].any()

counts = device.counts()
assert counts["launches"] == 6 and counts["blocks"] == 4 + 4 + 2 + 4 + 1 + 64, counts
# block_sum: 5 shuffles per thread and 5 more in the first warp; layer_norm: 10;
# tensor: 3 operations of the whole warp.
operations = 4 * (256 + 32) * 5 + 256 * 10 + 32 * 4 - 32
assert counts["warp_operations"] == operations, (counts, operations)
device.close()
