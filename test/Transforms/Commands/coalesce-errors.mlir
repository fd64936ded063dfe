// RUN: trainc-opt %s --train-coalesce=align-size=2 --split-input-file --verify-diagnostics

train.param @w : tensor<4xf32> init(ones) optimizer(@o)
train.optimizer @o(%p: f32, %g: f32) {
  train.yield %p : f32
}
train.bucket @bucket [@w]
// expected-error @below {{expects an align-size that is a power of two not below the 4 bytes of an element of @w, got 2}}
train.arena @arena.master.f32 master {
  train.slice @w : tensor<4xf32>
  train.span @bucket
}
train.step @step(%x: tensor<f32>) {
  train.yield loss(%x) : tensor<f32>
}

// -----

train.param @w : tensor<4xf32> init(ones) optimizer(@o)
train.optimizer @o(%p: f32, %g: f32) {
  train.yield %p : f32
}
// expected-error @below {{expects buckets; run train-form-buckets before train-coalesce}}
train.arena @arena.master.f32 master {
  train.slice @w : tensor<4xf32>
}
train.step @step(%x: tensor<f32>) {
  train.yield loss(%x) : tensor<f32>
}
