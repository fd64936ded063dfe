// RUN: trainc-opt %s --train-fuse-epilogues --split-input-file | FileCheck %s
// RUN: trainc-opt %s --train-fuse-epilogues --split-input-file --verify-roundtrip > /dev/null
// RUN: trainc-opt %s --train-fuse-epilogues --split-input-file --remarks-filter=train-fuse-epilogues 2>&1 | FileCheck %s --check-prefix=REMARK
// RUN: trainc-opt %s --train-fuse-epilogues=gelu-only --split-input-file | FileCheck %s --check-prefix=GELU
// RUN: trainc-opt %s --train-fuse-epilogues=gradients=false --split-input-file | FileCheck %s --check-prefix=FORWARD
// RUN: trainc-opt %s --train-fuse-epilogues --train-form-kernels --split-input-file | FileCheck %s --check-prefix=KERNELS

// A bias, gelu, and what gelu is taken of, for another op. Only that is left.
// CHECK-LABEL: train.list @gelu
// CHECK: %[[Y:.*]], %[[X:.*]] = train.gemm %{{.*}}, %{{.*}} bias %{{.*}} m 4 n 8 k 6 batch 1 epilogue gelu : {{.*}} -> tensor<4x8xbf16> kept tensor<4x8xbf16>
// CHECK-DAG: %[[WIDE:.*]] = nn.reshape %[[Y]] : tensor<4x8xbf16> to tensor<2x2x8xbf16>
// CHECK-DAG: %[[INPUT:.*]] = nn.reshape %[[X]] : tensor<4x8xbf16> to tensor<2x2x8xbf16>
// CHECK-DAG: %[[TANH:.*]] = nn.tanh %[[INPUT]]
// CHECK: train.return %[[WIDE]], %[[TANH]]
// REMARK: remark: [Passed] Bias | Category:train-fuse-epilogues
// REMARK: remark: [Passed] Gelu | Category:train-fuse-epilogues
// KERNELS-LABEL: train.list @gelu
// KERNELS: train.gemm
// KERNELS: train.launch @k_tanh
// KERNELS-NOT: train.launch
train.list @gelu of @step "first" (%a: tensor<4x6xbf16>, %b: tensor<6x8xbf16>, %bias: tensor<8xbf16>) {
  %0 = nn.matmul %a, %b : tensor<4x6xbf16>, tensor<6x8xbf16>
  %1 = nn.reshape %0 : tensor<4x8xbf16> to tensor<2x2x8xbf16>
  %2 = nn.add %1, %bias : tensor<2x2x8xbf16>, tensor<8xbf16>
  %3 = nn.gelu %2 tanh : tensor<2x2x8xbf16>
  %4 = nn.tanh %2 : tensor<2x2x8xbf16>
  train.return %3, %4 : tensor<2x2x8xbf16>, tensor<2x2x8xbf16>
}

// -----

// Nobody needs what gelu is taken of; rows of 5 are no obstacle then.
// CHECK-LABEL: train.list @eval
// CHECK: train.gemm %{{.*}}, %{{.*}} bias %{{.*}} m 4 n 5 k 6 batch 1 epilogue gelu : tensor<4x6xbf16>, tensor<6x5xbf16>, tensor<5xbf16> -> tensor<4x5xbf16>
// CHECK-NOT: nn.gelu
train.list @eval of @eval "first" (%a: tensor<4x6xbf16>, %b: tensor<6x5xbf16>, %bias: tensor<5xbf16>) {
  %0 = nn.matmul %a, %b bias %bias : tensor<4x6xbf16>, tensor<6x5xbf16>, tensor<5xbf16>
  %1 = nn.gelu %0 tanh : tensor<4x5xbf16>
  train.return %1 : tensor<4x5xbf16>
}

// -----

