// RUN: trainc-opt %s --nn-to-linalg --verify-diagnostics

func.func @dropout(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error @+2 {{has no definition before it has a site and a seed}}
  // expected-error @+1 {{failed to legalize operation 'nn.dropout' that was explicitly marked illegal}}
  %0 = nn.dropout %x rate 0.1 : tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}
