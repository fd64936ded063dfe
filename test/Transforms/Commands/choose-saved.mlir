// RUN: trainc-opt %s --train-choose-saved --split-input-file | FileCheck %s
// RUN: trainc-opt %s --train-choose-saved --split-input-file --verify-roundtrip > /dev/null
// RUN: trainc-opt %s --train-choose-saved --split-input-file --remarks-filter=train-choose-saved 2>&1 | FileCheck %s --check-prefix=REMARK
// RUN: trainc-opt %s --train-choose-saved --train-form-kernels --split-input-file | FileCheck %s --check-prefix=KERNELS

// Of x tanh(x) + exp(x) the backward pass reads tanh and exp: x alone is kept. One kernel of the backward pass computes both
// again.
// REMARK: remark: [Passed] ChosenSaved | Category:train-choose-saved | BytesNotKept=524288, ComputedAgain=2, List=pointwise
// CHECK-LABEL: train.list @pointwise
// CHECK: %[[TANH:.*]] = nn.tanh %[[X:.*]] :
// CHECK: nn.reduce sum
// CHECK: %[[KEPT:.*]] = train.barrier %[[X]] : tensor<256x512xf32>
// CHECK: %[[AGAIN:.*]] = nn.tanh %[[KEPT]]
// CHECK: nn.mul %{{.*}}, %[[AGAIN]]
// CHECK: %[[EXP:.*]] = nn.exp %[[KEPT]]
// CHECK: nn.mul %{{.*}}, %[[EXP]]
// CHECK-NOT: nn.tanh
// KERNELS-LABEL: train.list @pointwise
// KERNELS: train.launch @k{{.*}}tanh{{.*}} : (tensor<256x512xf32>) -> tensor<
// KERNELS-NOT: train.barrier
// KERNELS: train.launch @k{{.*}} : (tensor<256x512xf32>, tensor<256x512xf32>) -> tensor<256x512xf32>
train.arena @arena.scalars scalars {
  train.slice @loss : tensor<f32>
}
train.arena @arena.grad.f32 gradient {
  train.slice @w : tensor<512x512xf32>
}
train.list @pointwise of @step "first" (%a: tensor<256x512xf32>, %w: tensor<512x512xf32>) {
  %x = nn.matmul %a, %w : tensor<256x512xf32>, tensor<512x512xf32>
  %0 = nn.tanh %x : tensor<256x512xf32>
  %1 = nn.exp %x : tensor<256x512xf32>
  %2 = nn.mul %x, %0 : tensor<256x512xf32>, tensor<256x512xf32>
  %3 = nn.add %2, %1 : tensor<256x512xf32>, tensor<256x512xf32>
  %4 = nn.reduce sum %3 dims [0, 1] : tensor<256x512xf32>
  train.write %4 to @arena.scalars::@loss : tensor<f32>
  %5 = nn.matmul %a, %w transpose_rhs : tensor<256x512xf32>, tensor<512x512xf32>
  %6 = nn.mul %5, %0 : tensor<256x512xf32>, tensor<256x512xf32>
  %7 = nn.mul %5, %1 : tensor<256x512xf32>, tensor<256x512xf32>
  %8 = nn.add %6, %7 : tensor<256x512xf32>, tensor<256x512xf32>
  %9 = nn.matmul %a, %8 transpose_lhs : tensor<256x512xf32>, tensor<256x512xf32>
  train.write %9 to @arena.grad.f32::@w : tensor<512x512xf32>
  train.return
}

// -----

// What a product of the backward pass reads is in memory: it is not computed again for the others.
// CHECK-LABEL: train.list @product
// CHECK-NOT: train.barrier
// CHECK: nn.mul %{{.*}}, %[[TANH:.*]] : tensor<256x512xf32>, tensor<256x512xf32>
// CHECK-NOT: nn.tanh
// CHECK-NOT: train.barrier
train.arena @arena.scalars scalars {
  train.slice @loss : tensor<f32>
}
train.arena @arena.grad.f32 gradient {
  train.slice @w : tensor<512x512xf32>
  train.slice @v : tensor<512x512xf32>
}
train.list @product of @step "first" (%a: tensor<256x512xf32>, %w: tensor<512x512xf32>, %dy: tensor<256x512xf32>) {
  %x = nn.matmul %a, %w : tensor<256x512xf32>, tensor<512x512xf32>
  %0 = nn.tanh %x : tensor<256x512xf32>
  %1 = nn.reduce sum %0 dims [0, 1] : tensor<256x512xf32>
  train.write %1 to @arena.scalars::@loss : tensor<f32>
  %2 = nn.matmul %0, %dy transpose_lhs : tensor<256x512xf32>, tensor<256x512xf32>
  train.write %2 to @arena.grad.f32::@v : tensor<512x512xf32>
  %3 = nn.mul %dy, %0 : tensor<256x512xf32>, tensor<256x512xf32>
  %4 = nn.matmul %a, %3 transpose_lhs : tensor<256x512xf32>, tensor<256x512xf32>
  train.write %4 to @arena.grad.f32::@w : tensor<512x512xf32>
  train.return
}

