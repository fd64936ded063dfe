// RUN: trainc-opt %s --train-lower-kernels-to-gpu | FileCheck %s

// A block is 4 warps of 16 queries against tiles of 64 keys, all in shared memory. A warp
// multiplies 16 x 64 by 64 x 64 twice, 16 x 8 x 16 at once: 64 products. Copies are 16
// bytes long, of values while scores are made, of the next keys after that; and there are
// no atomic operations.
// CHECK-LABEL: gpu.func @forward
// CHECK-SAME: kernel
// CHECK-COUNT-8: nvvm.cp.async.shared.global {{.*}}, 16, cache = cg
// CHECK: scf.for
// CHECK: nvvm.cp.async.wait.group 0
// CHECK-NEXT: gpu.barrier
// CHECK-COUNT-4: nvvm.cp.async.shared.global {{.*}}, 16, cache = cg
// CHECK-COUNT-32: nvvm.mma.sync {{.*}} multiplicandAPtxType = #nvvm.mma_type<bf16>
// CHECK: nvvm.cp.async.wait.group 0
// CHECK-NEXT: gpu.barrier
// CHECK-COUNT-4: nvvm.cp.async.shared.global {{.*}}, 16, cache = cg
// CHECK: math.exp
// CHECK-COUNT-32: nvvm.mma.sync {{.*}} multiplicandAPtxType = #nvvm.mma_type<bf16>
// CHECK-NOT: nvvm.mma.sync
// CHECK-NOT: atomic
// CHECK: gpu.return

train.kernel @forward(%q: tensor<2x256x3x64xbf16>, %k: tensor<2x256x3x64xbf16>, %v: tensor<2x256x3x64xbf16>) inplace [-1, -1] {
  %o, %l = nn.attention %q, %k, %v causal : tensor<2x256x3x64xbf16>, tensor<2x256x3x64xbf16>
  train.return %o, %l : tensor<2x256x3x64xbf16>, tensor<2x3x256xf32>
}

// The gradients of keys and values take four products, those of queries three.
// CHECK-LABEL: gpu.func @backward
// CHECK-COUNT-128: nvvm.mma.sync
// CHECK: scf.if
// CHECK-COUNT-96: nvvm.mma.sync
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
