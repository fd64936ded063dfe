// RUN: trainc-opt %s --train-insert-casts --split-input-file --verify-diagnostics

train.optimizer @o = sgd<lr = 0.1>
// expected-error @+1 {{'train.param' op expects f32 with precision(compute = 'bf16'), got 'tensor<f64>'}}
train.param @w : tensor<f64> init(zeros) optimizer(@o)
// expected-note @+1 {{precision is given here}}
train.step @step() precision(compute = bf16) {
  %w = train.read @w : tensor<f64>
  train.yield loss(%w) : tensor<f64>
}

// -----

train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<f32> init(zeros) optimizer(@o)
// expected-note @+2 {{precision is given here}}
// expected-error @+1 {{'train.step' op expects f32 with precision(compute = 'f16'), got 'tensor<4xf64>'}}
train.step @step(%x: tensor<4xf64>) precision(compute = f16) {
  %w = train.read @w : tensor<f32>
  train.yield loss(%w) : tensor<f32>
}

// -----

train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<f32> init(zeros) optimizer(@o)
// expected-error @+1 {{'train.step' op expects a compute type of bf16, f16 or f32, got 'i8'}}
train.step @step() precision(compute = i8) {
  %w = train.read @w : tensor<f32>
  train.yield loss(%w) : tensor<f32>
}

// -----

train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<f32> init(zeros) optimizer(@o)
// expected-error @+1 {{'train.step' op expects parameters, optimizers or names of nn ops in keep_f32, got @v}}
train.step @step() precision(compute = bf16, keep_f32 = [@v]) {
  %w = train.read @w : tensor<f32>
  train.yield loss(%w) : tensor<f32>
}

// -----

train.param @w : tensor<f32> init(zeros) frozen
// expected-warning @below {{computes in f16 without a loss scale, so that small gradients become 0; expected loss_scale(...)}}
train.step @step(%x: tensor<4xf32>) precision(compute = f16) {
  %w = train.read @w : tensor<f32>
  train.yield loss(%w) : tensor<f32>
}
