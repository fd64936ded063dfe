// DEFINE: %{plan} = train-differentiate,train-plan-step,train-form-buckets{bucket-size=4},train-fuse-optimizer,train-shard{mode=optimizer}
// RUN: trainc-opt %s --pass-pipeline='builtin.module(%{plan},train-verify-form{form=2})' | FileCheck %s
// RUN: trainc-opt %s --pass-pipeline='builtin.module(%{plan},train-coalesce,train-outline-lists,train-expand-updates)' | FileCheck %s --check-prefix=SEGMENTS

// The update is divided by buckets, each with the groups that it needs of all.
// CHECK: train.norm_squared
// CHECK: train.update [@slow] {{\[\[}}@b]] {{.*}} over ["data"] fused
// CHECK: train.all_gather
// CHECK: train.update [@o] {{\[\[}}@a]] {{.*}} over ["data"] fused
// CHECK: train.all_gather
// CHECK-NOT: train.update

// A segment is cut where shards end, and a rank runs over its own; sums of blocks are gathered, and added by parameter.
// SEGMENTS: train.list @step.apply
// SEGMENTS: %[[SHARD:.*]] = nn.cast %{{.*}} to i64
// SEGMENTS: %[[S0:.*]] = train.segment_square_sum {{.*}} : tensor<8192xf32> shard %[[SHARD]] {{.*}}lengths = [30], offsets = [array<i64: 0>], owners = [0], shards = [0, 1, 1], starts = [0]> -> tensor<1xf64>
// SEGMENTS: %[[S1:.*]] = train.segment_square_sum {{.*}} : tensor<16384xf32> shard %[[SHARD]] {{.*}}lengths = [8192, 808], offsets = [array<i64: 0, 8192>], owners = [0, 0], shards = [0, 1, 2], starts = [0, 8192]> -> tensor<2xf64>
// SEGMENTS: %[[OWN:.*]] = nn.concat %[[S0]], %[[S1]] dim 0
// SEGMENTS: %[[ALL:.*]] = train.all_gather %[[OWN]] over ["data"] : tensor<3xf64> -> tensor<6xf64>
// SEGMENTS: train.sum_blocks %[[ALL]] {counts = array<i64: 1, 2, 1>, firsts = array<i64: 0, 1, 4>, owners = array<i64: 0, 1, 1>, sets = [array<i64: 0, 1>]
// SEGMENTS: train.segment_map {{.*}} : tensor<16384xf32>, tensor<16384xf32> {{.*}} shard %[[SHARD]] :
// SEGMENTS-SAME: lengths = [8192, 808], offsets = [array<i64: 0, 8192>, array<i64: 0, 8192>], owners = [0, 0], shards = [0, 1, 2], starts = [0, 8192]
// SEGMENTS: train.write %{{.*}} to @arena.master.f32::@bucket : tensor<16384xf32>
// SEGMENTS: train.segment_map
// SEGMENTS-SAME: lengths = [30], offsets = [array<i64: 0>, array<i64: 0>], owners = [0], shards = [0, 1, 1]
train.mesh @mesh(data = 2)
train.optimizer @o(%p: f32, %g: f32, %lr: f64) hyper(lr = 0.1) {
  %r = arith.truncf %lr : f64 to f32
  %m = arith.mulf %g, %r : f32
  %q = arith.subf %p, %m : f32
  train.yield %q : f32
}
train.optimizer @slow(%p: f32, %g: f32, %lr: f64) hyper(lr = 0.01) {
  %r = arith.truncf %lr : f64 to f32
  %m = arith.mulf %g, %r : f32
  %q = arith.subf %p, %m : f32
  train.yield %q : f32
}
train.param @a : tensor<30xf32> init(ones) optimizer(@o)
train.param @b : tensor<9000xf32> init(ones) optimizer(@slow)
train.step @step(%x: tensor<30xf32>, %y: tensor<9000xf32>) clip(global_norm<1.0>) attributes {over = ["data"]} {
  %a = train.read @a : tensor<30xf32>
  %b = train.read @b : tensor<9000xf32>
  %u = nn.mul %a, %x : tensor<30xf32>, tensor<30xf32>
  %v = nn.reduce sum %u dims [0] : tensor<30xf32>
  %d = nn.mul %b, %y : tensor<9000xf32>, tensor<9000xf32>
  %s = nn.reduce sum %d dims [0] : tensor<9000xf32>
  %w = nn.add %s, %v : tensor<f32>, tensor<f32>
  train.yield loss(%w) : tensor<f32>
}
