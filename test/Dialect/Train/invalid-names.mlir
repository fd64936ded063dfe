// RUN: trainc-opt %s --split-input-file --verify-diagnostics

// Numbers that would be cut, or are no numbers at run time, and names that a checkpoint, a C string or a reader cannot have.
// expected-error @below {{'train.step' op expects accumulate from 1 to 2147483647 (C2), got -1}}
train.step @step(%x: tensor<f32>) accumulate(-1) {
  train.yield loss(%x) : tensor<f32>
}

// -----

// expected-error @below {{'train.step' op expects accumulate from 1 to 2147483647 (C2), got 2147483648}}
train.step @step(%x: tensor<f32>) accumulate(2147483648) {
  train.yield loss(%x) : tensor<f32>
}

// -----

// expected-error @below {{'train.step' op expects accumulate from 1 to 2147483647 (C2), got 4294967296}}
train.step @step(%x: tensor<f32>) accumulate(4294967296) {
  train.yield loss(%x) : tensor<f32>
}

// -----

// expected-error @below {{'train.step' op expects accumulate from 1 to 2147483647 (C2), got 4294967297}}
train.step @step(%x: tensor<f32>) accumulate(4294967297) {
  train.yield loss(%x) : tensor<f32>
}

// -----

// expected-error @below {{'train.step' op expects a finite clip > 0 (C3), got INF}}
train.step @step(%x: tensor<f32>) clip(global_norm<1.0e400>) {
  train.yield loss(%x) : tensor<f32>
}

// -----

// expected-error @below {{'train.step' op expects a finite loss scale > 0 (C5), got INF}}
train.step @step(%x: tensor<f32>) loss_scale(1.0e400) {
  train.yield loss(%x) : tensor<f32>
}

// -----

// expected-error @below {{'train.step' op expects growth >= 1, 0 < backoff <= 1, interval >= 1 and min > 0, all finite (C5), got}}
train.step @step(%x: tensor<f32>) loss_scale(dynamic<init = 2.0, interval = 1.0e400>) {
  train.yield loss(%x) : tensor<f32>
}

// -----

// expected-error @below {{'train.optimizer' op expects finite numbers (C6), got INF for lr}}
train.optimizer @o = sgd<lr = 1.0e400>

// -----

// expected-error @below {{'train.optimizer' op expects finite numbers (C6), got nan for lr}}
train.optimizer @o = sgd<lr = 0x7FC00000 : f32>

// -----

// expected-error @below {{'train.optimizer' op expects finite numbers (C6), got INF for ema}}
train.optimizer @o = sgd<lr = 0.1> ema(1.0e400)

// -----

// expected-error @below {{'train.schedule' op expects finite numbers (C4), got -INF for value}}
train.schedule @s = constant<value = -1.0e400>

// -----

// expected-error @below {{'train.param' op expects a name that a checkpoint has for nothing else (C8), got '__metadata__'}}
train.param @"__metadata__" : tensor<f32> init(ones) frozen

// -----

// expected-error @below {{'train.param' op expects a name that a checkpoint has for nothing else (C8), got 'scalar/update'}}
train.param @"scalar/update" : tensor<f32> init(ones) frozen

// -----

// expected-error @below {{'train.param' op expects a name that a checkpoint has for nothing else (C8), got 'optimizer/w/m'}}
train.param @"optimizer/w/m" : tensor<f32> init(ones) frozen

// -----

// expected-error @below {{'train.param' op expects a name that a checkpoint has for nothing else (C8), got 'gradient/w'}}
train.param @"gradient/w" : tensor<f32> init(ones) frozen

// -----

// expected-error @below {{'train.param' op expects a name that a checkpoint has for nothing else (C8), got 'rank/0/w'}}
train.param @"rank/0/w" : tensor<f32> init(ones) frozen

// -----

// expected-error @below {{'train.buffer' op expects a name that a checkpoint has for nothing else (C3), got '__metadata__'}}
train.buffer @__metadata__ : tensor<f32> init(ones)

// -----

// expected-error @below {{'train.param' op expects names of UTF-8 without zero bytes (C8), got}}
train.param @"w\00x" : tensor<f32> init(ones) frozen

// -----

// expected-error @below {{'train.param' op expects names of UTF-8 without zero bytes (C8), got}}
train.param @"w\C0\80" : tensor<f32> init(ones) frozen

// -----

// expected-error @below {{'train.param' op expects names of UTF-8 without zero bytes (C8), got}}
train.param @"\FF" : tensor<f32> init(ones) frozen

// -----

// expected-error @below {{'train.buffer' op expects names of UTF-8 without zero bytes (C3), got}}
train.buffer @"w\00x" : tensor<f32> init(ones)

// -----

// expected-error @below {{'train.optimizer' op expects names of UTF-8 without zero bytes (C6), got}}
train.optimizer @"o\00" = sgd<lr = 0.1>

// -----

// expected-error @below {{'train.optimizer' op expects names of UTF-8 without zero bytes (C6), got}}
train.optimizer @o = sgd<"lr\00" = 0.1>

// -----

// expected-error @below {{'train.schedule' op expects names of UTF-8 without zero bytes (C4), got}}
train.schedule @"s\FF" = constant<value = 1.0>

// -----

// expected-error @below {{'train.step' op expects names of UTF-8 without zero bytes (C9), got}}
train.step @"s\00" (%x: tensor<f32>) {
  train.yield loss(%x) : tensor<f32>
}

// -----

// expected-error @below {{'train.eval' op expects names of UTF-8 without zero bytes (C5), got}}
train.eval @"e\00" (%x: tensor<f32>) -> ("y") {
  train.yield %x : tensor<f32>
}

// -----

// expected-error @below {{'train.eval' op expects names of UTF-8 without zero bytes (C5), got}}
train.eval @e(%x: tensor<f32>) -> ("y\FF") {
  train.yield %x : tensor<f32>
}

// -----

// expected-error @below {{'train.mesh' op expects names of UTF-8 without zero bytes (C1), got}}
train.mesh @mesh("a\00" = 2)

// -----

// expected-error @below {{'train.optimizer' op expects names of states without '/' (C6), got "m/v"}}
train.optimizer @o(%p: f32, %g: f32, %m: f32) state("m/v" = 0.0) {
  train.yield %p, %m : f32, f32
}
