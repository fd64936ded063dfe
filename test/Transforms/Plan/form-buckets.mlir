// RUN: trainc-opt %s --train-form-buckets --split-input-file | FileCheck %s
// RUN: trainc-opt %s --train-form-buckets='bucket-size=20000 align-size=512' --split-input-file | FileCheck %s --check-prefix=SMALL
// RUN: trainc-opt %s --train-form-buckets --split-input-file --remarks-filter=train-form-buckets 2>&1 | FileCheck %s --check-prefix=REMARK

// Parameters with a copy and without one make buckets of their own. A parameter longer than a block of
// the norm, 4096 elements, begins at a multiple of it, a shorter one does not cross any, and each bucket is two equal
// pieces of whole blocks.
// CHECK: train.arena @arena.master.f32 role("parameters") bytes(65536) {buckets = array<i64: 8192, 16384>, offsets = array<i64: 0, 20480, 32768>, slices = [@b, @c, @a]
// CHECK: train.arena @arena.compute.bf16 role("compute copies") bytes(16384) {buckets = array<i64: 8192>, offsets = array<i64: 0, 10240>, slices = [@b, @c]
// CHECK: train.arena @arena.grad.f32 role("gradients") bytes(65536) {buckets = array<i64: 8192, 16384>, offsets = array<i64: 0, 20480, 32768>, slices = [@b, @c, @a]
// REMARK: remark: [Passed] Bucket | Category:train-form-buckets | Elements=8192, First=b, Parameters=2
// REMARK: remark: [Passed] Bucket | Category:train-form-buckets | Elements=8192, First=a, Parameters=1

// No parameter is divided: here each is a bucket of its own.
// SMALL: train.arena @arena.grad.f32 role("gradients") bytes(98304) {buckets = array<i64: 8192, 16384, 24576>
train.mesh @mesh(host = 1, data = 2)
train.arena @arena.master.f32 role("parameters") bytes(32012) {slices = [@a, @b, @c], types = [tensor<3xf32>, tensor<5000xf32>, tensor<3000xf32>], offsets = array<i64: 0, 12, 20012>}
train.arena @arena.compute.bf16 role("compute copies") bytes(16000) {slices = [@b, @c], types = [tensor<5000xbf16>, tensor<3000xbf16>], offsets = array<i64: 0, 10000>}
train.arena @arena.grad.f32 role("gradients") bytes(32012) {slices = [@b, @c, @a], types = [tensor<5000xf32>, tensor<3000xf32>, tensor<3xf32>], offsets = array<i64: 0, 20000, 32000>}
train.step @step(%x: tensor<f32>) attributes {over = ["data"]} {
  train.yield loss(%x) : tensor<f32>
}

// -----

// It does nothing to a step of one rank.
// CHECK-LABEL: train.mesh @one
// CHECK-NOT: buckets
train.mesh @one(data = 1)
train.arena @arena.grad.f32 role("gradients") bytes(12) {slices = [@a], types = [tensor<3xf32>], offsets = array<i64: 0>}
train.step @step(%x: tensor<f32>) attributes {over = ["data"]} {
  train.yield loss(%x) : tensor<f32>
}
