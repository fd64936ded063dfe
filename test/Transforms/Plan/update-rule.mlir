// RUN: trainc-opt %s --train-expand-updates | FileCheck %s --check-prefixes=CHECK,EACH
// RUN: trainc-opt %s --train-fuse-optimizer --train-expand-updates | FileCheck %s --check-prefixes=CHECK,ALL

// The gradient is scaled, clamped and given to the region; then the average moves, and
// nothing changes unless the gradients are finite: one parameter at a time, and all.
// CHECK-LABEL: train.list @update
// EACH: nn.map
// EACH: arith.truncf %{{.*}} : f64 to f32
// ALL: nn.map
// ALL: arith.subf %{{.*}}, %{{.*}} : f64
// ALL: train.segment_map
// CHECK: %[[G:.*]] = arith.mulf %{{.*}}, %{{.*}} : f32
// CHECK: %[[LOW:.*]] = arith.minimumf %[[G]], %[[L:.*]] : f32
// CHECK: %[[D:.*]] = arith.maximumf %[[LOW]], %{{.*}} : f32
// CHECK: %[[Q:.*]] = arith.subf %[[P:.*]], %[[D]] : f32
// CHECK: %[[M:.*]] = arith.addf %[[OLD:.*]], %[[D]] : f32
// CHECK: %[[DIFF:.*]] = arith.subf %[[Q]], %[[E:.*]] : f32
// CHECK: %[[E1:.*]] = math.fma %{{.*}}, %[[DIFF]], %[[E]] : f32
// CHECK: %[[P1:.*]] = arith.select %[[OK:.*]], %[[Q]], %[[P]] : f32
// CHECK: %[[M1:.*]] = arith.select %[[OK]], %[[M]], %[[OLD]] : f32
// CHECK: %[[E2:.*]] = arith.select %[[OK]], %[[E1]], %[[E]] : f32
// CHECK: yield %[[P1]], %[[M1]], %[[E2]]
train.optimizer @o(%p: f32, %g: f32, %m: f32) state(m = 0.0) hyper() ema(0.9) {
  %q = arith.subf %p, %g : f32
  %n = arith.addf %m, %g : f32
  train.yield %q, %n : f32, f32
}
train.param @w : tensor<4xf32> init(ones) optimizer(@o)
train.arena @arena.master.f32 master {
  train.slice @w : tensor<4xf32>
}
train.arena @arena.grad.f32 gradient {
  train.slice @w : tensor<4xf32>
}
train.arena @arena.state.m.f32 state {
  train.slice @w : tensor<4xf32>
}
train.arena @arena.state.ema.f32 state {
  train.slice @w : tensor<4xf32>
}
train.arena @arena.scalars scalars {
  train.slice @o.ema : tensor<f64>
}
train.list @update of @step "apply" (%s: tensor<f64>, %f: tensor<i1>, %l: tensor<f64>) {
  train.update [@o] [[@w]] scale(%s : tensor<f64>) limit(%l : tensor<f64>) if(%f : tensor<i1>) t(%s : tensor<f64>)
  train.return
}
