// RUN: trainc-opt %s --verify-diagnostics --split-input-file

train.list @l of @e "first" () {
  // expected-error @below {{expects a symbol, workspace, input or output}}
  %0 = train.address heap 0 : memref<4xf32>
  train.return
}

// -----

train.list @l of @e "first" () {
  // expected-error @below {{'train.address' op expects an arena, or a slice or bucket of one (C1), got @g::@a}}
  %0 = train.address @g::@a : memref<4xf32>
  train.return
}

// -----

train.arena @g gradient {
  train.slice @a : tensor<4xf32>
}
train.list @l of @e "first" () {
  // expected-error @below {{'train.address' op expects an arena, or a slice or bucket of one (C1), got @g::@b}}
  %0 = train.address @g::@b : memref<4xf32>
  train.return
}

// -----

train.bucket @bucket [@a]
train.arena @g gradient {
  train.slice @a : tensor<4xf32>
  train.span @bucket
}
train.list @l of @e "first" () {
  // expected-error @below {{'train.address' op expects an arena, or a slice or bucket of one (C1), got @g::@bucket}}
  %0 = train.address @g::@bucket : memref<4xf32>
  train.return
}

// -----

train.bucket @bucket [@a] elements(8) offsets([0])
train.arena @g gradient {
  train.slice @a : tensor<4xf32>
  train.span @bucket
}
train.list @l of @e "first" () {
  // expected-error @below {{'train.address' op expects a buffer of 16 bytes (C2), got 'memref<8xf32>'}}
  %0 = train.address @g::@a : memref<8xf32>
  train.return
}

// -----

train.bucket @bucket [@a] elements(8) offsets([0])
train.arena @g gradient {
  train.slice @a : tensor<4xf32>
  train.span @bucket
}
train.list @l of @e "first" () {
  // expected-error @below {{'train.address' op expects a buffer of 32 bytes (C2), got 'memref<9xf32>'}}
  %0 = train.address @g : memref<9xf32>
  train.return
}

// -----

train.mesh @mesh(data = 2)
train.bucket @bucket [@a] elements(8) offsets([0])
train.arena @g gradient {
  train.slice @a : tensor<4xf32>
  train.span @bucket over ["data"]
}
train.list @l of @e "first" () {
  // expected-error @below {{'train.address' op expects a buffer of 16 bytes (C2), got 'memref<8xf32>'}}
  %0 = train.address @g::@bucket : memref<8xf32>
  train.return
}

// -----

train.list @l of @e "first" () {
  // expected-error @below {{'train.address' op expects a number that is not negative, and 0 for an arena (C3), got -4}}
  %0 = train.address workspace -4 : memref<9xf32>
  train.return
}

// -----

train.list @l of @e "first" () {
  // expected-error @below {{'train.address' op result #0 must be static memref}}
  %0 = train.address workspace 0 : memref<4xf32, strided<[2]>>
  train.return
}

// -----

train.list @l of @e "first" () {
  %0 = train.address workspace 0 : memref<4xf32>
  %1 = train.address workspace 64 : memref<2xf64>
  // expected-error @below {{'train.copy' op expects one element type and one number of elements (C1), got 'memref<4xf32>' and 'memref<2xf64>'}}
  train.copy %0 to %1 : memref<4xf32> to memref<2xf64>
  train.return
}

// -----

train.list @l of @e "first" () {
  %0 = train.address workspace 0 : memref<2x4xf32>
  // expected-error @below {{'train.view' op expects a part within its operand (C2), got 'memref<4xf32>' from 5 of 'memref<2x4xf32>'}}
  %1 = train.view %0 from 5 : memref<2x4xf32> -> memref<4xf32>
  train.return
}

// -----

train.kernel @k(%x: tensor<4xf32>, %y: tensor<4xf32>) inplace [0] {
  %a = nn.add %x, %y : tensor<4xf32>, tensor<4xf32>
  train.return %a : tensor<4xf32>
}
train.list @l of @e "first" () {
  %0 = train.address workspace 0 : memref<4xf32>
  // expected-error @below {{'train.launch' op expects the types of its kernel (C2), 'memref<4xf32>' and outs 'memref<4xf32>'}}
  train.launch @k(%0, %0) outs(%0 : memref<4xf32>) : (memref<4xf32>, memref<4xf32>) -> ()
  train.return
}

// -----

