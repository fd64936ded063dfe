// RUN: trainc-opt %s --train-recompute=limit=12287 --split-input-file --verify-diagnostics

// %d is made of two values.
train.kernel @k(%x: tensor<1024xf32>) inplace [-1] {
  %y = nn.neg %x : tensor<1024xf32>
  train.return %y : tensor<1024xf32>
}
train.kernel @two(%x: tensor<1024xf32>, %y: tensor<1024xf32>) inplace [-1] {
  %z = nn.add %x, %y : tensor<1024xf32>, tensor<1024xf32>
  train.return %z : tensor<1024xf32>
}
// expected-error @below {{expects a memory limit of at least 12288 bytes, 0 of arenas and 12288 of workspace, got 12287}}
// expected-note @below {{without recomputation the workspace has 16384 bytes}}
train.list @least of @e "first" (%x: tensor<1024xf32>) {
  %a = train.launch @k(%x) : (tensor<1024xf32>) -> tensor<1024xf32>
  %b = train.launch @k(%a) : (tensor<1024xf32>) -> tensor<1024xf32>
  %c = train.launch @k(%b) : (tensor<1024xf32>) -> tensor<1024xf32>
  %d = train.launch @two(%c, %b) : (tensor<1024xf32>, tensor<1024xf32>) -> tensor<1024xf32>
  %e = train.launch @two(%d, %a) : (tensor<1024xf32>, tensor<1024xf32>) -> tensor<1024xf32>
  train.return %e : tensor<1024xf32>
}

// -----

// What is read from a slice that the list changes cannot be computed again.
train.kernel @k(%x: tensor<1024xf32>) inplace [-1] {
  %y = nn.neg %x : tensor<1024xf32>
  train.return %y : tensor<1024xf32>
}
train.kernel @add(%x: tensor<1024xf32>, %y: tensor<1024xf32>) inplace [0] {
  %z = nn.add %x, %y : tensor<1024xf32>, tensor<1024xf32>
  train.return %z : tensor<1024xf32>
}
train.kernel @two(%x: tensor<1024xf32>, %y: tensor<1024xf32>) inplace [-1] {
  %z = nn.add %x, %y : tensor<1024xf32>, tensor<1024xf32>
  train.return %z : tensor<1024xf32>
}
train.arena @g buffer {
  train.slice @a : tensor<1024xf32>
}
// expected-error @below {{expects a memory limit of at least 16384 bytes, 4096 of arenas and 12288 of workspace, got 12287}}
// expected-note @below {{without recomputation the workspace has 12288 bytes}}
train.list @changed of @e "first" (%x: tensor<1024xf32>) {
  %g = train.read @g::@a : tensor<1024xf32>
  %a = train.launch @k(%g) : (tensor<1024xf32>) -> tensor<1024xf32>
  %h = train.launch @add(%g, %x) : (tensor<1024xf32>, tensor<1024xf32>) -> tensor<1024xf32>
  %b = train.launch @k(%x) : (tensor<1024xf32>) -> tensor<1024xf32>
  %c = train.launch @k(%b) : (tensor<1024xf32>) -> tensor<1024xf32>
  %d = train.launch @two(%c, %a) : (tensor<1024xf32>, tensor<1024xf32>) -> tensor<1024xf32>
  train.write %h to @g::@a : tensor<1024xf32>
  train.return %d : tensor<1024xf32>
}

// -----

train.arena @g buffer {
  train.slice @a : tensor<16384xf32>
}
// expected-error @below {{expects a memory limit of at least 69632 bytes, 65536 of arenas and 4096 of workspace, got 12287}}
// expected-note @below {{without recomputation the workspace has 4096 bytes}}
train.list @arenas of @e "first" (%x: tensor<1024xf32>) {
  %a = train.launch @k(%x) : (tensor<1024xf32>) -> tensor<1024xf32>
  %b = train.launch @k(%a) : (tensor<1024xf32>) -> tensor<1024xf32>
  train.return %b : tensor<1024xf32>
}
train.kernel @k(%x: tensor<1024xf32>) inplace [-1] {
  %y = nn.neg %x : tensor<1024xf32>
  train.return %y : tensor<1024xf32>
}
