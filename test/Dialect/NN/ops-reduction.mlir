// RUN: trainc-opt %s | trainc-opt | FileCheck %s
// RUN: trainc-opt %s --verify-roundtrip -o /dev/null

// CHECK-LABEL: @reductions
func.func @reductions(%x: tensor<4x8xf32>, %i: tensor<4x8xi32>) -> (tensor<4x1xf32>, tensor<8xi32>, tensor<1x8xi32>) {
  // CHECK: nn.reduce sum %{{.*}} dims [1] keep : tensor<4x8xf32>
  %0 = nn.reduce sum %x dims [1] keep : tensor<4x8xf32>
  // CHECK: nn.reduce max %{{.*}} dims [0, 1] : tensor<4x8xf32>
  %1 = nn.reduce max %x dims [0, 1] : tensor<4x8xf32>
  // CHECK: nn.reduce min
  %2 = nn.reduce min %x dims [0] : tensor<4x8xf32>
  // CHECK: nn.reduce sum %{{.*}} dims [0] : tensor<4x8xf32> order sequence
  %ordered = nn.reduce sum %x dims [0] : tensor<4x8xf32> order sequence
  // CHECK: nn.reduce prod
  %3 = nn.reduce prod %i dims [0] : tensor<4x8xi32>
  // CHECK: nn.argmax %{{.*}} dim 0 : tensor<4x8xf32>
  %4 = nn.argmax %x dim 0 : tensor<4x8xf32>
  // CHECK: nn.argmax %{{.*}} dim 0 keep : tensor<4x8xi32>
  %5 = nn.argmax %i dim 0 keep : tensor<4x8xi32>
  // CHECK: nn.sort %{{.*}} dim 0 : tensor<4x8xf32>
  %6:3 = nn.sort %x dim 0 : tensor<4x8xf32>
  // CHECK: nn.sort %{{.*}} dim 1 descending : tensor<4x8xi32>
  %7:3 = nn.sort %i dim 1 descending : tensor<4x8xi32>
  return %0, %4, %5 : tensor<4x1xf32>, tensor<8xi32>, tensor<1x8xi32>
}
