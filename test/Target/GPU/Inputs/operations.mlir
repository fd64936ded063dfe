// Each operation of warps and blocks that the emulator knows, compared by
// emulate-operations.py with what the PTX ISA says.
gpu.module @operations {
  // out[lane][i]: the i-th result of a lane.
  gpu.func @warp(%out: memref<32x32xi32>) kernel attributes {known_block_size = array<i32: 32, 1, 1>} {
    %all = arith.constant -1 : i32
    %low = arith.constant 0xffff : i32
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c10 = arith.constant 10 : i32
    %c16 = arith.constant 16 : i32
    %c31 = arith.constant 31 : i32
    %c32 = arith.constant 32 : i32
    // Segments of 8 lanes: the clamp, and from bit 8 the bits that stay.
    %seg = arith.constant 0x181f : i32
    %lane = nvvm.read.ptx.sreg.laneid : i32
    %row = arith.index_cast %lane : i32 to index
    func.call @put(%out, %row, %c0, %lane) : (memref<32x32xi32>, index, i32, i32) -> ()
    %lt = nvvm.read.ptx.sreg.lanemask.lt : i32
    func.call @put(%out, %row, %c1, %lt) : (memref<32x32xi32>, index, i32, i32) -> ()
    %v10 = arith.muli %lane, %c10 : i32
    %v = arith.addi %v10, %c1 : i32

    %i8 = arith.constant 8 : i32
    %bfly = nvvm.shfl.sync bfly %all, %v, %c16, %c31 {return_value_and_is_valid} : i32 -> !llvm.struct<(i32, i1)>
    func.call @pair(%out, %row, %i8, %bfly) : (memref<32x32xi32>, index, i32, !llvm.struct<(i32, i1)>) -> ()

    %i2 = arith.constant 2 : i32
    %outside = nvvm.shfl.sync bfly %all, %v, %c16, %seg {return_value_and_is_valid} : i32 -> !llvm.struct<(i32, i1)>
    func.call @pair(%out, %row, %i2, %outside) : (memref<32x32xi32>, index, i32, !llvm.struct<(i32, i1)>) -> ()

    %isLow = arith.cmpi ult, %lane, %c16 : i32
    // Half a warp by itself.
    scf.if %isLow {
      %i27 = arith.constant 27 : i32
      %half = nvvm.shfl.sync bfly %low, %v, %c1, %c31 : i32 -> i32
      func.call @put(%out, %row, %i27, %half) : (memref<32x32xi32>, index, i32, i32) -> ()
    }
    gpu.return
  }
  func.func private @put(%out: memref<32x32xi32>, %row: index, %i: i32, %v: i32) {
    %c = arith.index_cast %i : i32 to index
    memref.store %v, %out[%row, %c] : memref<32x32xi32>
    return
  }
  func.func private @pair(%out: memref<32x32xi32>, %row: index, %i: i32, %p: !llvm.struct<(i32, i1)>) {
    %one = arith.constant 1 : i32
    %v = llvm.extractvalue %p[0] : !llvm.struct<(i32, i1)>
    %b = llvm.extractvalue %p[1] : !llvm.struct<(i32, i1)>
    %b32 = arith.extui %b : i1 to i32
    %j = arith.addi %i, %one : i32
    func.call @put(%out, %row, %i, %v) : (memref<32x32xi32>, index, i32, i32) -> ()
    func.call @put(%out, %row, %j, %b32) : (memref<32x32xi32>, index, i32, i32) -> ()
    return
  }

  // out[thread of the grid] = its place, in three dimensions.
  gpu.func @places(%out: memref<192x6xi32>) kernel {
    %tx = gpu.thread_id x
    %ty = gpu.thread_id y
    %tz = gpu.thread_id z
    %bx = gpu.block_id x
    %by = gpu.block_id y
    %bz = gpu.block_id z
    %dx = gpu.block_dim x
    %dy = gpu.block_dim y
    %dz = gpu.block_dim z
    %gx = gpu.grid_dim x
    %gy = gpu.grid_dim y
    %b0 = arith.muli %bz, %gy : index
    %b1 = arith.addi %b0, %by : index
    %b2 = arith.muli %b1, %gx : index
    %block = arith.addi %b2, %bx : index
    %t0 = arith.muli %block, %dz : index
    %t1 = arith.addi %t0, %tz : index
    %t2 = arith.muli %t1, %dy : index
    %t3 = arith.addi %t2, %ty : index
    %t4 = arith.muli %t3, %dx : index
    %i = arith.addi %t4, %tx : index
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c3 = arith.constant 3 : index
    %c4 = arith.constant 4 : index
    %c5 = arith.constant 5 : index
    %tx32 = arith.index_cast %tx : index to i32
    %ty32 = arith.index_cast %ty : index to i32
    %tz32 = arith.index_cast %tz : index to i32
    %bx32 = arith.index_cast %bx : index to i32
    %by32 = arith.index_cast %by : index to i32
    %bz32 = arith.index_cast %bz : index to i32
    memref.store %tx32, %out[%i, %c0] : memref<192x6xi32>
    memref.store %ty32, %out[%i, %c1] : memref<192x6xi32>
    memref.store %tz32, %out[%i, %c2] : memref<192x6xi32>
    memref.store %bx32, %out[%i, %c3] : memref<192x6xi32>
    memref.store %by32, %out[%i, %c4] : memref<192x6xi32>
    memref.store %bz32, %out[%i, %c5] : memref<192x6xi32>
    gpu.return
  }

  // Products: each lane loads the words of its fragments of a, b and c and stores
  // those of d.
  gpu.func @mma_f16(%a: memref<32x4xvector<2xf16>>, %b: memref<32x2xvector<2xf16>>, %c: memref<32xvector<4xf32>>) kernel {
    %t = gpu.thread_id x
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c3 = arith.constant 3 : index
    %a0 = memref.load %a[%t, %c0] : memref<32x4xvector<2xf16>>
    %a1 = memref.load %a[%t, %c1] : memref<32x4xvector<2xf16>>
    %a2 = memref.load %a[%t, %c2] : memref<32x4xvector<2xf16>>
    %a3 = memref.load %a[%t, %c3] : memref<32x4xvector<2xf16>>
    %b0 = memref.load %b[%t, %c0] : memref<32x2xvector<2xf16>>
    %b1 = memref.load %b[%t, %c1] : memref<32x2xvector<2xf16>>
    %cv = memref.load %c[%t] : memref<32xvector<4xf32>>
    %s0 = vector.extract %cv[0] : f32 from vector<4xf32>
    %s1 = vector.extract %cv[1] : f32 from vector<4xf32>
    %s2 = vector.extract %cv[2] : f32 from vector<4xf32>
    %s3 = vector.extract %cv[3] : f32 from vector<4xf32>
    %d = nvvm.mma.sync A[%a0, %a1, %a2, %a3] B[%b0, %b1] C[%s0, %s1, %s2, %s3]
        {layoutA = #nvvm.mma_layout<row>, layoutB = #nvvm.mma_layout<col>, shape = #nvvm.shape<m = 16, n = 8, k = 16>}
        : (vector<2xf16>, vector<2xf16>, f32) -> !llvm.struct<(f32, f32, f32, f32)>
    func.call @sums(%c, %t, %d) : (memref<32xvector<4xf32>>, index, !llvm.struct<(f32, f32, f32, f32)>) -> ()
    gpu.return
  }
  gpu.func @mma_bf16(%a: memref<32x4xi32>, %b: memref<32x2xi32>, %c: memref<32xvector<4xf32>>) kernel {
    %t = gpu.thread_id x
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c3 = arith.constant 3 : index
    %a0 = memref.load %a[%t, %c0] : memref<32x4xi32>
    %a1 = memref.load %a[%t, %c1] : memref<32x4xi32>
    %a2 = memref.load %a[%t, %c2] : memref<32x4xi32>
    %a3 = memref.load %a[%t, %c3] : memref<32x4xi32>
    %b0 = memref.load %b[%t, %c0] : memref<32x2xi32>
    %b1 = memref.load %b[%t, %c1] : memref<32x2xi32>
    %cv = memref.load %c[%t] : memref<32xvector<4xf32>>
    %s0 = vector.extract %cv[0] : f32 from vector<4xf32>
    %s1 = vector.extract %cv[1] : f32 from vector<4xf32>
    %s2 = vector.extract %cv[2] : f32 from vector<4xf32>
    %s3 = vector.extract %cv[3] : f32 from vector<4xf32>
    %d = nvvm.mma.sync A[%a0, %a1, %a2, %a3] B[%b0, %b1] C[%s0, %s1, %s2, %s3]
        {layoutA = #nvvm.mma_layout<row>, layoutB = #nvvm.mma_layout<col>, multiplicandAPtxType = #nvvm.mma_type<bf16>, multiplicandBPtxType = #nvvm.mma_type<bf16>, shape = #nvvm.shape<m = 16, n = 8, k = 16>}
        : (i32, i32, f32) -> !llvm.struct<(f32, f32, f32, f32)>
    func.call @sums(%c, %t, %d) : (memref<32xvector<4xf32>>, index, !llvm.struct<(f32, f32, f32, f32)>) -> ()
    gpu.return
  }
  func.func private @sums(%c: memref<32xvector<4xf32>>, %t: index, %d: !llvm.struct<(f32, f32, f32, f32)>) {
    %d0 = llvm.extractvalue %d[0] : !llvm.struct<(f32, f32, f32, f32)>
    %d1 = llvm.extractvalue %d[1] : !llvm.struct<(f32, f32, f32, f32)>
    %d2 = llvm.extractvalue %d[2] : !llvm.struct<(f32, f32, f32, f32)>
    %d3 = llvm.extractvalue %d[3] : !llvm.struct<(f32, f32, f32, f32)>
    %v = vector.from_elements %d0, %d1, %d2, %d3 : vector<4xf32>
    memref.store %v, %c[%t] : memref<32xvector<4xf32>>
    return
  }

  // ldmatrix of one matrix, of 8 rows of 8 elements of 16 bits, plain and transposed.
  gpu.func @matrices(%x: memref<32xi64>, %out: memref<32x2xi32>) workgroup(%s: memref<32xi64, #gpu.address_space<workgroup>> {llvm.align = 16 : i64}) kernel {
    %t = gpu.thread_id x
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c8 = arith.constant 8 : index
    %c16 = arith.constant 16 : index
    %v = memref.load %x[%t] : memref<32xi64>
    memref.store %v, %s[%t] : memref<32xi64, #gpu.address_space<workgroup>>
    gpu.barrier
    %base = memref.extract_aligned_pointer_as_index %s : memref<32xi64, #gpu.address_space<workgroup>> -> index
    %row = arith.remui %t, %c8 : index
    %bytes = arith.muli %row, %c16 : index
    %address = arith.addi %base, %bytes : index
    %address64 = arith.index_cast %address : index to i64
    %p = llvm.inttoptr %address64 : i64 to !llvm.ptr<3>
    %plain = nvvm.ldmatrix %p {num = 1 : i32, layout = #nvvm.mma_layout<row>, shape = #nvvm.ld_st_matrix_shape<m = 8, n = 8>, eltType = #nvvm.ld_st_matrix_elt_type<b16>} : (!llvm.ptr<3>) -> i32
    %turned = nvvm.ldmatrix %p {num = 1 : i32, layout = #nvvm.mma_layout<col>, shape = #nvvm.ld_st_matrix_shape<m = 8, n = 8>, eltType = #nvvm.ld_st_matrix_elt_type<b16>} : (!llvm.ptr<3>) -> i32
    memref.store %plain, %out[%t, %c0] : memref<32x2xi32>
    memref.store %turned, %out[%t, %c1] : memref<32x2xi32>
    gpu.return
  }

  // cp.async of 16 bytes of which the first 4 * lane (at most 16) are read.
  gpu.func @zero_fill(%x: !llvm.ptr<1>, %y: memref<32x4xi32>) workgroup(%s: memref<32x4xi32, #gpu.address_space<workgroup>> {llvm.align = 16 : i64}) kernel {
    %t = gpu.thread_id x
    %c4 = arith.constant 4 : index
    %c5 = arith.constant 5 : index
    %c16 = arith.constant 16 : index
    %base = memref.extract_aligned_pointer_as_index %s : memref<32x4xi32, #gpu.address_space<workgroup>> -> index
    %bytes = arith.muli %t, %c16 : index
    %bytes64 = arith.index_cast %bytes : index to i64
    %to = arith.addi %base, %bytes : index
    %to64 = arith.index_cast %to : index to i64
    %top = llvm.inttoptr %to64 : i64 to !llvm.ptr<3>
    %from = llvm.getelementptr %x[%bytes64] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i8
    %words = arith.remui %t, %c5 : index
    %count = arith.muli %words, %c4 : index
    %count32 = arith.index_cast %count : index to i32
    nvvm.cp.async.shared.global %top, %from, 16, cache = cg, %count32 : !llvm.ptr<3>, !llvm.ptr<1>, i32
    llvm.call_intrinsic "llvm.nvvm.cp.async.wait.all"() : () -> ()
    %c0 = arith.constant 0 : index
    %v = vector.load %s[%t, %c0] {alignment = 16} : memref<32x4xi32, #gpu.address_space<workgroup>>, vector<4xi32>
    vector.store %v, %y[%t, %c0] {alignment = 16} : memref<32x4xi32>, vector<4xi32>
    gpu.return
  }

  // Integer, bf16 and compare-and-swap atomics.
  gpu.func @atomics(%n: memref<2xi32>, %f: memref<1xi32>, %h: memref<2xbf16>) kernel {
    %t = gpu.thread_id x
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %one = arith.constant 1 : i32
    %t32 = arith.index_cast %t : index to i32
    %a = memref.atomic_rmw addi %one, %n[%c0] : (i32, memref<2xi32>) -> i32
    %b = memref.atomic_rmw maxs %t32, %n[%c1] : (i32, memref<2xi32>) -> i32
    %half = arith.constant 0.5 : bf16
    %c = memref.atomic_rmw addf %half, %h[%c1] : (bf16, memref<2xbf16>) -> bf16
    // Thread t makes t + 1 of t; in the second block all come too late.
    %p = memref.extract_aligned_pointer_as_index %f : memref<1xi32> -> index
    %p64 = arith.index_cast %p : index to i64
    %pp = llvm.inttoptr %p64 : i64 to !llvm.ptr
    %next = arith.addi %t32, %one : i32
    %r = llvm.cmpxchg %pp, %t32, %next acq_rel monotonic : !llvm.ptr, i32
    gpu.return
  }

  // y = -x by masked vectors, of which the last one is cut.
  gpu.func @masked(%x: memref<30xf32>, %y: memref<30xf32>) kernel {
    %t = gpu.thread_id x
    %c4 = arith.constant 4 : index
    %c30 = arith.constant 30 : index
    %i = arith.muli %t, %c4 : index
    %left = arith.subi %c30, %i : index
    %left32 = arith.index_cast %left : index to i32
    %lefts = vector.broadcast %left32 : i32 to vector<4xi32>
    %steps = arith.constant dense<[0, 1, 2, 3]> : vector<4xi32>
    %mask = arith.cmpi slt, %steps, %lefts : vector<4xi32>
    %none = arith.constant dense<0.0> : vector<4xf32>
    %v = vector.maskedload %x[%i], %mask, %none : memref<30xf32>, vector<4xi1>, vector<4xf32> into vector<4xf32>
    %w = arith.negf %v : vector<4xf32>
    vector.maskedstore %y[%i], %mask, %w : memref<30xf32>, vector<4xi1>, vector<4xf32>
    gpu.return
  }

  // Conversions to halves that the host has no instructions for, and functions.
  gpu.func @arithmetic(%x: memref<64xf32>, %bf: memref<64xbf16>, %h: memref<64xf16>, %e: memref<64x6xf32>, %d: memref<64xf64>) kernel {
    %i = gpu.thread_id x
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c3 = arith.constant 3 : index
    %c4 = arith.constant 4 : index
    %c5 = arith.constant 5 : index
    %v = memref.load %x[%i] : memref<64xf32>
    %b = arith.truncf %v : f32 to bf16
    memref.store %b, %bf[%i] : memref<64xbf16>
    %g = arith.truncf %v : f32 to f16
    memref.store %g, %h[%i] : memref<64xf16>
    %w = arith.extf %v : f32 to f64
    %w2 = arith.mulf %w, %w : f64
    memref.store %w2, %d[%i] : memref<64xf64>
    %a = math.absf %v : f32
    %l = math.log %a : f32
    %t = math.tanh %v : f32
    %r = math.erf %v : f32
    %p = math.powf %a, %v : f32
    %q = math.sqrt %a : f32
    %three = arith.constant 3.0 : f32
    %m = arith.remf %v, %three : f32
    memref.store %l, %e[%i, %c0] : memref<64x6xf32>
    memref.store %t, %e[%i, %c1] : memref<64x6xf32>
    memref.store %r, %e[%i, %c2] : memref<64x6xf32>
    memref.store %p, %e[%i, %c3] : memref<64x6xf32>
    memref.store %q, %e[%i, %c4] : memref<64x6xf32>
    memref.store %m, %e[%i, %c5] : memref<64x6xf32>
    gpu.return
  }
}
