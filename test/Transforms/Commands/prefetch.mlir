// RUN: trainc-opt %s --train-prefetch --split-input-file | FileCheck %s
// RUN: trainc-opt %s --train-prefetch --train-plan-memory --split-input-file --train-verify-form=form=3 | FileCheck %s --check-prefix=PLANNED

// The second bucket is started behind the gather of the first, before what uses that; the third, which is gathered where
// nothing stands between, is not; the next behind it.
// CHECK-LABEL: train.list @step.first
// CHECK: %[[A:.*]] = train.all_gather %{{.*}} over ["data"] : tensor<4096xf32> -> tensor<8192xf32>
// CHECK-NEXT: %[[OWN:.*]] = train.read @arena.master.f32::@bucket_0
// CHECK-NEXT: %[[B:.*]] = train.start all_gather(%[[OWN]]) over ["data"] : tensor<4096xf32> -> !train.token
// CHECK: %[[USE:.*]] = train.view %[[A]] from 0
// CHECK-NEXT: train.launch @k(%{{.*}}, %[[USE]])
// CHECK: %[[WAITED:.*]] = train.wait %[[B]] : tensor<8192xf32>
// CHECK: %[[C:.*]] = train.all_gather %{{.*}} over ["data"] : tensor<4096xf32> -> tensor<8192xf32>
// CHECK-NEXT: %[[OWN:.*]] = train.read @arena.master.f32::@bucket_2
// CHECK-NEXT: %[[PART:.*]] = train.view %[[OWN]] from 0
// CHECK-NEXT: train.start all_gather(%[[PART]])
// CHECK: %[[USE:.*]] = train.view %[[WAITED]] from 0
// CHECK: train.launch @k(%{{.*}}, %[[USE]])
// CHECK: train.wait
// Two places: what is on its way is not where the one before it is.
// PLANNED-LABEL: train.list @step.first
// PLANNED: train.address workspace [[#A:]] : memref<8192xf32>
// PLANNED-NEXT: train.start all_gather
// PLANNED-NEXT: train.wait
// PLANNED-NOT: workspace [[#A]] :
// PLANNED: train.wait
train.mesh @mesh(data = 2)
train.bucket @bucket [@a] elements(8192) offsets([0])
train.bucket @bucket_0 [@b] elements(8192) offsets([0])
train.bucket @bucket_1 [@c] elements(8192) offsets([0])
train.bucket @bucket_2 [@d] elements(8192) offsets([0])
train.arena @arena.master.f32 master {
  train.slice @a : tensor<8xf32>
  train.slice @b : tensor<8xf32>
  train.slice @c : tensor<8xf32>
  train.slice @d : tensor<8xf32>
  train.span @bucket over ["data"]
  train.span @bucket_0 over ["data"]
  train.span @bucket_1 over ["data"]
  train.span @bucket_2 over ["data"]
}
train.kernel @k(%x: tensor<8xf32>, %w: tensor<8xf32>) inplace [-1] {
  %r = nn.mul %x, %w : tensor<8xf32>, tensor<8xf32>
  train.return %r : tensor<8xf32>
}
train.step @step(%x: tensor<8xf32>, %s: tensor<f32>) {
  train.yield loss(%s) : tensor<f32>
}
train.list @step.first of @step "first" (%x: tensor<8xf32>, %s: tensor<f32>) {
  %a0 = train.read @arena.master.f32::@bucket : tensor<4096xf32>
  %a1 = train.all_gather %a0 over ["data"] : tensor<4096xf32> -> tensor<8192xf32>
  %a2 = train.view %a1 from 0 : tensor<8192xf32> -> tensor<8xf32>
  %y0 = train.launch @k(%x, %a2) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %b0 = train.read @arena.master.f32::@bucket_0 : tensor<4096xf32>
  %b1 = train.all_gather %b0 over ["data"] : tensor<4096xf32> -> tensor<8192xf32>
  %c0 = train.read @arena.master.f32::@bucket_1 : tensor<4096xf32>
  %c1 = train.all_gather %c0 over ["data"] : tensor<4096xf32> -> tensor<8192xf32>
  %b2 = train.view %b1 from 0 : tensor<8192xf32> -> tensor<8xf32>
  %y1 = train.launch @k(%y0, %b2) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %c2 = train.view %c1 from 0 : tensor<8192xf32> -> tensor<8xf32>
  %y2 = train.launch @k(%y1, %c2) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %d0 = train.read @arena.master.f32::@bucket_2 : tensor<4096xf32>
  %d1 = train.view %d0 from 0 : tensor<4096xf32> -> tensor<4096xf32>
  %d2 = train.all_gather %d1 over ["data"] : tensor<4096xf32> -> tensor<8192xf32>
  %d3 = train.view %d2 from 0 : tensor<8192xf32> -> tensor<8xf32>
  %y3 = train.launch @k(%y2, %d3) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  train.return
}

// -----

