// RUN: trainc-opt %s --split-input-file --verify-diagnostics

func.func @f(%x: tensor<4x9x9xf32>, %w: tensor<6x4x3x3xf32>) {
  // expected-error @+1 {{'nn.conv2d' op expects an input of rank 4 without a size 0 (C1), got 'tensor<4x9x9xf32>'}}
  %y = nn.conv2d %x, %w : tensor<4x9x9xf32>, tensor<6x4x3x3xf32>
  return
}

// -----

func.func @f(%x: tensor<8x4x9x9xf32>, %w: tensor<6x4x0x3xf32>) {
  // expected-error @+1 {{'nn.conv2d' op expects a weight of rank 4 without a size 0 (C1), got 'tensor<6x4x0x3xf32>'}}
  %y = nn.conv2d %x, %w : tensor<8x4x9x9xf32>, tensor<6x4x0x3xf32>
  return
}

// -----

func.func @f(%x: tensor<8x4x9x9xf32>, %w: tensor<6x4x3x3xf32>) {
  // expected-error @+1 {{'nn.conv2d' op expects strides of 2 numbers of at least 1 and below 2^31 (C2), got [0, 1]}}
  %y = nn.conv2d %x, %w strides [0, 1] : tensor<8x4x9x9xf32>, tensor<6x4x3x3xf32>
  return
}

// -----

func.func @f(%x: tensor<8x4x9x9xf32>, %w: tensor<6x4x3x3xf32>) {
  // expected-error @+1 {{'nn.conv2d' op expects padding of 4 numbers of at least 0 and below 2^31 (C2), got [1, 1]}}
  %y = nn.conv2d %x, %w padding [1, 1] : tensor<8x4x9x9xf32>, tensor<6x4x3x3xf32>
  return
}

// -----

func.func @f(%x: tensor<8x4x9x9xf32>, %w: tensor<6x4x3x3xf32>) {
  // expected-error @+1 {{'nn.conv2d' op expects dilations of 2 numbers of at least 1 and below 2^31 (C2), got [1, 4294967296]}}
  %y = nn.conv2d %x, %w dilations [1, 4294967296] : tensor<8x4x9x9xf32>, tensor<6x4x3x3xf32>
  return
}

// -----

func.func @f(%x: tensor<8x4x9x9xf32>, %w: tensor<6x4x3x3xf32>) {
  // expected-error @+1 {{'nn.conv2d' op expects a window that fits into the padded input (C3), got 11 elements in 9 along dimension 3 of 'tensor<8x4x9x9xf32>'}}
  %y = nn.conv2d %x, %w dilations [1, 5] : tensor<8x4x9x9xf32>, tensor<6x4x3x3xf32>
  return
}

// -----

func.func @f(%x: tensor<8x4x9x9xf32>, %w: tensor<6x4x3x3xf32>) {
  // expected-error @+1 {{'nn.conv2d' op expects groups that divide the channels and outputs, and a weight of channels / groups (C4), got groups = 2, 'tensor<8x4x9x9xf32>' and 'tensor<6x4x3x3xf32>'}}
  %y = nn.conv2d %x, %w groups 2 : tensor<8x4x9x9xf32>, tensor<6x4x3x3xf32>
  return
}

// -----

func.func @f(%x: tensor<8x4x9x9xf32>, %w: tensor<6x4x3x3xf32>) {
  // expected-error @+1 {{'nn.conv2d' op expects groups that divide the channels and outputs, and a weight of channels / groups (C4), got groups = 0, 'tensor<8x4x9x9xf32>' and 'tensor<6x4x3x3xf32>'}}
  %y = nn.conv2d %x, %w groups 0 : tensor<8x4x9x9xf32>, tensor<6x4x3x3xf32>
  return
}

// -----

func.func @f(%x: tensor<8x4x9x9xf32>, %w: tensor<6x4x3x3xf32>, %b: tensor<4xf32>) {
  // expected-error @+1 {{'nn.conv2d' op expects a bias of type 'tensor<6xf32>' (C5), got 'tensor<4xf32>'}}
  %y = nn.conv2d %x, %w bias %b : tensor<8x4x9x9xf32>, tensor<6x4x3x3xf32>, tensor<4xf32>
  return
}

// -----

func.func @f(%x: tensor<8x4x9x9xf32>, %w: tensor<6x4x3x3xf64>) {
  // expected-error @+1 {{'nn.conv2d' op expects equal element types (C6), got 'tensor<8x4x9x9xf32>' and 'tensor<6x4x3x3xf64>'}}
  %y = nn.conv2d %x, %w : tensor<8x4x9x9xf32>, tensor<6x4x3x3xf64>
  return
}

// -----

