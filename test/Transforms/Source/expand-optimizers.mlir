// RUN: trainc-opt %s --train-expand-optimizers --split-input-file | FileCheck %s

// Hyperparameters in the order of the rule, defaults filled in, the update's number last.
// What depends on scalars only is f64, rounded once.
// CHECK-LABEL: train.optimizer @adamw(
// CHECK-SAME: %p: f32, %g: f32, %m: f32, %v: f32, %lr: f64, %weight_decay: f64, %b1: f64, %b2: f64, %eps: f64, %eps_root: f64, %t: f64)
// CHECK-SAME: state(m = 0.000000e+00, v = 0.000000e+00)
// CHECK-SAME: hyper(lr = @lr, weight_decay = 1.000000e-01, b1 = 9.000000e-01, b2 = {{.*}}, eps = 1.000000e-08, eps_root = 0.000000e+00, t = "update") ema(5.000000e-01) clip(false)
// CHECK: %[[D1:.*]] = arith.truncf %b1 : f64 to f32
// CHECK: %[[M1:.*]] = math.fma %[[D1]], %m, %{{.*}} : f32
// CHECK: math.powf %b1, %t : f64
// CHECK: math.sqrt {{.*}} : f32
// CHECK: %[[STEP:.*]] = math.fma %{{.*}}, %p, %{{.*}} : f32
// CHECK: %[[P1:.*]] = arith.subf %p, %[[STEP]] : f32
// CHECK: train.yield %[[P1]], %[[M1]], %{{.*}} : f32, f32, f32
train.optimizer @adamw = adamw<lr = @lr, weight_decay = 0.1> ema(0.5) clip(false)
train.param @w : tensor<4xf32> init(zeros) optimizer(@adamw)
// CHECK-LABEL: train.schedule @lr(
// CHECK-SAME: %t: f64, %peak: f64, %warmup: f64, %total: f64, %init: f64, %end: f64, %exponent: f64)
// CHECK-SAME: hyper(peak = 1.000000e-03, warmup = 1.000000e+02, total = 2.000000e+03, init = 0.000000e+00, end = 0.000000e+00, exponent = 1.000000e+00)
// CHECK: math.cos
// CHECK: %[[UP:.*]] = arith.cmpf olt, %t, %warmup : f64
// CHECK: arith.select %[[UP]]
train.schedule @lr = warmup_cosine<peak = 1.0e-3, warmup = 100, total = 2000>

// -----

// A rule that needs norms has two regions; the second makes the trace.
// CHECK-LABEL: train.optimizer @lars(
// CHECK-SAME: %p: f64, %g: f64, %trace: f64, %lr: f64, %weight_decay: f64, %momentum: f64, %trust_coefficient: f64, %eps: f64) state(trace = 0.000000e+00)
// CHECK: %[[U:.*]] = math.fma %weight_decay, %p, %g : f64
// CHECK: train.yield %[[U]], %trace : f64, f64
// CHECK: scaled(%p: f64, %u: f64, %p_norm: f64, %u_norm: f64, %trace: f64, %lr: f64,
// CHECK: arith.cmpf oeq, %p_norm
// CHECK: arith.cmpf oeq, %u_norm
// CHECK: %[[TRACE1:.*]] = math.fma %momentum, %trace, %{{.*}} : f64
// CHECK: %[[P1:.*]] = arith.subf %p, %[[TRACE1]] : f64
// CHECK: train.yield %[[P1]], %[[TRACE1]] : f64, f64
train.optimizer @lars = lars<lr = 0.1>
train.param @w : tensor<4xf64> init(zeros) optimizer(@lars)

// -----

// Muon's direction is made orthogonal between its regions.
// CHECK-LABEL: train.optimizer @muon(
// CHECK-SAME: %p: f32, %g: f32, %m: f32, %lr: f64, %weight_decay: f64, %momentum: f64) state(m = 0.000000e+00)
// CHECK-SAME: orthogonal<a = 3.4{{.*}}, b = -4.7{{.*}}, bf16 = false, c = 2.0{{.*}}, eps = {{.*}}, match_rms = true, steps = 5.000000e+00, unclamped = false>
// CHECK: scaled(%p: f32, %u: f32, %p_norm: f32, %u_norm: f32, %m: f32, %lr: f64,
train.optimizer @muon = muon<lr = 0.1, bf16 = false, match_rms = true>
train.param @matrix : tensor<4x3xf32> init(zeros) optimizer(@muon)

