// RUN: trainc-opt %s --train-form-buckets --split-input-file | FileCheck %s
// RUN: trainc-opt %s --train-form-buckets='bucket-size=20000' --split-input-file | FileCheck %s --check-prefix=SMALL
// RUN: trainc-opt %s --train-form-buckets=bucket-size=0 --split-input-file | FileCheck %s --check-prefix=SEPARATE
// RUN: trainc-opt %s --train-form-buckets --split-input-file --remarks-filter=train-form-buckets 2>&1 | FileCheck %s --check-prefix=REMARK

// In the order in which gradients are made. Parameters with a copy and without one, or without a gradient, make buckets of
// their own; buffers have one, scalars none.
// CHECK: train.bucket @bucket [@c, @b]
// CHECK: train.bucket @bucket_0 [@a]
// CHECK: train.bucket @bucket_1 [@frozen]
// CHECK: train.bucket @bucket_2 [@mean]
// CHECK: train.arena @arena.master.f32 master
// CHECK: train.span @bucket{{$}}
// CHECK-NEXT: train.span @bucket_0
// CHECK-NEXT: train.span @bucket_1
// CHECK: train.arena @arena.compute.bf16 compute
// CHECK: train.span @bucket{{$}}
// CHECK-NEXT: }
// CHECK: train.arena @arena.grad.f32 gradient
// CHECK: train.span @bucket{{$}}
// CHECK-NEXT: train.span @bucket_0
// CHECK-NEXT: }
// CHECK: train.arena @arena.buffer.f32 buffer
// CHECK: train.span @bucket_2
// CHECK: train.arena @arena.scalars scalars
// CHECK-NOT: train.span
// CHECK: train.step
// REMARK: remark: [Passed] Bucket | Category:train-form-buckets | Elements=8000, First=c, Parameters=2
// REMARK: remark: [Passed] Bucket | Category:train-form-buckets | Elements=3, First=a, Parameters=1

// No parameter is divided: here each is a bucket of its own.
// SMALL: train.bucket @bucket [@c]
// SMALL: train.bucket @bucket_0 [@b]
// SMALL: train.bucket @bucket_1 [@a]
// SEPARATE: train.bucket @bucket [@c]
train.mesh @mesh(host = 1, data = 2)
train.arena @arena.master.f32 master {
  train.slice @frozen : tensor<3xf32>
  train.slice @a : tensor<3xf32>
  train.slice @b : tensor<5000xf32>
  train.slice @c : tensor<3000xf32>
}
train.arena @arena.compute.bf16 compute {
  train.slice @b : tensor<5000xbf16>
  train.slice @c : tensor<3000xbf16>
}
train.arena @arena.grad.f32 gradient {
  train.slice @a : tensor<3xf32>
  train.slice @b : tensor<5000xf32>
  train.slice @c : tensor<3000xf32>
}
train.arena @arena.buffer.f32 buffer {
  train.slice @mean : tensor<3xf32>
}
train.arena @arena.scalars scalars {
  train.slice @update : tensor<f64>
}
train.step @step(%x: tensor<f32>, %a: tensor<3xf32>, %b: tensor<5000xf32>, %c: tensor<3000xf32>) attributes {over = ["data"]} {
  train.write %c to @arena.grad.f32::@c : tensor<3000xf32>
  train.write %a to @arena.grad.f32::@a : tensor<3xf32>
  train.accumulate %b into @arena.grad.f32::@b : tensor<5000xf32>
  train.yield loss(%x) : tensor<f32>
}

// -----

// Without ranks there is one bucket, however large.
// CHECK-LABEL: train.mesh @one
// CHECK: train.bucket @bucket [@a, @b]
// SMALL-LABEL: train.mesh @one
// SMALL: train.bucket @bucket [@a, @b]
// SEPARATE-LABEL: train.mesh @one
// SEPARATE: train.bucket @bucket [@a]
// SEPARATE: train.bucket @bucket_0 [@b]
train.mesh @one(data = 1)
train.arena @arena.grad.f32 gradient {
  train.slice @a : tensor<5000xf32>
  train.slice @b : tensor<5000xf32>
}
train.step @step(%x: tensor<f32>) attributes {over = ["data"]} {
  train.yield loss(%x) : tensor<f32>
}

// -----

// It does nothing to a module without arenas.
// CHECK-LABEL: train.step @alone
// CHECK-NOT: train.bucket
train.step @alone(%x: tensor<f32>) {
  train.yield loss(%x) : tensor<f32>
}
