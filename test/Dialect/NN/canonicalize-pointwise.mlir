// RUN: trainc-opt %s --canonicalize | FileCheck %s

// A cast back from a wider type undoes the cast.
// CHECK-LABEL: @cast_back
// CHECK-SAME: (%[[X:.*]]: tensor<8xbf16>)
func.func @cast_back(%x: tensor<8xbf16>) -> tensor<8xbf16> {
  %0 = nn.cast %x to f32 : tensor<8xbf16>
  %1 = nn.cast %0 to bf16 : tensor<8xf32>
  // CHECK-NEXT: return %[[X]]
  return %1 : tensor<8xbf16>
}

// Of a wide value with other users, too, the gradients are summed in its type: the cast rounds their sum.
// CHECK-LABEL: @cast_back_of_shared
func.func @cast_back_of_shared(%x: tensor<8xbf16>) -> (tensor<8xbf16>, tensor<8xf32>) {
  // CHECK: %[[WIDE:.*]] = nn.cast %{{.*}} to f32
  // CHECK: nn.cast %[[WIDE]] to bf16
  %0 = nn.cast %x to f32 : tensor<8xbf16>
  %1 = nn.cast %0 to bf16 : tensor<8xf32>
  %2 = nn.tanh %0 : tensor<8xf32>
  return %1, %2 : tensor<8xbf16>, tensor<8xf32>
}

// A cast back from a narrower type rounds.
// CHECK-LABEL: @cast_rounds
func.func @cast_rounds(%x: tensor<8xf32>) -> tensor<8xf32> {
  // CHECK-COUNT-2: nn.cast
  %0 = nn.cast %x to bf16 : tensor<8xf32>
  %1 = nn.cast %0 to f32 : tensor<8xbf16>
  return %1 : tensor<8xf32>
}

// f16 and bf16 have one width, but neither holds the other's values.
// CHECK-LABEL: @cast_sideways
func.func @cast_sideways(%x: tensor<8xf16>) -> tensor<8xf16> {
  // CHECK-COUNT-2: nn.cast
  %0 = nn.cast %x to bf16 : tensor<8xf16>
  %1 = nn.cast %0 to f16 : tensor<8xbf16>
  return %1 : tensor<8xf16>
}

// CHECK-LABEL: @cast_to_same
// CHECK-SAME: (%[[X:.*]]: tensor<8xf32>)
func.func @cast_to_same(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = nn.cast %x to f32 : tensor<8xf32>
  // CHECK-NEXT: return %[[X]]
  return %0 : tensor<8xf32>
}

// A cast of one value is that value, rounded as an element is: from f64 to bf16 by way of f32, where 1 + 2^-8 + 2^-26
// becomes a tie.
// CHECK-LABEL: @cast_constant
func.func @cast_constant() -> (tensor<8xbf16>, tensor<bf16>, tensor<f64>, tensor<2xf32>) {
  // CHECK-DAG: %[[A:.*]] = nn.constant dense<1.000980e-01> : tensor<8xbf16>
  // CHECK-DAG: %[[B:.*]] = nn.constant dense<1.000000e+00> : tensor<bf16>
  // CHECK-DAG: %[[C:.*]] = nn.constant dense<2.500000e-01> : tensor<f64>
  // CHECK-DAG: %[[D:.*]] = nn.cast %{{.*}} to f32 : tensor<2xbf16>
  // CHECK: return %[[A]], %[[B]], %[[C]], %[[D]]
  %0 = nn.constant dense<0.1> : tensor<8xf32>
  %1 = nn.cast %0 to bf16 : tensor<8xf32>
  %2 = nn.constant dense<1.0039062649011612> : tensor<f64>
  %3 = nn.cast %2 to bf16 : tensor<f64>
  %4 = nn.constant dense<0.25> : tensor<f16>
  %5 = nn.cast %4 to f64 : tensor<f16>
  %6 = nn.constant dense<[1.0, 2.0]> : tensor<2xbf16>
  %7 = nn.cast %6 to f32 : tensor<2xbf16>
  return %1, %3, %5, %7 : tensor<8xbf16>, tensor<bf16>, tensor<f64>, tensor<2xf32>
}
