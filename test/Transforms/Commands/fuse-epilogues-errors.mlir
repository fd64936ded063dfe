// RUN: trainc-opt %s --train-fuse-epilogues --split-input-file --verify-diagnostics

train.kernel @k(%a: tensor<4xf32>) inplace [-1] {
  %0 = nn.tanh %a : tensor<4xf32>
  train.return %0 : tensor<4xf32>
}
// expected-error @below {{expects primitives; run train-fuse-epilogues before train-form-kernels}}
train.list @late of @step "first" (%a: tensor<4xf32>) {
  %0 = train.launch @k(%a) : (tensor<4xf32>) -> tensor<4xf32>
  train.return %0 : tensor<4xf32>
}
