// RUN: trainc-opt %s --verify-diagnostics --split-input-file

func.func @cross_entropy_targets(%x: tensor<8x10xf32>, %y: tensor<9xi32>) {
  // expected-error @+1 {{expects targets of the logits' shape without the last dimension (C1), got 'tensor<8x10xf32>' and 'tensor<9xi32>'}}
  %0:2 = nn.cross_entropy %x, %y : tensor<8x10xf32>, tensor<9xi32>
  return
}

// -----

func.func @cross_entropy_weights(%x: tensor<8x10xf32>, %y: tensor<8xi32>, %w: tensor<9xf32>) {
  // expected-error @+1 {{expects weights of the targets' shape (C2), got 'tensor<9xf32>' and 'tensor<8xi32>'}}
  %0:2 = nn.cross_entropy %x, %y weights %w : tensor<8x10xf32>, tensor<8xi32>, tensor<9xf32>
  return
}

// -----

func.func @cross_entropy_smoothing(%x: tensor<8x10xf32>, %y: tensor<8xi32>) {
  // expected-error @+1 {{expects label_smoothing in [0, 1) (C3), got 1.0}}
  %0:2 = nn.cross_entropy %x, %y {label_smoothing = 1.0} : tensor<8x10xf32>, tensor<8xi32>
  return
}

// -----

func.func @cross_entropy_ignored(%x: tensor<8x10xf32>, %y: tensor<8xi8>) {
  // expected-error @+1 {{expects ignore_index and the last class to be numbers of the targets' element type 'i8' (C4), got 200 and 9}}
  %0:2 = nn.cross_entropy %x, %y {ignore_index = 200} : tensor<8x10xf32>, tensor<8xi8>
  return
}

// -----

func.func @cross_entropy_classes(%x: tensor<8x129xf32>, %y: tensor<8xi8>) {
  // expected-error @+1 {{expects ignore_index and the last class to be numbers of the targets' element type 'i8' (C4), got -100 and 128}}
  %0:2 = nn.cross_entropy %x, %y : tensor<8x129xf32>, tensor<8xi8>
  return
}

// -----

func.func @linear_size(%h: tensor<4x8x32xf32>, %u: tensor<10x32xf32>, %z: tensor<4x8xi32>) {
  // expected-error @+1 {{expects the hidden's last size to be the weight's (C1), got 'tensor<4x8x32xf32>' and 'tensor<10x32xf32>'}}
  %0:2 = nn.linear_cross_entropy %h, %u, %z : tensor<4x8x32xf32>, tensor<10x32xf32>, tensor<4x8xi32>
  return
}

// -----

func.func @linear_type(%h: tensor<4x8x32xf32>, %v: tensor<32x10xbf16>, %z: tensor<4x8xi32>) {
  // expected-error @+1 {{expects equal element types (C2), got 'tensor<4x8x32xf32>' and 'tensor<32x10xbf16>'}}
  %0:2 = nn.linear_cross_entropy %h, %v, %z : tensor<4x8x32xf32>, tensor<32x10xbf16>, tensor<4x8xi32>
  return
}

// -----

func.func @linear_targets(%h: tensor<4x8x32xf32>, %v: tensor<32x10xf32>, %y: tensor<8xi32>) {
  // expected-error @+1 {{expects targets of the hidden's shape without the last dimension (C3), got 'tensor<4x8x32xf32>' and 'tensor<8xi32>'}}
  %0:2 = nn.linear_cross_entropy %h, %v, %y : tensor<4x8x32xf32>, tensor<32x10xf32>, tensor<8xi32>
  return
}

// -----

func.func @linear_weights(%h: tensor<4x8x32xf32>, %v: tensor<32x10xf32>, %z: tensor<4x8xi32>, %w: tensor<8xf32>) {
  // expected-error @+1 {{expects weights of the targets' shape (C4), got 'tensor<8xf32>' and 'tensor<4x8xi32>'}}
  %0:2 = nn.linear_cross_entropy %h, %v, %z weights %w : tensor<4x8x32xf32>, tensor<32x10xf32>, tensor<4x8xi32>, tensor<8xf32>
  return
}

