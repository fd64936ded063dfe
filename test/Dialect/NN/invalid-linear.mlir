// RUN: trainc-opt %s --verify-diagnostics --split-input-file

func.func @matmul_batch(%a: tensor<2x4x8xf32>, %b: tensor<3x8x5xf32>) {
  // expected-error @+1 {{'nn.matmul' op expects equal batches, or none on the right (C1), got 'tensor<2x4x8xf32>' and 'tensor<3x8x5xf32>'}}
  %0 = nn.matmul %a, %b : tensor<2x4x8xf32>, tensor<3x8x5xf32>
  return
}

// -----

func.func @matmul_batch_right(%a: tensor<4x8xf32>, %b: tensor<3x8x5xf32>) {
  // expected-error @+1 {{'nn.matmul' op expects equal batches, or none on the right (C1), got 'tensor<4x8xf32>' and 'tensor<3x8x5xf32>'}}
  %0 = nn.matmul %a, %b : tensor<4x8xf32>, tensor<3x8x5xf32>
  return
}

// -----

func.func @matmul_rank(%a: tensor<8xf32>, %b: tensor<8x5xf32>) {
  // expected-error @+1 {{'nn.matmul' op expects equal batches, or none on the right (C1), got 'tensor<8xf32>' and 'tensor<8x5xf32>'}}
  %0 = nn.matmul %a, %b : tensor<8xf32>, tensor<8x5xf32>
  return
}

// -----

func.func @matmul_sizes(%a: tensor<4x8xf32>, %b: tensor<8x5xf32>) {
  // expected-error @+1 {{'nn.matmul' op expects equal contracted sizes (C2), got 'tensor<4x8xf32>' and 'tensor<8x5xf32>'}}
  %0 = nn.matmul %a, %b transpose_rhs : tensor<4x8xf32>, tensor<8x5xf32>
  return
}

// -----

func.func @matmul_types(%a: tensor<4x8xf32>, %b: tensor<8x5xbf16>) {
  // expected-error @+1 {{'nn.matmul' op expects equal element types (C3), got 'tensor<4x8xf32>' and 'tensor<8x5xbf16>'}}
  %0 = nn.matmul %a, %b : tensor<4x8xf32>, tensor<8x5xbf16>
  return
}

// -----

func.func @matmul_bias(%a: tensor<4x8xf32>, %b: tensor<8x5xf32>, %c: tensor<4xf32>) {
  // expected-error @+1 {{'nn.matmul' op expects a bias of type 'tensor<5xf32>' (C4), got 'tensor<4xf32>'}}
  %0 = nn.matmul %a, %b bias %c : tensor<4x8xf32>, tensor<8x5xf32>, tensor<4xf32>
  return
}

// -----

func.func @linear_sizes(%x: tensor<2x4x8xf32>, %w: tensor<5x8xf32>) {
  // expected-error @+1 {{'nn.linear' op expects the input's last size to be the weight's first (C1), got 'tensor<2x4x8xf32>' and 'tensor<5x8xf32>'}}
  %0 = nn.linear %x, %w : tensor<2x4x8xf32>, tensor<5x8xf32>
  return
}

// -----

func.func @linear_bias(%x: tensor<4x8xf32>, %w: tensor<8x5xf32>, %b: tensor<8xf32>) {
  // expected-error @+1 {{'nn.linear' op expects a bias of size 5 (C2), got 'tensor<8xf32>'}}
  %0 = nn.linear %x, %w, %b : tensor<4x8xf32>, tensor<8x5xf32>, tensor<8xf32>
  return
}

// -----

func.func @linear_types(%x: tensor<4x8xbf16>, %w: tensor<8x5xf32>) {
  // expected-error @+1 {{'nn.linear' op expects equal element types (C3), got 'tensor<4x8xbf16>' and 'tensor<8x5xf32>'}}
  %0 = nn.linear %x, %w : tensor<4x8xbf16>, tensor<8x5xf32>
  return
}
