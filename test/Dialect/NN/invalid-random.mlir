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
