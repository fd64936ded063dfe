// RUN: trainc-opt %s --train-expand-optimizers --train-plan-step --split-input-file | FileCheck %s

// Storage in arenas, one write per gradient, then the update.
// CHECK-LABEL: train.step @step
// CHECK: %[[SUM:.*]] = nn.add %x, %x
// CHECK: train.write %[[SUM]] to @[[GRADIENTS:.*]]::@w
// CHECK: train.window_end
// CHECK-NOT: scf.if
// Finite are gradients and what they are divided by.
// CHECK: %[[TOTAL:.*]] = nn.mul %{{.*}}, %{{.*}} : tensor<f64>, tensor<f64>
// CHECK-NEXT: %{{.*}} = nn.constant dense<1.000000e+00> : tensor<f64>
// CHECK-NEXT: %{{.*}} = nn.div %{{.*}}, %[[TOTAL]]
// CHECK: train.norm_squared {{\[\[}}@w]]
// CHECK: %[[ALL:.*]] = nn.add %{{.*}}, %[[TOTAL]]
// CHECK-NEXT: %[[ZERO:.*]] = nn.sub %[[ALL]], %[[ALL]]
// CHECK: nn.compare eq %[[ZERO]]
// CHECK: train.write %{{.*}} to @{{.*}}::@clip_factor
// CHECK: train.update [@o] {{\[\[}}@w]]
// CHECK: train.arena @{{.*}} master {
// CHECK-NEXT: train.slice @w : tensor<4xf32>
// CHECK-NEXT: }
// CHECK: train.arena @[[GRADIENTS]] gradient
// CHECK: train.arena @{{.*}} state
// Buffers of one type have an arena.
// CHECK: train.arena @arena.buffer.f32 buffer {
// CHECK-NEXT: train.slice @a : tensor<2xf32>
// CHECK-NEXT: train.slice @b : tensor<2xf32>
// CHECK-NEXT: }
// CHECK: train.arena @arena.buffer.i64 buffer {
// CHECK-NEXT: train.slice @c : tensor<2xi64>
train.optimizer @o = sgd<lr = 0.1, momentum = 0.9>
train.param @w : tensor<4xf32> init(ones) optimizer(@o)
train.buffer @a : tensor<2xf32> init(zeros)
train.buffer @b : tensor<2xf32> init(zeros)
train.buffer @c : tensor<2xi64> init(zeros)
train.step @step(%x: tensor<4xf32>) clip(global_norm<1.0>) {
  train.store_gradient %x, %x into @w : tensor<4xf32>, tensor<4xf32>
  %s = nn.reduce sum %x dims [0] : tensor<4xf32>
  train.yield loss(%s) : tensor<f32>
}

// -----

// It does nothing to a module that has arenas already.
// CHECK-LABEL: train.step @planned
// CHECK-NOT: train.window_end
train.arena @parameters master {
  train.slice @w : tensor<4xf32>
}
train.step @planned(%x: tensor<4xf32>) {
  %w = train.read @parameters::@w : tensor<4xf32>
  %s = nn.reduce sum %w dims [0] : tensor<4xf32>
  train.yield loss(%s) : tensor<f32>
}

// -----

// The gradient of an embedding takes the other contributions as its init.
// CHECK-LABEL: train.step @tied
// CHECK: %[[SUM:.*]] = nn.embedding_grad %{{.*}}, %{{.*}} init %x
// CHECK: train.write %[[SUM]] to @arena.grad
// A loss scale without a rule is the source's, unless it is set.
// CHECK: train.arena @arena.scalars
// CHECK: train.slice @loss_scale : tensor<f64> value(1.000000e+00) flags(1)
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4x3xf32> init(ones) optimizer(@o)
train.step @tied(%i: tensor<5xi32>, %x: tensor<4x3xf32>, %d: tensor<5x3xf32>) {
  %e = nn.embedding_grad %i, %d : tensor<5xi32>, tensor<5x3xf32> to tensor<4x3xf32>
  train.store_gradient %x, %e into @w : tensor<4x3xf32>, tensor<4x3xf32>
  %s = nn.reduce sum %d dims [0, 1] : tensor<5x3xf32>
  train.yield loss(%s) : tensor<f32>
}

// -----

// A contribution that counts twice is added.
// CHECK-LABEL: train.step @twice
// CHECK: %[[E:.*]] = nn.embedding_grad
// CHECK: %[[SUM:.*]] = nn.add %[[E]], %[[E]]
// CHECK: train.write %[[SUM]] to @arena.grad
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4x3xf32> init(ones) optimizer(@o)
train.step @twice(%i: tensor<5xi32>, %d: tensor<5x3xf32>) {
  %e = nn.embedding_grad %i, %d : tensor<5xi32>, tensor<5x3xf32> to tensor<4x3xf32>
  train.store_gradient %e, %e into @w : tensor<4x3xf32>, tensor<4x3xf32>
  %s = nn.reduce sum %d dims [0, 1] : tensor<5x3xf32>
  train.yield loss(%s) : tensor<f32>
}

