// RUN: trainc-opt %s --train-outline-lists --split-input-file --verify-diagnostics

// expected-error @below {{expects a plan with one train.window_end; run train-plan-step first}}
train.step @unplanned(%x: tensor<f32>) {
  train.yield loss(%x) : tensor<f32>
}
