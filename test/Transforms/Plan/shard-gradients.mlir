// DEFINE: %{plan} = train-differentiate,train-plan-step,train-gradient-merge,train-form-buckets{bucket-size=20080},train-fuse-optimizer
// DEFINE: %{lists} = train-coalesce,train-outline-lists,train-expand-updates
// RUN: trainc-opt %s --pass-pipeline='builtin.module(%{plan},train-shard{mode=gradients},train-verify-form{form=2})' | FileCheck %s
// RUN: trainc-opt %s --pass-pipeline='builtin.module(%{plan},train-shard{mode=gradients},%{lists})' | FileCheck %s --check-prefix=SEGMENTS
// RUN: trainc-opt %s --pass-pipeline='builtin.module(%{plan},train-shard{mode=parameters},train-verify-form{form=2})' | FileCheck %s --check-prefix=ALL

// Gradients of a bucket stand in memory of its own as soon as the last one is made. They are summed over the ranks of a host,
// then over hosts, and this rank's shard is accumulated.
// CHECK-LABEL: train.step @step
// CHECK-NOT: @arena.grad
// CHECK: %[[C:.*]] = nn.add {{.*}} : tensor<5000xf32>, tensor<5000xf32>
// CHECK-NEXT: %[[F:.*]] = train.flatten %{{.*}}, %[[C]] as [@d, @c] : tensor<20xf32>, tensor<5000xf32> -> tensor<?xf32>
// CHECK-NEXT: %[[R:.*]] = train.reduce_scatter %[[F]] over ["data"] in_place
// CHECK-NEXT: %[[S:.*]] = train.all_reduce %[[R]] over ["host"] in_place piece_of ["data"]
// CHECK-NEXT: train.accumulate %[[S]] into @arena.merged.f32::@bucket : tensor<?xf32>
// CHECK: %[[A:.*]] = train.flatten %{{.*}} as [@a]
// CHECK-NEXT: train.reduce_scatter %[[A]]
// CHECK: train.flatten {{.*}} as [@b] : tensor<9000xf32> -> tensor<?xf32>

// Once per window, norm and update read the sums; of the parameters, which the step reads, all ranks get the new ones.
// CHECK: train.window_end
// CHECK-NOT: train.reduce_scatter
// CHECK: train.norm_squared {{.*}} over ["data"]
// CHECK: train.update
// CHECK-NEXT: train.read @arena.master.f32
// CHECK-NEXT: train.all_gather
// CHECK-LABEL: train.eval @eval
// CHECK-NEXT: train.read @arena.master.f32::@a
// CHECK: train.arena @arena.master.f32
// CHECK-NOT: train.span {{.*}} over
// CHECK-NOT: train.arena @arena.grad
// CHECK: train.arena @arena.merged.f32 merged
// CHECK-COUNT-3: train.span {{.*}} over ["data"]

// Nothing touches what lies between gradients.
// SEGMENTS-LABEL: train.list @step.first
// SEGMENTS: train.flatten %{{.*}}, %{{.*}} at [0, 4096] : tensor<20xf32>, tensor<5000xf32> -> tensor<16384xf32>
// SEGMENTS: %[[M:.*]] = train.read @arena.merged.f32::@bucket : tensor<8192xf32>
// SEGMENTS-NEXT: train.segment_map %[[M]],
// SEGMENTS-SAME: lengths = [20, 4096, 904], offsets = [array<i64: 0, 4096, 0>, array<i64: 0, 4096, 8192>], shards = [0, 2, 3]> {targets = array<i64: 0>}
// SEGMENTS: train.flatten %{{.*}} at [0] : tensor<30xf32> -> tensor<8192xf32>
// SEGMENTS: lengths = [30], offsets = [array<i64: 0>, array<i64: 0>], shards = [0, 1, 1]
// SEGMENTS: lengths = [8192, 808], offsets = [array<i64: 0, 0>, array<i64: 0, 8192>], shards = [0, 1, 2]

// With the parameters sharded as well a bucket is gathered before it is used. Two are kept: the third one leaves the first no
// memory, which is gathered again. Nothing is gathered for what nobody needs, and nothing behind the update.
// ALL-LABEL: train.step @step
// ALL: %[[OWN:.*]] = train.read @arena.master.f32::@[[FIRST:.*]] : tensor<?xf32>
// ALL-NEXT: %[[B:.*]] = train.all_gather %[[OWN]] over ["data"] : tensor<?xf32> -> tensor<?xf32>
// ALL-NEXT: %[[W:.*]] = train.view %[[B]] of @b : tensor<?xf32> -> tensor<9000xf32>
// ALL-NEXT: nn.mul %[[W]], %[[W]]
// ALL-NEXT: train.read @arena.master.f32::
// ALL-NEXT: %[[A:.*]] = train.all_gather
// ALL-NEXT: %[[A0:.*]] = train.view %[[A]] of @a : tensor<?xf32> -> tensor<30xf32>
// ALL: %[[DC:.*]] = train.all_gather
// ALL-DAG: train.view %[[DC]] of @d : tensor<?xf32> -> tensor<20xf32>
// ALL-DAG: train.view %[[DC]] of @c : tensor<?xf32> -> tensor<5000xf32>
// ALL-NOT: train.all_gather
// ALL: train.reduce_scatter
// ALL-NOT: train.all_gather
// ALL: nn.mul %{{.*}}, %[[A0]]
// ALL: train.reduce_scatter
// ALL: train.read @arena.master.f32::@[[FIRST]] :
// ALL-NEXT: %[[AGAIN:.*]] = train.all_gather
// ALL-NEXT: %[[W:.*]] = train.view %[[AGAIN]] of @b
// ALL-NEXT: nn.mul %{{.*}}, %[[W]]
// ALL-NOT: train.all_gather
// ALL: train.reduce_scatter
// ALL: scf.if
// ALL: train.update {{.*}} over ["data"] fused
// ALL-NOT: train.all_gather
// ALL-LABEL: train.eval @eval
// ALL-NEXT: train.read @arena.master.f32::
// ALL-NEXT: %[[ALL:.*]] = train.all_gather
// ALL-NEXT: %[[A:.*]] = train.view %[[ALL]] of @a : tensor<?xf32> -> tensor<30xf32>
// ALL-NEXT: nn.reshape %[[A]]
// ALL: train.arena @arena.master.f32
// ALL-COUNT-3: train.span {{.*}} over ["data"]

