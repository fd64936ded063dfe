// RUN: trainc-opt %s --train-lower-kernels-to-gpu | FileCheck %s

// 64 pixels by 32 channels are a block's, 32 elements of windows at a time: 2 x 4 products
// of 16 x 8 x 16 by each warp. While these are made, the next elements are on their way:
// those of windows one by one, those of the weight as vectors.
// CHECK-LABEL: train.kernel @narrow
// CHECK-SAME: #train.abi<workgroups = 16, threads = 128>
// CHECK-LABEL: gpu.func @narrow(
// CHECK: scf.for
// CHECK: gpu.barrier
// CHECK-COUNT-3: vector.store {{.*}} vector<8xbf16>
// CHECK: gpu.barrier
// CHECK-COUNT-16: memref.load %arg0{{.*}} : memref<25088xbf16>
// CHECK-COUNT-1: vector.load %arg1{{.*}} {alignment = 16 : i64} : memref<9216xbf16>, vector<8xbf16>
// CHECK-COUNT-8: nvvm.mma.sync {{.*}} multiplicandAPtxType = #nvvm.mma_type<bf16>
// CHECK-NOT: nvvm.mma.sync
// CHECK: gpu.return
train.kernel @narrow(%x: tensor<4x32x14x14xbf16>, %w: tensor<32x32x3x3xbf16>) inplace [-1] {
  %y = nn.conv2d %x, %w padding [2, 2, 2, 2] : tensor<4x32x14x14xbf16>, tensor<32x32x3x3xbf16>
  train.return %y : tensor<4x32x16x16xbf16>
}

// The gradient of the input by additions. A stride divides: what is not whole is 0.
// CHECK-LABEL: gpu.func @input(
// CHECK: scf.for
// CHECK: arith.remui
// CHECK: math.fma
// CHECK: gpu.return
train.kernel @input(%w: tensor<6x4x3x3xf32>, %g: tensor<8x6x4x4xf32>) inplace [-1] {
  %dx = nn.conv2d_input_grad %w, %g strides [2, 2] : tensor<6x4x3x3xf32>, tensor<8x6x4x4xf32> to tensor<8x4x9x9xf32>
  train.return %dx : tensor<8x4x9x9xf32>
}

// The gradient of the weight: runs of pixels, which the block that ends last adds up.
// CHECK-LABEL: gpu.func @weight(
// CHECK-SAME: memref<{{[0-9]+}}xi8>
// CHECK: math.fma
// CHECK: llvm.fence syncscope("device") acq_rel
// CHECK-NEXT: memref.atomic_rmw addi
// CHECK-NEXT: llvm.fence syncscope("device") acq_rel
// CHECK: scf.if
// CHECK: scf.for
// CHECK: gpu.return
train.kernel @weight(%x: tensor<16x4x14x14xf32>, %g: tensor<16x6x14x14xf32>) inplace [-1] {
  %dw = nn.conv2d_weight_grad %x, %g padding [1, 1, 1, 1] groups 2 : tensor<16x4x14x14xf32>, tensor<16x6x14x14xf32> to tensor<6x2x3x3xf32>
  train.return %dw : tensor<6x2x3x3xf32>
}
