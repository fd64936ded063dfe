// RUN: trainc-opt %s --train-plan-gemms | FileCheck %s --check-prefixes=CHECK,AVX2
// RUN: trainc-opt %s '--train-plan-gemms=vector=false' | FileCheck %s --check-prefixes=CHECK,OLD
// RUN: trainc-opt %s '--train-plan-gemms=avx512 bf16' | FileCheck %s --check-prefixes=CHECK,AVX512
// RUN: trainc-opt %s '--train-plan-gemms=avx512 bf16 cores=2' | FileCheck %s --check-prefixes=CHECK,CORES
// RUN: trainc-opt %s '--train-plan-gemms=avx512 bf16 double-pumped' | FileCheck %s --check-prefixes=CHECK,PUMPED
// RUN: trainc-opt %s '--train-plan-gemms=avx512 bf16 amx' | FileCheck %s --check-prefixes=CHECK,AMX
// RUN: trainc-opt %s '--train-plan-gemms=avx512 bf16 amx split-f32=false' | FileCheck %s --check-prefixes=CHECK,WHOLE
// RUN: trainc-opt %s '--train-plan-gemms=gpu' | FileCheck %s --check-prefixes=CHECK,GPU
// RUN: trainc-opt %s '--train-plan-gemms=gpu tf32' | FileCheck %s --check-prefixes=CHECK,TF32

// Few multiply-adds are one tile, of OpenBLAS on every CPU.
// CHECK-LABEL: @small
train.list @small of @step "first" (%a: tensor<4x6xf32>, %b: tensor<6x8xf32>) {
  // AVX2: train.gemm {{.*}} plan <back_end = openblas, tile_m = 4, tile_n = 8>
  // OLD: train.gemm {{.*}} plan <back_end = openblas, tile_m = 4, tile_n = 8>
  // AVX512: train.gemm {{.*}} plan <back_end = openblas, tile_m = 4, tile_n = 8>
  // AMX: train.gemm {{.*}} plan <back_end = openblas, tile_m = 4, tile_n = 8>
  // GPU: train.gemm {{.*}} plan <back_end = cublaslt, tile_m = 4, tile_n = 8>
  // TF32: train.gemm {{.*}} plan <back_end = cublaslt_tf32, tile_m = 4, tile_n = 8>
  %0 = train.gemm %a, %b m 4 n 8 k 6 batch 1 : tensor<4x6xf32>, tensor<6x8xf32> -> tensor<4x8xf32>
  train.return
}

// A large one is cut by the cost of packing; for oneDNN into no more tiles than there are
// cores. Our own code cuts it when it runs.
// CHECK-LABEL: @large
train.list @large of @step "first" (%a: tensor<1024x384xf32>, %b: tensor<384x1536xf32>) {
  // AVX2: train.gemm {{.*}} plan <back_end = vector, tile_m = 512, tile_n = 1536>
  // OLD: train.gemm {{.*}} plan <back_end = openblas, tile_m = 512, tile_n = 1536>
  // AVX512: train.gemm {{.*}} plan <back_end = onednn, tile_m = 512, tile_n = 1536>
  // CORES: train.gemm {{.*}} plan <back_end = onednn, tile_m = 512, tile_n = 1536>
  // AMX: train.gemm {{.*}} plan <back_end = amx, tile_m = 512, tile_n = 1536>
  // WHOLE: train.gemm {{.*}} plan <back_end = onednn, tile_m = 512, tile_n = 1536>
  // GPU: train.gemm {{.*}} plan <back_end = cublaslt, tile_m = 1024, tile_n = 1536>
  %0 = train.gemm %a, %b m 1024 n 1536 k 384 batch 1 : tensor<1024x384xf32>, tensor<384x1536xf32> -> tensor<1024x1536xf32>
  train.return
}

// Of the gradient of a weight A is transposed.
// CHECK-LABEL: @transposed
train.list @transposed of @step "first" (%a: tensor<2048x768xf32>, %b: tensor<2048x768xf32>) {
  // AVX2: train.gemm {{.*}} plan <back_end = vector,
  // AVX512: train.gemm {{.*}} plan <back_end = vector,
  // PUMPED: train.gemm {{.*}} plan <back_end = onednn,
  // CORES: train.gemm {{.*}} plan <back_end = vector,
  // AMX: train.gemm {{.*}} plan <back_end = amx,
  // WHOLE: train.gemm {{.*}} plan <back_end = vector,
  %0 = train.gemm %a, %b m 768 n 768 k 2048 batch 1 transpose_lhs : tensor<2048x768xf32>, tensor<2048x768xf32> -> tensor<768x768xf32>
  train.return
}

