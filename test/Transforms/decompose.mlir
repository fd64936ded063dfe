// RUN: trainc-opt %s --nn-decompose --split-input-file | FileCheck %s

// CHECK-LABEL: train.list @composite
// CHECK: nn.reduce max %{{.*}} dims [1] keep
// CHECK: nn.exp
// CHECK: nn.reduce sum %{{.*}} dims [1] keep
// CHECK-NOT: nn.softmax
train.list @composite of @e "first" (%x: tensor<4x8xf32>) {
  %y = nn.softmax %x dim 1 : tensor<4x8xf32>
  train.return %y : tensor<4x8xf32>
}

// -----

// A reduction over inner and outer dimensions becomes two, which keep theirs.
// CHECK-LABEL: train.list @reduce
// CHECK: %[[I:.*]] = nn.reduce sum %{{.*}} dims [2] keep
// CHECK: %[[O:.*]] = nn.reduce sum %[[I]] dims [0] keep
// CHECK: nn.reshape %[[O]]
train.list @reduce of @e "first" (%x: tensor<4x5x8xf32>) {
  %y = nn.reduce sum %x dims [0, 2] : tensor<4x5x8xf32>
  train.return %y : tensor<5xf32>
}

// -----

// It does nothing to primitives, and to ops outside of lists.
// CHECK-LABEL: train.list @primitive
// CHECK-NEXT: nn.reduce sum %{{.*}} dims [1] keep
// CHECK-NEXT: nn.neg
// CHECK-LABEL: train.eval @e
// CHECK-NEXT: nn.softmax
train.list @primitive of @e "first" (%x: tensor<4x8xf32>) {
  %y = nn.reduce sum %x dims [1] keep : tensor<4x8xf32>
  %z = nn.neg %y : tensor<4x1xf32>
  train.return %z : tensor<4x1xf32>
}
train.eval @e(%x: tensor<4x8xf32>) -> ("y") {
  %y = nn.softmax %x dim 1 : tensor<4x8xf32>
  train.yield %y : tensor<4x8xf32>
}
