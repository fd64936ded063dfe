// RUN: trainc-opt %s --train-prefetch --split-input-file | FileCheck %s
// RUN: trainc-opt %s --train-prefetch --train-plan-memory --split-input-file --train-verify-form=form=3 | FileCheck %s --check-prefix=PLANNED

// The second bucket is started behind the gather of the first, before what uses that; the third, which is gathered where
// nothing stands between, is not; the next behind it.
// CHECK-LABEL: train.list @step.first
// CHECK: %[[A:.*]] = train.all_gather %{{.*}} over ["data"] : tensor<4096xf32> -> tensor<8192xf32>
// CHECK-NEXT: %[[ALL:.*]] = train.read @arena.master.f32
// CHECK-NEXT: %[[OWN:.*]] = train.view %[[ALL]] from 4096
// CHECK-NEXT: %[[B:.*]] = train.all_gather %[[OWN]] over ["data"] apart
// CHECK: %[[USE:.*]] = train.view %[[A]] from 0
// CHECK-NEXT: train.launch @k(%{{.*}}, %[[USE]])
// CHECK: %[[WAITED:.*]] = train.await %[[B]] : tensor<8192xf32>
// CHECK: %[[C:.*]] = train.all_gather %{{.*}} over ["data"] : tensor<4096xf32> -> tensor<8192xf32>
// CHECK: train.all_gather %{{.*}} over ["data"] apart
// CHECK: %[[USE:.*]] = train.view %[[WAITED]] from 0
// CHECK: train.launch @k(%{{.*}}, %[[USE]])
// CHECK: train.await
// Two places: what is on its way is not where the one before it is.
// PLANNED-LABEL: train.list @step.first
// PLANNED: train.address workspace [[#A:]] : memref<8192xf32>
// PLANNED-NEXT: train.start all_gather
// PLANNED-NEXT: train.wait
// PLANNED-NOT: workspace [[#A]] :
// PLANNED: train.wait
train.mesh @mesh(data = 2)
train.arena @arena.master.f32 role("parameters") bytes(65536) {slices = [@a, @b, @c, @d], types = [tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>], offsets = array<i64: 0, 32768, 65536, 98304>, buckets = array<i64: 8192, 16384, 24576, 32768>, pieces = array<i1: true, true, true, true>, shard = ["data"]}
train.kernel @k(%x: tensor<8xf32>, %w: tensor<8xf32>) inplace [-1] {
  %r = nn.mul %x, %w : tensor<8xf32>, tensor<8xf32>
  train.return %r : tensor<8xf32>
}
train.step @step(%x: tensor<8xf32>, %s: tensor<f32>) {
  train.yield loss(%s) : tensor<f32>
}
train.list @step.first of @step "first" (%x: tensor<8xf32>, %s: tensor<f32>) {
  %own = train.read @arena.master.f32 : tensor<16384xf32>
  %a0 = train.view %own from 0 : tensor<16384xf32> -> tensor<4096xf32>
  %a1 = train.all_gather %a0 over ["data"] : tensor<4096xf32> -> tensor<8192xf32>
  %a2 = train.view %a1 from 0 : tensor<8192xf32> -> tensor<8xf32>
  %y0 = train.launch @k(%x, %a2) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %b0 = train.view %own from 4096 : tensor<16384xf32> -> tensor<4096xf32>
  %b1 = train.all_gather %b0 over ["data"] : tensor<4096xf32> -> tensor<8192xf32>
  %c0 = train.view %own from 8192 : tensor<16384xf32> -> tensor<4096xf32>
  %c1 = train.all_gather %c0 over ["data"] : tensor<4096xf32> -> tensor<8192xf32>
  %b2 = train.view %b1 from 0 : tensor<8192xf32> -> tensor<8xf32>
  %y1 = train.launch @k(%y0, %b2) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %c2 = train.view %c1 from 0 : tensor<8192xf32> -> tensor<8xf32>
  %y2 = train.launch @k(%y1, %c2) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %d0 = train.view %own from 12288 : tensor<16384xf32> -> tensor<4096xf32>
  %d1 = train.all_gather %d0 over ["data"] : tensor<4096xf32> -> tensor<8192xf32>
  %d2 = train.view %d1 from 0 : tensor<8192xf32> -> tensor<8xf32>
  %y3 = train.launch @k(%y2, %d2) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  train.return
}

// -----

