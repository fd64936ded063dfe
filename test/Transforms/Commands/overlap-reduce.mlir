// RUN: trainc-opt %s --train-overlap-reduce --split-input-file --train-verify-form=form=3 | FileCheck %s

// Each bucket starts behind the command that writes the last of its gradients, and they end in that order; what no command
// writes (the last range, padding) is not started early. The sum over hosts comes after all ends.
// CHECK-LABEL: train.list @step.first
// CHECK: train.launch @k(%{{.*}}) {places = {{\[\[}}@arena.grad.f32::@c, 0]]}
// CHECK: train.launch @k(%{{.*}}) {places = {{\[\[}}@arena.grad.f32::@b, 0]]}
// CHECK-NEXT: train.start @arena.grad.f32 over ["data"] range [8192, 8192]
// CHECK-NEXT: train.write %{{.*}} to @arena.grad.f32::@a
// CHECK-NEXT: train.start @arena.grad.f32 over ["data"] range [0, 8192]
// CHECK-NEXT: train.return
// CHECK-LABEL: train.list @step.apply
// CHECK: %[[G:.*]] = train.read @arena.grad.f32
// CHECK-NEXT: %[[R0:.*]] = train.reduce_scatter %[[G]] over ["data"] range [8192, 8192] started
// CHECK-NEXT: %[[R1:.*]] = train.reduce_scatter %[[R0]] over ["data"] range [0, 8192] started
// CHECK-NEXT: %[[R2:.*]] = train.all_reduce %[[R1]] over ["host"] range [0, 8192] piece_of ["data"]
// CHECK-NEXT: %[[R3:.*]] = train.reduce_scatter %[[R2]] over ["data"] range [16384, 8192] {places
// CHECK-NEXT: train.launch @k_sum(%[[R3]])
train.mesh @mesh(host = 2, data = 2)
train.arena @arena.grad.f32 role("gradients") bytes(98304) {slices = [@a, @b, @c], types = [tensor<8xf32>, tensor<8xf32>, tensor<8xf32>], offsets = array<i64: 0, 32768, 49152>, buckets = array<i64: 8192, 16384, 24576>}
train.arena @arena.x role("buffers") bytes(4) {slices = [@s], types = [tensor<f32>], offsets = array<i64: 0>}
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
train.list @step.first of @step "first" (%x: tensor<8xf32>, %s: tensor<f32>) workspace(0) {
  %c = train.launch @k(%x) {places = [[@arena.grad.f32::@c, 0]]} : (tensor<8xf32>) -> tensor<8xf32>
  %b = train.launch @k(%x) {places = [[@arena.grad.f32::@b, 0]]} : (tensor<8xf32>) -> tensor<8xf32>
  train.write %x to @arena.grad.f32::@a : tensor<8xf32>
  train.return
}
train.list @step.apply of @step "apply" () workspace(0) {
  %g = train.read @arena.grad.f32 : tensor<24576xf32>
  %r0 = train.reduce_scatter %g over ["data"] range [0, 8192] {places = [[@arena.grad.f32, 0]]} : tensor<24576xf32> -> tensor<24576xf32>
  %r1 = train.all_reduce %r0 over ["host"] range [0, 8192] piece_of ["data"] {places = [[@arena.grad.f32, 0]]} : tensor<24576xf32>
  %r2 = train.reduce_scatter %r1 over ["data"] range [8192, 8192] {places = [[@arena.grad.f32, 0]]} : tensor<24576xf32> -> tensor<24576xf32>
  %r3 = train.reduce_scatter %r2 over ["data"] range [16384, 8192] {places = [[@arena.grad.f32, 0]]} : tensor<24576xf32> -> tensor<24576xf32>
  %l = train.launch @k_sum(%r3) {places = [[@arena.x::@s, 0]]} : (tensor<24576xf32>) -> tensor<f32>
  train.return
}

// -----

// It does nothing where several micro-steps accumulate: their sums are complete at the end of the last.
// CHECK-LABEL: train.step @window
// CHECK-NOT: train.start
// CHECK-NOT: started
train.mesh @mesh(data = 2)
train.arena @arena.grad.f32 role("gradients") bytes(32768) {slices = [@a], types = [tensor<8xf32>], offsets = array<i64: 0>, buckets = array<i64: 8192>}
train.step @window(%x: tensor<8xf32>, %s: tensor<f32>) accumulate(2) {
  train.yield loss(%s) : tensor<f32>
}
train.list @window.first of @window "first" (%x: tensor<8xf32>, %s: tensor<f32>) workspace(0) {
  train.write %x to @arena.grad.f32::@a : tensor<8xf32>
  train.return
}
train.list @window.apply of @window "apply" () workspace(0) {
  %g = train.read @arena.grad.f32 : tensor<8192xf32>
  %r = train.reduce_scatter %g over ["data"] range [0, 8192] {places = [[@arena.grad.f32, 0]]} : tensor<8192xf32> -> tensor<8192xf32>
  train.write %r to @arena.grad.f32 : tensor<8192xf32>
  train.return
}

// -----

