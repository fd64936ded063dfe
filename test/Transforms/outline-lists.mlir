// RUN: trainc-opt %s --train-outline-lists --split-input-file | FileCheck %s

// `first` overwrites, `next` adds, `apply` is the conditional region.
// CHECK-LABEL: train.list @step.first of @step "first" (%{{.*}}: tensor<4xf32>)
// CHECK-NOT: train.read
// CHECK: train.write %{{.*}} to @g::@w
// CHECK-LABEL: train.list @step.next of @step "next" (%{{.*}}: tensor<4xf32>)
// CHECK: %[[OLD:.*]] = train.read @g::@w
// CHECK: %[[NEW:.*]] = nn.add %[[OLD]]
// CHECK: train.write %[[NEW]] to @g::@w
// CHECK-LABEL: train.list @step.apply of @step "apply" ()
// CHECK: nn.neg
// CHECK-LABEL: train.list @eval.first of @eval "first"
// CHECK: train.return %{{.*}} : tensor<4xf32>
train.arena @g role("gradients") bytes(16) {slices = [@w], types = [tensor<4xf32>], offsets = array<i64: 0>}
train.step @step(%x: tensor<4xf32>) accumulate(2) {
  train.accumulate %x into @g::@w : tensor<4xf32>
  %s = nn.reduce sum %x dims [0] : tensor<4xf32>
  %due = train.window_end
  scf.if %due {
    %r = train.read @g::@w : tensor<4xf32>
    %n = nn.neg %r : tensor<4xf32>
    train.write %n to @g::@w : tensor<4xf32>
  }
  train.yield loss(%s) : tensor<f32>
}
train.eval @eval(%x: tensor<4xf32>) -> ("y") {
  train.yield %x : tensor<4xf32>
}

// -----

// A window of one has no `next`. The pass does nothing to a module with lists.
// CHECK-NOT: "next"
// CHECK-LABEL: train.list @only of @step "first" ()
// CHECK-NOT: train.list
train.step @step(%x: tensor<f32>) {
  train.yield loss(%x) : tensor<f32>
}
train.list @only of @step "first" () {
  train.return
}