// -----

// A mask of one byte is kept rather than what it is made of, and what is made of an input costs nothing.
// CHECK-LABEL: train.list @smallest
// CHECK: %[[MASK:.*]] = nn.compare gt
// CHECK: nn.reduce sum
// CHECK-NOT: nn.compare
// CHECK: %[[IN:.*]] = train.barrier %arg0 : tensor<1024x512xf32>
// CHECK: nn.exp %[[IN]]
// CHECK: nn.select %[[MASK]]
// CHECK: train.gemm %arg0
train.arena @arena.scalars scalars {
  train.slice @loss : tensor<f32>
}
train.arena @arena.grad.f32 gradient {
  train.slice @w : tensor<512x512xf32>
}
train.list @smallest of @step "first" (%a: tensor<1024x512xf32>, %w: tensor<512x512xf32>, %zero: tensor<f32>) {
  %x = nn.matmul %a, %w : tensor<1024x512xf32>, tensor<512x512xf32>
  %0 = nn.compare gt %x, %zero : tensor<1024x512xf32>, tensor<f32>
  %1 = nn.exp %a : tensor<1024x512xf32>
  %2 = nn.select %0, %1, %zero : tensor<1024x512xi1>, tensor<1024x512xf32>, tensor<f32>
  %3 = nn.reduce sum %2 dims [0, 1] : tensor<1024x512xf32>
  train.write %3 to @arena.scalars::@loss : tensor<f32>
  %dy = nn.matmul %a, %w transpose_rhs : tensor<1024x512xf32>, tensor<512x512xf32>
  %4 = nn.mul %dy, %1 : tensor<1024x512xf32>, tensor<1024x512xf32>
  %5 = nn.select %0, %4, %zero : tensor<1024x512xi1>, tensor<1024x512xf32>, tensor<f32>
  %6 = nn.matmul %a, %5 transpose_lhs : tensor<1024x512xf32>, tensor<1024x512xf32>
  train.write %6 to @arena.grad.f32::@w : tensor<512x512xf32>
  train.return
}

// -----

// Does nothing to values that stay in a cache, and without a backward pass.
// CHECK-LABEL: train.list @cached
// CHECK-NOT: train.barrier
// CHECK-LABEL: train.list @eval
// CHECK-NOT: train.barrier
train.arena @arena.scalars scalars {
  train.slice @loss : tensor<f32>
}
train.arena @arena.grad.f32 gradient {
  train.slice @w : tensor<64x64xf32>
}
train.list @cached of @step "first" (%a: tensor<64x64xf32>, %seed: tensor<f32>) {
  %0 = nn.tanh %a : tensor<64x64xf32>
  %1 = nn.reduce sum %0 dims [0, 1] : tensor<64x64xf32>
  train.write %1 to @arena.scalars::@loss : tensor<f32>
  %2 = nn.mul %seed, %0 : tensor<f32>, tensor<64x64xf32>
  train.write %2 to @arena.grad.f32::@w : tensor<64x64xf32>
  train.return
}
train.list @eval of @eval "first" (%a: tensor<1024x512xf32>) {
  %0 = nn.exp %a : tensor<1024x512xf32>
  %1 = nn.mul %0, %0 : tensor<1024x512xf32>, tensor<1024x512xf32>
  %2 = nn.add %0, %1 : tensor<1024x512xf32>, tensor<1024x512xf32>
  train.return %2 : tensor<1024x512xf32>
}

// -----

