// RUN: trainc-opt %s --verify-diagnostics --split-input-file

func.func @softmax_dim(%x: tensor<8x16xf32>) {
  // expected-error @+1 {{expects a dim within the rank (C1), got 2 for 'tensor<8x16xf32>'}}
  %0 = nn.softmax %x dim 2 : tensor<8x16xf32>
  return
}

// -----

func.func @log_softmax_dim(%x: tensor<8x16xf32>) {
  // expected-error @+1 {{expects a dim within the rank (C1), got -1 for 'tensor<8x16xf32>'}}
  %0 = nn.log_softmax %x dim -1 : tensor<8x16xf32>
  return
}

// -----

func.func @layer_norm_shape(%x: tensor<8x16xf32>, %w: tensor<16xf32>, %b: tensor<8xf32>) {
  // expected-error @+1 {{expects parameters of shape [16] (C1), got 'tensor<8xf32>'}}
  %0 = nn.layer_norm %x, %w, %b : tensor<8x16xf32>, tensor<16xf32>, tensor<8xf32>
  return
}

// -----

func.func @layer_norm_rank(%x: tensor<f32>, %w: tensor<16xf32>) {
  // expected-error @+1 {{expects an input with a last dimension (C1), got 'tensor<f32>'}}
  %0 = nn.layer_norm %x, %w : tensor<f32>, tensor<16xf32>
  return
}

// -----

func.func @layer_norm_type(%x: tensor<8x16xf32>, %w: tensor<16xf64>) {
  // expected-error @+1 {{expects parameters of the input's element type 'f32' or its compute type (C2), got 'tensor<16xf64>'}}
  %0 = nn.layer_norm %x, %w : tensor<8x16xf32>, tensor<16xf64>
  return
}

// -----

func.func @layer_norm_eps(%x: tensor<8x16xf32>, %w: tensor<16xf32>) {
  // expected-error @+1 {{expects eps to be finite and not negative (C3), got -1.0}}
  %0 = nn.layer_norm %x, %w {eps = -1.0} : tensor<8x16xf32>, tensor<16xf32>
  return
}

// -----

func.func @rms_norm_shape(%x: tensor<8x16xf32>, %w: tensor<1x16xf32>) {
  // expected-error @+1 {{expects parameters of shape [16] (C1), got 'tensor<1x16xf32>'}}
  %0 = nn.rms_norm %x, %w : tensor<8x16xf32>, tensor<1x16xf32>
  return
}

// -----

func.func @rms_norm_type(%x: tensor<8x16xbf16>, %w: tensor<16xf16>) {
  // expected-error @+1 {{expects parameters of the input's element type 'bf16' or its compute type (C2), got 'tensor<16xf16>'}}
  %0 = nn.rms_norm %x, %w : tensor<8x16xbf16>, tensor<16xf16>
  return
}

// -----

func.func @rms_norm_eps(%x: tensor<8x16xf32>, %w: tensor<16xf32>) {
  // expected-error @+1 {{expects eps to be finite and not negative (C3), got}}
  %0 = nn.rms_norm %x, %w {eps = 0x7FF0000000000000 : f64} : tensor<8x16xf32>, tensor<16xf32>
  return
}

// -----

func.func @group_norm_shape(%x: tensor<2x8x5x5xf32>, %w: tensor<16xf32>, %b: tensor<8xf32>) {
  // expected-error @+1 {{expects parameters of shape [8] (C1), got 'tensor<16xf32>'}}
  %0 = nn.group_norm %x, %b, %w groups 4 : tensor<2x8x5x5xf32>, tensor<8xf32>, tensor<16xf32>
  return
}

// -----

func.func @group_norm_type(%x: tensor<2x8x5x5xf32>, %w: tensor<8xf32>, %b: tensor<8xbf16>) {
  // expected-error @+1 {{or its compute type (C2), got 'tensor<8xbf16>'}}
  %0 = nn.group_norm %x, %w, %b groups 4 : tensor<2x8x5x5xf32>, tensor<8xf32>, tensor<8xbf16>
  return
}

// -----

func.func @group_norm_eps(%x: tensor<2x8x5x5xf32>, %w: tensor<8xf32>, %b: tensor<8xf32>) {
  // expected-error @+1 {{expects eps to be finite and not negative (C3), got -2.0}}
  %0 = nn.group_norm %x, %w, %b groups 4 {eps = -2.0} : tensor<2x8x5x5xf32>, tensor<8xf32>, tensor<8xf32>
  return
}

// -----

func.func @group_norm_groups(%x: tensor<2x8x5x5xf32>, %w: tensor<8xf32>, %b: tensor<8xf32>) {
  // expected-error @+1 {{expects an input [N, C, ...] and groups that divide C (C4), got 'tensor<2x8x5x5xf32>' and 3}}
  %0 = nn.group_norm %x, %w, %b groups 3 : tensor<2x8x5x5xf32>, tensor<8xf32>, tensor<8xf32>
  return
}

// -----

func.func @batch_norm_shape(%x: tensor<2x8x5x5xf32>, %w: tensor<8xf32>, %b: tensor<8xf32>, %m: tensor<8xf32>, %v: tensor<4xf32>) {
  // expected-error @+1 {{expects parameters of shape [8] (C1), got 'tensor<4xf32>'}}
  %0:3 = nn.batch_norm %x, %w, %b, %m, %v : tensor<2x8x5x5xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<4xf32>
  return
}

// -----

func.func @batch_norm_type(%x: tensor<2x8x5x5xf32>, %w: tensor<8xf32>, %b: tensor<8xf32>, %m: tensor<8xf64>, %v: tensor<8xf32>) {
  // expected-error @+1 {{or its compute type (C2), got 'tensor<8xf64>'}}
  %0:3 = nn.batch_norm %x, %w, %b, %m, %v : tensor<2x8x5x5xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf64>, tensor<8xf32>
  return
}

// -----

func.func @batch_norm_eps(%x: tensor<2x8x5x5xf32>, %w: tensor<8xf32>, %b: tensor<8xf32>, %m: tensor<8xf32>, %v: tensor<8xf32>) {
  // expected-error @+1 {{expects eps to be finite and not negative (C3), got -1.0}}
  %0:3 = nn.batch_norm %x, %w, %b, %m, %v {eps = -1.0} : tensor<2x8x5x5xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
  return
}

// -----

func.func @batch_norm_rank(%x: tensor<8xf32>, %w: tensor<8xf32>, %b: tensor<8xf32>, %m: tensor<8xf32>, %v: tensor<8xf32>) {
  // expected-error @+1 {{expects an input [N, C, ...] (C4), got 'tensor<8xf32>'}}
  %0:3 = nn.batch_norm %x, %w, %b, %m, %v : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
  return
}

// -----

func.func @batch_norm_momentum(%x: tensor<2x8x5x5xf32>, %w: tensor<8xf32>, %b: tensor<8xf32>, %m: tensor<8xf32>, %v: tensor<8xf32>) {
  // expected-error @+1 {{expects momentum in [0, 1] (C5), got 2.0}}
  %0:3 = nn.batch_norm %x, %w, %b, %m, %v {momentum = 2.0} : tensor<2x8x5x5xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
  return
}

// -----

func.func @batch_norm_elements(%x: tensor<1x8x1xf32>, %w: tensor<8xf32>, %b: tensor<8xf32>, %m: tensor<8xf32>, %v: tensor<8xf32>) {
  // expected-error @+1 {{expects at least 2 elements per channel (C6), got 'tensor<1x8x1xf32>'}}
  %0:3 = nn.batch_norm %x, %w, %b, %m, %v training : tensor<1x8x1xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
  return
}
