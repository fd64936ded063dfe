// RUN: trainc-opt %s --canonicalize | FileCheck %s

// CHECK-LABEL: @transpose_of_transpose
// CHECK-SAME: (%[[X:.*]]: tensor<2x3x4xf32>)
func.func @transpose_of_transpose(%x: tensor<2x3x4xf32>) -> (tensor<2x3x4xf32>, tensor<4x3x2xf32>) {
  %0 = nn.transpose %x [2, 0, 1] : tensor<2x3x4xf32>
  %1 = nn.transpose %0 [1, 2, 0] : tensor<4x2x3xf32>
  // CHECK-NEXT: %[[T:.*]] = nn.transpose %[[X]] [2, 1, 0] : tensor<2x3x4xf32>
  %2 = nn.transpose %0 [0, 2, 1] : tensor<4x2x3xf32>
  // CHECK-NEXT: return %[[X]], %[[T]]
  return %1, %2 : tensor<2x3x4xf32>, tensor<4x3x2xf32>
}

// CHECK-LABEL: @reshape_of_reshape
// CHECK-SAME: (%[[X:.*]]: tensor<4x8xf32>)
func.func @reshape_of_reshape(%x: tensor<4x8xf32>) -> tensor<2x16xf32> {
  %0 = nn.reshape %x : tensor<4x8xf32> to tensor<32xf32>
  // CHECK-NEXT: nn.reshape %[[X]] : tensor<4x8xf32> to tensor<2x16xf32>
  %1 = nn.reshape %0 : tensor<32xf32> to tensor<2x16xf32>
  return %1 : tensor<2x16xf32>
}

// CHECK-LABEL: @reshape_of_constant
func.func @reshape_of_constant() -> (tensor<32xf32>, tensor<3x1xi32>) {
  %0 = nn.constant dense<1.0> : tensor<4x8xf32>
  // CHECK-DAG: nn.constant dense<1.000000e+00> : tensor<32xf32>
  %1 = nn.reshape %0 : tensor<4x8xf32> to tensor<32xf32>
  %2 = nn.constant dense<[1, 2, 3]> : tensor<3xi32>
  // CHECK-DAG: nn.constant dense<{{\[\[}}1], [2], [3]]> : tensor<3x1xi32>
  %3 = nn.reshape %2 : tensor<3xi32> to tensor<3x1xi32>
  return %1, %3 : tensor<32xf32>, tensor<3x1xi32>
}

// Ops that take all and change nothing.
// CHECK-LABEL: @identities
// CHECK-SAME: (%[[X:.*]]: tensor<4x8xf32>)
func.func @identities(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = nn.transpose %x [0, 1] : tensor<4x8xf32>
  %1 = nn.slice %0 offsets [0, 0] sizes [4, 8] strides [1, 1] : tensor<4x8xf32>
  %2 = nn.pad %1 low [0, 0] high [0, 0] value 1.0 : tensor<4x8xf32>
  %3 = nn.concat %2 dim 0 : tensor<4x8xf32>
  %4 = nn.broadcast %3 : tensor<4x8xf32> to tensor<4x8xf32>
  %5 = nn.reshape %4 : tensor<4x8xf32> to tensor<4x8xf32>
  // CHECK-NEXT: return %[[X]]
  return %5 : tensor<4x8xf32>
}
