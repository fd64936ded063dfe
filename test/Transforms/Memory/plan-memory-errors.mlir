// RUN: trainc-opt %s --train-plan-memory --split-input-file --verify-diagnostics

train.list @not_formed of @e "first" (%x: tensor<4xf32>) {
  // expected-error @below {{is no command; run train-form-kernels before train-plan-memory}}
  %y = nn.neg %x : tensor<4xf32>
  train.return %y : tensor<4xf32>
}
