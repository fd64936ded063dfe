// RUN: trainc-opt %s --train-form-kernels --split-input-file --verify-diagnostics

train.arena @g gradient {
  train.slice @w : tensor<4xf32>
}
train.list @not_outlined of @e "first" (%x: tensor<4xf32>) {
  // expected-error @below {{cannot be made a command}}
  train.accumulate %x into @g::@w : tensor<4xf32>
  train.return
}

// -----

train.bucket @bucket [@w] elements(4) offsets([0])
train.arena @g gradient {
  train.slice @w : tensor<4xf32>
  train.span @bucket
}
train.list @two_names of @e "first" (%x: tensor<4xf32>) {
  train.write %x to @g::@w : tensor<4xf32>
  // expected-error @below {{reads @g::@bucket after @g::@w was written; expects one name for both}}
  %b = train.read @g::@bucket : tensor<4xf32>
  train.return %b : tensor<4xf32>
}

// -----

train.bucket @bucket [@w] elements(4) offsets([0])
train.arena @g gradient {
  train.slice @w : tensor<4xf32>
  train.span @bucket
}
train.list @whole of @e "first" (%x: tensor<4xf32>) {
  train.write %x to @g::@bucket : tensor<4xf32>
  // expected-error @below {{reads @g after @g::@bucket was written; expects one name for both}}
  %b = train.read @g : tensor<4xf32>
  train.return %b : tensor<4xf32>
}
