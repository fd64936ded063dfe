// RUN: trainc-opt %s --split-input-file --verify-diagnostics

train.list @l of @e "apply" () {
  // expected-error @below {{'train.norm_squared' op expects symbols, and an f64 result of rank 0, or of rank 1 with one element per parameter (C1), got 'tensor<3xf64>' for [@a, @b]}}
  %n = train.norm_squared [[@a, @b]] : tensor<3xf64>
  train.return
}

// -----

train.list @l of @e "apply" () {
  // expected-error @below {{'train.norm_squared' op expects one list of parameters per result (C1), got 1 for 2}}
  %n:2 = train.norm_squared [[@a, @b]] : tensor<f64>, tensor<f64>
  train.return
}

// -----

train.list @l of @e "apply" () {
  // expected-error @below {{'train.norm_squared' op expects symbols, and an f64 result of rank 0, or of rank 1 with one element per parameter (C1), got 'tensor<f64>' for @a}}
  %n = train.norm_squared [@a] : tensor<f64>
  train.return
}

// -----

train.list @l of @e "apply" (%s: tensor<2xf64>, %f: tensor<i1>, %t: tensor<f64>) {
  // expected-error @below {{'train.update' op expects an f64 scale of rank 0, or of rank 1 with one element per parameter (C2), got 'tensor<2xf64>' for [@a]}}
  train.update [@o] [[@a]] scale(%s : tensor<2xf64>) if(%f : tensor<i1>) t(%t : tensor<f64>)
  train.return
}

// -----

train.list @l of @e "apply" (%s: tensor<f64>, %f: tensor<i1>) {
  // expected-error @below {{'train.update' op expects parameters and a scale for each optimizer, and a limit for each or none (C1), got 2, 1 and 0 for 2}}
  train.update [@o, @p] [[@a], [@b]] scale(%s : tensor<f64>) if(%f : tensor<i1>) t(%s : tensor<f64>)
  train.return
}

// -----

train.list @l of @e "apply" (%s: tensor<f64>, %f: tensor<i1>) {
  // expected-error @below {{'train.update' op expects parameters and a scale for each optimizer, and a limit for each or none (C1), got 1, 1 and 2 for 1}}
  train.update [@o] [[@a]] scale(%s : tensor<f64>) limit(%s, %s : tensor<f64>, tensor<f64>) if(%f : tensor<i1>) t(%s : tensor<f64>)
  train.return
}

// -----

train.list @l of @e "apply" (%p: tensor<8xf32>) {
  // expected-error @below {{custom op 'train.segment_map' expects a length, a group and an offset per array of each of 2 segments, none below 0}}
  %r = train.segment_map %p : tensor<8xf32> segments <groups = [0], lengths = [4, 4], offsets = [array<i64: 0, 4>]> {targets = array<i64: 0>} -> tensor<8xf32> {
  ^bb0(%x: f32):
    train.yield %x : f32
  }
  train.return
}

// -----

train.list @l of @e "apply" (%p: tensor<8xf32>) {
  // expected-error @below {{'train.segment_map' op expects segments within their array (C1), got 4 elements at 5 of 'tensor<8xf32>'}}
  %r = train.segment_map %p : tensor<8xf32> segments <groups = [0], lengths = [4], offsets = [array<i64: 5>]> {targets = array<i64: 0>} -> tensor<8xf32> {
  ^bb0(%x: f32):
    train.yield %x : f32
  }
  train.return
}

// -----

train.list @l of @e "apply" (%p: tensor<8xf32>, %s: tensor<f64>) {
  // expected-error @below {{'train.segment_map' op expects a grouped operand per group and argument (C1), got 1 for 2 groups}}
  %r = train.segment_map %p : tensor<8xf32> grouped %s : tensor<f64> segments <groups = [0, 1], lengths = [4, 4], offsets = [array<i64: 0, 4>]> {targets = array<i64: 0>} -> tensor<8xf32> {
  ^bb0(%x: f32, %y: f64):
    train.yield %x : f32
  }
  train.return
}

// -----

