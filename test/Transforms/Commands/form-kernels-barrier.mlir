// RUN: trainc-opt %s --train-form-kernels | FileCheck %s

// Without the barrier both would be one kernel with two results.
// CHECK-LABEL: train.list @first
// CHECK: %[[A:.*]] = train.launch @[[K:.*]](%[[X:.*]]) : (tensor<8x16xf32>) -> tensor<8x16xf32>
// CHECK-NOT: train.barrier
// CHECK: %[[B:.*]] = train.launch @[[K]](%[[X]]) : (tensor<8x16xf32>) -> tensor<8x16xf32>
// CHECK: train.return %[[A]], %[[B]]
train.param @w : tensor<f32> init(zeros) frozen
train.eval @eval(%x: tensor<8x16xf32>) -> ("a", "b") {
  train.yield %x, %x : tensor<8x16xf32>, tensor<8x16xf32>
}
train.list @first of @eval "first" (%x: tensor<8x16xf32>) {
  %a = nn.tanh %x : tensor<8x16xf32>
  %x2 = train.barrier %x : tensor<8x16xf32>
  %b = nn.tanh %x2 : tensor<8x16xf32>
  train.return %a, %b : tensor<8x16xf32>, tensor<8x16xf32>
}
