// RUN: trainc-opt %s --train-coalesce --split-input-file | FileCheck %s
// RUN: trainc-opt %s --train-coalesce=align-size=4 --split-input-file | FileCheck %s --check-prefix=DENSE
// RUN: trainc-opt %s --train-coalesce --split-input-file --remarks-filter=train-coalesce 2>&1 | FileCheck %s --check-prefix=REMARK

// In the order in which gradients are made; what is frozen comes last.
// CHECK: train.arena @arena.master.f32 role("parameters") bytes(1280) {offsets = array<i64: 0, 768, 1024>, slices = [@b, @a, @frozen]
// CHECK: train.arena @arena.grad.f32 role("gradients") bytes(1024) {offsets = array<i64: 0, 768>, slices = [@b, @a], types = [tensor<130xf32>, tensor<4xf32>]}
// CHECK: train.arena @arena.scalars role("scalars") bytes(16) {offsets = array<i64: 0, 8>
// DENSE: train.arena @arena.master.f32 role("parameters") bytes(552) {offsets = array<i64: 0, 520, 536>
// REMARK: remark: [Passed] Coalesced | Category:train-coalesce | Arena=arena.master.f32, Bytes=520, Offset=0, Padding=248, Slice=b
train.param @frozen : tensor<4xf32> init(ones) frozen
train.param @a : tensor<4xf32> init(ones) optimizer(@o)
train.param @b : tensor<130xf32> init(ones) optimizer(@o)
train.optimizer @o(%p: f32, %g: f32) {
  train.yield %p : f32
}
train.arena @arena.master.f32 role("parameters") bytes(640) {slices = [@frozen, @a, @b], types = [tensor<4xf32>, tensor<4xf32>, tensor<130xf32>], offsets = array<i64: 0, 64, 120>}
train.arena @arena.grad.f32 role("gradients") bytes(640) {slices = [@a, @b], types = [tensor<4xf32>, tensor<130xf32>], offsets = array<i64: 0, 120>}
train.arena @arena.scalars role("scalars") bytes(16) {slices = [@s, @t], types = [tensor<f64>, tensor<f64>], offsets = array<i64: 0, 8>}
train.step @step(%x: tensor<4xf32>, %y: tensor<130xf32>) {
  train.accumulate %y into @arena.grad.f32::@b : tensor<130xf32>
  train.accumulate %x into @arena.grad.f32::@a : tensor<4xf32>
  %s = nn.reduce sum %x dims [0] : tensor<4xf32>
  train.yield loss(%s) : tensor<f32>
}

// -----

// It does nothing to a module without arenas.
// CHECK-LABEL: train.param @alone
// CHECK-NOT: train.arena
train.param @alone : tensor<4xf32> init(ones) frozen
