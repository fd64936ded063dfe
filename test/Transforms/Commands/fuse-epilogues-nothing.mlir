// What GEMMs do not take: the pass does nothing.
//
// RUN: trainc-opt %s --train-fuse-epilogues --split-input-file | FileCheck %s --implicit-check-not=epilogue --implicit-check-not=bias_gradient
// RUN: trainc-opt %s --train-fuse-epilogues --split-input-file --remarks-filter=train-fuse-epilogues 2>&1 | FileCheck %s --check-prefix=REMARK

// Others use the product without the bias; a bias of one row each; of columns.
// CHECK-LABEL: train.list @biases
// CHECK: nn.add
// CHECK: nn.add
// CHECK: nn.add
train.list @biases of @step "first" (%a: tensor<8x8xf32>, %b: tensor<8x8xf32>, %bias: tensor<8xf32>, %column: tensor<8x1xf32>) {
  %0 = nn.matmul %a, %b : tensor<8x8xf32>, tensor<8x8xf32>
  %1 = nn.add %0, %bias : tensor<8x8xf32>, tensor<8xf32>
  %2 = nn.matmul %b, %a : tensor<8x8xf32>, tensor<8x8xf32>
  %3 = nn.add %2, %column : tensor<8x8xf32>, tensor<8x1xf32>
  %4 = nn.matmul %b, %a bias %bias : tensor<8x8xf32>, tensor<8x8xf32>, tensor<8xf32>
  %5 = nn.add %4, %bias : tensor<8x8xf32>, tensor<8xf32>
  train.return %0, %1, %3, %5 : tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>
}

// -----

// The exact form of gelu; f64; f32, but for processors; rows of 5 of which the input of gelu is needed; a batch.
// CHECK-LABEL: train.list @gelus
// CHECK: nn.gelu %{{.*}} erf
// CHECK: nn.gelu
// CHECK: nn.gelu
// CHECK: nn.gelu
// CHECK: nn.gelu
// REMARK: remark: [Missed] Gelu | Category:train-fuse-epilogues | Reason=f64
// REMARK: remark: [Missed] Gelu | Category:train-fuse-epilogues | Reason="rows of no multiple of 8 elements"
// REMARK: remark: [Missed] Gelu | Category:train-fuse-epilogues | Reason="f32: the library's gelu has fewer bits"
train.list @gelus of @step "first" (%a: tensor<8x8xf32>, %wide: tensor<8x8xf64>, %odd: tensor<8x5xbf16>, %narrow: tensor<8x8xbf16>, %many: tensor<2x8x8xf32>) {
  %0 = nn.matmul %a, %a : tensor<8x8xf32>, tensor<8x8xf32>
  %1 = nn.gelu %0 erf : tensor<8x8xf32>
  %2 = nn.matmul %wide, %wide : tensor<8x8xf64>, tensor<8x8xf64>
  %3 = nn.gelu %2 tanh : tensor<8x8xf64>
  %4 = nn.matmul %narrow, %odd : tensor<8x8xbf16>, tensor<8x5xbf16>
  %5 = nn.gelu %4 tanh : tensor<8x5xbf16>
  %6 = nn.matmul %many, %many : tensor<2x8x8xf32>, tensor<2x8x8xf32>
  %7 = nn.gelu %6 tanh : tensor<2x8x8xf32>
  %8 = nn.matmul %a, %a : tensor<8x8xf32>, tensor<8x8xf32>
  %9 = nn.gelu %8 tanh : tensor<8x8xf32>
  train.return %1, %3, %4, %5, %7, %9 : tensor<8x8xf32>, tensor<8x8xf64>, tensor<8x5xbf16>, tensor<8x5xbf16>, tensor<2x8x8xf32>, tensor<8x8xf32>
}

// -----

