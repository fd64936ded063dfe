// RUN: trainc-opt %s --train-lower-kernels-to-gpu --split-input-file --verify-diagnostics

train.kernel @no_seed(%x: tensor<4xf32>) inplace [-1] {
  // expected-error @below {{seed}}
  // expected-error @below {{failed to legalize operation 'nn.dropout'}}
  %y = nn.dropout %x rate 0.5 : tensor<4xf32>
  train.return %y : tensor<4xf32>
}

// -----

train.kernel @lanes(%x: tensor<4x8xf32>) inplace [-1] {
  // expected-error @below {{expects the order threads on a GPU, got lanes; run nn-decompose with 'gpu'}}
  %y = nn.reduce sum %x dims [1] keep : tensor<4x8xf32> order lanes
  train.return %y : tensor<4x1xf32>
}
