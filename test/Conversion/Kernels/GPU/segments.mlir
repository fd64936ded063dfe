// RUN: trainc-opt %s --train-lower-kernels-to-gpu | FileCheck %s

// Vectors that begin at multiples of their size, as all segments do; the rest of a piece goes element by
// element. Each block has the pieces that its number says.
// CHECK: train.kernel @update
// CHECK-SAME: #train.abi<workgroups = {{[0-9]+}}, threads = 256>
// CHECK: train.kernel @norm
// CHECK: train.kernel @sums
// CHECK-SAME: #train.abi<workgroups = 1, threads = 256>
// CHECK: gpu.func @update(%[[P:[a-z0-9]+]]: memref<81920xf32> {llvm.align = 16 : i64, llvm.noalias}, %[[G:[^:]*]]:
// CHECK: scf.for
// CHECK: scf.for
// CHECK: %[[X:.*]] = vector.load %[[P]][%[[AT:.*]]] {alignment = 16 : i64} : memref<81920xf32>, vector<4xf32>
// CHECK-NOT: memref.prefetch
// CHECK: arith.subf %[[X]], %{{.*}} : vector<4xf32>
// CHECK: vector.store %{{.*}}, %[[P]][%[[AT]]] {alignment = 16 : i64}
// CHECK: scf.if
// CHECK: vector.store {{.*}} vector<1xf32>
train.kernel @update(%p: tensor<81920xf32>, %g: tensor<81920xf32>, %f: tensor<i1>, %a: tensor<f32>, %b: tensor<f32>, %n: tensor<3xf32>) inplace [0] {
  %r = train.segment_map %p, %g : tensor<81920xf32>, tensor<81920xf32> uniforms %f : tensor<i1> grouped %a, %b : tensor<f32>, tensor<f32> each %n : tensor<3xf32> segments <groups = [0, 1, 0], lengths = [70000, 5, 3], offsets = [array<i64: 64, 80000, 80008>, array<i64: 0, 70016, 70024>]> {targets = array<i64: 0>} -> tensor<81920xf32> {
  ^bb0(%x: f32, %y: f32, %ok: i1, %s: f32, %e: f32):
    %q = arith.mulf %s, %e : f32
    %d = arith.mulf %y, %q : f32
    %z = arith.subf %x, %d : f32
    %w = arith.select %ok, %z, %x : f32
    train.yield %w : f32
  }
  train.return %r : tensor<81920xf32>
}

// A block of the norm is a warp's; then a sum's elements are lane by lane a warp's, in f64.
// CHECK: gpu.func @norm(
// CHECK: %[[V:.*]] = arith.extf %{{.*}} : vector<4xf32> to vector<4xf64>
// CHECK: math.fma %[[V]], %[[V]], %{{.*}} : vector<4xf64>
// CHECK-COUNT-5: gpu.shuffle xor
// CHECK: memref.store %{{.*}} : memref<4xf64>
// CHECK: gpu.func @sums(%{{.*}}: memref<5xf32> {llvm.align = 16 : i64, llvm.noalias}, %{{.*}}: memref<1xf64> {llvm.align = 8 : i64, llvm.noalias})
// CHECK: arith.extf %{{.*}} : f32 to f64
// CHECK: gpu.shuffle
// CHECK: gpu.barrier
// CHECK: memref.store %{{.*}} : memref<1xf64>
train.kernel @norm(%g: tensor<12000xf32>) inplace [-1] {
  %r = train.segment_square_sum %g : tensor<12000xf32> block 4096 segments <groups = [0, 0], lengths = [9000, 7], offsets = [array<i64: 0, 9024>]> -> tensor<4xf64> {
  ^bb0(%x: f32):
    train.yield %x : f32
  }
  train.return %r : tensor<4xf64>
}
train.kernel @sums(%b: tensor<5xf32>) inplace [-1] {
  %r = train.sum_blocks %b {sources = array<i64: 0, 0, 0>, firsts = array<i64: 0, 3, 4>, counts = array<i64: 3, 1, 1>, sets = [array<i64: 0, 1, 2>]} : (tensor<5xf32>) -> tensor<f64>
  train.return %r : tensor<f64>
}
