// RUN: trainc-opt %s --train-fuse-optimizer --split-input-file | FileCheck %s
// RUN: trainc-opt %s --train-fuse-optimizer --split-input-file --remarks-filter=train-fuse-optimizer 2>&1 | FileCheck %s --check-prefix=REMARK

// Norms are one, and updates of one rule: groups of parameters that share numbers. Another rule is another update, as is
// another type of parameters; those without copies are one, too.
// CHECK-LABEL: train.list @apply
// CHECK: %[[N:.*]]:2 = train.norm_squared {{\[\[}}@a, @b, @h, @z], [@b]] fused : tensor<f64>, tensor<1xf64>
// CHECK-NEXT: train.update [@o] {{\[\[}}@h]] {{.*}} fused
// CHECK-NEXT: train.update [@o] {{\[\[}}@z]] {{.*}} fused
// CHECK-NEXT: train.update [@o, @slow] {{\[\[}}@a], [@b]] scale(%[[N]]#0, %{{.*}} : tensor<f64>, tensor<f64>) if(%{{.*}}) t(%{{.*}}) copies [@arena.compute.bf16] fused
// CHECK-NEXT: train.update [@other] {{\[\[}}@c]] {{.*}} fused
// CHECK-NEXT: train.return
// REMARK: remark: [Passed] Fused{{.*}}Groups=2, Parameters=2
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
train.optimizer @other(%p: f32, %g: f32) {
  %q = arith.subf %p, %g : f32
  train.yield %q : f32
}
train.param @a : tensor<4xf32> init(ones) optimizer(@o)
train.param @b : tensor<5xf32> init(ones) optimizer(@slow)
train.param @c : tensor<5xf32> init(ones) optimizer(@other)
train.param @h : tensor<4xbf16> init(ones) optimizer(@o)
train.param @z : tensor<4xf32> init(ones) optimizer(@o)
train.arena @arena.compute.bf16 compute {
  train.slice @a : tensor<4xbf16>
  train.slice @b : tensor<5xbf16>
  train.slice @c : tensor<5xbf16>
}
train.list @apply of @step "apply" (%f: tensor<i1>, %s: tensor<f64>, %t: tensor<f64>) {
  %n = train.norm_squared [[@a, @b, @h, @z]] : tensor<f64>
  %m = train.norm_squared [[@b]] : tensor<1xf64>
  train.update [@o] [[@a, @h, @z]] scale(%n : tensor<f64>) if(%f : tensor<i1>) t(%t : tensor<f64>) copies [@arena.compute.bf16]
  train.update [@slow] [[@b]] scale(%s : tensor<f64>) if(%f : tensor<i1>) t(%t : tensor<f64>) copies [@arena.compute.bf16]
  train.update [@other] [[@c]] scale(%s : tensor<f64>) if(%f : tensor<i1>) t(%t : tensor<f64>) copies [@arena.compute.bf16]
  train.return
}

// -----

// A group that is divided keeps the scales of its parameters.
// CHECK-LABEL: train.list @scales
// CHECK: %[[ONE:.*]] = nn.slice %{{.*}} offsets [0] sizes [1] : tensor<2xf64>
// CHECK: train.update [@o] {{\[\[}}@a]] scale(%[[ONE]] : tensor<1xf64>)
// CHECK: %[[TWO:.*]] = nn.slice %{{.*}} offsets [1] sizes [1] : tensor<2xf64>
// CHECK: train.update [@o] {{\[\[}}@h]] scale(%[[TWO]] : tensor<1xf64>)
train.optimizer @o(%p: f32, %g: f32) {
  %q = arith.subf %p, %g : f32
  train.yield %q : f32
}
train.param @a : tensor<4xf32> init(ones) optimizer(@o)
train.param @h : tensor<4xbf16> init(ones) optimizer(@o)
train.list @scales of @step "apply" (%f: tensor<i1>, %s: tensor<2xf64>, %t: tensor<f64>) {
  train.update [@o] [[@a, @h]] scale(%s : tensor<2xf64>) if(%f : tensor<i1>) t(%t : tensor<f64>)
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
