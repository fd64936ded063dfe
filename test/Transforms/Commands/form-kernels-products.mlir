// RUN: trainc-opt %s --train-form-kernels --split-input-file | FileCheck %s

// A product in bf16 that an unrounded cast takes is one GEMM with an f32 result, also where it is added to
// a slice, or moved; what else takes it has it rounded, as another cast has.
// CHECK-LABEL: train.list @first
// CHECK: %[[W:.*]] = train.gemm %{{.*}} : tensor<4x2xbf16>, tensor<2x3xbf16> -> tensor<4x3xf32>
// CHECK: %[[R:.*]] = train.read @arena.grad.f32::@v
// CHECK: %[[V:.*]] = train.gemm %{{.*}} init %[[R]] {{.*}} : tensor<4x2xbf16>, tensor<2x3xbf16> init tensor<4x3xf32> -> tensor<4x3xf32>
// CHECK: %[[M:.*]] = train.gemm %{{.*}} -> tensor<4x3xf32>
// CHECK: %[[ROUNDED:.*]] = train.launch @k_cast(%[[M]]) : (tensor<4x3xf32>) -> tensor<4x3xbf16>
// CHECK: %[[MOVED:.*]] = nn.reshape %[[M]]
// CHECK: train.gemm %{{.*}} -> tensor<4x3xbf16>
// CHECK: train.write %[[W]] to @arena.grad.f32::@w
// CHECK: train.write %[[V]] to @arena.grad.f32::@v
// CHECK: train.write %[[MOVED]] to @arena.grad.f32::@r
// CHECK: train.write %[[ROUNDED]] to @arena.grad.f32::@m
train.arena @arena.grad.f32 gradient {
  train.slice @w : tensor<4x3xf32>
  train.slice @v : tensor<4x3xf32>
  train.slice @u : tensor<4x3xf32>
  train.slice @s : tensor<4x3xbf16>
  train.slice @r : tensor<3x4xf32>
  train.slice @m : tensor<4x3xbf16>
}
train.step @step(%x: tensor<4x2xbf16>, %y: tensor<2x3xbf16>) {
  %l = nn.constant dense<0.0> : tensor<f32>
  train.yield loss(%l) : tensor<f32>
}
train.list @first of @step "first" (%x: tensor<4x2xbf16>, %y: tensor<2x3xbf16>) {
  %a = nn.matmul %x, %y : tensor<4x2xbf16>, tensor<2x3xbf16>
  %w = nn.cast %a to f32 unrounded : tensor<4x3xbf16>
  train.write %w to @arena.grad.f32::@w : tensor<4x3xf32>
  %old = train.read @arena.grad.f32::@v : tensor<4x3xf32>
  %b = nn.matmul %x, %y : tensor<4x2xbf16>, tensor<2x3xbf16>
  %b32 = nn.cast %b to f32 unrounded : tensor<4x3xbf16>
  %v = nn.add %old, %b32 : tensor<4x3xf32>, tensor<4x3xf32>
  train.write %v to @arena.grad.f32::@v : tensor<4x3xf32>
  %m = nn.matmul %x, %y : tensor<4x2xbf16>, tensor<2x3xbf16>
  %r = nn.reshape %m : tensor<4x3xbf16> to tensor<3x4xbf16>
  %r32 = nn.cast %r to f32 unrounded : tensor<3x4xbf16>
  train.write %r32 to @arena.grad.f32::@r : tensor<3x4xf32>
  train.write %m to @arena.grad.f32::@m : tensor<4x3xbf16>
  %c = nn.matmul %x, %y : tensor<4x2xbf16>, tensor<2x3xbf16>
  %u = nn.cast %c to f32 : tensor<4x3xbf16>
  train.write %u to @arena.grad.f32::@u : tensor<4x3xf32>
  train.write %c to @arena.grad.f32::@s : tensor<4x3xbf16>
  train.return
}

// -----

// Casts there and back are no other type: the product is rounded, as it is where
// they were folded before.
// CHECK-LABEL: train.list @back
// CHECK: train.gemm %{{.*}} -> tensor<4x3xf16>
// CHECK: train.launch @k_sigmoid
train.arena @g gradient {
  train.slice @w : tensor<4x3xf32>
}
train.step @step(%x: tensor<4x2xf16>, %y: tensor<2x3xf16>) {
  %l = nn.constant dense<0.0> : tensor<f32>
  train.yield loss(%l) : tensor<f32>
}
train.list @back of @step "first" (%x: tensor<4x2xf16>, %y: tensor<2x3xf16>) {
  %p = nn.matmul %x, %y : tensor<4x2xf16>, tensor<2x3xf16>
  %a = nn.cast %p to f32 : tensor<4x3xf16>
  %b = nn.cast %a to f16 : tensor<4x3xf32>
  %c = nn.sigmoid %b : tensor<4x3xf16>
  %d = nn.cast %c to f32 : tensor<4x3xf16>
  train.write %d to @g::@w : tensor<4x3xf32>
  train.return
}

