// RUN: trainc-opt %s --train-fuse-optimizer --split-input-file --verify-diagnostics

train.list @l of @e "apply" () {
  // expected-error @below {{expects parameters that are not frozen, got @w}}
  %n = train.norm_squared [[@w]] : tensor<f64>
  train.return
}

// -----

train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4xf32> init(ones) optimizer(@o)
train.list @l of @e "apply" (%s: tensor<f64>, %f: tensor<i1>) {
  // expected-error @below {{expects an optimizer with a region, got @o}}
  train.update [@o] [[@w]] scale(%s : tensor<f64>) if(%f : tensor<i1>) t(%s : tensor<f64>)
  train.return
}
