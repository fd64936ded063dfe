// DEFINE: %{plan} = train-differentiate,train-plan-step,train-gradient-merge,train-form-buckets{bucket-size=20000},train-fuse-optimizer
// RUN: trainc-opt %s --pass-pipeline='builtin.module(%{plan},train-shard{mode=optimizer merge-buffer=sharded},train-verify-form{form=2})' | FileCheck %s
// RUN: trainc-opt %s --pass-pipeline='builtin.module(%{plan},train-shard{merge-buffer=sharded},train-verify-form{form=2})' | FileCheck %s --check-prefix=NONE

// Every micro-step writes its gradients, sums them over the ranks of a host, then over hosts, and adds this rank's pieces of
// the sums to those of the window; the first one overwrites these.
// CHECK-NOT: train.accumulate %{{.*}} into @arena.grad
// CHECK: train.write %{{.*}} to @arena.grad.f32::@b
// CHECK: train.accumulate %{{.*}} into @arena.scalars::@loss_sum
// CHECK: train.micro_end
// CHECK: %[[STEP:.*]] = train.read @arena.scalars::@micro_step
// CHECK: %[[BEGINS:.*]] = nn.compare eq %[[STEP]]
// CHECK: %[[G:.*]] = train.read @arena.grad.f32 : tensor<24576xf32>
// CHECK: %[[R0:.*]] = train.reduce_scatter %[[G]] over ["data"] range [0, 16384]
// CHECK: %[[R1:.*]] = train.all_reduce %[[R0]] over ["host"] range [0, 16384] piece_of ["data"]
// CHECK: %[[R2:.*]] = train.reduce_scatter %[[R1]] over ["data"] range [16384, 8192]
// CHECK: %[[R3:.*]] = train.all_reduce %[[R2]] over ["host"] range [16384, 8192] piece_of ["data"]
// CHECK: train.write %[[R3]] to @arena.grad.f32
// CHECK: %[[M:.*]] = train.read @arena.merged.f32 : tensor<12288xf32>
// CHECK: %[[INDEX:.*]] = train.read @arena.scalars::@mesh.data
// CHECK: %[[SHARD:.*]] = nn.cast %[[INDEX]] to i64
// CHECK: %[[NEW:.*]] = train.segment_map %[[M]], %[[R3]] {{.*}}uniforms %[[BEGINS]] {{.*}}shard %[[SHARD]]
// CHECK-SAME: lengths = array<i64: 8192, 4096, 8192, 4096>
// CHECK-SAME: offsets = [array<i64: 0, 8192, 0, 8192>, array<i64: 0, 16384, 8192, 20480>]
// CHECK-SAME: shards = array<i64: 0, 2, 4>
// CHECK: ^bb0(%[[OLD:.*]]: f32, %[[SUM:.*]]: f32, %[[FIRST:.*]]: i1):
// CHECK: %[[BOTH:.*]] = arith.addf %[[OLD]], %[[SUM]]
// CHECK: %[[NEXT:.*]] = arith.select %[[FIRST]], %[[SUM]], %[[BOTH]]
// CHECK: train.yield %[[NEXT]]
// CHECK: train.write %[[NEW]] to @arena.merged.f32

// Once per window, norm and update read what was merged; no gradients are exchanged.
// CHECK: train.window_end
// CHECK: scf.if
// CHECK-NOT: @arena.grad
// CHECK-NOT: train.reduce_scatter
// CHECK: %[[MERGED:.*]] = train.read @arena.merged.f32 : tensor<12288xf32>
// CHECK: train.segment_square_sum %[[MERGED]] {{.*}}lengths = array<i64: 8192, 30, 808>, offsets = [array<i64: 0, 8192, 0>]
// CHECK-NOT: @arena.grad
// CHECK: train.arena @arena.grad.f32 role("gradients") bytes(98304)
// CHECK-NOT: pieces
// CHECK: train.arena @arena.merged.f32 role("merged gradients") bytes(49152) {{.*}}pieces = array<i1: true, true>, shard = ["data"]

// Replicated: behind the totals, what was merged is gathered where gradients stand, and all is as without the option.
// NONE: train.micro_end
// NONE: train.write %{{.*}} to @arena.merged.f32
// NONE: scf.if
// NONE-NOT: train.reduce_scatter
// NONE: train.all_reduce %{{.*}} over ["host", "data"] : tensor<3xf64>
// NONE: %[[G:.*]] = train.read @arena.grad.f32
// NONE: %[[M:.*]] = train.read @arena.merged.f32
// NONE: %[[OWN:.*]] = train.segment_map %[[G]], %[[M]]
// NONE-SAME: offsets = [array<i64: 0, 16384, 8192, 20480>, array<i64: 0, 8192, 0, 8192>]
// NONE: %[[A0:.*]] = train.all_gather %[[OWN]] over ["data"] range [0, 16384]
// NONE: %[[A1:.*]] = train.all_gather %[[A0]] over ["data"] range [16384, 8192]
// NONE: train.write %[[A1]] to @arena.grad.f32
// NONE: %[[WHOLE:.*]] = train.read @arena.grad.f32
// NONE: train.segment_square_sum %[[WHOLE]]
// NONE-NOT: train.all_gather
// NONE: train.arena @arena.merged.f32 role("merged gradients") bytes(49152)

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
