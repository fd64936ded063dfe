// RUN: trainc-opt %s --train-form-kernels --split-input-file --verify-diagnostics

train.arena @g gradient {
  train.slice @w : tensor<4xf32>
}
train.list @not_outlined of @e "first" (%x: tensor<4xf32>) {
  // expected-error @below {{cannot be made a command}}
  train.accumulate %x into @g::@w : tensor<4xf32>
  train.return
}
