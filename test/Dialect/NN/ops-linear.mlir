// RUN: trainc-opt %s | trainc-opt | FileCheck %s
// RUN: trainc-opt %s --verify-roundtrip -o /dev/null

// CHECK-LABEL: @matmul
func.func @matmul(%a: tensor<4x8xf32>, %b: tensor<8x16xf32>, %c: tensor<16x8xf32>, %v: tensor<16xf32>, %d: tensor<2x8x4xf32>, %e: tensor<2x8x16xf32>) {
  // CHECK: nn.matmul %{{.*}}, %{{.*}} : tensor<4x8xf32>, tensor<8x16xf32>
  %0 = nn.matmul %a, %b : tensor<4x8xf32>, tensor<8x16xf32>
  // CHECK: nn.matmul %{{.*}}, %{{.*}} bias %{{.*}} transpose_rhs : tensor<4x8xf32>, tensor<16x8xf32>, tensor<16xf32>
  %1 = nn.matmul %a, %c bias %v transpose_rhs : tensor<4x8xf32>, tensor<16x8xf32>, tensor<16xf32>
  // CHECK: nn.matmul %{{.*}}, %{{.*}} transpose_lhs : tensor<2x8x4xf32>, tensor<2x8x16xf32>
  %2 = nn.matmul %d, %e transpose_lhs : tensor<2x8x4xf32>, tensor<2x8x16xf32>
  // CHECK: nn.neg %{{.*}} : tensor<2x4x16xf32>
  %3 = nn.neg %2 : tensor<2x4x16xf32>
  return
}

// CHECK-LABEL: @linear
func.func @linear(%x: tensor<2x4x8xf32>, %w: tensor<8x5xf32>, %b: tensor<5xf32>) {
  // CHECK: nn.linear %{{.*}}, %{{.*}} : tensor<2x4x8xf32>, tensor<8x5xf32>
  %0 = nn.linear %x, %w : tensor<2x4x8xf32>, tensor<8x5xf32>
  // CHECK: nn.linear %{{.*}}, %{{.*}}, %{{.*}} : tensor<2x4x8xf32>, tensor<8x5xf32>, tensor<5xf32>
  %1 = nn.linear %x, %w, %b : tensor<2x4x8xf32>, tensor<8x5xf32>, tensor<5xf32>
  // CHECK: nn.neg %{{.*}} : tensor<2x4x5xf32>
  %2 = nn.neg %1 : tensor<2x4x5xf32>
  return
}
