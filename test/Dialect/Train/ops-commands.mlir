// Kernels, their launches, and what updates are made of.
//
// RUN: trainc-opt %s | trainc-opt | FileCheck %s
// RUN: trainc-opt %s --verify-roundtrip -o /dev/null

// CHECK: train.kernel @k(%[[X:.*]]: tensor<8xf32>, %{{.*}}: tensor<8xf32>) inplace [0, -1] {
// CHECK: train.return %{{.*}}, %{{.*}} : tensor<8xf32>, tensor<8xf32>
train.kernel @k(%x: tensor<8xf32>, %y: tensor<8xf32>) inplace [0, -1] {
  %a = nn.add %x, %y : tensor<8xf32>, tensor<8xf32>
  %b = nn.tanh %a : tensor<8xf32>
  train.return %a, %b : tensor<8xf32>, tensor<8xf32>
}

// CHECK: train.list @launches
train.list @launches of @step "first" (%x: tensor<8xf32>) {
  // CHECK: %{{.*}}:2 = train.launch @k(%[[X:.*]], %[[X]]) : (tensor<8xf32>, tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>)
  %a, %b = train.launch @k(%x, %x) : (tensor<8xf32>, tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>)
  train.return
}

// CHECK: train.list @sums
train.list @sums of @step "apply" (%x: tensor<5x2xbf16>, %p: tensor<16xf32>) {
  // CHECK: train.square_sum %{{.*}} block 4 : tensor<5x2xbf16> -> tensor<3xf64>
  %0 = train.square_sum %x block 4 : tensor<5x2xbf16> -> tensor<3xf64>
  // CHECK: %[[B:.*]] = train.segment_square_sum %[[P:.*]] : tensor<16xf32> block 4 segments <groups = [0, 0], lengths = [5, 4], offsets = [array<i64: 0, 8>]> -> tensor<3xf64> {
  // CHECK-NEXT: ^bb0(%[[E:.*]]: f32):
  // CHECK-NEXT: train.yield %[[E]] : f32
  %1 = train.segment_square_sum %p : tensor<16xf32> block 4 segments <groups = [0, 0], lengths = [5, 4], offsets = [array<i64: 0, 8>]> -> tensor<3xf64> {
  ^bb0(%e: f32):
    train.yield %e : f32
  }
  // CHECK: train.sum_blocks %[[B]] {counts = array<i64: 2, 1>, firsts = array<i64: 0, 2>, sets = [array<i64: 0, 1>, array<i64: 0, 1>], sources = array<i64: 0, 0>} : (tensor<3xf64>) -> (tensor<f64>, tensor<2xf64>)
  %2, %3 = train.sum_blocks %1 {sources = array<i64: 0, 0>, firsts = array<i64: 0, 2>, counts = array<i64: 2, 1>, sets = [array<i64: 0, 1>, array<i64: 0, 1>]} : (tensor<3xf64>) -> (tensor<f64>, tensor<2xf64>)
  // CHECK: train.sum_blocks %[[B]] {counts = array<i64: 2, 1>, firsts = array<i64: 0, 2>, owners = array<i64: 0, 0>, sets = [array<i64: 0>], sources = array<i64: 0, 0>} : (tensor<3xf64>) -> tensor<f64>
  %4 = train.sum_blocks %1 {sources = array<i64: 0, 0>, firsts = array<i64: 0, 2>, counts = array<i64: 2, 1>, sets = [array<i64: 0>], owners = array<i64: 0, 0>} : (tensor<3xf64>) -> tensor<f64>
  train.return
}

// Every kind of operand, and segments of one shard of two.
// CHECK: train.list @maps
train.list @maps of @step "apply" (%p: tensor<16xf32>, %lr: tensor<f32>, %a: tensor<f64>, %each: tensor<2xf64>, %shard: tensor<i64>) {
  // CHECK: train.segment_map %{{.*}} : tensor<16xf32> uniforms %{{.*}} : tensor<f32> grouped %[[A:.*]], %[[A]] : tensor<f64>, tensor<f64> each %{{.*}} : tensor<2xf64> segments <groups = [0, 1], lengths = [4, 8], offsets = [array<i64: 0, 8>]> {indexed, targets = array<i64: 0>} -> tensor<16xf32> {
  // CHECK-NEXT: ^bb0(%{{.*}}: f32, %{{.*}}: f32, %{{.*}}: f64, %{{.*}}: f64, %{{.*}}: i64):
  %0 = train.segment_map %p : tensor<16xf32> uniforms %lr : tensor<f32> grouped %a, %a : tensor<f64>, tensor<f64> each %each : tensor<2xf64> segments <groups = [0, 1], lengths = [4, 8], offsets = [array<i64: 0, 8>]> {targets = array<i64: 0>, indexed} -> tensor<16xf32> {
  ^bb0(%e: f32, %u: f32, %g: f64, %n: f64, %i: i64):
    %r = arith.mulf %e, %u : f32
    train.yield %r : f32
  }
  // CHECK: train.segment_map %{{.*}} : tensor<16xf32> each %{{.*}} : tensor<2xf64> shard %{{.*}} : tensor<i64> segments <groups = [0, 0], lengths = [4, 8], offsets = [array<i64: 0, 8>], owners = [1, 1], shards = [0, 1, 2], starts = [0, 4]> {targets = array<i64: 0>} -> tensor<16xf32> {
  %1 = train.segment_map %p : tensor<16xf32> each %each : tensor<2xf64> shard %shard : tensor<i64> segments <groups = [0, 0], lengths = [4, 8], offsets = [array<i64: 0, 8>], owners = [1, 1], shards = [0, 1, 2], starts = [0, 4]> {targets = array<i64: 0>} -> tensor<16xf32> {
  ^bb0(%e: f32, %n: f64):
    train.yield %e : f32
  }
  train.return
}
