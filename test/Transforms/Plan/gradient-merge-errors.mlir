// RUN: trainc-opt %s --train-gradient-merge --split-input-file --verify-diagnostics

// expected-error @below {{expects a plan with one train.window_end; run train-plan-step first}}
train.step @unplanned(%x: tensor<f32>) accumulate(2) {
  train.yield loss(%x) : tensor<f32>
}

// -----

// expected-error @below {{expects a train.step}}
module {
}
