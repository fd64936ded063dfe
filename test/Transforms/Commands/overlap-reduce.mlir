// RUN: trainc-opt %s --train-overlap-reduce --split-input-file --train-verify-form=form=3 | FileCheck %s

// Each bucket starts behind the command that writes the last of its gradients, and they end in that order; what no command
// writes (the last range, padding) is not started early. The sum over hosts comes after all ends.
// CHECK: train.token @[[T1:step.apply.reduced_[0-9]]]
// CHECK: train.token @[[T0:step.apply.reduced]]
// CHECK-LABEL: train.list @step.first
// CHECK: train.launch @k
// CHECK: train.launch @k
// CHECK: %[[G:.*]] = train.address @arena.grad.f32 :
// CHECK-NEXT: %[[B1:.*]] = train.view %[[G]] from 8192
// CHECK-NEXT: train.start reduce_scatter outs(%[[B1]]) over ["data"] as @[[T0]]
// CHECK-NEXT: train.copy
// CHECK-NEXT: %[[G:.*]] = train.address @arena.grad.f32 :
// CHECK-NEXT: %[[B0:.*]] = train.view %[[G]] from 0
// CHECK-NEXT: train.start reduce_scatter outs(%[[B0]]) over ["data"] as @[[T1]]
// CHECK-NEXT: train.return
// CHECK-LABEL: train.list @step.apply
// CHECK: train.wait @[[T0]]
// CHECK-NEXT: train.wait @[[T1]]
// CHECK-NEXT: %[[S:.*]] = train.start all_reduce outs(%{{.*}}) over ["host"] piece_of ["data"]
// CHECK-NEXT: train.wait %[[S]]
// CHECK-NEXT: %[[R:.*]] = train.start reduce_scatter
// CHECK-NEXT: train.wait %[[R]]
// CHECK: train.launch @k_sum
train.mesh @mesh(host = 2, data = 2)
train.bucket @bucket [@a] elements(8192) offsets([0])
train.bucket @bucket_1 [@b, @c] elements(8192) offsets([0, 4096])
train.bucket @bucket_2 [] elements(8192) offsets([])
train.arena @arena.grad.f32 gradient {
  train.slice @a : tensor<8xf32>
  train.slice @b : tensor<8xf32>
  train.slice @c : tensor<8xf32>
  train.span @bucket
  train.span @bucket_1
  train.span @bucket_2
}
train.arena @arena.x buffer {
  train.slice @s : tensor<f32>
}
train.kernel @k(%x: tensor<8xf32>) inplace [-1] {
  %r = nn.tanh %x : tensor<8xf32>
  train.return %r : tensor<8xf32>
}
train.kernel @k_sum(%x: tensor<24576xf32>) inplace [-1] {
  %r = nn.reduce sum %x dims [0] : tensor<24576xf32>
  train.return %r : tensor<f32>
}
train.step @step(%x: tensor<8xf32>, %s: tensor<f32>) {
  train.yield loss(%s) : tensor<f32>
}
train.list @step.first of @step "first" () workspace(0) {
  %x = train.address input 0 : memref<8xf32>
  %a = train.address @arena.grad.f32::@a : memref<8xf32>
  %b = train.address @arena.grad.f32::@b : memref<8xf32>
  %c = train.address @arena.grad.f32::@c : memref<8xf32>
  train.launch @k(%x) outs(%c : memref<8xf32>) : (memref<8xf32>) -> ()
  train.launch @k(%x) outs(%b : memref<8xf32>) : (memref<8xf32>) -> ()
  train.copy %x to %a : memref<8xf32> to memref<8xf32>
  train.return
}
train.list @step.apply of @step "apply" () workspace(0) {
  %g = train.address @arena.grad.f32 : memref<24576xf32>
  %g0 = train.view %g from 0 : memref<24576xf32> -> memref<8192xf32>
  %g1 = train.view %g from 8192 : memref<24576xf32> -> memref<8192xf32>
  %g2 = train.view %g from 16384 : memref<24576xf32> -> memref<8192xf32>
  %t0 = train.start reduce_scatter outs(%g0) over ["data"] : memref<8192xf32> -> !train.token
  train.wait %t0
  %t1 = train.start all_reduce outs(%g0) over ["host"] piece_of ["data"] : memref<8192xf32> -> !train.token
  train.wait %t1
  %t2 = train.start reduce_scatter outs(%g1) over ["data"] : memref<8192xf32> -> !train.token
  train.wait %t2
  %t3 = train.start reduce_scatter outs(%g2) over ["data"] : memref<8192xf32> -> !train.token
  train.wait %t3
  %l = train.address @arena.x::@s : memref<f32>
  train.launch @k_sum(%g) outs(%l : memref<f32>) : (memref<24576xf32>) -> ()
  train.return
}

