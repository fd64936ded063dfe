// RUN: trainc-opt %s --verify-roundtrip | FileCheck %s

// CHECK-LABEL: train.list @products
train.list @products of @step "first" (%a: tensor<4x6xf32>, %b: tensor<6x8xf32>, %v: tensor<8xf32>, %c: tensor<4x8xf32>) {
  // CHECK: train.gemm %{{.*}}, %{{.*}} m 4 n 8 k 6 batch 1 : tensor<4x6xf32>, tensor<6x8xf32> -> tensor<4x8xf32>
  %0 = train.gemm %a, %b m 4 n 8 k 6 batch 1 : tensor<4x6xf32>, tensor<6x8xf32> -> tensor<4x8xf32>
  // CHECK: train.gemm %{{.*}}, %{{.*}} init %{{.*}} m 4 n 8 k 6 batch 1 : tensor<4x6xf32>, tensor<6x8xf32> init tensor<4x8xf32> -> tensor<4x8xf32>
  %1 = train.gemm %a, %b init %c m 4 n 8 k 6 batch 1 : tensor<4x6xf32>, tensor<6x8xf32> init tensor<4x8xf32> -> tensor<4x8xf32>
  // CHECK: %{{.*}}, %{{.*}} = train.gemm %{{.*}}, %{{.*}} bias %{{.*}} m 4 n 8 k 6 batch 1 epilogue gelu : tensor<4x6xf32>, tensor<6x8xf32>, tensor<8xf32> -> tensor<4x8xf32> kept tensor<4x8xf32>
  %2, %3 = train.gemm %a, %b bias %v m 4 n 8 k 6 batch 1 epilogue gelu : tensor<4x6xf32>, tensor<6x8xf32>, tensor<8xf32> -> tensor<4x8xf32> kept tensor<4x8xf32>
  // CHECK: train.gemm %{{.*}}, %{{.*}} m 4 n 8 k 6 batch 1 epilogue gelu_grad at %{{.*}} bias_gradient result : tensor<4x6xf32>, tensor<6x8xf32> at tensor<4x8xf32> -> tensor<4x8xf32> bias_sums tensor<8xf32>
  %4, %5 = train.gemm %a, %b m 4 n 8 k 6 batch 1 epilogue gelu_grad at %c bias_gradient result : tensor<4x6xf32>, tensor<6x8xf32> at tensor<4x8xf32> -> tensor<4x8xf32> bias_sums tensor<8xf32>
  // CHECK: train.gemm %{{.*}}, %{{.*}} m 6 n 8 k 4 batch 1 transpose_lhs bias_gradient lhs
  %6, %7 = train.gemm %a, %c m 6 n 8 k 4 batch 1 transpose_lhs bias_gradient lhs : tensor<4x6xf32>, tensor<4x8xf32> -> tensor<6x8xf32> bias_sums tensor<6xf32>
  // CHECK: %{{.*}}, %[[SLOPE:.*]] = train.gemm %{{.*}}, %{{.*}} m 4 n 8 k 6 batch 1 epilogue gelu_and_slope : tensor<4x6xf32>, tensor<6x8xf32> -> tensor<4x8xf32> kept tensor<4x8xf32>
  %8, %9 = train.gemm %a, %b m 4 n 8 k 6 batch 1 epilogue gelu_and_slope : tensor<4x6xf32>, tensor<6x8xf32> -> tensor<4x8xf32> kept tensor<4x8xf32>
  // CHECK: train.gemm %{{.*}}, %{{.*}} m 4 n 8 k 6 batch 1 epilogue multiply at %[[SLOPE]] : tensor<4x6xf32>, tensor<6x8xf32> at tensor<4x8xf32> -> tensor<4x8xf32>
  %10 = train.gemm %a, %b m 4 n 8 k 6 batch 1 epilogue multiply at %9 : tensor<4x6xf32>, tensor<6x8xf32> at tensor<4x8xf32> -> tensor<4x8xf32>
  // CHECK: train.gemm %{{.*}}, %{{.*}} m 6 n 8 k 4 batch 1 transpose_lhs plan <back_end = amx, tile_m = 6, tile_n = 8, split_k = 2> : tensor<4x6xf32>, tensor<4x8xf32> -> tensor<6x8xf32>
  %11 = train.gemm %a, %c m 6 n 8 k 4 batch 1 transpose_lhs plan <back_end = amx, tile_m = 6, tile_n = 8, split_k = 2> : tensor<4x6xf32>, tensor<4x8xf32> -> tensor<6x8xf32>
  train.return
}
