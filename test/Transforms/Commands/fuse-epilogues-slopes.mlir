// What products keep for the gradient of gelu on processors.
//
// RUN: trainc-opt %s --train-fuse-epilogues=gelu-only --split-input-file | FileCheck %s
// RUN: trainc-opt %s --train-fuse-epilogues=gelu-only --split-input-file --remarks-filter=train-fuse-epilogues 2>&1 | FileCheck %s --check-prefix=REMARK
// RUN: trainc-opt %s --train-fuse-epilogues --split-input-file | FileCheck %s --check-prefix=GPU --implicit-check-not=gelu_and_slope

// The gradient reads nothing but the slope, also through a reshape.
// CHECK-LABEL: train.list @slope
// CHECK: %[[Y:.*]], %[[SLOPE:.*]] = train.gemm %{{.*}}, %{{.*}} m 4 n 8 k 6 batch 1 epilogue gelu_and_slope : {{.*}} -> tensor<4x8xf32> kept tensor<4x8xf32>
// CHECK: %[[FLAT:.*]] = nn.reshape %[[SLOPE]]
// CHECK: train.gemm {{.*}} epilogue multiply at %[[FLAT]]
// CHECK: train.gemm {{.*}} epilogue multiply at %[[SLOPE]]
// REMARK: remark: [Passed] Slope | Category:train-fuse-epilogues
// GPU-LABEL: train.list @slope
// GPU: epilogue gelu :
// GPU-COUNT-2: epilogue gelu_grad
train.list @slope of @step "first" (%a: tensor<4x6xf32>, %b: tensor<6x8xf32>) {
  %y, %x = train.gemm %a, %b m 4 n 8 k 6 batch 1 epilogue gelu : tensor<4x6xf32>, tensor<6x8xf32> -> tensor<4x8xf32> kept tensor<4x8xf32>
  %0 = nn.reshape %x : tensor<4x8xf32> to tensor<2x2x8xf32>
  %1 = train.gemm %a, %b m 4 n 8 k 6 batch 1 epilogue gelu_grad at %0 : tensor<4x6xf32>, tensor<6x8xf32> at tensor<2x2x8xf32> -> tensor<4x8xf32>
  %2 = train.gemm %a, %b m 4 n 8 k 6 batch 1 epilogue gelu_grad at %x : tensor<4x6xf32>, tensor<6x8xf32> at tensor<4x8xf32> -> tensor<4x8xf32>
  train.return %y, %1, %2 : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
}

// -----

// Others read the input: a result of the list, a product as its factor.
// CHECK-LABEL: train.list @others
// CHECK-NOT: slope
// CHECK-NOT: multiply
// REMARK-NOT: Slope
train.list @others of @step "first" (%a: tensor<8x8xf32>) {
  %0, %x = train.gemm %a, %a m 8 n 8 k 8 batch 1 epilogue gelu : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32> kept tensor<8x8xf32>
  %1 = train.gemm %a, %a m 8 n 8 k 8 batch 1 epilogue gelu_grad at %x : tensor<8x8xf32>, tensor<8x8xf32> at tensor<8x8xf32> -> tensor<8x8xf32>
  %2, %z = train.gemm %a, %a m 8 n 8 k 8 batch 1 epilogue gelu : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32> kept tensor<8x8xf32>
  %3 = train.gemm %z, %a m 8 n 8 k 8 batch 1 epilogue gelu_grad at %z : tensor<8x8xf32>, tensor<8x8xf32> at tensor<8x8xf32> -> tensor<8x8xf32>
  train.return %0, %x, %1, %2, %3 : tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>
}

// -----

// In bf16 the slope would be rounded.
// CHECK-LABEL: train.list @bf16
// CHECK-NOT: slope
// CHECK-NOT: multiply
train.list @bf16 of @step "first" (%a: tensor<8x8xbf16>) {
  %0, %x = train.gemm %a, %a m 8 n 8 k 8 batch 1 epilogue gelu : tensor<8x8xbf16>, tensor<8x8xbf16> -> tensor<8x8xbf16> kept tensor<8x8xbf16>
  %1 = train.gemm %a, %a m 8 n 8 k 8 batch 1 epilogue gelu_grad at %x : tensor<8x8xbf16>, tensor<8x8xbf16> at tensor<8x8xbf16> -> tensor<8x8xbf16>
  train.return %0, %1 : tensor<8x8xbf16>, tensor<8x8xbf16>
}

// -----

// Processors round a product of a narrow type before it is added to.
// CHECK-LABEL: train.list @narrow
// CHECK: train.gemm
// CHECK-NOT: bias
// CHECK: nn.add
// CHECK: train.gemm {{.*}} bias
// GPU-LABEL: train.list @narrow
// GPU-COUNT-2: train.gemm {{.*}} bias
train.list @narrow of @step "first" (%a: tensor<4x6xf16>, %b: tensor<6x8xf16>, %c: tensor<8xf16>, %x: tensor<4x6xf32>, %y: tensor<6x8xf32>, %z: tensor<8xf32>) {
  %0 = train.gemm %a, %b m 4 n 8 k 6 batch 1 : tensor<4x6xf16>, tensor<6x8xf16> -> tensor<4x8xf16>
  %1 = nn.add %0, %c : tensor<4x8xf16>, tensor<8xf16>
  %2 = train.gemm %x, %y m 4 n 8 k 6 batch 1 : tensor<4x6xf32>, tensor<6x8xf32> -> tensor<4x8xf32>
  %3 = nn.add %2, %z : tensor<4x8xf32>, tensor<8xf32>
  train.return %1, %3 : tensor<4x8xf16>, tensor<4x8xf32>
}
