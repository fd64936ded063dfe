// RUN: trainc-opt %s --train-plan-memory --split-input-file | FileCheck %s
// RUN: trainc-opt %s --train-plan-memory="reuse=false" --split-input-file | FileCheck %s --check-prefix=ALL

// The first and the third value live at different times and share memory; the last one is the output.
// CHECK-LABEL: train.list @chain of @e "first" (%{{.*}}) workspace(512)
// CHECK: places = {{\[}}["workspace", [[A:.*]]{{\]\]}}
// CHECK: places = {{\[}}["workspace",
// CHECK: places = {{\[}}["workspace", [[A]]{{\]\]}}
// CHECK: places = {{\[}}["output", 0]]
// ALL: workspace(768)
train.kernel @k(%x: tensor<4xf32>) inplace [-1] {
  %y = nn.neg %x : tensor<4xf32>
  train.return %y : tensor<4xf32>
}
train.list @chain of @e "first" (%x: tensor<4xf32>) {
  %a = train.launch @k(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %b = train.launch @k(%a) : (tensor<4xf32>) -> tensor<4xf32>
  %c = train.launch @k(%b) : (tensor<4xf32>) -> tensor<4xf32>
  %d = train.launch @k(%c) : (tensor<4xf32>) -> tensor<4xf32>
  train.return %d : tensor<4xf32>
}

// -----

// A result is written to its slice unless the old value is still needed: then it is copied.
// CHECK-LABEL: train.list @slices
// CHECK: train.launch @k{{.*}} {places = {{\[}}[@g::@a, 0]]}
// CHECK: train.launch @k{{.*}} {places = {{\[}}["workspace", 0]]}
// CHECK: train.write %{{.*}} to @g::@b
train.kernel @k(%x: tensor<4xf32>) inplace [-1] {
  %y = nn.neg %x : tensor<4xf32>
  train.return %y : tensor<4xf32>
}
train.arena @g role("buffers") bytes(80) {slices = [@a, @b], types = [tensor<4xf32>, tensor<4xf32>], offsets = array<i64: 0, 64>}
train.list @slices of @e "first" (%x: tensor<4xf32>) {
  %o = train.read @g::@b : tensor<4xf32>
  %a = train.launch @k(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %b = train.launch @k(%o) : (tensor<4xf32>) -> tensor<4xf32>
  train.write %a to @g::@a : tensor<4xf32>
  train.write %b to @g::@b : tensor<4xf32>
  train.return %o : tensor<4xf32>
}

// -----

// What is done in place to a value has that value's address: here a slice's.
// CHECK-LABEL: train.list @inplace
// CHECK: train.launch @k{{.*}} {places = {{\[}}[@g::@a, 0]]}
// CHECK: train.launch @twice{{.*}} {places = {{\[}}[@g::@a, 0]]}
// CHECK-NOT: train.write
train.kernel @k(%x: tensor<4xf32>) inplace [-1] {
  %y = nn.neg %x : tensor<4xf32>
  train.return %y : tensor<4xf32>
}
train.kernel @twice(%x: tensor<4xf32>) inplace [0] {
  %y = nn.add %x, %x : tensor<4xf32>, tensor<4xf32>
  train.return %y : tensor<4xf32>
}
train.arena @g role("buffers") bytes(16) {slices = [@a], types = [tensor<4xf32>], offsets = array<i64: 0>}
train.list @inplace of @e "first" (%x: tensor<4xf32>) {
  %a = train.launch @k(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %b = train.launch @twice(%a) : (tensor<4xf32>) -> tensor<4xf32>
  train.write %b to @g::@a : tensor<4xf32>
  train.return
}

// -----

// It does nothing to a list that is planned.
// CHECK-LABEL: train.list @planned of @e "first" () workspace(64)
// ALL-LABEL: train.list @planned of @e "first" () workspace(64)
train.list @planned of @e "first" () workspace(64) {
  train.return
}

// -----

// What is not used after a flat tensor is made where it stands in it, for which its memory is needed from the first of them on.
// What others use later is copied. Peers may read what a collective works on in place until the next one of all its axes has
// begun, though this rank needs it no longer: the sum over hosts does not tell that the peers of @data are ready.
// CHECK-LABEL: train.list @flat
// CHECK-SAME: workspace(1792)
// CHECK: %[[A:.*]] = train.launch @k(%{{.*}}) {places = {{\[}}["workspace", 1024]]}
// CHECK: %[[B:.*]] = train.launch @k(%[[A]]) {places = {{\[}}["workspace", 256]]}
// CHECK: train.flatten %[[A]], %[[B]] at [0, 64] {places = {{\[}}["workspace", 0]]}
// CHECK: train.reduce_scatter {{.*}} {places = {{\[}}["workspace", 0]]}
// CHECK: %[[C:.*]] = train.launch @k2(%{{.*}}) {places = {{\[}}["workspace", 512]]}
// CHECK: train.all_reduce {{.*}} over ["host"] {places = {{\[}}["workspace", 1536]]}
// CHECK: %[[H:.*]] = train.launch @k2(%[[C]]) {places = {{\[}}["workspace", 1024]]}
// CHECK: train.all_reduce {{.*}} over ["host", "data"] {places = {{\[}}["output", 1]]}
// CHECK: %[[D:.*]] = train.launch @k2(%[[H]]) {places = {{\[}}["workspace", 0]]}
// CHECK: train.view %[[D]] from 64
// CHECK: train.launch @k(%{{.*}}) {places = {{\[}}["output", 0]]}
train.mesh @mesh(host = 2, data = 2)
train.kernel @k(%x: tensor<64xf32>) inplace [-1] {
  %y = nn.neg %x : tensor<64xf32>
  train.return %y : tensor<64xf32>
}
train.kernel @k2(%x: tensor<128xf32>) inplace [-1] {
  %y = nn.neg %x : tensor<128xf32>
  train.return %y : tensor<128xf32>
}
train.list @flat of @e "first" (%x: tensor<64xf32>) {
  %a = train.launch @k(%x) : (tensor<64xf32>) -> tensor<64xf32>
  %b = train.launch @k(%a) : (tensor<64xf32>) -> tensor<64xf32>
  %f = train.flatten %a, %b at [0, 64] : tensor<64xf32>, tensor<64xf32> -> tensor<128xf32>
  %r = train.reduce_scatter %f over ["data"] range [0, 128] : tensor<128xf32> -> tensor<128xf32>
  %c = train.launch @k2(%r) : (tensor<128xf32>) -> tensor<128xf32>
  %g = train.all_reduce %a over ["host"] : tensor<64xf32>
  %h = train.launch @k2(%c) : (tensor<128xf32>) -> tensor<128xf32>
  %i = train.all_reduce %g over ["host", "data"] : tensor<64xf32>
  %d = train.launch @k2(%h) : (tensor<128xf32>) -> tensor<128xf32>
  %v = train.view %d from 64 : tensor<128xf32> -> tensor<64xf32>
  %o = train.launch @k(%v) : (tensor<64xf32>) -> tensor<64xf32>
  train.return %o, %i : tensor<64xf32>, tensor<64xf32>
}