func.func @f(%x: tensor<8x4x9x9xf32>, %w: tensor<6x4x3x3xf32>, %b: tensor<6xf64>) {
  // expected-error @+1 {{'nn.conv2d' op expects equal element types (C6), got 'tensor<6xf64>' for 'tensor<6x4x3x3xf32>'}}
  %y = nn.conv2d %x, %w bias %b : tensor<8x4x9x9xf32>, tensor<6x4x3x3xf32>, tensor<6xf64>
  return
}

// -----

func.func @f(%w: tensor<6x4x3x3xf32>, %g: tensor<8x6x9x9xf32>) {
  // expected-error @+1 {{'nn.conv2d_input_grad' op expects a grad of type 'tensor<8x6x7x7xf32>' (C1), got 'tensor<8x6x9x9xf32>'}}
  %y = nn.conv2d_input_grad %w, %g : tensor<6x4x3x3xf32>, tensor<8x6x9x9xf32> to tensor<8x4x9x9xf32>
  return
}

// -----

func.func @f(%x: tensor<8x4x9x9xf32>, %g: tensor<8x6x9x9xf32>) {
  // expected-error @+1 {{'nn.conv2d_weight_grad' op expects a grad of type 'tensor<8x6x7x7xf32>' (C1), got 'tensor<8x6x9x9xf32>'}}
  %y = nn.conv2d_weight_grad %x, %g : tensor<8x4x9x9xf32>, tensor<8x6x9x9xf32> to tensor<6x4x3x3xf32>
  return
}

// -----

func.func @f(%x: tensor<8x4x9x9xf32>, %g: tensor<8x6x9x9xf32>) {
  // expected-error @+1 {{'nn.conv2d_weight_parts' op expects a grad of type 'tensor<8x6x7x7xf32>' (C1), got 'tensor<8x6x9x9xf32>'}}
  %y = nn.conv2d_weight_parts %x, %g window [3, 3] examples 2 : tensor<8x4x9x9xf32>, tensor<8x6x9x9xf32>
  return
}

// -----

func.func @f(%x: tensor<8x4x9x9xf32>, %g: tensor<8x6x9x9xf32>) {
  // expected-error @+1 {{'nn.conv2d_weight_parts' op expects strides of 2 numbers of at least 1 and below 2^31 (C2), got [0, 1]}}
  %y = nn.conv2d_weight_parts %x, %g window [3, 3] strides [0, 1] examples 2 : tensor<8x4x9x9xf32>, tensor<8x6x9x9xf32>
  return
}

// -----

func.func @f(%x: tensor<8x4x9x9xf32>, %g: tensor<8x6x9x9xf32>) {
  // expected-error @+1 {{'nn.conv2d_weight_parts' op expects a window that fits into the padded input (C3), got 10 elements in 9 along dimension 2 of 'tensor<8x4x9x9xf32>'}}
  %y = nn.conv2d_weight_parts %x, %g window [10, 3] examples 2 : tensor<8x4x9x9xf32>, tensor<8x6x9x9xf32>
  return
}

// -----

func.func @f(%x: tensor<8x4x9x9xf32>, %g: tensor<8x6x9x9xf32>) {
  // expected-error @+1 {{'nn.conv2d_weight_parts' op expects examples of at least 1 (C4), got 0}}
  %y = nn.conv2d_weight_parts %x, %g window [1, 1] examples 0 : tensor<8x4x9x9xf32>, tensor<8x6x9x9xf32>
  return
}

// -----

func.func @f(%x: tensor<9x9xf32>) {
  // expected-error @+1 {{'nn.im2col' op expects an input of rank 4 without a size 0 (C1), got 'tensor<9x9xf32>'}}
  %y = nn.im2col %x window [3, 3] : tensor<9x9xf32>
  return
}

// -----

func.func @f(%x: tensor<8x4x9x9xf32>) {
  // expected-error @+1 {{'nn.im2col' op expects a window of 2 numbers of at least 1 and below 2^31 (C2), got [3]}}
  %y = nn.im2col %x window [3] : tensor<8x4x9x9xf32>
  return
}

// -----

func.func @f(%x: tensor<8x4x9x9xf32>) {
  // expected-error @+1 {{'nn.im2col' op expects a window that fits into the padded input (C3), got 12 elements in 11 along dimension 3 of 'tensor<8x4x9x9xf32>'}}
  %y = nn.im2col %x window [3, 12] padding [0, 0, 1, 1] : tensor<8x4x9x9xf32>
  return
}

// -----

func.func @f(%m: tensor<4x3x3x8x9x9xf32>) {
  // expected-error @+1 {{'nn.col2im' op expects columns of type 'tensor<4x3x3x8x7x7xf32>' (C1), got 'tensor<4x3x3x8x9x9xf32>'}}
  %y = nn.col2im %m : tensor<4x3x3x8x9x9xf32> to tensor<8x4x9x9xf32>
  return
}