// -----

// It does nothing where several micro-steps accumulate: their sums are complete at the end of the last.
// CHECK-LABEL: train.step @window
// CHECK-NOT: as @
// CHECK-NOT: train.wait @
train.mesh @mesh(data = 2)
train.bucket @bucket [@a] elements(8192) offsets([0])
train.arena @arena.grad.f32 gradient {
  train.slice @a : tensor<8xf32>
  train.span @bucket
}
train.step @window(%x: tensor<8xf32>, %s: tensor<f32>) accumulate(2) {
  train.yield loss(%s) : tensor<f32>
}
train.list @window.first of @window "first" () workspace(0) {
  %x = train.address input 0 : memref<8xf32>
  %a = train.address @arena.grad.f32::@a : memref<8xf32>
  train.copy %x to %a : memref<8xf32> to memref<8xf32>
  train.return
}
train.list @window.apply of @window "apply" () workspace(0) {
  %g = train.address @arena.grad.f32 : memref<8192xf32>
  %t = train.start reduce_scatter outs(%g) over ["data"] : memref<8192xf32> -> !train.token
  train.wait %t
  train.return
}

// -----

// What every micro-step ends in is started in both lists, in the order of the first.
// CHECK-LABEL: train.list @each.first
// CHECK: train.copy %{{.*}} to %[[B:.*]] :
// CHECK: train.view %{{.*}} from 8192
// CHECK-NEXT: train.start reduce_scatter outs({{.*}}) over ["data"] as @[[T0:.*]] :
// CHECK-NEXT: train.copy
// CHECK: train.view %{{.*}} from 0
// CHECK-NEXT: train.start reduce_scatter outs({{.*}}) over ["data"] as @[[T1:.*]] :
// CHECK-NEXT: train.return
// CHECK-LABEL: train.list @each.next
// CHECK: train.copy
// CHECK-NEXT: train.copy
// CHECK: train.view %{{.*}} from 8192
// CHECK-NEXT: train.start reduce_scatter outs({{.*}}) over ["data"] as @[[T0]] :
// CHECK: train.view %{{.*}} from 0
// CHECK-NEXT: train.start reduce_scatter outs({{.*}}) over ["data"] as @[[T1]] :
// CHECK-NEXT: train.return
// CHECK-LABEL: train.list @each.merge
// CHECK: train.wait @[[T0]]
// CHECK-NEXT: train.wait @[[T1]]
// CHECK-NEXT: train.return
// CHECK-LABEL: train.list @each.apply
// CHECK-NOT: train.wait
train.mesh @mesh(data = 2)
train.bucket @bucket [@a] elements(8192) offsets([0])
train.bucket @bucket_1 [@b] elements(8192) offsets([0])
train.arena @arena.grad.f32 gradient {
  train.slice @a : tensor<8xf32>
  train.slice @b : tensor<8xf32>
  train.span @bucket
  train.span @bucket_1
}
train.step @each(%x: tensor<8xf32>, %s: tensor<f32>) accumulate(2) {
  train.yield loss(%s) : tensor<f32>
}
train.list @each.first of @each "first" () workspace(0) {
  %x = train.address input 0 : memref<8xf32>
  %a = train.address @arena.grad.f32::@a : memref<8xf32>
  %b = train.address @arena.grad.f32::@b : memref<8xf32>
  train.copy %x to %b : memref<8xf32> to memref<8xf32>
  train.copy %x to %a : memref<8xf32> to memref<8xf32>
  train.return
}
train.list @each.next of @each "next" () workspace(0) {
  %x = train.address input 0 : memref<8xf32>
  %a = train.address @arena.grad.f32::@a : memref<8xf32>
  %b = train.address @arena.grad.f32::@b : memref<8xf32>
  train.copy %x to %a : memref<8xf32> to memref<8xf32>
  train.copy %x to %b : memref<8xf32> to memref<8xf32>
  train.return
}
train.list @each.merge of @each "merge" () workspace(0) {
  %g = train.address @arena.grad.f32 : memref<16384xf32>
  %g0 = train.view %g from 0 : memref<16384xf32> -> memref<8192xf32>
  %t0 = train.start reduce_scatter outs(%g0) over ["data"] : memref<8192xf32> -> !train.token
  train.wait %t0
  %g1 = train.view %g from 8192 : memref<16384xf32> -> memref<8192xf32>
  %t1 = train.start reduce_scatter outs(%g1) over ["data"] : memref<8192xf32> -> !train.token
  train.wait %t1
  train.return
}
train.list @each.apply of @each "apply" () workspace(0) {
  train.return
}

