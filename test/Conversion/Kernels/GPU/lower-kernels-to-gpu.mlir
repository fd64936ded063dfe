// RUN: trainc-opt %s --train-lower-kernels-to-gpu --split-input-file | FileCheck %s

// Pointwise ops: a vector of 16 bytes for each thread, fewer where rows do not divide.
// CHECK-LABEL: train.kernel @point
// CHECK-SAME: #train.abi<workgroups = 3, threads = 256>
// CHECK: gpu.module @gpu_kernels
// CHECK: gpu.func @point(%[[X:.*]]: memref<2400xf32> {llvm.align = 16 : i64, llvm.noalias}, %[[Y:.*]]: memref<2400xf32> {{.*}}) kernel
// CHECK: %[[LESS:.*]] = arith.cmpi ult, %{{.*}}, %c600
// CHECK: scf.if %[[LESS]]
// CHECK: vector.load %[[X]]{{.*}} vector<4xf32>
// CHECK: vector.store %{{.*}}, %[[Y]]
// CHECK-LABEL: gpu.func @narrow(
// CHECK: vector.load {{.*}} vector<8xbf16>
// CHECK: arith.extf
// CHECK: arith.truncf
// CHECK: vector.store {{.*}} vector<8xbf16>
train.kernel @point(%x: tensor<24x100xf32>) inplace [-1] {
  %y = nn.neg %x : tensor<24x100xf32>
  train.return %y : tensor<24x100xf32>
}
train.kernel @narrow(%x: tensor<64xbf16>) inplace [0] {
  %y = nn.exp %x : tensor<64xbf16>
  train.return %y : tensor<64xbf16>
}

// -----

// Constants stand where vectors of them may be loaded.
// CHECK: memref.global "private" constant @{{.*}} : memref<8xf32> = dense<[1.000000e+00, {{.*}}> {alignment = 16 : i64}
train.kernel @constant(%x: tensor<8xf32>) inplace [-1] {
  %c = nn.constant dense<[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]> : tensor<8xf32>
  %y = nn.add %x, %c : tensor<8xf32>, tensor<8xf32>
  train.return %y : tensor<8xf32>
}

// -----

// A short row is a warp's: what it loads is there for all reductions, which end in
// shuffles; or a part of a warp's, if blocks are full of such rows. A long one is a
// block's: warps meet in shared memory; vectors begin where rows of odd length allow it.
// CHECK-LABEL: train.kernel @short
// CHECK-SAME: #train.abi<workgroups = 2, threads = 256>
// CHECK-LABEL: gpu.func @short(
// CHECK-COUNT-1: vector.load
// CHECK-NOT: vector.load
// CHECK-COUNT-10: gpu.shuffle xor
// CHECK-NOT: gpu.barrier
// CHECK: vector.store
// CHECK-LABEL: gpu.func @parts(
// CHECK-COUNT-1: vector.load
// CHECK-COUNT-3: gpu.shuffle xor
// CHECK-NOT: gpu.shuffle
// CHECK-LABEL: gpu.func @long(
// CHECK: scf.for
// CHECK: vector.load {{.*}} {alignment = 16 : i64} : memref<36004xf32>, vector<4xf32>
// CHECK: vector.load {{.*}} vector<1xf32>
// CHECK: gpu.shuffle
// CHECK: memref.store %{{.*}}, %[[PARTS:.*]][%{{.*}}] : memref<8xf32, 3>
// CHECK: gpu.barrier
// CHECK: memref.load %[[PARTS]]
// CHECK-COUNT-3: gpu.shuffle
// Vectors of the wider of two types are 32 bytes, of which 16 are known to be aligned.
// CHECK-LABEL: gpu.func @mixed(
// CHECK-DAG: vector.load {{.*}} {alignment = 16 : i64} : memref<36004xf32>, vector<8xf32>
// CHECK-DAG: vector.load {{.*}} {alignment = 16 : i64} : memref<36004xbf16>, vector<8xbf16>
// CHECK: vector.store {{.*}} {alignment = 16 : i64} : memref<36004xf32>, vector<8xf32>
train.kernel @short(%x: tensor<9x64xf32>) inplace [-1] {
  %s = nn.reduce sum %x dims [1] keep : tensor<9x64xf32>
  %d = nn.sub %x, %s : tensor<9x64xf32>, tensor<9x1xf32>
  %m = nn.reduce max %d dims [1] keep : tensor<9x64xf32>
  %y = nn.sub %d, %m : tensor<9x64xf32>, tensor<9x1xf32>
  train.return %y : tensor<9x64xf32>
}
train.kernel @parts(%x: tensor<96x64xbf16>) inplace [-1] {
  %c = nn.cast %x to f32 : tensor<96x64xbf16>
  %s = nn.reduce sum %c dims [1] keep : tensor<96x64xf32>
  train.return %s : tensor<96x1xf32>
}
train.kernel @long(%x: tensor<4x9001xf32>) inplace [-1] {
  %s = nn.reduce sum %x dims [1] keep : tensor<4x9001xf32>
  train.return %s : tensor<4x1xf32>
}
train.kernel @mixed(%x: tensor<4x9001xf32>, %y: tensor<4x9001xbf16>) inplace [-1, -1] {
  %c = nn.cast %y to f32 : tensor<4x9001xbf16>
  %z = nn.add %x, %c : tensor<4x9001xf32>, tensor<4x9001xf32>
  %s = nn.reduce sum %z dims [1] keep : tensor<4x9001xf32>
  train.return %z, %s : tensor<4x9001xf32>, tensor<4x1xf32>
}

