// RUN: trainc-opt %s --train-coalesce=align-size=2 --split-input-file --verify-diagnostics

// expected-error @below {{expects an align-size that is a power of two not below the 4 bytes of an element of @w, got 2}}
train.arena @arena.master.f32 role("parameters") bytes(16) {slices = [@w], types = [tensor<4xf32>], offsets = array<i64: 0>}

// -----

train.list @l of @e "apply" (%p: tensor<8xf32>) {
  // expected-error @below {{depends on the places of slices; train-coalesce comes before train-fuse-optimizer}}
  %r = train.segment_map %p : tensor<8xf32> {lengths = array<i64: 4>, groups = array<i64: 0>, offsets = [array<i64: 0>], targets = array<i64: 0>} -> tensor<8xf32> {
  ^bb0(%x: f32):
    train.yield %x : f32
  }
  train.return
}
