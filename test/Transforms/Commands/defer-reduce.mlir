// RUN: trainc-opt %s --train-defer-reduce --split-input-file | FileCheck %s

// A bucket is summed while the next one's gradients are made; what reads the sums, but what stands behind already, moves to
// the wait. The last one is waited for where it is: no command follows.
// CHECK-LABEL: train.list @step.first
// CHECK: %[[F0:.*]] = train.flatten
// CHECK-NEXT: %[[T0:.*]] = train.start reduce_scatter(%[[F0]]) over ["data"] in_place : tensor<4096xf32> -> !train.token
// CHECK-NEXT: %[[M0:.*]] = train.read @arena.merged.f32::@bucket :
// CHECK-NEXT: %[[G1:.*]] = train.launch @k
// CHECK-NEXT: %[[S0:.*]] = train.wait %[[T0]] : tensor<4096xf32>
// CHECK-NEXT: %[[A0:.*]] = train.all_reduce %[[S0]] over ["host"] in_place piece_of ["data"]
// CHECK-NEXT: %[[N0:.*]] = train.launch @merge(%[[M0]], %[[A0]])
// CHECK-NEXT: train.flatten %[[G1]]
// CHECK-NEXT: train.reduce_scatter
// CHECK: train.launch @merge
// CHECK-NOT: train.start
// CHECK: train.write %[[N0]] to @arena.merged.f32::@bucket :
// CHECK: train.return
train.mesh @mesh(host = 2, data = 2)
train.bucket @bucket [@a] elements(4096) offsets([0])
train.bucket @bucket_0 [@b] elements(4096) offsets([0])
train.arena @arena.merged.f32 merged {
  train.slice @a : tensor<64xf32>
  train.slice @b : tensor<64xf32>
  train.span @bucket over ["data"]
  train.span @bucket_0 over ["data"]
}
train.kernel @k(%x: tensor<64xf32>) inplace [-1] {
  %r = nn.tanh %x : tensor<64xf32>
  train.return %r : tensor<64xf32>
}
train.kernel @merge(%m: tensor<2048xf32>, %s: tensor<4096xf32>) inplace [0] {
  %r = nn.neg %m : tensor<2048xf32>
  train.return %r : tensor<2048xf32>
}
train.list @step.first of @step "first" (%x: tensor<64xf32>) {
  %g0 = train.launch @k(%x) : (tensor<64xf32>) -> tensor<64xf32>
  %f0 = train.flatten %g0 at [0] : tensor<64xf32> -> tensor<4096xf32>
  %s0 = train.reduce_scatter %f0 over ["data"] in_place : tensor<4096xf32> -> tensor<4096xf32>
  %a0 = train.all_reduce %s0 over ["host"] in_place piece_of ["data"] : tensor<4096xf32>
  %m0 = train.read @arena.merged.f32::@bucket : tensor<2048xf32>
  %n0 = train.launch @merge(%m0, %a0) : (tensor<2048xf32>, tensor<4096xf32>) -> tensor<2048xf32>
  %g1 = train.launch @k(%g0) : (tensor<64xf32>) -> tensor<64xf32>
  %f1 = train.flatten %g1 at [0] : tensor<64xf32> -> tensor<4096xf32>
  %s1 = train.reduce_scatter %f1 over ["data"] in_place : tensor<4096xf32> -> tensor<4096xf32>
  %m1 = train.read @arena.merged.f32::@bucket_0 : tensor<2048xf32>
  %n1 = train.launch @merge(%m1, %s1) : (tensor<2048xf32>, tensor<4096xf32>) -> tensor<2048xf32>
  train.write %n0 to @arena.merged.f32::@bucket : tensor<2048xf32>
  train.write %n1 to @arena.merged.f32::@bucket_0 : tensor<2048xf32>
  train.return
}

// -----

// What was started later is not waited for before; what was started before and is waited for later is not overtaken; what
// stands in an arena is left to train-overlap-reduce.
// CHECK-LABEL: train.list @order.first
// CHECK: train.start reduce_scatter
// CHECK: %[[LATER:.*]] = train.start all_gather
// CHECK: train.launch @k
// CHECK-NEXT: train.wait %{{.*}} : tensor<4096xf32>
// CHECK-NEXT: train.wait %[[LATER]]
// CHECK: %[[FIRST:.*]] = train.start all_gather
// CHECK: train.reduce_scatter
// CHECK: train.wait %[[FIRST]]
// CHECK: train.reduce_scatter
// CHECK-NOT: train.start
train.mesh @mesh(data = 2)
train.arena @g gradient {
  train.slice @a : tensor<4096xf32>
}
train.kernel @k(%x: tensor<64xf32>) inplace [-1] {
  %r = nn.tanh %x : tensor<64xf32>
  train.return %r : tensor<64xf32>
}
train.list @order.first of @order "first" (%x: tensor<64xf32>, %p: tensor<32xf32>) {
  %f0 = train.flatten %x at [0] : tensor<64xf32> -> tensor<4096xf32>
  %s0 = train.reduce_scatter %f0 over ["data"] in_place : tensor<4096xf32> -> tensor<4096xf32>
  %t0 = train.start all_gather(%p) over ["data"] : tensor<32xf32> -> !train.token
  %g0 = train.launch @k(%x) : (tensor<64xf32>) -> tensor<64xf32>
  %p0 = train.wait %t0 : tensor<64xf32>
  %g1 = train.launch @k(%p0) : (tensor<64xf32>) -> tensor<64xf32>
  %t1 = train.start all_gather(%p) over ["data"] : tensor<32xf32> -> !train.token
  %f1 = train.flatten %g1 at [0] : tensor<64xf32> -> tensor<4096xf32>
  %s1 = train.reduce_scatter %f1 over ["data"] in_place : tensor<4096xf32> -> tensor<4096xf32>
  %g2 = train.launch @k(%g1) : (tensor<64xf32>) -> tensor<64xf32>
  %f2 = train.flatten %g2 at [0] : tensor<64xf32> -> tensor<4096xf32>
  %s2 = train.reduce_scatter %f2 over ["data"] in_place : tensor<4096xf32> -> tensor<4096xf32>
  %p1 = train.wait %t1 : tensor<64xf32>
  %a = train.read @g::@a : tensor<4096xf32>
  %b = train.reduce_scatter %a over ["data"] in_place : tensor<4096xf32> -> tensor<4096xf32>
  train.write %b to @g::@a : tensor<4096xf32>
  %g3 = train.launch @k(%p1) : (tensor<64xf32>) -> tensor<64xf32>
  train.return %s0, %s1, %s2, %g0, %g3 : tensor<4096xf32>, tensor<4096xf32>, tensor<4096xf32>, tensor<64xf32>, tensor<64xf32>
}

// -----

// It does nothing to a list without sums.
// CHECK-LABEL: train.list @none
// CHECK-NEXT: train.launch
// CHECK-NEXT: train.return
train.kernel @k(%x: tensor<64xf32>) inplace [-1] {
  %r = nn.tanh %x : tensor<64xf32>
  train.return %r : tensor<64xf32>
}
train.list @none of @e "first" (%x: tensor<64xf32>) {
  %g = train.launch @k(%x) : (tensor<64xf32>) -> tensor<64xf32>
  train.return %g : tensor<64xf32>
}