// -----

// The gradient of a tied embedding is added in place to the product's, which is
// added in place to the slice.
// CHECK-LABEL: train.list @next
// CHECK: %[[OLD:.*]] = train.read @g::@w
// CHECK: %[[GEMM:.*]] = train.gemm %{{.*}} init %[[OLD]]
// CHECK: %[[SUM:.*]] = train.launch @k_embedding_grad(%{{.*}}, %{{.*}}, %[[GEMM]])
// CHECK: train.write %[[SUM]] to @g::@w
// CHECK-LABEL: train.kernel @k_embedding_grad
// CHECK-SAME: inplace [2]
train.arena @g gradient {
  train.slice @w : tensor<4x3xf32>
}
train.step @step(%i: tensor<5xi32>, %x: tensor<4x2xf32>, %y: tensor<2x3xf32>, %d: tensor<5x3xf32>) {
  %l = nn.constant dense<0.0> : tensor<f32>
  train.yield loss(%l) : tensor<f32>
}
train.list @next of @step "next" (%i: tensor<5xi32>, %x: tensor<4x2xf32>, %y: tensor<2x3xf32>, %d: tensor<5x3xf32>) {
  %p = nn.matmul %x, %y : tensor<4x2xf32>, tensor<2x3xf32>
  %old = train.read @g::@w : tensor<4x3xf32>
  %n = nn.add %old, %p : tensor<4x3xf32>, tensor<4x3xf32>
  %e = nn.embedding_grad %i, %d init %n : tensor<4x3xf32> : tensor<5xi32>, tensor<5x3xf32> to tensor<4x3xf32>
  train.write %e to @g::@w : tensor<4x3xf32>
  train.return
}

// -----

// A convolution that is only widened is not rounded before, and what is added to a slice adds in place.
// CHECK-LABEL: train.list @convolution
// CHECK: train.convolution forward {{.*}} : tensor<8x4x9x9xbf16>, tensor<6x4x3x3xbf16> -> tensor<8x6x7x7xf32>
// CHECK: %[[OLD:.*]] = train.read @g::@w
// CHECK: %[[SUM:.*]] = train.convolution weight_gradient %{{.*}}, %{{.*}} init %[[OLD]] {{.*}} : tensor<8x4x9x9xbf16>, tensor<8x6x7x7xbf16> init tensor<6x4x3x3xf32> -> tensor<6x4x3x3xf32>
// CHECK: train.write %[[SUM]] to @g::@w
train.arena @g gradient {
  train.slice @w : tensor<6x4x3x3xf32>
}
train.list @convolution of @e "next" (%x: tensor<8x4x9x9xbf16>, %v: tensor<6x4x3x3xbf16>, %d: tensor<8x6x7x7xbf16>) {
  %y = train.convolution forward %x, %v strides [1, 1] padding [0, 0, 0, 0] dilations [1, 1] groups 1 : tensor<8x4x9x9xbf16>, tensor<6x4x3x3xbf16> -> tensor<8x6x7x7xbf16>
  %z = nn.cast %y to f32 unrounded : tensor<8x6x7x7xbf16>
  %dw = train.convolution weight_gradient %x, %d strides [1, 1] padding [0, 0, 0, 0] dilations [1, 1] groups 1 : tensor<8x4x9x9xbf16>, tensor<8x6x7x7xbf16> -> tensor<6x4x3x3xbf16>
  %wide = nn.cast %dw to f32 unrounded : tensor<6x4x3x3xbf16>
  %old = train.read @g::@w : tensor<6x4x3x3xf32>
  %sum = nn.add %old, %wide : tensor<6x4x3x3xf32>, tensor<6x4x3x3xf32>
  train.write %sum to @g::@w : tensor<6x4x3x3xf32>
  train.return %z : tensor<8x6x7x7xf32>
}

// -----

