// RUN: trainc-opt %s --nn-to-linalg | FileCheck %s

// A decomposition may hold ops that decompose in turn.
// CHECK-LABEL: @conv
// CHECK: linalg.generic {{.*}} outs(%{{.*}} : tensor<4x3x3x8x9x9xf32>)
// CHECK: arith.select
// CHECK: linalg.transpose ins(%{{.*}} : tensor<6x8x81xf32>)
// CHECK-NOT: nn.
func.func @conv(%x: tensor<8x4x9x9xf32>, %w: tensor<6x4x3x3xf32>) -> tensor<8x6x9x9xf32> {
  %y = nn.conv2d %x, %w padding [1, 1, 1, 1] : tensor<8x4x9x9xf32>, tensor<6x4x3x3xf32>
  return %y : tensor<8x6x9x9xf32>
}

// One nest over the results, which loops over the window.
// CHECK-LABEL: @max_pool
// CHECK-COUNT-1: linalg.generic
// CHECK: scf.for
// CHECK: scf.for
// CHECK: tensor.extract
// CHECK-NOT: linalg.generic
func.func @max_pool(%x: tensor<8x4x8x8xf32>) -> (tensor<8x4x4x4xf32>, tensor<8x4x4x4xi32>) {
  %y, %at = nn.max_pool2d %x window [2, 2] : tensor<8x4x8x8xf32>
  return %y, %at : tensor<8x4x4x4xf32>, tensor<8x4x4x4xi32>
}
