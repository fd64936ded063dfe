// RUN: trainc-opt %s --train-inline-calls --split-input-file | FileCheck %s

// Nested calls are inlined and the functions erased.
// CHECK-NOT: func.func
// CHECK-LABEL: train.eval @calls
// CHECK: %[[A:.*]] = nn.add %x, %x
// CHECK-NEXT: %[[B:.*]] = nn.neg %[[A]]
// CHECK-NEXT: train.yield %[[B]]
func.func private @double(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = nn.add %x, %x : tensor<4xf32>, tensor<4xf32>
  return %y : tensor<4xf32>
}
func.func private @net(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = func.call @double(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %z = nn.neg %y : tensor<4xf32>
  return %z : tensor<4xf32>
}
train.eval @calls(%x: tensor<4xf32>) -> ("y") {
  %y = func.call @net(%x) : (tensor<4xf32>) -> tensor<4xf32>
  train.yield %y : tensor<4xf32>
}

// -----

// It does nothing to a module without calls.
// CHECK-LABEL: train.eval @none
// CHECK-NEXT: nn.neg %x
// CHECK-NEXT: train.yield
train.eval @none(%x: tensor<4xf32>) -> ("y") {
  %y = nn.neg %x : tensor<4xf32>
  train.yield %y : tensor<4xf32>
}
