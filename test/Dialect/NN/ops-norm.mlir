// RUN: trainc-opt %s | trainc-opt | FileCheck %s
// RUN: trainc-opt %s --verify-roundtrip -o /dev/null

// CHECK-LABEL: @softmax
func.func @softmax(%x: tensor<8x16xf32>, %h: tensor<4xbf16>) {
  // CHECK: nn.softmax %{{.*}} dim 1 : tensor<8x16xf32>
  %0 = nn.softmax %x dim 1 : tensor<8x16xf32>
  // CHECK: nn.log_softmax %{{.*}} dim 0 : tensor<4xbf16>
  %1 = nn.log_softmax %h dim 0 : tensor<4xbf16>
  return
}

// CHECK-LABEL: @rows
func.func @rows(%x: tensor<8x16xf32>, %w: tensor<16xf32>, %b: tensor<16xf32>, %h: tensor<4x16xbf16>) {
  // CHECK: nn.layer_norm %{{.*}}, %{{.*}}, %{{.*}} : tensor<8x16xf32>, tensor<16xf32>, tensor<16xf32>
  %0 = nn.layer_norm %x, %w, %b : tensor<8x16xf32>, tensor<16xf32>, tensor<16xf32>
  // CHECK: nn.layer_norm %{{.*}}, %{{.*}} {eps = 2.500000e-01 : f64} : tensor<8x16xf32>, tensor<16xf32>
  %1 = nn.layer_norm %x, %w {eps = 0.25} : tensor<8x16xf32>, tensor<16xf32>
  // CHECK: nn.layer_norm %{{.*}}, %{{.*}} : tensor<4x16xbf16>, tensor<16xf32>
  %2 = nn.layer_norm %h, %w : tensor<4x16xbf16>, tensor<16xf32>
  // CHECK: nn.rms_norm %{{.*}}, %{{.*}} {eps = 5.000000e-01 : f64} : tensor<8x16xf32>, tensor<16xf32>
  %3 = nn.rms_norm %x, %w {eps = 0.5} : tensor<8x16xf32>, tensor<16xf32>
  return
}

// CHECK-LABEL: @channels
func.func @channels(%x: tensor<2x8x5x5xf32>, %w: tensor<8xf32>, %b: tensor<8xf32>, %m: tensor<8xf32>, %v: tensor<8xf32>) {
  // CHECK: nn.group_norm %{{.*}}, %{{.*}}, %{{.*}} groups 4 : tensor<2x8x5x5xf32>, tensor<8xf32>, tensor<8xf32>
  %0 = nn.group_norm %x, %w, %b groups 4 : tensor<2x8x5x5xf32>, tensor<8xf32>, tensor<8xf32>
  // CHECK: nn.batch_norm %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} training : tensor<2x8x5x5xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
  %1:3 = nn.batch_norm %x, %w, %b, %m, %v training : tensor<2x8x5x5xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
  // CHECK: nn.batch_norm %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} {momentum = 5.000000e-01 : f64} : tensor<2x8x5x5xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
  %2:3 = nn.batch_norm %x, %w, %b, %m, %v {momentum = 0.5} : tensor<2x8x5x5xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
  return
}
