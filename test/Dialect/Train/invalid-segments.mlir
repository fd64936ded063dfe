// RUN: trainc-opt %s --split-input-file --verify-diagnostics

train.list @l of @e "apply" () {
  // expected-error @below {{'train.norm_squared' op expects an f64 result of rank 0, or of rank 1 with one element per parameter (C1), got 'tensor<3xf64>' for 2 parameters}}
  %n = train.norm_squared [@a, @b] : tensor<3xf64>
  train.return
}

// -----

train.list @l of @e "apply" (%s: tensor<2xf64>, %f: tensor<i1>, %t: tensor<f64>) {
  // expected-error @below {{'train.update' op expects an f64 scale of rank 0, or of rank 1 with one element per parameter (C1), got 'tensor<2xf64>' for 1 parameters}}
  train.update @o [@a] scale(%s) if(%f) t(%t) : tensor<2xf64>, tensor<i1>, tensor<f64>
  train.return
}

// -----

train.list @l of @e "apply" (%p: tensor<8xf32>) {
  // expected-error @below {{'train.segment_map' op expects a group per segment and offsets per array (C1), got 1 groups for 2 segments and offsets of 1 of 1 arrays}}
  %r = train.segment_map %p : tensor<8xf32> {lengths = array<i64: 4, 4>, groups = array<i64: 0>, offsets = [array<i64: 0, 4>], targets = array<i64: 0>} -> tensor<8xf32> {
  ^bb0(%x: f32):
    train.yield %x : f32
  }
  train.return
}

// -----

train.list @l of @e "apply" (%p: tensor<8xf32>) {
  // expected-error @below {{'train.segment_map' op expects segments within their array (C1), got 4 elements at 5 of 'tensor<8xf32>'}}
  %r = train.segment_map %p : tensor<8xf32> {lengths = array<i64: 4>, groups = array<i64: 0>, offsets = [array<i64: 5>], targets = array<i64: 0>} -> tensor<8xf32> {
  ^bb0(%x: f32):
    train.yield %x : f32
  }
  train.return
}

// -----

train.list @l of @e "apply" (%p: tensor<8xf32>, %s: tensor<f64>) {
  // expected-error @below {{'train.segment_map' op expects a grouped operand per group and argument (C1), got 1 for 2 groups}}
  %r = train.segment_map %p : tensor<8xf32> grouped %s : tensor<f64> {lengths = array<i64: 4, 4>, groups = array<i64: 0, 1>, offsets = [array<i64: 0, 4>], targets = array<i64: 0>} -> tensor<8xf32> {
  ^bb0(%x: f32, %y: f64):
    train.yield %x : f32
  }
  train.return
}

// -----

train.list @l of @e "apply" (%p: tensor<2x4xf32>) {
  // expected-error @below {{'train.segment_map' op expects arrays of rank 1 (C2), got 'tensor<2x4xf32>'}}
  %r = train.segment_map %p : tensor<2x4xf32> {lengths = array<i64: 4>, groups = array<i64: 0>, offsets = [array<i64: 0>], targets = array<i64: 0>} -> tensor<2x4xf32> {
  ^bb0(%x: f32):
    train.yield %x : f32
  }
  train.return
}

// -----

train.list @l of @e "apply" (%p: tensor<8xf32>, %n: tensor<2xf32>) {
  // expected-error @below {{'train.segment_map' op expects operands of rank 0 and `each` of one element per segment or whole (C2), got 'tensor<2xf32>'}}
  %r = train.segment_map %p : tensor<8xf32> each %n : tensor<2xf32> {lengths = array<i64: 4>, groups = array<i64: 0>, offsets = [array<i64: 0>], targets = array<i64: 0>} -> tensor<8xf32> {
  ^bb0(%x: f32, %y: f32):
    train.yield %x : f32
  }
  train.return
}

// -----

train.list @l of @e "apply" (%p: tensor<8xbf16>) {
  // expected-error @below {{'train.segment_map' op expects block arguments of the operands' compute types (C3)}}
  %r = train.segment_map %p : tensor<8xbf16> {lengths = array<i64: 4>, groups = array<i64: 0>, offsets = [array<i64: 0>], targets = array<i64: 0>} -> tensor<8xbf16> {
  ^bb0(%x: bf16):
    train.yield %x : bf16
  }
  train.return
}

// -----

