// RUN: trainc-opt %s --canonicalize | FileCheck %s

// CHECK-LABEL: @dropout_nothing
// CHECK-SAME: (%[[X:.*]]: tensor<4x8xf32>)
func.func @dropout_nothing(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = nn.dropout %x rate 0.0 : tensor<4x8xf32>
  // CHECK-NEXT: return %[[X]]
  return %0 : tensor<4x8xf32>
}

// CHECK-LABEL: @dropout_some
func.func @dropout_some(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // CHECK: nn.dropout
  %0 = nn.dropout %x rate 0.1 : tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}
