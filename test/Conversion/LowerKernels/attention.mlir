// RUN: trainc-opt %s --train-lower-kernels | FileCheck %s

// Two blocks of queries for each of 2 x 3 heads; scratch of a block only.
// CHECK-LABEL: func.func @forward(
// CHECK-SAME: tiles = 12
// CHECK: memref.alloca() {{.*}} : memref<160xf32>
// CHECK: math.fma
// CHECK: math.exp
train.kernel @forward(%qkv: tensor<2x40x45xf32>) inplace [-1, -1] {
  %out, %lse = nn.packed_attention %qkv heads 3 causal : tensor<2x40x45xf32>
  train.return %out, %lse : tensor<2x40x15xf32>, tensor<2x3x40xf32>
}
