// RUN: trainc-opt %s --train-plan-step --split-input-file --verify-diagnostics

// expected-error @below {{expects a region; run train-expand-optimizers first}}
train.optimizer @o = sgd<lr = 0.1>
train.step @named_optimizer(%x: tensor<f32>) {
  train.yield loss(%x) : tensor<f32>
}

// -----

// expected-error @below {{expects a region; run train-expand-optimizers first}}
train.schedule @s = constant<value = 0.1>
train.step @named_schedule(%x: tensor<f32>) {
  train.yield loss(%x) : tensor<f32>
}

// -----

// expected-error @below {{expects the compute type of its parameters, 'f64', got 'f32'}}
train.optimizer @o(%p: f32, %g: f32) {
  train.yield %p : f32
}
// expected-note @below {{parameter is here}}
train.param @w : tensor<4xf64> init(ones) optimizer(@o)
train.step @type(%x: tensor<f32>) {
  train.yield loss(%x) : tensor<f32>
}

// -----

// expected-error @below {{expects stored gradients; run train-differentiate first}}
train.step @no_gradients(%x: tensor<f32>) {
  train.yield loss(%x) : tensor<f32>
}

// -----

// expected-error @below {{expects a name that makes no second scalar 'window'}}
train.schedule @window(%t: f64) {
  train.yield %t : f64
}
train.optimizer @o(%p: f32, %g: f32) {
  train.yield %p : f32
}
train.param @w : tensor<f32> init(ones) optimizer(@o)
train.step @scalars(%x: tensor<f32>) {
  train.store_gradient %x into @w : tensor<f32>
  train.yield loss(%x) : tensor<f32>
}
