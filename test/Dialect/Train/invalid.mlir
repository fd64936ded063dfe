// RUN: trainc-opt %s --split-input-file --verify-diagnostics

train.optimizer @o = sgd<lr = 0.1>
// expected-error @below {{'train.param' op expects a float tensor of static shape, 1 to 2^40 elements (C1), got 'tensor<4xi32>'}}
train.param @w : tensor<4xi32> init(zeros) optimizer(@o)

// -----

train.optimizer @o = sgd<lr = 0.1>
// expected-error @below {{'train.param' op expects a float tensor of static shape, 1 to 2^40 elements (C1), got 'tensor<2x?xf32>'}}
// expected-note @below {{dimension 1 is dynamic}}
train.param @w : tensor<2x?xf32> init(zeros) optimizer(@o)

// -----

// expected-error @below {{'train.param' op expects an optimizer unless it is frozen (C2), got neither}}
train.param @w : tensor<4xf32> init(zeros)

// -----

train.optimizer @o = sgd<lr = 0.1>
// expected-error @below {{'train.param' op expects an optimizer unless it is frozen (C2), got both}}
train.param @w : tensor<4xf32> init(zeros) optimizer(@o) frozen

// -----

// expected-error @below {{'train.param' op expects a train.optimizer of the module (C3), got @o}}
train.param @w : tensor<4xf32> init(zeros) optimizer(@o)

// -----

// expected-error @below {{'train.param' op expects a known init with its arguments (C4), got uniform with 1 arguments}}
train.param @w : tensor<4xf32> init(uniform<1.0>) frozen

// -----

// expected-error @below {{'train.param' op expects an init of its type (C4), got 'tensor<2xf32>' for 'tensor<4xf32>'}}
train.param @w : tensor<4xf32> init(dense<1.0> : tensor<2xf32>) frozen

// -----

