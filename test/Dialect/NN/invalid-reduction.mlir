// RUN: trainc-opt %s --verify-diagnostics --split-input-file

func.func @reduce_rank(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'nn.reduce' op expects distinct dims within the rank (C1), got [2] for 'tensor<4x8xf32>'}}
  %r = nn.reduce sum %x dims [2] : tensor<4x8xf32>
  return
}

// -----

func.func @reduce_twice(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'nn.reduce' op expects distinct dims within the rank (C1), got [1, 1] for 'tensor<4x8xf32>'}}
  %r = nn.reduce max %x dims [1, 1] : tensor<4x8xf32>
  return
}

// -----

func.func @argmax_rank(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'nn.argmax' op expects a dim within the rank (C1), got -1 for 'tensor<4x8xf32>'}}
  %r = nn.argmax %x dim -1 : tensor<4x8xf32>
  return
}

// -----

func.func @argmax_size(%x: tensor<4x0xf32>) {
  // expected-error @+1 {{'nn.argmax' op expects a size from 1 to 2^31 - 1 along the dim (C2), got 0}}
  %r = nn.argmax %x dim 1 : tensor<4x0xf32>
  return
}

// -----

func.func @sort_rank(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'nn.sort' op expects a dim within the rank (C1), got 2 for 'tensor<4x8xf32>'}}
  %r:3 = nn.sort %x dim 2 : tensor<4x8xf32>
  return
}

// -----

func.func @sort_size(%x: tensor<4x0xf32>) {
  // expected-error @+1 {{'nn.sort' op expects a size from 1 to 2^31 - 1 along the dim (C2), got 0}}
  %r:3 = nn.sort %x dim 1 : tensor<4x0xf32>
  return
}
