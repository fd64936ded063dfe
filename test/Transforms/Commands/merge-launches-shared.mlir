// RUN: trainc-opt %s --train-merge-launches | FileCheck %s

// Two launches may share their kernel.
// CHECK-LABEL: train.kernel @k_update_update
// CHECK-SAME: (%[[A:.*]]: tensor<8xf32>, %[[G:.*]]: tensor<8xf32>, %[[B:.*]]: tensor<8xf32>, %[[H:.*]]: tensor<8xf32>) inplace [0, 2]
// CHECK-NEXT: train.segment_map %[[A]], %[[G]]
// CHECK-NEXT: ^bb0(%{{.*}}: f32, %{{.*}}: f32):
// CHECK: train.segment_map %[[B]], %[[H]]
// CHECK-NEXT: ^bb0(%{{.*}}: f32, %{{.*}}: f32):
// CHECK-LABEL: train.list @shared
// CHECK-COUNT-1: train.launch @k_update_update
// CHECK-NOT: train.launch
train.arena @arena.master.f32 master {
  train.slice @a : tensor<8xf32>
  train.slice @b : tensor<8xf32>
}
train.arena @arena.grad.f32 gradient {
  train.slice @a : tensor<8xf32>
  train.slice @b : tensor<8xf32>
}
train.kernel @k_update(%p: tensor<8xf32>, %g: tensor<8xf32>) inplace [0] {
  %r = train.segment_map %p, %g : tensor<8xf32>, tensor<8xf32> segments <groups = [0], lengths = [8], offsets = [array<i64: 0>, array<i64: 0>]> {targets = array<i64: 0>} -> tensor<8xf32> {
  ^bb0(%x: f32, %y: f32):
    %z = arith.subf %x, %y : f32
    train.yield %z : f32
  }
  train.return %r : tensor<8xf32>
}
train.list @shared of @step "apply" () {
  %a = train.read @arena.master.f32::@a : tensor<8xf32>
  %g = train.read @arena.grad.f32::@a : tensor<8xf32>
  %u = train.launch @k_update(%a, %g) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  train.write %u to @arena.master.f32::@a : tensor<8xf32>
  %b = train.read @arena.master.f32::@b : tensor<8xf32>
  %h = train.read @arena.grad.f32::@b : tensor<8xf32>
  %v = train.launch @k_update(%b, %h) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  train.write %v to @arena.master.f32::@b : tensor<8xf32>
  train.return
}
