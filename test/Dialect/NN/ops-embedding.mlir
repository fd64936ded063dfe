// RUN: trainc-opt %s | trainc-opt | FileCheck %s
// RUN: trainc-opt %s --verify-roundtrip -o /dev/null

// CHECK-LABEL: @embedding
func.func @embedding(%t: tensor<100x32xf32>, %i: tensor<8x16xi32>, %one: tensor<i64>, %g: tensor<8x16x32xbf16>, %f: tensor<i64>) {
  // CHECK: nn.embedding %{{.*}}, %{{.*}} : tensor<100x32xf32>, tensor<8x16xi32>
  %0 = nn.embedding %t, %i : tensor<100x32xf32>, tensor<8x16xi32>
  // CHECK: nn.embedding %{{.*}}, %{{.*}} : tensor<100x32xf32>, tensor<i64>
  %1 = nn.embedding %t, %one : tensor<100x32xf32>, tensor<i64>
  // CHECK: nn.embedding %{{.*}}, %{{.*}} from %{{.*}} of 200 : tensor<100x32xf32>, tensor<8x16xi32>
  %part = nn.embedding %t, %i from %f of 200 : tensor<100x32xf32>, tensor<8x16xi32>
  // CHECK: nn.embedding_grad %{{.*}}, %{{.*}} : tensor<8x16xi32>, tensor<8x16x32xbf16> to tensor<100x32xbf16>
  %2 = nn.embedding_grad %i, %g : tensor<8x16xi32>, tensor<8x16x32xbf16> to tensor<100x32xbf16>
  // CHECK: nn.embedding_grad %{{.*}}, %{{.*}} init %{{.*}} : tensor<100x32xbf16> : tensor<8x16xi32>, tensor<8x16x32xbf16> to tensor<100x32xbf16>
  %sum = nn.embedding_grad %i, %g init %2 : tensor<100x32xbf16> : tensor<8x16xi32>, tensor<8x16x32xbf16> to tensor<100x32xbf16>
  // CHECK: nn.embedding_grad %{{.*}}, %{{.*}} from %{{.*}} of 200 init %{{.*}} : tensor<100x32xbf16> : tensor<8x16xi32>, tensor<8x16x32xbf16> to tensor<100x32xbf16>
  %of_part = nn.embedding_grad %i, %g from %f of 200 init %2 : tensor<100x32xbf16> : tensor<8x16xi32>, tensor<8x16x32xbf16> to tensor<100x32xbf16>
  return
}

// CHECK-LABEL: @rotary
func.func @rotary(%x: tensor<2x16x4x8xf32>, %c: tensor<16x4xf32>) {
  // CHECK: nn.rotary %{{.*}} theta 1.000000e+04 : tensor<2x16x4x8xf32>
  %0 = nn.rotary %x theta 10000.0 : tensor<2x16x4x8xf32>
  // CHECK: nn.rotary %{{.*}} theta 5.000000e+02 inverse {offset = 16 : i64} : tensor<2x16x4x8xf32>
  %1 = nn.rotary %x theta 500.0 inverse {offset = 16} : tensor<2x16x4x8xf32>
  // CHECK: nn.rotate_pairs %{{.*}}, %{{.*}}, %{{.*}} inverse : tensor<2x16x4x8xf32>, tensor<16x4xf32>
  %2 = nn.rotate_pairs %x, %c, %c inverse : tensor<2x16x4x8xf32>, tensor<16x4xf32>
  return
}
