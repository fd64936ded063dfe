// RUN: trainc-opt %s --train-verify-form=form=3 --split-input-file --verify-diagnostics

train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4xf32> init(ones) optimizer(@o)
train.arena @arena.master.f32 master {
  train.slice @w : tensor<4xf32>
}
// expected-error @below {{'train.list' op expects a command that writes @arena.master.f32::@w in form 3, got none}}
train.list @step.apply of @step "apply" () workspace(0) alive(0) {
  train.return
}
train.list @step.first of @step "first" () workspace(0) alive(0) {
  train.return
}

// -----

// A collective passes on what another command has made.
train.mesh @mesh(data = 2)
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4xf32> init(ones) optimizer(@o)
train.arena @arena.state.m.f32 state {
  train.slice @w : tensor<4xf32>
}
// expected-error @below {{'train.list' op expects a command that writes @arena.state.m.f32::@w in form 3, got none}}
train.list @step.apply of @step "apply" () workspace(0) alive(0) {
  %0 = train.address @arena.state.m.f32 : memref<4xf32>
  %t = train.start all_gather outs(%0) over ["data"] : memref<4xf32> -> !train.token
  train.wait %t
  train.return
}
train.list @step.first of @step "first" () workspace(0) alive(0) {
  train.return
}

// -----

train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4xf32> init(ones) optimizer(@o)
train.param @v : tensor<4xf32> init(ones) optimizer(@o)
train.arena @arena.grad.f32 gradient {
  train.slice @w : tensor<4xf32>
  train.slice @v : tensor<4xf32>
}
train.list @step.apply of @step "apply" () workspace(0) alive(0) {
  train.return
}
train.list @step.next of @step "next" () workspace(0) alive(0) {
  %x1 = train.address input 0 : memref<4xf32>
  %t1 = train.address @arena.grad.f32::@w : memref<4xf32>
  train.copy %x1 to %t1 : memref<4xf32> to memref<4xf32>
  %x2 = train.address input 0 : memref<4xf32>
  %t2 = train.address @arena.grad.f32::@v : memref<4xf32>
  train.copy %x2 to %t2 : memref<4xf32> to memref<4xf32>
  train.return
}
// expected-error @below {{'train.list' op expects a command that writes @arena.grad.f32::@v in form 3, got none}}
train.list @step.first of @step "first" () workspace(0) alive(0) {
  %x3 = train.address input 0 : memref<4xf32>
  %t3 = train.address @arena.grad.f32::@w : memref<4xf32>
  train.copy %x3 to %t3 : memref<4xf32> to memref<4xf32>
  train.return
}

// -----

// In every micro-step.
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4xf32> init(ones) optimizer(@o)
train.arena @arena.grad.f32 gradient {
  train.slice @w : tensor<4xf32>
}
train.list @step.apply of @step "apply" () workspace(0) alive(0) {
  train.return
}
// expected-error @below {{'train.list' op expects a command that writes @arena.grad.f32::@w in form 3, got none}}
train.list @step.next of @step "next" () workspace(0) alive(0) {
  train.return
}
train.list @step.first of @step "first" () workspace(0) alive(0) {
  %x4 = train.address input 0 : memref<4xf32>
  %t4 = train.address @arena.grad.f32::@w : memref<4xf32>
  train.copy %x4 to %t4 : memref<4xf32> to memref<4xf32>
  train.return
}

// -----

// Once per window, what is merged; a frozen parameter has no writer.
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4xf32> init(ones) optimizer(@o)
train.param @f : tensor<4xf32> init(ones) frozen
train.arena @arena.master.f32 master {
  train.slice @f : tensor<4xf32>
}
train.arena @arena.merged.f32 merged {
  train.slice @w : tensor<4xf32>
}
train.list @step.apply of @step "apply" () workspace(0) alive(0) {
  train.return
}
train.list @step.merge of @step "merge" () workspace(0) alive(0) {
  train.return
}
// expected-error @below {{'train.list' op expects a command that writes @arena.merged.f32::@w in form 3, got none}}
train.list @step.first of @step "first" () workspace(0) alive(0) {
  train.return
}