// -----

// Columns: blocks that have a run of the rows each, counted; the last one adds the runs.
// CHECK-LABEL: train.kernel @columns
// CHECK-SAME: #train.abi<workgroups = 16, threads = 256, scratch = {{[0-9]+}}>
// CHECK-LABEL: gpu.func @columns(
// CHECK-SAME: memref<{{[0-9]+}}xi8>
// CHECK: gpu.barrier
// CHECK: llvm.fence syncscope("device") acq_rel
// CHECK-NEXT: memref.atomic_rmw addi
// CHECK-NEXT: llvm.fence syncscope("device") acq_rel
// CHECK: gpu.barrier
// CHECK: scf.if
// CHECK: scf.for
// CHECK: memref.store %c0_i32
train.kernel @columns(%x: tensor<1000x96xf32>) inplace [-1] {
  %s = nn.reduce sum %x dims [0] : tensor<1000x96xf32>
  train.return %s : tensor<96xf32>
}

// -----

// Runs of equal length that divide into batches: a thread loads four rows at once.
// CHECK-LABEL: gpu.func @batches(
// CHECK: scf.for
// CHECK-COUNT-4: vector.load {{.*}} vector<8xbf16>
// CHECK: arith.addf
// CHECK-NOT: vector.load {{.*}} vector<8xbf16>
// CHECK: scf.yield
train.kernel @batches(%x: tensor<4096x96xbf16>) inplace [-1] {
  %w = nn.cast %x to f32 : tensor<4096x96xbf16>
  %s = nn.reduce sum %w dims [0] : tensor<4096x96xf32>
  train.return %s : tensor<96xf32>
}

// -----

// A long row: a thread loads four vectors at once, two where it stores.
// CHECK-LABEL: gpu.func @long(
// CHECK-SAME: nvvm.minctasm = 4
// CHECK: scf.for
// CHECK-COUNT-4: vector.load {{.*}} vector<4xf32>
// CHECK: arith.maximumf
// CHECK: scf.for
// CHECK: vector.load {{.*}} vector<4xf32>
// CHECK: gpu.barrier
// CHECK: scf.for
// CHECK-COUNT-2: vector.load {{.*}} vector<4xf32>
// CHECK: arith.subf
train.kernel @long(%x: tensor<8x16384xf32>) inplace [-1] {
  %m = nn.reduce max %x dims [1] keep : tensor<8x16384xf32>
  %y = nn.sub %x, %m : tensor<8x16384xf32>, tensor<8x1xf32>
  train.return %y : tensor<8x16384xf32>
}

// -----

// Rows behind others: vectors of the input, or of the border.
// CHECK-LABEL: gpu.func @pad(
// CHECK: arith.cmpi ult, %{{.*}}, %c67
// CHECK: %[[ROW:.*]] = vector.load {{.*}} vector<8xbf16>
// CHECK: arith.select %{{.*}}, %[[ROW]], %cst
// CHECK: vector.store {{.*}} vector<8xbf16>
train.kernel @pad(%x: tensor<67x32xbf16>) inplace [-1] {
  %y = nn.pad %x low [0, 0] high [5, 0] value 0.0 : tensor<67x32xbf16>
  train.return %y : tensor<72x32xbf16>
}

// -----