// -----

// What still reads a gradient where it stands comes before the start: the sum is made there.
// CHECK-LABEL: train.list @read.first
// CHECK: train.launch @two
// CHECK: train.view %{{.*}} from 0
// CHECK-NEXT: train.start reduce_scatter
// CHECK: train.view %{{.*}} from 8192
// CHECK-NEXT: train.start reduce_scatter
// CHECK-NEXT: train.return
train.mesh @mesh(data = 2)
train.bucket @bucket [@a] elements(8192) offsets([0])
train.bucket @bucket_1 [@b] elements(8192) offsets([0])
train.arena @arena.grad.f32 gradient {
  train.slice @a : tensor<8xf32>
  train.slice @b : tensor<2x4xf32>
  train.span @bucket
  train.span @bucket_1
}
train.kernel @k(%x: tensor<8xf32>) inplace [-1] {
  %r = nn.tanh %x : tensor<8xf32>
  train.return %r : tensor<8xf32>
}
train.kernel @two(%x: tensor<2x4xf32>) inplace [-1] {
  %r = nn.tanh %x : tensor<2x4xf32>
  train.return %r : tensor<2x4xf32>
}
train.step @read(%x: tensor<8xf32>, %s: tensor<f32>) {
  train.yield loss(%s) : tensor<f32>
}
train.list @read.first of @read "first" () workspace(0) {
  %x = train.address input 0 : memref<8xf32>
  %a = train.address @arena.grad.f32::@a : memref<8xf32>
  train.launch @k(%x) outs(%a : memref<8xf32>) : (memref<8xf32>) -> ()
  %flat = train.view %a from 0 : memref<8xf32> -> memref<2x4xf32>
  %b = train.address @arena.grad.f32::@b : memref<2x4xf32>
  train.launch @two(%flat) outs(%b : memref<2x4xf32>) : (memref<2x4xf32>) -> ()
  train.return
}
train.list @read.apply of @read "apply" () workspace(0) {
  %g = train.address @arena.grad.f32 : memref<16384xf32>
  %g0 = train.view %g from 0 : memref<16384xf32> -> memref<8192xf32>
  %t0 = train.start reduce_scatter outs(%g0) over ["data"] : memref<8192xf32> -> !train.token
  train.wait %t0
  %g1 = train.view %g from 8192 : memref<16384xf32> -> memref<8192xf32>
  %t1 = train.start reduce_scatter outs(%g1) over ["data"] : memref<8192xf32> -> !train.token
  train.wait %t1
  train.return
}
