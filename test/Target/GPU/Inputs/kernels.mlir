// Kernels of the kinds that a training step needs, each compared with NumPy by
// emulate-kernels.py.
gpu.module @kernels [#nvvm.target<chip = "sm_90", features = "+ptx90">] {
  // y = x * s + exp(x): 4 elements per thread.
  gpu.func @elementwise(%x: memref<1024xf32> {llvm.align = 16}, %y: memref<1024xf32> {llvm.align = 16}, %s: f32) kernel {
    %t = gpu.global_id x
    %c4 = arith.constant 4 : index
    %i = arith.muli %t, %c4 : index
    %v = vector.load %x[%i] {alignment = 16} : memref<1024xf32>, vector<4xf32>
    %vs = vector.broadcast %s : f32 to vector<4xf32>
    %p = arith.mulf %v, %vs : vector<4xf32>
    %e = math.exp %v : vector<4xf32>
    %r = arith.addf %p, %e : vector<4xf32>
    vector.store %r, %y[%i] {alignment = 16} : memref<1024xf32>, vector<4xf32>
    gpu.return
  }

  // One sum per block of 256 threads: shuffles, one value per warp in shared
  // memory, one barrier, shuffles of the whole first warp.
  gpu.func @block_sum(%x: memref<1024xf32>, %out: memref<4xf32>)
      workgroup(%sums: memref<8xf32, #gpu.address_space<workgroup>>) kernel
      attributes {known_block_size = array<i32: 256, 1, 1>} {
    %i = gpu.global_id x
    %t = gpu.thread_id x
    %b = gpu.block_id x
    %c0 = arith.constant 0 : index
    %c8 = arith.constant 8 : index
    %c32 = arith.constant 32 : index
    %zero = arith.constant 0.0 : f32
    %v = memref.load %x[%i] : memref<1024xf32>
    %w = func.call @warp_sum(%v) : (f32) -> f32
    %lane = arith.remui %t, %c32 : index
    %warp = arith.divui %t, %c32 : index
    %first = arith.cmpi eq, %lane, %c0 : index
    scf.if %first {
      memref.store %w, %sums[%warp] : memref<8xf32, #gpu.address_space<workgroup>>
    }
    gpu.barrier
    %inFirst = arith.cmpi ult, %t, %c32 : index
    scf.if %inFirst {
      %has = arith.cmpi ult, %lane, %c8 : index
      %part = scf.if %has -> f32 {
        %p = memref.load %sums[%lane] : memref<8xf32, #gpu.address_space<workgroup>>
        scf.yield %p : f32
      } else {
        scf.yield %zero : f32
      }
      %all = func.call @warp_sum(%part) : (f32) -> f32
      scf.if %first {
        memref.store %all, %out[%b] : memref<4xf32>
      }
    }
    gpu.return
  }

  func.func private @warp_sum(%v: f32) -> f32 {
    %width = arith.constant 32 : i32
    %o16 = arith.constant 16 : i32
    %o8 = arith.constant 8 : i32
    %o4 = arith.constant 4 : i32
    %o2 = arith.constant 2 : i32
    %o1 = arith.constant 1 : i32
    %a, %pa = gpu.shuffle xor %v, %o16, %width : f32
    %sa = arith.addf %v, %a : f32
    %b, %pb = gpu.shuffle xor %sa, %o8, %width : f32
    %sb = arith.addf %sa, %b : f32
    %c, %pc = gpu.shuffle xor %sb, %o4, %width : f32
    %sc = arith.addf %sb, %c : f32
    %d, %pd = gpu.shuffle xor %sc, %o2, %width : f32
    %sd = arith.addf %sc, %d : f32
    %e, %pe = gpu.shuffle xor %sd, %o1, %width : f32
    %se = arith.addf %sd, %e : f32
    return %se : f32
  }

  // A warp per row of 128 elements, in bf16, 4 warps per block: y = (x - mean) /
  // sqrt(variance + 1e-5) * scale.
  gpu.func @layer_norm(%x: memref<8x128xbf16>, %scale: memref<128xf32>, %y: memref<8x128xbf16>) kernel
      attributes {known_block_size = array<i32: 32, 4, 1>} {
    %lane = gpu.thread_id x
    %warp = gpu.thread_id y
    %b = gpu.block_id x
    %c4 = arith.constant 4 : index
    %row0 = arith.muli %b, %c4 : index
    %row = arith.addi %row0, %warp : index
    %column = arith.muli %lane, %c4 : index
    %zero = arith.constant 0.0 : f32
    %n = arith.constant 128.0 : f32
    %eps = arith.constant 1.0e-5 : f32
    %h = vector.load %x[%row, %column] {alignment = 8} : memref<8x128xbf16>, vector<4xbf16>
    %v = arith.extf %h : vector<4xbf16> to vector<4xf32>
    %s = vector.reduction <add>, %v, %zero : vector<4xf32> into f32
    %sum = func.call @warp_sum(%s) : (f32) -> f32
    %mean = arith.divf %sum, %n : f32
    %means = vector.broadcast %mean : f32 to vector<4xf32>
    %d = arith.subf %v, %means : vector<4xf32>
    %d2 = arith.mulf %d, %d : vector<4xf32>
    %q = vector.reduction <add>, %d2, %zero : vector<4xf32> into f32
    %squares = func.call @warp_sum(%q) : (f32) -> f32
    %variance = arith.divf %squares, %n : f32
    %shifted = arith.addf %variance, %eps : f32
    %rstd = math.rsqrt %shifted : f32
    %rstds = vector.broadcast %rstd : f32 to vector<4xf32>
    %w = vector.load %scale[%column] {alignment = 16} : memref<128xf32>, vector<4xf32>
    %dn = arith.mulf %d, %rstds : vector<4xf32>
    %r = arith.mulf %dn, %w : vector<4xf32>
    %t = arith.truncf %r : vector<4xf32> to vector<4xbf16>
    vector.store %t, %y[%row, %column] {alignment = 8} : memref<8x128xbf16>, vector<4xbf16>
    gpu.return
  }

  // c = a b, 32 x 48 x 32, by tiles of 16 x 16 in shared memory.
  gpu.func @matmul(%a: memref<32x48xf32>, %b: memref<48x32xf32>, %c: memref<32x32xf32>)
      workgroup(%at: memref<16x16xf32, #gpu.address_space<workgroup>>,
                %bt: memref<16x16xf32, #gpu.address_space<workgroup>>) kernel
      attributes {known_block_size = array<i32: 16, 16, 1>} {
    %tx = gpu.thread_id x
    %ty = gpu.thread_id y
    %bx = gpu.block_id x
    %by = gpu.block_id y
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c16 = arith.constant 16 : index
    %c48 = arith.constant 48 : index
    %zero = arith.constant 0.0 : f32
    %r0 = arith.muli %by, %c16 : index
    %row = arith.addi %r0, %ty : index
    %l0 = arith.muli %bx, %c16 : index
    %column = arith.addi %l0, %tx : index
    %sum = scf.for %k0 = %c0 to %c48 step %c16 iter_args(%acc = %zero) -> f32 {
      %ka = arith.addi %k0, %tx : index
      %kb = arith.addi %k0, %ty : index
      %av = memref.load %a[%row, %ka] : memref<32x48xf32>
      %bv = memref.load %b[%kb, %column] : memref<48x32xf32>
      memref.store %av, %at[%ty, %tx] : memref<16x16xf32, #gpu.address_space<workgroup>>
      memref.store %bv, %bt[%ty, %tx] : memref<16x16xf32, #gpu.address_space<workgroup>>
      gpu.barrier
      %inner = scf.for %k = %c0 to %c16 step %c1 iter_args(%in = %acc) -> f32 {
        %x = memref.load %at[%ty, %k] : memref<16x16xf32, #gpu.address_space<workgroup>>
        %y = memref.load %bt[%k, %tx] : memref<16x16xf32, #gpu.address_space<workgroup>>
        %p = arith.mulf %x, %y : f32
        %s = arith.addf %in, %p : f32
        scf.yield %s : f32
      }
      gpu.barrier
      scf.yield %inner : f32
    }
    memref.store %sum, %c[%row, %column] : memref<32x32xf32>
    gpu.return
  }

  // c = a b in bf16, one warp: a 16 x 16, b 16 x 8 (rows of k), c 16 x 8 in f32.
  // cp.async into shared memory, ldmatrix, mma.sync.
  gpu.func @tensor(%a: !llvm.ptr<1>, %b: !llvm.ptr<1>, %c: memref<16x8xf32>)
      workgroup(%as: memref<16x16xbf16, #gpu.address_space<workgroup>> {llvm.align = 16 : i64},
                %bs: memref<16x8xbf16, #gpu.address_space<workgroup>> {llvm.align = 16 : i64}) kernel {
    %t = gpu.thread_id x
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c4 = arith.constant 4 : index
    %c8 = arith.constant 8 : index
    %c16 = arith.constant 16 : index
    %c32 = arith.constant 32 : index
    %ai = memref.extract_aligned_pointer_as_index %as : memref<16x16xbf16, #gpu.address_space<workgroup>> -> index
    %bi = memref.extract_aligned_pointer_as_index %bs : memref<16x8xbf16, #gpu.address_space<workgroup>> -> index
    // 32 pieces of 16 bytes of a, 16 of b.
    %byte = arith.muli %t, %c16 : index
    %byte64 = arith.index_cast %byte : index to i64
    %ato = arith.addi %ai, %byte : index
    %ato64 = arith.index_cast %ato : index to i64
    %atop = llvm.inttoptr %ato64 : i64 to !llvm.ptr<3>
    %afrom = llvm.getelementptr %a[%byte64] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i8
    nvvm.cp.async.shared.global %atop, %afrom, 16, cache = cg : !llvm.ptr<3>, !llvm.ptr<1>
    %has = arith.cmpi ult, %t, %c16 : index
    scf.if %has {
      %bto = arith.addi %bi, %byte : index
      %bto64 = arith.index_cast %bto : index to i64
      %btop = llvm.inttoptr %bto64 : i64 to !llvm.ptr<3>
      %bfrom = llvm.getelementptr %b[%byte64] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i8
      nvvm.cp.async.shared.global %btop, %bfrom, 16, cache = cg : !llvm.ptr<3>, !llvm.ptr<1>
    }
    nvvm.cp.async.commit.group
    nvvm.cp.async.wait.group 0
    gpu.barrier
    // Lanes 0-15 give rows of the left half of a, lanes 16-31 of the right.
    %ar = arith.remui %t, %c16 : index
    %ah = arith.divui %t, %c16 : index
    %arow = arith.muli %ar, %c32 : index
    %acol = arith.muli %ah, %c16 : index
    %aoff = arith.addi %arow, %acol : index
    %aaddr = arith.addi %ai, %aoff : index
    %aaddr64 = arith.index_cast %aaddr : index to i64
    %ap = llvm.inttoptr %aaddr64 : i64 to !llvm.ptr<3>
    %am = nvvm.ldmatrix %ap {num = 4 : i32, layout = #nvvm.mma_layout<row>, shape = #nvvm.ld_st_matrix_shape<m = 8, n = 8>, eltType = #nvvm.ld_st_matrix_elt_type<b16>} : (!llvm.ptr<3>) -> !llvm.struct<(i32, i32, i32, i32)>
    // b is stored by rows of k, mma wants columns: transposed.
    %brow = arith.muli %ar, %c16 : index
    %baddr = arith.addi %bi, %brow : index
    %baddr64 = arith.index_cast %baddr : index to i64
    %bp = llvm.inttoptr %baddr64 : i64 to !llvm.ptr<3>
    %bm = nvvm.ldmatrix %bp {num = 2 : i32, layout = #nvvm.mma_layout<col>, shape = #nvvm.ld_st_matrix_shape<m = 8, n = 8>, eltType = #nvvm.ld_st_matrix_elt_type<b16>} : (!llvm.ptr<3>) -> !llvm.struct<(i32, i32)>
    %a0 = llvm.extractvalue %am[0] : !llvm.struct<(i32, i32, i32, i32)>
    %a1 = llvm.extractvalue %am[1] : !llvm.struct<(i32, i32, i32, i32)>
    %a2 = llvm.extractvalue %am[2] : !llvm.struct<(i32, i32, i32, i32)>
    %a3 = llvm.extractvalue %am[3] : !llvm.struct<(i32, i32, i32, i32)>
    %b0 = llvm.extractvalue %bm[0] : !llvm.struct<(i32, i32)>
    %b1 = llvm.extractvalue %bm[1] : !llvm.struct<(i32, i32)>
    %z = arith.constant 0.0 : f32
    %d = nvvm.mma.sync A[%a0, %a1, %a2, %a3] B[%b0, %b1] C[%z, %z, %z, %z]
        {layoutA = #nvvm.mma_layout<row>, layoutB = #nvvm.mma_layout<col>, multiplicandAPtxType = #nvvm.mma_type<bf16>, multiplicandBPtxType = #nvvm.mma_type<bf16>, shape = #nvvm.shape<m = 16, n = 8, k = 16>}
        : (i32, i32, f32) -> !llvm.struct<(f32, f32, f32, f32)>
    %d0 = llvm.extractvalue %d[0] : !llvm.struct<(f32, f32, f32, f32)>
    %d1 = llvm.extractvalue %d[1] : !llvm.struct<(f32, f32, f32, f32)>
    %d2 = llvm.extractvalue %d[2] : !llvm.struct<(f32, f32, f32, f32)>
    %d3 = llvm.extractvalue %d[3] : !llvm.struct<(f32, f32, f32, f32)>
    %g = arith.divui %t, %c4 : index
    %g8 = arith.addi %g, %c8 : index
    %p = arith.remui %t, %c4 : index
    %n0 = arith.muli %p, %c2 : index
    %n1 = arith.addi %n0, %c1 : index
    memref.store %d0, %c[%g, %n0] : memref<16x8xf32>
    memref.store %d1, %c[%g, %n1] : memref<16x8xf32>
    memref.store %d2, %c[%g8, %n0] : memref<16x8xf32>
    memref.store %d3, %c[%g8, %n1] : memref<16x8xf32>
    gpu.return
  }

  // The gradient of an embedding, by atomics: grad[index[i]] += dy[i], a block of 16
  // threads per i.
  gpu.func @embedding(%index: memref<64xi32>, %dy: memref<64x16xf32>, %grad: memref<10x16xf32>) kernel {
    %i = gpu.block_id x
    %j = gpu.thread_id x
    %row32 = memref.load %index[%i] : memref<64xi32>
    %row = arith.index_cast %row32 : i32 to index
    %v = memref.load %dy[%i, %j] : memref<64x16xf32>
    %old = memref.atomic_rmw addf %v, %grad[%row, %j] : (f32, memref<10x16xf32>) -> f32
    gpu.return
  }
}
