// RUN: trainc-opt %s --train-fuse-optimizer --train-expand-updates --split-input-file | FileCheck %s

// Two groups of one rule are one pass; their numbers are rounded once before it.
// CHECK-LABEL: train.list @apply
// CHECK: %[[G:.*]] = train.read @arena.grad.f32::@bucket_1 : tensor<80xf32>
// CHECK: %[[BLOCKS:.*]] = train.segment_square_sum %[[G]]
// CHECK-SAME: block 4096 segments <groups = [0, 0], lengths = [4, 5], offsets = [array<i64: 0, 64>]>
// CHECK: %[[N:.*]]:2 = train.sum_blocks %[[BLOCKS]] {counts = array<i64: 1, 1>, firsts = array<i64: 0, 1>, sets = [array<i64: 0, 1>, array<i64: 1>], sources = array<i64: 0, 0>}
// CHECK-NOT: train.norm_squared
// CHECK: %[[S:.*]]:2 = nn.map(%[[N]]#0, %{{.*}})
// CHECK: arith.truncf
// CHECK: %[[R:.*]]:2 = nn.map(%[[N]]#1, %{{.*}})
// CHECK: %[[NEW:.*]] = train.segment_map %{{.*}}, %{{.*}} : tensor<80xf32>, tensor<80xf32>
// CHECK-SAME: uniforms %{{.*}} : tensor<i1>
// CHECK-SAME: grouped %[[S]]#0, %[[R]]#0, %[[S]]#1, %[[R]]#1
// CHECK-SAME: segments <groups = [0, 1], lengths = [4, 5], offsets = [array<i64: 0, 64>, array<i64: 0, 64>]> {targets = array<i64: 0>}
// CHECK-NOT: arith.truncf
// CHECK: arith.select
// CHECK: train.write %[[NEW]] to @arena.master.f32::@bucket_1 : tensor<80xf32>
// CHECK-NOT: train.segment_map
// CHECK-NOT: train.update
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
train.param @frozen : tensor<4xf32> init(ones) frozen
train.param @a : tensor<4xf32> init(ones) optimizer(@o)
train.param @b : tensor<5xf32> init(ones) optimizer(@slow)
train.bucket @bucket [@frozen] elements(16) offsets([0])
train.arena @arena.master.f32 master {
  train.slice @frozen : tensor<4xf32>
  train.slice @a : tensor<4xf32>
  train.slice @b : tensor<5xf32>
  train.span @bucket
  train.span @bucket_1
}
train.bucket @bucket_1 [@a, @b] elements(80) offsets([0, 64])
train.arena @arena.grad.f32 gradient {
  train.slice @a : tensor<4xf32>
  train.slice @b : tensor<5xf32>
  train.span @bucket_1
}
train.arena @arena.scalars scalars {
  train.slice @o.lr : tensor<f64>
  train.slice @slow.lr : tensor<f64>
}
train.list @apply of @step "apply" (%f: tensor<i1>, %t: tensor<f64>) {
  %n = train.norm_squared [[@a, @b]] : tensor<f64>
  %m = train.norm_squared [[@b]] : tensor<f64>
  train.update [@o] [[@a]] scale(%n : tensor<f64>) if(%f : tensor<i1>) t(%t : tensor<f64>)
  train.update [@slow] [[@b]] scale(%m : tensor<f64>) if(%f : tensor<i1>) t(%t : tensor<f64>)
  train.return
}

// -----

// A rule with norms: the direction's norm first, then all at once. Another rule is
// another pass.
// CHECK-LABEL: train.list @norms
// CHECK: %[[B:.*]]:2 = train.segment_square_sum
// CHECK: arith.addf
// CHECK: %[[Q:.*]]:2 = train.sum_blocks %[[B]]#0, %[[B]]#1
// CHECK: nn.sqrt %[[Q]]#0
// CHECK: nn.sqrt %[[Q]]#1
// CHECK: train.segment_map
// CHECK-SAME: each %{{.*}}, %{{.*}} : tensor<1xf32>, tensor<1xf32>
// CHECK: arith.addf
// CHECK: arith.divf
// CHECK: train.segment_map
// CHECK-NOT: each
// CHECK: train.return
train.optimizer @ratio(%p: f32, %g: f32) {
  %u = arith.addf %p, %g : f32
  train.yield %u : f32
} scaled(%p: f32, %u: f32, %pn: f32, %un: f32) {
  %r = arith.divf %pn, %un : f32
  %m = arith.mulf %r, %u : f32
  %q = arith.subf %p, %m : f32
  train.yield %q : f32
}
train.optimizer @plain(%p: f32, %g: f32) {
  %q = arith.subf %p, %g : f32
  train.yield %q : f32
}
train.param @a : tensor<4xf32> init(ones) optimizer(@ratio)
train.param @b : tensor<4xf32> init(ones) optimizer(@plain)
train.arena @arena.master.f32 master {
  train.slice @a : tensor<4xf32>
  train.slice @b : tensor<4xf32>
}
train.arena @arena.grad.f32 gradient {
  train.slice @a : tensor<4xf32>
  train.slice @b : tensor<4xf32>
}
train.list @norms of @step "apply" (%s: tensor<f64>, %f: tensor<i1>) {
  train.update [@ratio] [[@a]] scale(%s : tensor<f64>) if(%f : tensor<i1>) t(%s : tensor<f64>)
  train.update [@plain] [[@b]] scale(%s : tensor<f64>) if(%f : tensor<i1>) t(%s : tensor<f64>)
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

// Copies are written where there are slices for them; parameters with and without
// them are two passes.
// CHECK-LABEL: train.list @copies
// CHECK: train.segment_map %{{.*}} : tensor<8xf32>, tensor<8xf32>
// CHECK-SAME: lengths = [4], offsets = [array<i64: 0>, array<i64: 0>]> {targets = array<i64: 0>
// CHECK: %[[NEW:.*]]:2 = train.segment_map %{{.*}} : tensor<8xf32>, tensor<8xf32>, tensor<4xbf16>
// CHECK-SAME: offsets = [array<i64: 4>, array<i64: 4>, array<i64: 0>]> {targets = array<i64: 0, 2>
// CHECK: %[[Q:.*]] = arith.select
// CHECK: train.yield %[[Q]], %[[Q]] : f32, f32
// CHECK: train.write %[[NEW]]#1 to @arena.compute.bf16
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
// CHECK: %[[SITE:.*]] = nn.constant dense<2147483648> : tensor<1xi64>
// CHECK: train.segment_map %{{.*}} : tensor<4xbf16>, tensor<8xf32>
// CHECK-SAME: each %[[SITE]] : tensor<1xi64>
// CHECK-SAME: indexed
// CHECK: arith.bitcast
// CHECK: %[[WORD:.*]] = arith.trunci
// CHECK: arith.andi %[[WORD]], %c65535
// CHECK: arith.addi
// CHECK: arith.andi %{{.*}}, %c-65536
// CHECK: train.yield
// CHECK: train.segment_map %{{.*}} : tensor<4xf32>, tensor<8xf32>
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

// Parameters with padding in their parts have a pass of their own, in which what is not finite there stays 0.
// CHECK-LABEL: train.list @uneven
// CHECK: train.segment_map
// CHECK: lengths = [3]
// CHECK: arith.cmpf uno
// CHECK: train.segment_map
// CHECK: lengths = [3]
// CHECK-NOT: arith.cmpf
// CHECK: train.return
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
