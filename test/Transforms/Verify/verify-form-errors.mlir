// Each violation of a form is refused where it is.
//
// RUN: split-file %s %t
// RUN: trainc-opt %t/0.mlir --train-verify-form=form=0 --split-input-file --verify-diagnostics
// RUN: trainc-opt %t/1.mlir --train-verify-form=form=1 --split-input-file --verify-diagnostics
// RUN: trainc-opt %t/2.mlir --train-verify-form=form=2 --split-input-file --verify-diagnostics
// RUN: trainc-opt %t/3.mlir --train-verify-form=form=3 --split-input-file --verify-diagnostics
// RUN: trainc-opt %t/4.mlir --train-verify-form=form=4 --split-input-file --verify-diagnostics
// RUN: not trainc-opt %S/verify-form.mlir --train-verify-form=form=5 2>&1 | FileCheck %s
// CHECK: error: expects form 0, 1, 2, 3 or 4, got 5

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
train.arena @a master {
}

// -----

// expected-error @below {{'train.bucket' op is not allowed here in a source}}
train.bucket @bucket [@w]

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
  // expected-error @+1 {{'train.read' op expects a slice or bucket of an arena in form 2, got @w}}
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

train.bucket @bucket [@a]
train.arena @g gradient {
  train.slice @a : tensor<4xf32>
  train.span @bucket
}
train.step @step(%x: tensor<f32>, %y: tensor<4xf32>) {
  train.write %y to @g::@a : tensor<4xf32>
  train.window_end
  %all = train.read @g::@bucket : tensor<?xf32>
  // expected-error @+1 {{'train.write' op expects @g either by buckets or by slices in a block}}
  train.write %y to @g::@a : tensor<4xf32>
  train.yield loss(%x) : tensor<f32>
}

// -----

