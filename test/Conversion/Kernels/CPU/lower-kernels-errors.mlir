// RUN: trainc-opt %s --train-lower-kernels --split-input-file --verify-diagnostics

train.kernel @no_seed(%x: tensor<4xf32>) inplace [-1] {
  // expected-error @below {{seed}}
  // expected-error @below {{failed to legalize operation 'nn.dropout'}}
  %y = nn.dropout %x rate 0.5 : tensor<4xf32>
  train.return %y : tensor<4xf32>
}
