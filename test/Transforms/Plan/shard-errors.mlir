// RUN: trainc-opt %s --train-shard=mode=optimizer --split-input-file --verify-diagnostics

train.mesh @mesh(data = 2)
// expected-error @below {{expects buckets; run train-form-buckets before train-shard}}
train.arena @arena.grad.f32 gradient {
  train.slice @a : tensor<3xf32>
}
train.step @step(%x: tensor<f32>) attributes {over = ["data"]} {
  %end = train.window_end
  train.yield loss(%x) : tensor<f32>
}

// -----

train.mesh @mesh(data = 2)
train.step @step(%x: tensor<8xf32>, %y: tensor<f32>) attributes {over = ["data"]} {
  %end = train.window_end
  // expected-error @below {{exists already; train-shard runs once}}
  %n = train.reduce_scatter %x over ["data"] in_place : tensor<8xf32> -> tensor<8xf32>
  train.yield loss(%y) : tensor<f32>
}

// -----

train.mesh @mesh(data = 2)
train.step @step(%x: tensor<f32>) accumulate(2) attributes {over = ["data"]} {
  // expected-error @below {{exists already; train-shard runs once}}
  train.micro_end
  %end = train.window_end
  scf.if %end {
  }
  train.yield loss(%x) : tensor<f32>
}