// Of that of an operand B is transposed: where it is not large, that is our own.
// CHECK-LABEL: @operand
train.list @operand of @step "first" (%a: tensor<16x256xf32>, %b: tensor<64x256xf32>, %c: tensor<1024x1024xf32>) {
  // AVX512: train.gemm {{.*}} plan <back_end = vector, tile_m = 16, tile_n = 64>
  // PUMPED: train.gemm {{.*}} plan <back_end = vector, tile_m = 16, tile_n = 64>
  // AMX: train.gemm {{.*}} plan <back_end = vector, tile_m = 16, tile_n = 64>
  %0 = train.gemm %a, %b m 16 n 64 k 256 batch 1 transpose_rhs : tensor<16x256xf32>, tensor<64x256xf32> -> tensor<16x64xf32>
  // AVX512: train.gemm {{.*}} plan <back_end = onednn,
  // AMX: train.gemm {{.*}} plan <back_end = amx,
  %1 = train.gemm %c, %c m 1024 n 1024 k 1024 batch 1 transpose_rhs : tensor<1024x1024xf32>, tensor<1024x1024xf32> -> tensor<1024x1024xf32>
  train.return
}

// Of that of a small weight AMX cuts k; not with a bias.
// CHECK-LABEL: @split
train.list @split of @step "first" (%a: tensor<1000x96xf32>, %b: tensor<1000x96xf32>, %v: tensor<96xf32>) {
  // AMX: train.gemm {{.*}} plan <back_end = amx, tile_m = 48, tile_n = 96, split_k = 512>
  %0 = train.gemm %a, %b m 96 n 96 k 1000 batch 1 transpose_lhs : tensor<1000x96xf32>, tensor<1000x96xf32> -> tensor<96x96xf32>
  // AMX: train.gemm {{.*}} bias {{.*}} plan <back_end = amx, tile_m = 48, tile_n = 96>
  %1 = train.gemm %a, %b bias %v m 96 n 96 k 1000 batch 1 transpose_lhs : tensor<1000x96xf32>, tensor<1000x96xf32>, tensor<96xf32> -> tensor<96x96xf32>
  train.return
}

// bf16 goes to the CPU's instructions for it; f16, and bf16 without them, to our own code; f64 has
// neither.
// CHECK-LABEL: @types
train.list @types of @step "first" (%a: tensor<256x256xbf16>, %h: tensor<256x256xf16>, %d: tensor<256x256xf64>) {
  // AVX2: train.gemm {{.*}} plan <back_end = vector,
  // AVX512: train.gemm {{.*}} plan <back_end = onednn,
  // AMX: train.gemm {{.*}} plan <back_end = amx,
  // WHOLE: train.gemm {{.*}} plan <back_end = amx,
  // TF32: train.gemm {{.*}} plan <back_end = cublaslt,
  %0 = train.gemm %a, %a m 256 n 256 k 256 batch 1 : tensor<256x256xbf16>, tensor<256x256xbf16> -> tensor<256x256xf32>
  // AVX512: train.gemm {{.*}} plan <back_end = vector,
  // AMX: train.gemm {{.*}} plan <back_end = vector,
  %1 = train.gemm %h, %h m 256 n 256 k 256 batch 1 : tensor<256x256xf16>, tensor<256x256xf16> -> tensor<256x256xf16>
  // AVX512: train.gemm {{.*}} plan <back_end = openblas,
  // AMX: train.gemm {{.*}} plan <back_end = openblas,
  %2 = train.gemm %d, %d m 256 n 256 k 256 batch 1 : tensor<256x256xf64>, tensor<256x256xf64> -> tensor<256x256xf64>
  train.return
}

// It does nothing to what has a plan.
// CHECK-LABEL: @planned
train.list @planned of @step "first" (%a: tensor<1024x384xf32>, %b: tensor<384x1536xf32>) {
  // CHECK: train.gemm {{.*}} plan <back_end = openblas, tile_m = 64, tile_n = 32>
  %0 = train.gemm %a, %b m 1024 n 1536 k 384 batch 1 plan <back_end = openblas, tile_m = 64, tile_n = 32> : tensor<1024x384xf32>, tensor<384x1536xf32> -> tensor<1024x1536xf32>
  train.return
}

