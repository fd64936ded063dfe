// RUN: trainc-opt %s --verify-roundtrip | FileCheck %s

train.list @tensors of @step "first" (%x: tensor<8x4x9x9xf32>, %w: tensor<6x2x3x3xf32>, %g: tensor<8x6x5x5xf32>, %h: tensor<8x6x5x5xbf16>, %v: tensor<8x4x9x9xbf16>) {
  // CHECK: train.convolution forward %{{.*}}, %{{.*}} strides [2, 2] padding [1, 1, 1, 1] dilations [1, 1] groups 2 : tensor<8x4x9x9xf32>, tensor<6x2x3x3xf32> -> tensor<8x6x5x5xf32>
  %y = train.convolution forward %x, %w strides [2, 2] padding [1, 1, 1, 1] dilations [1, 1] groups 2 : tensor<8x4x9x9xf32>, tensor<6x2x3x3xf32> -> tensor<8x6x5x5xf32>
  // CHECK: train.convolution input_gradient %{{.*}}, %{{.*}} strides [2, 2] padding [1, 1, 1, 1] dilations [1, 1] groups 2 plan <back_end = vector, tiles = 4> : tensor<6x2x3x3xf32>, tensor<8x6x5x5xf32> -> tensor<8x4x9x9xf32>
  %dx = train.convolution input_gradient %w, %g strides [2, 2] padding [1, 1, 1, 1] dilations [1, 1] groups 2 plan <back_end = vector, tiles = 4> : tensor<6x2x3x3xf32>, tensor<8x6x5x5xf32> -> tensor<8x4x9x9xf32>
  // CHECK: train.convolution weight_gradient %{{.*}}, %{{.*}} init %{{.*}} strides [2, 2] padding [1, 1, 1, 1] dilations [1, 1] groups 2 : tensor<8x4x9x9xbf16>, tensor<8x6x5x5xbf16> init tensor<6x2x3x3xf32> -> tensor<6x2x3x3xf32>
  %dw = train.convolution weight_gradient %v, %h init %w strides [2, 2] padding [1, 1, 1, 1] dilations [1, 1] groups 2 : tensor<8x4x9x9xbf16>, tensor<8x6x5x5xbf16> init tensor<6x2x3x3xf32> -> tensor<6x2x3x3xf32>
  train.return
}

train.list @buffers of @step "first" () workspace(0) {
  %x = train.address input 0 : memref<8x4x9x9xf32>
  %g = train.address input 1 : memref<8x6x5x5xf32>
  %w = train.address output 0 : memref<6x2x3x3xf32>
  // CHECK: train.convolution weight_gradient %{{.*}}, %{{.*}} out(%{{.*}} : memref<6x2x3x3xf32>) strides [2, 2] padding [1, 1, 1, 1] dilations [1, 1] groups 2 accumulate plan <back_end = amx, tiles = 1> : memref<8x4x9x9xf32>, memref<8x6x5x5xf32>{{$}}
  train.convolution weight_gradient %x, %g out(%w : memref<6x2x3x3xf32>) strides [2, 2] padding [1, 1, 1, 1] dilations [1, 1] groups 2 accumulate plan <back_end = amx, tiles = 1> : memref<8x4x9x9xf32>, memref<8x6x5x5xf32>
  train.return
}
