// RUN: trainc-opt %s --train-lower-kernels --split-input-file | FileCheck %s

// Without broadcasting all dimensions are one.
// CHECK-LABEL: func.func @flat
// CHECK: scf.for %{{.*}} = %c0 to %c512 step %c32
// CHECK-NOT: scf.for
// CHECK: vector.store
train.kernel @flat(%x: tensor<4x8x16xf32>, %y: tensor<4x8x16xf32>) inplace [-1] {
  %z = nn.mul %x, %y : tensor<4x8x16xf32>, tensor<4x8x16xf32>
  train.return %z : tensor<4x8x16xf32>
}

// -----

// A dimension that one operand lacks stays apart: 4 x 8 rows of 16 lanes.
// CHECK-LABEL: func.func @middle
// CHECK: scf.for %[[ROW:.*]] = %
// CHECK: %[[OUTER:.*]] = arith.divui %[[ROW]], %c8
// CHECK: %[[INNER:.*]] = arith.remui %[[ROW]], %c8
// CHECK: %[[YAT:.*]] = arith.muli %[[OUTER]], %c16
// CHECK: vector.maskedload %arg1[%[[YAT]]]
train.kernel @middle(%x: tensor<4x8x16xf32>, %y: tensor<4x1x16xf32>) inplace [-1] {
  %z = nn.mul %x, %y : tensor<4x8x16xf32>, tensor<4x1x16xf32>
  train.return %z : tensor<4x8x16xf32>
}

// -----

// Leading dimensions with the same broadcasting are one: 32 rows.
// CHECK-LABEL: func.func @rows
// CHECK: scf.for
// CHECK-NOT: arith.divui
// CHECK: return
train.kernel @rows(%x: tensor<4x8x16xf32>, %y: tensor<16xf32>) inplace [-1] {
  %z = nn.mul %x, %y : tensor<4x8x16xf32>, tensor<16xf32>
  train.return %z : tensor<4x8x16xf32>
}