// Convolutions get what computes their GEMMs, and two tiles for each CPU.
// CHECK-LABEL: @convolution
train.list @convolution of @step "first" (%x: tensor<8x4x9x9xf32>, %v: tensor<6x4x3x3xf32>, %h: tensor<8x4x9x9xbf16>, %u: tensor<6x4x3x3xbf16>, %d: tensor<8x4x9x9xf64>, %w: tensor<6x4x3x3xf64>, %p: tensor<4x1x3x3xbf16>, %g: tensor<8x6x7x7xf32>, %i: tensor<8x4x33x33xf32>, %o: tensor<8x6x16x16xf32>, %q: tensor<6x4x1x1xf32>) {
  // AVX2: train.convolution {{.*}} plan <back_end = vector, tiles = 64>
  // OLD: train.convolution {{.*}} plan <back_end = openblas, tiles = 64>
  // AVX512: train.convolution {{.*}} plan <back_end = onednn, tiles = 64>
  // CORES: train.convolution {{.*}} plan <back_end = onednn, tiles = 4>
  // AMX: train.convolution {{.*}} plan <back_end = amx, tiles = 64>
  // WHOLE: train.convolution {{.*}} plan <back_end = onednn, tiles = 64>
  %0 = train.convolution forward %x, %v strides [1, 1] padding [0, 0, 0, 0] dilations [1, 1] groups 1 : tensor<8x4x9x9xf32>, tensor<6x4x3x3xf32> -> tensor<8x6x7x7xf32>
  // AVX2: train.convolution {{.*}} plan <back_end = vector, tiles = 64>
  // OLD: train.convolution {{.*}} plan <back_end = openblas, tiles = 64>
  // AVX512: train.convolution {{.*}} plan <back_end = onednn, tiles = 64>
  // AMX: train.convolution {{.*}} plan <back_end = amx, tiles = 64>
  // WHOLE: train.convolution {{.*}} plan <back_end = amx, tiles = 64>
  %1 = train.convolution forward %h, %u strides [1, 1] padding [0, 0, 0, 0] dilations [1, 1] groups 1 : tensor<8x4x9x9xbf16>, tensor<6x4x3x3xbf16> -> tensor<8x6x7x7xbf16>
  // AVX2: train.convolution {{.*}} plan <back_end = openblas, tiles = 64>
  // AMX: train.convolution {{.*}} plan <back_end = openblas, tiles = 64>
  %2 = train.convolution forward %d, %w strides [1, 1] padding [0, 0, 0, 0] dilations [1, 1] groups 1 : tensor<8x4x9x9xf64>, tensor<6x4x3x3xf64> -> tensor<8x6x7x7xf64>
  // Groups of one channel are no GEMMs.
  // AVX2: train.convolution {{.*}} groups 4 plan <back_end = vector, tiles = 64>
  // OLD: train.convolution {{.*}} groups 4 plan <back_end = openblas, tiles = 64>
  // AVX512: train.convolution {{.*}} groups 4 plan <back_end = vector, tiles = 64>
  // AMX: train.convolution {{.*}} groups 4 plan <back_end = vector, tiles = 64>
  %3 = train.convolution forward %h, %p strides [1, 1] padding [0, 0, 0, 0] dilations [1, 1] groups 4 : tensor<8x4x9x9xbf16>, tensor<4x1x3x3xbf16> -> tensor<8x4x7x7xbf16>
  // AVX512: train.convolution weight_gradient {{.*}} plan <back_end = vector, tiles = 64>
  %4 = train.convolution weight_gradient %x, %g strides [1, 1] padding [0, 0, 0, 0] dilations [1, 1] groups 1 : tensor<8x4x9x9xf32>, tensor<8x6x7x7xf32> -> tensor<6x4x3x3xf32>
  // AVX512: train.convolution {{.*}} plan <back_end = vector, tiles = 64>
  // AMX: train.convolution {{.*}} plan <back_end = amx, tiles = 64>
  %5 = train.convolution forward %i, %v strides [2, 2] padding [0, 0, 0, 0] dilations [1, 1] groups 1 : tensor<8x4x33x33xf32>, tensor<6x4x3x3xf32> -> tensor<8x6x16x16xf32>
  // AVX512: train.convolution input_gradient {{.*}} plan <back_end = vector, tiles = 64>
  %6 = train.convolution input_gradient %v, %o strides [2, 2] padding [0, 0, 0, 0] dilations [1, 1] groups 1 : tensor<6x4x3x3xf32>, tensor<8x6x16x16xf32> -> tensor<8x4x33x33xf32>
  // Windows of one element are planes as they are.
  // AVX512: train.convolution {{.*}} plan <back_end = onednn, tiles = 64>
  %7 = train.convolution forward %i, %q strides [1, 1] padding [0, 0, 0, 0] dilations [1, 1] groups 1 : tensor<8x4x33x33xf32>, tensor<6x4x1x1xf32> -> tensor<8x6x33x33xf32>
  train.return
}
