// RUN: trainc-opt %s --train-fuse-optimizer --split-input-file --verify-diagnostics

train.optimizer @o(%p: f32, %g: f32) {
  train.yield %p : f32
}
train.param @w : tensor<4xf32> init(ones) optimizer(@o)
train.list @l of @e "apply" (%s: tensor<f64>, %f: tensor<i1>) {
  // expected-error @below {{expects an arena @arena.master.f32 of one element type; run train-plan-step first}}
  train.update @o [@w] scale(%s) if(%f) t(%s) : tensor<f64>, tensor<i1>, tensor<f64>
  train.return
}

// -----

train.list @l of @e "apply" () {
  // expected-error @below {{expects parameters that are not frozen, got @w}}
  %n = train.norm_squared [@w] : tensor<f64>
  train.return
}

// -----

train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4xf32> init(ones) optimizer(@o)
train.list @l of @e "apply" (%s: tensor<f64>, %f: tensor<i1>) {
  // expected-error @below {{expects an optimizer with a region, got @o}}
  train.update @o [@w] scale(%s) if(%f) t(%s) : tensor<f64>, tensor<i1>, tensor<f64>
  train.return
}
