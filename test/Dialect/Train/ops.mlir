// RUN: trainc-opt %s | trainc-opt | FileCheck %s
// RUN: trainc-opt %s --verify-roundtrip -o /dev/null

// CHECK: train.schedule @lr = warmup_cosine<peak = 1.000000e-03, total = 2.000000e+03, warmup = 1.000000e+02>
train.schedule @lr = warmup_cosine<peak = 1.0e-3, total = 2000, warmup = 100>

// CHECK: train.schedule @mine(%t: f64, %base: f64) hyper(base = 1.000000e-01) {
train.schedule @mine(%t: f64, %base: f64) hyper(base = 0.1) {
  %v = arith.divf %base, %t : f64
  train.yield %v : f64
}

// CHECK: train.optimizer @decayed = adamw<lr = @lr, weight_decay = 1.000000e-01> ema(5.000000e-01)
train.optimizer @decayed = adamw<lr = @lr, weight_decay = 0.1> ema(0.5)
// CHECK: train.optimizer @plain = sgd<lr = @lr, nesterov = true> clip(false)
train.optimizer @plain = sgd<lr = @lr, nesterov = true> clip(false)
// CHECK: train.optimizer @clipped = sgd<lr = @lr>{{$}}
train.optimizer @clipped = sgd<lr = @lr> clip(true)

// CHECK: train.optimizer @own(%p: f32, %g: f32, %m: f32, %lr: f64, %t: f64) state(m = 0.000000e+00) hyper(lr = @lr, t = "update") {
train.optimizer @own(%p: f32, %g: f32, %m: f32, %lr: f64, %t: f64) state(m = 0.0) hyper(lr = @lr, t = "update") {
  %m1 = arith.addf %m, %g : f32
  train.yield %p, %m1 : f32, f32
} scaled(%p: f32, %u: f32, %np: f32, %nu: f32, %m: f32, %lr: f64, %t: f64) {
  %p1 = arith.subf %p, %u : f32
  train.yield %p1, %m : f32, f32
}

// CHECK: train.param @w : tensor<64x10xf32> init(normal<2.000000e-02>) optimizer(@decayed)
train.param @w : tensor<64x10xf32> init(normal<0.02>) optimizer(@decayed)
// CHECK: train.param @b : tensor<10xf32> init(zeros) optimizer(@own)
train.param @b : tensor<10xf32> init(zeros) optimizer(@own)
// CHECK: train.param @table : tensor<2xf32> init(dense<[1.000000e+00, 2.000000e+00]> : tensor<2xf32>) frozen
train.param @table : tensor<2xf32> init(dense<[1.0, 2.0]> : tensor<2xf32>) frozen
// CHECK: train.buffer @count : tensor<i32> init(constant<3.000000e+00>)
train.buffer @count : tensor<i32> init(constant<3.0>)

// CHECK: train.step @step(%x: tensor<32x64xf32>, %y: tensor<32xi32>) accumulate(4, average = false) clip(global_norm<1.000000e+00>) precision(compute = bf16, keep_f32 = [@b]) {
train.step @step(%x: tensor<32x64xf32>, %y: tensor<32xi32>)
    accumulate(4, average = false) clip(global_norm<1.0>) precision(compute = bf16, keep_f32 = [@b]) {
  %w = train.read @w : tensor<64x10xf32>
  %b = train.read @b : tensor<10xf32>
  %logits = nn.linear %x, %w, %b : tensor<32x64xf32>, tensor<64x10xf32>, tensor<10xf32>
  %sum, %count = nn.cross_entropy %logits, %y : tensor<32x10xf32>, tensor<32xi32>
  // CHECK: train.yield loss(%{{.*}}) weight(%{{.*}}) : tensor<f32>, tensor<f32>
  train.yield loss(%sum) weight(%count) : tensor<f32>, tensor<f32>
}

// CHECK: train.step @one(%x: tensor<f32>) trains([@decayed]) accumulate(2) {
train.step @one(%x: tensor<f32>) accumulate(2) trains([@decayed]) {
  train.yield loss(%x) : tensor<f32>
}

// CHECK: train.step @outputs(%x: tensor<f32>) -> ("y", "x") accumulate(2) {
// CHECK: train.yield %{{.*}}, %{{.*}} loss(%{{.*}}) : tensor<f32>, tensor<f32>, tensor<f32>
train.step @outputs(%x: tensor<f32>) -> ("y", "x") accumulate(2) {
  %y = nn.neg %x : tensor<f32>
  train.yield %y, %x loss(%x) : tensor<f32>, tensor<f32>, tensor<f32>
}

// CHECK: train.step @given(%g: tensor<64x10xf32> gradient(@w), %h: tensor<10xf32>) precision(master = bf16, rounding = stochastic, keep_f32 = [@own, "nn.matmul"]) {
// CHECK-NEXT: train.yield
train.step @given(%g: tensor<64x10xf32> gradient(@w), %h: tensor<10xf32>)
    precision(keep_f32 = [@own, "nn.matmul"], rounding = stochastic, master = bf16) {
  train.yield
}

// CHECK: train.eval @logits(%x: tensor<8x64xf32>) -> ("logits") weights(ema) {
train.eval @logits(%x: tensor<8x64xf32>) -> ("logits") weights(ema) {
  %w = train.read @w : tensor<64x10xf32>
  %logits = nn.linear %x, %w : tensor<8x64xf32>, tensor<64x10xf32>
  // CHECK: train.yield %{{.*}} : tensor<8x10xf32>
  train.yield %logits : tensor<8x10xf32>
}