// What every micro-step ends in is started in both lists, in the order of the first.
// CHECK-LABEL: train.list @each.first
// CHECK: train.write %{{.*}} to @arena.grad.f32::@b
// CHECK-NEXT: train.start @arena.grad.f32 over ["data"] range [8192, 8192]
// CHECK-NEXT: train.write %{{.*}} to @arena.grad.f32::@a
// CHECK-NEXT: train.start @arena.grad.f32 over ["data"] range [0, 8192]
// CHECK-NEXT: train.return
// CHECK-LABEL: train.list @each.next
// CHECK: train.write %{{.*}} to @arena.grad.f32::@a
// CHECK-NEXT: train.write %{{.*}} to @arena.grad.f32::@b
// CHECK-NEXT: train.start @arena.grad.f32 over ["data"] range [8192, 8192]
// CHECK-NEXT: train.start @arena.grad.f32 over ["data"] range [0, 8192]
// CHECK-NEXT: train.return
// CHECK-LABEL: train.list @each.merge
// CHECK: %[[G:.*]] = train.read @arena.grad.f32
// CHECK-NEXT: %[[R0:.*]] = train.reduce_scatter %[[G]] over ["data"] range [8192, 8192] started
// CHECK-NEXT: train.reduce_scatter %[[R0]] over ["data"] range [0, 8192] started
// CHECK-LABEL: train.list @each.apply
// CHECK-NOT: started
train.mesh @mesh(data = 2)
train.arena @arena.grad.f32 role("gradients") bytes(65536) {slices = [@a, @b], types = [tensor<8xf32>, tensor<8xf32>], offsets = array<i64: 0, 32768>, buckets = array<i64: 8192, 16384>}
train.step @each(%x: tensor<8xf32>, %s: tensor<f32>) accumulate(2) {
  train.yield loss(%s) : tensor<f32>
}
train.list @each.first of @each "first" (%x: tensor<8xf32>, %s: tensor<f32>) workspace(0) {
  train.write %x to @arena.grad.f32::@b : tensor<8xf32>
  train.write %x to @arena.grad.f32::@a : tensor<8xf32>
  train.return
}
train.list @each.next of @each "next" (%x: tensor<8xf32>, %s: tensor<f32>) workspace(0) {
  train.write %x to @arena.grad.f32::@a : tensor<8xf32>
  train.write %x to @arena.grad.f32::@b : tensor<8xf32>
  train.return
}
train.list @each.merge of @each "merge" () workspace(0) {
  %g = train.read @arena.grad.f32 : tensor<16384xf32>
  %r0 = train.reduce_scatter %g over ["data"] range [0, 8192] {places = [[@arena.grad.f32, 0]]} : tensor<16384xf32> -> tensor<16384xf32>
  %r1 = train.reduce_scatter %r0 over ["data"] range [8192, 8192] {places = [[@arena.grad.f32, 0]]} : tensor<16384xf32> -> tensor<16384xf32>
  train.return
}
train.list @each.apply of @each "apply" () workspace(0) {
  train.return
}

// -----

// What still reads a gradient where it stands comes before the start: the sum is made there.
// CHECK-LABEL: train.list @read.first
// CHECK: train.launch @k(%{{.*}}) {places = {{\[\[}}@arena.grad.f32::@a, 0]]}
// CHECK-NEXT: %[[FLAT:.*]] = nn.reshape
// CHECK-NEXT: train.launch @two(%[[FLAT]]) {places = {{\[\[}}@arena.grad.f32::@b, 0]]}
// CHECK-NEXT: train.start @arena.grad.f32 over ["data"] range [0, 8192]
// CHECK-NEXT: train.start @arena.grad.f32 over ["data"] range [8192, 8192]
// CHECK-NEXT: train.return
train.mesh @mesh(data = 2)
train.arena @arena.grad.f32 role("gradients") bytes(65536) {slices = [@a, @b], types = [tensor<8xf32>, tensor<2x4xf32>], offsets = array<i64: 0, 32768>, buckets = array<i64: 8192, 16384>}
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
train.list @read.first of @read "first" (%x: tensor<8xf32>, %s: tensor<f32>) workspace(0) {
  %a = train.launch @k(%x) {places = [[@arena.grad.f32::@a, 0]]} : (tensor<8xf32>) -> tensor<8xf32>
  %flat = nn.reshape %a : tensor<8xf32> to tensor<2x4xf32>
  %b = train.launch @two(%flat) {places = [[@arena.grad.f32::@b, 0]]} : (tensor<2x4xf32>) -> tensor<2x4xf32>
  train.return
}
train.list @read.apply of @read "apply" () workspace(0) {
  %g = train.read @arena.grad.f32 : tensor<16384xf32>
  %r0 = train.reduce_scatter %g over ["data"] range [0, 8192] {places = [[@arena.grad.f32, 0]]} : tensor<16384xf32> -> tensor<16384xf32>
  %r1 = train.reduce_scatter %r0 over ["data"] range [8192, 8192] {places = [[@arena.grad.f32, 0]]} : tensor<16384xf32> -> tensor<16384xf32>
  train.write %r1 to @arena.grad.f32 : tensor<16384xf32>
  train.return
}