train.list @l of @e "apply" (%p: tensor<2x4xf32>) {
  // expected-error @below {{'train.segment_map' op expects arrays of rank 1 (C2), got 'tensor<2x4xf32>'}}
  %r = train.segment_map %p : tensor<2x4xf32> segments <groups = [0], lengths = [4], offsets = [array<i64: 0>]> {targets = array<i64: 0>} -> tensor<2x4xf32> {
  ^bb0(%x: f32):
    train.yield %x : f32
  }
  train.return
}

// -----

train.list @l of @e "apply" (%p: tensor<8xf32>, %n: tensor<2xf32>) {
  // expected-error @below {{'train.segment_map' op expects operands of rank 0 and `each` of one element per segment or whole (C2), got 'tensor<2xf32>'}}
  %r = train.segment_map %p : tensor<8xf32> each %n : tensor<2xf32> segments <groups = [0], lengths = [4], offsets = [array<i64: 0>]> {targets = array<i64: 0>} -> tensor<8xf32> {
  ^bb0(%x: f32, %y: f32):
    train.yield %x : f32
  }
  train.return
}

// -----

train.list @l of @e "apply" (%p: tensor<8xbf16>) {
  // expected-error @below {{'train.segment_map' op expects block arguments of the operands' compute types (C3)}}
  %r = train.segment_map %p : tensor<8xbf16> segments <groups = [0], lengths = [4], offsets = [array<i64: 0>]> {targets = array<i64: 0>} -> tensor<8xbf16> {
  ^bb0(%x: bf16):
    train.yield %x : bf16
  }
  train.return
}

// -----

train.list @l of @e "apply" (%p: tensor<8xf32>) {
  // expected-error @below {{'train.segment_map' op expects distinct targets of the results' types (C4), got 1 for 'tensor<8xf32>'}}
  %r = train.segment_map %p : tensor<8xf32> segments <groups = [0], lengths = [4], offsets = [array<i64: 0>]> {targets = array<i64: 1>} -> tensor<8xf32> {
  ^bb0(%x: f32):
    train.yield %x : f32
  }
  train.return
}

// -----

train.list @l of @e "apply" (%p: tensor<8xf32>) {
  // expected-error @below {{custom op 'train.segment_square_sum' expects a length, a group and an offset per array of each of 1 segments, none below 0}}
  %r = train.segment_square_sum %p : tensor<8xf32> block 4 segments <groups = [0], lengths = [5], offsets = [array<i64>]> -> tensor<2xf64> {
  ^bb0(%x: f32):
    train.yield %x : f32
  }
  train.return
}

// -----

train.list @l of @e "apply" (%p: tensor<8xf32>) {
  // expected-error @below {{'train.segment_square_sum' op expects a train.yield of one value per result (C3)}}
  %r = train.segment_square_sum %p : tensor<8xf32> block 4 segments <groups = [0], lengths = [5], offsets = [array<i64: 0>]> -> tensor<2xf64> {
  ^bb0(%x: f32):
    train.yield %x, %x : f32, f32
  }
  train.return
}

// -----

