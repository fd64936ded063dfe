// RUN: trainc-opt %s --train-differentiate --split-input-file | FileCheck %s

// Two uses of a parameter are two contributions; a frozen one has no gradient.
// CHECK-LABEL: train.step @step
// CHECK: %[[W:.*]] = train.read @w
// CHECK: %[[C:.*]] = train.read @c
// CHECK: %[[SEED:.*]] = train.seed 1.000000e+00 : tensor<f32>
// CHECK: %[[R:.*]] = nn.reshape %[[SEED]]
// CHECK: %[[G:.*]] = nn.broadcast %[[R]]
// CHECK: nn.mul %[[G]], %[[C]]
// CHECK: train.store_gradient %{{.*}}, %{{.*}} into @w : tensor<4xf32>, tensor<4xf32>
// CHECK-NOT: train.store_gradient
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4xf32> init(ones) optimizer(@o)
train.param @c : tensor<4xf32> init(ones) frozen
train.step @step(%x: tensor<4xf32>) {
  %w = train.read @w : tensor<4xf32>
  %c = train.read @c : tensor<4xf32>
  %m = nn.mul %w, %c : tensor<4xf32>, tensor<4xf32>
  %a = nn.add %m, %w : tensor<4xf32>, tensor<4xf32>
  %s = nn.reduce sum %a dims [0] : tensor<4xf32>
  train.yield loss(%s) : tensor<f32>
}

// -----

// It does nothing to a step that stores gradients already.
// CHECK-LABEL: train.step @update
// CHECK-NOT: train.seed
// CHECK: train.store_gradient %x into @w : tensor<4xf32>
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4xf32> init(ones) optimizer(@o)
train.step @update(%x: tensor<4xf32>) {
  train.store_gradient %x into @w : tensor<4xf32>
  %s = nn.reduce sum %x dims [0] : tensor<4xf32>
  train.yield loss(%s) : tensor<f32>
}

// -----

// The stride of a dimension of which one element is taken leaves no gaps.
// CHECK-LABEL: train.step @slice
// CHECK: nn.pad %{{.*}} low [0, 1] high [0, 2] interior [1, 0] value
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<3x4xf32> init(ones) optimizer(@o)
train.step @slice() {
  %w = train.read @w : tensor<3x4xf32>
  %a = nn.slice %w offsets [0, 1] sizes [2, 1] strides [2, 4611686018427387904] : tensor<3x4xf32>
  %s = nn.reduce sum %a dims [0, 1] : tensor<2x1xf32>
  train.yield loss(%s) : tensor<f32>
}
