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

// A transpose whose elements are those of an earlier value, in order.
// CHECK-LABEL: @transpose_in_order
// CHECK-SAME: (%[[X:.*]]: tensor<4x6x10xf32>)
func.func @transpose_in_order(%x: tensor<4x6x10xf32>) -> tensor<4x6x2x5xf32> {
  %0 = nn.transpose %x [1, 0, 2] : tensor<4x6x10xf32>
  %1 = nn.reshape %0 : tensor<6x4x10xf32> to tensor<6x8x5xf32>
  %2 = nn.transpose %1 [1, 0, 2] : tensor<6x8x5xf32>
  %3 = nn.reshape %2 : tensor<8x6x5xf32> to tensor<4x2x6x5xf32>
  // CHECK-NEXT: %[[R:.*]] = nn.reshape %[[X]] : tensor<4x6x10xf32> to tensor<4x6x2x5xf32>
  // CHECK-NEXT: return %[[R]]
  %4 = nn.transpose %3 [0, 2, 1, 3] : tensor<4x2x6x5xf32>
  return %4 : tensor<4x6x2x5xf32>
}

// Rows of a product in the order that they had before: they are multiplied in it.
// CHECK-LABEL: @rows_of_product
// CHECK-SAME: (%[[X:.*]]: tensor<4x6x10xf32>, %[[W:.*]]: tensor<10x7xf32>, %[[B:.*]]: tensor<7xf32>)
func.func @rows_of_product(%x: tensor<4x6x10xf32>, %w: tensor<10x7xf32>, %b: tensor<7xf32>) -> tensor<4x6x7xf32> {
  %0 = nn.transpose %x [1, 0, 2] : tensor<4x6x10xf32>
  %1 = nn.reshape %0 : tensor<6x4x10xf32> to tensor<24x10xf32>
  %2 = nn.matmul %1, %w bias %b : tensor<24x10xf32>, tensor<10x7xf32>, tensor<7xf32>
  %3 = nn.reshape %2 : tensor<24x7xf32> to tensor<6x4x7xf32>
  // CHECK-NEXT: %[[R:.*]] = nn.matmul %[[X]], %[[W]] bias %[[B]] : tensor<4x6x10xf32>
  // CHECK-NEXT: return %[[R]]
  %4 = nn.transpose %3 [1, 0, 2] : tensor<6x4x7xf32>
  return %4 : tensor<4x6x7xf32>
}

// Not with another order, with columns among the rows, or with another use of the product.
// CHECK-LABEL: @rows_in_another_order
func.func @rows_in_another_order(%x: tensor<4x6x10xf32>, %w: tensor<10x6xf32>)
    -> (tensor<4x6x6xf32>, tensor<6x4x6xf32>, tensor<6x4x6xf32>, tensor<6x4x6xf32>) {
  // CHECK: nn.transpose
  %0 = nn.transpose %x [1, 0, 2] : tensor<4x6x10xf32>
  // CHECK: nn.matmul %[[T:.*]], {{.*}} : tensor<6x4x10xf32>
  %1 = nn.matmul %0, %w : tensor<6x4x10xf32>, tensor<10x6xf32>
  // CHECK: nn.transpose {{.*}} [1, 0, 2]
  %2 = nn.transpose %1 [1, 0, 2] : tensor<6x4x6xf32>
  %3 = nn.matmul %0, %w : tensor<6x4x10xf32>, tensor<10x6xf32>
  // CHECK: nn.transpose {{.*}} [2, 1, 0]
  %4 = nn.transpose %3 [2, 1, 0] : tensor<6x4x6xf32>
  %5 = nn.matmul %x, %w : tensor<4x6x10xf32>, tensor<10x6xf32>
  // CHECK: nn.transpose {{.*}} [1, 0, 2]
  %6 = nn.transpose %5 [1, 0, 2] : tensor<4x6x6xf32>
  return %2, %1, %4, %6 : tensor<4x6x6xf32>, tensor<6x4x6xf32>, tensor<6x4x6xf32>, tensor<6x4x6xf32>
}
