// RUN: trainc-opt %s --verify-diagnostics --split-input-file

func.func @embedding_table(%t: tensor<100xf32>, %i: tensor<8xi32>) {
  // expected-error @+1 {{expects a table of rank 2 with rows (C1), got 'tensor<100xf32>'}}
  %0 = nn.embedding %t, %i : tensor<100xf32>, tensor<8xi32>
  return
}

// -----

func.func @embedding_rows(%t: tensor<100x32xf32>, %i: tensor<8xi32>, %f: tensor<i64>) {
  // expected-error @+1 {{expects a table of at least one row (C2), got 0}}
  %0 = nn.embedding %t, %i from %f of 0 : tensor<100x32xf32>, tensor<8xi32>
  return
}

// -----

func.func @embedding_rows_of_whole(%t: tensor<100x32xf32>, %i: tensor<8xi32>) {
  // expected-error @+1 {{expects rows with first, and only then (C2)}}
  %0 = "nn.embedding"(%t, %i) {rows = 1000 : i64} : (tensor<100x32xf32>, tensor<8xi32>) -> tensor<8x32xf32>
  return
}

// -----

func.func @embedding_grad_rows_of_whole(%i: tensor<8xi32>, %g: tensor<8x32xf32>) {
  // expected-error @+1 {{expects rows with first, and only then (C4)}}
  %0 = "nn.embedding_grad"(%i, %g) {operandSegmentSizes = array<i32: 1, 1, 0, 0>, rows = 1000 : i64}
      : (tensor<8xi32>, tensor<8x32xf32>) -> tensor<100x32xf32>
  return
}

// -----

func.func @embedding_grad_rows(%i: tensor<8xi32>, %g: tensor<8x32xf32>, %f: tensor<i64>) {
  // expected-error @+1 {{expects a table of at least one row (C4), got -1}}
  %0 = nn.embedding_grad %i, %g from %f of -1 : tensor<8xi32>, tensor<8x32xf32> to tensor<100x32xf32>
  return
}

// -----

func.func @embedding_grad_shape(%i: tensor<8xi32>, %g: tensor<9x32xf32>) {
  // expected-error @+1 {{expects a grad of the ids' shape and the result's last size (C1), got 'tensor<9x32xf32>' for 'tensor<8xi32>' and 'tensor<100x32xf32>'}}
  %0 = nn.embedding_grad %i, %g : tensor<8xi32>, tensor<9x32xf32> to tensor<100x32xf32>
  return
}

// -----

func.func @embedding_grad_init(%i: tensor<8xi32>, %g: tensor<8x32xf32>, %n: tensor<99x32xf32>) {
  // expected-error @+1 {{expects an init of the result's type (C3), got 'tensor<99x32xf32>' for 'tensor<100x32xf32>'}}
  %0 = nn.embedding_grad %i, %g init %n : tensor<99x32xf32> : tensor<8xi32>, tensor<8x32xf32> to tensor<100x32xf32>
  return
}

// -----

func.func @embedding_grad_type(%i: tensor<8xi32>, %g: tensor<8x32xf32>) {
  // expected-error @+1 {{expects a result of rank 2 with rows and the grad's element type (C2), got 'tensor<100x32xf64>' for 'tensor<8x32xf32>'}}
  %0 = nn.embedding_grad %i, %g : tensor<8xi32>, tensor<8x32xf32> to tensor<100x32xf64>
  return
}

// -----

func.func @rotary_shape(%x: tensor<2x16x4x7xf32>) {
  // expected-error @+1 {{expects an input [B, T, H, D] with even D (C1), got 'tensor<2x16x4x7xf32>'}}
  %0 = nn.rotary %x theta 10000.0 : tensor<2x16x4x7xf32>
  return
}

// -----

func.func @rotary_theta(%x: tensor<2x16x4x8xf32>) {
  // expected-error @+1 {{expects theta to be finite and above 0 (C2), got 0.0}}
  %0 = nn.rotary %x theta 0.0 : tensor<2x16x4x8xf32>
  return
}

// -----

func.func @rotate_pairs_shape(%x: tensor<2x16x8xf32>, %c: tensor<16x4xf32>) {
  // expected-error @+1 {{expects an input [B, T, H, D] with even D (C1), got 'tensor<2x16x8xf32>'}}
  %0 = nn.rotate_pairs %x, %c, %c : tensor<2x16x8xf32>, tensor<16x4xf32>
  return
}

// -----

func.func @rotate_pairs_table(%x: tensor<2x16x4x8xbf16>, %c: tensor<16x4xbf16>) {
  // expected-error @+1 {{expects cos and sin of type 'tensor<16x4xf32>' (C2), got 'tensor<16x4xbf16>'}}
  %0 = nn.rotate_pairs %x, %c, %c : tensor<2x16x4x8xbf16>, tensor<16x4xbf16>
  return
}