train.arena @g gradient {
  train.slice @a : tensor<4xf32>
}
train.step @step(%x: tensor<f32>) {
  // expected-error @+1 {{'train.read' op expects a slice or bucket of an arena in form 2, got @g}}
  %all = train.read @g : tensor<4xf32>
  train.window_end
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

// expected-error @+1 {{'train.list' op expects addresses of inputs and outputs in form 3, got arguments or returned values}}
train.list @first of @step "first" (%x: tensor<4xf32>) workspace(256) {
  train.return
}

// -----

train.kernel @k(%x: tensor<4xf32>) inplace [-1] {
  %0 = nn.neg %x : tensor<4xf32>
  train.return %0 : tensor<4xf32>
}
train.arena @g buffer {
  train.slice @a : tensor<4xf32>
}
train.list @first of @step "first" () workspace(256) {
  // expected-error @+1 {{'train.read' op is not a command of form 3}}
  %0 = train.read @g::@a : tensor<4xf32>
  %1 = train.launch @k(%0) : (tensor<4xf32>) -> tensor<4xf32>
  train.return
}

// -----

train.kernel @ones() inplace [-1] {
  %0 = nn.constant dense<1.0> : tensor<4xf32>
  train.return %0 : tensor<4xf32>
}
train.list @first of @step "first" () workspace(256) {
  // expected-error @+1 {{'train.launch' op expects buffers in form 3, got tensors}}
  %0 = train.launch @ones() : () -> tensor<4xf32>
  train.return
}

// -----

train.step @step(%x: tensor<4xf32>, %s: tensor<f32>) {
  train.yield loss(%s) : tensor<f32>
}
train.list @first of @step "first" () workspace(256) {
  // expected-error @+1 {{'train.address' op expects an input that the entry has, of as many elements of its type, got number 0 of type 'memref<5xf32>'}}
  %0 = train.address input 0 : memref<5xf32>
  train.return
}

// -----

train.step @step(%x: tensor<4xf32>, %s: tensor<f32>) {
  train.yield loss(%s) : tensor<f32>
}
train.list @first of @step "first" () workspace(256) {
  // expected-error @+1 {{'train.address' op expects an output that the entry has, of as many elements of its type, got number 3 of type 'memref<f32>'}}
  %0 = train.address output 3 : memref<f32>
  train.return
}

// -----

// What is read was written, or stands in an arena or input (P2).
train.kernel @k(%x: tensor<4xf32>) inplace [-1] {
  %0 = nn.neg %x : tensor<4xf32>
  train.return %0 : tensor<4xf32>
}
train.list @first of @step "first" () workspace(512) {
  %0 = train.address workspace 0 : memref<4xf32>
  %1 = train.address workspace 256 : memref<4xf32>
  // expected-error @+1 {{'train.launch' op expects its operand in bytes 0 to 16 of the workspace, where nothing was written (P2)}}
  train.launch @k(%0) outs(%1 : memref<4xf32>) : (memref<4xf32>) -> ()
  train.return
}

// -----

train.kernel @k(%x: tensor<4xf32>) inplace [-1] {
  %0 = nn.neg %x : tensor<4xf32>
  train.return %0 : tensor<4xf32>
}
train.arena @g buffer {
  train.slice @a : tensor<4xf32>
}
train.list @first of @step "first" () workspace(256) {
  %x = train.address input 0 : memref<4xf32>
  %old = train.address @g::@a : memref<4xf32>
  %new = train.address @g::@a : memref<4xf32>
  // expected-note @+1 {{written here}}
  train.launch @k(%x) outs(%new : memref<4xf32>) : (memref<4xf32>) -> ()
  %0 = train.address workspace 0 : memref<4xf32>
  // expected-error @+1 {{'train.launch' op expects its operand in bytes 0 to 16 of @g, where something else stands (P2)}}
  train.launch @k(%old) outs(%0 : memref<4xf32>) : (memref<4xf32>) -> ()
  train.return
}

// -----

// Two values that share memory, of which the first is read once more.
train.kernel @k(%x: tensor<4xf32>) inplace [-1] {
  %0 = nn.neg %x : tensor<4xf32>
  train.return %0 : tensor<4xf32>
}
train.list @first of @step "first" () workspace(256) {
  %x = train.address input 0 : memref<4xf32>
  %0 = train.address workspace 0 : memref<4xf32>
  train.launch @k(%x) outs(%0 : memref<4xf32>) : (memref<4xf32>) -> ()
  %1 = train.address workspace 0 : memref<4xf32>
  // expected-note @+1 {{written here}}
  train.launch @k(%x) outs(%1 : memref<4xf32>) : (memref<4xf32>) -> ()
  %out = train.address output 0 : memref<4xf32>
  // expected-error @+1 {{'train.copy' op expects its operand in bytes 0 to 16 of the workspace, where something else stands (P2)}}
  train.copy %0 to %out : memref<4xf32> to memref<4xf32>
  train.return
}

// -----

// An output has nothing that a list could read before it writes there.
train.kernel @k(%x: tensor<4xf32>) inplace [-1] {
  %0 = nn.neg %x : tensor<4xf32>
  train.return %0 : tensor<4xf32>
}
train.list @first of @eval "first" () workspace(64) {
  %0 = train.address output 0 : memref<4xf32>
  %1 = train.address workspace 0 : memref<4xf32>
  // expected-error @+1 {{'train.launch' op expects its operand in bytes 0 to 16 of output 0, where nothing was written (P2)}}
  train.launch @k(%0) outs(%1 : memref<4xf32>) : (memref<4xf32>) -> ()
  train.return
}

// -----

// All of every output is written, in every list that computes them.
train.eval @eval(%x: tensor<8xf32>) -> ("y") {
  train.yield %x : tensor<8xf32>
}
// expected-error @+1 {{'train.list' op expects a command that writes bytes 16 to 32 of output 0 (P2)}}
train.list @first of @eval "first" () workspace(64) {
  %x = train.address input 0 : memref<8xf32>
  %y = train.address output 0 : memref<8xf32>
  %0 = train.view %x from 0 : memref<8xf32> -> memref<4xf32>
  %1 = train.view %y from 0 : memref<8xf32> -> memref<4xf32>
  train.copy %0 to %1 : memref<4xf32> to memref<4xf32>
  train.return
}

// -----

// An input is the caller's.
train.list @first of @eval "first" () workspace(64) {
  %x = train.address input 0 : memref<8xf32>
  %y = train.address input 1 : memref<8xf32>
  // expected-error @+1 {{'train.copy' op writes to bytes 0 to 32 of input 1, which is the caller's (P1)}}
  train.copy %x to %y : memref<8xf32> to memref<8xf32>
  train.return
}

// -----

// Commands that the runtime may run at once do not conflict (P1 to P4).
train.kernel @k(%x: tensor<64xf32>) inplace [-1] {
  %0 = nn.neg %x : tensor<64xf32>
  train.return %0 : tensor<64xf32>
}
train.list @first of @step "first" () workspace(256) {
  %x = train.address input 0 : memref<64xf32>
  %0 = train.address workspace 64 : memref<64xf32>
  // expected-error @+1 {{'train.launch' op expects a workspace of 256 bytes to hold bytes 64 to 320 of the workspace (P1)}}
  train.launch @k(%x) outs(%0 : memref<64xf32>) : (memref<64xf32>) -> ()
  train.return
}

// -----

// Two launches that need nothing of each other, of which the second writes over a byte of the first one's result.
train.kernel @k(%x: tensor<64xf32>) inplace [-1] {
  %0 = nn.neg %x : tensor<64xf32>
  train.return %0 : tensor<64xf32>
}
train.kernel @add(%x: tensor<64xf32>, %y: tensor<64xf32>) inplace [-1] {
  %0 = nn.add %x, %y : tensor<64xf32>, tensor<64xf32>
  train.return %0 : tensor<64xf32>
}
train.list @first of @step "first" () workspace(1024) {
  %x = train.address input 0 : memref<64xf32>
  %0 = train.address workspace 0 : memref<64xf32>
  %1 = train.address workspace 252 : memref<64xf32>
  %2 = train.address workspace 512 : memref<64xf32>
  train.launch @k(%x) outs(%0 : memref<64xf32>) : (memref<64xf32>) -> ()
  // expected-note @+1 {{written here}}
  train.launch @k(%x) outs(%1 : memref<64xf32>) : (memref<64xf32>) -> ()
  // expected-error @+1 {{'train.launch' op expects its operand in bytes 0 to 256 of the workspace, where something else stands (P2)}}
  train.launch @add(%0, %1) outs(%2 : memref<64xf32>) : (memref<64xf32>, memref<64xf32>) -> ()
  train.return
}

// -----

// The results of one kernel.
train.kernel @two(%x: tensor<64xf32>) inplace [-1, -1] {
  %0 = nn.neg %x : tensor<64xf32>
  %1 = nn.exp %x : tensor<64xf32>
  train.return %0, %1 : tensor<64xf32>, tensor<64xf32>
}
train.list @first of @step "first" () workspace(512) {
  %x = train.address input 0 : memref<64xf32>
  %0 = train.address workspace 0 : memref<64xf32>
  %1 = train.address workspace 128 : memref<64xf32>
  // expected-error @+1 {{'train.launch' op writes what else it touches: bytes 0 to 256 of the workspace and bytes 128 to 384 of the workspace overlap (P3)}}
  train.launch @two(%x) outs(%0, %1 : memref<64xf32>, memref<64xf32>) : (memref<64xf32>) -> ()
  train.return
}

// -----

// A result over an operand that is not in place; one that is in place is one operand.
train.kernel @over(%x: tensor<64xf32>) inplace [0] {
  %0 = nn.neg %x : tensor<64xf32>
  train.return %0 : tensor<64xf32>
}
train.kernel @k(%x: tensor<64xf32>) inplace [-1] {
  %0 = nn.neg %x : tensor<64xf32>
  train.return %0 : tensor<64xf32>
}
train.list @first of @step "first" () workspace(512) {
  %x = train.address input 0 : memref<64xf32>
  %0 = train.address workspace 0 : memref<64xf32>
  train.launch @k(%x) outs(%0 : memref<64xf32>) : (memref<64xf32>) -> ()
  train.launch @over() outs(%0 : memref<64xf32>) : () -> ()
  // expected-error @+1 {{'train.launch' op writes what else it touches: bytes 0 to 256 of the workspace and bytes 0 to 256 of the workspace overlap (P3)}}
  train.launch @k(%0) outs(%0 : memref<64xf32>) : (memref<64xf32>) -> ()
  train.return
}

// -----

// A product that adds to what nothing has written.
train.list @next of @step "next" () workspace(512) {
  %x = train.address input 0 : memref<4x4xf32>
  %0 = train.address workspace 0 : memref<4x4xf32>
  // expected-error @+1 {{'train.gemm' op expects its operand in bytes 0 to 64 of the workspace, where nothing was written (P2)}}
  train.gemm %x, %x outs(%0 : memref<4x4xf32>) m 4 n 4 k 4 batch 1 accumulate plan <back_end = openblas, tile_m = 4, tile_n = 4> : memref<4x4xf32>, memref<4x4xf32>
  train.return
}

// -----

// A part that is not quite where it belongs in what is flat.
train.list @first of @step "first" () workspace(512) {
  %x = train.address input 0 : memref<64xf32>
  %part = train.address workspace 128 : memref<64xf32>
  train.copy %x to %part : memref<64xf32> to memref<64xf32>
  %flat = train.address workspace 0 : memref<128xf32>
  // expected-error @+1 {{'train.flatten' op writes what else it touches: bytes 128 to 384 of the workspace and bytes 0 to 256 of the workspace overlap (P3)}}
  train.flatten %part at [0] outs(%flat : memref<128xf32>) : memref<64xf32>
  train.return
}

// -----

// Between the start of a collective and its end.
train.mesh @mesh(data = 2)
train.kernel @k(%x: tensor<64xf32>) inplace [-1] {
  %0 = nn.neg %x : tensor<64xf32>
  train.return %0 : tensor<64xf32>
}
train.list @first of @step "first" () workspace(1024) {
  %x = train.address input 0 : memref<64xf32>
  %0 = train.address workspace 0 : memref<64xf32>
  train.launch @k(%x) outs(%0 : memref<64xf32>) : (memref<64xf32>) -> ()
  %1 = train.address workspace 256 : memref<128xf32>
  // expected-note @+1 {{started here}}
  %t = train.start all_gather(%0) outs(%1) over ["data"] : memref<128xf32> from memref<64xf32> -> !train.token
  %2 = train.address workspace 512 : memref<64xf32>
  // expected-error @+1 {{'train.launch' op touches bytes 512 to 768 of the workspace while a collective works on bytes 256 to 768 of the workspace (P4)}}
  train.launch @k(%x) outs(%2 : memref<64xf32>) : (memref<64xf32>) -> ()
  train.wait %t
  train.return
}

// -----

// What is in flight is waited for once, in its list or in the next (P5).
train.mesh @mesh(data = 2)
train.list @first of @step "first" () workspace(32) {
  %x = train.address input 0 : memref<8xf32>
  %0 = train.address workspace 0 : memref<8xf32>
  train.copy %x to %0 : memref<8xf32> to memref<8xf32>
  // expected-error @+1 {{'train.start' op expects a train.wait in its list (P5)}}
  %t = train.start reduce_scatter outs(%0) over ["data"] : memref<8xf32> -> !train.token
  train.return
}

// -----

train.mesh @mesh(data = 2)
train.token @t
train.arena @g buffer {
  train.slice @a : tensor<8xf32>
}
train.list @first of @step "first" () workspace(0) {
  %0 = train.address @g::@a : memref<8xf32>
  // expected-error @+1 {{'train.start' op is left in flight, and @apply does not wait for it (P5)}}
  train.start reduce_scatter outs(%0) over ["data"] as @t : memref<8xf32>
  train.return
}
train.list @apply of @step "apply" () workspace(0) {
  train.return
}

// -----

train.mesh @mesh(data = 2)
train.token @t
train.arena @g buffer {
  train.slice @a : tensor<8xf32>
}
train.list @first of @step "first" () workspace(0) {
  %0 = train.address @g::@a : memref<8xf32>
  train.start reduce_scatter outs(%0) over ["data"] as @t : memref<8xf32>
  train.return
}
train.list @apply of @step "apply" () workspace(0) {
  train.wait @t
  // expected-error @+1 {{'train.wait' op expects a collective in flight (P5)}}
  train.wait @t
  train.return
}

// -----

// The runtime waits in the order of the starts.
train.mesh @mesh(data = 2)
train.list @first of @step "first" () workspace(512) {
  %x = train.address input 0 : memref<8xf32>
  %0 = train.address workspace 0 : memref<8xf32>
  %1 = train.address workspace 256 : memref<8xf32>
  train.copy %x to %0 : memref<8xf32> to memref<8xf32>
  train.copy %x to %1 : memref<8xf32> to memref<8xf32>
  // expected-note @+1 {{started before it}}
  %t = train.start reduce_scatter outs(%0) over ["data"] : memref<8xf32> -> !train.token
  %s = train.start reduce_scatter outs(%1) over ["data"] : memref<8xf32> -> !train.token
  %2 = train.address workspace 64 : memref<8xf32>
  train.copy %x to %2 : memref<8xf32> to memref<8xf32>
  // expected-error @+1 {{'train.wait' op expects waits in the order of the starts (P5)}}
  train.wait %s
  train.wait %t
  train.return
}

// -----

// It is in flight until then.
train.mesh @mesh(data = 2)
train.token @t
train.arena @g buffer {
  train.slice @a : tensor<8xf32>
}
train.list @first of @step "first" () workspace(0) {
  %0 = train.address @g::@a : memref<8xf32>
  // expected-note @+1 {{started here}}
  train.start reduce_scatter outs(%0) over ["data"] as @t : memref<8xf32>
  train.return
}
train.list @apply of @step "apply" () workspace(32) {
  %0 = train.address @g::@a : memref<8xf32>
  %1 = train.address workspace 0 : memref<8xf32>
  // expected-error @+1 {{'train.copy' op touches bytes 0 to 32 of @g while a collective works on bytes 0 to 32 of @g (P4)}}
  train.copy %0 to %1 : memref<8xf32> to memref<8xf32>
  train.wait @t
  train.return
}

// -----

train.mesh @mesh(data = 2)
train.token @t
train.arena @g buffer {
  train.slice @a : tensor<8xf32>
}
train.list @first of @step "first" () workspace(0) {
  %0 = train.address @g::@a : memref<8xf32>
  train.start reduce_scatter outs(%0) over ["data"] as @t : memref<8xf32>
  train.return
}
// expected-error @+1 {{'train.list' op expects to leave in flight what @first does, in its order (P5)}}
train.list @next of @step "next" () workspace(0) {
  train.return
}
train.list @merge of @step "merge" () workspace(0) {
  train.wait @t
  train.return
}

// -----

train.mesh @mesh(data = 2)
train.token @t
train.arena @g buffer {
  train.slice @a : tensor<8xf32>
}
train.step @step(%s: tensor<f32>) accumulate(2) {
  train.yield loss(%s) : tensor<f32>
}
train.list @first of @step "first" () workspace(0) {
  %0 = train.address @g::@a : memref<8xf32>
  // expected-error @+1 {{'train.start' op is left in flight, and the next micro-step does not wait for it (P5)}}
  train.start reduce_scatter outs(%0) over ["data"] as @t : memref<8xf32>
  train.return
}
train.list @apply of @step "apply" () workspace(0) {
  train.wait @t
  train.return
}

// -----

train.mesh @mesh(data = 2)
train.token @t
train.arena @g buffer {
  train.slice @a : tensor<8xf32>
}
train.list @first of @eval "first" () workspace(0) {
  %0 = train.address @g::@a : memref<8xf32>
  // expected-error @+1 {{'train.start' op is left in flight, and no list follows that waits for it (P5)}}
  train.start reduce_scatter outs(%0) over ["data"] as @t : memref<8xf32>
  train.return
}

//--- 4.mlir
// What every workgroup replicates does not write an argument: a store beside the loop that is cut.
module {
module @kernels {
  func.func @beside(%x: memref<64xf32>, %y: memref<64xf32>, %z: memref<1xf32>, %tile: index) attributes {tiles = 2 : i64} {
    %c0 = arith.constant 0 : index
    %c32 = arith.constant 32 : index
    %c1 = arith.constant 1 : index
    %begin = arith.muli %tile, %c32 : index
    %end = arith.addi %begin, %c32 : index
    scf.for %i = %begin to %end step %c1 {
      %v = memref.load %x[%i] : memref<64xf32>
      memref.store %v, %y[%i] : memref<64xf32>
    }
    %v = memref.load %x[%c0] : memref<64xf32>
    // expected-error @+1 {{'memref.store' op internal error: all 2 workgroups of kernel @beside write the same to an argument}}
    memref.store %v, %z[%c0] : memref<1xf32>
    return
  }
}
}

// -----

// In a loop that all run whole, through a view.
module {
module @kernels {
  func.func @loop(%x: memref<64xf32>, %y: memref<64xf32>, %tile: index) attributes {tiles = 4 : i64} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c4 = arith.constant 4 : index
    %view = memref.expand_shape %y [[0, 1]] output_shape [4, 16] : memref<64xf32> into memref<4x16xf32>
    scf.for %i = %c0 to %c4 step %c1 {
      %v = memref.load %x[%tile] : memref<64xf32>
      // expected-error @+1 {{'memref.store' op internal error: all 4 workgroups of kernel @loop write the same to an argument}}
      memref.store %v, %view[%i, %c0] : memref<4x16xf32>
    }
    return
  }
}
}

