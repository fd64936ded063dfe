// RUN: trainc-opt %s --nn-to-linalg --split-input-file | FileCheck %s

// CHECK-DAG: #[[ID:.*]] = affine_map<(d0, d1) -> (d0, d1)>
// CHECK-DAG: #[[ROW:.*]] = affine_map<(d0, d1) -> (d0, 0)>
// CHECK-LABEL: @pointwise
func.func @pointwise(%x: tensor<4x8xbf16>, %y: tensor<4x1xbf16>) -> tensor<4x8xbf16> {
  // CHECK: linalg.generic {indexing_maps = [#[[ID]], #[[ROW]], #[[ID]]], iterator_types = ["parallel", "parallel"]}
  // CHECK-NEXT: ^bb0(%[[X:.*]]: bf16, %[[Y:.*]]: bf16, %{{.*}}: bf16):
  // CHECK-NEXT: %[[A:.*]] = arith.extf %[[X]] : bf16 to f32
  // CHECK-NEXT: %[[B:.*]] = arith.extf %[[Y]] : bf16 to f32
  // CHECK-NEXT: %[[S:.*]] = arith.addf %[[A]], %[[B]] : f32
  // CHECK-NEXT: %[[R:.*]] = arith.truncf %[[S]] : f32 to bf16
  // CHECK-NEXT: linalg.yield %[[R]] : bf16
  %0 = nn.add %x, %y : tensor<4x8xbf16>, tensor<4x1xbf16>
  return %0 : tensor<4x8xbf16>
}

// -----

// CHECK-LABEL: @two_results
func.func @two_results(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xi1>) {
  // CHECK: %[[R:.*]]:2 = linalg.generic
  %0:2 = nn.map(%x) : (tensor<8xf32>) -> (tensor<8xf32>, tensor<8xi1>) {
  ^bb0(%a: f32):
    %b = arith.cmpf oeq, %a, %a : f32
    // CHECK: linalg.yield %{{.*}}, %{{.*}} : f32, i1
    nn.yield %a, %b : f32, i1
  }
  // CHECK: return %[[R]]#0, %[[R]]#1
  return %0#0, %0#1 : tensor<8xf32>, tensor<8xi1>
}

// -----

// CHECK-LABEL: @constant_iota
func.func @constant_iota() -> (tensor<8xf32>, tensor<4x8xi32>) {
  // CHECK: arith.constant dense<1.000000e+00> : tensor<8xf32>
  %0 = nn.constant dense<1.0> : tensor<8xf32>
  // CHECK: %[[I:.*]] = linalg.index 1 : index
  // CHECK: arith.index_cast %[[I]] : index to i32
  %1 = nn.iota dim 1 : tensor<4x8xi32>
  return %0, %1 : tensor<8xf32>, tensor<4x8xi32>
}

// -----

// CHECK-LABEL: @reshape
// CHECK-SAME: (%[[X:.*]]: tensor<4x6xf32>, %[[S:.*]]: tensor<f32>)
func.func @reshape(%x: tensor<4x6xf32>, %s: tensor<f32>) -> (tensor<24xf32>, tensor<3x8xf32>, tensor<1x1xf32>) {
  // CHECK: tensor.collapse_shape %[[X]] {{\[\[}}0, 1]] : tensor<4x6xf32> into tensor<24xf32>
  %0 = nn.reshape %x : tensor<4x6xf32> to tensor<24xf32>
  // CHECK: %[[F:.*]] = tensor.collapse_shape %[[X]]
  // CHECK: tensor.expand_shape %[[F]] {{\[\[}}0, 1]] output_shape [3, 8]
  %1 = nn.reshape %x : tensor<4x6xf32> to tensor<3x8xf32>
  // CHECK: tensor.expand_shape %[[S]] [] output_shape [1, 1]
  %2 = nn.reshape %s : tensor<f32> to tensor<1x1xf32>
  return %0, %1, %2 : tensor<24xf32>, tensor<3x8xf32>, tensor<1x1xf32>
}

// -----

// The sum over d2 is outside of the columns d3 and in f32.
// CHECK-DAG: #[[A:.*]] = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
// CHECK-DAG: #[[B:.*]] = affine_map<(d0, d1, d2, d3) -> (d3, d2)>
// CHECK-DAG: #[[C:.*]] = affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>
// CHECK-LABEL: @matmul
func.func @matmul(%x: tensor<2x4x8xbf16>, %w: tensor<6x8xbf16>, %b: tensor<6xbf16>) -> tensor<2x4x6xbf16> {
  // CHECK: %[[SUM:.*]] = linalg.generic {indexing_maps = [#[[A]], #[[B]], #[[C]]], iterator_types = ["parallel", "parallel", "reduction", "parallel"]}
  // CHECK-SAME: outs(%{{.*}} : tensor<2x4x6xf32>)
  // CHECK: math.fma
  // CHECK: linalg.generic {{.*}} ins(%[[SUM]], %{{.*}} : tensor<2x4x6xf32>, tensor<6xbf16>)
  // CHECK: arith.addf
  // CHECK: arith.truncf
  %0 = nn.matmul %x, %w bias %b transpose_rhs : tensor<2x4x8xbf16>, tensor<6x8xbf16>, tensor<6xbf16>
  return %0 : tensor<2x4x6xbf16>
}

