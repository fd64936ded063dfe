// RUN: trainc-opt %s --train-inline-calls --split-input-file --verify-diagnostics

func.func private @again(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{expects no recursion, got it in 'again'}}
  %y = func.call @again(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
train.eval @recursive(%x: tensor<4xf32>) -> ("y") {
  %y = func.call @again(%x) : (tensor<4xf32>) -> tensor<4xf32>
  train.yield %y : tensor<4xf32>
}

// -----

func.func private @outside(tensor<4xf32>) -> tensor<4xf32>
train.eval @external(%x: tensor<4xf32>) -> ("y") {
  // expected-error @below {{expects a function with a body, got 'outside'}}
  %y = func.call @outside(%x) : (tensor<4xf32>) -> tensor<4xf32>
  train.yield %y : tensor<4xf32>
}
