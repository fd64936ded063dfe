// RUN: trainc-opt %s --train-expand-updates --split-input-file --verify-diagnostics

train.list @absent of @step "apply" () {
  // expected-error @below {{expects parameters that are not frozen, got @w}}
  %n = train.norm_squared [[@w]] : tensor<f64>
  train.return %n : tensor<f64>
}

// -----

train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4xf32> init(ones) optimizer(@o)
train.list @named of @step "apply" (%s: tensor<f64>, %f: tensor<i1>) {
  // expected-error @below {{expects an optimizer with a region, got @o}}
  train.update [@o] [[@w]] scale(%s : tensor<f64>) if(%f : tensor<i1>) t(%s : tensor<f64>)
  train.return
}

// -----

// expected-note @below {{the optimizer is here}}
train.optimizer @o(%p: f32, %g: f32) orthogonal<a = 3.0, b = -4.0, c = 2.0, eps = 0.1, steps = 2, bf16 = true, match_rms = false, unclamped = false> {
  train.yield %g : f32
} scaled(%p: f32, %u: f32, %p_norm: f32, %u_norm: f32) {
  train.yield %p : f32
}
// expected-error @below {{expects a whole matrix, which its optimizer makes orthogonal, got 'tensor<4xf32>'}}
train.param @w : tensor<4xf32> init(ones) optimizer(@o)
train.list @vector of @step "apply" (%s: tensor<f64>, %f: tensor<i1>) {
  train.update [@o] [[@w]] scale(%s : tensor<f64>) if(%f : tensor<i1>) t(%s : tensor<f64>)
  train.return
}

// -----

train.optimizer @o(%p: f32, %g: f32) {
  train.yield %p : f32
}
train.param @w : tensor<4xf32> init(ones) optimizer(@o)
train.list @fused of @step "apply" (%s: tensor<f64>, %f: tensor<i1>) {
  // expected-error @below {{expects an arena @arena.master.f32 with slices of its parameters; run train-plan-step and train-form-buckets first}}
  train.update [@o] [[@w]] scale(%s : tensor<f64>) if(%f : tensor<i1>) t(%s : tensor<f64>) fused
  train.return
}

// -----

train.mesh @mesh(data = 2)
train.optimizer @o(%p: f32, %g: f32) {
  train.yield %p : f32
}
train.param @w : tensor<4xf32> init(ones) optimizer(@o)
train.arena @arena.grad.f32 gradient {
  train.slice @w : tensor<4xf32>
}
train.list @sharded of @step "apply" () {
  // expected-error @below {{expects an arena @arena.grad.f32 with slices of its parameters in buckets; run train-plan-step and train-form-buckets first}}
  %n = train.norm_squared [[@w]] over ["data"] : tensor<f64>
  train.return
}

// -----

// expected-error @below {{expects a layout; run train-coalesce before train-expand-updates}}
train.bucket @bucket [@w]
train.arena @arena.grad.f32 gradient {
  train.slice @w : tensor<4xf32>
  train.span @bucket
}

// -----

train.bucket @bucket [@w] elements(4) offsets([0])
train.arena @arena.merged.f32 merged {
  train.slice @w : tensor<4xf32>
  train.span @bucket
}
train.list @whole of @step "first" (%g: tensor<4xf32>) {
  // expected-error @below {{expects a bucket of which a rank has a shard, got @arena.merged.f32::@bucket}}
  train.accumulate %g into @arena.merged.f32::@bucket : tensor<4xf32>
  train.return
}

// -----

train.bucket @bucket [@w] elements(4) offsets([0])
// expected-error @below {{expects parameters of no other bucket, got @w}}
train.bucket @bucket_0 [@w] elements(4) offsets([0])
