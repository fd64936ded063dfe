// DEFINE: %{plan} = --train-differentiate --train-plan-step --train-gradient-merge --train-hoist-casts --train-coalesce --train-form-buckets --train-fuse-optimizer
// RUN: trainc-opt %s --split-input-file %{plan} --train-shard=mode=optimizer --train-verify-form=form=2 | FileCheck %s
// RUN: trainc-opt %s --split-input-file %{plan} --train-shard --train-verify-form=form=2 | FileCheck %s --check-prefix=NONE

// Once per window: gradients are summed over the ranks of a host, by pieces, then these over hosts; norm and update are of
// the piece that a rank owns. The cast copy is gathered, and of parameters those that the step reads in f32.
// CHECK: scf.if
// CHECK: %[[INDEX:.*]] = train.read @arena.scalars::@mesh.data
// CHECK: %[[SHARD:.*]] = nn.cast %[[INDEX]] to i64
// CHECK: %[[G:.*]] = train.read @arena.grad.f32 : tensor<24576xf32>
// CHECK: %[[R0:.*]] = train.reduce_scatter %[[G]] over ["data"] range [0, 8192]
// CHECK: %[[R1:.*]] = train.all_reduce %[[R0]] over ["host"] range [0, 8192] piece_of ["data"]
// CHECK: %[[R2:.*]] = train.reduce_scatter %[[R1]] over ["data"] range [8192, 16384]
// CHECK: %[[R3:.*]] = train.all_reduce %[[R2]] over ["host"] range [8192, 16384] piece_of ["data"]
// CHECK: train.write %[[R3]] to @arena.grad.f32
// CHECK: train.all_reduce %{{.*}} over ["host", "data"] : tensor<3xf64>
// CHECK: %[[SUMS:.*]] = train.segment_square_sum {{.*}} shard %[[SHARD]] : tensor<i64> block 4096 {{.*}}lengths = array<i64: 8192, 30, 808>{{.*}}owners = array<i64: 0, 1, 0>, shards = array<i64: 0, 2, 3>, starts = array<i64: 0, 0, 8192>} -> tensor<3xf64>
// CHECK: %[[ALL:.*]] = train.all_gather %[[SUMS]] over ["data"] : tensor<3xf64> -> tensor<6xf64>
// CHECK: train.sum_blocks %[[ALL]] {counts = array<i64: 2, 1, 1>, firsts = array<i64: 0, 3, 2>, owners = array<i64: 0, 0, 1>, sets = [array<i64: 0, 1>]
// CHECK: %[[NEW:.*]]:3 = train.segment_map {{.*}} shard %[[SHARD]] {{.*}}lengths = array<i64: 8192, 808>, offsets = [array<i64: 8192, 8192>, array<i64: 8192, 16384>, array<i64: 4096, 4096>, array<i64: 0, 8192>]
// CHECK: train.write %[[NEW]]#0 to @arena.master.f32
// CHECK: %[[COPY:.*]] = train.all_gather %[[NEW]]#2 over ["data"] range [0, 16384] : tensor<16384xbf16> -> tensor<16384xbf16>
// CHECK: train.write %[[COPY]] to @arena.compute.bf16
// CHECK: %[[KEPT:.*]]:2 = train.segment_map
// CHECK: train.all_gather %[[KEPT]]#0 over ["data"] range [0, 8192] : tensor<16384xf32>
// CHECK: train.arena @arena.master.f32 role("parameters") bytes(65536) {buckets = array<i64: 8192, 24576>, offsets = array<i64: 0, 32768>, pieces = array<i1: false, true>, shard = ["data"]
// CHECK: train.arena @arena.state.m.f32 role("state") bytes(49152) {{.*}}pieces = array<i1: true, true>, shard = ["data"]

// Replicated: the sums are gathered, and every rank does everything, in the same segments.
// NONE: scf.if
// NONE: train.reduce_scatter {{.*}} range [8192, 16384]
// NONE: train.all_gather {{.*}} range [0, 8192] : tensor<24576xf32>
// NONE: train.all_gather {{.*}} range [8192, 16384] : tensor<24576xf32>
// NONE: %[[SUMS:.*]] = train.segment_square_sum {{.*}} block 4096 {{.*}}lengths = array<i64: 8192, 808, 30>{{.*}}owners = array<i64: 0, 0, 1>, starts = array<i64: 0, 8192, 0>} -> tensor<4xf64>
// NONE-NEXT: ^bb0
// NONE: train.sum_blocks %[[SUMS]]
// NONE-NOT: train.all_gather
// NONE: train.arena @arena.master.f32
// NONE-NOT: pieces
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
// CHECK-NOT: pieces
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
