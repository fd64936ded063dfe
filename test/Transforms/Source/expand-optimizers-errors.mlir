// RUN: trainc-opt %s --train-expand-optimizers --split-input-file --verify-diagnostics

// expected-error @+1 {{'train.optimizer' op expects a known optimizer (sgd, momentum, adam, adamw, nadam, radam, adamax, adagrad, adadelta, rmsprop, lion, lamb, lars, muon), got 'adamx'}}
train.optimizer @a = adamx<lr = 0.1>

// -----

// expected-error @+1 {{'train.schedule' op expects a known schedule (constant, linear, warmup_linear, cosine, warmup_cosine, step, exponential, inverse_sqrt), got 'ramp'}}
train.schedule @s = ramp<init = 0.1>

// -----

// expected-error @+1 {{'train.optimizer' op expects a parameter of lion (lr, lr_multiplier, l2, weight_decay, b1, b2), got 'beta1'}}
train.optimizer @a = lion<lr = 0.1, beta1 = 0.9>

// -----

// expected-error @+1 {{'train.schedule' op expects a parameter of step (init, size, gamma), got 'steps'}}
train.schedule @s = step<init = 1, steps = 10>

// -----

// expected-error @+1 {{'train.optimizer' op expects parameter 'lr' of adam, got none}}
train.optimizer @a = adam<b1 = 0.9>

// -----

// expected-error @+1 {{'train.optimizer' op expects each parameter of sgd once, got 'lr' twice}}
train.optimizer @a = sgd<lr = 0.1, lr = 0.2>

// -----

// expected-error @+1 {{'train.optimizer' op expects parameter 'momentum' with 'nesterov' of sgd, got none}}
train.optimizer @a = sgd<lr = 0.1, nesterov = true>

// -----

// expected-error @+1 {{'train.optimizer' op expects true or false for 'nesterov' of adam, got 1.000000e+00 : f64}}
train.optimizer @a = adam<lr = 0.1, nesterov = 1>

// -----

// expected-error @+1 {{'train.optimizer' op expects a number or a schedule for 'b1' of adam, got "update"}}
train.optimizer @a = adam<lr = 0.1, b1 = "update">

// -----

train.schedule @s = constant<value = 1>
// expected-error @+1 {{'train.optimizer' op expects a number for 'initial_scale' of rmsprop, got @s}}
train.optimizer @a = rmsprop<lr = @s, initial_scale = @s>

// -----

train.schedule @s = constant<value = 1>
// expected-error @+1 {{'train.schedule' op expects a number for 'value' of constant, got @s}}
train.schedule @t = constant<value = @s>

// -----

// expected-error @+1 {{'train.schedule' op expects 'steps' of cosine to be > 0, got 0.000000e+00}}
train.schedule @s = cosine<init = 1, steps = 0>

// -----

// expected-error @+1 {{'train.schedule' op expects 'total' of warmup_cosine to be > 'warmup', got 1.000000e+01 and 2.000000e+01}}
train.schedule @s = warmup_cosine<peak = 1, warmup = 20, total = 10>

// -----

// expected-note @+1 {{the optimizer is here}}
train.optimizer @own(%p: f32, %g: f32) {
  train.yield %p : f32
}
// expected-error @+1 {{'train.param' op expects elements computed in 'f32', the type of its optimizer's region, got 'f64'}}
train.param @w : tensor<4xf64> init(zeros) optimizer(@own)

// -----

// expected-error @+1 {{expects a number, a symbol, a string, true or false, got [1]}}
train.optimizer @a = adam<lr = [1]>

// -----

train.mesh @mesh(model = 2)
// expected-note @+1 {{the optimizer is here}}
train.optimizer @mine(%p: f32, %g: f32) {
  train.yield %g : f32
} scaled(%p: f32, %u: f32, %pn: f32, %un: f32) {
  %q = arith.divf %u, %un : f32
  train.yield %q : f32
}
// expected-error @+1 {{'train.param' op expects parts that are equal, as its optimizer takes norms, got 'tensor<4xf32>' of 'tensor<7xf32>'}}
train.param @w : tensor<4xf32> init(ones) optimizer(@mine) split([model]) of tensor<7xf32>
