// RUN: trainc-opt %s --verify-diagnostics --split-input-file

func.func @iota_rank() {
  // expected-error @+1 {{expects a dim within the rank (C1), got 2 for 'tensor<4x8xi32>'}}
  %r = nn.iota dim 2 : tensor<4x8xi32>
  return
}

// -----

func.func @constant_without_bytes() {
  // expected-error @+1 {{expects the bytes of all its elements (C1), got dense_resource<missing> : tensor<4xf32>}}
  %r = nn.constant dense_resource<missing> : tensor<4xf32>
  return
}

// -----

func.func @reshape_elements(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{expects equal element types and numbers of elements (C1), got 'tensor<4x8xf32>' and 'tensor<31xf32>'}}
  %r = nn.reshape %x : tensor<4x8xf32> to tensor<31xf32>
  return
}

// -----

func.func @broadcast_shapes(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{expects an input that broadcasts to the result (C1), got 'tensor<4x8xf32>' and 'tensor<8x8xf32>'}}
  %r = nn.broadcast %x : tensor<4x8xf32> to tensor<8x8xf32>
  return
}

// -----

func.func @broadcast_types(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{expects equal element types (C2), got 'tensor<4x8xf32>' and 'tensor<4x8xf64>'}}
  %r = nn.broadcast %x : tensor<4x8xf32> to tensor<4x8xf64>
  return
}

// -----

func.func @transpose_permutation(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'nn.transpose' op expects a permutation of the dimensions (C1), got [0, 0] for 'tensor<4x8xf32>'}}
  %r = nn.transpose %x [0, 0] : tensor<4x8xf32>
  return
}

// -----

func.func @slice_rank(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{expects one offset, size and stride per dimension (C1), got 2, 1 and 2 for 'tensor<4x8xf32>'}}
  %r = nn.slice %x offsets [0, 0] sizes [4] strides [1, 1] : tensor<4x8xf32>
  return
}

// -----

func.func @slice_end(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{expects elements within the input (C2), got offset 1, size 4 and stride 3 in dimension 1 of 'tensor<4x8xf32>'}}
  %r = nn.slice %x offsets [0, 1] sizes [4, 4] strides [1, 3] : tensor<4x8xf32>
  return
}

// -----

func.func @slice_size(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'nn.slice' op expects sizes of at least 1 (C2), got 0}}
  %r = nn.slice %x offsets [0, 1] sizes [4, 0] : tensor<4x8xf32>
  return
}

// -----

func.func @slice_overflow(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{expects elements within the input (C2), got offset 0, size 4 and stride 9223372036854775807 in dimension 0 of 'tensor<4x8xf32>'}}
  %r = nn.slice %x offsets [0, 0] sizes [4, 1] strides [9223372036854775807, 1] : tensor<4x8xf32>
  return
}

// -----

func.func @pad_rank(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'nn.pad' op expects one low, high and interior of 0 to 2^40 per dimension (C1), got [1] for 'tensor<4x8xf32>'}}
  %r = nn.pad %x low [0, 1] high [1] value 0.0 : tensor<4x8xf32>
  return
}

// -----

func.func @pad_negative(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'nn.pad' op expects one low, high and interior of 0 to 2^40 per dimension (C1), got [0, -1] for 'tensor<4x8xf32>'}}
  %r = nn.pad %x low [0, 1] high [0, 0] interior [0, -1] value 0.0 : tensor<4x8xf32>
  return
}

// -----

func.func @pad_empty(%x: tensor<4x0xf32>) {
  // expected-error @+1 {{'nn.pad' op expects an input with elements (C2), got 'tensor<4x0xf32>'}}
  %r = nn.pad %x low [0, 1] high [0, 0] value 0.0 : tensor<4x0xf32>
  return
}

// -----

func.func @pad_interior(%x: tensor<1099511627776xf32>) {
  // expected-error @below {{'nn.pad' op expects a result of at most 2^40 elements (C2), got interior 1 for 'tensor<1099511627776xf32>'}}
  %0 = nn.pad %x low [0] high [0] interior [1] value 0.0 : tensor<1099511627776xf32>
  return
}

// -----

func.func @pad_value(%x: tensor<4xi32>) {
  // expected-error @+1 {{expects a whole value for integers (C3), got 5.000000e-01}}
  %r = nn.pad %x low [1] high [0] value 0.5 : tensor<4xi32>
  return
}

// -----

func.func @concat_rank(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'nn.concat' op expects a dim within the rank (C1), got 2 for 'tensor<4x8xf32>'}}
  %r = nn.concat %x, %x dim 2 : tensor<4x8xf32>, tensor<4x8xf32>
  return
}

// -----

func.func @concat_sizes(%x: tensor<4x8xf32>, %i: tensor<4x3xi32>, %u: tensor<4x3xf32>) {
  // expected-error @+1 {{'nn.concat' op expects equal element types and sizes but along dim (C2), got 'tensor<4x8xf32>' and 'tensor<4x3xf32>'}}
  %r = nn.concat %x, %u dim 0 : tensor<4x8xf32>, tensor<4x3xf32>
  return
}

// -----

func.func @concat_types(%x: tensor<4x8xf32>, %i: tensor<4x3xi32>, %u: tensor<4x3xf32>) {
  // expected-error @+1 {{'nn.concat' op expects equal element types and sizes but along dim (C2), got 'tensor<4x8xf32>' and 'tensor<4x3xi32>'}}
  %r = nn.concat %x, %i dim 1 : tensor<4x8xf32>, tensor<4x3xi32>
  return
}

