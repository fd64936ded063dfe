// RUN: trainc-opt %s | trainc-opt | FileCheck %s
// RUN: trainc-opt %s --verify-roundtrip -o /dev/null

// CHECK-LABEL: @cross_entropy
func.func @cross_entropy(%x: tensor<8x10xf32>, %y: tensor<8xi32>, %w: tensor<8xf32>, %h: tensor<4x8x32xf32>, %v: tensor<32x10xf32>, %u: tensor<10x32xf32>, %z: tensor<4x8xi32>, %s: tensor<4x8xf32>, %g: tensor<f32>, %b: tensor<10xf32>) {
  // CHECK: nn.cross_entropy %{{.*}}, %{{.*}} : tensor<8x10xf32>, tensor<8xi32>
  %0:2 = nn.cross_entropy %x, %y : tensor<8x10xf32>, tensor<8xi32>
  // CHECK: nn.cross_entropy %{{.*}}, %{{.*}} weights %{{.*}} {ignore_index = 3 : i64, label_smoothing = 5.000000e-01 : f64} : tensor<8x10xf32>, tensor<8xi32>, tensor<8xf32>
  %1:2 = nn.cross_entropy %x, %y weights %w {ignore_index = 3, label_smoothing = 0.5} : tensor<8x10xf32>, tensor<8xi32>, tensor<8xf32>
  // CHECK: nn.linear_cross_entropy %{{.*}}, %{{.*}}, %{{.*}} : tensor<4x8x32xf32>, tensor<32x10xf32>, tensor<4x8xi32>
  %2:2 = nn.linear_cross_entropy %h, %v, %z : tensor<4x8x32xf32>, tensor<32x10xf32>, tensor<4x8xi32>
  // CHECK: nn.linear_cross_entropy %{{.*}}, %{{.*}}, %{{.*}} weights %{{.*}} transpose_weight : tensor<4x8x32xf32>, tensor<10x32xf32>, tensor<4x8xi32>, tensor<4x8xf32>
  %3:2 = nn.linear_cross_entropy %h, %u, %z weights %s transpose_weight : tensor<4x8x32xf32>, tensor<10x32xf32>, tensor<4x8xi32>, tensor<4x8xf32>
  // CHECK: nn.linear_cross_entropy %{{.*}}, %{{.*}}, %{{.*}} wide_logits {label_smoothing = 5.000000e-01 : f64} : tensor<4x8x32xf32>, tensor<32x10xf32>, tensor<4x8xi32>
  %4:2 = nn.linear_cross_entropy %h, %v, %z wide_logits {label_smoothing = 0.5} : tensor<4x8x32xf32>, tensor<32x10xf32>, tensor<4x8xi32>
  // CHECK: nn.linear_cross_entropy %{{.*}}, %{{.*}}, %{{.*}} bias %{{.*}} weights %{{.*}} : tensor<4x8x32xf32>, tensor<32x10xf32>, tensor<4x8xi32> bias tensor<10xf32>, tensor<4x8xf32>
  %5:2 = nn.linear_cross_entropy %h, %v, %z bias %b weights %s : tensor<4x8x32xf32>, tensor<32x10xf32>, tensor<4x8xi32> bias tensor<10xf32>, tensor<4x8xf32>
  // CHECK: nn.linear_cross_entropy_grad %{{.*}}, %{{.*}}, %{{.*}} bias %{{.*}} weights %{{.*}} grad %{{.*}} transpose_weight : tensor<4x8x32xf32>, tensor<10x32xf32>, tensor<4x8xi32>, tensor<f32> bias tensor<10xf32>, tensor<4x8xf32>
  %6:5 = nn.linear_cross_entropy_grad %h, %u, %z bias %b weights %s grad %g transpose_weight : tensor<4x8x32xf32>, tensor<10x32xf32>, tensor<4x8xi32>, tensor<f32> bias tensor<10xf32>, tensor<4x8xf32>
  return
}

// CHECK-LABEL: @elements
func.func @elements(%x: tensor<8x10xf32>, %t: tensor<8x10xf32>, %w: tensor<8xf32>) {
  // CHECK: nn.bce_with_logits %{{.*}}, %{{.*}} : tensor<8x10xf32>, tensor<8x10xf32>
  %0:2 = nn.bce_with_logits %x, %t : tensor<8x10xf32>, tensor<8x10xf32>
  // CHECK: nn.bce_with_logits %{{.*}}, %{{.*}} weights %{{.*}} : tensor<8x10xf32>, tensor<8x10xf32>, tensor<8xf32>
  %1:2 = nn.bce_with_logits %x, %t weights %w : tensor<8x10xf32>, tensor<8x10xf32>, tensor<8xf32>
  // CHECK: nn.mse %{{.*}}, %{{.*}} : tensor<8x10xf32>, tensor<8x10xf32>
  %2:2 = nn.mse %x, %t : tensor<8x10xf32>, tensor<8x10xf32>
  // CHECK: nn.mse %{{.*}}, %{{.*}} weights %{{.*}} : tensor<8x10xf32>, tensor<8x10xf32>, tensor<8x10xf32>
  %3:2 = nn.mse %x, %t weights %x : tensor<8x10xf32>, tensor<8x10xf32>, tensor<8x10xf32>
  return
}
