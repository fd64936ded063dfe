// RUN: trainc-opt %s --train-expand-updates --split-input-file --verify-diagnostics

train.list @absent of @step "apply" () {
  // expected-error @below {{expects parameters that are not frozen, got @w}}
  %n = train.norm_squared [@w] : tensor<f64>
  train.return %n : tensor<f64>
}

// -----

train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4xf32> init(ones) optimizer(@o)
train.list @named of @step "apply" (%s: tensor<f64>, %f: tensor<i1>) {
  // expected-error @below {{expects an optimizer with a region, got @o}}
  train.update @o [@w] scale(%s) if(%f) t(%s) : tensor<f64>, tensor<i1>, tensor<f64>
  train.return
}
