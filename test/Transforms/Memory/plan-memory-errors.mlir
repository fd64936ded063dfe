// RUN: trainc-opt %s --train-plan-memory --split-input-file --verify-diagnostics

train.list @not_formed of @e "first" (%x: tensor<4xf32>) {
  // expected-error @below {{is no command; run train-form-kernels before train-plan-memory}}
  %y = nn.neg %x : tensor<4xf32>
  train.return %y : tensor<4xf32>
}

// -----

// What was read from a slice, or from its arena, is used before that is written again.
train.kernel @k(%x: tensor<4xf32>) inplace [-1] {
  %0 = nn.neg %x : tensor<4xf32>
  train.return %0 : tensor<4xf32>
}
train.arena @g buffer {
  train.slice @a : tensor<4xf32>
}
train.list @first of @step "first" (%x: tensor<4xf32>) {
  %old = train.read @g::@a : tensor<4xf32>
  // expected-note @below {{written here}}
  train.write %x to @g::@a : tensor<4xf32>
  // expected-error @below {{'train.launch' op uses a value read from @g::@a before it was written}}
  %0 = train.launch @k(%old) : (tensor<4xf32>) -> tensor<4xf32>
  train.return %0 : tensor<4xf32>
}

// -----

train.arena @g buffer {
  train.slice @a : tensor<4xf32>
  train.slice @b : tensor<4xf32>
}
train.list @first of @step "first" (%x: tensor<4xf32>) {
  %old = train.read @g : tensor<8xf32>
  // expected-note @below {{written here}}
  train.write %x to @g::@b : tensor<4xf32>
  // expected-error @below {{'train.return' op uses a value read from @g before it was written}}
  train.return %old : tensor<8xf32>
}

// -----

train.arena @g buffer {
  train.slice @a : tensor<4xf32>
  train.slice @b : tensor<4xf32>
}
train.list @first of @step "first" (%x: tensor<8xf32>) {
  %old = train.read @g::@b : tensor<4xf32>
  // expected-note @below {{written here}}
  train.write %x to @g : tensor<8xf32>
  // expected-error @below {{'train.return' op uses a value read from @g::@b before it was written}}
  train.return %old : tensor<4xf32>
}

// -----

train.list @first of @step "first" (%x: tensor<4x4xf32>) {
  // expected-error @below {{'train.gemm' op expects what it changes in place to be read from a slice, or made by a command}}
  %0 = train.gemm %x, %x init %x m 4 n 4 k 4 batch 1 : tensor<4x4xf32>, tensor<4x4xf32> init tensor<4x4xf32> -> tensor<4x4xf32>
  train.return %0 : tensor<4x4xf32>
}
