// DEFINE: %{plan} = --train-differentiate --train-plan-step --train-gradient-merge --train-hoist-casts --train-form-buckets --train-fuse-optimizer
// RUN: trainc-opt %s --split-input-file %{plan} --train-shard=mode=optimizer --train-verify-form=form=2 | FileCheck %s
// RUN: trainc-opt %s --split-input-file %{plan} --train-shard --train-verify-form=form=2 | FileCheck %s --check-prefix=NONE

// Once per window: gradients are summed over the ranks of a host, by shards, then these over hosts; norm and update are of
// the shard that a rank owns. A bucket is gathered right behind its update: the cast copy, and of parameters those that the
// step reads in f32.
// CHECK: scf.if
// CHECK-NEXT: %[[G0:.*]] = train.read @arena.grad.f32::@bucket : tensor<?xf32>
// CHECK-NEXT: %[[R0:.*]] = train.reduce_scatter %[[G0]] over ["data"] in_place
// CHECK-NEXT: %[[R1:.*]] = train.all_reduce %[[R0]] over ["host"] in_place piece_of ["data"]
// CHECK-NEXT: train.write %[[R1]] to @arena.grad.f32::@bucket
// CHECK-NEXT: train.read @arena.grad.f32::@bucket_0
// CHECK-NEXT: train.reduce_scatter
// CHECK-NEXT: train.all_reduce
// CHECK-NEXT: train.write {{.*}} to @arena.grad.f32::@bucket_0
// CHECK: train.all_reduce %{{.*}} over ["host", "data"] : tensor<3xf64>
// CHECK: train.norm_squared {{.*}} over ["data"] fused
// CHECK: train.update [@o] {{\[\[}}@b]] {{.*}} copies [@arena.compute.bf16] over ["data"] fused
// CHECK-NEXT: %[[C:.*]] = train.read @arena.compute.bf16::@bucket_0 : tensor<?xbf16>
// CHECK-NEXT: %[[COPY:.*]] = train.all_gather %[[C]] over ["data"] in_place
// CHECK-NEXT: train.write %[[COPY]] to @arena.compute.bf16::@bucket_0
// CHECK-NEXT: train.update [@o] {{\[\[}}@a]]
// CHECK-NEXT: train.read @arena.master.f32::@bucket :
// CHECK-NEXT: train.all_gather
// CHECK-NEXT: train.write {{.*}} to @arena.master.f32::@bucket :
// CHECK-NOT: train.all_gather
// CHECK: train.arena @arena.master.f32
// CHECK: train.span @bucket{{$}}
// CHECK-NEXT: train.span @bucket_0 over ["data"]
// CHECK: train.arena @arena.compute.bf16
// CHECK: train.span @bucket_0{{$}}
// CHECK: train.arena @arena.grad.f32
// CHECK: train.span @bucket{{$}}
// CHECK-NEXT: train.span @bucket_0{{$}}
// CHECK: train.arena @arena.state.m.f32
// CHECK: train.span @bucket over ["data"]
// CHECK-NEXT: train.span @bucket_0 over ["data"]

// Replicated: the sums are gathered, and every rank does everything.
// NONE: scf.if
// NONE-COUNT-2: train.reduce_scatter
// NONE: train.read @arena.grad.f32::@bucket :
// NONE-NEXT: train.all_gather %{{.*}} over ["data"] in_place
// NONE-NEXT: train.write {{.*}} to @arena.grad.f32::@bucket :
// NONE: train.all_gather
// NONE-NEXT: train.write {{.*}} to @arena.grad.f32::@bucket_0
// NONE: train.norm_squared {{.*}}]] fused
// NONE-NOT: train.all_gather
// NONE-COUNT-2: train.update {{.*}} copies [@arena.compute.bf16] fused
// NONE-NOT: train.span {{.*}} over
train.mesh @mesh(host = 2, data = 2)
train.param @b : tensor<9000xf32> init(ones) optimizer(@o)
train.param @a : tensor<30xf32> init(ones) optimizer(@o)
train.optimizer @o(%p: f32, %g: f32, %m: f32) state(m = 0.0) {
  %q = arith.subf %p, %g : f32
  train.yield %q, %m : f32, f32
}
train.step @step(%x: tensor<30xf32>, %y: tensor<9000xf32>) clip(global_norm<1.0>) accumulate(2) precision(compute = bf16) attributes {over = ["host", "data"]} {
  %a = train.read @a : tensor<30xf32>
  %b = train.read @b : tensor<9000xf32>
  %c = nn.cast %b to bf16 : tensor<9000xf32>
  %d = nn.cast %y to bf16 : tensor<9000xf32>
  %e = nn.mul %c, %d : tensor<9000xbf16>, tensor<9000xbf16>
  %s = nn.reduce sum %e dims [0] : tensor<9000xbf16>
  %t = nn.cast %s to f32 : tensor<bf16>
  %u = nn.mul %a, %x : tensor<30xf32>, tensor<30xf32>
  %v = nn.reduce sum %u dims [0] : tensor<30xf32>
  %w = nn.add %t, %v : tensor<f32>, tensor<f32>
  train.yield loss(%w) : tensor<f32>
}

// -----

// It does nothing to a step of one rank.
// CHECK-LABEL: train.param @alone
// CHECK-NOT: train.reduce_scatter
// CHECK-NOT: train.span {{.*}} over
// NONE-LABEL: train.param @alone
// NONE-NOT: train.reduce_scatter
train.mesh @mesh(data = 1)
train.param @alone : tensor<9000xf32> init(ones) optimizer(@o)
train.optimizer @o(%p: f32, %g: f32) {
  %q = arith.subf %p, %g : f32
  train.yield %q : f32
}
train.step @step(%x: tensor<9000xf32>) clip(global_norm<1.0>) attributes {over = ["data"]} {
  %a = train.read @alone : tensor<9000xf32>
  %u = nn.mul %a, %x : tensor<9000xf32>, tensor<9000xf32>
  %v = nn.reduce sum %u dims [0] : tensor<9000xf32>
  train.yield loss(%v) : tensor<f32>
}
