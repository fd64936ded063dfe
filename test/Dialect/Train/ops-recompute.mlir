// RUN: trainc-opt %s | FileCheck %s
// RUN: trainc-opt %s --verify-roundtrip -o /dev/null

// CHECK: %[[Y:.*]] = train.recompute -> tensor<4xf32> {
// CHECK: train.yield %{{.*}} : tensor<4xf32>
// CHECK: train.barrier %[[Y]] : tensor<4xf32>
func.func @ok(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = train.recompute -> tensor<4xf32> {
    %t = nn.tanh %x : tensor<4xf32>
    train.yield %t : tensor<4xf32>
  }
  %b = train.barrier %y : tensor<4xf32>
  return %b : tensor<4xf32>
}
