// What blocks write before a fence and an atomic is known to those that read that atomic and fence, and to their blocks
// behind a barrier: the last of four blocks of 64 adds what each thread of all wrote. Atomics order nothing, whatever LLVM
// calls them. Without the first barrier, threads other than the one that fences take part in no order.
//
// DEFINE: %{launch} = %python %S/Inputs/launch.py %runtime_lib/libtrainc_emulator.so %t.so
// DEFINE: %{arguments} = last_block f32:256 i32:1 f32:64 --grid 4 --block 64 --print 2
//
// RUN: trainc-emulate %s -o %t.so
// RUN: %{launch} %{arguments} | FileCheck %s --check-prefix=LAST
// RUN: %{launch} %{arguments} --seed 5 | FileCheck %s --check-prefix=LAST
// RUN: %{launch} %{arguments} --late | FileCheck %s --check-prefix=LAST
// LAST: arg2:{{( 4.0){64}$}}
// LAST: last_block: no fault
//
// RUN: sed '/fence/d' %s > %t.mlir && trainc-emulate %t.mlir -o %t.so
// RUN: not %{launch} %{arguments} 2>&1 | FileCheck %s --check-prefix=RACE
// RUN: %{launch} %{arguments} --late | FileCheck %s --check-prefix=LATE
// RUN: sed '/fence.*release/d' %s > %t.mlir && trainc-emulate %t.mlir -o %t.so
// RUN: not %{launch} %{arguments} 2>&1 | FileCheck %s --check-prefix=RACE
// RUN: sed '/fence.*acquire/d' %s > %t.mlir && trainc-emulate %t.mlir -o %t.so
// RUN: not %{launch} %{arguments} 2>&1 | FileCheck %s --check-prefix=RACE
// RUN: sed 's/"device"/"block"/' %s > %t.mlir && trainc-emulate %t.mlir -o %t.so
// RUN: not %{launch} %{arguments} 2>&1 | FileCheck %s --check-prefix=RACE
// RUN: sed '/barrier.*written/d' %s > %t.mlir && trainc-emulate %t.mlir -o %t.so
// RUN: not %{launch} %{arguments} 2>&1 | FileCheck %s --check-prefix=RACE
// RACE: status 17: data race on global memory
// RACE: this thread reads them; block ({{[0-9]}},0,0), thread ({{[0-9]+}},0,0) wrote them, and nothing orders the two
// LATE-NOT: arg2:{{( 4.0){64}$}}
// LATE: last_block: no fault

#shared = #gpu.address_space<workgroup>
gpu.module @blocks {
  gpu.func @last_block(%parts: memref<256xf32>, %count: memref<1xi32>, %sums: memref<64xf32>) workgroup(%before: memref<1xi32, #shared>) kernel {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c4 = arith.constant 4 : index
    %c64 = arith.constant 64 : index
    %one = arith.constant 1 : i32
    %three = arith.constant 3 : i32
    %unit = arith.constant 1.0 : f32
    %zero = arith.constant 0.0 : f32
    %t = gpu.thread_id x
    %b = gpu.block_id x
    %base = arith.muli %b, %c64 : index
    %mine = arith.addi %base, %t : index
    memref.store %unit, %parts[%mine] : memref<256xf32>
    gpu.barrier // all have written
    %first = arith.cmpi eq, %t, %c0 : index
    scf.if %first {
      llvm.fence syncscope("device") acq_rel // release
      %old = memref.atomic_rmw addi %one, %count[%c0] : (i32, memref<1xi32>) -> i32
      llvm.fence syncscope("device") acq_rel // acquire
      memref.store %old, %before[%c0] : memref<1xi32, #shared>
    }
    gpu.barrier
    %old = memref.load %before[%c0] : memref<1xi32, #shared>
    %last = arith.cmpi eq, %old, %three : i32
    scf.if %last {
      %sum = scf.for %i = %c0 to %c4 step %c1 iter_args(%s = %zero) -> f32 {
        %at = arith.muli %i, %c64 : index
        %from = arith.addi %at, %t : index
        %x = memref.load %parts[%from] : memref<256xf32>
        %next = arith.addf %s, %x : f32
        scf.yield %next : f32
      }
      memref.store %sum, %sums[%t] : memref<64xf32>
    }
    gpu.return
  }
}
