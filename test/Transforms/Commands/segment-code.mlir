// RUN: trainc-opt %s --train-fuse-optimizer --train-expand-updates --split-input-file | FileCheck %s

// The code of an update is divided: what depends on scalars alone is computed once per
// group, before; a value that is one for all groups is a uniform, others are grouped, in
// the order of the arguments; constants stand on both sides; no code of scalars is left.
// CHECK-LABEL: train.list @divided
// CHECK: %[[A:.*]]:2 = nn.map(%{{.*}})
// CHECK: arith.constant 2.000000e+00 : f32
// CHECK: arith.mulf
// CHECK: %[[B:.*]]:2 = nn.map(%{{.*}})
// CHECK: arith.constant 2.000000e+00 : f32
// CHECK: train.segment_map
// CHECK-SAME: uniforms %{{.*}} : tensor<i1>
// CHECK-SAME: grouped %[[A]]#0, %[[B]]#0, %[[A]]#1, %[[B]]#1 : tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>
// CHECK-SAME: groups = [0, 1], lengths = [4, 5]
// CHECK: ^bb0(%{{.*}}: f32, %{{.*}}: f32, %{{.*}}: i1, %{{.*}}: f32, %[[TWICE:.*]]: f32):
// CHECK-NOT: arith.truncf
// CHECK: %[[TWO:.*]] = arith.constant 2.000000e+00 : f32
// CHECK: arith.divf %{{.*}}, %[[TWO]]
// CHECK: arith.mulf %{{.*}}, %[[TWICE]]
// CHECK-NOT: arith.truncf
// CHECK: train.yield
train.optimizer @fast(%p: f32, %g: f32, %lr: f64) hyper(lr = 0.1) {
  %two = arith.constant 2.0 : f32
  %r = arith.truncf %lr : f64 to f32
  %t = arith.mulf %r, %two : f32
  %h = arith.divf %g, %two : f32
  %m = arith.mulf %h, %t : f32
  %q = arith.subf %p, %m : f32
  train.yield %q : f32
}
train.optimizer @slow(%p: f32, %g: f32, %lr: f64) hyper(lr = 0.01) {
  %two = arith.constant 2.0 : f32
  %r = arith.truncf %lr : f64 to f32
  %t = arith.mulf %r, %two : f32
  %h = arith.divf %g, %two : f32
  %m = arith.mulf %h, %t : f32
  %q = arith.subf %p, %m : f32
  train.yield %q : f32
}
train.param @a : tensor<4xf32> init(ones) optimizer(@fast)
train.param @b : tensor<5xf32> init(ones) optimizer(@slow)
train.bucket @bucket [@a, @b] elements(16) offsets([0, 8])
train.arena @arena.master.f32 master {
  train.slice @a : tensor<4xf32>
  train.slice @b : tensor<5xf32>
  train.span @bucket
}
train.arena @arena.grad.f32 gradient {
  train.slice @a : tensor<4xf32>
  train.slice @b : tensor<5xf32>
  train.span @bucket
}
train.arena @arena.scalars scalars {
  train.slice @fast.lr : tensor<f64>
  train.slice @slow.lr : tensor<f64>
}
train.list @divided of @step "apply" (%s: tensor<f64>, %f: tensor<i1>) {
  train.update [@fast] [[@a]] scale(%s : tensor<f64>) if(%f : tensor<i1>) t(%s : tensor<f64>)
  train.update [@slow] [[@b]] scale(%s : tensor<f64>) if(%f : tensor<i1>) t(%s : tensor<f64>)
  train.return
}

// -----

// With one group nothing is grouped: all segments are of group 0.
// CHECK-LABEL: train.list @uniform
// CHECK: train.segment_map
// CHECK-NOT: grouped
// CHECK-SAME: groups = [0, 0]
train.optimizer @o(%p: f32, %g: f32) {
  %q = arith.subf %p, %g : f32
  train.yield %q : f32
}
train.param @a : tensor<4xf32> init(ones) optimizer(@o)
train.param @b : tensor<5xf32> init(ones) optimizer(@o)
train.bucket @bucket [@a, @b] elements(16) offsets([0, 8])
train.arena @arena.master.f32 master {
  train.slice @a : tensor<4xf32>
  train.slice @b : tensor<5xf32>
  train.span @bucket
}
train.arena @arena.grad.f32 gradient {
  train.slice @a : tensor<4xf32>
  train.slice @b : tensor<5xf32>
  train.span @bucket
}
train.list @uniform of @step "apply" (%s: tensor<f64>, %f: tensor<i1>) {
  train.update [@o] [[@a, @b]] scale(%s : tensor<f64>) if(%f : tensor<i1>) t(%s : tensor<f64>)
  train.return
}
