// DEFINE: %{plan} = train-differentiate,train-plan-step,train-coalesce,train-form-buckets{bucket-size=4},train-fuse-optimizer
// RUN: trainc-opt %s --split-input-file --pass-pipeline='builtin.module(%{plan},train-shard{mode=optimizer},train-verify-form{form=2})' | FileCheck %s

// A bucket is gathered right behind its update, which has the groups that it needs of all.
// CHECK: train.segment_square_sum
// CHECK: %[[FAST:.*]]:2 = nn.map
// CHECK: %[[SLOW:.*]]:2 = nn.map
// CHECK: %[[A:.*]] = train.segment_map %{{[0-9]+}}, %[[G:[0-9]+]] :
// CHECK-SAME: grouped %[[SLOW]]#0, %[[SLOW]]#1 : tensor<f32>, tensor<f32> shard
// CHECK-SAME: groups = array<i64: 0, 0>, lengths = array<i64: 8192, 808>, offsets = [array<i64: 0, 8192>, array<i64: 0, 8192>], owners = array<i64: 1, 1>, shards = array<i64: 0, 1, 2>, starts = array<i64: 0, 8192>
// CHECK: %[[B:.*]] = train.all_gather %[[A]] over ["data"] range [0, 16384]
// CHECK: train.write %[[B]] to @arena.master.f32
// CHECK: %[[P:.*]] = train.read @arena.master.f32
// CHECK: %[[C:.*]] = train.segment_map %[[P]], %[[G]] :
// CHECK-SAME: grouped %[[FAST]]#0, %[[FAST]]#1 : tensor<f32>, tensor<f32> shard
// CHECK-SAME: groups = array<i64: 0>, lengths = array<i64: 30>, offsets = [array<i64: 16384>, array<i64: 16384>], owners = array<i64: 0>, shards = array<i64: 0, 1, 1>, starts = array<i64: 0>
// CHECK: %[[D:.*]] = train.all_gather %[[C]] over ["data"] range [16384, 8192]
// CHECK: train.write %[[D]] to @arena.master.f32
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
