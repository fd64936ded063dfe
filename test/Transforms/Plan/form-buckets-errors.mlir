// RUN: trainc-opt %s --train-form-buckets --split-input-file --verify-diagnostics

train.mesh @mesh(data = 2)
// expected-error @below {{expects one element type and no buckets yet; train-form-buckets comes after train-plan-step}}
train.arena @arena.grad.f32 role("gradients") bytes(32) {slices = [@a], types = [tensor<3xf32>], offsets = array<i64: 0>, buckets = array<i64: 8>}
train.step @step(%x: tensor<f32>) attributes {over = ["data"]} {
  train.yield loss(%x) : tensor<f32>
}