train.list @l of @e "apply" (%p: tensor<8xf32>) {
  // expected-error @below {{'train.segment_square_sum' op expects results of type 'tensor<2xf64>' (C4), got 'tensor<3xf64>'}}
  %r = train.segment_square_sum %p : tensor<8xf32> block 4 segments <groups = [0], lengths = [5], offsets = [array<i64: 0>]> -> tensor<3xf64> {
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
  // expected-error @below {{custom op 'train.segment_map' expects an owner and a start per segment, none below 0}}
  %r = train.segment_map %p : tensor<8xf32> segments <groups = [0], lengths = [4], offsets = [array<i64: 0>], owners = [0]> {targets = array<i64: 0>} -> tensor<8xf32> {
  ^bb0(%x: f32):
    train.yield %x : f32
  }
  train.return
}

// -----

train.list @l of @e "apply" (%p: tensor<8xf32>) {
  // expected-error @below {{custom op 'train.segment_map' expects an owner and a start per segment, none below 0}}
  %r = train.segment_map %p : tensor<8xf32> segments <groups = [0], lengths = [4], offsets = [array<i64: 0>], owners = [-1], starts = [0]> {targets = array<i64: 0>} -> tensor<8xf32> {
  ^bb0(%x: f32):
    train.yield %x : f32
  }
  train.return
}

// -----

train.list @l of @e "apply" (%p: tensor<8xf32>) {
  // expected-error @below {{'train.segment_map' op expects shards with the number of one (C5)}}
  %r = train.segment_map %p : tensor<8xf32> segments <groups = [0], lengths = [4], offsets = [array<i64: 0>], shards = [0, 1]> {targets = array<i64: 0>} -> tensor<8xf32> {
  ^bb0(%x: f32):
    train.yield %x : f32
  }
  train.return
}

// -----

train.list @l of @e "apply" (%p: tensor<8xf32>, %i: tensor<i64>) {
  // expected-error @below {{custom op 'train.segment_map' expects shards from 0 to 1, ascending}}
  %r = train.segment_map %p : tensor<8xf32> shard %i : tensor<i64> segments <groups = [0], lengths = [4], offsets = [array<i64: 0>], shards = [0, 2]> {targets = array<i64: 0>} -> tensor<8xf32> {
  ^bb0(%x: f32):
    train.yield %x : f32
  }
  train.return
}

// -----

train.list @l of @e "apply" (%p: tensor<8xf32>, %i: tensor<i64>) {
  // expected-error @below {{custom op 'train.segment_square_sum' expects shards from 0 to 1, ascending}}
  %r = train.segment_square_sum %p : tensor<8xf32> shard %i : tensor<i64> block 4 segments <groups = [0], lengths = [8], offsets = [array<i64: 0>], shards = [1, 1]> -> tensor<2xf64> {
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

train.arena @a state {
  train.slice @a : tensor<3xf32>
  // expected-error @below {{'train.span' op expects a train.bucket of its name (C2)}}
  train.span @bucket
}

// -----

train.bucket @bucket [@a, @b] elements(8) offsets([0, 3])
// expected-error @below {{'train.arena' op expects slices of one element type, as it has buckets (C2)}}
train.arena @a state {
  train.slice @a : tensor<3xf32>
  train.slice @b : tensor<3xbf16>
  train.span @bucket
}

// -----

train.bucket @bucket [@a]
train.arena @a state {
  train.slice @a : tensor<3xf32>
  // expected-error @below {{'train.span' op expects a train.mesh in the module (C1)}}
  train.span @bucket over ["data"]
}

// -----

train.mesh @mesh(host = 2, data = 2)
train.bucket @bucket [@a]
train.arena @a state {
  train.slice @a : tensor<3xf32>
  // expected-error @below {{'train.span' op expects axes in the order of the mesh (C1), got ["data", "host"]}}
  train.span @bucket over ["data", "host"]
}

// -----

train.mesh @mesh(data = 3)
train.bucket @bucket [@a] elements(8) offsets([0])
train.arena @a state {
  train.slice @a : tensor<3xf32>
  // expected-error @below {{'train.span' op expects a bucket of equal shards (C2), got 8 elements for 3}}
  train.span @bucket over ["data"]
}

// -----

train.bucket @bucket [@b]
train.arena @a state {
  // expected-error @below {{'train.slice' op expects to belong to a bucket (C2)}}
  train.slice @a : tensor<3xf32>
  train.slice @b : tensor<3xf32>
  train.span @bucket
}

// -----

train.bucket @bucket [@a, @b]
train.arena @a state {
  train.slice @a : tensor<3xf32>
  // expected-error @below {{'train.span' op expects a slice, of this bucket alone, for each of its parameters (C2), got @b}}
  train.span @bucket
}

// -----

train.bucket @bucket [@a]
train.bucket @bucket_0 [@b, @a]
train.arena @a state {
  train.slice @a : tensor<3xf32>
  train.slice @b : tensor<3xf32>
  train.span @bucket
  // expected-error @below {{'train.span' op expects a slice, of this bucket alone, for each of its parameters (C2), got @a}}
  train.span @bucket_0
}

// -----

// expected-error @below {{'train.bucket' op expects elements with offsets (C1)}}
train.bucket @bucket [@a] elements(8)

// -----

// expected-error @below {{'train.bucket' op expects one offset per parameter (C1), got 1 for 2}}
train.bucket @bucket [@a, @b] elements(8) offsets([0])

// -----

// expected-error @below {{'train.bucket' op expects ascending offsets below 8 (C1), got 4}}
train.bucket @bucket [@a, @b] elements(8) offsets([4, 4])

// -----

// expected-error @below {{'train.bucket' op expects ascending offsets below 8 (C1), got -9223372036854775808}}
train.bucket @bucket [@a] elements(8) offsets([-9223372036854775808])

// -----

train.mesh @mesh(data = 2)
train.bucket @bucket [@a] elements(8) offsets([0])
// expected-note @below {{declared here}}
train.arena @a state {
  train.slice @a : tensor<3xf32>
  train.span @bucket over ["data"]
}
train.list @l of @e "apply" () {
  // expected-error @below {{'train.read' op expects the type of @a::@bucket (C2), 'tensor<4xf32>', got 'tensor<8xf32>'}}
  %b = train.read @a::@bucket : tensor<8xf32>
  train.return
}

// -----

train.bucket @bucket [@a]
// expected-note @below {{declared here}}
train.arena @a state {
  train.slice @a : tensor<3xf32>
  train.span @bucket
}
train.list @l of @e "apply" () {
  // expected-error @below {{'train.read' op expects the type of @a::@bucket (C2), 'tensor<?xf32>', got 'tensor<3xf32>'}}
  %b = train.read @a::@bucket : tensor<3xf32>
  train.return
}

// -----

train.mesh @mesh(data = 2, model = 2)
train.bucket @bucket [@a]
train.bucket @bucket_0 [@b]
train.arena @a state {
  train.slice @a : tensor<3xf32>
  train.slice @b : tensor<3xf32>
  train.span @bucket over ["data"]
  // expected-error @below {{'train.span' op expects the axes of the other spans (C2), ["data"], got ["model"]}}
  train.span @bucket_0 over ["model"]
}

// -----

// expected-error @below {{'train.bucket' op expects 1 to 2^40 elements (C1), got -8}}
train.bucket @bucket [@a] elements(-8) offsets([0])

// -----

train.optimizer @o(%p: f32, %g: f32) {
  train.yield %p : f32
}
train.list @l of @e "apply" (%s: tensor<f64>, %f: tensor<i1>) {
  // expected-error @below {{'train.update' op expects lists of symbols (C1), got [1]}}
  train.update [@o] [[1]] scale(%s : tensor<f64>) if(%f : tensor<i1>) t(%s : tensor<f64>)
  train.return
}

// -----

train.list @l of @e "first" (%x: tensor<4xf32>) {
  // expected-error @below {{'train.flatten' op expects operands of the result's element type (C1), got 'tensor<4xf32>'}}
  %f = train.flatten %x as [@w] : tensor<4xf32> -> tensor<?xbf16>
  train.return
}

// -----

// expected-error @below {{'train.arena' op expects slices and spans alone (C1), got nn.constant}}
train.arena @a master {
  %c = nn.constant dense<1.0> : tensor<4xf32>
}

// -----

train.list @l of @e "first" (%p: tensor<4xf32>) {
  // expected-error @below {{'train.segment_square_sum' op expects segments within their array (C1), got 8 elements at 0 of 'tensor<4xf32>'}}
  %r = train.segment_square_sum %p : tensor<4xf32> block 4 segments <groups = [0], lengths = [8], offsets = [array<i64: 0>]> -> tensor<2xf64> {
  ^bb0(%x: f32):
    train.yield %x : f32
  }
  train.return
}

// -----

train.list @l of @e "first" (%p: tensor<8xf32>) {
  // expected-error @below {{'train.segment_square_sum' op expects shards with the number of one (C5)}}
  %r = train.segment_square_sum %p : tensor<8xf32> block 4 segments <groups = [0], lengths = [8], offsets = [array<i64: 0>], shards = [0, 1]> -> tensor<2xf64> {
  ^bb0(%x: f32):
    train.yield %x : f32
  }
  train.return
}
