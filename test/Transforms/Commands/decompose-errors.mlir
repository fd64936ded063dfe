// RUN: trainc-opt %s --nn-decompose --split-input-file --verify-diagnostics

train.list @no_seed of @e "first" (%x: tensor<4x8xf32>) {
  // expected-error @below {{seed}}
  %y = nn.dropout %x rate 0.5 : tensor<4x8xf32>
  train.return %y : tensor<4x8xf32>
}
