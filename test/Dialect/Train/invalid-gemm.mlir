// RUN: trainc-opt %s --split-input-file --verify-diagnostics

train.list @c1 of @step "first" (%a: tensor<8x8xf32>) {
  // expected-error @below {{expects a batch of 1 and no init with an epilogue or a bias gradient (C1)}}
  %0 = train.gemm %a, %a init %a m 8 n 8 k 8 batch 1 epilogue gelu : tensor<8x8xf32>, tensor<8x8xf32> init tensor<8x8xf32> -> tensor<8x8xf32>
  train.return
}

// -----

train.list @c1_batch of @step "first" (%a: tensor<2x8x8xf32>) {
  // expected-error @below {{expects a batch of 1 and no init with an epilogue or a bias gradient (C1)}}
  %0, %1 = train.gemm %a, %a m 8 n 8 k 8 batch 2 bias_gradient rhs : tensor<2x8x8xf32>, tensor<2x8x8xf32> -> tensor<2x8x8xf32> bias_sums tensor<8xf32>
  train.return
}

// -----

train.list @c2_at of @step "first" (%a: tensor<8x8xf32>) {
  // expected-error @below {{expects 'at' with gelu_grad and multiply, and a second result with gelu_and_slope, or gelu, only (C2)}}
  %0 = train.gemm %a, %a m 8 n 8 k 8 batch 1 epilogue gelu_grad : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
  train.return
}

// -----

train.list @c2_input of @step "first" (%a: tensor<8x8xf32>) {
  // expected-error @below {{expects 'at' with gelu_grad and multiply, and a second result with gelu_and_slope, or gelu, only (C2)}}
  %0, %1 = train.gemm %a, %a m 8 n 8 k 8 batch 1 : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32> kept tensor<8x8xf32>
  train.return
}

// -----

train.list @c2_slope of @step "first" (%a: tensor<8x8xf32>) {
  // expected-error @below {{expects 'at' with gelu_grad and multiply, and a second result with gelu_and_slope, or gelu, only (C2)}}
  %0 = train.gemm %a, %a m 8 n 8 k 8 batch 1 epilogue gelu_and_slope : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
  train.return
}

// -----

train.list @c2_multiply of @step "first" (%a: tensor<8x8xf32>) {
  // expected-error @below {{expects 'at' with gelu_grad and multiply, and a second result with gelu_and_slope, or gelu, only (C2)}}
  %0 = train.gemm %a, %a m 8 n 8 k 8 batch 1 epilogue multiply : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
  train.return
}

// -----

train.list @c4_multiply of @step "first" (%a: tensor<8x8xf32>, %v: tensor<8xf32>) {
  // expected-error @below {{expects no bias with gelu_grad, multiply or a bias gradient (C4)}}
  %0 = train.gemm %a, %a bias %v m 8 n 8 k 8 batch 1 epilogue multiply at %a : tensor<8x8xf32>, tensor<8x8xf32>, tensor<8xf32> at tensor<8x8xf32> -> tensor<8x8xf32>
  train.return
}

// -----

train.list @c2_f64 of @step "first" (%a: tensor<8x8xf64>) {
  // expected-error @below {{expects no epilogue in f64 (C2)}}
  %0 = train.gemm %a, %a m 8 n 8 k 8 batch 1 epilogue gelu : tensor<8x8xf64>, tensor<8x8xf64> -> tensor<8x8xf64>
  train.return
}

// -----

train.list @c2_rows of @step "first" (%a: tensor<8x8xf32>, %b: tensor<8x5xf32>) {
  // expected-error @below {{expects rows of a multiple of 8 elements (C2), got 5}}
  %0, %1 = train.gemm %a, %b m 8 n 5 k 8 batch 1 epilogue gelu : tensor<8x8xf32>, tensor<8x5xf32> -> tensor<8x5xf32> kept tensor<8x5xf32>
  train.return
}

// -----

train.list @c2_type of @step "first" (%a: tensor<8x8xf32>, %b: tensor<8x8xbf16>) {
  // expected-error @below {{expects 'at' like 'tensor<8x8xf32>' (C2), got 'tensor<8x8xbf16>'}}
  %0 = train.gemm %a, %a m 8 n 8 k 8 batch 1 epilogue gelu_grad at %b : tensor<8x8xf32>, tensor<8x8xf32> at tensor<8x8xbf16> -> tensor<8x8xf32>
  train.return
}

// -----

train.list @c3_lhs of @step "first" (%a: tensor<8x8xf32>) {
  // expected-error @below {{expects a bias gradient that this product has (C3), got lhs}}
  %0, %1 = train.gemm %a, %a m 8 n 8 k 8 batch 1 bias_gradient lhs : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32> bias_sums tensor<8xf32>
  train.return
}

// -----

