// RUN: trainc-opt %s | trainc-opt | FileCheck %s
// RUN: trainc-opt %s --verify-roundtrip -o /dev/null

// CHECK-LABEL: @conv
func.func @conv(%x: tensor<8x4x9x9xf32>, %w: tensor<6x4x3x3xf32>, %v: tensor<6x2x3x2xf32>, %b: tensor<6xf32>) {
  // CHECK: nn.conv2d %{{.*}}, %{{.*}} : tensor<8x4x9x9xf32>, tensor<6x4x3x3xf32>
  %0 = nn.conv2d %x, %w : tensor<8x4x9x9xf32>, tensor<6x4x3x3xf32>
  // CHECK: nn.conv2d %{{.*}}, %{{.*}} bias %{{.*}} strides [2, 1] padding [1, 0, 2, 1] dilations [1, 3] groups 2 : tensor<8x4x9x9xf32>, tensor<6x2x3x2xf32>, tensor<6xf32>
  %1 = nn.conv2d %x, %v bias %b strides [2, 1] padding [1, 0, 2, 1] dilations [1, 3] groups 2 : tensor<8x4x9x9xf32>, tensor<6x2x3x2xf32>, tensor<6xf32>
  %g = nn.exp %1 : tensor<8x6x4x9xf32>
  // CHECK: nn.conv2d_input_grad %{{.*}}, %{{.*}} strides [2, 1] padding [1, 0, 2, 1] dilations [1, 3] groups 2 : tensor<6x2x3x2xf32>, tensor<8x6x4x9xf32> to tensor<8x4x9x9xf32>
  %dx = nn.conv2d_input_grad %v, %g strides [2, 1] padding [1, 0, 2, 1] dilations [1, 3] groups 2 : tensor<6x2x3x2xf32>, tensor<8x6x4x9xf32> to tensor<8x4x9x9xf32>
  // CHECK: nn.conv2d_weight_grad %{{.*}}, %{{.*}} strides [2, 1] padding [1, 0, 2, 1] dilations [1, 3] groups 2 : tensor<8x4x9x9xf32>, tensor<8x6x4x9xf32> to tensor<6x2x3x2xf32>
  %dv = nn.conv2d_weight_grad %x, %g strides [2, 1] padding [1, 0, 2, 1] dilations [1, 3] groups 2 : tensor<8x4x9x9xf32>, tensor<8x6x4x9xf32> to tensor<6x2x3x2xf32>
  // CHECK: nn.conv2d_weight_parts %{{.*}}, %{{.*}} window [3, 2] strides [2, 1] padding [1, 0, 2, 1] dilations [1, 3] examples 3 : tensor<8x4x9x9xf32>, tensor<8x6x4x9xf32>
  %parts = nn.conv2d_weight_parts %x, %g window [3, 2] strides [2, 1] padding [1, 0, 2, 1] dilations [1, 3] examples 3 : tensor<8x4x9x9xf32>, tensor<8x6x4x9xf32>
  // The last part has fewer examples.
  %sum = nn.reduce sum %parts dims [0] : tensor<3x4x3x2x6xf32>
  return
}

// CHECK-LABEL: @columns
func.func @columns(%x: tensor<8x4x9x9xbf16>) -> tensor<8x4x9x9xbf16> {
  // CHECK: nn.im2col %{{.*}} window [3, 3] strides [2, 2] : tensor<8x4x9x9xbf16>
  %m = nn.im2col %x window [3, 3] strides [2, 2] : tensor<8x4x9x9xbf16>
  // CHECK: nn.col2im %{{.*}} strides [2, 2] : tensor<4x3x3x8x4x4xbf16> to tensor<8x4x9x9xbf16>
  %y = nn.col2im %m strides [2, 2] : tensor<4x3x3x8x4x4xbf16> to tensor<8x4x9x9xbf16>
  return %y : tensor<8x4x9x9xbf16>
}

// CHECK-LABEL: @pool
func.func @pool(%x: tensor<8x4x9x9xf64>) {
  // CHECK: nn.max_pool2d %{{.*}} window [2, 2] : tensor<8x4x9x9xf64>
  %y, %at = nn.max_pool2d %x window [2, 2] : tensor<8x4x9x9xf64>
  // CHECK: nn.max_pool2d_grad %{{.*}}, %{{.*}} window [2, 2] : tensor<8x4x4x4xf64>, tensor<8x4x4x4xi32> to tensor<8x4x9x9xf64>
  %dx = nn.max_pool2d_grad %y, %at window [2, 2] : tensor<8x4x4x4xf64>, tensor<8x4x4x4xi32> to tensor<8x4x9x9xf64>
  // CHECK: nn.avg_pool2d %{{.*}} window [3, 3] strides [2, 2] padding [1, 1, 1, 1] {count_include_pad = false} : tensor<8x4x9x9xf64>
  %m = nn.avg_pool2d %x window [3, 3] strides [2, 2] padding [1, 1, 1, 1] {count_include_pad = false} : tensor<8x4x9x9xf64>
  // CHECK: nn.avg_pool2d_grad %{{.*}} window [3, 3] strides [2, 2] padding [1, 1, 1, 1] {count_include_pad = false} : tensor<8x4x5x5xf64> to tensor<8x4x9x9xf64>
  %dm = nn.avg_pool2d_grad %m window [3, 3] strides [2, 2] padding [1, 1, 1, 1] {count_include_pad = false} : tensor<8x4x5x5xf64> to tensor<8x4x9x9xf64>
  return
}
