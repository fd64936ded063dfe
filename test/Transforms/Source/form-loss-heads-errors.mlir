// RUN: trainc-opt %s --train-form-loss-heads --verify-diagnostics

train.step @step(%s: tensor<f32>) {
  train.yield loss(%s) : tensor<f32>
}
// expected-error @below {{expects steps; run train-form-loss-heads before train-outline-lists}}
train.list @step.first of @step "first" (%s: tensor<f32>) {
  train.return
}
