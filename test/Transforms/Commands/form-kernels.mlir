// RUN: trainc-opt %s --train-form-kernels --split-input-file | FileCheck %s
// RUN: trainc-opt %s --train-form-kernels="fuse=false" --split-input-file | FileCheck %s --check-prefix=ALONE

// Pointwise ops and the row reduction share a kernel; equal kernels are one.
// CHECK-LABEL: train.list @fused
// CHECK: train.launch @[[K:.*]](%{{.*}}) : (tensor<4x8xf32>) -> tensor<4x1xf32>
// CHECK: train.launch @[[K]](%{{.*}}) : (tensor<4x8xf32>) -> tensor<4x1xf32>
// CHECK: train.kernel @[[K]]
// CHECK-NEXT: nn.exp
// CHECK-NEXT: nn.reduce sum
// CHECK-NOT: train.kernel
// ALONE-LABEL: train.list @fused
// ALONE-COUNT-4: train.launch
train.list @fused of @e "first" (%x: tensor<4x8xf32>, %y: tensor<4x8xf32>) {
  %a = nn.exp %x : tensor<4x8xf32>
  %b = nn.reduce sum %a dims [1] keep : tensor<4x8xf32>
  %c = nn.exp %y : tensor<4x8xf32>
  %d = nn.reduce sum %c dims [1] keep : tensor<4x8xf32>
  train.return %b, %d : tensor<4x1xf32>, tensor<4x1xf32>
}

// -----

// A reduction that needs the other's result does not share its loop over columns.
// CHECK-LABEL: train.list @columns
// CHECK-COUNT-2: train.launch
// CHECK-NOT: train.launch
train.list @columns of @e "first" (%x: tensor<4x8xf32>) {
  %m = nn.reduce max %x dims [0] keep : tensor<4x8xf32>
  %d = nn.sub %x, %m : tensor<4x8xf32>, tensor<1x8xf32>
  %s = nn.reduce sum %d dims [0] keep : tensor<4x8xf32>
  train.return %m, %s : tensor<1x8xf32>, tensor<1x8xf32>
}

// -----

// A product is a GEMM, which adds to the slice that it is added to in place.
// CHECK-LABEL: train.list @gemm
// CHECK: %[[OLD:.*]] = train.read @g::@w
// CHECK: train.gemm %{{.*}}, %{{.*}} init %[[OLD]] m 4 n 5 k 8 batch 1
train.arena @g gradient {
  train.slice @w : tensor<4x5xf32>
}
train.list @gemm of @e "next" (%x: tensor<4x8xf32>, %y: tensor<8x5xf32>) {
  %p = nn.matmul %x, %y : tensor<4x8xf32>, tensor<8x5xf32>
  %o = train.read @g::@w : tensor<4x5xf32>
  %n = nn.add %o, %p : tensor<4x5xf32>, tensor<4x5xf32>
  train.write %n to @g::@w : tensor<4x5xf32>
  train.return
}

// -----

// What has a smaller rank than its kernel is not written over what all workgroups read, nor is what is read by a second name.
// CHECK-LABEL: train.list @shared_in_place
// CHECK: train.launch @[[K:[a-z_]*]](
// CHECK: train.launch @[[L:[a-z_]*]](
// CHECK: train.kernel @[[K]](
// CHECK-SAME: inplace [-1, -1]
// CHECK: train.kernel @[[L]](
// CHECK-SAME: inplace [-1]
train.bucket @bucket [@b, @c] elements(256) offsets([0, 16])
train.arena @g buffer {
  train.slice @b : tensor<16xf32>
  train.slice @c : tensor<8x16xf32>
  train.span @bucket
}
train.list @shared_in_place of @e "first" (%x: tensor<8x16xf32>) {
  %b = train.read @g::@b : tensor<16xf32>
  %n = nn.neg %b : tensor<16xf32>
  %y = nn.mul %x, %n : tensor<8x16xf32>, tensor<16xf32>
  train.write %n to @g::@b : tensor<16xf32>
  %c = train.read @g::@c : tensor<8x16xf32>
  %d = train.read @g::@c : tensor<8x16xf32>
  %e = nn.add %c, %d : tensor<8x16xf32>, tensor<8x16xf32>
  train.write %e to @g::@c : tensor<8x16xf32>
  train.return %y : tensor<8x16xf32>
}

// -----

// Attention takes a constant mask from memory: it is a kernel of its own.
// CHECK-LABEL: train.list @mask
// CHECK: %[[MASK:.*]] = train.launch @k_constant()
// CHECK: train.launch @[[K:.*]](%{{.*}}, %[[MASK]])
// CHECK: train.kernel @[[K]]
// CHECK-NEXT: nn.packed_attention
train.list @mask of @e "first" (%x: tensor<1x2x12xf32>) {
  %m = nn.constant dense<[[true, false], [true, true]]> : tensor<2x2xi1>
  %out, %lse = nn.packed_attention %x mask %m heads 2 : tensor<1x2x12xf32>, tensor<2x2xi1>
  train.return %out : tensor<1x2x4xf32>
}

// -----

// It does nothing to what is no computation.
// CHECK-LABEL: train.list @none
// CHECK-NEXT: train.return
// CHECK-NOT: train.kernel
train.list @none of @e "first" (%x: tensor<4xf32>) {
  train.return %x : tensor<4xf32>
}