// -----

func.func @concat_nothing() {
  // expected-error @+2 {{'nn.concat' op expects at least one input}}
  // expected-error @+1 {{failed to infer returned types}}
  %r = "nn.concat"() <{dim = 0 : i64}> : () -> tensor<4xf32>
  return
}

// -----

func.func @gather_rank(%x: tensor<4x8xf32>, %i: tensor<4x3xi32>, %u: tensor<4x3xf32>) {
  // expected-error @+1 {{'nn.gather' op expects a dim within the rank (C1), got 2 for 'tensor<4x8xf32>'}}
  %r = nn.gather %x, %i dim 2 : tensor<4x8xf32>, tensor<4x3xi32>
  return
}

// -----

func.func @gather_sizes(%x: tensor<4x8xf32>, %i: tensor<4x3xi32>, %u: tensor<4x3xf32>) {
  // expected-error @+1 {{'nn.gather' op expects equal sizes but along dim (C2), got 'tensor<4x8xf32>' and 'tensor<4x3xi32>'}}
  %r = nn.gather %x, %i dim 0 : tensor<4x8xf32>, tensor<4x3xi32>
  return
}

// -----

func.func @gather_empty(%x: tensor<4x0xf32>, %i: tensor<4x3xi32>) {
  // expected-error @+1 {{'nn.gather' op expects an input with elements (C3), got 'tensor<4x0xf32>'}}
  %r = nn.gather %x, %i dim 1 : tensor<4x0xf32>, tensor<4x3xi32>
  return
}

// -----

func.func @scatter_add_rank(%x: tensor<4x8xf32>, %i: tensor<4x3xi32>, %u: tensor<4x3xf32>) {
  // expected-error @+1 {{expects a dim within the rank (C1), got 2 for 'tensor<4x8xf32>'}}
  %r = nn.scatter_add %i, %u dim 2 : tensor<4x3xi32>, tensor<4x3xf32> to tensor<4x8xf32>
  return
}

// -----

func.func @scatter_add_updates(%x: tensor<4x8xf32>, %i: tensor<4x3xi32>, %u: tensor<4x3xf32>) {
  // expected-error @+1 {{expects indices and updates of one shape (C2), got 'tensor<4x3xi32>' and 'tensor<4x8xf32>'}}
  %r = nn.scatter_add %i, %x dim 1 : tensor<4x3xi32>, tensor<4x8xf32> to tensor<4x8xf32>
  return
}

// -----

func.func @scatter_add_sizes(%x: tensor<4x8xf32>, %i: tensor<4x3xi32>, %u: tensor<4x3xf32>) {
  // expected-error @+1 {{expects equal sizes but along dim (C3), got 'tensor<4x3xf32>' and 'tensor<5x8xf32>'}}
  %r = nn.scatter_add %i, %u dim 1 : tensor<4x3xi32>, tensor<4x3xf32> to tensor<5x8xf32>
  return
}

// -----

func.func @scatter_add_types(%x: tensor<4x8xf32>, %i: tensor<4x3xi32>, %u: tensor<4x3xf32>) {
  // expected-error @+1 {{expects equal element types (C4), got 'tensor<4x3xf32>' and 'tensor<4x8xf64>'}}
  %r = nn.scatter_add %i, %u dim 1 : tensor<4x3xi32>, tensor<4x3xf32> to tensor<4x8xf64>
  return
}

// -----

func.func @no_elements(%x: tensor<2x0xf32>) {
  // expected-error @below {{'nn.softmax' op operand #0 must be static tensor of 64-bit float or 32-bit float or bfloat16 type or 16-bit float values, 1 to 2^40 of them, without encoding, but got 'tensor<2x0xf32>'}}
  %0 = nn.softmax %x dim 0 : tensor<2x0xf32>
  return
}

// -----

func.func @encoding(%x: tensor<2xf32, "sparse">) {
  // expected-error @below {{'nn.stop_gradient' op operand #0 must be static tensor}}
  %0 = nn.stop_gradient %x : tensor<2xf32, "sparse">
  return
}

// -----

func.func @pad_huge(%x: tensor<2xf32>) {
  // expected-error @below {{'nn.pad' op expects one low, high and interior of 0 to 2^40 per dimension (C1), got [9223372036854775807]}}
  %0 = nn.pad %x low [0] high [9223372036854775807] value 0.0 : tensor<2xf32>
  return
}

// -----

func.func @pad_value(%x: tensor<2xi64>) {
  // expected-error @below {{expects a whole value for integers (C3), got 9.22}}
  %0 = nn.pad %x low [0] high [1] value 9223372036854775807.0 : tensor<2xi64>
  return
}

// -----

func.func @part_dim(%x: tensor<8x3xf32>, %i: tensor<i64>) {
  // expected-error @below {{'nn.part' op expects a dim within the rank (C1), got 2 for 'tensor<8x3xf32>'}}
  %0 = nn.part %x at %i dim 2 of 2 : tensor<8x3xf32>
  return
}

// -----

func.func @part_count(%x: tensor<8x3xf32>, %i: tensor<i64>) {
  // expected-error @below {{'nn.part' op expects a count of at least 1 that divides the size along dim (C2), got 3 for 'tensor<8x3xf32>'}}
  %0 = nn.part %x at %i dim 0 of 3 : tensor<8x3xf32>
  return
}
