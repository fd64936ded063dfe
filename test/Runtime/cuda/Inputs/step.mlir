// The kernels of step.h for the emulator: the same arithmetic in the same order.
gpu.module @kernels [#nvvm.target<chip = "sm_90", features = "+ptx90">] {
  // e = x c - w
  gpu.func @error(%x: memref<1024xf32>, %c: memref<1024xf32>, %w: memref<1024xf32>, %e: memref<1024xf32>) kernel attributes {known_block_size = array<i32: 256, 1, 1>} {
    %i = gpu.global_id x
    %0 = memref.load %x[%i] : memref<1024xf32>
    %1 = memref.load %c[%i] : memref<1024xf32>
    %2 = memref.load %w[%i] : memref<1024xf32>
    %3 = arith.mulf %0, %1 : f32
    %4 = arith.subf %3, %2 : f32
    memref.store %4, %e[%i] : memref<1024xf32>
    gpu.return
  }

  // g = e + y, or g = g + (e + y); y is repeated.
  gpu.func @gradient_first(%e: memref<1024xf32>, %y: memref<256xi32>, %g: memref<1024xf32>) kernel attributes {known_block_size = array<i32: 256, 1, 1>} {
    %i = gpu.global_id x
    %t = gpu.thread_id x
    %0 = memref.load %e[%i] : memref<1024xf32>
    %1 = memref.load %y[%t] : memref<256xi32>
    %2 = arith.sitofp %1 : i32 to f32
    %3 = arith.addf %0, %2 : f32
    memref.store %3, %g[%i] : memref<1024xf32>
    gpu.return
  }
  gpu.func @gradient_next(%e: memref<1024xf32>, %y: memref<256xi32>, %g: memref<1024xf32>) kernel attributes {known_block_size = array<i32: 256, 1, 1>} {
    %i = gpu.global_id x
    %t = gpu.thread_id x
    %0 = memref.load %e[%i] : memref<1024xf32>
    %1 = memref.load %y[%t] : memref<256xi32>
    %2 = arith.sitofp %1 : i32 to f32
    %3 = arith.addf %0, %2 : f32
    %4 = memref.load %g[%i] : memref<1024xf32>
    %5 = arith.addf %4, %3 : f32
    memref.store %5, %g[%i] : memref<1024xf32>
    gpu.return
  }

  // Sums squares in the scratch; adds them to the window's, or begins it.
  gpu.func @loss(%s: memref<32xf64>, %e: memref<1024xf32>, %scratch: memref<1xf64>) kernel attributes {known_block_size = array<i32: 1, 1, 1>} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c3 = arith.constant 3 : index
    %c4 = arith.constant 4 : index
    %c5 = arith.constant 5 : index
    %n = arith.constant 1024 : index
    %zero = arith.constant 0.0 : f64
    %weight = arith.constant 1024.0 : f64
    memref.store %zero, %scratch[%c0] : memref<1xf64>
    scf.for %i = %c0 to %n step %c1 {
      %0 = memref.load %e[%i] : memref<1024xf32>
      %1 = arith.extf %0 : f32 to f64
      %2 = arith.mulf %1, %1 : f64
      %3 = memref.load %scratch[%c0] : memref<1xf64>
      %4 = arith.addf %3, %2 : f64
      memref.store %4, %scratch[%c0] : memref<1xf64>
    }
    %loss = memref.load %scratch[%c0] : memref<1xf64>
    memref.store %loss, %s[%c4] : memref<32xf64>
    memref.store %weight, %s[%c5] : memref<32xf64>
    %micro = memref.load %s[%c1] : memref<32xf64>
    %first = arith.cmpf oeq, %micro, %zero : f64
    %oldLoss = memref.load %s[%c2] : memref<32xf64>
    %oldWeight = memref.load %s[%c3] : memref<32xf64>
    %keptLoss = arith.select %first, %zero, %oldLoss : f64
    %keptWeight = arith.select %first, %zero, %oldWeight : f64
    %newLoss = arith.addf %keptLoss, %loss : f64
    %newWeight = arith.addf %keptWeight, %weight : f64
    memref.store %newLoss, %s[%c2] : memref<32xf64>
    memref.store %newWeight, %s[%c3] : memref<32xf64>
    gpu.return
  }

  // The finite flag and the scale of the gradient; doubles the loss scale.
  gpu.func @norm(%s: memref<32xf64>, %g: memref<1024xf32>) kernel attributes {known_block_size = array<i32: 1, 1, 1>} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c6 = arith.constant 6 : index
    %c8 = arith.constant 8 : index
    %c9 = arith.constant 9 : index
    %c10 = arith.constant 10 : index
    %c13 = arith.constant 13 : index
    %c15 = arith.constant 15 : index
    %n = arith.constant 1024 : index
    %zero = arith.constant 0.0 : f64
    %one = arith.constant 1.0 : f64
    %two = arith.constant 2.0 : f64
    %sum = scf.for %i = %c0 to %n step %c1 iter_args(%a = %zero) -> f64 {
      %0 = memref.load %g[%i] : memref<1024xf32>
      %1 = arith.extf %0 : f32 to f64
      %2 = arith.mulf %1, %1 : f64
      %3 = arith.addf %a, %2 : f64
      scf.yield %3 : f64
    }
    %difference = arith.subf %sum, %sum : f64
    %finite = arith.cmpf oeq, %difference, %zero : f64
    %flag = arith.select %finite, %one, %zero : f64
    %skip = arith.subf %one, %flag : f64
    memref.store %sum, %s[%c6] : memref<32xf64>
    memref.store %flag, %s[%c8] : memref<32xf64>
    %updates = memref.load %s[%c0] : memref<32xf64>
    %newUpdates = arith.addf %updates, %flag : f64
    memref.store %newUpdates, %s[%c0] : memref<32xf64>
    %skipped = memref.load %s[%c9] : memref<32xf64>
    %newSkipped = arith.addf %skipped, %skip : f64
    memref.store %newSkipped, %s[%c9] : memref<32xf64>
    %scale = memref.load %s[%c10] : memref<32xf64>
    %newScale = arith.mulf %scale, %two : f64
    memref.store %newScale, %s[%c10] : memref<32xf64>
    %window = memref.load %s[%c15] : memref<32xf64>
    %read = arith.divf %one, %window : f64
    memref.store %read, %s[%c13] : memref<32xf64>
    gpu.return
  }

  // Momentum, and the bf16 copy; nothing if the gradient is not finite.
  gpu.func @update(%s: memref<32xf64>, %g: memref<1024xf32>, %w: memref<1024xf32>, %m: memref<1024xf32>, %h: memref<1024xbf16>) kernel attributes {known_block_size = array<i32: 256, 1, 1>} {
    %i = gpu.global_id x
    %c8 = arith.constant 8 : index
    %c13 = arith.constant 13 : index
    %c17 = arith.constant 17 : index
    %zero = arith.constant 0.0 : f64
    %decay = arith.constant 0.5 : f32
    %flag = memref.load %s[%c8] : memref<32xf64>
    %finite = arith.cmpf one, %flag, %zero : f64
    scf.if %finite {
      %s0 = memref.load %s[%c13] : memref<32xf64>
      %scale = arith.truncf %s0 : f64 to f32
      %s1 = memref.load %s[%c17] : memref<32xf64>
      %lr = arith.truncf %s1 : f64 to f32
      %0 = memref.load %g[%i] : memref<1024xf32>
      %1 = memref.load %m[%i] : memref<1024xf32>
      %2 = memref.load %w[%i] : memref<1024xf32>
      %3 = arith.mulf %1, %decay : f32
      %4 = arith.mulf %0, %scale : f32
      %5 = arith.addf %3, %4 : f32
      %6 = arith.mulf %lr, %5 : f32
      %7 = arith.subf %2, %6 : f32
      %8 = arith.truncf %7 : f32 to bf16
      memref.store %5, %m[%i] : memref<1024xf32>
      memref.store %7, %w[%i] : memref<1024xf32>
      memref.store %8, %h[%i] : memref<1024xbf16>
    }
    gpu.return
  }

  // a = x w, b = x + w
  gpu.func @show(%x: memref<1024xf32>, %w: memref<1024xf32>, %a: memref<1024xf32>, %b: memref<1024xf32>) kernel attributes {known_block_size = array<i32: 256, 1, 1>} {
    %i = gpu.global_id x
    %0 = memref.load %x[%i] : memref<1024xf32>
    %1 = memref.load %w[%i] : memref<1024xf32>
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %0, %1 : f32
    memref.store %2, %a[%i] : memref<1024xf32>
    memref.store %3, %b[%i] : memref<1024xf32>
    gpu.return
  }
}
