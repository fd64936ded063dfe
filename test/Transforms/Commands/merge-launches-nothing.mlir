// Does nothing to the launches of other kernels, to an update of what is computed of another's result, and to work on
// single elements that the norm has no part in.
//
// RUN: trainc-opt %s -o %t.before && trainc-opt %s --train-merge-launches -o %t.after && diff %t.before %t.after

train.kernel @double(%x: tensor<8xf32>) inplace [-1] {
  %y = nn.add %x, %x : tensor<8xf32>, tensor<8xf32>
  train.return %y : tensor<8xf32>
}
train.kernel @update(%p: tensor<8xf32>) inplace [0] {
  %y = train.segment_map %p : tensor<8xf32> segments <groups = [0], lengths = [8], offsets = [array<i64: 0>]> {targets = array<i64: 0>} -> tensor<8xf32> {
  ^bb0(%e: f32):
    %r = arith.negf %e : f32
    train.yield %r : f32
  }
  train.return %y : tensor<8xf32>
}
train.kernel @norm(%p: tensor<8xf32>) inplace [-1] {
  %y = train.segment_square_sum %p : tensor<8xf32> block 8 segments <groups = [0], lengths = [8], offsets = [array<i64: 0>]> -> tensor<1xf64> {
  ^bb0(%e: f32):
    train.yield %e : f32
  }
  train.return %y : tensor<1xf64>
}
train.kernel @root(%x: tensor<f32>) inplace [-1] {
  %y = nn.sqrt %x : tensor<f32>
  train.return %y : tensor<f32>
}
train.list @updates of @step "apply" (%p: tensor<8xf32>) {
  %a = train.launch @update(%p) : (tensor<8xf32>) -> tensor<8xf32>
  %b = train.launch @double(%a) : (tensor<8xf32>) -> tensor<8xf32>
  %c = train.launch @update(%b) : (tensor<8xf32>) -> tensor<8xf32>
  train.return %c : tensor<8xf32>
}
train.list @norms of @step "apply" (%p: tensor<8xf32>, %s: tensor<f32>) {
  %a = train.launch @norm(%p) : (tensor<8xf32>) -> tensor<1xf64>
  %b = train.launch @root(%s) : (tensor<f32>) -> tensor<f32>
  train.return %a, %b : tensor<1xf64>, tensor<f32>
}
