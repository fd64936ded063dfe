// Each violation of a form is refused where it is.
//
// RUN: split-file %s %t
// RUN: trainc-opt %t/0.mlir --train-verify-form=form=0 --split-input-file --verify-diagnostics
// RUN: trainc-opt %t/1.mlir --train-verify-form=form=1 --split-input-file --verify-diagnostics
// RUN: trainc-opt %t/2.mlir --train-verify-form=form=2 --split-input-file --verify-diagnostics
// RUN: trainc-opt %t/3.mlir --train-verify-form=form=3 --split-input-file --verify-diagnostics
// RUN: not trainc-opt %S/verify-form.mlir --train-verify-form=form=4 2>&1 | FileCheck %s
// CHECK: error: expects form 0, 1, 2 or 3, got 4

//--- 0.mlir
train.mesh @mesh(data = 2)
// expected-error @below {{'train.step' op expects no over in a source, which train-partition sets}}
train.step @step(%l: tensor<f32>) attributes {over = ["data"]} {
  train.yield loss(%l) : tensor<f32>
}

// -----

train.mesh @mesh(data = 2)
train.step @step(%l: tensor<f32>) {
  // expected-error @below {{'train.process_index' op is not allowed here in a source}}
  %0 = train.process_index over ["data"] : tensor<i64>
  train.yield loss(%l) : tensor<f32>
}

// -----

// expected-error @below {{'train.arena' op is not allowed here in a source}}
train.arena @a role("master") bytes(64) {slices = [@w], types = [tensor<4xf32>], offsets = array<i64: 0>}

// -----

train.step @step(%x: tensor<f32>) {
  // expected-error @below {{'train.seed' op is not allowed here in a source}}
  %s = train.seed 1.0 : tensor<f32>
  train.yield loss(%x) : tensor<f32>
}

// -----

train.step @step(%x: tensor<f32>) {
  // expected-error @below {{'arith.addf' op is not allowed here in a source}}
  %y = arith.addf %x, %x : tensor<f32>
  train.yield loss(%y) : tensor<f32>
}

// -----

train.buffer @b : tensor<f32> init(zeros)
// expected-error @below {{'builtin.module' op is not allowed here in a source}}
module @inner {
}

//--- 1.mlir
// expected-error @+1 {{'func.func' op is not allowed in form 1}}
func.func private @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}

// -----

// expected-error @+1 {{'train.schedule' op expects a region in form 1}}
train.schedule @lr = constant<value = 0.1>

// -----

train.optimizer @o(%p: f32, %g: f32) {
  train.yield %p : f32
}
// expected-error @+1 {{'train.param' op expects 1 stored gradients in form 1, got 0}}
train.param @w : tensor<4xf32> init(ones) optimizer(@o)
train.step @step() {
  %w = train.read @w : tensor<4xf32>
  %s = nn.reduce sum %w dims [0] : tensor<4xf32>
  train.yield loss(%s) : tensor<f32>
}

//--- 2.mlir
train.optimizer @o(%p: f32, %g: f32) {
  train.yield %p : f32
}
train.param @w : tensor<4xf32> init(ones) optimizer(@o)
train.step @step() {
  // expected-error @+1 {{'train.read' op expects an arena or a slice of one in form 2, got @w}}
  %w = train.read @w : tensor<4xf32>
  %s = nn.reduce sum %w dims [0] : tensor<4xf32>
  train.yield loss(%s) : tensor<f32>
}

// -----

// expected-error @+1 {{'train.step' op expects one train.window_end in form 2}}
train.step @step(%x: tensor<f32>) {
  train.yield loss(%x) : tensor<f32>
}

// -----

// expected-error @+1 {{'train.step' op expects one train.micro_end at most, before train.window_end}}
train.step @step(%x: tensor<f32>) {
  train.window_end
  train.micro_end
  train.yield loss(%x) : tensor<f32>
}

// -----

// expected-error @+1 {{'train.step' op expects one conditional region in form 2 for windows of 2; run train-gradient-merge}}
train.step @step(%x: tensor<f32>) accumulate(2) {
  train.window_end
  train.yield loss(%x) : tensor<f32>
}

// -----

train.arena @g role("gradients") bytes(16) {offsets = array<i64: 0>, slices = [@a], types = [tensor<4xf32>]}
train.step @step(%x: tensor<f32>, %y: tensor<4xf32>) {
  train.write %y to @g::@a : tensor<4xf32>
  train.window_end
  %all = train.read @g : tensor<4xf32>
  // expected-error @+1 {{'train.write' op expects @g either as a whole or by slices in a block}}
  train.write %all to @g::@a : tensor<4xf32>
  train.yield loss(%x) : tensor<f32>
}

// -----

train.step @step(%x: tensor<f32>) {
  %true = arith.constant true
  // expected-error @+1 {{'scf.if' op expects a condition from train.window_end in form 2}}
  scf.if %true {
  }
  train.yield loss(%x) : tensor<f32>
}

//--- 3.mlir
// expected-error @+1 {{'train.list' op expects a planned workspace in form 3}}
train.list @first of @step "first" (%x: tensor<4xf32>) {
  train.return %x : tensor<4xf32>
}

// -----

train.kernel @k(%x: tensor<4xf32>) inplace [-1] {
  %0 = nn.neg %x : tensor<4xf32>
  train.return %0 : tensor<4xf32>
}
train.list @first of @step "first" (%x: tensor<4xf32>) workspace(256) {
  // expected-error @+1 {{'train.launch' op expects a place for each result in form 3}}
  %0 = train.launch @k(%x) : (tensor<4xf32>) -> tensor<4xf32>
  train.return %0 : tensor<4xf32>
}

// -----

train.list @first of @step "first" (%x: tensor<4xf32>) workspace(256) {
  // expected-error @+1 {{'nn.neg' op is not a command of form 3}}
  %0 = nn.neg %x : tensor<4xf32>
  train.return %0 : tensor<4xf32>
}

// -----

train.kernel @k(%x: tensor<4xf32>) inplace [-1] {
  %0 = nn.neg %x : tensor<4xf32>
  train.return %0 : tensor<4xf32>
}
train.arena @g role("buffers") bytes(16) {offsets = array<i64: 0>, slices = [@a], types = [tensor<4xf32>]}
train.list @first of @step "first" (%x: tensor<4xf32>) workspace(256) {
  %old = train.read @g::@a : tensor<4xf32>
  // expected-note @+1 {{written here}}
  %new = train.launch @k(%x) {places = [[@g::@a, 0]]} : (tensor<4xf32>) -> tensor<4xf32>
  // expected-error @+1 {{'train.launch' op uses a value read from @g::@a before it was written}}
  %0 = train.launch @k(%old) {places = [["workspace", 0]]} : (tensor<4xf32>) -> tensor<4xf32>
  train.return %0 : tensor<4xf32>
}