train.list @c3_rhs of @step "first" (%a: tensor<8x8xf32>) {
  // expected-error @below {{expects a bias gradient that this product has (C3), got rhs}}
  %0, %1 = train.gemm %a, %a m 8 n 8 k 8 batch 1 transpose_rhs bias_gradient rhs : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32> bias_sums tensor<8xf32>
  train.return
}

// -----

train.list @c3_result of @step "first" (%a: tensor<8x8xf32>) {
  // expected-error @below {{expects a bias gradient that this product has (C3), got result}}
  %0, %1 = train.gemm %a, %a m 8 n 8 k 8 batch 1 bias_gradient result : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32> bias_sums tensor<8xf32>
  train.return
}

// -----

train.list @c4 of @step "first" (%a: tensor<8x8xf32>, %v: tensor<8xf32>) {
  // expected-error @below {{expects no bias with gelu_grad, multiply or a bias gradient (C4)}}
  %0, %1 = train.gemm %a, %a bias %v m 8 n 8 k 8 batch 1 bias_gradient rhs : tensor<8x8xf32>, tensor<8x8xf32>, tensor<8xf32> -> tensor<8x8xf32> bias_sums tensor<8xf32>
  train.return
}

// -----

train.list @c5 of @step "first" (%a: tensor<8x8xf32>) {
  // expected-error @below {{expects the bias gradient as a result (C5)}}
  %0 = train.gemm %a, %a m 8 n 8 k 8 batch 1 bias_gradient rhs : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
  train.return
}

// -----

train.list @c5_size of @step "first" (%a: tensor<8x8xf32>) {
  // expected-error @below {{expects a bias gradient of 8 x 'f32' (C5), got 'tensor<4xf32>'}}
  %0, %1 = train.gemm %a, %a m 8 n 8 k 8 batch 1 bias_gradient rhs : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32> bias_sums tensor<4xf32>
  train.return
}

// -----

train.list @c7 of @step "first" (%a: tensor<8x8xf32>) {
  // expected-error @below {{expects a plan with tiles of 1 or more and, of amx alone, a split_k below k (C7), got #train.gemm_plan<back_end = openblas, tile_m = 0, tile_n = 8>}}
  %0 = train.gemm %a, %a m 8 n 8 k 8 batch 1 plan <back_end = openblas, tile_m = 0, tile_n = 8> : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
  train.return
}

// -----

train.list @c7_split of @step "first" (%a: tensor<8x8xf32>) {
  // expected-error @below {{expects a plan with tiles of 1 or more and, of amx alone, a split_k below k (C7)}}
  %0 = train.gemm %a, %a m 8 n 8 k 8 batch 1 plan <back_end = vector, tile_m = 8, tile_n = 8, split_k = 4> : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
  train.return
}

// -----

train.list @c7_end of @step "first" (%a: tensor<8x8xf32>) {
  // expected-error @below {{expects a plan with tiles of 1 or more and, of amx alone, a split_k below k (C7)}}
  %0 = train.gemm %a, %a m 8 n 8 k 8 batch 1 plan <back_end = amx, tile_m = 8, tile_n = 8, split_k = 8> : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
  train.return
}

// -----

train.list @l of @step "first" (%a: tensor<4x6xf32>, %b: tensor<6x8xf32>) {
  // expected-error @below {{expects a left side of 1 x 5 x 6 elements (C8), got 'tensor<4x6xf32>'}}
  %c = train.gemm %a, %b m 5 n 8 k 6 batch 1 : tensor<4x6xf32>, tensor<6x8xf32> -> tensor<5x8xf32>
  train.return
}

// -----

train.list @l of @step "first" (%a: tensor<4x6xf32>, %b: tensor<6x8xf32>) {
  // expected-error @below {{expects a right side of 1 x 6 x 9 elements (C8), got 'tensor<6x8xf32>'}}
  %c = train.gemm %a, %b m 4 n 9 k 6 batch 1 : tensor<4x6xf32>, tensor<6x8xf32> -> tensor<4x9xf32>
  train.return
}

// -----

train.list @l of @step "first" (%a: tensor<4x7xf32>, %b: tensor<6x8xf32>) {
  // expected-error @below {{expects a result of 1 x 4 x 8 elements (C8), got 'tensor<5x8xf32>'}}
  %c = train.gemm %a, %b m 4 n 8 k 6 batch 1 : tensor<4x7xf32>, tensor<6x8xf32> -> tensor<5x8xf32>
  train.return
}

// -----

// A product of sizes that no number has.
train.list @l of @step "first" (%a: tensor<8x8xf32>) {
  // expected-error @below {{expects a left side of 1 x 9223372036854775807 x 8 elements (C8), got 'tensor<8x8xf32>'}}
  %c = train.gemm %a, %a m 9223372036854775807 n 8 k 8 batch 1 : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
  train.return
}