// -----

// The scale of the next window depends on whether this one was skipped.
// CHECK-LABEL: train.step @scaled
// CHECK-SAME: loss_scale(dynamic<init = 1.024000e+03, growth = 2.000000e+00, backoff = 5.000000e-01, interval = 3.000000e+00, min = 1.000000e+00>)
// CHECK: %[[OLD:.*]] = nn.compare ge
// CHECK: nn.max %{{.*}}, %{{.*}}
// CHECK: train.write %{{.*}} to @arena.scalars::@loss_scale :
// CHECK: train.write %{{.*}} to @arena.scalars::@loss_scale_age :
// It is part of every checkpoint (3: and may be set), the limit of the clip only if it is set (1).
// CHECK: train.arena @arena.scalars
// CHECK: train.slice @loss_scale : tensor<f64> value(1.024000e+03) flags(3)
// CHECK-NEXT: train.slice @loss_scale_age : tensor<f64> value(0.000000e+00) flags(2)
// CHECK-NEXT: train.slice @seed {{.*}} flags(3)
// CHECK-NEXT: train.slice @read_scale {{.*}} flags(0)
// CHECK-NEXT: train.slice @clip_limit {{.*}} flags(1)
// CHECK: train.slice @loss_scale.growth {{.*}} flags(1)
// CHECK: train.slice @loss_scale.backoff {{.*}} flags(1)
// CHECK: train.slice @loss_scale.interval {{.*}} flags(1)
// CHECK: train.slice @loss_scale.min {{.*}} flags(1)
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4xf32> init(ones) optimizer(@o)
train.step @scaled(%x: tensor<4xf32>) loss_scale(dynamic<init = 1024.0, interval = 3.0>) {
  train.store_gradient %x into @w : tensor<4xf32>
  %s = nn.reduce sum %x dims [0] : tensor<4xf32>
  train.yield loss(%s) : tensor<f32>
}

// -----

// Steps that train different parameters have scalars, gradients and updates of their own.
// CHECK-LABEL: train.step @actor
// CHECK: train.write %x to @arena.grad.f32::@w
// CHECK: train.write %{{.*}} to @arena.scalars::@loss_sum
// CHECK: train.norm_squared {{\[\[}}@w]]
// CHECK: train.update [@a] {{\[\[}}@w]]
// CHECK-NOT: train.update
// CHECK: train.write %{{.*}} to @arena.scalars::@update
// CHECK-LABEL: train.step @critic
// CHECK: train.write %x to @arena.grad.f32$critic::@v
// CHECK: train.write %{{.*}} to @arena.scalars::@critic.loss_sum
// CHECK: train.norm_squared {{\[\[}}@v]]
// CHECK: train.read @arena.scalars::@critic.clip_limit
// CHECK: train.update [@b] {{\[\[}}@v]]
// CHECK-NOT: train.update
// CHECK: train.write %{{.*}} to @arena.scalars::@critic.update
// CHECK: train.arena @arena.master.f32 master {
// CHECK-NEXT: train.slice @w
// CHECK-NEXT: train.slice @v
// CHECK: train.arena @arena.grad.f32 gradient {
// CHECK-NEXT: train.slice @w
// CHECK-NEXT: }
// CHECK: train.arena @arena.grad.f32$critic gradient {
// CHECK-NEXT: train.slice @v
train.optimizer @a = sgd<lr = 0.1>
train.optimizer @b = sgd<lr = 0.2>
train.param @w : tensor<4xf32> init(ones) optimizer(@a)
train.param @v : tensor<4xf32> init(ones) optimizer(@b)
train.step @actor(%x: tensor<4xf32>) trains([@a]) {
  train.store_gradient %x into @w : tensor<4xf32>
  %s = nn.reduce sum %x dims [0] : tensor<4xf32>
  train.yield loss(%s) : tensor<f32>
}
train.step @critic(%x: tensor<4xf32>) trains([@b]) clip(global_norm<1.0>) {
  train.store_gradient %x into @v : tensor<4xf32>
  %s = nn.reduce sum %x dims [0] : tensor<4xf32>
  train.yield loss(%s) : tensor<f32>
}

// -----

// All steps say what the sums of gradients are divided by, also one whose loss depends on nothing that it trains.
// CHECK-LABEL: train.step @none
// CHECK-SAME: divisor = 4.000000e+00 : f64
// CHECK: %[[FOUR:.*]] = nn.constant dense<4.000000e+00>
// CHECK: nn.div %[[FOUR]],
// CHECK-LABEL: train.step @some
// CHECK-SAME: divisor = 4.000000e+00 : f64
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<f32> init(ones) optimizer(@o)
train.step @none(%x: tensor<f32>) {
  train.store_gradient %x into @w : tensor<f32>
  train.yield loss(%x) : tensor<f32>
}
train.step @some(%x: tensor<f32>) {
  %seed = train.seed 4.0 : tensor<f32>
  train.store_gradient %seed into @w : tensor<f32>
  train.yield loss(%x) : tensor<f32>
}