// In windows of one micro-step there is nothing to add to.
// RUN: sed -e 's/accumulate(2)//' %s > %t.mlir
// RUN: trainc-opt %t.mlir --pass-pipeline='builtin.module(%{plan},train-shard{mode=gradients},%{lists})' | FileCheck %s --check-prefix=ONE
// ONE-LABEL: train.list @step.first
// ONE-NOT: @micro_step
// ONE: %[[F:.*]] = train.flatten
// ONE-NEXT: %[[R:.*]] = train.reduce_scatter %[[F]]
// ONE-NEXT: %[[S:.*]] = train.all_reduce %[[R]]
// ONE-NEXT: %[[M:.*]] = train.read @arena.merged.f32::@bucket : tensor<8192xf32>
// ONE-NEXT: train.segment_map %[[M]], %[[S]] : tensor<8192xf32>, tensor<16384xf32> shard
// ONE-NEXT: ^bb0(%{{.*}}: f32, %[[SUM:.*]]: f32):
// ONE-NEXT: train.yield %[[SUM]]

// With a full merge buffer all gradients of a window are kept, and summed once, as if only the optimizer were divided; the
// parameters are divided all the same.
// RUN: trainc-opt %s --pass-pipeline='builtin.module(%{plan},train-shard{mode=optimizer})' > %t.optimizer
// RUN: trainc-opt %s --pass-pipeline='builtin.module(%{plan},train-shard{mode=gradients merge-buffer=full})' | diff %t.optimizer -
// RUN: trainc-opt %s --pass-pipeline='builtin.module(%{plan},train-shard{mode=parameters merge-buffer=full},train-verify-form{form=2})' | FileCheck %s --check-prefix=FULL
// FULL-LABEL: train.step @step
// FULL: train.all_gather
// FULL-NOT: train.flatten
// FULL: train.accumulate
// FULL: train.window_end
// FULL: train.reduce_scatter
// FULL: train.arena @arena.master.f32
// FULL: train.span @bucket over ["data"]
// FULL: train.arena @arena.grad.f32
// FULL: train.span @bucket{{$}}
// FULL-NOT: train.arena @arena.merged

// They do nothing to one rank.
// RUN: sed -e 's/host = 2, data = 2/host = 1, data = 1/' %s > %t.mlir
// RUN: trainc-opt %t.mlir --pass-pipeline='builtin.module(%{plan},train-shard)' > %t.without
// RUN: trainc-opt %t.mlir --pass-pipeline='builtin.module(%{plan},train-shard{mode=gradients})' | diff %t.without -
// RUN: trainc-opt %t.mlir --pass-pipeline='builtin.module(%{plan},train-shard{mode=parameters})' | diff %t.without -

// RUN: not trainc-opt %s --train-shard=mode=all 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// UNKNOWN: error: expects mode none, optimizer, gradients or parameters, got all
// RUN: not trainc-opt %s --train-shard=merge-buffer=half 2>&1 | FileCheck %s --check-prefix=HALF
// HALF: error: expects a merge buffer that is full or sharded, got half
train.mesh @mesh(host = 2, data = 2)
train.param @b : tensor<9000xf32> init(ones) optimizer(@o)
train.param @a : tensor<30xf32> init(ones) optimizer(@o)
train.param @d : tensor<20xf32> init(ones) optimizer(@o)
train.param @c : tensor<5000xf32> init(ones) optimizer(@o)
train.optimizer @o(%p: f32, %g: f32, %m: f32) state(m = 0.0) {
  %q = arith.subf %p, %g : f32
  train.yield %q, %m : f32, f32
}
train.step @step() clip(global_norm<1.0>) accumulate(2) attributes {over = ["host", "data"]} {
  %b = train.read @b : tensor<9000xf32>
  %a = train.read @a : tensor<30xf32>
  %d = train.read @d : tensor<20xf32>
  %c = train.read @c : tensor<5000xf32>
  %b2 = nn.mul %b, %b : tensor<9000xf32>, tensor<9000xf32>
  %a2 = nn.mul %a, %a : tensor<30xf32>, tensor<30xf32>
  %c2 = nn.mul %c, %c : tensor<5000xf32>, tensor<5000xf32>
  %r = nn.reduce sum %b2 dims [0] : tensor<9000xf32>
  %s = nn.reduce sum %a2 dims [0] : tensor<30xf32>
  %t = nn.reduce sum %d dims [0] : tensor<20xf32>
  %u = nn.reduce sum %c2 dims [0] : tensor<5000xf32>
  %v = nn.add %r, %s : tensor<f32>, tensor<f32>
  %w = nn.add %v, %t : tensor<f32>, tensor<f32>
  %l = nn.add %w, %u : tensor<f32>, tensor<f32>
  train.yield loss(%l) : tensor<f32>
}
train.eval @eval() -> ("row") {
  %a = train.read @a : tensor<30xf32>
  %r = nn.reshape %a : tensor<30xf32> to tensor<1x30xf32>
  train.yield %r : tensor<1x30xf32>
}
