// RUN: trainc-opt %s --train-shard --split-input-file --verify-diagnostics

train.mesh @mesh(data = 2)
// expected-error @below {{expects buckets; run train-form-buckets before train-shard}}
train.arena @arena.grad.f32 role("gradients") bytes(12) {slices = [@a], types = [tensor<3xf32>], offsets = array<i64: 0>}
train.step @step(%x: tensor<f32>) attributes {over = ["data"]} {
  %end = train.window_end
  train.yield loss(%x) : tensor<f32>
}

// -----

train.mesh @mesh(data = 2)
train.step @step(%x: tensor<f64>) attributes {over = ["data"]} {
  %end = train.window_end
  // expected-error @below {{expects segments in their place; run train-fuse-optimizer before train-shard}}
  %n = train.norm_squared [@a] : tensor<f64>
  train.yield loss(%n) : tensor<f64>
}

// -----

train.mesh @mesh(data = 2)
train.step @step(%x: tensor<8xf32>, %y: tensor<f32>) attributes {over = ["data"]} {
  %end = train.window_end
  // expected-error @below {{exists already; train-shard runs once}}
  %n = train.reduce_scatter %x over ["data"] range [0, 8] : tensor<8xf32> -> tensor<8xf32>
  train.yield loss(%y) : tensor<f32>
}

// -----

train.mesh @mesh(data = 2)
train.arena @arena.m role("state") bytes(32) {slices = [@a], types = [tensor<3xf32>], offsets = array<i64: 0>, buckets = array<i64: 8>}
train.arena @arena.v role("state") bytes(64) {slices = [@b, @a], types = [tensor<3xf32>, tensor<3xf32>], offsets = array<i64: 0, 32>, buckets = array<i64: 16>}
train.step @step(%x: tensor<f32>) attributes {over = ["data"]} {
  %end = train.window_end
  %m = train.read @arena.m : tensor<8xf32>
  %v = train.read @arena.v : tensor<16xf32>
  // expected-error @below {{expects equal buckets in @arena.v and @arena.m}}
  %r = train.segment_map %m, %v : tensor<8xf32>, tensor<16xf32> {lengths = array<i64: 3>, groups = array<i64: 0>, offsets = [array<i64: 0>, array<i64: 8>], targets = array<i64: 0>} -> tensor<8xf32> {
  ^bb0(%p: f32, %q: f32):
    train.yield %p : f32
  }
  train.write %r to @arena.m : tensor<8xf32>
  train.yield loss(%x) : tensor<f32>
}

// -----

train.mesh @mesh(data = 2)
train.step @step(%m: tensor<8xf32>, %x: tensor<f32>) attributes {over = ["data"]} {
  %end = train.window_end
  // expected-error @below {{expects arrays that are read from arenas}}
  %r = train.segment_map %m : tensor<8xf32> {lengths = array<i64: 3>, groups = array<i64: 0>, offsets = [array<i64: 0>], targets = array<i64: 0>} -> tensor<8xf32> {
  ^bb0(%p: f32):
    train.yield %p : f32
  }
  train.yield loss(%x) : tensor<f32>
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
