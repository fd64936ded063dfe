// Planted faults: each is found and named, and its correct twin passes.
//
// RUN: trainc-emulate %s -o %t.so
// DEFINE: %{launch} = %python %S/Inputs/launch.py %runtime_lib/libtrainc_emulator.so %t.so

#shared = #gpu.address_space<workgroup>
gpu.module @faults {
  // A block of 64 reverses its elements by way of shared memory.
  //
  // RUN: not %{launch} dropped_barrier f32:64 --block 64 2>&1 | FileCheck %s --check-prefix=DROPPED
  // DROPPED: status 17: data race on shared memory
  // DROPPED-NEXT: kernel dropped_barrier, block (0,0,0), thread (0,0,0), at emulate-faults.mlir:[[#@LINE+14]]:10
  // DROPPED-NEXT: 4 bytes at 0x{{[0-9a-f]+}}: byte 252 of shared variable '__wg_dropped_barrier_0' of 256 bytes
  // DROPPED-NEXT: this thread reads them; thread (63,0,0) wrote them, and nothing orders the two
  // RUN: %{launch} kept_barrier f32:64 --block 64 --print 0 | FileCheck %s --check-prefix=KEPT
  // KEPT: arg0: 63.0 62.0 61.0
  // KEPT: kept_barrier: no fault
  gpu.func @dropped_barrier(%x: memref<64xf32>) workgroup(%s: memref<64xf32, #shared>) kernel {
    %t = gpu.thread_id x
    %c63 = arith.constant 63 : index
    %zero = arith.constant 0.0 : f32
    memref.store %zero, %s[%t] : memref<64xf32, #shared>
    gpu.barrier
    %v = memref.load %x[%t] : memref<64xf32>
    %r = arith.subi %c63, %t : index
    %w = memref.load %s[%r] : memref<64xf32, #shared>
    memref.store %v, %s[%t] : memref<64xf32, #shared>
    memref.store %w, %x[%t] : memref<64xf32>
    gpu.return
  }
  gpu.func @kept_barrier(%x: memref<64xf32>) workgroup(%s: memref<64xf32, #shared>) kernel {
    %t = gpu.thread_id x
    %c63 = arith.constant 63 : index
    %zero = arith.constant 0.0 : f32
    memref.store %zero, %s[%t] : memref<64xf32, #shared>
    gpu.barrier
    %v = memref.load %x[%t] : memref<64xf32>
    memref.store %v, %s[%t] : memref<64xf32, #shared>
    gpu.barrier
    %r = arith.subi %c63, %t : index
    %w = memref.load %s[%r] : memref<64xf32, #shared>
    memref.store %w, %x[%t] : memref<64xf32>
    gpu.return
  }

  // The same inside of a warp: with nothing, and with bar.warp.sync.
  //
  // RUN: not %{launch} warp_unordered f32:32 2>&1 | FileCheck %s --check-prefix=UNORDERED
  // UNORDERED: status 17: data race on shared memory
  // UNORDERED-NEXT: thread (0,0,0)
  // UNORDERED-NEXT: byte 124 of shared variable
  // UNORDERED-NEXT: this thread reads them; thread (31,0,0) wrote them, and nothing orders the two
  // RUN: %{launch} warp_ordered f32:32 | FileCheck %s --check-prefix=ORDERED
  // RUN: %{launch} warp_ordered f32:32 --seed 3 | FileCheck %s --check-prefix=ORDERED
  // ORDERED: warp_ordered: no fault
  gpu.func @warp_unordered(%x: memref<32xf32>) workgroup(%s: memref<32xf32, #shared>) kernel {
    %t = gpu.thread_id x
    %c31 = arith.constant 31 : index
    %all = arith.constant -1 : i32
    %v = memref.load %x[%t] : memref<32xf32>
    memref.store %v, %s[%t] : memref<32xf32, #shared>
    nvvm.bar.warp.sync %all : i32
    %r = arith.subi %c31, %t : index
    %w = memref.load %s[%r] : memref<32xf32, #shared>
    memref.store %w, %s[%t] : memref<32xf32, #shared>
    gpu.return
  }
  gpu.func @warp_ordered(%x: memref<32xf32>) workgroup(%s: memref<32xf32, #shared>) kernel {
    %t = gpu.thread_id x
    %c31 = arith.constant 31 : index
    %all = arith.constant -1 : i32
    %v = memref.load %x[%t] : memref<32xf32>
    memref.store %v, %s[%t] : memref<32xf32, #shared>
    nvvm.bar.warp.sync %all : i32
    %r = arith.subi %c31, %t : index
    %w = memref.load %s[%r] : memref<32xf32, #shared>
    nvvm.bar.warp.sync %all : i32
    memref.store %w, %s[%t] : memref<32xf32, #shared>
    gpu.return
  }

  // A shuffle of 8 threads. Its mask names the warp, the 8, those without some of
  // them, or others only.
  //
  // RUN: not %{launch} shuffle_8 f32:32 i32=-1 i32=4 2>&1 | FileCheck %s --check-prefix=ABSENT
  // ABSENT: status 16: shfl.sync.bfly whose mask names a thread that never arrives
  // ABSENT-NEXT: kernel shuffle_8, block (0,0,0), thread (0,0,0)
  // ABSENT-NEXT: each of threads 0 to 7 of the block waits at shfl.sync.bfly with mask 0xffffffff
  // ABSENT-NEXT: each of threads 8 to 31 of the block has exited
  // RUN: not %{launch} shuffle_8 f32:32 i32=-1 i32=4 --block 24 2>&1 | FileCheck %s --check-prefix=BEYOND
  // BEYOND: status 14: shfl.sync.bfly whose mask names a thread that does not exist
  // BEYOND: mask 0xffffffff; lane 24 is beyond the block
  // RUN: not %{launch} shuffle_8 f32:32 i32=0x7f i32=0 2>&1 | FileCheck %s --check-prefix=SELF
  // SELF: status 14: shfl.sync.bfly whose mask does not name the thread itself
  // SELF-NEXT: thread (7,0,0)
  // SELF-NEXT: mask 0x0000007f; lane 7 executes it
  // RUN: not %{launch} shuffle_8 f32:32 i32=0xff i32=8 2>&1 | FileCheck %s --check-prefix=READ
  // READ: status 14: shfl.sync.bfly whose mask does not name the thread that is read
  // READ-NEXT: thread (0,0,0)
  // READ-NEXT: mask 0x000000ff; lane 8 is read
  // RUN: %{launch} shuffle_8 f32:32 i32=0xff i32=4 --print 0 | FileCheck %s --check-prefix=SHUFFLE
  // SHUFFLE: arg0: 4.0 5.0 6.0 7.0 0.0 1.0 2.0 3.0 8.0
  gpu.func @shuffle_8(%x: memref<32xf32>, %mask: i32, %offset: i32) kernel {
    %t = gpu.thread_id x
    %c8 = arith.constant 8 : index
    %clamp = arith.constant 31 : i32
    %first = arith.cmpi ult, %t, %c8 : index
    scf.if %first {
      %v = memref.load %x[%t] : memref<32xf32>
      %w = nvvm.shfl.sync bfly %mask, %v, %offset, %clamp : f32 -> f32
      memref.store %w, %x[%t] : memref<32xf32>
    }
    gpu.return
  }

  // Two halves of a warp meet, each with a mask of its own.
  //
  // RUN: not %{launch} halves i32=0xffffffff i32=0xffff0001 2>&1 | FileCheck %s --check-prefix=DISAGREE
  // DISAGREE: status 14: warp operation at which lanes disagree
  // DISAGREE-NEXT: thread (31,0,0)
  // DISAGREE-NEXT: this lane is at bar.warp.sync with mask 0xffff0001
  // DISAGREE-NEXT: lane 0 is at bar.warp.sync with mask 0xffffffff
  // RUN: not %{launch} halves i32=0xffffffff i32=0xffff0000 2>&1 | FileCheck %s --check-prefix=LEFT
  // LEFT: status 16: bar.warp.sync whose mask names a thread that never arrives
  // LEFT: each of threads 0 to 15 of the block waits at bar.warp.sync with mask 0xffffffff
  // LEFT-NEXT: each of threads 16 to 31 of the block has exited
  // RUN: %{launch} halves i32=0x0000ffff i32=0xffff0000 | FileCheck %s --check-prefix=HALVES
  // HALVES: halves: no fault
  gpu.func @halves(%low: i32, %high: i32) kernel {
    %t = gpu.thread_id x
    %c16 = arith.constant 16 : index
    %first = arith.cmpi ult, %t, %c16 : index
    scf.if %first {
      nvvm.bar.warp.sync %low : i32
    } else {
      nvvm.bar.warp.sync %high : i32
    }
    gpu.return
  }

  // An index that is off by one, in global and in shared memory.
  //
  // RUN: not %{launch} shift f32:64 i64=1 i64=0 --block 64 2>&1 | FileCheck %s --check-prefix=GLOBAL1
  // GLOBAL1: status 10: access outside of every allocation
  // GLOBAL1-NEXT: kernel shift, block (0,0,0), thread (63,0,0)
  // GLOBAL1-NEXT: 0 bytes behind allocation 'arg0' of 256 bytes
  // GLOBAL1-NEXT: this thread reads them
  // RUN: not %{launch} shift f32:64 i64=0 i64=1 --block 64 2>&1 | FileCheck %s --check-prefix=SHARED1
  // SHARED1: status 10: access outside of shared variables
  // SHARED1-NEXT: kernel shift, block (0,0,0), thread (63,0,0)
  // SHARED1-NEXT: 0 bytes behind shared variable '__wg_shift_0' of 256 bytes
  // SHARED1-NEXT: this thread writes them
  // RUN: not %{launch} shift f32:64 i64=0 i64=-1 --block 64 2>&1 | FileCheck %s --check-prefix=BEFORE
  // BEFORE: 4 bytes before shared variable '__wg_shift_0' of 256 bytes
  // RUN: not %{launch} shift f32:64 i64=100000000000 i64=0 --block 64 2>&1 | FileCheck %s --check-prefix=FAR
  // FAR: near no allocation
  // RUN: %{launch} shift f32:64 i64=0 i64=0 --block 64 | FileCheck %s --check-prefix=SHIFT
  // SHIFT: shift: no fault
  gpu.func @shift(%x: memref<64xf32>, %global: i64, %local: i64) workgroup(%s: memref<64xf32, #shared>, %s2: memref<64xf32, #shared>) kernel {
    %t = gpu.thread_id x
    %g = arith.index_cast %global : i64 to index
    %l = arith.index_cast %local : i64 to index
    %i = arith.addi %t, %g : index
    %j = arith.addi %t, %l : index
    %v = memref.load %x[%i] : memref<64xf32>
    memref.store %v, %s[%j] : memref<64xf32, #shared>
    memref.store %v, %s2[%t] : memref<64xf32, #shared>
    gpu.return
  }

  // Every thread writes the element of the block's number, or its own one: a race
  // in the block, or none; or every block writes the same elements.
  //
  // RUN: not %{launch} same_element f32:64 i64=0 i64=1 --grid 2 2>&1 | FileCheck %s --check-prefix=RACE
  // RACE: status 17: data race on global memory
  // RACE-NEXT: kernel same_element, block (0,0,0), thread (1,0,0)
  // RACE-NEXT: byte 0 of allocation 'arg0' of 256 bytes
  // RACE-NEXT: this thread writes them; thread (0,0,0) wrote them, and nothing orders the two
  // RUN: not %{launch} same_element f32:64 i64=1 i64=0 --grid 2 2>&1 | FileCheck %s --check-prefix=BLOCKS
  // BLOCKS: status 17: data race on global memory
  // BLOCKS-NEXT: kernel same_element, block (1,0,0), thread (0,0,0)
  // BLOCKS-NEXT: byte 0 of allocation 'arg0'
  // BLOCKS-NEXT: this thread writes them; block (0,0,0), thread (0,0,0) wrote them
  // RUN: %{launch} same_element f32:64 i64=1 i64=32 --grid 2 | FileCheck %s --check-prefix=OWN
  // RUN: %{launch} same_element f32:64 i64=1 i64=32 --grid 2 --seed 5 | FileCheck %s --check-prefix=OWN
  // OWN: same_element: no fault
  gpu.func @same_element(%x: memref<64xf32>, %byThread: i64, %byBlock: i64) kernel {
    %t = gpu.thread_id x
    %b = gpu.block_id x
    %ft = arith.index_cast %byThread : i64 to index
    %fb = arith.index_cast %byBlock : i64 to index
    %i = arith.muli %t, %ft : index
    %j = arith.muli %b, %fb : index
    %k = arith.addi %i, %j : index
    %one = arith.constant 1.0 : f32
    memref.store %one, %x[%k] : memref<64xf32>
    gpu.return
  }

  // Halves of a word by neighbours do not race.
  //
  // RUN: %{launch} neighbours i16:64 --block 64 | FileCheck %s --check-prefix=NEIGHBOURS
  // NEIGHBOURS: neighbours: no fault
  gpu.func @neighbours(%x: memref<64xi16>) kernel {
    %t = gpu.thread_id x
    %v = memref.load %x[%t] : memref<64xi16>
    memref.store %v, %x[%t] : memref<64xi16>
    gpu.return
  }

  // Threads from the given one on leave before the barrier.
  //
  // RUN: not %{launch} early_exit f32:64 i64=48 --block 64 2>&1 | FileCheck %s --check-prefix=EXIT
  // EXIT: status 16: barrier that some threads never reach
  // EXIT-NEXT: kernel early_exit, block (0,0,0), thread (0,0,0)
  // EXIT-NEXT: 48 of 64 threads arrived
  // EXIT-NEXT: each of threads 0 to 47 of the block waits at the barrier
  // EXIT-NEXT: each of threads 48 to 63 of the block has exited
  // RUN: %{launch} early_exit f32:64 i64=64 --block 64 | FileCheck %s --check-prefix=STAY
  // STAY: early_exit: no fault
  gpu.func @early_exit(%x: memref<64xf32>, %count: i64) kernel {
    %t = gpu.thread_id x
    %n = arith.index_cast %count : i64 to index
    %stay = arith.cmpi ult, %t, %n : index
    scf.if %stay {
      %v = memref.load %x[%t] : memref<64xf32>
      gpu.barrier
      memref.store %v, %x[%t] : memref<64xf32>
    }
    gpu.return
  }

  // Two barriers in the branches of a warp, and one that all reach.
  //
  // RUN: not %{launch} diverged f32:32 i64=16 2>&1 | FileCheck %s --check-prefix=DIVERGED
  // DIVERGED: status 15: barrier that threads of a warp reach at different places
  // DIVERGED-NEXT: kernel diverged, block (0,0,0), thread (16,0,0)
  // DIVERGED-NEXT: thread (15,0,0) waits elsewhere in the code
  // RUN: %{launch} diverged f32:32 i64=32 | FileCheck %s --check-prefix=TOGETHER
  // TOGETHER: diverged: no fault
  gpu.func @diverged(%x: memref<32xf32>, %count: i64) kernel {
    %t = gpu.thread_id x
    %n = arith.index_cast %count : i64 to index
    %first = arith.cmpi ult, %t, %n : index
    %one = arith.constant 1.0 : f32
    %two = arith.constant 2.0 : f32
    scf.if %first {
      gpu.barrier
      memref.store %one, %x[%t] : memref<32xf32>
    } else {
      memref.store %two, %x[%t] : memref<32xf32>
      gpu.barrier
    }
    gpu.return
  }

  // A quarter of the dynamic shared memory is written, or all of what is read.
  //
  // RUN: not %{launch} uninitialized f32:32 i64=8 --shared 128 2>&1 | FileCheck %s --check-prefix=UNINIT
  // UNINIT: status 13: read of uninitialised shared memory
  // UNINIT: byte {{[0-9]+}} of shared variable '__dynamic_shmem__0' of 128 bytes
  // UNINIT-NEXT: this thread reads them
  // RUN: not %{launch} uninitialized f32:32 i64=32 --shared 64 2>&1 | FileCheck %s --check-prefix=SMALL
  // SMALL: status 10: access outside of shared variables
  // SMALL: 0 bytes behind shared variable '__dynamic_shmem__0' of 64 bytes
  // RUN: %{launch} uninitialized f32:32 i64=32 --shared 128 --print 0 | FileCheck %s --check-prefix=INIT
  // INIT: arg0: 31.0 30.0
  gpu.func @uninitialized(%x: memref<32xf32>, %count: i64) kernel {
    %t = gpu.thread_id x
    %c0 = arith.constant 0 : index
    %c31 = arith.constant 31 : index
    %bytes = gpu.dynamic_shared_memory : memref<?xi8, #shared>
    %s = memref.view %bytes[%c0][] : memref<?xi8, #shared> to memref<32xf32, #shared>
    %n = arith.index_cast %count : i64 to index
    %in = arith.cmpi ult, %t, %n : index
    scf.if %in {
      %v = memref.load %x[%t] : memref<32xf32>
      memref.store %v, %s[%t] : memref<32xf32, #shared>
    }
    gpu.barrier
    %r = arith.subi %c31, %t : index
    %w = memref.load %s[%r] : memref<32xf32, #shared>
    memref.store %w, %x[%t] : memref<32xf32>
    gpu.return
  }

  // cp.async without a wait, with a wait that leaves the group pending, with a wait
  // but no barrier, and right.
  //
  // RUN: not %{launch} copy_unwaited f32:128 f32:32 2>&1 | FileCheck %s --check-prefix=UNWAITED
  // UNWAITED: status 18: access to memory that a cp.async still writes
  // UNWAITED-NEXT: thread (0,0,0)
  // UNWAITED-NEXT: byte 0 of shared variable
  // UNWAITED-NEXT: this thread reads them; the copy of thread (0,0,0) to byte 0 of them was not waited for
  // RUN: not %{launch} copy_waited_too_little f32:128 f32:32 2>&1 | FileCheck %s --check-prefix=UNWAITED
  // RUN: %{launch} copy_waited f32:128 f32:32 --print 1 | FileCheck %s --check-prefix=WAITED
  // WAITED: arg1: 0.0 4.0 8.0
  gpu.func @copy_unwaited(%x: !llvm.ptr<1>, %y: memref<32xf32>) workgroup(%s: memref<128xf32, #shared> {llvm.align = 16 : i64}) kernel {
    %t = gpu.thread_id x
    func.call @copy16(%x, %s, %t) : (!llvm.ptr<1>, memref<128xf32, #shared>, index) -> ()
    func.call @take(%s, %y, %t) : (memref<128xf32, #shared>, memref<32xf32>, index) -> ()
    gpu.return
  }
  gpu.func @copy_waited_too_little(%x: !llvm.ptr<1>, %y: memref<32xf32>) workgroup(%s: memref<128xf32, #shared> {llvm.align = 16 : i64}) kernel {
    %t = gpu.thread_id x
    func.call @copy16(%x, %s, %t) : (!llvm.ptr<1>, memref<128xf32, #shared>, index) -> ()
    nvvm.cp.async.wait.group 1
    func.call @take(%s, %y, %t) : (memref<128xf32, #shared>, memref<32xf32>, index) -> ()
    gpu.return
  }
  gpu.func @copy_waited(%x: !llvm.ptr<1>, %y: memref<32xf32>) workgroup(%s: memref<128xf32, #shared> {llvm.align = 16 : i64}) kernel {
    %t = gpu.thread_id x
    func.call @copy16(%x, %s, %t) : (!llvm.ptr<1>, memref<128xf32, #shared>, index) -> ()
    nvvm.cp.async.wait.group 0
    func.call @take(%s, %y, %t) : (memref<128xf32, #shared>, memref<32xf32>, index) -> ()
    gpu.return
  }
  // Copies 16 bytes per thread.
  func.func private @copy16(%x: !llvm.ptr<1>, %s: memref<128xf32, #shared>, %t: index) {
    %c16 = arith.constant 16 : index
    %base = memref.extract_aligned_pointer_as_index %s : memref<128xf32, #shared> -> index
    %bytes = arith.muli %t, %c16 : index
    %bytes64 = arith.index_cast %bytes : index to i64
    %to = arith.addi %base, %bytes : index
    %to64 = arith.index_cast %to : index to i64
    %top = llvm.inttoptr %to64 : i64 to !llvm.ptr<3>
    %fromp = llvm.getelementptr %x[%bytes64] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i8
    nvvm.cp.async.shared.global %top, %fromp, 16, cache = ca : !llvm.ptr<3>, !llvm.ptr<1>
    nvvm.cp.async.commit.group
    return
  }
  // The first float of each thread's piece, to y.
  func.func private @take(%s: memref<128xf32, #shared>, %y: memref<32xf32>, %t: index) {
    %c4 = arith.constant 4 : index
    %i = arith.muli %t, %c4 : index
    %v = memref.load %s[%i] : memref<128xf32, #shared>
    memref.store %v, %y[%t] : memref<32xf32>
    return
  }

  // Shared memory that only happens to be aligned.
  //
  // RUN: not %{launch} copy_unaligned f32:128 2>&1 | FileCheck %s --check-prefix=UNALIGNED
  // UNALIGNED: status 12: misaligned access
  // UNALIGNED: byte 0 of shared variable '__wg_copy_unaligned_0' of 512 bytes
  // UNALIGNED-NEXT: this thread writes them with an instruction that needs 16
  gpu.func @copy_unaligned(%x: !llvm.ptr<1>) workgroup(%s: memref<128xf32, #shared>) kernel {
    %t = gpu.thread_id x
    func.call @copy16(%x, %s, %t) : (!llvm.ptr<1>, memref<128xf32, #shared>, index) -> ()
    gpu.return
  }

  // A vector of 4 at elements that are not multiples of 4.
  //
  // RUN: not %{launch} vector f32:256 f32:256 i64=1 2>&1 | FileCheck %s --check-prefix=MISALIGNED
  // MISALIGNED: status 12: misaligned access
  // MISALIGNED-NEXT: kernel vector, block (0,0,0), thread (0,0,0)
  // MISALIGNED-NEXT: 16 bytes at 0x{{[0-9a-f]+}}: byte 4 of allocation 'arg0' of 1024 bytes
  // MISALIGNED-NEXT: this thread reads them with an instruction that needs 16
  // RUN: %{launch} vector f32:256 f32:256 i64=4 | FileCheck %s --check-prefix=ALIGNED
  // ALIGNED: vector: no fault
  gpu.func @vector(%x: memref<256xf32>, %y: memref<256xf32>, %offset: i64) kernel {
    %t = gpu.thread_id x
    %c4 = arith.constant 4 : index
    %o = arith.index_cast %offset : i64 to index
    %i = arith.muli %t, %c4 : index
    %j = arith.addi %i, %o : index
    %v = vector.load %x[%j] {alignment = 16} : memref<256xf32>, vector<4xf32>
    vector.store %v, %y[%i] {alignment = 16} : memref<256xf32>, vector<4xf32>
    gpu.return
  }

  // Waits for a value that only another block could write.
  //
  // RUN: not %{launch} spin f32:1 --limit 1000 2>&1 | FileCheck %s --check-prefix=SPIN
  // SPIN: status 19: launch that makes too many accesses
  // SPIN: the limit is 1000
  gpu.func @spin(%x: memref<1xf32>) kernel {
    %c0 = arith.constant 0 : index
    %one = arith.constant 1.0 : f32
    %zero = arith.constant 0.0 : f32
    scf.while : () -> () {
      %v = memref.atomic_rmw addf %zero, %x[%c0] : (f32, memref<1xf32>) -> f32
      %wait = arith.cmpf one, %v, %one : f32
      scf.condition(%wait)
    } do {
      scf.yield
    }
    gpu.return
  }

  // A table that kernels only read.
  //
  // RUN: %{launch} constant i64=0 f32:4 --block 4 --print 1 | FileCheck %s --check-prefix=TABLE
  // TABLE: arg1: 2.0 3.0 5.0 7.0
  // RUN: not %{launch} constant i64=1 f32:4 --block 4 2>&1 | FileCheck %s --check-prefix=CONSTANT
  // CONSTANT: status 11: write to a constant
  // CONSTANT: byte 0 of module variable 'primes' of 16 bytes
  memref.global "private" constant @primes : memref<4xf32> = dense<[2.0, 3.0, 5.0, 7.0]>
  gpu.func @constant(%write: i64, %y: memref<4xf32>) kernel {
    %t = gpu.thread_id x
    %c0 = arith.constant 0 : i64
    %table = memref.get_global @primes : memref<4xf32>
    %v = memref.load %table[%t] : memref<4xf32>
    memref.store %v, %y[%t] : memref<4xf32>
    %wrong = arith.cmpi ne, %write, %c0 : i64
    scf.if %wrong {
      memref.store %v, %table[%t] : memref<4xf32>
    }
    gpu.return
  }

  // What a driver would refuse.
  //
  // RUN: not %{launch} vector f32:256 f32:256 i64=0 --block 1025 2>&1 | FileCheck %s --check-prefix=THREADS
  // THREADS: status 1: kernel vector: a block has 1 to 1024 threads
  // RUN: not %{launch} vector f32:256 f32:256 i64=0 --shared 300000 2>&1 | FileCheck %s --check-prefix=MEMORY
  // MEMORY: status 1: kernel vector: 0 static and 300000 dynamic bytes of shared memory are more than
  // RUN: not %{launch} bounded --block 128 2>&1 | FileCheck %s --check-prefix=BOUNDED
  // BOUNDED: status 1: kernel bounded: a block has at most 64 threads, not 128
  gpu.func @bounded() kernel attributes {known_block_size = array<i32: 64, 1, 1>} {
    gpu.return
  }
}
