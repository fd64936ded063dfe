// RUN: trainc-opt %s --train-defer-gather --split-input-file --verify-diagnostics

// expected-error @below {{expects planned memory; run train-plan-memory before train-defer-gather}}
train.list @step.apply of @step "apply" (%s: tensor<f32>) {
  train.return
}
