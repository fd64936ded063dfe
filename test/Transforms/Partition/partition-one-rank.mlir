// RUN: trainc-opt %s --train-partition | FileCheck %s

// With one rank, splits are erased and nothing else is.
// CHECK: train.mesh @mesh(host = 1, data = 1)
// CHECK: train.param @w : tensor<8x4xf32> init(ones) optimizer(@o){{$}}
// CHECK-NEXT: train.step @step(%x: tensor<8x4xf32>) {
// CHECK-NEXT: %[[W:.*]] = train.read @w
// CHECK-NEXT: %[[P:.*]] = nn.mul %x, %[[W]]
// CHECK-NEXT: %[[S:.*]] = nn.reduce sum %[[P]]
// CHECK-NEXT: train.yield loss(%[[S]]) : tensor<f32>
// CHECK: train.eval @eval(%x: tensor<8x4xf32>) -> ("x") {
// CHECK-NEXT: train.yield %x
train.mesh @mesh(host = 1, data = 1)
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<8x4xf32> init(ones) optimizer(@o) split([data])
train.step @step(%x: tensor<8x4xf32> split([host], [data])) {
  %w = train.read @w : tensor<8x4xf32>
  %p = nn.mul %x, %w : tensor<8x4xf32>, tensor<8x4xf32>
  %s = nn.reduce sum %p dims [0, 1] : tensor<8x4xf32>
  train.yield loss(%s) : tensor<f32>
}
train.eval @eval(%x: tensor<8x4xf32> split([data])) -> ("x") {
  train.yield %x : tensor<8x4xf32>
}
