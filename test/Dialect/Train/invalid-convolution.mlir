// RUN: trainc-opt %s --split-input-file --verify-diagnostics

train.list @c1_output of @step "first" (%x: tensor<8x4x9x9xf32>, %w: tensor<6x4x3x3xf32>) {
  // expected-error @below {{expects an output of shape 8, 6, 7, 7 (C1), got 'tensor<8x6x9x9xf32>'}}
  %y = train.convolution forward %x, %w strides [1, 1] padding [0, 0, 0, 0] dilations [1, 1] groups 1 : tensor<8x4x9x9xf32>, tensor<6x4x3x3xf32> -> tensor<8x6x9x9xf32>
  train.return
}

// -----

train.list @c1_gradient of @step "first" (%w: tensor<6x4x3x3xf32>, %g: tensor<8x6x6x7xf32>) {
  // expected-error @below {{expects an output of shape 8, 6, 7, 7 (C1), got 'tensor<8x6x6x7xf32>'}}
  %y = train.convolution input_gradient %w, %g strides [1, 1] padding [0, 0, 0, 0] dilations [1, 1] groups 1 : tensor<6x4x3x3xf32>, tensor<8x6x6x7xf32> -> tensor<8x4x9x9xf32>
  train.return
}

// -----

train.list @c1_groups of @step "first" (%x: tensor<8x4x9x9xf32>, %w: tensor<6x4x3x3xf32>) {
  // expected-error @below {{expects groups that divide outputs and channels (C1), got 2 of 'tensor<8x4x9x9xf32>' and 'tensor<6x4x3x3xf32>'}}
  %y = train.convolution forward %x, %w strides [1, 1] padding [0, 0, 0, 0] dilations [1, 1] groups 2 : tensor<8x4x9x9xf32>, tensor<6x4x3x3xf32> -> tensor<8x6x7x7xf32>
  train.return
}

// -----

train.list @c1_rank of @step "first" (%x: tensor<8x4x9xf32>, %w: tensor<6x4x3x3xf32>) {
  // expected-error @below {{expects an input and a weight of rank 4 (C1), got 'tensor<8x4x9xf32>' and 'tensor<6x4x3x3xf32>'}}
  %y = train.convolution forward %x, %w strides [1, 1] padding [0, 0, 0, 0] dilations [1, 1] groups 1 : tensor<8x4x9xf32>, tensor<6x4x3x3xf32> -> tensor<8x6x7x7xf32>
  train.return
}

// -----

train.list @c1_strides of @step "first" (%x: tensor<8x4x9x9xf32>, %w: tensor<6x4x3x3xf32>) {
  // expected-error @below {{(C2)}}
  %y = train.convolution forward %x, %w strides [0, 1] padding [0, 0, 0, 0] dilations [1, 1] groups 1 : tensor<8x4x9x9xf32>, tensor<6x4x3x3xf32> -> tensor<8x6x7x7xf32>
  train.return
}

// -----

train.list @c2 of @step "first" (%x: tensor<8x4x9x9xf32>, %w: tensor<6x4x3x3xbf16>) {
  // expected-error @below {{expects operands of one element type, and a result of that or f32 (C2), got 'f32', 'bf16' and 'f32'}}
  %y = train.convolution forward %x, %w strides [1, 1] padding [0, 0, 0, 0] dilations [1, 1] groups 1 : tensor<8x4x9x9xf32>, tensor<6x4x3x3xbf16> -> tensor<8x6x7x7xf32>
  train.return
}

// -----

train.list @c2_result of @step "first" (%x: tensor<8x4x9x9xf32>, %w: tensor<6x4x3x3xf32>) {
  // expected-error @below {{a result of that or f32 (C2), got 'f32', 'f32' and 'bf16'}}
  %y = train.convolution forward %x, %w strides [1, 1] padding [0, 0, 0, 0] dilations [1, 1] groups 1 : tensor<8x4x9x9xf32>, tensor<6x4x3x3xf32> -> tensor<8x6x7x7xbf16>
  train.return
}

// -----

train.list @c3 of @step "first" (%x: tensor<8x4x9x9xf32>, %w: tensor<6x4x3x3xf32>) {
  // expected-error @below {{expects tensors with a result, or buffers with 'out' and neither a result nor init (C3)}}
  %y = train.convolution forward %x, %w strides [1, 1] padding [0, 0, 0, 0] dilations [1, 1] groups 1 accumulate : tensor<8x4x9x9xf32>, tensor<6x4x3x3xf32> -> tensor<8x6x7x7xf32>
  train.return
}

// -----

train.list @c3_buffers of @step "first" () workspace(0) {
  %x = train.address input 0 : memref<8x4x9x9xf32>
  %w = train.address input 1 : memref<6x4x3x3xf32>
  // expected-error @below {{expects tensors with a result, or buffers with 'out' and neither a result nor init (C3)}}
  train.convolution forward %x, %w strides [1, 1] padding [0, 0, 0, 0] dilations [1, 1] groups 1 : memref<8x4x9x9xf32>, memref<6x4x3x3xf32>
  train.return
}

// -----

train.list @c4 of @step "first" (%x: tensor<8x4x9x9xf32>, %w: tensor<6x4x3x3xf32>, %y: tensor<8x6x7x7xf32>) {
  // expected-error @below {{expects init and accumulate of a weight_gradient in f32 or f64 alone, like the result (C4)}}
  %z = train.convolution forward %x, %w init %y strides [1, 1] padding [0, 0, 0, 0] dilations [1, 1] groups 1 : tensor<8x4x9x9xf32>, tensor<6x4x3x3xf32> init tensor<8x6x7x7xf32> -> tensor<8x6x7x7xf32>
  train.return
}

// -----

train.list @c5 of @step "first" (%x: tensor<8x4x9x9xf32>, %w: tensor<6x4x3x3xf32>) {
  // expected-error @below {{expects a plan of 1 tile or more (C5)}}
  %y = train.convolution forward %x, %w strides [1, 1] padding [0, 0, 0, 0] dilations [1, 1] groups 1 plan <back_end = vector, tiles = 0> : tensor<8x4x9x9xf32>, tensor<6x4x3x3xf32> -> tensor<8x6x7x7xf32>
  train.return
}