// The backward of that layer: the derivative of gelu, and the gradient of the bias with that
// of the weight, which is f32 of bf16.
// CHECK-LABEL: train.list @gradients
// CHECK: %[[DX:.*]] = train.gemm %{{.*}}, %{{.*}} m 4 n 8 k 6 batch 1 transpose_rhs epilogue gelu_grad at %{{.*}} : tensor<4x6xbf16>, tensor<8x6xbf16> at tensor<4x8xbf16> -> tensor<4x8xbf16>
// CHECK: %[[DW:.*]], %[[DB:.*]] = train.gemm %{{.*}}, %[[DX]] m 16 n 8 k 4 batch 1 transpose_lhs bias_gradient rhs : tensor<4x16xbf16>, tensor<4x8xbf16> -> tensor<16x8xf32> bias_sums tensor<8xf32>
// CHECK-NOT: nn.reduce
// CHECK: train.return %[[DX]], %[[DW]], %[[DB]]
// For processors the bias's gradient is apart.
// GELU-LABEL: train.list @gradients
// GELU: %[[DX:.*]] = train.gemm {{.*}} epilogue gelu_grad
// GELU-NOT: bias_gradient
// GELU: nn.reduce sum
// As GPUs have it: the forward pass alone.
// FORWARD-LABEL: train.list @gradients
// FORWARD-NOT: epilogue
// FORWARD: nn.map
// FORWARD-NOT: bias_gradient
// FORWARD: nn.reduce sum
// REMARK: remark: [Passed] GeluGradient | Category:train-fuse-epilogues
// REMARK: remark: [Passed] BiasGradient | Category:train-fuse-epilogues
train.list @gradients of @step "first" (%dy: tensor<4x6xbf16>, %w: tensor<8x6xbf16>, %x: tensor<4x8xbf16>, %in: tensor<4x16xbf16>) {
  %0 = nn.matmul %dy, %w transpose_rhs : tensor<4x6xbf16>, tensor<8x6xbf16>
  %1 = nn.map(%0, %x) : (tensor<4x8xbf16>, tensor<4x8xbf16>) -> tensor<4x8xbf16> {
  ^bb0(%g: f32, %at: f32):
    %half = arith.constant 5.000000e-01 : f32
    %linear = arith.constant 0.797884583 : f32
    %cubic = arith.constant 0.0356774069 : f32
    %triple = arith.constant 0.107032225 : f32
    %one = arith.constant 1.000000e+00 : f32
    %square = arith.mulf %at, %at : f32
    %inner = math.fma %square, %cubic, %linear : f32
    %argument = arith.mulf %at, %inner : f32
    %t = math.tanh %argument : f32
    %slope = math.fma %square, %triple, %linear : f32
    %minus = arith.negf %t : f32
    %rest = math.fma %minus, %t, %one : f32
    %dt = arith.mulf %rest, %slope : f32
    %halved = arith.mulf %half, %at : f32
    %sum = math.fma %half, %t, %half : f32
    %all = math.fma %halved, %dt, %sum : f32
    %result = arith.mulf %g, %all : f32
    nn.yield %result : f32
  }
  %2 = nn.matmul %in, %1 transpose_lhs : tensor<4x16xbf16>, tensor<4x8xbf16>
  %3 = nn.cast %2 to f32 unrounded : tensor<16x8xbf16>
  %4 = nn.cast %1 to f32 : tensor<4x8xbf16>
  %5 = nn.reduce sum %4 dims [0] keep : tensor<4x8xf32>
  %6 = nn.reshape %5 : tensor<1x8xf32> to tensor<8xf32>
  train.return %1, %3, %6 : tensor<4x8xbf16>, tensor<16x8xf32>, tensor<8xf32>
}

// -----

// A weight stored the other way round: the sums are those of the left operand. Two more
// dimensions in front are one.
// CHECK-LABEL: train.list @left
// CHECK: %[[DW:.*]], %[[DB:.*]] = train.gemm %{{.*}}, %{{.*}} m 8 n 16 k 4 batch 1 transpose_lhs bias_gradient lhs : tensor<4x8xf32>, tensor<4x16xf32> -> tensor<8x16xf32> bias_sums tensor<8xf32>
// CHECK: train.return %[[DW]], %[[DB]]
train.list @left of @step "first" (%dy: tensor<2x2x8xf32>, %in: tensor<4x16xf32>) {
  %0 = nn.reshape %dy : tensor<2x2x8xf32> to tensor<4x8xf32>
  %1 = nn.matmul %0, %in transpose_lhs : tensor<4x8xf32>, tensor<4x16xf32>
  %2 = nn.reduce sum %dy dims [0, 1] keep : tensor<2x2x8xf32>
  %3 = nn.reshape %2 : tensor<1x1x8xf32> to tensor<8xf32>
  train.return %1, %3 : tensor<8x16xf32>, tensor<8xf32>
}

// -----

// No product for a weight's gradient: the sums of the result.
// CHECK-LABEL: train.list @frozen
// CHECK: %[[DX:.*]], %[[DB:.*]] = train.gemm %{{.*}}, %{{.*}} m 4 n 8 k 6 batch 1 epilogue gelu_grad at %{{.*}} bias_gradient result : tensor<4x6xbf16>, tensor<6x8xbf16> at tensor<4x8xbf16> -> tensor<4x8xbf16> bias_sums tensor<8xbf16>
// CHECK: train.return %[[DX]], %[[DB]]
train.list @frozen of @step "first" (%dy: tensor<4x6xbf16>, %w: tensor<6x8xbf16>, %x: tensor<4x8xbf16>) {
  %0 = nn.matmul %dy, %w : tensor<4x6xbf16>, tensor<6x8xbf16>
  %1 = nn.map(%0, %x) : (tensor<4x8xbf16>, tensor<4x8xbf16>) -> tensor<4x8xbf16> {
  ^bb0(%g: f32, %at: f32):
    %half = arith.constant 5.000000e-01 : f32
    %linear = arith.constant 0.797884583 : f32
    %cubic = arith.constant 0.0356774069 : f32
    %triple = arith.constant 0.107032225 : f32
    %one = arith.constant 1.000000e+00 : f32
    %square = arith.mulf %at, %at : f32
    %inner = math.fma %square, %cubic, %linear : f32
    %argument = arith.mulf %at, %inner : f32
    %t = math.tanh %argument : f32
    %slope = math.fma %square, %triple, %linear : f32
    %minus = arith.negf %t : f32
    %rest = math.fma %minus, %t, %one : f32
    %dt = arith.mulf %rest, %slope : f32
    %halved = arith.mulf %half, %at : f32
    %sum = math.fma %half, %t, %half : f32
    %all = math.fma %halved, %dt, %sum : f32
    %result = arith.mulf %g, %all : f32
    nn.yield %result : f32
  }
  %2 = nn.cast %1 to f32 : tensor<4x8xbf16>
  %3 = nn.reduce sum %2 dims [0] keep : tensor<4x8xf32>
  %4 = nn.cast %3 to bf16 : tensor<1x8xf32>
  %5 = nn.reshape %4 : tensor<1x8xbf16> to tensor<8xbf16>
  train.return %1, %5 : tensor<4x8xbf16>, tensor<8xbf16>
}
