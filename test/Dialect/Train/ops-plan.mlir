// What a plan says of gradients and updates, and the memory they are in.
//
// RUN: trainc-opt %s | trainc-opt | FileCheck %s
// RUN: trainc-opt %s --verify-roundtrip -o /dev/null

train.mesh @mesh(data = 2)
train.param @w : tensor<4xf32> init(zeros) frozen
train.optimizer @o = sgd<lr = 0.1>
train.param @v : tensor<8xf32> init(zeros) optimizer(@o)
train.buffer @mean : tensor<8xf32> init(zeros)

// CHECK: train.bucket @bucket [@w] elements(8) offsets([0])
train.bucket @bucket [@w] elements(8) offsets([0])
// CHECK: train.bucket @bucket_0 [@v] elements(8) offsets([0])
train.bucket @bucket_0 [@v] elements(8) offsets([0])
// CHECK: train.arena @arena.grad gradient {
train.arena @arena.grad gradient {
  // CHECK-NEXT: train.slice @w : tensor<4xf32>
  train.slice @w : tensor<4xf32>
  // CHECK-NEXT: train.slice @v : tensor<8xf32>
  train.slice @v : tensor<8xf32>
  // CHECK-NEXT: train.span @bucket
  train.span @bucket
  // CHECK-NEXT: train.span @bucket_0
  train.span @bucket_0
  // CHECK-NEXT: }
}
// CHECK: train.arena @arena.master master {
train.arena @arena.master master {
  train.slice @w : tensor<4xf32>
  train.slice @v : tensor<8xf32>
  // CHECK: train.span @bucket over ["data"]
  train.span @bucket over ["data"]
  // CHECK-NEXT: train.span @bucket_0 over ["data"]
  train.span @bucket_0 over ["data"]
}
// CHECK: train.bucket @bucket_1 [@w, @v]{{$}}
train.bucket @bucket_1 [@w, @v]
// CHECK: train.arena @arena.merged merged {
train.arena @arena.merged merged {
  train.slice @w : tensor<4xf32>
  train.slice @v : tensor<8xf32>
  train.span @bucket_1
}
// CHECK: train.arena @arena.scalars scalars {
train.arena @arena.scalars scalars {
  // CHECK-NEXT: train.slice @lr : tensor<f64> value(1.000000e-01) flags(1)
  train.slice @lr : tensor<f64> value(0.1) flags(1)
  // CHECK-NEXT: train.slice @update : tensor<f64>{{$}}
  train.slice @update : tensor<f64>
}

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
  // CHECK: %[[R:.*]] = train.read @arena.grad : tensor<16xf32>
  %r = train.read @arena.grad : tensor<16xf32>
  // CHECK: train.write %[[R]] to @arena.grad : tensor<16xf32>
  train.write %r to @arena.grad : tensor<16xf32>
  // CHECK: %[[B:.*]] = train.read @arena.master::@bucket : tensor<4xf32>
  %b = train.read @arena.master::@bucket : tensor<4xf32>
  // CHECK: train.write %[[B]] to @arena.master::@bucket : tensor<4xf32>
  train.write %b to @arena.master::@bucket : tensor<4xf32>
  // CHECK: %[[U:.*]] = train.read @arena.merged::@bucket_1 : tensor<?xf32>
  %u = train.read @arena.merged::@bucket_1 : tensor<?xf32>
  // CHECK: train.write %[[U]] to @arena.merged::@bucket_1 : tensor<?xf32>
  train.write %u to @arena.merged::@bucket_1 : tensor<?xf32>
  // CHECK: train.accumulate %[[U]] into @arena.merged::@bucket_1 : tensor<?xf32>
  train.accumulate %u into @arena.merged::@bucket_1 : tensor<?xf32>
  // CHECK: train.micro_end
  train.micro_end
  // CHECK: %[[G:.*]] = train.start all_gather(%{{.*}}) over ["data"] : tensor<4xf32> -> !train.token
  %g = train.start all_gather(%half) over ["data"] : tensor<4xf32> -> !train.token
  // CHECK: %[[W:.*]] = train.wait %[[G]] : tensor<8xf32>
  %w = train.wait %g : tensor<8xf32>
  // CHECK: train.start reduce_scatter(%[[W]]) over ["data"] in_place : tensor<8xf32> -> !train.token
  %h = train.start reduce_scatter(%w) over ["data"] in_place : tensor<8xf32> -> !train.token
  %z = train.wait %h : tensor<8xf32>
  // CHECK: train.window_end
  %due = train.window_end
  // CHECK: train.return
  train.return
}

// CHECK: train.list @apply of @step "apply" (%[[S:.*]]: tensor<f64>, %[[F:.*]]: tensor<i1>, %[[T:.*]]: tensor<f64>, %[[L:.*]]: tensor<f32>)
train.list @apply of @step "apply" (%s: tensor<f64>, %f: tensor<i1>, %t: tensor<f64>, %l: tensor<f32>) {
  // CHECK{LITERAL}: train.norm_squared [[@w, @v]] : tensor<f64>
  %n = train.norm_squared [[@w, @v]] : tensor<f64>
  // CHECK{LITERAL}: train.norm_squared [[@w, @v]] : tensor<2xf64>
  %m = train.norm_squared [[@w, @v]] : tensor<2xf64>
  // CHECK{LITERAL}: train.norm_squared [[@w, @v], [@v]] over ["data"] fused : tensor<f64>, tensor<1xf64>
  %all, %each = train.norm_squared [[@w, @v], [@v]] over ["data"] fused : tensor<f64>, tensor<1xf64>
  // CHECK: train.update [@o] {{\[\[}}@v]] scale(%[[S]] : tensor<f64>) if(%[[F]] : tensor<i1>) t(%[[T]] : tensor<f64>)
  train.update [@o] [[@v]] scale(%s : tensor<f64>) if(%f : tensor<i1>) t(%t : tensor<f64>)
  // CHECK: train.update [@o] {{\[\[}}@v]] scale(%[[S]] : tensor<f64>) limit(%[[L]] : tensor<f32>) if(%[[F]] : tensor<i1>) t(%[[T]] : tensor<f64>) copies [@arena.grad] stochastic
  train.update [@o] [[@v]] scale(%s : tensor<f64>) limit(%l : tensor<f32>) if(%f : tensor<i1>) t(%t : tensor<f64>) copies [@arena.grad] stochastic
  // CHECK: train.update [@o, @o] {{\[\[}}@v], [@w]] scale(%[[S]], %{{.*}} : tensor<f64>, tensor<1xf64>) limit(%[[L]], %[[L]] : tensor<f32>, tensor<f32>) if(%[[F]] : tensor<i1>) t(%[[T]] : tensor<f64>) copies [@arena.grad] over ["data"] fused stochastic
  train.update [@o, @o] [[@v], [@w]] scale(%s, %each : tensor<f64>, tensor<1xf64>) limit(%l, %l : tensor<f32>, tensor<f32>) if(%f : tensor<i1>) t(%t : tensor<f64>) copies [@arena.grad] over ["data"] fused stochastic
  train.return
}
