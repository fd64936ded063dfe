// RUN: trainc-opt %s --train-lower-kernels | FileCheck %s

// Planes of 8 x 8 with a row and a column of padding: 128 of them are a workgroup. Vectors of
// outputs go over their windows, with the places of the largest elements.
// CHECK-LABEL: func.func @max(
// CHECK-SAME: tiles = 8
// CHECK: 0xFF800000
// CHECK: vector.maskedstore
// CHECK: vector.maskedstore {{.*}} vector<32xi32>
train.kernel @max(%x: tensor<8x128x8x8xf32>) inplace [-1, -1] {
  %0, %1 = nn.max_pool2d %x window [3, 3] strides [2, 2] padding [1, 1, 1, 1] : tensor<8x128x8x8xf32>
  train.return %0, %1 : tensor<8x128x4x4xf32>, tensor<8x128x4x4xi32>
}

// Gradients are added where their maximum was.
// CHECK-LABEL: func.func @max_grad(
// CHECK-SAME: tiles = 8
// CHECK: arith.index_cast
// CHECK: scf.if
// CHECK: memref.store
train.kernel @max_grad(%g: tensor<8x128x4x4xf32>, %a: tensor<8x128x4x4xi32>) inplace [-1] {
  %0 = nn.max_pool2d_grad %g, %a window [3, 3] strides [2, 2] padding [1, 1, 1, 1] : tensor<8x128x4x4xf32>, tensor<8x128x4x4xi32> to tensor<8x128x8x8xf32>
  train.return %0 : tensor<8x128x8x8xf32>
}

// bf16 is summed up in f32.
// CHECK-LABEL: func.func @mean(
// CHECK: arith.extf
// CHECK: arith.addf {{.*}} vector<32xf32>
// CHECK: arith.divf {{.*}} vector<32xf32>
// CHECK: arith.truncf {{.*}} vector<32xf32> to vector<32xbf16>
train.kernel @mean(%x: tensor<2x3x40x40xbf16>) inplace [-1] {
  %0 = nn.avg_pool2d %x window [2, 2] : tensor<2x3x40x40xbf16>
  train.return %0 : tensor<2x3x20x20xbf16>
}

// Of padding that does not count, each window has its own divisor.
// CHECK-LABEL: func.func @mean_grad(
// CHECK: arith.maxsi
// CHECK: arith.sitofp {{.*}} : i32 to f32
// CHECK: arith.divf {{.*}} f32
train.kernel @mean_grad(%g: tensor<2x3x20x20xf32>) inplace [-1] {
  %0 = nn.avg_pool2d_grad %g window [3, 3] strides [2, 2] padding [1, 1, 1, 1] {count_include_pad = false} : tensor<2x3x20x20xf32> to tensor<2x3x40x40xf32>
  train.return %0 : tensor<2x3x40x40xf32>
}

// A plane that does not fit into scratch: the definition.
// CHECK-LABEL: func.func @large(
// CHECK-NOT: scratch
// CHECK: return
train.kernel @large(%x: tensor<1x1x1200x1200xf32>) inplace [-1] {
  %0 = nn.avg_pool2d %x window [2, 2] : tensor<1x1x1200x1200xf32>
  train.return %0 : tensor<1x1x600x600xf32>
}