// -----

// Allowed: scratch, a place or a condition by the number, one that a loop carries; one workgroup.
module {
module @kernels {
  func.func @good(%x: memref<64xf32>, %y: memref<64xf32>, %scratch: memref<64xi8>, %tile: index) attributes {scratch = 64 : i64, tiles = 4 : i64} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c4 = arith.constant 4 : index
    %room = memref.view %scratch[%c0][] : memref<64xi8> to memref<4xf32>
    %v = memref.load %x[%tile] : memref<64xf32>
    memref.store %v, %room[%c0] : memref<4xf32>
    memref.store %v, %y[%tile] : memref<64xf32>
    %first = arith.cmpi eq, %tile, %c0 : index
    scf.if %first {
      memref.store %v, %y[%c4] : memref<64xf32>
    }
    %last = scf.for %i = %c0 to %c4 step %c1 iter_args(%at = %c0) -> index {
      memref.store %v, %y[%at] : memref<64xf32>
      %next = arith.addi %at, %tile : index
      scf.yield %next : index
    }
    return
  }
  func.func @one(%x: memref<64xf32>, %y: memref<64xf32>, %tile: index) attributes {tiles = 1 : i64} {
    %c0 = arith.constant 0 : index
    %v = memref.load %x[%c0] : memref<64xf32>
    memref.store %v, %y[%c0] : memref<64xf32>
    return
  }
}
}
