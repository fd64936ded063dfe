// RUN: trainc-opt %s --verify-diagnostics --split-input-file

func.func @dropout_rate(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{expects a rate in [0, 1) (C1), got 1.000000e+00}}
  %r = nn.dropout %x rate 1.0 : tensor<4x8xf32>
  return
}

// -----

func.func @dropout_scalars(%x: tensor<4x8xf32>, %s: tensor<f64>) {
  // expected-error @+1 {{expects seed, update, micro_step and site together (C2), got 1 of the scalars and a site}}
  %r = nn.dropout %x rate 0.1 site 3 seed %s : tensor<4x8xf32>
  return
}

// -----

func.func @dropout_no_site(%x: tensor<4x8xf32>, %s: tensor<f64>) {
  // expected-error @+1 {{expects seed, update, micro_step and site together (C2), got 3 of the scalars and no site}}
  %r = nn.dropout %x rate 0.1 seed %s update %s micro_step %s : tensor<4x8xf32>
  return
}

// -----

func.func @dropout_site(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{expects a site in [0, 2^31) (C3), got -1}}
  %r = nn.dropout %x rate 0.1 site -1 : tensor<4x8xf32>
  return
}

// -----

func.func @dropout_strides(%x: tensor<4x8xf32>, %i: tensor<i64>) {
  // expected-error @+1 {{expects one stride of at least 0 per dimension together with first (C4), got [16] for 'tensor<4x8xf32>'}}
  %r = nn.dropout %x rate 0.1 site 3 first %i strides [16] : tensor<4x8xf32>
  return
}

// -----

func.func @dropout_first(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{expects one stride of at least 0 per dimension together with first (C4), got [16, 1]}}
  %r = nn.dropout %x rate 0.1 site 3 {strides = array<i64: 16, 1>} : tensor<4x8xf32>
  return
}

// -----

func.func @random_p() {
  // expected-error @+1 {{expects p with bernoulli (C1)}}
  %r = nn.random bernoulli : tensor<4xf32>
  return
}

// -----

func.func @random_no_p() {
  // expected-error @+1 {{expects p in [0, 1] with bernoulli only (C1), got 5.000000e-01 with normal}}
  %r = nn.random normal p 0.5 : tensor<4xf32>
  return
}

// -----

func.func @random_large_p() {
  // expected-error @+1 {{expects p in [0, 1] with bernoulli only (C1), got 1.500000e+00 with bernoulli}}
  %r = nn.random bernoulli p 1.5 : tensor<4xf32>
  return
}

// -----

func.func @random_scalars(%s: tensor<f64>) {
  // expected-error @+1 {{expects seed, update, micro_step and site together (C2), got 1 of the scalars and a site}}
  %r = nn.random uniform site 3 seed %s : tensor<4xf32>
  return
}

// -----

func.func @random_integers() {
  // expected-error @+1 {{'nn.random' op result #0 must be static tensor of 64-bit float or 32-bit float or bfloat16 type or 16-bit float values}}
  %r = nn.random uniform : tensor<4xi32>
  return
}

// -----

func.func @random_site() {
  // expected-error @+1 {{expects a site in [0, 2^31) (C3), got -1}}
  %r = nn.random uniform site -1 : tensor<4xf32>
  return
}

// -----

func.func @random_strides(%i: tensor<i64>) {
  // expected-error @+1 {{expects one stride of at least 0 per dimension together with first (C4), got [16, 1] for 'tensor<4xf32>'}}
  %r = nn.random uniform site 3 first %i strides [16, 1] : tensor<4xf32>
  return
}
