// RUN: trainc-opt %s --train-outline-lists --split-input-file | FileCheck %s

// `first` overwrites, `next` adds, `apply` is the conditional region.
// CHECK-LABEL: train.list @step.first of @step "first" (%{{.*}}: tensor<4xf32>)
// CHECK-NOT: train.read
// CHECK: train.write %{{.*}} to @g::@w
// CHECK-LABEL: train.list @step.next of @step "next" (%{{.*}}: tensor<4xf32>)
// CHECK: %[[OLD:.*]] = train.read @g::@w
// CHECK: %[[NEW:.*]] = nn.add %[[OLD]]
// CHECK: train.write %[[NEW]] to @g::@w
// CHECK-LABEL: train.list @step.apply of @step "apply" ()
// CHECK: nn.neg
// CHECK-LABEL: train.list @eval.first of @eval "first"
// CHECK: train.return %{{.*}} : tensor<4xf32>
train.arena @g gradient {
  train.slice @w : tensor<4xf32>
}
train.step @step(%x: tensor<4xf32>) accumulate(2) {
  train.accumulate %x into @g::@w : tensor<4xf32>
  %s = nn.reduce sum %x dims [0] : tensor<4xf32>
  %due = train.window_end
  scf.if %due {
    %r = train.read @g::@w : tensor<4xf32>
    %n = nn.neg %r : tensor<4xf32>
    train.write %n to @g::@w : tensor<4xf32>
  }
  train.yield loss(%s) : tensor<f32>
}
train.eval @eval(%x: tensor<4xf32>) -> ("y") {
  train.yield %x : tensor<4xf32>
}

// -----

// Outputs of a step are those of each micro-step; its loss is none.
// CHECK-LABEL: train.list @outputs.first
// CHECK: %[[N:.*]] = nn.neg
// CHECK: train.return %[[N]], %{{.*}} : tensor<4xf32>, tensor<4xf32>
// CHECK-LABEL: train.list @outputs.next
// CHECK: %[[N:.*]] = nn.neg
// CHECK: train.return %[[N]], %{{.*}} : tensor<4xf32>, tensor<4xf32>
// CHECK-LABEL: train.list @outputs.apply
// CHECK-NEXT: train.return{{$}}
train.step @outputs(%x: tensor<4xf32>) -> ("y", "x") accumulate(2) {
  %y = nn.neg %x : tensor<4xf32>
  %s = nn.reduce sum %x dims [0] : tensor<4xf32>
  %due = train.window_end
  scf.if %due {
  }
  train.yield %y, %x loss(%s) : tensor<4xf32>, tensor<4xf32>, tensor<f32>
}

// -----

// Old sums join what a gradient of an embedding adds to.
// CHECK-LABEL: train.list @tied.next
// CHECK: %[[OLD:.*]] = train.read @g::@w
// CHECK: %[[SUM:.*]] = nn.add %[[OLD]], %{{.*}} : tensor<4x3xf32>
// CHECK: %[[NEW:.*]] = nn.embedding_grad %{{.*}}, %{{.*}} init %[[SUM]]
// CHECK: train.write %[[NEW]] to @g::@w
train.arena @g gradient {
  train.slice @w : tensor<4x3xf32>
}
train.step @tied(%i: tensor<5xi32>, %x: tensor<4x3xf32>, %d: tensor<5x3xf32>) accumulate(2) {
  %e = nn.embedding_grad %i, %d init %x : tensor<4x3xf32> : tensor<5xi32>, tensor<5x3xf32> to tensor<4x3xf32>
  train.accumulate %e into @g::@w : tensor<4x3xf32>
  %s = nn.reduce sum %d dims [0, 1] : tensor<5x3xf32>
  %due = train.window_end
  scf.if %due {
  }
  train.yield loss(%s) : tensor<f32>
}

// -----

// A window of one has no `next`. The pass does nothing to a module with lists.
// CHECK-NOT: "next"
// CHECK-LABEL: train.list @only of @step "first" ()
// CHECK-NOT: train.list
train.step @step(%x: tensor<f32>) {
  train.yield loss(%x) : tensor<f32>
}
train.list @only of @step "first" () {
  train.return
}

// -----

// Without a conditional region `apply` is what stands after the window's end.
// CHECK-LABEL: train.list @plain.first of @plain "first"
// CHECK: nn.reduce
// CHECK-NOT: nn.neg
// CHECK-LABEL: train.list @plain.apply of @plain "apply" ()
// CHECK: nn.neg
train.arena @g gradient {
  train.slice @w : tensor<4xf32>
}
train.step @plain(%x: tensor<4xf32>) {
  train.write %x to @g::@w : tensor<4xf32>
  %s = nn.reduce sum %x dims [0] : tensor<4xf32>
  train.window_end
  %r = train.read @g::@w : tensor<4xf32>
  %n = nn.neg %r : tensor<4xf32>
  train.write %n to @g::@w : tensor<4xf32>
  train.yield loss(%s) : tensor<f32>
}

// -----

// What ends every micro-step is a list of its own, which is no part of the others.
// CHECK-LABEL: train.list @each.first of @each "first"
// CHECK-NOT: nn.exp
// CHECK-LABEL: train.list @each.next of @each "next"
// CHECK-NOT: nn.exp
// CHECK-LABEL: train.list @each.merge of @each "merge" ()
// CHECK-NEXT: train.read @g
// CHECK-NEXT: nn.exp
// CHECK-NEXT: train.write
// CHECK-NEXT: train.return
// CHECK-LABEL: train.list @each.apply of @each "apply" ()
// CHECK-NOT: nn.exp
train.arena @g gradient {
  train.slice @w : tensor<4xf32>
}
train.step @each(%x: tensor<4xf32>) accumulate(2) {
  train.write %x to @g::@w : tensor<4xf32>
  %s = nn.reduce sum %x dims [0] : tensor<4xf32>
  train.micro_end
  %r = train.read @g : tensor<4xf32>
  %e = nn.exp %r : tensor<4xf32>
  train.write %e to @g : tensor<4xf32>
  %due = train.window_end
  scf.if %due {
    %m = train.read @g : tensor<4xf32>
    %n = nn.neg %m : tensor<4xf32>
    train.write %n to @g : tensor<4xf32>
  }
  train.yield loss(%s) : tensor<f32>
}

// -----

// Clean-ups move constants out of the conditional region: a list has its own of what it uses.
// CHECK-LABEL: train.list @moved.apply
// CHECK: %[[TWO:.*]] = nn.constant
// CHECK-NEXT: %[[FOUR:.*]] = nn.add %[[TWO]], %[[TWO]]
// CHECK: nn.mul %{{.*}}, %[[FOUR]]
// CHECK-NOT: nn.neg
// CHECK: train.return
train.arena @g gradient {
  train.slice @w : tensor<4xf32>
}
train.step @moved(%x: tensor<4xf32>) accumulate(2) {
  %two = nn.constant dense<2.0> : tensor<4xf32>
  %four = nn.add %two, %two : tensor<4xf32>, tensor<4xf32>
  %n = nn.neg %four : tensor<4xf32>
  train.accumulate %n into @g::@w : tensor<4xf32>
  %s = nn.reduce sum %x dims [0] : tensor<4xf32>
  %due = train.window_end
  scf.if %due {
    %r = train.read @g::@w : tensor<4xf32>
    %m = nn.mul %r, %four : tensor<4xf32>, tensor<4xf32>
    train.write %m to @g::@w : tensor<4xf32>
  }
  train.yield loss(%s) : tensor<f32>
}
