// RUN: trainc-opt %s --train-lower-kernels | FileCheck %s
// RUN: trainc-opt %s --train-lower-kernels=register-bytes=512 | FileCheck %s --check-prefix=NARROW

// One tile per example; scratch of one vector and 144 rows of columns of 64
// outputs each, and of a padded channel. Three quarters of the registers hold sums: of 11
// or 10 rows of 32 outputs in 32 registers of 64 bytes, of 6 rows of 16 in 16 of 32 bytes.
// CHECK-LABEL: func.func @forward(
// CHECK-SAME: scratch = 37632 : i64, tiles = 64
// CHECK: :11 = scf.for
// CHECK: math.fma {{.*}} : vector<32xf32>
// CHECK: :10 = scf.for
// CHECK-NOT: maskedstore
// NARROW-LABEL: func.func @forward(
// NARROW: :6 = scf.for
// NARROW: math.fma {{.*}} : vector<16xf32>
// NARROW: :2 = scf.for
train.kernel @forward(%x: tensor<64x16x8x8xf32>, %w: tensor<32x16x3x3xf32>) inplace [-1] {
  %0 = nn.conv2d %x, %w padding [1, 1, 1, 1] : tensor<64x16x8x8xf32>, tensor<32x16x3x3xf32>
  train.return %0 : tensor<64x32x8x8xf32>
}

// Two blocks of 11 rows of 23; the last lanes of a block are not stored.
// CHECK-LABEL: func.func @blocks(
// CHECK-SAME: scratch = 149120 : i64, tiles = 6
// CHECK: vector.maskedstore
train.kernel @blocks(%x: tensor<3x16x21x23xf32>, %w: tensor<20x16x3x3xf32>) inplace [-1] {
  %0 = nn.conv2d %x, %w padding [1, 1, 1, 1] : tensor<3x16x21x23xf32>, tensor<20x16x3x3xf32>
  train.return %0 : tensor<3x20x21x23xf32>
}

// The gradient of the input is a convolution of depth 32 x 9.
// CHECK-LABEL: func.func @input_grad(
// CHECK-SAME: scratch = 74496 : i64, tiles = 64
// CHECK: math.fma
train.kernel @input_grad(%w: tensor<32x16x3x3xf32>, %g: tensor<64x32x8x8xf32>) inplace [-1] {
  %0 = nn.conv2d_input_grad %w, %g padding [1, 1, 1, 1] : tensor<32x16x3x3xf32>, tensor<64x32x8x8xf32> to tensor<64x16x8x8xf32>
  train.return %0 : tensor<64x16x8x8xf32>
}

// A tile is a part; 16 x 16 elements of the grad are transposed in registers, or 8 x 8.
// CHECK-LABEL: func.func @weight_parts(
// CHECK-SAME: tiles = 16
// CHECK-COUNT-64: vector.shuffle
// NARROW-LABEL: func.func @weight_parts(
// NARROW-COUNT-24: vector.shuffle {{.*}} : vector<8xf32>
// NARROW-NOT: vector.shuffle
train.kernel @weight_parts(%x: tensor<64x16x8x8xf32>, %g: tensor<64x32x8x8xf32>) inplace [-1] {
  %0 = nn.conv2d_weight_parts %x, %g window [3, 3] padding [1, 1, 1, 1] examples 4 : tensor<64x16x8x8xf32>, tensor<64x32x8x8xf32>
  train.return %0 : tensor<16x16x3x3x32xf32>
}

// The columns of one row do not fit: the definition.
// CHECK-LABEL: func.func @deep(
// CHECK-NOT: vector.load
train.kernel @deep(%x: tensor<1x9000x4x4xf32>, %w: tensor<2x9000x3x3xf32>) inplace [-1] {
  %0 = nn.conv2d %x, %w : tensor<1x9000x4x4xf32>, tensor<2x9000x3x3xf32>
  train.return %0 : tensor<1x2x2x2xf32>
}