// -----

// The last two dimensions are one run through the lanes, the first is in order.
// CHECK-LABEL: @reduce
func.func @reduce(%x: tensor<3x4x5x7xf32>) -> tensor<4xf32> {
  // CHECK: %[[R:.*]] = tensor.collapse_shape %{{.*}} {{\[\[}}0], [1], [2, 3]] : tensor<3x4x5x7xf32> into tensor<3x4x35xf32>
  // CHECK: %[[P:.*]] = tensor.insert_slice %[[R]] into %{{.*}}[0, 0, 0] [3, 4, 35] [1, 1, 1] : tensor<3x4x35xf32> into tensor<3x4x64xf32>
  // CHECK: %[[L:.*]] = tensor.expand_shape %[[P]] {{.*}} into tensor<3x4x2x32xf32>
  // CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel", "reduction", "parallel"]} ins(%[[L]]
  // CHECK: tensor.extract_slice %{{.*}}[0, 0, 0] [3, 4, 16]
  // CHECK: tensor.extract_slice %{{.*}}[0, 0, 16] [3, 4, 16]
  // CHECK: tensor.extract_slice %{{.*}}[0, 0, 1] [3, 4, 1]
  // CHECK: linalg.generic {{.*}}iterator_types = ["reduction", "parallel"]} ins(%{{.*}} : tensor<3x4xf32>) outs(%{{.*}} : tensor<4xf32>)
  %0 = nn.reduce sum %x dims [0, 2, 3] : tensor<3x4x5x7xf32>
  return %0 : tensor<4xf32>
}

// -----

// CHECK-LABEL: @gather
// CHECK-SAME: (%[[X:.*]]: tensor<4x8xf32>, %[[I:.*]]: tensor<4x3xi32>)
func.func @gather(%x: tensor<4x8xf32>, %i: tensor<4x3xi32>) -> tensor<4x3xf32> {
  // CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]}
  // CHECK: %[[ROW:.*]] = linalg.index 0
  // CHECK: tensor.extract %[[I]]
  // CHECK: %[[LOW:.*]] = arith.maxsi
  // CHECK: %[[AT:.*]] = arith.minsi %[[LOW]]
  // CHECK: tensor.extract %[[X]][%[[ROW]], %[[AT]]]
  %0 = nn.gather %x, %i dim 1 : tensor<4x8xf32>, tensor<4x3xi32>
  return %0 : tensor<4x3xf32>
}

// -----

// Composite ops go through their decompositions, all the way.
// CHECK-LABEL: @composite
// CHECK-NOT: nn.
func.func @composite(%x: tensor<4x8xf32>, %s: tensor<f64>, %i: tensor<4x3xi32>) -> (tensor<4x8xf32>, tensor<4xi32>, tensor<4x8xf32>) {
  %0 = nn.dropout %x rate 0.1 site 3 seed %s update %s micro_step %s : tensor<4x8xf32>
  %1 = nn.slice %0 offsets [0, 1] sizes [4, 3] : tensor<4x8xf32>
  %2 = nn.scatter_add %i, %1 dim 1 : tensor<4x3xi32>, tensor<4x3xf32> to tensor<4x8xf32>
  %3 = nn.argmax %2 dim 1 : tensor<4x8xf32>
  %4 = nn.log_softmax %2 dim 1 : tensor<4x8xf32>
  return %0, %3, %4 : tensor<4x8xf32>, tensor<4xi32>, tensor<4x8xf32>
}

// -----

// Rows that 32 bits do not count.
// CHECK-LABEL: @many_rows
// CHECK: arith.constant dense<2999999999> : tensor<i64>
func.func @many_rows(%u: tensor<3xf32>, %i: tensor<3xi32>) -> tensor<3000000000xf32> {
  %0 = nn.scatter_add %i, %u dim 0 : tensor<3xi32>, tensor<3xf32> to tensor<3000000000xf32>
  return %0 : tensor<3000000000xf32>
}

// -----

// It does nothing without nn ops.
// CHECK-LABEL: @untouched
// CHECK-NEXT: %[[R:.*]] = arith.addf
// CHECK-NEXT: return %[[R]]
func.func @untouched(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = arith.addf %x, %x : tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}
