// RUN: trainc-opt %s | trainc-opt | FileCheck %s
// RUN: trainc-opt %s --verify-roundtrip -o /dev/null

// CHECK-LABEL: @shapes
func.func @shapes(%x: tensor<4x8xf32>) -> tensor<8x4xf32> {
  // CHECK: nn.constant dense<1.000000e+00> : tensor<8xf32>
  %0 = nn.constant dense<1.0> : tensor<8xf32>
  // CHECK: nn.constant sparse<2, 5.000000e+00> : tensor<8xf32>
  %s = nn.constant sparse<[[2]], [5.0]> : tensor<8xf32>
  // CHECK: nn.constant dense_resource<listed> : tensor<2xi8>
  %l = nn.constant dense_resource<listed> : tensor<2xi8>
  // CHECK: nn.iota dim 1 : tensor<4x8xi32>
  %1 = nn.iota dim 1 : tensor<4x8xi32>
  // CHECK: nn.reshape %{{.*}} : tensor<4x8xf32> to tensor<32xf32>
  %2 = nn.reshape %x : tensor<4x8xf32> to tensor<32xf32>
  // CHECK: nn.broadcast %{{.*}} : tensor<4x8xf32> to tensor<2x4x8xf32>
  %3 = nn.broadcast %x : tensor<4x8xf32> to tensor<2x4x8xf32>
  // CHECK: nn.transpose %{{.*}} [1, 0] : tensor<4x8xf32>
  %4 = nn.transpose %x [1, 0] : tensor<4x8xf32>
  return %4 : tensor<8x4xf32>
}

// CHECK-LABEL: @indexing
func.func @indexing(%x: tensor<4x8xf32>, %i: tensor<4x3xi32>) -> (tensor<4x3xf32>, tensor<7x9xf32>, tensor<4x11xf32>) {
  // CHECK: nn.slice %{{.*}} offsets [0, 1] sizes [4, 7] : tensor<4x8xf32>
  %0 = nn.slice %x offsets [0, 1] sizes [4, 7] : tensor<4x8xf32>
  // CHECK: nn.slice %{{.*}} offsets [0, 1] sizes [4, 3] strides [1, 2] : tensor<4x8xf32>
  %1 = nn.slice %x offsets [0, 1] sizes [4, 3] strides [1, 2] : tensor<4x8xf32>
  // CHECK: nn.pad %{{.*}} low [0, 1] high [0, 0] interior [1, 0] value -1.000000e+00 : tensor<4x8xf32>
  %2 = nn.pad %x low [0, 1] high [0, 0] interior [1, 0] value -1.0 : tensor<4x8xf32>
  // CHECK: nn.concat %{{.*}}, %{{.*}} dim 1 : tensor<4x8xf32>, tensor<4x3xf32>
  %3 = nn.concat %x, %1 dim 1 : tensor<4x8xf32>, tensor<4x3xf32>
  // CHECK: nn.gather %{{.*}}, %{{.*}} dim 1 : tensor<4x8xf32>, tensor<4x3xi32>
  %4 = nn.gather %x, %i dim 1 : tensor<4x8xf32>, tensor<4x3xi32>
  // CHECK: nn.scatter_add %{{.*}}, %{{.*}} dim 1 : tensor<4x3xi32>, tensor<4x3xf32> to tensor<4x8xf32>
  %5 = nn.scatter_add %i, %4 dim 1 : tensor<4x3xi32>, tensor<4x3xf32> to tensor<4x8xf32>
  return %4, %2, %3 : tensor<4x3xf32>, tensor<7x9xf32>, tensor<4x11xf32>
}

// CHECK-LABEL: @part
func.func @part(%x: tensor<8x3xi1>, %i: tensor<i64>) -> tensor<2x3xi1> {
  // CHECK: nn.part %{{.*}} at %{{.*}} dim 0 of 4 : tensor<8x3xi1>
  %0 = nn.part %x at %i dim 0 of 4 : tensor<8x3xi1>
  return %0 : tensor<2x3xi1>
}

{-# dialect_resources: { builtin: { listed: "0x010000000203" } } #-}
