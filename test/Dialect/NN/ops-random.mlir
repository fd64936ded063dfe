// RUN: trainc-opt %s | trainc-opt | FileCheck %s
// RUN: trainc-opt %s --verify-roundtrip -o /dev/null

// CHECK-LABEL: @dropout
func.func @dropout(%x: tensor<4x8xf32>, %s: tensor<f64>, %i: tensor<i64>) {
  // CHECK: nn.dropout %{{.*}} rate 1.000000e-01 : tensor<4x8xf32>
  %0 = nn.dropout %x rate 0.1 : tensor<4x8xf32>
  // CHECK: nn.dropout %{{.*}} rate 1.000000e-01 site 2 : tensor<4x8xf32>
  %1 = nn.dropout %x rate 0.1 site 2 : tensor<4x8xf32>
  // CHECK: nn.dropout %{{.*}} rate 1.000000e-01 site 3 seed %[[S:.*]] update %[[S]] micro_step %[[S]] : tensor<4x8xf32>
  %2 = nn.dropout %x rate 0.1 site 3 seed %s update %s micro_step %s : tensor<4x8xf32>
  // CHECK: nn.dropout %{{.*}} rate 1.000000e-01 site 3 first %{{.*}} strides [16, 1] : tensor<4x8xf32>
  %3 = nn.dropout %x rate 0.1 site 3 first %i strides [16, 1] : tensor<4x8xf32>
  return
}

// CHECK-LABEL: @random
func.func @random(%s: tensor<f64>, %i: tensor<i64>) {
  // CHECK: nn.random uniform : tensor<4x8xf32>
  %0 = nn.random uniform : tensor<4x8xf32>
  // CHECK: nn.random normal site 2 : tensor<f64>
  %1 = nn.random normal site 2 : tensor<f64>
  // CHECK: nn.random bernoulli p 3.000000e-01 site 3 seed %[[S:.*]] update %[[S]] micro_step %[[S]] : tensor<8xbf16>
  %2 = nn.random bernoulli p 0.3 site 3 seed %s update %s micro_step %s : tensor<8xbf16>
  // CHECK: nn.random normal site 3 first %{{.*}} strides [16, 1] : tensor<4x8xf16>
  %3 = nn.random normal site 3 first %i strides [16, 1] : tensor<4x8xf16>
  return
}