train.list @l of @e "apply" (%p: tensor<8xf32>) {
  // expected-error @below {{'train.segment_map' op expects distinct targets of the results' types (C4), got 1 for 'tensor<8xf32>'}}
  %r = train.segment_map %p : tensor<8xf32> {lengths = array<i64: 4>, groups = array<i64: 0>, offsets = [array<i64: 0>], targets = array<i64: 1>} -> tensor<8xf32> {
  ^bb0(%x: f32):
    train.yield %x : f32
  }
  train.return
}

// -----

train.list @l of @e "apply" (%p: tensor<8xf32>) {
  // expected-error @below {{'train.segment_square_sum' op expects one offset per segment and array (C1), got array<i64>}}
  %r = train.segment_square_sum %p : tensor<8xf32> block 4 {lengths = array<i64: 5>, groups = array<i64: 0>, offsets = [array<i64>]} -> tensor<2xf64> {
  ^bb0(%x: f32):
    train.yield %x : f32
  }
  train.return
}

// -----

train.list @l of @e "apply" (%p: tensor<8xf32>) {
  // expected-error @below {{'train.segment_square_sum' op expects a train.yield of one value per result (C3)}}
  %r = train.segment_square_sum %p : tensor<8xf32> block 4 {lengths = array<i64: 5>, groups = array<i64: 0>, offsets = [array<i64: 0>]} -> tensor<2xf64> {
  ^bb0(%x: f32):
    train.yield %x, %x : f32, f32
  }
  train.return
}

// -----

train.list @l of @e "apply" (%p: tensor<8xf32>) {
  // expected-error @below {{'train.segment_square_sum' op expects results of type 'tensor<2xf64>' (C4), got 'tensor<3xf64>'}}
  %r = train.segment_square_sum %p : tensor<8xf32> block 4 {lengths = array<i64: 5>, groups = array<i64: 0>, offsets = [array<i64: 0>]} -> tensor<3xf64> {
  ^bb0(%x: f32):
    train.yield %x : f32
  }
  train.return
}

// -----

train.list @l of @e "apply" (%b: tensor<3xf32>) {
  // expected-error @below {{'train.sum_blocks' op expects sums of elements of the inputs (C1), got 2 from 2 on of input 0}}
  %r = train.sum_blocks %b {sources = array<i64: 0>, firsts = array<i64: 2>, counts = array<i64: 2>, sets = [array<i64: 0>]} : (tensor<3xf32>) -> tensor<f64>
  train.return
}

// -----

train.list @l of @e "apply" (%b: tensor<3xf32>) {
  // expected-error @below {{'train.sum_blocks' op expects sets of sums that there are (C2), got 1}}
  %r = train.sum_blocks %b {sources = array<i64: 0>, firsts = array<i64: 0>, counts = array<i64: 2>, sets = [array<i64: 1>]} : (tensor<3xf32>) -> tensor<f64>
  train.return
}

// -----

train.list @l of @e "apply" (%p: tensor<8xf32>) {
  // expected-error @below {{'train.segment_map' op expects an owner and a start per segment (C5)}}
  %r = train.segment_map %p : tensor<8xf32> {lengths = array<i64: 4>, groups = array<i64: 0>, offsets = [array<i64: 0>], targets = array<i64: 0>, owners = array<i64: 0>} -> tensor<8xf32> {
  ^bb0(%x: f32):
    train.yield %x : f32
  }
  train.return
}

// -----

train.list @l of @e "apply" (%p: tensor<8xf32>) {
  // expected-error @below {{'train.segment_map' op expects owners from 0 on (C5)}}
  %r = train.segment_map %p : tensor<8xf32> {lengths = array<i64: 4>, groups = array<i64: 0>, offsets = [array<i64: 0>], targets = array<i64: 0>, owners = array<i64: -1>, starts = array<i64: 0>} -> tensor<8xf32> {
  ^bb0(%x: f32):
    train.yield %x : f32
  }
  train.return
}

// -----

train.list @l of @e "apply" (%p: tensor<8xf32>) {
  // expected-error @below {{'train.segment_map' op expects shards with the number of one (C5)}}
  %r = train.segment_map %p : tensor<8xf32> {lengths = array<i64: 4>, groups = array<i64: 0>, offsets = [array<i64: 0>], targets = array<i64: 0>, shards = array<i64: 0, 1>} -> tensor<8xf32> {
  ^bb0(%x: f32):
    train.yield %x : f32
  }
  train.return
}

// -----

