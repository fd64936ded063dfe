// RUN: trainc-opt %s --train-expand-optimizers --train-plan-step --split-input-file | FileCheck %s
// RUN: trainc-opt %s --train-expand-optimizers --train-plan-step="alignment=256" --split-input-file | FileCheck %s --check-prefix=ALIGN

// Storage in arenas, one write per gradient, then the update.
// CHECK-LABEL: train.step @step
// CHECK: %[[SUM:.*]] = nn.add %x, %x
// CHECK: train.write %[[SUM]] to @[[GRADIENTS:.*]]::@w
// CHECK: train.window_end
// CHECK-NOT: scf.if
// CHECK: train.norm_squared [@w]
// CHECK: train.write %{{.*}} to @{{.*}}::@clip_factor
// CHECK: train.update @o [@w]
// CHECK: train.arena @{{.*}} role("parameters") bytes(16) {offsets = array<i64: 0>, slices = [@w], types = [tensor<4xf32>]}
// CHECK: train.arena @[[GRADIENTS]] role("gradients") bytes(16)
// CHECK: train.arena @{{.*}} role("state") bytes(16)
// CHECK: train.arena @{{.*}} role("buffers") bytes(72) {offsets = array<i64: 0, 64>
// ALIGN: train.arena @{{.*}} role("buffers") bytes(264) {offsets = array<i64: 0, 256>
train.optimizer @o = sgd<lr = 0.1, momentum = 0.9>
train.param @w : tensor<4xf32> init(ones) optimizer(@o)
train.buffer @a : tensor<2xf32> init(zeros)
train.buffer @b : tensor<2xf32> init(zeros)
train.step @step(%x: tensor<4xf32>) clip(global_norm<1.0>) {
  train.store_gradient %x, %x into @w : tensor<4xf32>, tensor<4xf32>
  %s = nn.reduce sum %x dims [0] : tensor<4xf32>
  train.yield loss(%s) : tensor<f32>
}

// -----

// It does nothing to a module that has arenas already.
// CHECK-LABEL: train.step @planned
// CHECK-NOT: train.window_end
train.arena @parameters role("parameters") bytes(16) {slices = [@w], types = [tensor<4xf32>], offsets = array<i64: 0>}
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
// CHECK-SAME: flags = array<i32: 2, 2, 2, 2, 0, 0, 0, 0, 0, 2, 1, 2, 3, 0, 1, 0, 0, 1>
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
// CHECK-SAME: flags = array<i32: 2, 2, 2, 2, 0, 0, 0, 0, 0, 2, 3, 2, 3, 0, 1, 0, 0, 1, 1, 1, 1, 1>
// CHECK-SAME: @clip_factor, @finite, @skipped, @loss_scale, @loss_scale_age, @seed, @read_scale, @clip_limit
// CHECK-SAME: @loss_scale.growth, @loss_scale.backoff, @loss_scale.interval, @loss_scale.min
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
// CHECK: train.norm_squared [@w]
// CHECK: train.update @a [@w]
// CHECK-NOT: train.update
// CHECK: train.write %{{.*}} to @arena.scalars::@update
// CHECK-LABEL: train.step @critic
// CHECK: train.write %x to @arena.grad.f32.critic::@v
// CHECK: train.write %{{.*}} to @arena.scalars::@critic.loss_sum
// CHECK: train.norm_squared [@v]
// CHECK: train.read @arena.scalars::@critic.clip_limit
// CHECK: train.update @b [@v]
// CHECK-NOT: train.update
// CHECK: train.write %{{.*}} to @arena.scalars::@critic.update
// CHECK: train.arena @arena.master.f32 {{.*}}slices = [@w, @v]
// CHECK: train.arena @arena.grad.f32 {{.*}}slices = [@w]
// CHECK: train.arena @arena.grad.f32.critic {{.*}}slices = [@v]
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
