// RUN: trainc-opt %s --train-kernels-to-llvm --split-input-file | FileCheck %s

// A function on pointers that do not alias, and the one that the runtime calls.
// CHECK: llvm.func internal @k(%[[ARGS:.*]]: !llvm.ptr, %[[TILE:.*]]: i64, %{{.*}}: !llvm.ptr)
// CHECK: llvm.getelementptr %[[ARGS]][1]
// CHECK: llvm.call @k.body(%{{.*}}, %{{.*}}, %[[TILE]]) : (!llvm.ptr, !llvm.ptr, i64) -> ()
// CHECK: llvm.func internal @k.body(%{{.*}}: !llvm.ptr {llvm.noalias}, %{{.*}}: !llvm.ptr {llvm.noalias}, %{{.*}}: i64)
module {
  module @kernels {
    func.func @k(%x: memref<4xf32> {llvm.noalias}, %y: memref<4xf32> {llvm.noalias}, %tile: index) {
      %v = memref.load %x[%tile] : memref<4xf32>
      memref.store %v, %y[%tile] : memref<4xf32>
      return
    }
  }
}

// -----

// f64 functions and buffers go through the runtime's table; f32 functions are arithmetic.
// CHECK: llvm.mlir.global internal @trainc.functions
// CHECK-LABEL: llvm.func internal @math.body
// CHECK: llvm.call @trainc.math.exp(%{{.*}}) : (f64) -> f64
// CHECK-NOT: llvm.call
// CHECK: llvm.intr.fma
module {
  module @kernels {
    func.func @math(%x: memref<1xf64> {llvm.noalias}, %y: memref<1xf32> {llvm.noalias}, %tile: index) {
      %a = memref.load %x[%tile] : memref<1xf64>
      %b = math.exp %a : f64
      memref.store %b, %x[%tile] : memref<1xf64>
      %c = memref.load %y[%tile] : memref<1xf32>
      %d = math.exp %c : f32
      memref.store %d, %y[%tile] : memref<1xf32>
      return
    }
  }
}

// -----

// It does nothing to a module of no kernels.
// CHECK: module @kernels {
// CHECK-NEXT: }
module {
  module @kernels {
  }
}
