// What the emulator lacks is refused by name.
//
// RUN: split-file %s %t
// RUN: not trainc-emulate %t/intrinsic.mlir -o %t.so 2>&1 | FileCheck %s --check-prefix=INTRINSIC
// RUN: not trainc-emulate %t/ptx.mlir -o %t.so 2>&1 | FileCheck %s --check-prefix=PTX
// RUN: not trainc-emulate %t/arrive.mlir -o %t.so 2>&1 | FileCheck %s --check-prefix=ARRIVE
// RUN: not trainc-emulate %t/numbered.mlir -o %t.so 2>&1 | FileCheck %s --check-prefix=NUMBERED
// RUN: not trainc-emulate %t/vote.mlir -o %t.so 2>&1 | FileCheck %s --check-prefix=VOTE
// RUN: not trainc-emulate %t/fence.mlir -o %t.so 2>&1 | FileCheck %s --check-prefix=FENCE
// RUN: not trainc-emulate %t/scope.mlir -o %t.so 2>&1 | FileCheck %s --check-prefix=SCOPE
// RUN: not trainc-emulate %t/function.mlir -o %t.so 2>&1 | FileCheck %s --check-prefix=FUNCTION
// RUN: not trainc-emulate %t/generic.mlir -o %t.so 2>&1 | FileCheck %s --check-prefix=GENERIC
// RUN: not trainc-emulate %t/empty.mlir -o %t.so 2>&1 | FileCheck %s --check-prefix=EMPTY
// RUN: not trainc-emulate %t/none.mlir -o %t.so 2>&1 | FileCheck %s --check-prefix=NONE

//--- intrinsic.mlir
// INTRINSIC: intrinsic.mlir:{{[0-9]+}}:1: error: the emulator does not know intrinsic 'llvm.nvvm.read.ptx.sreg.clock'
gpu.module @m {
  llvm.func @k() attributes {gpu.kernel, nvvm.kernel} {
    %0 = nvvm.read.ptx.sreg.clock : i32
    llvm.return
  }
}

//--- ptx.mlir
// PTX: error: the emulator does not know inline PTX 'griddepcontrol.wait;'
gpu.module @m {
  llvm.func @k() attributes {gpu.kernel, nvvm.kernel} {
    llvm.inline_asm has_side_effects "griddepcontrol.wait;", "" : () -> ()
    llvm.return
  }
}

//--- arrive.mlir
// ARRIVE: error: the emulator does not know inline PTX 'bar.arrive
gpu.module @m {
  llvm.func @k(%n: i32) attributes {gpu.kernel, nvvm.kernel} {
    nvvm.barrier.arrive number_of_threads = %n
    llvm.return
  }
}

//--- numbered.mlir
// NUMBERED: error: the emulator does not know intrinsic 'llvm.nvvm.barrier.cta.sync.aligned.count'
gpu.module @m {
  llvm.func @k(%n: i32) attributes {gpu.kernel, nvvm.kernel} {
    nvvm.barrier id = %n number_of_threads = %n
    llvm.return
  }
}

//--- vote.mlir
// VOTE: error: the emulator does not know intrinsic 'llvm.nvvm.vote.all.sync'
gpu.module @m {
  llvm.func @k(%n: i32, %b: i1) attributes {gpu.kernel, nvvm.kernel} {
    %0 = nvvm.vote.sync all %n, %b -> i1
    llvm.return
  }
}

//--- fence.mlir
// FENCE: error: the emulator knows fences that acquire and release only
gpu.module @m {
  llvm.func @k() attributes {gpu.kernel, nvvm.kernel} {
    llvm.fence syncscope("device") acquire
    llvm.return
  }
}

//--- scope.mlir
// SCOPE: error: the emulator does not know fences of scope 'cluster'
gpu.module @m {
  llvm.func @k() attributes {gpu.kernel, nvvm.kernel} {
    llvm.fence syncscope("cluster") acq_rel
    llvm.return
  }
}

//--- function.mlir
// FUNCTION: error: the emulator does not know function '__nv_tgammaf'
gpu.module @m {
  llvm.func @__nv_tgammaf(f32) -> f32
  llvm.func @k(%x: f32) attributes {gpu.kernel, nvvm.kernel} {
    %0 = llvm.call @__nv_tgammaf(%x) : (f32) -> f32
    llvm.return
  }
}

//--- generic.mlir
// GENERIC: error: the emulator does not know intrinsic 'llvm.exp10.v4f32'
gpu.module @m {
  llvm.func @k(%p: !llvm.ptr) attributes {gpu.kernel, nvvm.kernel} {
    %x = llvm.load %p : !llvm.ptr -> vector<4xf32>
    %0 = llvm.call_intrinsic "llvm.exp10"(%x) : (vector<4xf32>) -> vector<4xf32>
    llvm.store %0, %p : vector<4xf32>, !llvm.ptr
    llvm.return
  }
}

//--- empty.mlir
// EMPTY: error: the module has no kernels
gpu.module @m {
}

//--- none.mlir
// NONE: error: expects one gpu.module
module {
}