train.list @l of @e "apply" (%p: tensor<8xf32>, %i: tensor<i64>) {
  // expected-error @below {{'train.segment_map' op expects shards from 0 to 1, ascending (C5)}}
  %r = train.segment_map %p : tensor<8xf32> shard %i : tensor<i64> {lengths = array<i64: 4>, groups = array<i64: 0>, offsets = [array<i64: 0>], targets = array<i64: 0>, shards = array<i64: 0, 2>} -> tensor<8xf32> {
  ^bb0(%x: f32):
    train.yield %x : f32
  }
  train.return
}

// -----

train.list @l of @e "apply" (%p: tensor<8xf32>, %i: tensor<i64>) {
  // expected-error @below {{'train.segment_square_sum' op expects shards from 0 to 1, ascending (C5)}}
  %r = train.segment_square_sum %p : tensor<8xf32> shard %i : tensor<i64> block 4 {lengths = array<i64: 8>, groups = array<i64: 0>, offsets = [array<i64: 0>], shards = array<i64: 1, 1>} -> tensor<2xf64> {
  ^bb0(%x: f32):
    train.yield %x : f32
  }
  train.return
}

// -----

train.list @l of @e "apply" (%p: tensor<8xf32>) {
  // expected-error @below {{'train.sum_blocks' op expects an owner per range, from 0 on without a gap (C1)}}
  %r = train.sum_blocks %p {sources = array<i64: 0, 0>, firsts = array<i64: 0, 1>, counts = array<i64: 1, 1>, sets = [array<i64: 0>], owners = array<i64: 0, 2>} : (tensor<8xf32>) -> tensor<f64>
  train.return
}

// -----

// expected-error @below {{'train.arena' op expects buckets with pieces (C4)}}
train.arena @a role("state") bytes(32) {slices = [@a], types = [tensor<3xf32>], offsets = array<i64: 0>, shard = ["data"]}

// -----

// expected-error @below {{'train.arena' op expects slices of one element type in an arena with buckets (C4)}}
train.arena @a role("state") bytes(32) {slices = [@a, @b], types = [tensor<3xf32>, tensor<3xbf16>], offsets = array<i64: 0, 12>, buckets = array<i64: 8>}

// -----

// expected-error @below {{'train.arena' op expects axes of the pieces, and whether it is one for each bucket (C4)}}
train.arena @a role("state") bytes(32) {slices = [@a], types = [tensor<3xf32>], offsets = array<i64: 0>, buckets = array<i64: 8>, pieces = array<i1: true>}

// -----

// expected-error @below {{'train.arena' op expects ascending ends of buckets (C4), got 4 after 8}}
train.arena @a role("state") bytes(32) {slices = [@a], types = [tensor<3xf32>], offsets = array<i64: 0>, buckets = array<i64: 8, 4>}

// -----

train.mesh @mesh(data = 3)
// expected-error @below {{'train.arena' op expects buckets of equal pieces (C4), got 8 elements}}
train.arena @a role("state") bytes(8) {slices = [@a], types = [tensor<3xf32>], offsets = array<i64: 0>, buckets = array<i64: 8>, pieces = array<i1: true>, shard = ["data"]}

// -----

// expected-error @below {{'train.arena' op expects slices within a bucket (C4), got @a}}
train.arena @a role("state") bytes(32) {slices = [@a], types = [tensor<3xf32>], offsets = array<i64: 8>, buckets = array<i64: 4, 8>}

// -----

// expected-error @below {{'train.arena' op expects slices within a bucket (C4), got @a after the last}}
train.arena @a role("state") bytes(32) {slices = [@a], types = [tensor<3xf32>], offsets = array<i64: 32>, buckets = array<i64: 8>}

// -----

train.mesh @mesh(data = 2)
// expected-error @below {{'train.arena' op expects the bytes of its buckets (C4), 4 times 4, got 32}}
train.arena @a role("state") bytes(32) {slices = [@a], types = [tensor<3xf32>], offsets = array<i64: 0>, buckets = array<i64: 8>, pieces = array<i1: true>, shard = ["data"]}

// -----

// expected-error @below {{'train.arena' op expects ascending ends of buckets (C4), got -9223372036854775808 after 8}}
train.arena @a role("state") bytes(32) {slices = [@a], types = [tensor<3xf32>], offsets = array<i64: 0>, buckets = array<i64: 8, -9223372036854775808>}

// -----

// expected-error @below {{'train.arena' op expects the bytes of its buckets (C4), 9223372036854775807 times 4, got 32}}
train.arena @a role("state") bytes(32) {slices = [@a], types = [tensor<3xf32>], offsets = array<i64: 0>, buckets = array<i64: 9223372036854775807>}