// Another function than the derivative of gelu.
// CHECK-LABEL: train.list @map
// CHECK: nn.map
train.list @map of @step "first" (%a: tensor<8x8xf32>, %x: tensor<8x8xf32>) {
  %0 = nn.matmul %a, %a : tensor<8x8xf32>, tensor<8x8xf32>
  %1 = nn.map(%0, %x) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32> {
  ^bb0(%g: f32, %at: f32):
    %t = math.tanh %at : f32
    %result = arith.mulf %g, %t : f32
    nn.yield %result : f32
  }
  train.return %1 : tensor<8x8xf32>
}

// -----

// Sums over rows, not columns; of another matrix; of an operand whose other dimension is
// summed over; where the product adds to what is there; of a type that is not the result's.
// CHECK-LABEL: train.list @sums
// CHECK-COUNT-5: nn.reduce
train.arena @arena.grad.f32 gradient {
  train.slice @w : tensor<8x8xf32>
}
train.list @sums of @step "next" (%dy: tensor<16x8xf32>, %in: tensor<16x8xf32>, %narrow: tensor<16x8xbf16>) {
  %0 = nn.matmul %in, %dy transpose_lhs : tensor<16x8xf32>, tensor<16x8xf32>
  %1 = nn.reduce sum %dy dims [1] keep : tensor<16x8xf32>
  %2 = nn.mul %dy, %dy : tensor<16x8xf32>, tensor<16x8xf32>
  %3 = nn.reduce sum %2 dims [0] keep : tensor<16x8xf32>
  %4 = nn.matmul %2, %in transpose_rhs : tensor<16x8xf32>, tensor<16x8xf32>
  %5 = train.read @arena.grad.f32::@w : tensor<8x8xf32>
  %6 = nn.tanh %dy : tensor<16x8xf32>
  %7 = nn.matmul %in, %6 transpose_lhs : tensor<16x8xf32>, tensor<16x8xf32>
  %8 = nn.add %5, %7 : tensor<8x8xf32>, tensor<8x8xf32>
  %9 = nn.reduce sum %6 dims [0] keep : tensor<16x8xf32>
  train.write %8 to @arena.grad.f32::@w : tensor<8x8xf32>
  %10 = nn.matmul %narrow, %narrow transpose_lhs : tensor<16x8xbf16>, tensor<16x8xbf16>
  %11 = nn.cast %narrow to f32 : tensor<16x8xbf16>
  %12 = nn.reduce sum %11 dims [0] keep : tensor<16x8xf32>
  %13 = nn.reduce max %dy dims [0] keep : tensor<16x8xf32>
  train.return %0, %1, %3, %4, %9, %10, %12, %13 : tensor<8x8xf32>, tensor<16x1xf32>, tensor<1x8xf32>, tensor<16x16xf32>, tensor<1x8xf32>, tensor<8x8xbf16>, tensor<1x8xf32>, tensor<1x8xf32>
}

// -----

// A product of bf16 that adds to f32 is one GEMM, and the sums are left.
// CHECK-LABEL: train.list @window
// CHECK: train.gemm {{.*}} init
// CHECK-NOT: train.gemm
// CHECK: nn.reduce
// CHECK: train.return
train.arena @arena.grad.f32 gradient {
  train.slice @w : tensor<8x8xf32>
}
train.list @window of @step "next" (%dy: tensor<16x8xbf16>, %in: tensor<16x8xbf16>) {
  %0 = nn.matmul %in, %dy transpose_lhs : tensor<16x8xbf16>, tensor<16x8xbf16>
  %1 = nn.cast %0 to f32 unrounded : tensor<8x8xbf16>
  %2 = train.read @arena.grad.f32::@w : tensor<8x8xf32>
  %3 = nn.add %2, %1 : tensor<8x8xf32>, tensor<8x8xf32>
  train.write %3 to @arena.grad.f32::@w : tensor<8x8xf32>
  %4 = nn.cast %dy to f32 : tensor<16x8xbf16>
  %5 = nn.reduce sum %4 dims [0] keep : tensor<16x8xf32>
  train.return %5 : tensor<1x8xf32>
}