// It does nothing with one bucket, with what is no parameter in pieces, or where parameters change.
// CHECK-LABEL: train.step @other
// CHECK-NOT: apart
// CHECK-NOT: train.await
// PLANNED-LABEL: train.step @other
train.mesh @mesh(data = 2)
train.arena @arena.master.f32 role("parameters") bytes(32768) {slices = [@a, @b], types = [tensor<8xf32>, tensor<8xf32>], offsets = array<i64: 0, 32768>, buckets = array<i64: 8192, 16384>, pieces = array<i1: true, true>, shard = ["data"]}
train.kernel @k(%x: tensor<8xf32>, %w: tensor<8xf32>) inplace [-1] {
  %r = nn.mul %x, %w : tensor<8xf32>, tensor<8xf32>
  train.return %r : tensor<8xf32>
}
train.step @other(%x: tensor<8xf32>, %s: tensor<f32>) {
  train.yield loss(%s) : tensor<f32>
}
train.list @other.first of @other "first" (%x: tensor<8xf32>, %s: tensor<f32>) {
  %own = train.read @arena.master.f32 : tensor<8192xf32>
  %a0 = train.view %own from 0 : tensor<8192xf32> -> tensor<4096xf32>
  %a1 = train.all_gather %a0 over ["data"] : tensor<4096xf32> -> tensor<8192xf32>
  %a2 = train.view %a1 from 0 : tensor<8192xf32> -> tensor<8xf32>
  %y0 = train.launch @k(%x, %a2) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %y1 = train.all_gather %y0 over ["data"] : tensor<8xf32> -> tensor<16xf32>
  %y2 = train.view %y1 from 0 : tensor<16xf32> -> tensor<8xf32>
  %y3 = train.launch @k(%y2, %a2) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  train.return
}
train.list @other.apply of @other "apply" () {
  %own = train.read @arena.master.f32 : tensor<8192xf32>
  %a0 = train.view %own from 0 : tensor<8192xf32> -> tensor<4096xf32>
  %a1 = train.all_gather %a0 over ["data"] : tensor<4096xf32> -> tensor<8192xf32>
  %a2 = train.view %a1 from 0 : tensor<8192xf32> -> tensor<8xf32>
  %y0 = train.launch @k(%a2, %a2) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %b0 = train.view %own from 4096 : tensor<8192xf32> -> tensor<4096xf32>
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
train.arena @arena.master.f32 role("parameters") bytes(49152) {slices = [@a, @b, @c], types = [tensor<8xf32>, tensor<8xf32>, tensor<8xf32>], offsets = array<i64: 0, 32768, 65536>, buckets = array<i64: 8192, 16384, 24576>, pieces = array<i1: true, true, true>, shard = ["data"]}
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
  %own = train.read @arena.master.f32 : tensor<12288xf32>
  %a0 = train.view %own from 0 : tensor<12288xf32> -> tensor<4096xf32>
  %a1 = train.all_gather %a0 over ["data"] : tensor<4096xf32> -> tensor<8192xf32>
  %a2 = train.view %a1 from 0 : tensor<8192xf32> -> tensor<8xf32>
  %a3 = train.launch @k(%a2, %a2) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %g0 = train.launch @k_large(%x) : (tensor<2048xf32>) -> tensor<2048xf32>
  %g1 = train.reduce_scatter %g0 over ["data"] range [0, 2048] : tensor<2048xf32> -> tensor<2048xf32>
  %g2 = train.view %g1 from 0 : tensor<2048xf32> -> tensor<8xf32>
  %g3 = train.launch @k(%a3, %g2) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %b0 = train.view %own from 4096 : tensor<12288xf32> -> tensor<4096xf32>
  %b1 = train.all_gather %b0 over ["data"] : tensor<4096xf32> -> tensor<8192xf32>
  %b2 = train.view %b1 from 0 : tensor<8192xf32> -> tensor<8xf32>
  %y3 = train.launch @k(%g3, %b2) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %y0 = train.launch @k_large(%x) : (tensor<2048xf32>) -> tensor<2048xf32>
  %y1 = train.view %y0 from 0 : tensor<2048xf32> -> tensor<8xf32>
  %y2 = train.launch @k(%y3, %y1) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %c0 = train.view %own from 8192 : tensor<12288xf32> -> tensor<4096xf32>
  %c1 = train.all_gather %c0 over ["data"] : tensor<4096xf32> -> tensor<8192xf32>
  %c2 = train.view %c1 from 0 : tensor<8192xf32> -> tensor<8xf32>
  %y4 = train.launch @k(%y2, %c2) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  train.return
}