// expected-error @below {{'train.param' op expects an init with the bytes of all elements (C4), got dense_resource<short> : tensor<4xf32>}}
train.param @w : tensor<4xf32> init(dense_resource<short> : tensor<4xf32>) frozen
{-# dialect_resources: { builtin: { short: "0x040000000000803f" } } #-}

// -----

// expected-error @below {{'train.buffer' op expects an init that names a distribution or lists elements (C1), got 1 : i64}}
train.buffer @b : tensor<4xf32> init(1)

// -----

// expected-error @below {{'train.buffer' op expects a known init with its arguments (C1), got normal with 0 arguments}}
train.buffer @b : tensor<4xf32> init(normal)

// -----

// expected-error @below {{'train.schedule' op expects either a kind or a region (C1), got neither}}
"train.schedule"() <{sym_name = "s", hyper_names = [], hyper_values = []}> ({}) : () -> ()

// -----

// expected-error @below {{(C2)}}
train.schedule @s(%t: f32) {
  train.yield %t : f32
}

// -----

// expected-error @below {{'train.schedule' op expects side-effect-free scalar arith and math ops only (C3), got 'nn.constant'}}
train.schedule @s(%t: f64) {
  // expected-note @below {{here}}
  %c = nn.constant dense<1.0> : tensor<f64>
  train.yield %t : f64
}

// -----

// expected-error @below {{'train.optimizer' op expects either a kind or a region (C1), got neither}}
"train.optimizer"() <{sym_name = "o", state_names = [], state_values = [], hyper_names = [], hyper_values = []}> ({}, {}) : () -> ()

// -----

// expected-error @below {{'train.optimizer' op expects a region with 3 arguments of one float type and 0 of that type or f64 (C2)}}
train.optimizer @o(%p: f32, %g: f32) state(m = 0.0) {
  train.yield %p, %g : f32, f32
}

// -----

// expected-error @below {{(C3)}}
train.optimizer @o(%p: f32, %g: f32, %m: f32) state(m = 0.0) {
  train.yield %p : f32
}

// -----

// expected-error @below {{'train.optimizer' op expects side-effect-free scalar arith and math ops only (C4), got 'nn.constant'}}
train.optimizer @o(%p: f32, %g: f32) {
  // expected-note @below {{here}}
  %c = nn.constant dense<1.0> : tensor<f64>
  train.yield %p : f32
}

// -----

// expected-error @below {{'train.optimizer' op expects a second region and finite a, b, c and eps, steps from 1 to 100, bf16, and at most one of match_rms and unclamped for orthogonal (C7)}}
train.optimizer @o(%p: f32, %g: f32) orthogonal<steps = 5> {
  train.yield %p : f32
}

// -----

// expected-error @below {{'train.optimizer' op expects a train.schedule of the module (C5), got @absent}}
train.optimizer @o(%p: f32, %g: f32, %lr: f64) hyper(lr = @absent) {
  train.yield %p : f32
}

// -----

// expected-error @below {{'train.step' op expects a body that yields a loss (C1)}}
train.step @step(%x: tensor<f32>) {
  train.yield %x : tensor<f32>
}

// -----

// expected-error @below {{'train.step' op expects loss and weight to be rank-0 float tensors (C1), got 'tensor<2xf32>'}}
train.step @step(%x: tensor<2xf32>) {
  train.yield loss(%x) : tensor<2xf32>
}

// -----

// expected-error @below {{'train.step' op expects a body that yields 1 outputs (C10), got 2}}
train.step @step(%x: tensor<f32>) -> ("x") {
  train.yield %x, %x loss(%x) : tensor<f32>, tensor<f32>, tensor<f32>
}

// -----

// expected-error @below {{'train.step' op expects output 0 to be a tensor of numbers (C10), got 'f32'}}
train.step @step(%x: tensor<f32>) -> ("x") {
  %y = arith.constant 1.0 : f32
  train.yield %y loss(%x) : f32, tensor<f32>
}

// -----

// expected-error @below {{'train.step' op expects accumulate from 1 to 2147483647 (C2), got 0}}
train.step @step(%x: tensor<f32>) accumulate(0) {
  train.yield loss(%x) : tensor<f32>
}

// -----

// expected-error @below {{'train.step' op expects a finite clip > 0 (C3), got}}
train.step @step(%x: tensor<f32>) clip(value<0.0>) {
  train.yield loss(%x) : tensor<f32>
}

// -----

// expected-error @below {{'train.step' op expects static shapes (C4), got dynamic dimension 1 of input 1: 'tensor<2x?xf32>'}}
train.step @step(%x: tensor<f32>, %y: tensor<2x?xf32>) {
  train.yield loss(%x) : tensor<f32>
}

// -----

// expected-error @below {{'train.eval' op expects a body that yields 2 values (C1), got 1}}
train.eval @eval(%x: tensor<f32>) -> ("a", "b") {
  train.yield %x : tensor<f32>
}

// -----

// expected-error @below {{'train.eval' op expects static shapes (C2), got dynamic dimension 0 of input 0: 'tensor<?xf32>'}}
train.eval @eval(%x: tensor<?xf32>) -> ("a") {
  train.yield %x : tensor<?xf32>
}

// -----

train.buffer @b : tensor<f32> init(zeros)
train.eval @eval(%x: tensor<f32>) -> ("a") {
  // expected-error @below {{'train.write' op is not allowed in a train.eval (C3)}}
  train.write %x to @b : tensor<f32>
  train.yield %x : tensor<f32>
}

// -----

train.eval @eval() -> ("a") {
  // expected-error @below {{'train.read' op expects a parameter, buffer or slice (C1), got @absent}}
  %x = train.read @absent : tensor<f32>
  train.yield %x : tensor<f32>
}

// -----

// expected-note @below {{declared here}}
train.buffer @b : tensor<f32> init(zeros)
train.eval @eval() -> ("a") {
  // expected-error @below {{'train.read' op expects the type of @b (C2), 'tensor<f32>', got 'tensor<f64>'}}
  %x = train.read @b : tensor<f64>
  train.yield %x : tensor<f64>
}

// -----

train.param @p : tensor<f32> init(zeros) frozen
train.step @step(%x: tensor<f32>) {
  // expected-error @below {{'train.write' op expects a buffer or slice (C1), got @p}}
  train.write %x to @p : tensor<f32>
  train.yield loss(%x) : tensor<f32>
}

// -----

// expected-note @below {{declared here}}
train.buffer @b : tensor<f64> init(zeros)
train.step @step(%x: tensor<f32>) {
  // expected-error @below {{'train.write' op expects the type of @b (C2), 'tensor<f64>', got 'tensor<f32>'}}
  train.write %x to @b : tensor<f32>
  train.yield loss(%x) : tensor<f32>
}

// -----

// expected-error @below {{'train.arena' op expects slices and spans alone (C1), got func.func}}
train.arena @a buffer {
  train.slice @b : tensor<f32>
  func.func private @c()
}

// -----

// expected-error @below {{custom op 'train.arena' expects a role of master, compute, gradient, state, buffer, scalars, workspace, merged, got parameters}}
train.arena @a parameters {
}

// -----

train.bucket @bucket [@b, @c] elements(4) offsets([0, 1])
train.arena @a buffer {
  train.slice @b : tensor<2xf32>
  train.slice @c : tensor<f32>
  // expected-error @below {{'train.span' op expects slices that do not overlap within the bucket (C2), got @c at 1}}
  train.span @bucket
}

// -----

train.bucket @bucket [@b] elements(1) offsets([0])
train.arena @a buffer {
  train.slice @b : tensor<2xf32>
  // expected-error @below {{'train.span' op expects slices that do not overlap within the bucket (C2), got @b at 0}}
  train.span @bucket
}

// -----

train.arena @a buffer {
  // expected-note @below {{see existing symbol definition here}}
  train.slice @b : tensor<f32>
  // expected-error @below {{redefinition of symbol named 'b'}}
  train.slice @b : tensor<f32>
}

// -----

train.param @p : tensor<f32> init(zeros) frozen
train.step @step(%x: tensor<f32>) {
  // expected-error @below {{'train.store_gradient' op expects a parameter that is not frozen (C1), got @p}}
  train.store_gradient %x into @p : tensor<f32>
  train.yield loss(%x) : tensor<f32>
}

// -----

train.optimizer @o = sgd<lr = 0.1>
train.param @p : tensor<2xf32> init(zeros) optimizer(@o)
train.step @step(%x: tensor<f32>) {
  // expected-error @below {{'train.store_gradient' op expects contributions of the parameter's shape (C2), got 'tensor<f32>' for 'tensor<2xf32>'}}
  train.store_gradient %x into @p : tensor<f32>
  train.yield loss(%x) : tensor<f32>
}

// -----

train.list @l of @e "apply" (%x: tensor<10xbf16>) {
  // expected-error @below {{'train.square_sum' op expects a result of type 'tensor<3xf64>' (C1), got 'tensor<2xf64>'}}
  %s = train.square_sum %x block 4 : tensor<10xbf16> -> tensor<2xf64>
  train.return
}

// -----

train.list @l of @e "apply" (%x: tensor<10xf32>) {
  // expected-error @below {{'train.launch' op expects a train.kernel (C1), got @absent}}
  train.launch @absent(%x) : (tensor<10xf32>) -> ()
  train.return
}

// -----

train.kernel @k(%x: tensor<2xf32>) inplace [-1] {
  train.return %x : tensor<2xf32>
}
train.list @l of @e "apply" (%x: tensor<10xf32>) {
  // expected-error @below {{'train.launch' op expects the types of its kernel (C2), 'tensor<2xf32>' -> 'tensor<2xf32>'}}
  %y = train.launch @k(%x) : (tensor<10xf32>) -> tensor<10xf32>
  train.return
}

// -----

// expected-error @below {{'train.param' op expects a float tensor of static shape, 1 to 2^40 elements (C1), got 'tensor<2x0xf32>'}}
train.param @p : tensor<2x0xf32> init(zeros) frozen

// -----

// expected-error @below {{'train.param' op expects a float tensor of static shape, 1 to 2^40 elements (C1), got 'tensor<4xf80>'}}
train.param @p : tensor<4xf80> init(zeros) frozen

// -----

// expected-error @below {{'train.buffer' op expects a tensor of numbers of static shape, 1 to 2^40 elements (C2), got 'tensor<1048576x1048577xi8>'}}
train.buffer @b : tensor<1048576x1048577xi8> init(zeros)

// -----

// expected-error @below {{'train.step' op expects 1 to 2^40 elements and no encoding (C4), got input 0: 'tensor<0xf32>'}}
train.step @step(%x: tensor<0xf32>, %y: tensor<f32>) {
  train.yield loss(%y) : tensor<f32>
}

// -----

// expected-error @below {{'train.step' op expects input 0 to be a tensor of numbers (C4), got 'tensor<2xi7>'}}
train.step @step(%x: tensor<2xi7>, %y: tensor<f32>) {
  train.yield loss(%y) : tensor<f32>
}

// -----

// expected-error @below {{'train.step' op attribute 'accumulate' failed to satisfy constraint: 64-bit signless integer attribute}}
train.step @step(%x: tensor<f32>) attributes {accumulate = "x"} {
  train.yield loss(%x) : tensor<f32>
}

// -----

// expected-error @below {{custom op 'train.step' expects 'accumulate' once}}
train.step @step(%x: tensor<f32>) accumulate(2) accumulate(3) {
  train.yield loss(%x) : tensor<f32>
}

// -----

train.arena @a master {
  // expected-error @below {{'train.slice' op attribute 'type' failed to satisfy constraint: type attribute of static tensor of}}
  train.slice @w : tensor<4xvector<2xf32>>
}

// -----

// expected-error @below {{'train.bucket' op expects ascending offsets below 16 (C1), got 9223372036854775804}}
train.bucket @bucket [@w] elements(16) offsets([9223372036854775804])

// -----

// expected-error @below {{'train.step' op expects a finite loss scale > 0 (C5), got -1}}
train.step @s(%x: tensor<2xf32>) loss_scale(-1.0) {
  %l = nn.reduce sum %x dims [0] : tensor<2xf32>
  train.yield loss(%l) : tensor<f32>
}

// -----

// expected-error @below {{'train.step' op expects growth >= 1, 0 < backoff <= 1, interval >= 1 and min > 0, all finite (C5), got}}
train.step @s(%x: tensor<2xf32>) loss_scale(dynamic<backoff = 2.0>) {
  %l = nn.reduce sum %x dims [0] : tensor<2xf32>
  train.yield loss(%l) : tensor<f32>
}

// -----

// expected-error @below {{expected init, growth, backoff, interval or min, got 'rate'}}
train.step @s(%x: tensor<2xf32>) loss_scale(dynamic<rate = 2.0>) {
  %l = nn.reduce sum %x dims [0] : tensor<2xf32>
  train.yield loss(%l) : tensor<f32>
}

// -----

// expected-error @below {{'train.step' op expects the gradient of a parameter that it trains (C6), got @w}}
train.step @step(%g: tensor<4xf32> gradient(@w)) {
  train.yield
}
train.param @w : tensor<4xf32> init(ones) frozen

// -----

// expected-error @below {{'train.step' op expects the shape of @w and float elements (C6), got 'tensor<3xf32>'}}
train.step @step(%g: tensor<3xf32> gradient(@w)) {
  train.yield
}
train.optimizer @o = sgd<lr = 0.1>
// expected-note @below {{declared here as 'tensor<4xf32>'}}
train.param @w : tensor<4xf32> init(ones) optimizer(@o)

// -----

// expected-error @below {{'train.step' op expects a master of f32, bf16 or f16 (C7), got 'f64'}}
train.step @step(%x: tensor<f32>) precision(compute = bf16, master = f64) {
  train.yield loss(%x) : tensor<f32>
}

// -----

// expected-error @below {{'train.step' op expects a master of bf16 or f16 for stochastic rounding (C7)}}
train.step @step(%x: tensor<f32>) precision(compute = bf16, rounding = stochastic) {
  train.yield loss(%x) : tensor<f32>
}

// -----

// expected-error @below {{expected compute, master, rounding or keep_f32, got 'state'}}
train.step @step(%x: tensor<f32>) precision(state = bf16) {
  train.yield loss(%x) : tensor<f32>
}

// -----

train.step @e(%x: tensor<f32>) {
  train.yield loss(%x) : tensor<f32>
}
// expected-error @+1 {{'train.list' expects kind "first", "next", "merge" or "apply", got "last"}}
train.list @l of @e "last" () {
  train.return
}

// -----

// expected-error @below {{'train.step' op expects to train an optimizer or more (C11)}}
train.step @step(%x: tensor<f32>) trains([]) {
  train.yield loss(%x) : tensor<f32>
}

// -----

train.optimizer @o = sgd<lr = 0.1>
// expected-error @below {{'train.step' op expects to train optimizers, each once (C11), got @o}}
train.step @step(%x: tensor<f32>) trains([@o, @o]) {
  train.yield loss(%x) : tensor<f32>
}

// -----

// expected-error @below {{'train.step' op expects to train optimizers, each once (C11), got @w}}
train.step @step(%x: tensor<f32>) trains([@w]) {
  train.yield loss(%x) : tensor<f32>
}
train.param @w : tensor<4xf32> init(ones) frozen

// -----

train.optimizer @a = sgd<lr = 0.1>
train.optimizer @b = sgd<lr = 0.1>
train.param @w : tensor<4xf32> init(ones) optimizer(@a)
// expected-error @below {{'train.step' op expects the gradient of a parameter that it trains (C6), got @w}}
train.step @step(%g: tensor<4xf32> gradient(@w)) trains([@b]) {
  train.yield
}

// -----

train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<2xf32> init(ones) optimizer(@o)
// expected-error @+1 {{'train.step' op expects a loss scale of at least min (C5), got 2.500000e-01 and 1.000000e+00}}
train.step @s(%x: tensor<2xf32>) loss_scale(dynamic<init = 0.25>) {
  %w = train.read @w : tensor<2xf32>
  %m = nn.mul %w, %x : tensor<2xf32>, tensor<2xf32>
  %l = nn.reduce sum %m dims [0] : tensor<2xf32>
  train.yield loss(%l) : tensor<f32>
}

// -----

// expected-error @+1 {{'train.buffer' op expects numbers that are drawn to be floats (C1), got normal for 'tensor<6xi8>'}}
train.buffer @b : tensor<6xi8> init(normal<100.0>)

// -----

// expected-error @+1 {{'train.optimizer' op expects states of distinct names, none of them 'ema' with an average (C6), got "ema" twice}}
train.optimizer @o(%p: f32, %g: f32, %m: f32) state(ema = 0.0) ema(0.9) {
  train.yield %p, %m : f32, f32
}
