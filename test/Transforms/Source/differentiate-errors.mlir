// RUN: trainc-opt %s --train-differentiate --split-input-file --verify-diagnostics

train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4xf32> init(ones) optimizer(@o)
// expected-error @below {{expects a loss that depends on a parameter that it trains}}
train.step @constant(%x: tensor<4xf32>) {
  %s = nn.reduce sum %x dims [0] : tensor<4xf32>
  train.yield loss(%s) : tensor<f32>
}

// -----

train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4xf32> init(ones) optimizer(@o)
train.step @unknown(%x: tensor<4xf32>) {
  %w = train.read @w : tensor<4xf32>
  // expected-error @below {{has no gradient, but stands between a trained parameter and the loss}}
  %m:2 = nn.map(%w) : (tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  ^bb0(%a: f32):
    nn.yield %a, %a : f32, f32
  }
  %s = nn.reduce sum %m#0 dims [0] : tensor<4xf32>
  train.yield loss(%s) : tensor<f32>
}

// -----

train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4xf32> init(ones) optimizer(@o)
// expected-warning @below {{does not take part in the loss: its gradient is 0}}
train.param @unused : tensor<2xf32> init(ones) optimizer(@o)
train.step @unused_parameter(%x: tensor<4xf32>) {
  %w = train.read @w : tensor<4xf32>
  %s = nn.reduce sum %w dims [0] : tensor<4xf32>
  train.yield loss(%s) : tensor<f32>
}

// -----

train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4xf32> init(ones) optimizer(@o)
// expected-note @below {{the parameter, which reaches the loss in no other way}}
train.param @u : tensor<4xf32> init(ones) optimizer(@o)
train.step @comparison(%x: tensor<4xf32>) {
  %w = train.read @w : tensor<4xf32>
  %u = train.read @u : tensor<4xf32>
  // expected-error @below {{'nn.compare' op has no gradient, but stands between a trained parameter and the loss}}
  %c = nn.compare gt %u, %x : tensor<4xf32>, tensor<4xf32>
  %m = nn.cast %c to f32 : tensor<4xi1>
  %p = nn.mul %w, %m : tensor<4xf32>, tensor<4xf32>
  %s = nn.reduce sum %p dims [0] : tensor<4xf32>
  train.yield loss(%s) : tensor<f32>
}

// -----

// A gradient is cut on purpose, and one that has another way is not missed.
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4xf32> init(ones) optimizer(@o)
// expected-warning @below {{does not take part in the loss: its gradient is 0}}
train.param @u : tensor<4xf32> init(ones) optimizer(@o)
train.step @on_purpose(%x: tensor<4xf32>) {
  %w = train.read @w : tensor<4xf32>
  %u = train.read @u : tensor<4xf32>
  %k = nn.stop_gradient %u : tensor<4xf32>
  %a = nn.add %k, %w : tensor<4xf32>, tensor<4xf32>
  %c = nn.compare gt %a, %x : tensor<4xf32>, tensor<4xf32>
  %m = nn.cast %c to f32 : tensor<4xi1>
  %p = nn.mul %w, %m : tensor<4xf32>, tensor<4xf32>
  %s = nn.reduce sum %p dims [0] : tensor<4xf32>
  train.yield loss(%s) : tensor<f32>
}

// -----

train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<f32> init(ones) optimizer(@o)
train.step @weight(%x: tensor<f32>) {
  %w = train.read @w : tensor<f32>
  %l = nn.mul %w, %x : tensor<f32>, tensor<f32>
  %n = nn.mul %w, %w : tensor<f32>, tensor<f32>
  // expected-error @below {{'train.yield' op expects a weight without gradient, got one that depends on a trained parameter; cut it off by nn.stop_gradient, or yield the quotient as the loss}}
  train.yield loss(%l) weight(%n) : tensor<f32>, tensor<f32>
}

// -----

// The count of a loss is the sum of its weights, whatever the loss is of.
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4xf32> init(ones) optimizer(@o)
train.step @weights(%y: tensor<4xf32>) {
  %w = train.read @w : tensor<4xf32>
  %l, %n = nn.mse %w, %y weights %w : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
  // expected-error @below {{'train.yield' op expects a weight without gradient}}
  train.yield loss(%l) weight(%n) : tensor<f32>, tensor<f32>
}

// -----

train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4xf32> init(ones) optimizer(@o)
train.step @count(%y: tensor<4xf32>) {
  %w = train.read @w : tensor<4xf32>
  %k = nn.stop_gradient %w : tensor<4xf32>
  %l, %n = nn.mse %w, %y weights %k : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
  train.yield loss(%l) weight(%n) : tensor<f32>, tensor<f32>
}

// -----

train.optimizer @o = sgd<lr = 0.1>
// expected-note @below {{a parameter with such a gradient}}
train.param @w : tensor<4xf16> init(ones) optimizer(@o)
// expected-warning @below {{has gradients in f16 without a loss scale, so that small ones become 0; expected loss_scale(...)}}
train.step @f16(%x: tensor<4xf16>) {
  %w = train.read @w : tensor<4xf16>
  %p = nn.mul %w, %x : tensor<4xf16>, tensor<4xf16>
  %c = nn.cast %p to f32 : tensor<4xf16>
  %s = nn.reduce sum %c dims [0] : tensor<4xf32>
  train.yield loss(%s) : tensor<f32>
}

// -----

// Stored in f16, it has a gradient in f32.
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4xf16> init(ones) optimizer(@o)
train.step @f32(%x: tensor<4xf32>) {
  %w = train.read @w : tensor<4xf16>
  %c = nn.cast %w to f32 : tensor<4xf16>
  %p = nn.mul %c, %x : tensor<4xf32>, tensor<4xf32>
  %s = nn.reduce sum %p dims [0] : tensor<4xf32>
  train.yield loss(%s) : tensor<f32>
}

// -----

train.optimizer @a = sgd<lr = 0.1>
train.optimizer @b = sgd<lr = 0.1>
train.param @w : tensor<f32> init(ones) optimizer(@a)
// expected-note @below {{the other step is here}}
train.step @one(%x: tensor<f32>) trains([@a, @b]) {
  train.yield loss(%x) : tensor<f32>
}
// expected-error @below {{expects to train what another step does, or nothing of it (C11), got @b}}
train.step @two(%x: tensor<f32>) trains([@b]) {
  train.yield loss(%x) : tensor<f32>
}

// -----

train.optimizer @a = sgd<lr = 0.1>
// expected-error @below {{expects a step that trains it}}
train.optimizer @b = sgd<lr = 0.1>
train.param @w : tensor<f32> init(ones) optimizer(@a)
train.step @one(%x: tensor<f32>) trains([@a]) {
  train.yield loss(%x) : tensor<f32>
}

// -----

train.optimizer @a = sgd<lr = 0.1>
train.optimizer @b = sgd<lr = 0.1>
train.param @w : tensor<f32> init(ones) optimizer(@a)
train.param @v : tensor<f32> init(ones) optimizer(@b)
// expected-note @below {{the first step is here}}
train.step @one(%x: tensor<f32>) trains([@a]) precision(compute = bf16) {
  train.yield loss(%x) : tensor<f32>
}
// expected-error @below {{expects the compute_type of the other steps, bf16, got none}}
train.step @two(%x: tensor<f32>) trains([@b]) {
  train.yield loss(%x) : tensor<f32>
}
