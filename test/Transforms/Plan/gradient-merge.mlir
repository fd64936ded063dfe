// RUN: trainc-opt %s --train-gradient-merge --split-input-file | FileCheck %s
// RUN: trainc-opt %s --train-gradient-merge --split-input-file --remarks-filter=train-gradient-merge 2>&1 | FileCheck %s --check-prefix=REMARK

// Gradients and the sums of the losses are accumulated; buffers and what the last
// micro-step reports are written; the update moves into a conditional region.
// CHECK-LABEL: train.step @step
// CHECK: train.accumulate %x into @g::@w
// CHECK: train.write %x to @buffers::@b
// CHECK: train.write %{{.*}} to @scalars::@micro_loss
// CHECK: train.accumulate %{{.*}} into @scalars::@loss_sum
// CHECK: train.accumulate %{{.*}} into @scalars::@weight_sum
// CHECK: %[[DUE:.*]] = train.window_end
// CHECK-NEXT: scf.if %[[DUE]] {
// CHECK-NEXT: train.read @g::@w
// CHECK-NEXT: nn.neg
// CHECK-NEXT: train.write
// CHECK-NEXT: }
// CHECK-NEXT: train.yield
// REMARK: remark: [Passed] Merged | Category:train-gradient-merge | MicroSteps=4, Sum="w"
// REMARK: MicroSteps=4, Sum="loss_sum"
train.arena @g gradient {
  train.slice @w : tensor<4xf32>
}
train.arena @buffers buffer {
  train.slice @b : tensor<4xf32>
}
train.arena @scalars scalars {
  train.slice @micro_loss : tensor<f64>
  train.slice @loss_sum : tensor<f64>
  train.slice @weight_sum : tensor<f64>
}
train.step @step(%x: tensor<4xf32>, %n: tensor<f64>) accumulate(4) {
  train.write %x to @g::@w : tensor<4xf32>
  train.write %x to @buffers::@b : tensor<4xf32>
  train.write %n to @scalars::@micro_loss : tensor<f64>
  train.write %n to @scalars::@loss_sum : tensor<f64>
  train.write %n to @scalars::@weight_sum : tensor<f64>
  train.window_end
  %r = train.read @g::@w : tensor<4xf32>
  %m = nn.neg %r : tensor<4xf32>
  train.write %m to @g::@w : tensor<4xf32>
  train.yield loss(%n) : tensor<f64>
}

// -----

// A window of one costs nothing: the pass does nothing to it.
// CHECK-LABEL: train.step @one
// CHECK-NEXT: train.write %x to @g::@w
// CHECK-NEXT: train.window_end
// CHECK-NOT: scf.if
train.arena @g gradient {
  train.slice @w : tensor<4xf32>
}
train.step @one(%x: tensor<4xf32>, %n: tensor<f64>) {
  train.write %x to @g::@w : tensor<4xf32>
  train.window_end
  train.yield loss(%n) : tensor<f64>
}

// -----

// Nor one that has a conditional region.
// CHECK-LABEL: train.step @merged
// CHECK: train.write %x to @g::@w
// CHECK: train.window_end
// CHECK-NEXT: scf.if
// CHECK-NOT: scf.if
train.arena @g gradient {
  train.slice @w : tensor<4xf32>
}
train.step @merged(%x: tensor<4xf32>, %n: tensor<f64>) accumulate(2) {
  train.write %x to @g::@w : tensor<4xf32>
  %due = train.window_end
  scf.if %due {
  }
  train.yield loss(%n) : tensor<f64>
}
