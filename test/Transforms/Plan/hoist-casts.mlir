// RUN: trainc-opt %s --train-hoist-casts --split-input-file | FileCheck %s
// RUN: trainc-opt %s --train-hoist-casts --split-input-file --remarks-filter=train-hoist-casts 2>&1 | FileCheck %s --check-prefix=REMARK

// Parameters that the step casts, directly or behind ops that move elements, are read
// in the type of the cast, in evals too; the update writes the copies.
// CHECK-LABEL: train.arena @arena.master.f32
// CHECK: train.arena @arena.compute.bf16 compute {
// CHECK-NEXT: train.slice @a : tensor<4x8xbf16>
// CHECK-NEXT: train.slice @frozen : tensor<16xbf16>
// CHECK-NEXT: }
// CHECK-LABEL: train.step @step
// CHECK-NOT: nn.cast
// CHECK: %[[A:.*]] = train.read @arena.compute.bf16::@a : tensor<4x8xbf16>
// CHECK: %[[B:.*]] = train.barrier %[[A]] : tensor<4x8xbf16>
// CHECK: nn.transpose %[[B]]{{.*}} : tensor<4x8xbf16>
// CHECK: %[[F:.*]] = train.read @arena.compute.bf16::@frozen : tensor<16xbf16>
// CHECK: nn.neg %[[F]]
// CHECK: %[[N:.*]] = train.read @arena.master.f32::@norm
// CHECK: nn.neg %[[N]] : tensor<8xf32>
// CHECK: train.update [@o] {{\[\[}}@a, @norm]] {{.*}} copies [@arena.compute.bf16]
// CHECK-LABEL: train.eval @eval
// CHECK: train.read @arena.compute.bf16::@a
// CHECK: %[[N:.*]] = train.read @arena.master.f32::@norm
// CHECK: nn.cast %[[N]]
// REMARK: remark: [Passed] Hoisted | Category:train-hoist-casts | Arena=arena.compute.bf16, Elements=32, Parameter=a
train.arena @arena.master.f32 master {
  train.slice @a : tensor<4x8xf32>
  train.slice @norm : tensor<8xf32>
  train.slice @frozen : tensor<16xf32>
}
train.optimizer @o = sgd<lr = 0.1>
train.param @a : tensor<4x8xf32> init(ones) optimizer(@o)
train.param @norm : tensor<8xf32> init(ones) optimizer(@o)
train.param @frozen : tensor<16xf32> init(ones) frozen
train.step @step(%n: tensor<f64>, %c: tensor<i1>) {
  %a = train.read @arena.master.f32::@a : tensor<4x8xf32>
  %b = train.barrier %a : tensor<4x8xf32>
  %t = nn.transpose %b [1, 0] : tensor<4x8xf32>
  %at = nn.cast %t to bf16 : tensor<8x4xf32>
  %u = nn.neg %at : tensor<8x4xbf16>
  %f = train.read @arena.master.f32::@frozen : tensor<16xf32>
  %ft = nn.cast %f to bf16 : tensor<16xf32>
  %g = nn.neg %ft : tensor<16xbf16>
  %m = train.read @arena.master.f32::@norm : tensor<8xf32>
  %k = nn.neg %m : tensor<8xf32>
  train.window_end
  train.update [@o] [[@a, @norm]] scale(%n : tensor<f64>) if(%c : tensor<i1>) t(%n : tensor<f64>)
  train.yield loss(%n) : tensor<f64>
}
train.eval @eval() -> ("y", "z") {
  %a = train.read @arena.master.f32::@a : tensor<4x8xf32>
  %t = nn.cast %a to bf16 : tensor<4x8xf32>
  %m = train.read @arena.master.f32::@norm : tensor<8xf32>
  %k = nn.cast %m to bf16 : tensor<8xf32>
  train.yield %t, %k : tensor<4x8xbf16>, tensor<8xbf16>
}

// -----

// It does nothing to casts of activations and of states, and to widening ones.
// CHECK-LABEL: train.step @others
// CHECK-COUNT-3: nn.cast
// CHECK-NOT: train.arena {{.*}} compute
train.arena @arena.master.bf16 master {
  train.slice @w : tensor<8xbf16>
}
train.arena @arena.state.ema.f32 state {
  train.slice @w : tensor<8xf32>
}
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<8xbf16> init(ones) optimizer(@o)
train.step @others(%x: tensor<8xf32>, %n: tensor<f64>) {
  %a = nn.cast %x to bf16 : tensor<8xf32>
  %e = train.read @arena.state.ema.f32::@w : tensor<8xf32>
  %b = nn.cast %e to bf16 : tensor<8xf32>
  %w = train.read @arena.master.bf16::@w : tensor<8xbf16>
  %c = nn.cast %w to f32 : tensor<8xbf16>
  train.window_end
  train.yield loss(%n) : tensor<f64>
}
