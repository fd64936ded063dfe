// RUN: trainc-opt %s --train-differentiate --split-input-file | FileCheck %s

// The gradient of a sum over ranks is the sum over ranks of the gradients.
// CHECK-LABEL: train.step @step
// CHECK: %[[A:.*]] = train.all_reduce %{{.*}} over ["data"] : tensor<4xf32>
// CHECK: %[[L:.*]] = nn.mul %[[A]], %x
// CHECK: %[[G:.*]] = nn.mul %{{.*}}, %x
// CHECK: %[[R:.*]] = train.all_reduce %[[G]] over ["data"] : tensor<4xf32>
// CHECK: train.store_gradient %[[R]] into @w
train.mesh @mesh(data = 4)
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4xf32> init(ones) optimizer(@o)
train.step @step(%x: tensor<4xf32>) {
  %w = train.read @w : tensor<4xf32>
  %a = train.all_reduce %w over ["data"] : tensor<4xf32>
  %p = nn.mul %a, %x : tensor<4xf32>, tensor<4xf32>
  %s = nn.reduce sum %p dims [0] : tensor<4xf32>
  train.yield loss(%s) : tensor<f32>
}

// -----

// What is gathered or added up in pieces is the other's gradient.
// CHECK-LABEL: train.step @pieces
// CHECK: %[[A:.*]] = train.all_gather %{{.*}} over ["data"] : tensor<4xf32> -> tensor<16xf32>
// CHECK: train.reduce_scatter %{{.*}} over ["data"] : tensor<16xf32> -> tensor<4xf32>
// CHECK: train.seed
// CHECK: %[[S:.*]] = train.all_gather %{{.*}} over ["data"] : tensor<4xf32> -> tensor<16xf32>
// CHECK: %[[M:.*]] = nn.mul %[[S]], %x
// CHECK: %[[G:.*]] = train.reduce_scatter %[[M]] over ["data"] : tensor<16xf32> -> tensor<4xf32>
// CHECK: train.store_gradient %[[G]] into @w
train.mesh @mesh(data = 4)
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4xf32> init(ones) optimizer(@o)
train.step @pieces(%x: tensor<16xf32>) {
  %w = train.read @w : tensor<4xf32>
  %a = train.all_gather %w over ["data"] : tensor<4xf32> -> tensor<16xf32>
  %p = nn.mul %a, %x : tensor<16xf32>, tensor<16xf32>
  %r = train.reduce_scatter %p over ["data"] : tensor<16xf32> -> tensor<4xf32>
  %s = nn.reduce sum %r dims [0] : tensor<4xf32>
  train.yield loss(%s) : tensor<f32>
}

// -----

// The divisor of the seed is that of the terms of all ranks together: sums of an open window mean the same on any number.
// CHECK-LABEL: train.step @terms
// CHECK: train.seed 6.400000e+01 : tensor<f32>
train.mesh @mesh(host = 2, data = 3)
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<5x4xf32> init(ones) optimizer(@o)
train.step @terms(%y: tensor<16xi32>) attributes {loss_terms = 96 : i64, over = ["host", "data"]} {
  %w = train.read @w : tensor<5x4xf32>
  %x = nn.embedding %w, %y : tensor<5x4xf32>, tensor<16xi32>
  %s, %n = nn.cross_entropy %x, %y : tensor<16x4xf32>, tensor<16xi32>
  train.yield loss(%s) weight(%n) : tensor<f32>, tensor<f32>
}
