// RUN: trainc-opt %s --train-lower-kernels --split-input-file | FileCheck %s

// 70000 elements are five pieces, a tile each; the small segments join the last one.
// What belongs to the group and the segment is loaded once per piece.
// CHECK-DAG: memref.global "private" constant @[[FIRSTS:.*]] : memref<6xi64> = dense<[0, 1, 2, 3, 4, 7]>
// CHECK-DAG: memref.global "private" constant @[[SEGMENTS:.*]] : memref<7xi64> = dense<[0, 0, 0, 0, 0, 1, 2]>
// CHECK-DAG: memref.global "private" constant @[[ENDS:.*]] : memref<7xi64> = dense<[16384, 32768, 49152, 65536, 70000, 5, 3]>
// CHECK-DAG: memref.global "private" constant @[[PLACES:.*]] : memref<3xi64> = dense<[64, 80000, 80008]>
// CHECK: func.func @update(%[[P:.*]]: memref<81920xf32> {llvm.noalias}, %[[G:.*]]: memref<81920xf32> {llvm.noalias},
// CHECK-SAME: attributes {tiles = 5 : i64}
// CHECK: scf.for %[[PIECE:.*]] = %
// CHECK: arith.select %{{.*}} : f32
// CHECK: %[[Q:.*]] = arith.mulf %{{.*}}, %{{.*}} : f32
// CHECK: scf.for
// Fetched to be written, so that no other core keeps a copy.
// CHECK: memref.prefetch %[[P]]{{.*}}, write,
// CHECK: %[[X:.*]] = vector.load %[[P]][%[[AT:.*]]]
// CHECK: memref.prefetch %[[G]]{{.*}}, read,
// CHECK: arith.subf %[[X]], %{{.*}} : vector<16xf32>
// CHECK: vector.store %{{.*}}, %[[P]][%[[AT]]]
// CHECK: scf.if
// CHECK: vector.maskedstore %[[P]]
// CHECK-NOT: scf.for
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

// -----

// A sum per block, in lanes; then sums per segment in f64, and of them in order.
// CHECK: func.func @norm(
// CHECK-SAME: attributes {tiles = 1 : i64}
// CHECK: scf.for {{.*}} step %c4096
// CHECK: %[[V:.*]] = arith.extf %{{.*}} : vector<32xf32> to vector<32xf64>
// CHECK: math.fma %[[V]], %[[V]], %{{.*}} : vector<32xf64>
// CHECK: memref.store %{{.*}}, %{{.*}} : memref<4xf64>
// CHECK: func.func @sums(
// CHECK-SAME: scratch = 64 : i64
// CHECK: arith.extf %{{.*}} : vector<32xf32> to vector<32xf64>
// CHECK: arith.addf %{{.*}} : vector<32xf64>
// CHECK: scf.for {{.*}} -> (f64)
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