// -----

func.func @f(%m: tensor<36x8x49xf32>) {
  // expected-error @+1 {{'nn.col2im' op expects columns of rank 6 (C1), got 'tensor<36x8x49xf32>'}}
  %y = nn.col2im %m : tensor<36x8x49xf32> to tensor<8x4x9x9xf32>
  return
}

// -----

func.func @f(%x: tensor<0x4x9x9xf32>) {
  // expected-error @+1 {{'nn.max_pool2d' op expects an input of rank 4 without a size 0 (C1), got 'tensor<0x4x9x9xf32>'}}
  %y, %at = nn.max_pool2d %x window [2, 2] : tensor<0x4x9x9xf32>
  return
}

// -----

func.func @f(%x: tensor<8x4x9x9xf32>) {
  // expected-error @+1 {{'nn.max_pool2d' op expects a window of 2 numbers of at least 1 and below 2^31 (C2), got [0, 2]}}
  %y, %at = nn.max_pool2d %x window [0, 2] : tensor<8x4x9x9xf32>
  return
}

// -----

func.func @f(%x: tensor<8x4x9x9xf32>) {
  // expected-error @+1 {{'nn.max_pool2d' op expects a window that fits into the padded input (C3), got 10 elements in 9 along dimension 2 of 'tensor<8x4x9x9xf32>'}}
  %y, %at = nn.max_pool2d %x window [10, 2] : tensor<8x4x9x9xf32>
  return
}

// -----

func.func @f(%x: tensor<8x4x9x9xf32>) {
  // expected-error @+1 {{'nn.max_pool2d' op expects padding less than the window (C4), got [0, 2, 0, 0] for [2, 2]}}
  %y, %at = nn.max_pool2d %x window [2, 2] padding [0, 2, 0, 0] : tensor<8x4x9x9xf32>
  return
}

// -----

func.func @f(%x: tensor<1x1x65536x32768xf32>) {
  // expected-error @+1 {{'nn.max_pool2d' op expects planes of less than 2^31 (C5), got 'tensor<1x1x65536x32768xf32>'}}
  %y, %at = nn.max_pool2d %x window [2, 2] : tensor<1x1x65536x32768xf32>
  return
}

// -----

func.func @f(%g: tensor<8x4x4x4xf32>, %a: tensor<8x4x4x4xi64>) {
  // expected-error @+1 {{'nn.max_pool2d_grad' op expects grad and argmax of types 'tensor<8x4x4x4xf32>' and 'tensor<8x4x4x4xi32>' (C1), got 'tensor<8x4x4x4xf32>' and 'tensor<8x4x4x4xi64>'}}
  %y = nn.max_pool2d_grad %g, %a window [2, 2] : tensor<8x4x4x4xf32>, tensor<8x4x4x4xi64> to tensor<8x4x9x9xf32>
  return
}

// -----

func.func @f(%x: tensor<4xf32>) {
  // expected-error @+1 {{'nn.avg_pool2d' op expects an input of rank 4 without a size 0 (C1), got 'tensor<4xf32>'}}
  %y = nn.avg_pool2d %x window [2, 2] : tensor<4xf32>
  return
}

// -----

func.func @f(%x: tensor<8x4x9x9xf32>) {
  // expected-error @+1 {{'nn.avg_pool2d' op expects strides of 2 numbers of at least 1 and below 2^31 (C2), got [1]}}
  %y = nn.avg_pool2d %x window [2, 2] strides [1] : tensor<8x4x9x9xf32>
  return
}

// -----

func.func @f(%x: tensor<8x4x9x9xf32>) {
  // expected-error @+1 {{'nn.avg_pool2d' op expects a window that fits into the padded input (C3), got 10 elements in 9 along dimension 3 of 'tensor<8x4x9x9xf32>'}}
  %y = nn.avg_pool2d %x window [2, 10] : tensor<8x4x9x9xf32>
  return
}

// -----

func.func @f(%x: tensor<8x4x9x9xf32>) {
  // expected-error @+1 {{'nn.avg_pool2d' op expects padding less than the window (C4), got [2, 0, 0, 0] for [2, 2]}}
  %y = nn.avg_pool2d %x window [2, 2] padding [2, 0, 0, 0] : tensor<8x4x9x9xf32>
  return
}

// -----

func.func @f(%g: tensor<8x4x5x5xf32>) {
  // expected-error @+1 {{'nn.avg_pool2d_grad' op expects a grad of type 'tensor<8x4x4x4xf32>' (C1), got 'tensor<8x4x5x5xf32>'}}
  %y = nn.avg_pool2d_grad %g window [2, 2] : tensor<8x4x5x5xf32> to tensor<8x4x9x9xf32>
  return
}
