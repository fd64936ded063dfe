// RUN: trainc-opt %s --train-verify-form=form=0 --split-input-file --verify-diagnostics

// expected-error @below {{'train.arena' op is not allowed here in a source}}
train.arena @a role("master") bytes(64) {slices = [@w], types = [tensor<4xf32>], offsets = array<i64: 0>}

// -----

train.step @step(%x: tensor<f32>) {
  // expected-error @below {{'train.seed' op is not allowed here in a source}}
  %s = train.seed 1.0 : tensor<f32>
  train.yield loss(%x) : tensor<f32>
}

// -----

train.step @step(%x: tensor<f32>) {
  // expected-error @below {{'arith.addf' op is not allowed here in a source}}
  %y = arith.addf %x, %x : tensor<f32>
  train.yield loss(%y) : tensor<f32>
}

// -----

train.buffer @b : tensor<f32> init(zeros)
// expected-error @below {{'builtin.module' op is not allowed here in a source}}
module @inner {
}
