// RUN: trainc-opt %s --train-form-buckets --split-input-file --verify-diagnostics

train.bucket @bucket [@a]
// expected-error @below {{expects one element type and no buckets yet; train-form-buckets comes after train-plan-step}}
train.arena @arena.grad.f32 gradient {
  train.slice @a : tensor<3xf32>
  train.span @bucket
}
train.step @step(%x: tensor<f32>) {
  train.yield loss(%x) : tensor<f32>
}

// -----

// expected-error @below {{expects one element type and no buckets yet; train-form-buckets comes after train-plan-step}}
train.arena @arena.buffer buffer {
  train.slice @a : tensor<3xf32>
  train.slice @b : tensor<3xi64>
}
train.step @step(%x: tensor<f32>) {
  train.yield loss(%x) : tensor<f32>
}
