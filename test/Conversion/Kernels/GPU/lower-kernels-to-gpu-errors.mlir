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

// -----

train.kernel @delta(%p: tensor<2x16x96xf32>, %o: tensor<2x16x32xf32>, %l: tensor<2x4x16xf32>) inplace [-1] {
  // expected-error @below {{expects delta on a GPU; run nn-decompose with 'gpu'}}
  %b = nn.packed_attention_grad %p, %o, %l, %o heads 4 : tensor<2x16x96xf32>, tensor<2x16x32xf32>, tensor<2x4x16xf32>
  train.return %b : tensor<2x16x96xf32>
}