train.list @l of @e "first" () {
  %0 = train.address workspace 0 : memref<4x4xf32>
  // expected-error @below {{'train.gemm' op expects tensors with results, or buffers with 'outs' and neither results nor init (C6)}}
  train.gemm %0, %0 m 4 n 4 k 4 batch 1 : memref<4x4xf32>, memref<4x4xf32>
  train.return
}

// -----

train.list @l of @e "first" (%x: tensor<4x4xf32>) {
  // expected-error @below {{'train.gemm' op expects tensors with results, or buffers with 'outs' and neither results nor init (C6)}}
  %0 = train.gemm %x, %x m 4 n 4 k 4 batch 1 accumulate : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
  train.return
}

// -----

train.list @l of @e "first" (%x: tensor<4xf32>) {
  %0 = train.address workspace 0 : memref<8xf32>
  // expected-error @below {{'train.flatten' op expects operands of the result's element type (C1), got 'tensor<4xf32>'}}
  train.flatten %x at [0] outs(%0 : memref<8xf32>) : tensor<4xf32>
  train.return
}

// -----

train.mesh @mesh(data = 2)
train.list @l of @e "first" () {
  %0 = train.address workspace 0 : memref<8xf32>
  // expected-error @below {{'train.start' op expects distinct axes of the mesh (C1), got ["host"]}}
  %t = train.start reduce_scatter outs(%0) over ["host"] : memref<8xf32> -> !train.token
  train.wait %t
  train.return
}

// -----

train.mesh @mesh(data = 2)
train.list @l of @e "first" () {
  %0 = train.address workspace 0 : memref<8xi32>
  // expected-error @below {{'train.start' op expects elements of one type, and floats to add (C2)}}
  %t = train.start reduce_scatter outs(%0) over ["data"] : memref<8xi32> -> !train.token
  train.wait %t
  train.return
}

// -----

train.mesh @mesh(data = 2)
train.list @l of @e "first" () {
  %0 = train.address workspace 0 : memref<7xf32>
  // expected-error @below {{'train.start' op expects a buffer of rank 1 of a multiple of 2 elements (C3), got 'memref<7xf32>'}}
  %t = train.start reduce_scatter outs(%0) over ["data"] : memref<7xf32> -> !train.token
  train.wait %t
  train.return
}

// -----

train.mesh @mesh(data = 2)
train.list @l of @e "first" () {
  %0 = train.address workspace 0 : memref<4xf32>
  %1 = train.address workspace 64 : memref<4xf32>
  // expected-error @below {{'train.start' op expects a piece, of rank 1 or more, and as many of them as there are ranks (C3), got 'memref<4xf32>' and 'memref<4xf32>'}}
  %t = train.start all_gather(%0) outs(%1) over ["data"] : memref<4xf32> from memref<4xf32> -> !train.token
  train.wait %t
  train.return
}

// -----

train.mesh @mesh(data = 2)
train.list @l of @e "first" () {
  %0 = train.address workspace 0 : memref<8xf32>
  // expected-error @below {{'train.start' op expects piece_of of an all_reduce in place only (C4)}}
  %t = train.start all_gather outs(%0) over ["data"] piece_of ["data"] : memref<8xf32> -> !train.token
  train.wait %t
  train.return
}

// -----

train.mesh @mesh(data = 2)
train.list @l of @e "first" () {
  %0 = train.address workspace 0 : memref<8xf32>
  // expected-error @below {{'train.start' op expects a value or a name for its token (C5)}}
  train.start all_gather outs(%0) over ["data"] : memref<8xf32>
  train.return
}

// -----

train.mesh @mesh(data = 2)
train.list @l of @e "first" () {
  %0 = train.address workspace 0 : memref<8xf32>
  // expected-error @below {{'train.start' op expects a train.token (C5), got @t}}
  train.start all_gather outs(%0) over ["data"] as @t : memref<8xf32>
  train.return
}

// -----

train.list @l of @e "first" () {
  // expected-error @below {{'train.wait' op expects a value or the name of a token (C1)}}
  train.wait
  train.return
}

// -----

train.list @l of @e "first" () {
  // expected-error @below {{'train.wait' op expects a train.token (C1), got @t}}
  train.wait @t
  train.return
}

// -----

train.mesh @mesh(data = 2)
train.list @l of @e "first" () {
  %0 = train.address workspace 0 : memref<8xf32>
  %t = train.start all_gather outs(%0) over ["data"] : memref<8xf32> -> !train.token
  // expected-error @below {{'train.wait' op expects a token that is waited for once (C2)}}
  train.wait %t
  train.wait %t
  train.return
}