// Embeddings: vectors of a row; of the gradient a block has some rows, whose ids its threads
// mark first.
// CHECK-LABEL: gpu.func @embedding(
// CHECK: vector.load {{.*}} vector<8xbf16>
// CHECK-LABEL: gpu.func @embedding_grad(
// CHECK: gpu.barrier
// CHECK: scf.for
// CHECK: memref.store {{.*}} memref<256xi32, 3>
// CHECK: gpu.barrier
// CHECK: memref.load {{.*}} memref<256xi32, 3>
// CHECK: llvm.intr.ctpop
// CHECK: llvm.intr.cttz
train.kernel @embedding(%t: tensor<50x64xbf16>, %i: tensor<7xi32>) inplace [-1] {
  %y = nn.embedding %t, %i : tensor<50x64xbf16>, tensor<7xi32>
  train.return %y : tensor<7x64xbf16>
}
train.kernel @embedding_grad(%i: tensor<7xi32>, %g: tensor<7x64xf32>) inplace [-1] {
  %y = nn.embedding_grad %i, %g : tensor<7xi32>, tensor<7x64xf32> to tensor<50x64xf32>
  train.return %y : tensor<50x64xf32>
}

// -----

// Other kernels go through linalg: a point for each thread.
// CHECK-LABEL: train.kernel @rotate
// CHECK-SAME: #train.abi<workgroups = 1, threads = {{[0-9]+}}>
// CHECK-LABEL: gpu.func @rotate(
// CHECK-NOT: scf.parallel
// CHECK: scf.if
// CHECK: memref.load
// CHECK: memref.store
train.kernel @rotate(%x: tensor<2x3x2x4xf32>, %c: tensor<3x2xf32>, %s: tensor<3x2xf32>) inplace [-1] {
  %y = nn.rotate_pairs %x, %c, %s : tensor<2x3x2x4xf32>, tensor<3x2xf32>
  train.return %y : tensor<2x3x2x4xf32>
}

// -----

// It does nothing to a module without kernels but add an empty @gpu_kernels.
// CHECK-LABEL: train.eval @none
// CHECK-NEXT: train.yield
// CHECK: gpu.module @gpu_kernels {
// CHECK-NEXT: }
train.eval @none(%x: tensor<4xf32>) -> ("y") {
  train.yield %x : tensor<4xf32>
}

// -----

// Square roots are LLVM's, in f32 at least. So many threads are known to be launched.
// CHECK-LABEL: gpu.func @roots(
// CHECK-SAME: known_block_size = array<i32: 256, 1, 1>
// CHECK-NOT: math.sqrt
// CHECK: %[[WIDE:.*]] = arith.extf %{{.*}} : vector<8xbf16> to vector<8xf32>
// CHECK: llvm.call_intrinsic "llvm.sqrt"(%[[WIDE]]) : (vector<8xf32>) -> vector<8xf32>
// CHECK: gpu.return
train.kernel @roots(%x: tensor<64xbf16>) inplace [0] {
  %y = nn.sqrt %x : tensor<64xbf16>
  train.return %y : tensor<64xbf16>
}

// -----

// A few rows are one thread's, and so many sums share their memory.
// CHECK-LABEL: gpu.func @few(
// CHECK-NOT: gpu.barrier
// CHECK: scf.for
// CHECK: vector.store {{.*}} vector<4xf32>
// CHECK: gpu.return
train.kernel @few(%x: tensor<4x5000xf32>) inplace [-1] {
  %s = nn.reduce sum %x dims [0] keep : tensor<4x5000xf32>
  train.return %s : tensor<1x5000xf32>
}

// -----

// A result of smaller rank is stored by the block of the first row, for which others do not wait: they compute it again.
// CHECK-LABEL: gpu.func @shared(
// CHECK-SAME: %[[B:[a-z0-9]*]]: memref<16384xf32> {{{[^}]*}}}, %{{[a-z0-9]*}}: memref<65536xf32> {{{[^}]*}}}, %[[E:[a-z0-9]*]]: memref<16384xf32>
// CHECK: vector.store %{{.*}}, %[[E]]
// CHECK-NOT: vector.load %[[E]]
// CHECK: vector.load %[[B]]
// CHECK-NEXT: math.exp
train.kernel @shared(%b: tensor<16384xf32>, %x: tensor<4x16384xf32>) inplace [-1, -1] {
  %e = nn.exp %b : tensor<16384xf32>
  %z = nn.mul %x, %e : tensor<4x16384xf32>, tensor<16384xf32>
  %s = nn.reduce sum %z dims [1] keep : tensor<4x16384xf32>
  %y = nn.mul %s, %e : tensor<4x1xf32>, tensor<16384xf32>
  train.return %e, %y : tensor<16384xf32>, tensor<4x16384xf32>
}
