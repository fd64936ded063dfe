// RUN: trainc-opt %s --train-lower-kernels --split-input-file --verify-diagnostics

train.kernel @no_seed(%x: tensor<4xf32>) inplace [-1] {
  // expected-error @below {{seed}}
  // expected-error @below {{failed to legalize operation 'nn.dropout'}}
  %y = nn.dropout %x rate 0.5 : tensor<4xf32>
  train.return %y : tensor<4xf32>
}

// -----

train.kernel @threads(%x: tensor<4x8xf32>) inplace [-1] {
  // expected-error @below {{expects an order of CPUs, got threads; run nn-decompose without 'gpu'}}
  %y = nn.reduce sum %x dims [1] keep : tensor<4x8xf32> order threads
  train.return %y : tensor<4x1xf32>
}
