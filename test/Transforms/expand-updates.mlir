// RUN: trainc-opt %s --train-expand-updates --split-input-file | FileCheck %s

// CHECK-LABEL: train.list @norm
// CHECK: %[[G:.*]] = train.read @arena.grad.f32::@w
// CHECK: train.square_sum %[[G]]
// CHECK-NOT: train.norm_squared
train.optimizer @o(%p: f32, %g: f32) {
  train.yield %p : f32
}
train.param @w : tensor<4xf32> init(ones) optimizer(@o)
train.arena @arena.grad.f32 role("gradients") bytes(16) {slices = [@w], types = [tensor<4xf32>], offsets = array<i64: 0>}
train.list @norm of @step "apply" () {
  %n = train.norm_squared [@w] : tensor<f64>
  train.return %n : tensor<f64>
}

// -----

// The region once per parameter; nothing is written unless the gradients are finite.
// CHECK-LABEL: train.list @update
// CHECK: %[[NEW:.*]] = nn.map
// CHECK: arith.subf
// CHECK: arith.select
// CHECK: train.write %[[NEW]] to @arena.master.f32::@w
// CHECK-NOT: train.update
train.optimizer @o(%p: f32, %g: f32) {
  %q = arith.subf %p, %g : f32
  train.yield %q : f32
}
train.param @w : tensor<4xf32> init(ones) optimizer(@o)
train.arena @arena.master.f32 role("parameters") bytes(16) {slices = [@w], types = [tensor<4xf32>], offsets = array<i64: 0>}
train.arena @arena.grad.f32 role("gradients") bytes(16) {slices = [@w], types = [tensor<4xf32>], offsets = array<i64: 0>}
train.list @update of @step "apply" (%s: tensor<f64>, %f: tensor<i1>) {
  train.update @o [@w] scale(%s) if(%f) t(%s) : tensor<f64>, tensor<i1>, tensor<f64>
  train.return
}

// -----

// It does nothing to a list without updates.
// CHECK-LABEL: train.list @none
// CHECK-NEXT: nn.neg
// CHECK-NEXT: train.return
train.list @none of @e "first" (%x: tensor<4xf32>) {
  %y = nn.neg %x : tensor<4xf32>
  train.return %y : tensor<4xf32>
}
