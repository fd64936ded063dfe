// RUN: trainc-opt %s --train-assign-random --split-input-file | FileCheck %s

train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4xf32> init(ones) optimizer(@o)

// Sites in program order, without those that are taken.
// CHECK-LABEL: train.step @step
// CHECK: nn.dropout %{{.*}} rate 5.000000e-01 site 0
// CHECK: nn.dropout %{{.*}} rate 5.000000e-01 site 2
// CHECK: nn.dropout %{{.*}} rate 5.000000e-01 site 1
train.step @step() {
  %w = train.read @w : tensor<4xf32>
  %a = nn.dropout %w rate 0.5 : tensor<4xf32>
  %r = train.recompute -> tensor<4xf32> {
    %b = nn.dropout %a rate 0.5 : tensor<4xf32>
    train.yield %b : tensor<4xf32>
  }
  %c = nn.dropout %r rate 0.5 site 1 : tensor<4xf32>
  %loss = nn.reduce sum %c dims [0] : tensor<4xf32>
  train.yield loss(%loss) : tensor<f32>
}

// CHECK-LABEL: train.eval @eval
// CHECK-NEXT: %[[W:.*]] = train.read @w
// CHECK-NEXT: %[[R:.*]] = nn.random normal site 3
// CHECK-NEXT: train.yield %[[W]], %[[R]]
train.eval @eval() -> ("w", "r") {
  %w = train.read @w : tensor<4xf32>
  %a = nn.dropout %w rate 0.5 : tensor<4xf32>
  %r = nn.random normal : tensor<4xf32>
  train.yield %a, %r : tensor<4xf32>, tensor<4xf32>
}

// Nor does attention, also where the source says of what its draws depend.
// CHECK-LABEL: train.eval @attention
// CHECK: nn.attention %{{.*}}, %{{.*}}, %{{.*}} :
train.eval @attention(%q: tensor<2x4x1x8xf32>, %s: tensor<f64>) -> ("o") {
  %o, %l = nn.attention %q, %q, %q dropout 0.25 site 7 seed %s update %s micro_step %s
      : tensor<2x4x1x8xf32>, tensor<2x4x1x8xf32>
  train.yield %o : tensor<2x4x1x8xf32>
}

// -----

train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4xf32> init(ones) optimizer(@o)

// CHECK-LABEL: train.step @random
// CHECK: nn.random uniform site 0
// CHECK: nn.random bernoulli p 2.500000e-01 site 1
train.step @random() {
  %w = train.read @w : tensor<4xf32>
  %a = nn.random uniform : tensor<4xf32>
  %b = nn.random bernoulli p 0.25 : tensor<4xf32>
  %c = nn.mul %w, %a : tensor<4xf32>, tensor<4xf32>
  %d = nn.mul %c, %b : tensor<4xf32>, tensor<4xf32>
  %loss = nn.reduce sum %d dims [0] : tensor<4xf32>
  train.yield loss(%loss) : tensor<f32>
}

// -----

train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4xf32> init(ones) optimizer(@o)

// CHECK-LABEL: train.step @attention
// CHECK: nn.attention {{.*}} causal :
// CHECK: nn.attention {{.*}} dropout 2.500000e-01 site 0
train.step @attention() {
  %w = train.read @w : tensor<4xf32>
  %q = nn.reshape %w : tensor<4xf32> to tensor<1x2x1x2xf32>
  %o, %l = nn.attention %q, %q, %q causal : tensor<1x2x1x2xf32>, tensor<1x2x1x2xf32>
  %p, %m = nn.attention %q, %q, %o dropout 0.25 : tensor<1x2x1x2xf32>, tensor<1x2x1x2xf32>
  %loss = nn.reduce sum %p dims [0, 1, 2, 3] : tensor<1x2x1x2xf32>
  train.yield loss(%loss) : tensor<f32>
}

// An eval has no dropout.
// CHECK-LABEL: train.eval @attend
// CHECK: nn.attention %{{[0-9]+}}, %{{[0-9]+}}, %{{[0-9]+}} :
train.eval @attend() -> ("p") {
  %w = train.read @w : tensor<4xf32>
  %q = nn.reshape %w : tensor<4xf32> to tensor<1x2x1x2xf32>
  %p, %m = nn.attention %q, %q, %q dropout 0.25 : tensor<1x2x1x2xf32>, tensor<1x2x1x2xf32>
  train.yield %p : tensor<1x2x1x2xf32>
}

// -----

train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4xf32> init(ones) optimizer(@o)

// It does nothing to a module that draws nothing.
// CHECK-LABEL: train.step @plain
// CHECK-NEXT: train.read
// CHECK-NEXT: nn.reduce
// CHECK-NEXT: train.yield
train.step @plain() {
  %w = train.read @w : tensor<4xf32>
  %loss = nn.reduce sum %w dims [0] : tensor<4xf32>
  train.yield loss(%loss) : tensor<f32>
}
