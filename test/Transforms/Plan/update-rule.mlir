// RUN: trainc-opt %s --train-expand-updates | FileCheck %s --check-prefixes=CHECK,EACH
// RUN: trainc-opt %s --train-fuse-optimizer | FileCheck %s --check-prefixes=CHECK,ALL

// The gradient is scaled, clamped and given to the region; then the average moves, and
// nothing changes unless the gradients are finite: one parameter at a time, and all.
// CHECK-LABEL: train.list @update
// EACH: nn.map
// EACH: arith.truncf %{{.*}} : f64 to f32
// ALL: nn.map
// ALL: arith.subf %{{.*}}, %{{.*}} : f64
// ALL: train.segment_map
// CHECK: %[[G:.*]] = arith.mulf %{{.*}}, %{{.*}} : f32
// CHECK: %[[LOW:.*]] = arith.minimumf %[[G]], %[[L:.*]] : f32
// CHECK: %[[D:.*]] = arith.maximumf %[[LOW]], %{{.*}} : f32
// CHECK: %[[Q:.*]] = arith.subf %[[P:.*]], %[[D]] : f32
// CHECK: %[[M:.*]] = arith.addf %[[OLD:.*]], %[[D]] : f32
// CHECK: %[[DIFF:.*]] = arith.subf %[[Q]], %[[E:.*]] : f32
// CHECK: %[[E1:.*]] = math.fma %{{.*}}, %[[DIFF]], %[[E]] : f32
// CHECK: %[[P1:.*]] = arith.select %[[OK:.*]], %[[Q]], %[[P]] : f32
// CHECK: %[[M1:.*]] = arith.select %[[OK]], %[[M]], %[[OLD]] : f32
// CHECK: %[[E2:.*]] = arith.select %[[OK]], %[[E1]], %[[E]] : f32
// CHECK: yield %[[P1]], %[[M1]], %[[E2]]
train.optimizer @o(%p: f32, %g: f32, %m: f32) state(m = 0.0) hyper() ema(0.9) {
  %q = arith.subf %p, %g : f32
  %n = arith.addf %m, %g : f32
  train.yield %q, %n : f32, f32
}
train.param @w : tensor<4xf32> init(ones) optimizer(@o)
train.arena @arena.master.f32 role("parameters") bytes(16) {slices = [@w], types = [tensor<4xf32>], offsets = array<i64: 0>}
train.arena @arena.grad.f32 role("gradients") bytes(16) {slices = [@w], types = [tensor<4xf32>], offsets = array<i64: 0>}
train.arena @arena.state.m.f32 role("state") bytes(16) {slices = [@w], types = [tensor<4xf32>], offsets = array<i64: 0>}
train.arena @arena.state.ema.f32 role("state") bytes(16) {slices = [@w], types = [tensor<4xf32>], offsets = array<i64: 0>}
train.arena @arena.scalars role("scalars") bytes(8) {slices = [@o.ema], types = [tensor<f64>], offsets = array<i64: 0>}
train.list @update of @step "apply" (%s: tensor<f64>, %f: tensor<i1>, %l: tensor<f64>) {
  train.update @o [@w] scale(%s) if(%f) t(%s) limit(%l) : tensor<f64>, tensor<i1>, tensor<f64>, tensor<f64>
  train.return
}