// It does nothing with one bucket, with what is no parameter in pieces, or where parameters change.
// CHECK-LABEL: train.step @other
// CHECK-NOT: train.start
// CHECK-NOT: train.wait
// PLANNED-LABEL: train.step @other
train.mesh @mesh(data = 2)
train.bucket @bucket [@a] elements(8192) offsets([0])
train.bucket @bucket_0 [@b] elements(8192) offsets([0])
train.arena @arena.master.f32 master {
  train.slice @a : tensor<8xf32>
  train.slice @b : tensor<8xf32>
  train.span @bucket over ["data"]
  train.span @bucket_0 over ["data"]
}
train.kernel @k(%x: tensor<8xf32>, %w: tensor<8xf32>) inplace [-1] {
  %r = nn.mul %x, %w : tensor<8xf32>, tensor<8xf32>
  train.return %r : tensor<8xf32>
}
train.step @other(%x: tensor<8xf32>, %s: tensor<f32>) {
  train.yield loss(%s) : tensor<f32>
}
train.list @other.first of @other "first" (%x: tensor<8xf32>, %s: tensor<f32>) {
  %a0 = train.read @arena.master.f32::@bucket : tensor<4096xf32>
  %a1 = train.all_gather %a0 over ["data"] : tensor<4096xf32> -> tensor<8192xf32>
  %a2 = train.view %a1 from 0 : tensor<8192xf32> -> tensor<8xf32>
  %y0 = train.launch @k(%x, %a2) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %y1 = train.all_gather %y0 over ["data"] : tensor<8xf32> -> tensor<16xf32>
  %y2 = train.view %y1 from 0 : tensor<16xf32> -> tensor<8xf32>
  %y3 = train.launch @k(%y2, %a2) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  train.return
}
train.list @other.apply of @other "apply" () {
  %a0 = train.read @arena.master.f32::@bucket : tensor<4096xf32>
  %a1 = train.all_gather %a0 over ["data"] : tensor<4096xf32> -> tensor<8192xf32>
  %a2 = train.view %a1 from 0 : tensor<8192xf32> -> tensor<8xf32>
  %y0 = train.launch @k(%a2, %a2) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %b0 = train.read @arena.master.f32::@bucket_0 : tensor<4096xf32>
  %b1 = train.all_gather %b0 over ["data"] : tensor<4096xf32> -> tensor<8192xf32>
  %b2 = train.view %b1 from 0 : tensor<8192xf32> -> tensor<8xf32>
  %y1 = train.launch @k(%y0, %b2) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  train.return
}

// -----

// Peers read what was summed in place until they have begun the next collective: that is known when the gather is done, not
// when it is started. So its memory is not that of what is computed in between.
// CHECK-LABEL: train.list @peers.first
// PLANNED-LABEL: train.list @peers.first
// PLANNED: train.address workspace [[#S:]] : memref<2048xf32>
// PLANNED-NEXT: train.launch @k_large
// PLANNED: %[[R:.*]] = train.start reduce_scatter
// PLANNED-NEXT: train.wait %[[R]]
// PLANNED: train.wait
// PLANNED: %[[T:.*]] = train.start all_gather
// PLANNED-NOT: workspace [[#S]] :
// PLANNED: train.launch @k_large
// PLANNED-NOT: workspace [[#S]] :
// PLANNED: train.wait %[[T]]
train.mesh @mesh(data = 2)
train.bucket @bucket [@a] elements(8192) offsets([0])
train.bucket @bucket_0 [@b] elements(8192) offsets([0])
train.bucket @bucket_1 [@c] elements(8192) offsets([0])
train.arena @arena.master.f32 master {
  train.slice @a : tensor<8xf32>
  train.slice @b : tensor<8xf32>
  train.slice @c : tensor<8xf32>
  train.span @bucket over ["data"]
  train.span @bucket_0 over ["data"]
  train.span @bucket_1 over ["data"]
}
train.kernel @k(%x: tensor<8xf32>, %w: tensor<8xf32>) inplace [-1] {
  %r = nn.mul %x, %w : tensor<8xf32>, tensor<8xf32>
  train.return %r : tensor<8xf32>
}
train.kernel @k_large(%x: tensor<2048xf32>) inplace [-1] {
  %r = nn.tanh %x : tensor<2048xf32>
  train.return %r : tensor<2048xf32>
}
train.step @peers(%x: tensor<2048xf32>, %s: tensor<f32>) {
  train.yield loss(%s) : tensor<f32>
}
train.list @peers.first of @peers "first" (%x: tensor<2048xf32>, %s: tensor<f32>) {
  %a0 = train.read @arena.master.f32::@bucket : tensor<4096xf32>
  %a1 = train.all_gather %a0 over ["data"] : tensor<4096xf32> -> tensor<8192xf32>
  %a2 = train.view %a1 from 0 : tensor<8192xf32> -> tensor<8xf32>
  %a3 = train.launch @k(%a2, %a2) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %g0 = train.launch @k_large(%x) : (tensor<2048xf32>) -> tensor<2048xf32>
  %g1 = train.reduce_scatter %g0 over ["data"] in_place : tensor<2048xf32> -> tensor<2048xf32>
  %g2 = train.view %g1 from 0 : tensor<2048xf32> -> tensor<8xf32>
  %g3 = train.launch @k(%a3, %g2) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %b0 = train.read @arena.master.f32::@bucket_0 : tensor<4096xf32>
  %b1 = train.all_gather %b0 over ["data"] : tensor<4096xf32> -> tensor<8192xf32>
  %b2 = train.view %b1 from 0 : tensor<8192xf32> -> tensor<8xf32>
  %y3 = train.launch @k(%g3, %b2) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %y0 = train.launch @k_large(%x) : (tensor<2048xf32>) -> tensor<2048xf32>
  %y1 = train.view %y0 from 0 : tensor<2048xf32> -> tensor<8xf32>
  %y2 = train.launch @k(%y3, %y1) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %c0 = train.read @arena.master.f32::@bucket_1 : tensor<4096xf32>
  %c1 = train.all_gather %c0 over ["data"] : tensor<4096xf32> -> tensor<8192xf32>
  %c2 = train.view %c1 from 0 : tensor<8192xf32> -> tensor<8xf32>
  %y4 = train.launch @k(%y2, %c2) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  train.return
}
