// The buffer form: addresses, views, and commands on them.
//
// RUN: trainc-opt %s | trainc-opt | FileCheck %s
// RUN: trainc-opt %s --verify-roundtrip -o /dev/null

train.mesh @mesh(host = 2, data = 2)
train.arena @g gradient {
  train.slice @a : tensor<4x4xf32>
  train.slice @b : tensor<8xf32>
}
train.bucket @bucket [@c] elements(16) offsets([0])
train.arena @s state {
  train.slice @c : tensor<4x4xf32>
  train.span @bucket over ["data"]
}
// CHECK: train.token @reduced
train.token @reduced
train.kernel @k(%x: tensor<8xf32>, %y: tensor<8xf32>) inplace [0, -1] {
  %a = nn.add %x, %y : tensor<8xf32>, tensor<8xf32>
  %b = nn.tanh %a : tensor<8xf32>
  train.return %a, %b : tensor<8xf32>, tensor<8xf32>
}

// CHECK: train.list @step.first of @step "first" () workspace(512) {
train.list @step.first of @step "first" () workspace(512) {
  // CHECK: %[[A:.*]] = train.address @g::@a : memref<4x4xf32>
  %a = train.address @g::@a : memref<4x4xf32>
  // CHECK: %[[G:.*]] = train.address @g : memref<24xf32>
  %g = train.address @g : memref<24xf32>
  // CHECK: train.address @s::@bucket : memref<8xf32>
  %c = train.address @s::@bucket : memref<8xf32>
  // CHECK: %[[W:.*]] = train.address workspace 256 : memref<8xf32>
  %w = train.address workspace 256 : memref<8xf32>
  // CHECK: %[[X:.*]] = train.address input 0 : memref<4x4xf32>
  %x = train.address input 0 : memref<4x4xf32>
  // CHECK: %[[O:.*]] = train.address output 1 : memref<16xf32>
  %o = train.address output 1 : memref<16xf32>
  // CHECK: %[[V:.*]] = train.view %[[X]] from 8 : memref<4x4xf32> -> memref<8xf32>
  %v = train.view %x from 8 : memref<4x4xf32> -> memref<8xf32>
  // CHECK: train.launch @k(%[[V]]) outs(%[[W]], %[[W]] : memref<8xf32>, memref<8xf32>) : (memref<8xf32>) -> ()
  train.launch @k(%v) outs(%w, %w : memref<8xf32>, memref<8xf32>) : (memref<8xf32>) -> ()
  // CHECK: train.gemm %[[X]], %[[X]] outs(%[[A]] : memref<4x4xf32>) m 4 n 4 k 4 batch 1 accumulate : memref<4x4xf32>, memref<4x4xf32>
  train.gemm %x, %x outs(%a : memref<4x4xf32>) m 4 n 4 k 4 batch 1 accumulate : memref<4x4xf32>, memref<4x4xf32>
  // CHECK: train.copy %[[X]] to %[[O]] : memref<4x4xf32> to memref<16xf32>
  train.copy %x to %o : memref<4x4xf32> to memref<16xf32>
  // CHECK: train.flatten %[[X]], %[[V]] at [0, 16] outs(%[[G]] : memref<24xf32>) : memref<4x4xf32>, memref<8xf32>
  train.flatten %x, %v at [0, 16] outs(%g : memref<24xf32>) : memref<4x4xf32>, memref<8xf32>
  // CHECK: %[[T:.*]] = train.start all_gather(%[[V]]) outs(%[[O]]) over ["data"] : memref<16xf32> from memref<8xf32> -> !train.token
  %t = train.start all_gather(%v) outs(%o) over ["data"] : memref<16xf32> from memref<8xf32> -> !train.token
  // CHECK: train.wait %[[T]]
  train.wait %t
  // CHECK: %[[S:.*]] = train.start all_reduce outs(%[[G]]) over ["host"] piece_of ["data"] : memref<24xf32> -> !train.token
  %s = train.start all_reduce outs(%g) over ["host"] piece_of ["data"] : memref<24xf32> -> !train.token
  train.wait %s
  // CHECK: train.start reduce_scatter outs(%[[G]]) over ["data"] as @reduced : memref<24xf32>
  train.start reduce_scatter outs(%g) over ["data"] as @reduced : memref<24xf32>
  train.return
}
train.list @step.apply of @step "apply" () workspace(0) {
  // CHECK: train.wait @reduced
  train.wait @reduced
  train.return
}