// -----

func.func @linear_smoothing(%h: tensor<4x8x32xf32>, %v: tensor<32x10xf32>, %z: tensor<4x8xi32>) {
  // expected-error @+1 {{expects label_smoothing in [0, 1) (C5), got -5.0}}
  %0:2 = nn.linear_cross_entropy %h, %v, %z {label_smoothing = -0.5} : tensor<4x8x32xf32>, tensor<32x10xf32>, tensor<4x8xi32>
  return
}

// -----

func.func @linear_ignored(%h: tensor<4x8x32xf32>, %v: tensor<32x10xf32>, %z: tensor<4x8xi32>) {
  // expected-error @+1 {{expects ignore_index and the last class to be numbers of the targets' element type 'i32' (C6), got 4294967296 and 9}}
  %0:2 = nn.linear_cross_entropy %h, %v, %z {ignore_index = 4294967296} : tensor<4x8x32xf32>, tensor<32x10xf32>, tensor<4x8xi32>
  return
}

// -----

func.func @linear_bias(%h: tensor<4x8x32xf32>, %v: tensor<32x10xf32>, %z: tensor<4x8xi32>, %b: tensor<32xf32>) {
  // expected-error @+1 {{expects a bias of type 'tensor<10xf32>' (C7), got 'tensor<32xf32>'}}
  %0:2 = nn.linear_cross_entropy %h, %v, %z bias %b : tensor<4x8x32xf32>, tensor<32x10xf32>, tensor<4x8xi32> bias tensor<32xf32>
  return
}

// -----

func.func @linear_grad_scalar(%h: tensor<4x8x32xbf16>, %v: tensor<32x10xbf16>, %z: tensor<4x8xi32>, %g: tensor<bf16>) {
  // expected-error @+1 {{expects a grad of type 'tensor<f32>' (C1), got 'tensor<bf16>'}}
  %0:5 = nn.linear_cross_entropy_grad %h, %v, %z grad %g : tensor<4x8x32xbf16>, tensor<32x10xbf16>, tensor<4x8xi32>, tensor<bf16>
  return
}

// -----

func.func @bce_with_logits_targets(%x: tensor<8x10xf32>, %t: tensor<10xf32>) {
  // expected-error @+1 {{expects targets of the prediction's shape (C1), got 'tensor<8x10xf32>' and 'tensor<10xf32>'}}
  %0:2 = nn.bce_with_logits %x, %t : tensor<8x10xf32>, tensor<10xf32>
  return
}

// -----

func.func @bce_with_logits_weights(%x: tensor<8x10xf32>, %w: tensor<10xf32>) {
  // expected-error @+1 {{expects weights whose shape is a leading part of the prediction's (C2), got 'tensor<10xf32>' and 'tensor<8x10xf32>'}}
  %0:2 = nn.bce_with_logits %x, %x weights %w : tensor<8x10xf32>, tensor<8x10xf32>, tensor<10xf32>
  return
}

// -----

func.func @mse_targets(%x: tensor<8x10xf32>, %t: tensor<10xf32>) {
  // expected-error @+1 {{expects targets of the prediction's shape (C1), got 'tensor<8x10xf32>' and 'tensor<10xf32>'}}
  %0:2 = nn.mse %x, %t : tensor<8x10xf32>, tensor<10xf32>
  return
}

// -----

func.func @mse_weights(%x: tensor<8x10xf32>, %w: tensor<10xf32>) {
  // expected-error @+1 {{expects weights whose shape is a leading part of the prediction's (C2), got 'tensor<10xf32>' and 'tensor<8x10xf32>'}}
  %0:2 = nn.mse %x, %x weights %w : tensor<8x10xf32>, tensor<8x10xf32>, tensor<10xf32>
  return
}
