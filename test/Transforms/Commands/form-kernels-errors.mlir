// RUN: trainc-opt %s --train-form-kernels --split-input-file --verify-diagnostics

train.arena @g role("gradients") bytes(16) {slices = [@w], types = [tensor<4xf32>], offsets = array<i64: 0>}
train.list @not_outlined of @e "first" (%x: tensor<4xf32>) {
  // expected-error @below {{cannot be made a command}}
  train.accumulate %x into @g::@w : tensor<4xf32>
  train.return
}
