// RUN: trainc-opt %s --train-differentiate --split-input-file | FileCheck %s

train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4x4xf32> init(ones) optimizer(@o)

// The backward pass computes the inside of the region again, from a barrier behind
// what it takes from outside, and with the same draws; what no gradient needs is not
// computed.
// CHECK-LABEL: train.step @step
// CHECK: %[[W:.*]] = train.read @w
// CHECK-NEXT: %[[H:.*]] = nn.linear %[[X:.*]], %[[W]]
// CHECK-NEXT: %[[T:.*]] = nn.tanh %[[H]]
// CHECK-NEXT: %[[D:.*]] = nn.dropout %[[T]] rate 5.000000e-01 site 0
// CHECK-NEXT: nn.mse %[[D]]
// CHECK: train.seed
// CHECK: %[[XB:.*]] = train.barrier %[[X]]
// CHECK-NEXT: %[[WB:.*]] = train.barrier %[[W]]
// CHECK-NEXT: %[[H2:.*]] = nn.linear %[[XB]], %[[WB]]
// CHECK-NEXT: nn.tanh %[[H2]]
// CHECK-NEXT: nn.dropout %{{.*}} rate 5.000000e-01 site 0
// CHECK-NOT: %[[X]]
// CHECK-NOT: %[[T]]
// CHECK: train.store_gradient %{{.*}} into @w
train.step @step(%x: tensor<2x4xf32>, %y: tensor<2x4xf32>) {
  %r = train.recompute -> tensor<2x4xf32> {
    %w = train.read @w : tensor<4x4xf32>
    %h = nn.linear %x, %w : tensor<2x4xf32>, tensor<4x4xf32>
    %t = nn.tanh %h : tensor<2x4xf32>
    %d = nn.dropout %t rate 0.5 site 0 : tensor<2x4xf32>
    train.yield %d : tensor<2x4xf32>
  }
  %loss, %count = nn.mse %r, %y : tensor<2x4xf32>, tensor<2x4xf32>
  train.yield loss(%loss) weight(%count) : tensor<f32>, tensor<f32>
}

// CHECK-LABEL: train.eval @eval
// CHECK-NEXT: %[[W:.*]] = train.read @w
// CHECK-NEXT: %[[T:.*]] = nn.tanh %[[W]]
// CHECK-NEXT: train.yield %[[T]]
train.eval @eval() -> ("t") {
  %r = train.recompute -> tensor<4x4xf32> {
    %w = train.read @w : tensor<4x4xf32>
    %t = nn.tanh %w : tensor<4x4xf32>
    train.yield %t : tensor<4x4xf32>
  }
  train.yield %r : tensor<4x4xf32>
}

// -----

// A loss head behind a region is joined with its gradients, too.
// CHECK-LABEL: train.step @head
// CHECK: nn.linear_cross_entropy_grad
// CHECK-NOT: nn.linear_cross_entropy %
// CHECK: train.store_gradient
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4x16xf32> init(ones) optimizer(@o)
train.param @v : tensor<4x4xf32> init(ones) optimizer(@o)
train.step @head(%x: tensor<8x4xf32>, %y: tensor<8xi32>) {
  %v = train.read @v : tensor<4x4xf32>
  %h = train.recompute -> tensor<8x4xf32> {
    %a = nn.linear %x, %v : tensor<8x4xf32>, tensor<4x4xf32>
    %b = nn.tanh %a : tensor<8x4xf32>
    train.yield %b : tensor<8x4xf32>
  }
  %w = train.read @w : tensor<4x16xf32>
  %l, %n = nn.linear_cross_entropy %h, %w, %y : tensor<8x4xf32>, tensor<4x16xf32>, tensor<8xi32>
  train.yield loss(%l) : tensor<f32>
}

// -----

// The loss itself may be what a region gives.
// CHECK-LABEL: train.step @whole
// CHECK: %[[LOSS:.*]], %{{.*}} = nn.mse
// CHECK: %[[SEED:.*]] = train.seed
// CHECK: nn.matmul %{{.*}} transpose_lhs
// CHECK: train.store_gradient %{{.*}}, %{{.*}} into @w
// CHECK: train.yield loss(%[[LOSS]])
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4x4xf32> init(ones) optimizer(@o)
train.step @whole(%x: tensor<2x4xf32>, %y: tensor<2x4xf32>, %g: tensor<4x4xf32> gradient(@w)) {
  %w = train.read @w : tensor<4x4xf32>
  %loss = train.recompute -> tensor<f32> {
    %h = nn.linear %x, %w : tensor<2x4xf32>, tensor<4x4xf32>
    %l, %n = nn.mse %h, %y : tensor<2x4xf32>, tensor<2x4xf32>
    train.yield %l : tensor<f32>
  }
  train.yield loss(%loss) : tensor<f32>
}
