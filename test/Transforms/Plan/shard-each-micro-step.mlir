// DEFINE: %{plan} = train-differentiate,train-plan-step,train-gradient-merge,train-form-buckets{bucket-size=20000},train-fuse-optimizer
// RUN: trainc-opt %s --pass-pipeline='builtin.module(%{plan},train-shard{mode=optimizer merge-buffer=sharded},train-verify-form{form=2})' | FileCheck %s
// RUN: trainc-opt %s --pass-pipeline='builtin.module(%{plan},train-shard{mode=optimizer merge-buffer=sharded},train-coalesce,train-outline-lists,train-expand-updates)' | FileCheck %s --check-prefix=SEGMENTS
// RUN: trainc-opt %s --pass-pipeline='builtin.module(%{plan},train-shard{merge-buffer=sharded},train-verify-form{form=2})' | FileCheck %s --check-prefix=NONE

// Every micro-step writes its gradients, sums them over the ranks of a host, then over hosts, and accumulates this rank's
// shards of the sums.
// CHECK-NOT: train.accumulate %{{.*}} into @arena.grad
// CHECK: train.write %{{.*}} to @arena.grad.f32::@b :
// CHECK: train.accumulate %{{.*}} into @arena.scalars::@loss_sum
// CHECK: train.micro_end
// CHECK-NEXT: %[[G:.*]] = train.read @arena.grad.f32::@bucket : tensor<?xf32>
// CHECK-NEXT: %[[R0:.*]] = train.reduce_scatter %[[G]] over ["data"] in_place
// CHECK-NEXT: %[[R1:.*]] = train.all_reduce %[[R0]] over ["host"] in_place piece_of ["data"]
// CHECK-NEXT: train.write %[[R1]] to @arena.grad.f32::@bucket :
// CHECK: train.reduce_scatter
// CHECK: train.write %{{.*}} to @arena.grad.f32::@bucket_0
// CHECK-NEXT: %[[SUMS:.*]] = train.read @arena.grad.f32::@bucket :
// CHECK-NEXT: train.accumulate %[[SUMS]] into @arena.merged.f32::@bucket : tensor<?xf32>
// CHECK: train.accumulate %{{.*}} into @arena.merged.f32::@bucket_0

// Once per window, norm and update read what was accumulated; no gradients are exchanged.
// CHECK: train.window_end
// CHECK: scf.if
// CHECK-NOT: @arena.grad
// CHECK-NOT: train.reduce_scatter
// CHECK: train.norm_squared {{.*}} over ["data"]
// CHECK: train.arena @arena.grad.f32 gradient
// CHECK: train.span @bucket{{$}}
// CHECK: train.arena @arena.merged.f32 merged
// CHECK: train.span @bucket over ["data"]
// CHECK-NEXT: train.span @bucket_0 over ["data"]

// The first micro-step of a window overwrites what stands there.
// SEGMENTS-LABEL: train.list @step.merge
// SEGMENTS: %[[STEP:.*]] = train.read @arena.scalars::@micro_step
// SEGMENTS: %[[BEGINS:.*]] = nn.compare eq %[[STEP]]
// SEGMENTS: train.write %{{.*}} to @arena.grad.f32::@bucket_0
// SEGMENTS: %[[SUMS:.*]] = train.read @arena.grad.f32::@bucket_0 : tensor<16384xf32>
// SEGMENTS-NEXT: %[[M:.*]] = train.read @arena.merged.f32::@bucket_0 : tensor<8192xf32>
// SEGMENTS-NEXT: %[[NEW:.*]] = train.segment_map %[[M]], %[[SUMS]] {{.*}}uniforms %[[BEGINS]] : tensor<i1> shard
// SEGMENTS-SAME: lengths = [8192, 8192], offsets = [array<i64: 0, 0>, array<i64: 0, 8192>], shards = [0, 1, 2]
// SEGMENTS-NEXT: ^bb0(%[[OLD:.*]]: f32, %[[SUM:.*]]: f32, %[[FIRST:.*]]: i1):
// SEGMENTS: %[[BOTH:.*]] = arith.addf %[[OLD]], %[[SUM]]
// SEGMENTS: %[[NEXT:.*]] = arith.select %[[FIRST]], %[[SUM]], %[[BOTH]]
// SEGMENTS: train.yield %[[NEXT]]
// SEGMENTS: train.write %[[NEW]] to @arena.merged.f32::@bucket_0 :
// SEGMENTS-LABEL: train.list @step.apply
// SEGMENTS: %[[MERGED:.*]] = train.read @arena.merged.f32 : tensor<12288xf32>
// SEGMENTS: train.segment_square_sum %[[MERGED]] {{.*}}lengths = [8192, 30, 808], offsets = [array<i64: 4096, 0, 4096>]

