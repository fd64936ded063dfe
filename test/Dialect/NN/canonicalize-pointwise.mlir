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
