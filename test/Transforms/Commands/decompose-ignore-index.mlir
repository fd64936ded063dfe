// RUN: trainc-opt %s --nn-decompose | FileCheck %s

// Classes are whole numbers: 2^53 + 1, which no double is, and the least of 64 bits stay what they are.
// CHECK: nn.constant dense<9007199254740993> : tensor<i64>
// CHECK: nn.constant dense<-9223372036854775807> : tensor<i64>
train.list @losses of @e "apply" (%x: tensor<4x8xf32>, %y: tensor<4xi64>) {
  %a, %b = nn.cross_entropy %x, %y {ignore_index = 9007199254740993 : i64} : tensor<4x8xf32>, tensor<4xi64>
  %c, %d = nn.cross_entropy %x, %y {ignore_index = -9223372036854775807 : i64} : tensor<4x8xf32>, tensor<4xi64>
  %s = nn.add %a, %c : tensor<f32>, tensor<f32>
  train.write %s to @loss::@value : tensor<f32>
  train.return
}
train.arena @loss buffer {
  train.slice @value : tensor<f32>
}
