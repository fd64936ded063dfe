// RUN: trainc-opt %s --trainc-to-commands --train-verify-form=form=3 | FileCheck %s
// RUN: not trainc-opt %s --train-verify-form=form=1 2>&1 | FileCheck %s --check-prefix=SOURCE
// RUN: not trainc-opt %s --trainc-to-gradients --train-verify-form=form=2 2>&1 | FileCheck %s --check-prefix=PLAN
// RUN: not trainc-opt %s --trainc-to-plan --train-coalesce --train-outline-lists --train-verify-form=form=3 2>&1 | FileCheck %s --check-prefix=COMMANDS

// It does nothing to a module in the form.
// CHECK: train.list @step.apply
// SOURCE: 'train.optimizer' op expects a region in form 1
// PLAN: expects a slice or bucket of an arena in form 2, got @w
// COMMANDS: expects a planned workspace in form 3
train.optimizer @sgd = sgd<lr = 0.1>
train.param @w : tensor<4xf32> init(ones) optimizer(@sgd)
train.step @step(%x: tensor<4xf32>) {
  %w = train.read @w : tensor<4xf32>
  %p = nn.mul %w, %x : tensor<4xf32>, tensor<4xf32>
  %s = nn.reduce sum %p dims [0] : tensor<4xf32>
  train.yield loss(%s) : tensor<f32>
}
