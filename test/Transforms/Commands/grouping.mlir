// RUN: trainc-opt %s --train-form-kernels --split-input-file | FileCheck %s

// A join that would close a cycle through a third kernel is not made.
// CHECK-LABEL: train.list @cycle
// CHECK-COUNT-3: train.launch
// CHECK-NOT: train.launch
train.list @cycle of @e "first" (%i: tensor<6xi32>, %x: tensor<6x8xf32>) {
  %a = nn.exp %x : tensor<6x8xf32>
  %g = nn.embedding_grad %i, %a : tensor<6xi32>, tensor<6x8xf32> to tensor<6x8xf32>
  %s = nn.add %a, %g : tensor<6x8xf32>, tensor<6x8xf32>
  train.return %s : tensor<6x8xf32>
}

// -----

// Without the way through it, it is.
// CHECK-LABEL: train.list @no_cycle
// CHECK-COUNT-2: train.launch
// CHECK-NOT: train.launch
train.list @no_cycle of @e "first" (%i: tensor<6xi32>, %x: tensor<6x8xf32>) {
  %a = nn.exp %x : tensor<6x8xf32>
  %g = nn.embedding_grad %i, %x : tensor<6xi32>, tensor<6x8xf32> to tensor<6x8xf32>
  %s = nn.add %a, %g : tensor<6x8xf32>, tensor<6x8xf32>
  train.return %a, %s : tensor<6x8xf32>, tensor<6x8xf32>
}

// -----

// Reductions over the same dimensions share a kernel; those over others do not.
// CHECK-LABEL: train.list @columns
// CHECK-COUNT-1: train.launch
// CHECK-NOT: train.launch
train.list @columns of @e "first" (%x: tensor<64x8xf32>, %y: tensor<64x8xf32>) {
  %p = nn.mul %x, %y : tensor<64x8xf32>, tensor<64x8xf32>
  %a = nn.reduce sum %p dims [0] : tensor<64x8xf32>
  %b = nn.reduce sum %x dims [0] : tensor<64x8xf32>
  train.return %a, %b : tensor<8xf32>, tensor<8xf32>
}

// -----

// CHECK-LABEL: train.list @both
// CHECK-COUNT-2: train.launch
// CHECK-NOT: train.launch
train.list @both of @e "first" (%x: tensor<64x8xf32>) {
  %a = nn.reduce sum %x dims [1] : tensor<64x8xf32>
  %b = nn.reduce sum %x dims [0] : tensor<64x8xf32>
  train.return %a, %b : tensor<64xf32>, tensor<8xf32>
}