// Products that are added up in a slice add to it one after the other, each where it stood. Parts of
// rows are views, and products that are joined are made where they stand in the whole.
// CHECK-LABEL: train.list @chunks
// CHECK: %[[OLD:.*]] = train.read @g::@w
// CHECK: %[[X:.*]] = nn.reshape %arg0
// CHECK: %[[A:.*]] = train.view %[[X]] from 0 : tensor<128xf32> -> tensor<32x2xf32>
// CHECK: %[[P:.*]] = train.gemm %[[A]], %arg1
// CHECK: %[[G:.*]] = train.gemm %[[A]], %arg2 init %[[OLD]]
// CHECK: %[[B:.*]] = train.view %{{.*}} from 64 : tensor<128xf32> -> tensor<32x2xf32>
// CHECK: %[[Q:.*]] = train.gemm %[[B]], %arg1
// CHECK: %[[H:.*]] = train.gemm %[[B]], %arg2 init %[[G]]
// CHECK: %[[F:.*]] = train.flatten %[[P]], %[[Q]] at [0, 128] : tensor<32x4xf32>, tensor<32x4xf32> -> tensor<256xf32>
// CHECK: train.write %[[H]] to @g::@w
// CHECK-NOT: @k_slice
train.arena @g gradient {
  train.slice @w : tensor<2x4xf32>
}
train.step @step(%x: tensor<64x2xf32>, %y: tensor<2x4xf32>, %z: tensor<32x4xf32>) {
  %l = nn.constant dense<0.0> : tensor<f32>
  train.yield loss(%l) : tensor<f32>
}
train.list @chunks of @step "next" (%x: tensor<64x2xf32>, %y: tensor<2x4xf32>, %z: tensor<32x4xf32>) {
  %a = nn.slice %x offsets [0, 0] sizes [32, 2] : tensor<64x2xf32>
  %p = nn.matmul %a, %y : tensor<32x2xf32>, tensor<2x4xf32>
  %c = nn.matmul %a, %z transpose_lhs : tensor<32x2xf32>, tensor<32x4xf32>
  %b = nn.slice %x offsets [32, 0] sizes [32, 2] : tensor<64x2xf32>
  %q = nn.matmul %b, %y : tensor<32x2xf32>, tensor<2x4xf32>
  %d = nn.matmul %b, %z transpose_lhs : tensor<32x2xf32>, tensor<32x4xf32>
  %sum = nn.add %c, %d : tensor<2x4xf32>, tensor<2x4xf32>
  %joined = nn.concat %p, %q dim 0 : tensor<32x4xf32>, tensor<32x4xf32>
  %t = nn.tanh %joined : tensor<64x4xf32>
  %old = train.read @g::@w : tensor<2x4xf32>
  %new = nn.add %old, %sum : tensor<2x4xf32>, tensor<2x4xf32>
  train.write %new to @g::@w : tensor<2x4xf32>
  train.return %t : tensor<64x4xf32>
}

// -----

// Parts that are no run of elements, or do not begin where buffers may, and joined values that are no
// products, are kernels; products that something else uses are added by one.
// CHECK-LABEL: train.list @apart
// CHECK-NOT: train.view
// CHECK-NOT: train.flatten
// CHECK-NOT: init
train.arena @g gradient {
  train.slice @w : tensor<4x4xf32>
}
train.step @step(%x: tensor<8x4xf32>, %y: tensor<4x4xf32>) {
  %l = nn.constant dense<0.0> : tensor<f32>
  train.yield loss(%l) : tensor<f32>
}
train.list @apart of @step "first" (%x: tensor<8x4xf32>, %y: tensor<4x4xf32>) {
  %a = nn.slice %x offsets [0, 0] sizes [8, 2] : tensor<8x4xf32>
  %b = nn.slice %x offsets [1, 0] sizes [4, 4] : tensor<8x4xf32>
  %p = nn.matmul %b, %y : tensor<4x4xf32>, tensor<4x4xf32>
  %q = nn.matmul %y, %y : tensor<4x4xf32>, tensor<4x4xf32>
  %t = nn.tanh %q : tensor<4x4xf32>
  %sum = nn.add %p, %q : tensor<4x4xf32>, tensor<4x4xf32>
  train.write %sum to @g::@w : tensor<4x4xf32>
  %j = nn.concat %t, %y dim 0 : tensor<4x4xf32>, tensor<4x4xf32>
  %e = nn.exp %j : tensor<8x4xf32>
  %f = nn.exp %a : tensor<8x2xf32>
  train.return %e, %f : tensor<8x4xf32>, tensor<8x2xf32>
}

// -----

