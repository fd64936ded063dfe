// RUN: trainc-opt %s --train-form-loss-heads --split-input-file | FileCheck %s

// A product and its cross entropy become one, with what they were given.
// CHECK-LABEL: func.func @head
// CHECK: %[[L:.*]], %[[N:.*]] = nn.linear_cross_entropy %arg0, %arg1, %arg2 weights %arg3 transpose_weight {ignore_index = 1 : i64, label_smoothing = 5.000000e-01 : f64} : tensor<8x4xf32>, tensor<16x4xf32>, tensor<8xi32>, tensor<8xf32>
// CHECK-NEXT: return %[[L]], %[[N]]
func.func @head(%h: tensor<8x4xf32>, %w: tensor<16x4xf32>, %y: tensor<8xi32>, %r: tensor<8xf32>) -> (tensor<f32>, tensor<f32>) {
  %l = nn.matmul %h, %w transpose_rhs : tensor<8x4xf32>, tensor<16x4xf32>
  %0:2 = nn.cross_entropy %l, %y weights %r {ignore_index = 1, label_smoothing = 0.5} : tensor<8x16xf32>, tensor<8xi32>, tensor<8xf32>
  return %0#0, %0#1 : tensor<f32>, tensor<f32>
}

// -----

// The bias, too.
// CHECK-LABEL: func.func @bias
// CHECK: nn.linear_cross_entropy %arg0, %arg1, %arg3 bias %arg2
func.func @bias(%h: tensor<8x4xf32>, %w: tensor<4x16xf32>, %b: tensor<16xf32>, %y: tensor<8xi32>) -> tensor<f32> {
  %l = nn.linear %h, %w, %b : tensor<8x4xf32>, tensor<4x16xf32>, tensor<16xf32>
  %0:2 = nn.cross_entropy %l, %y : tensor<8x16xf32>, tensor<8xi32>
  return %0#0 : tensor<f32>
}

// -----

// Between them may stand a reshape of the rows and a cast to the compute type, of rounded logits or not.
// CHECK-LABEL: func.func @between
// CHECK: %[[Y:.*]] = nn.reshape %arg2 : tensor<8xi32> to tensor<2x4xi32>
// CHECK: nn.linear_cross_entropy %arg0, %arg1, %[[Y]] wide_logits : tensor<2x4x4xbf16>, tensor<4x16xbf16>, tensor<2x4xi32>
// CHECK-NOT: nn.linear %
func.func @between(%h: tensor<2x4x4xbf16>, %w: tensor<4x16xbf16>, %y: tensor<8xi32>) -> tensor<f32> {
  %l = nn.linear %h, %w : tensor<2x4x4xbf16>, tensor<4x16xbf16>
  %c = nn.cast %l to f32 unrounded : tensor<2x4x16xbf16>
  %r = nn.reshape %c : tensor<2x4x16xf32> to tensor<8x16xf32>
  %0:2 = nn.cross_entropy %r, %y : tensor<8x16xf32>, tensor<8xi32>
  return %0#0 : tensor<f32>
}

// -----

// It does nothing to logits that something else uses, those of a batch of matrices, of other rows than
// the targets', or rounded before the loss.
// CHECK-LABEL: func.func @nothing
// CHECK-NOT: nn.linear_cross_entropy
// CHECK: return
func.func @nothing(%h: tensor<8x4xf32>, %w: tensor<4x16xf32>, %y: tensor<8xi32>, %m: tensor<2x4x16xf32>, %x: tensor<2x4x4xf32>, %z: tensor<2x4xi32>, %v: tensor<16xi32>) -> (tensor<8x16xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) {
  %l = nn.linear %h, %w : tensor<8x4xf32>, tensor<4x16xf32>
  %0:2 = nn.cross_entropy %l, %y : tensor<8x16xf32>, tensor<8xi32>
  %j = nn.matmul %x, %m : tensor<2x4x4xf32>, tensor<2x4x16xf32>
  %2:2 = nn.cross_entropy %j, %z : tensor<2x4x16xf32>, tensor<2x4xi32>
  %i = nn.linear %h, %w : tensor<8x4xf32>, tensor<4x16xf32>
  %r = nn.reshape %i : tensor<8x16xf32> to tensor<16x8xf32>
  %3:2 = nn.cross_entropy %r, %v : tensor<16x8xf32>, tensor<16xi32>
  %n = nn.linear %h, %w : tensor<8x4xf32>, tensor<4x16xf32>
  %c = nn.cast %n to bf16 : tensor<8x16xf32>
  %4:2 = nn.cross_entropy %c, %y : tensor<8x16xbf16>, tensor<8xi32>
  return %l, %0#0, %2#0, %3#0, %4#0 : tensor<8x16xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>
}
