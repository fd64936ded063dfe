// RUN: trainc-opt %s --train-differentiate | FileCheck %s

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
