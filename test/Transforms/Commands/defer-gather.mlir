// RUN: trainc-opt %s --train-defer-gather --split-input-file | FileCheck %s

train.mesh @mesh(data = 2)
train.bucket @b0 [@a] elements(64) offsets([0])
train.bucket @b1 [@b] elements(64) offsets([0])
train.arena @arena.master.f32 master {
  train.slice @a : tensor<64xf32>
  train.slice @b : tensor<64xf32>
  train.span @b0
  train.span @b1
}
train.arena @arena.x buffer {
  train.slice @s : tensor<64xf32>
}
train.kernel @k(%x: tensor<64xf32>) inplace [-1] {
  %r = nn.tanh %x : tensor<64xf32>
  train.return %r : tensor<64xf32>
}

// The first gather is in flight while the second bucket is updated, the second one while
// something else is; they are waited for in the order of their starts.
// CHECK-LABEL: train.list @update
// CHECK: train.launch @k(%{{.*}}) outs(%[[A:[0-9]+]] :
// CHECK-NEXT: %[[T0:.*]] = train.start all_gather outs(%[[A]])
// CHECK-NEXT: train.launch @k(%{{.*}}) outs(%[[B:[0-9]+]] :
// CHECK-NEXT: %[[T1:.*]] = train.start all_gather outs(%[[B]])
// CHECK-NEXT: train.launch @k
// CHECK-NEXT: train.wait %[[T0]]
// CHECK-NEXT: train.wait %[[T1]]
// CHECK-NEXT: train.return
train.list @update of @step "apply" () workspace(512) {
  %s = train.address @arena.x::@s : memref<64xf32>
  %w = train.address workspace 0 : memref<64xf32>
  %a = train.address @arena.master.f32::@b0 : memref<64xf32>
  %b = train.address @arena.master.f32::@b1 : memref<64xf32>
  train.launch @k(%s) outs(%a : memref<64xf32>) : (memref<64xf32>) -> ()
  %0 = train.start all_gather outs(%a) over ["data"] : memref<64xf32> -> !train.token
  train.wait %0
  train.launch @k(%s) outs(%b : memref<64xf32>) : (memref<64xf32>) -> ()
  %1 = train.start all_gather outs(%b) over ["data"] : memref<64xf32> -> !train.token
  train.wait %1
  train.launch @k(%s) outs(%w : memref<64xf32>) : (memref<64xf32>) -> ()
  train.return
}

// What reads a bucket waits for it; those that were started before it are waited for first.
// CHECK-LABEL: train.list @read
// CHECK: %[[T0:.*]] = train.start all_gather
// CHECK-NEXT: train.launch @k(%{{.*}}) outs(%[[B:[0-9]+]] :
// CHECK-NEXT: train.wait %[[T0]]
// CHECK-NEXT: %[[T1:.*]] = train.start all_gather outs(%[[B]])
// CHECK-NEXT: train.wait %[[T1]]
// CHECK-NEXT: train.launch @k(%[[B]])
train.list @read of @step "apply" () workspace(512) {
  %s = train.address @arena.x::@s : memref<64xf32>
  %w = train.address workspace 0 : memref<64xf32>
  %a = train.address @arena.master.f32::@b0 : memref<64xf32>
  %b = train.address @arena.master.f32::@b1 : memref<64xf32>
  %0 = train.start all_gather outs(%a) over ["data"] : memref<64xf32> -> !train.token
  train.wait %0
  train.launch @k(%s) outs(%b : memref<64xf32>) : (memref<64xf32>) -> ()
  %1 = train.start all_gather outs(%b) over ["data"] : memref<64xf32> -> !train.token
  train.wait %1
  train.launch @k(%b) outs(%w : memref<64xf32>) : (memref<64xf32>) -> ()
  train.return
}

// Nothing comes between the start of a sum and its wait.
// CHECK-LABEL: train.list @sum
// CHECK: %[[T0:.*]] = train.start all_gather
// CHECK-NEXT: train.launch @k
// CHECK-NEXT: train.wait %[[T0]]
// CHECK-NEXT: %[[T1:.*]] = train.start all_reduce
// CHECK-NEXT: train.wait %[[T1]]
train.list @sum of @step "apply" () workspace(512) {
  %s = train.address @arena.x::@s : memref<64xf32>
  %w = train.address workspace 0 : memref<64xf32>
  %a = train.address @arena.master.f32::@b0 : memref<64xf32>
  %0 = train.start all_gather outs(%a) over ["data"] : memref<64xf32> -> !train.token
  train.wait %0
  train.launch @k(%s) outs(%w : memref<64xf32>) : (memref<64xf32>) -> ()
  %1 = train.start all_reduce outs(%w) over ["data"] : memref<64xf32> -> !train.token
  train.wait %1
  train.launch @k(%s) outs(%w : memref<64xf32>) : (memref<64xf32>) -> ()
  train.return
}

// It does nothing where nothing is computed below, and to sums.
// CHECK-LABEL: train.list @nothing
// CHECK: %[[T0:.*]] = train.start all_reduce
// CHECK-NEXT: train.wait %[[T0]]
// CHECK-NEXT: train.launch @k
// CHECK-NEXT: %[[T1:.*]] = train.start all_gather
// CHECK-NEXT: train.wait %[[T1]]
// CHECK-NEXT: train.copy
train.list @nothing of @step "apply" () workspace(512) {
  %s = train.address @arena.x::@s : memref<64xf32>
  %w = train.address workspace 0 : memref<64xf32>
  %a = train.address @arena.master.f32::@b0 : memref<64xf32>
  %0 = train.start all_reduce outs(%a) over ["data"] : memref<64xf32> -> !train.token
  train.wait %0
  train.launch @k(%s) outs(%w : memref<64xf32>) : (memref<64xf32>) -> ()
  %1 = train.start all_gather outs(%a) over ["data"] : memref<64xf32> -> !train.token
  train.wait %1
  train.copy %s to %w : memref<64xf32> to memref<64xf32>
  train.return
}
