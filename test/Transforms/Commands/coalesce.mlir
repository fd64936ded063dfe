// RUN: trainc-opt %s --train-coalesce --split-input-file | FileCheck %s
// RUN: trainc-opt %s --train-coalesce=align-size=4 --split-input-file | FileCheck %s --check-prefix=DENSE
// RUN: trainc-opt %s --train-coalesce --split-input-file --remarks-filter=train-coalesce 2>&1 | FileCheck %s --check-prefix=REMARK

// In the order of the bucket, each slice at a multiple of 256 bytes of the narrowest arena: one place for all arenas. What is
// named has numbers then.
// CHECK: train.bucket @bucket [@b, @a] elements(384) offsets([0, 256])
// CHECK: train.bucket @bucket_0 [@frozen] elements(64) offsets([0])
// CHECK-LABEL: train.step @step
// CHECK: %[[F:.*]] = train.flatten %{{.*}}, %{{.*}} at [0, 256] : tensor<130xf32>, tensor<4xf32> -> tensor<384xf32>
// CHECK: train.write %[[F]] to @arena.grad.f32::@bucket : tensor<384xf32>
// CHECK: %[[B:.*]] = train.read @arena.compute.bf16::@bucket : tensor<384xbf16>
// CHECK: train.view %[[B]] from 256 : tensor<384xbf16> -> tensor<4xbf16>
// DENSE: train.bucket @bucket [@b, @a] elements(134) offsets([0, 130])
// DENSE: train.bucket @bucket_0 [@frozen] elements(4) offsets([0])
// REMARK: remark: [Passed] Coalesced | Category:train-coalesce | Arena=arena.grad.f32, Bucket=bucket, Bytes=1536, Padding=1000, Slices=2
train.param @frozen : tensor<4xf32> init(ones) frozen
train.param @a : tensor<4xf32> init(ones) optimizer(@o)
train.param @b : tensor<130xf32> init(ones) optimizer(@o)
train.optimizer @o(%p: f32, %g: f32) {
  train.yield %p : f32
}
train.bucket @bucket [@b, @a]
train.bucket @bucket_0 [@frozen]
train.arena @arena.master.f32 master {
  train.slice @frozen : tensor<4xf32>
  train.slice @a : tensor<4xf32>
  train.slice @b : tensor<130xf32>
  train.span @bucket
  train.span @bucket_0
}
train.arena @arena.compute.bf16 compute {
  train.slice @a : tensor<4xbf16>
  train.slice @b : tensor<130xbf16>
  train.span @bucket
}
train.arena @arena.grad.f32 gradient {
  train.slice @a : tensor<4xf32>
  train.slice @b : tensor<130xf32>
  train.span @bucket
}
train.arena @arena.scalars scalars {
  train.slice @s : tensor<f64>
}
train.step @step(%x: tensor<4xf32>, %y: tensor<130xf32>) {
  %g = train.flatten %y, %x as [@b, @a] : tensor<130xf32>, tensor<4xf32> -> tensor<?xf32>
  train.write %g to @arena.grad.f32::@bucket : tensor<?xf32>
  %c = train.read @arena.compute.bf16::@bucket : tensor<?xbf16>
  %a = train.view %c of @a : tensor<?xbf16> -> tensor<4xbf16>
  %s = nn.reduce sum %x dims [0] : tensor<4xf32>
  train.yield loss(%s) : tensor<f32>
}

// -----

// Of what ranks exchange no shard ends within a block of 4096 elements of a norm: a parameter that is longer begins at one,
// a shorter one lies in one. A gathered shard is as long as the bucket.
// CHECK: train.bucket @bucket [@b, @c, @a] elements(24576) offsets([0, 4096, 8192])
// CHECK-LABEL: train.step @step
// CHECK: train.read @arena.master.f32::@bucket : tensor<12288xf32>
// CHECK: %[[ALL:.*]] = train.all_gather %{{.*}} over ["data"] : tensor<12288xf32> -> tensor<24576xf32>
// CHECK: train.view %[[ALL]] from 4096 : tensor<24576xf32> -> tensor<2100xf32>
// CHECK: train.reduce_scatter %{{.*}} over ["data"] in_place : tensor<24576xf32> -> tensor<24576xf32>
train.mesh @mesh(data = 2)
train.param @a : tensor<10000xf32> init(ones) optimizer(@o)
train.param @b : tensor<2000xf32> init(ones) optimizer(@o)
train.param @c : tensor<2100xf32> init(ones) optimizer(@o)
train.optimizer @o(%p: f32, %g: f32) {
  train.yield %p : f32
}
train.bucket @bucket [@b, @c, @a]
train.arena @arena.master.f32 master {
  train.slice @a : tensor<10000xf32>
  train.slice @b : tensor<2000xf32>
  train.slice @c : tensor<2100xf32>
  train.span @bucket over ["data"]
}
train.arena @arena.grad.f32 gradient {
  train.slice @a : tensor<10000xf32>
  train.slice @b : tensor<2000xf32>
  train.slice @c : tensor<2100xf32>
  train.span @bucket
}
train.step @step(%x: tensor<4xf32>) attributes {over = ["data"]} {
  %p = train.read @arena.master.f32::@bucket : tensor<?xf32>
  %q = train.all_gather %p over ["data"] : tensor<?xf32> -> tensor<?xf32>
  %w = train.view %q of @c : tensor<?xf32> -> tensor<2100xf32>
  %g = train.read @arena.grad.f32::@bucket : tensor<?xf32>
  %h = train.reduce_scatter %g over ["data"] in_place : tensor<?xf32> -> tensor<?xf32>
  train.write %h to @arena.grad.f32::@bucket : tensor<?xf32>
  %s = nn.reduce sum %x dims [0] : tensor<4xf32>
  train.yield loss(%s) : tensor<f32>
}

// -----

// It does nothing to a module without arenas.
// CHECK-LABEL: train.param @alone
// CHECK-NOT: train.bucket
train.param @alone : tensor<4xf32> init(ones) frozen
