# REQUIRES: ptxas, numpy
# RUN: %python %s %S/attention.mlir %t
"""Attention and convolutions as PTX: their instructions, and that ptxas keeps all in registers.

usage: tiles-ptx.py ATTENTION FOLDER
"""
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))))
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs")]

from ptx import assemble, report  # noqa: E402

PRODUCTS = ["mma.sync.aligned.m16n8k16", "ldmatrix.sync.aligned.m8n8.x4"]
ATTENTION = [*PRODUCTS, "ldmatrix.sync.aligned.m8n8.x4.trans", "cp.async.cg.shared.global"]
CONVOLUTIONS = """
train.kernel @forward(%x: tensor<32x64x56x56xT>, %w: tensor<64x64x3x3xT>) inplace [-1] {
  %y = nn.conv2d %x, %w padding [1, 1, 1, 1] : tensor<32x64x56x56xT>, tensor<64x64x3x3xT>
  train.return %y : tensor<32x64x56x56xT>
}
train.kernel @input(%w: tensor<64x64x3x3xT>, %g: tensor<32x64x28x28xT>) inplace [-1] {
  %x = nn.conv2d_input_grad %w, %g strides [2, 2] padding [1, 1, 1, 1]
      : tensor<64x64x3x3xT>, tensor<32x64x28x28xT> to tensor<32x64x56x56xT>
  train.return %x : tensor<32x64x56x56xT>
}
train.kernel @weight(%x: tensor<32x64x56x56xT>, %g: tensor<32x64x56x56xT>) inplace [-1] {
  %w = nn.conv2d_weight_grad %x, %g padding [1, 1, 1, 1]
      : tensor<32x64x56x56xT>, tensor<32x64x56x56xT> to tensor<64x64x3x3xT>
  train.return %w : tensor<64x64x3x3xT>
}
"""


def check(what, text, chip, folder, instructions):
    """Complains about spills in the kernels of `text`, and if they lack an instruction."""
    ptx = assemble(text, chip)
    found = report(ptx, chip, folder)
    assert len(found) == text.count("train.kernel @") and not any(spills for _, spills in found.values()), f"{chip}, {what}: {found}"
    for instruction in instructions:
        assert instruction in ptx, f"{chip}, {what}: no {instruction}"


def main():
    source, folder = sys.argv[1:]
    os.makedirs(folder, exist_ok=True)
    with open(source) as f:
        attention = f.read()
    for chip in ("sm_80", "sm_90", "sm_100"):
        for size in (64, 128):
            check(f"heads of {size}", attention.replace("3x64x", f"3x{size}x"), chip, folder, ATTENTION)
        check("convolutions in f32", CONVOLUTIONS.replace("xT>", "xf32>"), chip, folder, ["fma.rn.f32"])
        check("convolutions in bf16", CONVOLUTIONS.replace("xT>", "xbf16>"), chip, folder, PRODUCTS)


if __name__ == "__main__":
    main()