// The first columns of all rows are read where they stand, as an operand; other slices are made.
// CHECK-LABEL: train.list @columns
// CHECK: train.gemm %arg0, %arg1 m 6 n 3 k 4 batch 1 transpose_lhs : tensor<4x8xf32>, tensor<4x3xf32> -> tensor<6x3xf32>
// CHECK: %[[S:.*]] = train.launch @k_slice
// CHECK: train.gemm %[[S]], %arg1 m 6 n 3 k 4
train.list @columns of @step "first" (%x: tensor<4x8xf32>, %y: tensor<4x3xf32>) {
  %0 = nn.slice %x offsets [0, 0] sizes [4, 6] : tensor<4x8xf32>
  %1 = nn.matmul %0, %y transpose_lhs : tensor<4x6xf32>, tensor<4x3xf32>
  %2 = nn.slice %x offsets [0, 2] sizes [4, 6] : tensor<4x8xf32>
  %3 = nn.matmul %2, %y transpose_lhs : tensor<4x6xf32>, tensor<4x3xf32>
  train.return %1, %3 : tensor<6x3xf32>, tensor<6x3xf32>
}

// -----

// Sums of products that are joined: each product adds to the one before.
// CHECK-LABEL: train.list @joined
// CHECK: %[[FIRST:.*]] = train.gemm %arg0, %arg1 m 6 n 3 k 4 batch 1 transpose_lhs
// CHECK: train.gemm %arg0, %arg2 init %[[FIRST]] m 6 n 3 k 4 batch 1 transpose_lhs
// CHECK: train.gemm %arg3, %arg1 m 2 n 3 k 4
// CHECK-NOT: nn.add
train.list @joined of @step "first" (%x: tensor<4x6xf32>, %y: tensor<4x3xf32>, %z: tensor<4x3xf32>, %w: tensor<4x2xf32>) {
  %0 = nn.matmul %x, %y transpose_lhs : tensor<4x6xf32>, tensor<4x3xf32>
  %1 = nn.matmul %x, %z transpose_lhs : tensor<4x6xf32>, tensor<4x3xf32>
  %2 = nn.add %0, %1 : tensor<6x3xf32>, tensor<6x3xf32>
  %3 = nn.matmul %w, %y transpose_lhs : tensor<4x2xf32>, tensor<4x3xf32>
  %4 = nn.concat %2, %3 dim 0 : tensor<6x3xf32>, tensor<2x3xf32>
  train.return %4 : tensor<8x3xf32>
}

// -----

// Products that are added up follow the sum, not the order in which they stand; what is read
// elsewhere, too, is not changed in place; what is needed behind a write is kept.
// CHECK-LABEL: train.list @order
// CHECK: %[[Y:.*]] = train.gemm %{{.*}}, %{{.*}} m 4 n 4 k 3 batch 1
// CHECK: %[[S:.*]] = train.gemm %{{.*}} init %[[Y]] m 4 n 4 k 2
// CHECK: %[[OLD:.*]] = train.read @b::@h
// CHECK: %[[FLAT:.*]] = nn.reshape %[[OLD]]
// CHECK: %[[KEPT:.*]] = train.flatten %[[FLAT]]
// CHECK: %[[BACK:.*]] = nn.reshape %[[KEPT]]
// CHECK-NOT: init %
// CHECK: %[[T:.*]] = train.launch @k_add(%[[OLD]], %
// CHECK: train.write %[[S]] to @b::@g
// CHECK: train.write %[[T]] to @b::@h
// CHECK: train.write %[[BACK]] to @b::@old
train.arena @b buffer {
  train.slice @g : tensor<4x4xf32>
  train.slice @h : tensor<4x4xf32>
  train.slice @old : tensor<4x4xf32>
}
train.step @step(%x: tensor<4x2xf32>, %y: tensor<4x3xf32>) {
  %l = nn.constant dense<0.0> : tensor<f32>
  train.yield loss(%l) : tensor<f32>
}
train.list @order of @step "first" (%x: tensor<4x2xf32>, %y: tensor<4x3xf32>) {
  %a = nn.matmul %x, %x transpose_rhs : tensor<4x2xf32>, tensor<4x2xf32>
  %b = nn.matmul %y, %y transpose_rhs : tensor<4x3xf32>, tensor<4x3xf32>
  %s = nn.add %b, %a : tensor<4x4xf32>, tensor<4x4xf32>
  train.write %s to @b::@g : tensor<4x4xf32>
  %h = train.read @b::@h : tensor<4x4xf32>
  %again = train.read @b::@h : tensor<4x4xf32>
  %c = nn.matmul %again, %again : tensor<4x4xf32>, tensor<4x4xf32>
  %t = nn.add %h, %c : tensor<4x4xf32>, tensor<4x4xf32>
  train.write %t to @b::@h : tensor<4x4xf32>
  train.write %h to @b::@old : tensor<4x4xf32>
  train.return
}
