// RUN: trainc-opt %s --train-lower-kernels-to-gpu | FileCheck %s

// A block is 4 warps of 16 queries, which go to registers, against tiles of 64 keys in
// shared memory. A warp multiplies 16 x 64 by 64 x 64 twice, 16 x 8 x 16 at once: 64
// products. Copies are 16 bytes long, of the next keys and values while it works on those
// that are there; all wait once for a tile. Only tiles at the diagonal are masked, by
// numbers of 32 bits, and no product scales a score. There are no atomic operations.
// CHECK-LABEL: gpu.func @forward
// CHECK-SAME: kernel
// CHECK-COUNT-12: nvvm.cp.async.shared.global {{.*}}, 16, cache = cg
// CHECK: nvvm.cp.async.wait.group 0
// CHECK-NEXT: gpu.barrier
// CHECK-COUNT-4: nvvm.ldmatrix
// CHECK: scf.for
// CHECK: scf.if
// CHECK-COUNT-8: nvvm.cp.async.shared.global {{.*}}, 16, cache = cg
// CHECK-NOT: nvvm.cp.async.wait.group
// CHECK-COUNT-32: nvvm.mma.sync {{.*}} multiplicandAPtxType = #nvvm.mma_type<bf16>
// CHECK-NOT: arith.mulf
// CHECK: scf.if
// CHECK: arith.cmpi {{.*}} : i32
// CHECK-COUNT-32: arith.select
// CHECK: } else {
// CHECK: llvm.call_intrinsic "llvm.nvvm.ex2.approx.ftz"
// CHECK-COUNT-32: nvvm.mma.sync {{.*}} multiplicandAPtxType = #nvvm.mma_type<bf16>
// CHECK-NOT: nvvm.mma.sync
// CHECK: nvvm.cp.async.wait.group 0
// CHECK-NEXT: gpu.barrier
// CHECK-NOT: atomic
// CHECK: gpu.return

train.kernel @forward(%q: tensor<2x256x3x64xbf16>, %k: tensor<2x256x3x64xbf16>, %v: tensor<2x256x3x64xbf16>) inplace [-1, -1] {
  %o, %l = nn.attention %q, %k, %v causal : tensor<2x256x3x64xbf16>, tensor<2x256x3x64xbf16>
  train.return %o, %l : tensor<2x256x3x64xbf16>, tensor<2x3x256xf32>
}

// The gradients of keys and values take four products, those of queries three, with tiles
// of 32 rows.
// CHECK-LABEL: gpu.func @backward
// CHECK-COUNT-64: nvvm.mma.sync
// CHECK: nvvm.cp.async.wait.group 0
// CHECK-NEXT: gpu.barrier
// CHECK: scf.if
// CHECK-COUNT-48: nvvm.mma.sync
// CHECK-NOT: nvvm.mma.sync
// CHECK-NOT: atomic
// CHECK: gpu.return

train.kernel @backward(%q: tensor<2x256x3x64xbf16>, %k: tensor<2x256x3x64xbf16>, %v: tensor<2x256x3x64xbf16>, %o: tensor<2x256x3x64xbf16>, %l: tensor<2x3x256xf32>, %do: tensor<2x256x3x64xbf16>, %e: tensor<2x256x3xf32>) inplace [-1, -1, -1] {
  %a, %b, %c = nn.attention_grad %q, %k, %v, %o, %l, %do delta(%e : tensor<2x256x3xf32>) causal : tensor<2x256x3x64xbf16>, tensor<2x256x3x64xbf16>, tensor<2x3x256xf32>
  train.return %a, %b, %c : tensor<2x256x3x64xbf16>, tensor<2x256x3x64xbf16>, tensor<2x256x3x64xbf16>
}

// f32 goes by additions.
// CHECK-LABEL: gpu.func @exact
// CHECK-NOT: nvvm.mma.sync
// CHECK-COUNT-64: math.fma
// CHECK: nvvm.bar.warp.sync
// CHECK-NOT: nvvm.mma.sync
// CHECK: gpu.return

train.kernel @exact(%q: tensor<2x256x3x64xf32>, %k: tensor<2x256x3x64xf32>, %v: tensor<2x256x3x64xf32>) inplace [-1, -1] {
  %o, %l = nn.attention %q, %k, %v : tensor<2x256x3x64xf32>, tensor<2x256x3x64xf32>
  train.return %o, %l : tensor<2x256x3x64xf32>, tensor<2x3x256xf32>
}

// Without a mask all tiles are seen: no branch but for the copies, and in its place what
// keeps the loads of the second product behind the first.
// CHECK-LABEL: gpu.func @all
// CHECK: scf.for
// CHECK: scf.if
// CHECK-COUNT-32: nvvm.mma.sync
// CHECK-NOT: scf.if
// CHECK: nvvm.bar.warp.sync
// CHECK-NOT: scf.if
// CHECK: llvm.nvvm.ex2.approx.ftz
// CHECK: gpu.return

train.kernel @all(%p: tensor<2x256x576xf16>) inplace [-1, -1] {
  %o, %l = nn.packed_attention %p heads 3 : tensor<2x256x576xf16>
  train.return %o, %l : tensor<2x256x192xf16>, tensor<2x3x256xf32>
}
