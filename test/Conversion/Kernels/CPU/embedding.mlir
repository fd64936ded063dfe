// RUN: trainc-opt %s --train-lower-kernels --split-input-file | FileCheck %s

// Each tile owns rows of the table: it clears them, then adds what is for them.
// CHECK-LABEL: func.func @first(
// CHECK-SAME: tiles = 4
// CHECK: vector.store %{{.*}} : memref<262144xf32>
// CHECK: scf.for
// CHECK: scf.if
// CHECK: arith.addf
train.kernel @first(%i: tensor<5xi32>, %d: tensor<5x64xf32>) inplace [-1] {
  %g = nn.embedding_grad %i, %d : tensor<5xi32>, tensor<5x64xf32> to tensor<4096x64xf32>
  train.return %g : tensor<4096x64xf32>
}

// -----

// In place there is nothing to clear. Rows that end within a vector are masked.
// CHECK-LABEL: func.func @inplace(
// CHECK-NOT: vector.store
// CHECK: vector.maskedstore
// CHECK-NOT: vector.maskedstore
train.kernel @inplace(%i: tensor<5xi64>, %d: tensor<5x7xf32>, %s: tensor<9x7xf32>) inplace [2] {
  %g = nn.embedding_grad %i, %d init %s : tensor<9x7xf32> : tensor<5xi64>, tensor<5x7xf32> to tensor<9x7xf32>
  train.return %g : tensor<9x7xf32>
}