// Replicated: behind the totals, what was accumulated is gathered where gradients stand, and all is as without the option.
// NONE: train.micro_end
// NONE: train.accumulate %{{.*}} into @arena.merged.f32::@bucket_0
// NONE: scf.if
// NONE-NOT: train.reduce_scatter
// NONE: train.all_reduce %{{.*}} over ["host", "data"] : tensor<3xf64>
// NONE: %[[M:.*]] = train.read @arena.merged.f32::@bucket :
// NONE-NEXT: %[[A:.*]] = train.all_gather %[[M]] over ["data"] :
// NONE-NEXT: train.write %[[A]] to @arena.grad.f32::@bucket :
// NONE: train.all_gather
// NONE-NEXT: train.write %{{.*}} to @arena.grad.f32::@bucket_0
// NONE-NEXT: train.norm_squared {{.*}}]] fused
// NONE-NOT: train.all_gather
// NONE: train.arena @arena.merged.f32 merged

// The option does nothing to windows of one micro-step.
// RUN: sed -e 's/accumulate(2)//' %s > %t.mlir
// RUN: trainc-opt %t.mlir --pass-pipeline='builtin.module(%{plan},train-shard{mode=optimizer})' > %t.without
// RUN: trainc-opt %t.mlir --pass-pipeline='builtin.module(%{plan},train-shard{mode=optimizer merge-buffer=sharded})' > %t.with
// RUN: diff %t.without %t.with
// RUN: FileCheck %s --check-prefix=ONE --input-file=%t.with
// ONE-NOT: train.micro_end
// ONE: train.window_end
// ONE: train.reduce_scatter

// Nor to one rank.
// RUN: sed -e 's/host = 2, data = 2/host = 1, data = 1/' %s > %t.mlir
// RUN: trainc-opt %t.mlir --pass-pipeline='builtin.module(%{plan},train-shard)' > %t.without
// RUN: trainc-opt %t.mlir --pass-pipeline='builtin.module(%{plan},train-shard{merge-buffer=sharded})' > %t.with
// RUN: diff %t.without %t.with
train.mesh @mesh(host = 2, data = 2)
train.param @b : tensor<9000xf32> init(ones) optimizer(@o)
train.param @a : tensor<30xf32> init(ones) optimizer(@o)
train.optimizer @o(%p: f32, %g: f32, %m: f32) state(m = 0.0) {
  %q = arith.subf %p, %g : f32
  train.yield %q, %m : f32, f32
}
train.step @step(%x: tensor<30xf32>, %y: tensor<9000xf32>) clip(global_norm<1.0>) accumulate(2) attributes {over = ["host", "data"]} {
  %a = train.read @a : tensor<30xf32>
  %b = train.read @b : tensor<9000xf32>
  %e = nn.mul %b, %y : tensor<9000xf32>, tensor<9000xf32>
  %s = nn.reduce sum %e dims [0] : tensor<9000xf32>
  %u = nn.mul %a, %x : tensor<30xf32>, tensor<30xf32>
  %v = nn.reduce sum %u dims [0] : tensor<30xf32>
  %w = nn.add %s, %v : tensor<f32>, tensor<f32>
  train.yield loss(%w) : tensor<f32>
}
