// What a plan says of gradients and updates, and the memory they are in.
//
// RUN: trainc-opt %s | trainc-opt | FileCheck %s
// RUN: trainc-opt %s --verify-roundtrip -o /dev/null

train.mesh @mesh(data = 2)
train.param @w : tensor<4xf32> init(zeros) frozen
train.optimizer @o = sgd<lr = 0.1>
train.param @v : tensor<8xf32> init(zeros) optimizer(@o)
train.buffer @mean : tensor<8xf32> init(zeros)

// CHECK: train.arena @arena.grad role("gradients") bytes(64) {buckets = array<i64: 8, 16>, offsets = array<i64: 0, 32>, slices = [@w, @v], types = [tensor<4xf32>, tensor<8xf32>]}
train.arena @arena.grad role("gradients") bytes(64) {slices = [@w, @v], types = [tensor<4xf32>, tensor<8xf32>], offsets = array<i64: 0, 32>, buckets = array<i64: 8, 16>}
// CHECK: train.arena @arena.master role("parameters") bytes(32) {buckets = array<i64: 16>, offsets = array<i64: 0, 32>, pieces = array<i1: true>, shard = ["data"], slices = [@w, @v], types = [tensor<4xf32>, tensor<8xf32>]}
train.arena @arena.master role("parameters") bytes(32) {slices = [@w, @v], types = [tensor<4xf32>, tensor<8xf32>], offsets = array<i64: 0, 32>, buckets = array<i64: 16>, pieces = array<i1: true>, shard = ["data"]}

// CHECK: train.step @step(%[[X:.*]]: tensor<8xf32>
train.step @step(%x: tensor<8xf32>, %loss: tensor<f32>) {
  // CHECK: train.write %[[X]] to @mean : tensor<8xf32>
  train.write %x to @mean : tensor<8xf32>
  // CHECK: train.store_gradient %[[X]], %[[X]] into @v : tensor<8xf32>, tensor<8xf32>
  train.store_gradient %x, %x into @v : tensor<8xf32>, tensor<8xf32>
  // CHECK: train.constrain %[[X]] split([data]) : tensor<8xf32>
  %c = train.constrain %x split([data]) : tensor<8xf32>
  train.yield loss(%loss) : tensor<f32>
}

// CHECK: train.list @first of @step "first" (%[[X:.*]]: tensor<8xf32>
train.list @first of @step "first" (%x: tensor<8xf32>, %half: tensor<4xf32>) {
  // CHECK: train.seed 4.000000e+00 : tensor<f32>
  %seed = train.seed 4.0 : tensor<f32>
  // CHECK: train.accumulate %[[X]] into @arena.grad::@v : tensor<8xf32>
  train.accumulate %x into @arena.grad::@v : tensor<8xf32>
  // CHECK: train.micro_end
  train.micro_end
  // CHECK: %[[G:.*]] = train.all_gather %{{.*}} over ["data"] apart : tensor<4xf32> -> tensor<8xf32>
  %g = train.all_gather %half over ["data"] apart : tensor<4xf32> -> tensor<8xf32>
  // CHECK: train.await %[[G]] : tensor<8xf32>
  %w = train.await %g : tensor<8xf32>
  // CHECK: train.window_end
  %due = train.window_end
  // CHECK: train.return
  train.return
}

// CHECK: train.list @apply of @step "apply" (%[[S:.*]]: tensor<f64>, %[[F:.*]]: tensor<i1>, %[[T:.*]]: tensor<f64>, %[[L:.*]]: tensor<f32>)
train.list @apply of @step "apply" (%s: tensor<f64>, %f: tensor<i1>, %t: tensor<f64>, %l: tensor<f32>) {
  // CHECK: train.norm_squared [@w, @v] : tensor<f64>
  %n = train.norm_squared [@w, @v] : tensor<f64>
  // CHECK: train.norm_squared [@w, @v] : tensor<2xf64>
  %m = train.norm_squared [@w, @v] : tensor<2xf64>
  // CHECK: train.update @o [@v] scale(%[[S]]) if(%[[F]]) t(%[[T]]) : tensor<f64>, tensor<i1>, tensor<f64>
  train.update @o [@v] scale(%s) if(%f) t(%t) : tensor<f64>, tensor<i1>, tensor<f64>
  // CHECK: train.update @o [@v] scale(%[[S]]) if(%[[F]]) t(%[[T]]) limit(%[[L]]) copies [@arena.grad] stochastic : tensor<f64>, tensor<i1>, tensor<f64>, tensor<f32>
  train.update @o [@v] scale(%s) if(%f) t(%t) limit(%l) copies [@arena.grad] stochastic : tensor<f64>, tensor<i1>, tensor<f64>, tensor<f32>
  train.return
}
