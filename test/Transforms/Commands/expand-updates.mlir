// RUN: trainc-opt %s --train-expand-updates --split-input-file | FileCheck %s

// CHECK-LABEL: train.list @norm
// CHECK: %[[G:.*]] = train.read @arena.grad.f32::@w
// CHECK: train.square_sum %[[G]]
// CHECK-NOT: train.norm_squared
train.optimizer @o(%p: f32, %g: f32) {
  train.yield %p : f32
}
train.param @w : tensor<4xf32> init(ones) optimizer(@o)
train.arena @arena.grad.f32 gradient {
  train.slice @w : tensor<4xf32>
}
train.list @norm of @step "apply" () {
  %n = train.norm_squared [[@w]] : tensor<f64>
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
train.arena @arena.master.f32 master {
  train.slice @w : tensor<4xf32>
}
train.arena @arena.grad.f32 gradient {
  train.slice @w : tensor<4xf32>
}
train.list @update of @step "apply" (%s: tensor<f64>, %f: tensor<i1>) {
  train.update [@o] [[@w]] scale(%s : tensor<f64>) if(%f : tensor<i1>) t(%s : tensor<f64>)
  train.return
}

// -----

// A direction that is made orthogonal: of a tall matrix by products from the right, each step two of the Gram matrix.
// CHECK-LABEL: train.list @orthogonal
// CHECK: %[[U:.*]] = nn.map(
// CHECK: train.square_sum %[[U]]
// CHECK: %[[X:.*]] = nn.map(%[[U]],
// CHECK: %[[A:.*]] = nn.matmul %[[X]], %[[X]] transpose_lhs : tensor<4x2xbf16>, tensor<4x2xbf16>
// CHECK: %[[AA:.*]] = nn.matmul %[[A]], %[[A]] : tensor<2x2xbf16>, tensor<2x2xbf16>
// CHECK: %[[B:.*]] = nn.map(%[[A]], %[[AA]])
// CHECK: nn.matmul %[[X]], %[[B]] : tensor<4x2xbf16>, tensor<2x2xbf16>
// CHECK-COUNT-3: nn.matmul
// CHECK-NOT: nn.matmul
// CHECK: train.write %{{.*}} to @arena.master.f32::@w
train.optimizer @o(%p: f32, %g: f32) orthogonal<a = 3.0, b = -4.0, c = 2.0, eps = 0.1, steps = 2, bf16 = true, match_rms = false, unclamped = false> {
  train.yield %g : f32
} scaled(%p: f32, %u: f32, %p_norm: f32, %u_norm: f32) {
  %q = arith.subf %p, %u : f32
  train.yield %q : f32
}
train.param @w : tensor<4x2xf32> init(ones) optimizer(@o)
train.arena @arena.master.f32 master {
  train.slice @w : tensor<4x2xf32>
}
train.arena @arena.grad.f32 gradient {
  train.slice @w : tensor<4x2xf32>
}
train.list @orthogonal of @step "apply" (%s: tensor<f64>, %f: tensor<i1>) {
  train.update [@o] [[@w]] scale(%s : tensor<f64>) if(%f : tensor<i1>) t(%s : tensor<f64>)
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

// -----

// Copies are written where there are slices for them.
// CHECK-LABEL: train.list @copies
// CHECK: %[[A:.*]] = nn.map
// CHECK: train.write %[[A]] to @arena.master.f32::@a
// CHECK: %[[B:.*]]:2 = nn.map
// CHECK: nn.yield %[[Q:.*]], %[[Q]] : f32, f32
// CHECK: train.write %[[B]]#0 to @arena.master.f32::@b
// CHECK: train.write %[[B]]#1 to @arena.compute.bf16::@b : tensor<4xbf16>
train.optimizer @o(%p: f32, %g: f32) {
  %q = arith.subf %p, %g : f32
  train.yield %q : f32
}
train.param @a : tensor<4xf32> init(ones) optimizer(@o)
train.param @b : tensor<4xf32> init(ones) optimizer(@o)
train.arena @arena.master.f32 master {
  train.slice @a : tensor<4xf32>
  train.slice @b : tensor<4xf32>
}
train.arena @arena.grad.f32 gradient {
  train.slice @a : tensor<4xf32>
  train.slice @b : tensor<4xf32>
}
train.arena @arena.compute.bf16 compute {
  train.slice @b : tensor<4xbf16>
}
train.list @copies of @step "apply" (%s: tensor<f64>, %f: tensor<i1>) {
  train.update [@o] [[@a, @b]] scale(%s : tensor<f64>) if(%f : tensor<i1>) t(%s : tensor<f64>) copies [@arena.compute.bf16]
  train.return
}

// -----

// A parameter of bf16 rounded by chance: bits that do not fit are cut after a random
// number of them is added. One of f32 is not rounded.
// CHECK-LABEL: train.list @stochastic
// CHECK: nn.iota
// CHECK: nn.map
// CHECK: arith.constant 2147483648 : i64
// CHECK: arith.bitcast
// CHECK: train.write %{{.*}} to @arena.master.bf16::@a
// CHECK-NOT: arith.bitcast
// CHECK: train.return
train.optimizer @o(%p: f32, %g: f32) {
  %q = arith.subf %p, %g : f32
  train.yield %q : f32
}
train.param @a : tensor<4xbf16> init(ones) optimizer(@o)
train.param @b : tensor<4xf32> init(ones) optimizer(@o)
train.arena @arena.master.bf16 master {
  train.slice @a : tensor<4xbf16>
}
train.arena @arena.master.f32 master {
  train.slice @b : tensor<4xf32>
}
train.arena @arena.grad.f32 gradient {
  train.slice @a : tensor<4xf32>
  train.slice @b : tensor<4xf32>
}
train.arena @arena.scalars scalars {
  train.slice @seed : tensor<f64>
  train.slice @update : tensor<f64>
}
train.list @stochastic of @step "apply" (%s: tensor<f64>, %f: tensor<i1>) {
  train.update [@o] [[@a, @b]] scale(%s : tensor<f64>) if(%f : tensor<i1>) t(%s : tensor<f64>) stochastic
  train.return
}

// -----

// What is not finite in padding, which is 0 and has a gradient of 0, stays 0: ranks have 3 of 5 elements. In a direction
// before its norm is taken.
// CHECK-LABEL: train.list @uneven
// CHECK: nn.map
// CHECK: ^bb0(%[[P:.*]]: f32, %[[G:.*]]: f32,
// CHECK: %[[ZERO:.*]] = arith.cmpf oeq, %[[P]], %{{.*}} : f32
// CHECK: %[[NONE:.*]] = arith.cmpf oeq, %[[G]], %{{.*}} : f32
// CHECK: %[[PADDING:.*]] = arith.andi %[[ZERO]], %[[NONE]] : i1
// CHECK: %[[NEW:.*]] = arith.divf
// CHECK: %[[REST:.*]] = arith.subf %[[NEW]], %[[NEW]] : f32
// CHECK: %[[NAN:.*]] = arith.cmpf uno, %[[REST]], %[[REST]] : f32
// CHECK: %[[KEEPS:.*]] = arith.andi %[[PADDING]], %[[NAN]] : i1
// CHECK: %[[KEPT:.*]] = arith.select %[[KEEPS]], %[[P]], %[[NEW]] : f32
// CHECK: arith.select %{{.*}}, %[[KEPT]], %[[P]] : f32
// CHECK: nn.yield
// CHECK-NOT: arith.cmpf
train.mesh @mesh(model = 2)
train.optimizer @o(%p: f32, %g: f32) {
  %q = arith.divf %p, %g : f32
  train.yield %q : f32
}
train.param @w : tensor<3xf32> init(ones) optimizer(@o) split([model]) of tensor<5xf32>
train.param @v : tensor<3xf32> init(ones) optimizer(@o) split([model]) of tensor<6xf32>
train.arena @arena.master.f32.model master {
  train.slice @w : tensor<3xf32>
  train.slice @v : tensor<3xf32>
}
train.arena @arena.grad.f32.model gradient {
  train.slice @w : tensor<3xf32>
  train.slice @v : tensor<3xf32>
}
train.list @uneven of @step "apply" (%s: tensor<f64>, %f: tensor<i1>) {
  train.update [@o] [[@w, @v]] scale(%s : tensor<f64>) if(%f : tensor<i1>) t(%s : tensor<f64>)
  train.return
}
