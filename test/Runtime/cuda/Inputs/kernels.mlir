// Kernels for the tests of the CUDA driver's layer. Tests change the factor by sed.
gpu.module @kernels [#nvvm.target<chip = "sm_90", features = "+ptx90">] {
  // y = 2 y + x, so that the order of launches is seen.
  gpu.func @push(%x: memref<1024xf32>, %y: memref<1024xf32>) kernel attributes {known_block_size = array<i32: 256, 1, 1>} {
    %i = gpu.global_id x
    %factor = arith.constant 2.0 : f32
    %a = memref.load %x[%i] : memref<1024xf32>
    %b = memref.load %y[%i] : memref<1024xf32>
    %c = arith.mulf %b, %factor : f32
    %d = arith.addf %a, %c : f32
    memref.store %d, %y[%i] : memref<1024xf32>
    gpu.return
  }

  // Writes behind the end.
  gpu.func @beyond(%x: memref<1024xf32>) kernel {
    %t = gpu.global_id x
    %c1024 = arith.constant 1024 : index
    %i = arith.addi %t, %c1024 : index
    %zero = arith.constant 0.0 : f32
    memref.store %zero, %x[%i] : memref<1024xf32>
    gpu.return
  }
}
