// RUN: trainc-opt %s --train-prefetch --split-input-file --verify-diagnostics

train.step @step(%s: tensor<f32>) {
  train.yield loss(%s) : tensor<f32>
}
// expected-error @below {{expects memory that is not planned; run train-prefetch before train-plan-memory}}
train.list @step.first of @step "first" (%s: tensor<f32>) workspace(0) {
  train.return
}
