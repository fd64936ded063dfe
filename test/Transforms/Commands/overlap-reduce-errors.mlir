// RUN: trainc-opt %s --train-overlap-reduce --split-input-file --verify-diagnostics

train.step @step(%s: tensor<f32>) {
  train.yield loss(%s) : tensor<f32>
}
// expected-error @below {{expects planned memory; run train-plan-memory before train-overlap-reduce}}
train.list @step.first of @step "first" (%s: tensor<f32>) {
  train.return
}