// -----

// Optional numbers and flags choose the region; a fixed number is the state's initial value.
// CHECK-LABEL: train.optimizer @plain(
// CHECK-SAME: %p: f32, %g: f32, %lr: f64) hyper(lr = 1.000000e-01) {
// CHECK-NEXT: %[[NEG:.*]] = arith.negf %lr : f64
// CHECK-NEXT: %[[STEP:.*]] = arith.truncf %[[NEG]] : f64 to f32
// CHECK-NEXT: %[[P1:.*]] = math.fma %[[STEP]], %g, %p : f32
// CHECK-NEXT: train.yield %[[P1]] : f32
train.optimizer @plain = sgd<lr = 0.1>
// CHECK-LABEL: train.optimizer @coupled(
// CHECK-SAME: state(trace = 0.000000e+00) hyper(lr = 1.000000e-01, l2 = 1.000000e-02, momentum = 9.000000e-01)
train.optimizer @coupled = sgd<lr = 0.1, momentum = 0.9, nesterov = true, l2 = 0.01>
// CHECK-LABEL: train.optimizer @rms(
// CHECK-SAME: state(v = 1.000000e+00) hyper(lr = 1.000000e-01, decay = 9.000000e-01, eps = 1.000000e-08)
train.optimizer @rms = rmsprop<lr = 0.1, initial_scale = 1, eps_in_sqrt = false>

// -----

// One region per type of computation, which is f32 for bf16.
// CHECK-LABEL: train.optimizer @g(%p: f32, %g: f32, %lr: f64)
// CHECK-LABEL: train.optimizer @g_f64(%p: f64, %g: f64, %lr: f64)
// CHECK-NOT: train.optimizer
train.optimizer @g = sgd<lr = 0.1>
// CHECK: train.param @a {{.*}} optimizer(@g)
train.param @a : tensor<4xf32> init(zeros) optimizer(@g)
// CHECK: train.param @b {{.*}} optimizer(@g_f64)
train.param @b : tensor<4xf64> init(zeros) optimizer(@g)
// CHECK: train.param @c {{.*}} optimizer(@g)
train.param @c : tensor<2xbf16> init(zeros) optimizer(@g)

// -----

// It does nothing to region forms.
// CHECK-LABEL: train.optimizer @own(%p: f32, %g: f32) {
// CHECK-NEXT: %[[P1:.*]] = arith.subf %p, %g : f32
// CHECK-NEXT: train.yield %[[P1]] : f32
// CHECK-NEXT: }
train.optimizer @own(%p: f32, %g: f32) {
  %p1 = arith.subf %p, %g : f32
  train.yield %p1 : f32
}
// CHECK-LABEL: train.schedule @half(%t: f64) {
// CHECK-NEXT: train.yield %t : f64
train.schedule @half(%t: f64) {
  train.yield %t : f64
}
train.param @w : tensor<4xf32> init(zeros) optimizer(@own)

// -----

// A step that trains a group trains its parameters of both types.
// CHECK-LABEL: train.optimizer @mixed(
// CHECK: train.optimizer @mixed_f64(
// CHECK: train.step @step{{.*}} trains([@mixed, @mixed_f64])
train.optimizer @mixed = sgd<lr = 0.1>
train.optimizer @other = sgd<lr = 0.1>
train.param @a : tensor<2xf32> init(ones) optimizer(@mixed)
train.param @b : tensor<2xf64> init(ones) optimizer(@mixed)
train.param @c : tensor<2xf64> init(ones) optimizer(@other)
train.step @step(%x: tensor<2xf32>) trains([@mixed]) {
  %a = train.read @a : tensor<2xf32>
  %b = train.read @b : tensor<2xf64>
  %n = nn.cast %b to f32 : tensor<2xf64>
  %m = nn.mul %a, %n : tensor<2xf32>, tensor<2xf32>
  %l = nn.reduce sum %m dims [0] : tensor<2xf32>
  train.yield loss(%l) : tensor<f32>
}
train.step @two(%x: tensor<2xf64>) trains([@other]) {
  %c = train.read @c : tensor<2xf64>
  %m = nn.mul %c, %x : tensor<2xf64>, tensor<2xf64>
  %l = nn.reduce sum %m dims [0] : tensor<2xf64>
  train.yield loss(%l) : tensor<f64>
}