// A gradient's rule makes the normalized rows again, of x in 16 bits: x is kept, not they in f32. What waits for no gradient is
// made where the forward pass makes the same.
// REMARK: remark: [Passed] ChosenSaved | Category:train-choose-saved | BytesNotKept=524288, ComputedAgain=2, List=rule
// CHECK-LABEL: train.list @rule
// CHECK: nn.exp
// CHECK: nn.reduce sum
// CHECK-NOT: nn.exp
// CHECK: train.barrier %{{.*}} : tensor<256x512xbf16>
// CHECK: nn.exp
train.arena @arena.scalars scalars {
  train.slice @loss : tensor<f32>
}
train.arena @arena.grad.f32 gradient {
  train.slice @w : tensor<512x512xf32>
}
train.list @rule of @step "first" (%a: tensor<256x512xbf16>, %w: tensor<512x512xbf16>) {
  %x = nn.matmul %a, %w : tensor<256x512xbf16>, tensor<512x512xbf16>
  %0 = nn.cast %x to f32 : tensor<256x512xbf16>
  %1 = nn.exp %0 : tensor<256x512xf32>
  %2 = nn.reduce sum %1 dims [0, 1] : tensor<256x512xf32>
  train.write %2 to @arena.scalars::@loss : tensor<f32>
  %3 = nn.cast %x to f32 : tensor<256x512xbf16>
  %4 = nn.exp %3 : tensor<256x512xf32>
  %dy = nn.matmul %a, %w transpose_rhs : tensor<256x512xbf16>, tensor<512x512xbf16>
  %5 = nn.cast %dy to f32 unrounded : tensor<256x512xbf16>
  %6 = nn.mul %5, %4 : tensor<256x512xf32>, tensor<256x512xf32>
  %7 = nn.cast %6 to bf16 : tensor<256x512xf32>
  %8 = nn.matmul %a, %7 transpose_lhs : tensor<256x512xbf16>, tensor<256x512xbf16>
  %9 = nn.cast %8 to f32 unrounded : tensor<512x512xbf16>
  train.write %9 to @arena.grad.f32::@w : tensor<512x512xf32>
  train.return
}

// -----

// What is summed over ranks in every micro-step is a gradient, too: what makes it is not of the forward pass.
// REMARK: remark: [Passed] ChosenSaved | Category:train-choose-saved | BytesNotKept=524288, ComputedAgain=2, List=summed
// CHECK-LABEL: train.list @summed
// CHECK: %[[TANH:.*]] = nn.tanh %[[X:.*]] :
// CHECK: nn.reduce sum
// CHECK: %[[KEPT:.*]] = train.barrier %[[X]] : tensor<256x512xf32>
// CHECK: %[[AGAIN:.*]] = nn.tanh %[[KEPT]]
// CHECK: nn.mul %{{.*}}, %[[AGAIN]]
// CHECK: %[[EXP:.*]] = nn.exp %[[KEPT]]
// CHECK: nn.mul %{{.*}}, %[[EXP]]
// CHECK-NOT: nn.tanh
train.arena @arena.scalars scalars {
  train.slice @loss : tensor<f32>
}
train.arena @arena.merged.f32 merged {
  train.slice @w : tensor<512x512xf32>
}
train.list @summed of @step "first" (%a: tensor<256x512xf32>, %w: tensor<512x512xf32>) {
  %x = nn.matmul %a, %w : tensor<256x512xf32>, tensor<512x512xf32>
  %0 = nn.tanh %x : tensor<256x512xf32>
  %1 = nn.exp %x : tensor<256x512xf32>
  %2 = nn.mul %x, %0 : tensor<256x512xf32>, tensor<256x512xf32>
  %3 = nn.add %2, %1 : tensor<256x512xf32>, tensor<256x512xf32>
  %4 = nn.reduce sum %3 dims [0, 1] : tensor<256x512xf32>
  train.write %4 to @arena.scalars::@loss : tensor<f32>
  %5 = nn.matmul %a, %w transpose_rhs : tensor<256x512xf32>, tensor<512x512xf32>
  %6 = nn.mul %5, %0 : tensor<256x512xf32>, tensor<256x512xf32>
  %7 = nn.mul %5, %1 : tensor<256x512xf32>, tensor<256x512xf32>
  %8 = nn.add %6, %7 : tensor<256x512xf32>, tensor<256x512xf32>
  %9 = nn.matmul %a, %8 transpose_lhs : tensor<256x512xf32>, tensor<256x512xf32>
  %10 = train.read @arena.merged.f32::@w : tensor<512x512xf32>
  %11 = nn.add %10, %9 : tensor<512x512xf32>, tensor<512x512xf32>
  train.write %11 to @arena.merged.f32::@w : tensor<512x512xf32>
  train.return
}
