// RUN: trainc-opt %s --train-lower-kernels --split-input-file | FileCheck %s
// RUN: trainc-opt %s --train-lower-kernels="generic=true" --split-input-file | FileCheck %s --check-prefix=GENERIC

// Pointwise ops are loops over vectors of 32, the rest masked.
// CHECK-LABEL: train.kernel @point
// CHECK-SAME: abi = #train.abi<workgroups = 1>
// CHECK-LABEL: module @kernels
// CHECK: func.func @point(%[[X:.*]]: memref<70xf32> {llvm.noalias}, %[[Y:.*]]: memref<70xf32> {llvm.noalias}, %{{.*}}: index)
// CHECK: scf.for
// CHECK: vector.load %[[X]]
// CHECK: vector.store %{{.*}}, %[[Y]]
// CHECK: vector.maskedload %[[X]]
// GENERIC-LABEL: func.func @point
// GENERIC: scf.parallel
// GENERIC-NOT: memref.alloc
train.kernel @point(%x: tensor<7x10xf32>) inplace [-1] {
  %y = nn.neg %x : tensor<7x10xf32>
  train.return %y : tensor<7x10xf32>
}

// -----

// A result in place has no argument of its own. A row has 32 lanes, which are halved.
// CHECK-LABEL: func.func @inplace(%{{.*}}: memref<64xf32> {llvm.noalias}, %{{.*}}: index)
// CHECK-LABEL: func.func @row
// CHECK: scf.for {{.*}} -> (vector<32xf32>)
// CHECK: arith.addf %{{.*}} : vector<16xf32>
// CHECK: arith.addf %{{.*}} : vector<1xf32>
// GENERIC-LABEL: func.func @inplace
// GENERIC-LABEL: func.func @row
// GENERIC: %[[LANES:.*]] = memref.alloc
// GENERIC: memref.dealloc %[[LANES]]
train.kernel @inplace(%x: tensor<64xf32>) inplace [0] {
  %y = nn.neg %x : tensor<64xf32>
  train.return %y : tensor<64xf32>
}
train.kernel @row(%x: tensor<4x64xf32>) inplace [-1] {
  %y = nn.reduce sum %x dims [1] keep : tensor<4x64xf32>
  train.return %y : tensor<4x1xf32>
}

// -----

// A result of smaller rank is stored by the first row, which others do not wait for: no row loads it. What is costly stays
// in a row buffer, what is cheap is computed again. The dimension that workgroups cut has one that stores a scalar.
// CHECK-LABEL: func.func @shared
// CHECK-SAME: %[[MASK:[a-z0-9]*]]: memref<64xi8> {llvm.noalias}, %[[E:[a-z0-9]*]]: memref<64xf32> {llvm.noalias}, %[[Y:[a-z0-9]*]]: memref<65536xf32> {llvm.noalias}, %[[TILE:[a-z0-9]*]]: index)
// CHECK-SAME: tiles = 16
// CHECK: %[[BUFFER:.*]] = memref.alloca() {{.*}}: memref<64xf32>
// CHECK-NOT: vector.load %[[MASK]]
// CHECK-NOT: vector.load %[[E]]
// CHECK: vector.store %{{.*}}, %[[BUFFER]]
// CHECK: scf.if
// CHECK: vector.store %{{.*}}, %[[E]]
// CHECK: vector.load %[[BUFFER]]
// CHECK-NOT: vector.load %[[MASK]]
// CHECK-NOT: vector.load %[[E]]
// CHECK: vector.store %{{.*}}, %[[Y]]
// CHECK-LABEL: func.func @scalar
// CHECK-SAME: %[[TILE:[a-z0-9]*]]: index)
// CHECK-SAME: tiles = 3
// CHECK: %[[FIRST:.*]] = arith.cmpi eq, %[[TILE]], %c0
// CHECK: scf.if %[[FIRST]] {
// CHECK-NEXT: memref.store
train.kernel @shared(%m: tensor<64xi8>, %b: tensor<64xf32>, %x: tensor<1024x64xf32>) inplace [-1, -1, -1] {
  %mask = nn.cast %m to i1 : tensor<64xi8>
  %e = nn.exp %b : tensor<64xf32>
  %z = nn.select %mask, %x, %e : tensor<64xi1>, tensor<1024x64xf32>, tensor<64xf32>
  %s = nn.reduce sum %z dims [1] keep : tensor<1024x64xf32>
  %t = nn.mul %x, %s : tensor<1024x64xf32>, tensor<1024x1xf32>
  %y = nn.select %mask, %t, %e : tensor<64xi1>, tensor<1024x64xf32>, tensor<64xf32>
  train.return %mask, %e, %y : tensor<64xi1>, tensor<64xf32>, tensor<1024x64xf32>
}
train.kernel @scalar(%a: tensor<f32>, %x: tensor<10000xf32>) inplace [-1, -1] {
  %b = nn.neg %a : tensor<f32>
  %y = nn.mul %x, %b : tensor<10000xf32>, tensor<f32>
  train.return %b, %y : tensor<f32>, tensor<10000xf32>
}

// -----

// Other kernels go through linalg; results are computed where they belong.
// CHECK-LABEL: func.func @rotate
// CHECK-SAME: %[[Y:[a-z0-9]*]]: memref<48xf32> {llvm.noalias}, %{{[a-z0-9]*}}: index)
// CHECK-NOT: memref.alloc
// CHECK: scf.parallel
// CHECK: memref.store %{{.*}}, %[[Y]]
// CHECK-NOT: memref.copy
train.kernel @rotate(%x: tensor<2x3x2x4xf32>, %c: tensor<3x2xf32>, %s: tensor<3x2xf32>) inplace [-1] {
  %y = nn.rotate_pairs %x, %c, %s : tensor<2x3x2x4xf32>, tensor<3x2xf32>
  train.return %y : tensor<2x3x2x4xf32>
}

// -----

// It does nothing to a module without kernels but add an empty @kernels.
// CHECK-LABEL: train.eval @none
// CHECK-NEXT: train.yield
// CHECK: module @kernels {
// CHECK-NEXT: }
train.eval @none(%x: tensor<4xf32>) -> ("y") {
  train.yield %x : tensor<4xf32>
}

// -----

// Many elements are cut into at most 128 tiles, of whole vectors: 3000032 / 128,
// rounded up to a multiple of 32.
// CHECK-LABEL: func.func @many(
// CHECK-SAME: tiles = 128
// CHECK: arith.constant 23456 : index
train.kernel @many(%x: tensor<3000032xf32>) inplace [0] {
  %y = nn.neg %x : tensor<3000032xf32>
  train.return %y : tensor<3000032xf32>
}
