// RUN: trainc-opt %s --train-differentiate --split-input-file | FileCheck %s

// Two uses of a parameter are two contributions; a frozen one has no gradient.
// CHECK-LABEL: train.step @step
// CHECK: %[[W:.*]] = train.read @w
// CHECK: %[[C:.*]] = train.read @c
// CHECK: %[[SEED:.*]] = train.seed 1.000000e+00 : tensor<f32>
// CHECK: %[[R:.*]] = nn.reshape %[[SEED]]
// CHECK: %[[G:.*]] = nn.broadcast %[[R]]
// CHECK: nn.mul %[[G]], %[[C]]
// CHECK: train.store_gradient %{{.*}}, %{{.*}} into @w : tensor<4xf32>, tensor<4xf32>
// CHECK-NOT: train.store_gradient
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4xf32> init(ones) optimizer(@o)
train.param @c : tensor<4xf32> init(ones) frozen
train.step @step(%x: tensor<4xf32>) {
  %w = train.read @w : tensor<4xf32>
  %c = train.read @c : tensor<4xf32>
  %m = nn.mul %w, %c : tensor<4xf32>, tensor<4xf32>
  %a = nn.add %m, %w : tensor<4xf32>, tensor<4xf32>
  %s = nn.reduce sum %a dims [0] : tensor<4xf32>
  train.yield loss(%s) : tensor<f32>
}

// -----

// It does nothing to a step that stores gradients already.
// CHECK-LABEL: train.step @update
// CHECK-NOT: train.seed
// CHECK: train.store_gradient %x into @w : tensor<4xf32>
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4xf32> init(ones) optimizer(@o)
train.step @update(%x: tensor<4xf32>) {
  train.store_gradient %x into @w : tensor<4xf32>
  %s = nn.reduce sum %x dims [0] : tensor<4xf32>
  train.yield loss(%s) : tensor<f32>
}

// -----

// The stride of a dimension of which one element is taken leaves no gaps.
// CHECK-LABEL: train.step @slice
// CHECK: nn.pad %{{.*}} low [0, 1] high [0, 2] interior [1, 0] value
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<3x4xf32> init(ones) optimizer(@o)
train.step @slice() {
  %w = train.read @w : tensor<3x4xf32>
  %a = nn.slice %w offsets [0, 1] sizes [2, 1] strides [2, 4611686018427387904] : tensor<3x4xf32>
  %s = nn.reduce sum %a dims [0, 1] : tensor<2x1xf32>
  train.yield loss(%s) : tensor<f32>
}

// -----

// Loss and gradients of a loss head are computed at once, where the loss was; the count, on which the
// gradient may depend, is computed before.
// CHECK-LABEL: train.step @head
// CHECK: %[[N:.*]] = nn.reduce sum
// CHECK: %[[SEED:.*]] = train.seed
// CHECK: %[[G:.*]] = nn.div %[[SEED]], %[[N]]
// CHECK: %[[L:.*]], %{{.*}}, %{{.*}}, %[[D:.*]], %{{.*}} = nn.linear_cross_entropy_grad %x, %{{.*}}, %y grad %[[G]]
// CHECK-NOT: nn.linear_cross_entropy %
// CHECK: %[[M:.*]] = nn.div %[[L]], %[[N]]
// CHECK: train.store_gradient %[[D]] into @w
// CHECK: train.yield loss(%[[M]])
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4x16xf32> init(ones) optimizer(@o)
train.step @head(%x: tensor<8x4xf32>, %y: tensor<8xi32>) {
  %w = train.read @w : tensor<4x16xf32>
  %l, %n = nn.linear_cross_entropy %x, %w, %y : tensor<8x4xf32>, tensor<4x16xf32>, tensor<8xi32>
  %m = nn.div %l, %n : tensor<f32>, tensor<f32>
  train.yield loss(%m) : tensor<f32>
}

// -----

// A gradient that depends on the loss comes after it: the logits are computed twice.
// CHECK-LABEL: train.step @square
// CHECK: %[[L:.*]], %{{.*}} = nn.linear_cross_entropy %x
// CHECK: nn.linear_cross_entropy_grad %x
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4x16xf32> init(ones) optimizer(@o)
train.step @square(%x: tensor<8x4xf32>, %y: tensor<8xi32>) {
  %w = train.read @w : tensor<4x16xf32>
  %l, %n = nn.linear_cross_entropy %x, %w, %y : tensor<8x4xf32>, tensor<4x16xf32>, tensor<8xi32>
  %m = nn.mul %l, %l : tensor<f32>, tensor<f32>
  train.yield loss(%m) : tensor<f32>
}

// -----

// What adds to the gradient of a parameter that is read in a narrower type is not rounded to that
// type: each product is widened, and a sum in f32 stays as it is.
// CHECK-LABEL: train.step @narrow
// CHECK: %[[P:.*]] = nn.matmul %{{.*}} : tensor<8x16xbf16>, tensor<8x4xbf16>
// CHECK: %[[E:.*]] = nn.embedding_grad %y, %{{.*}} to tensor<16x4xf32>
// CHECK-NOT: nn.cast %[[E]]
// CHECK: %[[W:.*]] = nn.cast %[[P]] to f32
// CHECK: train.store_gradient %[[W]], %[[E]] into @w
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<16x4xf32> init(ones) optimizer(@o)
train.step @narrow(%y: tensor<8xi32>) {
  %w = train.read @w : tensor<16x4xf32>
  %c = nn.cast %w to bf16 : tensor<16x4xf32>
  %e = nn.embedding %c, %y : tensor<16x4xbf16>, tensor<8xi32>
  %p = nn.matmul %e, %c transpose_rhs : tensor<8x4xbf16>, tensor<16x4xbf16>
  %s = nn.reduce sum %p dims [0, 1] : tensor<8x16xbf16>
  %l = nn.cast %s to f32 : tensor<bf16>
  train.yield loss(%l) : tensor<f32>
}

// -----

// Nor to the type in which it is stored: what is f32, of a cast or only rounded, stays f32.
// CHECK-LABEL: train.step @stored
// CHECK: train.seed
// CHECK: %[[P:.*]] = nn.matmul %{{.*}} transpose_lhs : tensor<8x16xf32>, tensor<8x4xf32>
// CHECK: %[[E:.*]] = nn.embedding_grad %y, %{{.*}} to tensor<16x4xf32>
// CHECK-NEXT: train.store_gradient %[[P]], %[[E]] into @w : tensor<16x4xf32>, tensor<16x4xf32>
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<16x4xbf16> init(ones) optimizer(@o)
train.step @stored(%y: tensor<8xi32>) {
  %w = train.read @w : tensor<16x4xbf16>
  %e = nn.embedding %w, %y : tensor<16x4xbf16>, tensor<8xi32>
  %f = nn.cast %e to f32 : tensor<8x4xbf16>
  %c = nn.cast %w to f32 : tensor<16x4xbf16>
  %p = nn.matmul %f, %c transpose_rhs : tensor<8x4xf32>, tensor<16x4xf32>
  %l = nn.reduce sum %p dims [0, 1] : tensor<8x16xf32>
  train.yield loss(%l) : tensor<f32>
}

// -----

// The rounded gradient has another use, which is built after the cast: it stays.
// CHECK-LABEL: train.step @shared
// CHECK: %[[G:.*]] = nn.broadcast %{{.*}} to tensor<8x4xf32>
// CHECK: train.store_gradient %[[G]] into @b
// CHECK: %[[R:.*]] = nn.cast %[[G]] to bf16
// CHECK: nn.matmul %{{.*}}, %[[R]] transpose_lhs
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<16x4xf32> init(ones) optimizer(@o)
train.param @b : tensor<8x4xf32> init(ones) optimizer(@o)
train.step @shared(%x: tensor<8x16xbf16>) {
  %w = train.read @w : tensor<16x4xf32>
  %c = nn.cast %w to bf16 : tensor<16x4xf32>
  %p = nn.matmul %x, %c : tensor<8x16xbf16>, tensor<16x4xbf16>
  %b = train.read @b : tensor<8x4xf32>
  %d = nn.cast %b to bf16 : tensor<8x4xf32>
  %a = nn.add %d, %p : tensor<8x4xbf16>, tensor<8x4xbf16>
  %f = nn.cast %a to f32 : tensor<8x4xbf16>
  %l = nn.reduce sum %f dims [0, 1] : tensor<8x4xf32>
  train.yield loss(%l) : tensor<f32>
}

// -----

// Behind nn.stop_gradient an op needs no gradient.
// CHECK-LABEL: train.step @stopped
// CHECK: nn.map
// CHECK-NOT: nn.map
// CHECK: train.store_gradient %{{.*}} into @w
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4xf32> init(ones) optimizer(@o)
train.step @stopped(%x: tensor<4xf32>) {
  %w = train.read @w : tensor<4xf32>
  %a = nn.mul %x, %w : tensor<4xf32>, tensor<4xf32>
  %s = nn.stop_gradient %a : tensor<4xf32>
  %g = nn.map(%s) : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%b: f32):
    %c = math.absf %b : f32
    nn.yield %c : f32
  }
  %q = nn.mul %a, %g : tensor<4xf32>, tensor<4xf32>
  %l = nn.reduce sum %q dims [0] : tensor<4xf32>
  train.yield loss(%l) : tensor<f32>
}

// -----

// A read behind a write is the value written, and passes its gradient; one before it is a leaf.
// CHECK-LABEL: train.step @written
// CHECK: %[[W:.*]] = train.read @w
// CHECK: %[[OLD:.*]] = train.read @g
// CHECK: %[[M:.*]] = nn.mul %[[W]], %[[OLD]]
// CHECK: train.write %[[M]] to @g
// CHECK-NOT: train.read
// CHECK: nn.mul %[[M]], %[[W]]
// CHECK: train.store_gradient %{{.*}}, %{{.*}} into @w
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4xf32> init(ones) optimizer(@o)
train.buffer @g : tensor<4xf32> init(ones)
train.step @written() {
  %w = train.read @w : tensor<4xf32>
  %old = train.read @g : tensor<4xf32>
  %m = nn.mul %w, %old : tensor<4xf32>, tensor<4xf32>
  train.write %m to @g : tensor<4xf32>
  %p = train.recompute -> tensor<4xf32> {
    %new = train.read @g : tensor<4xf32>
    %q = nn.mul %new, %w : tensor<4xf32>, tensor<4xf32>
    train.yield %q : tensor<4xf32>
  }
  %l = nn.reduce sum %p dims [0] : tensor<4xf32>
  train.yield loss(%l) : tensor<f32>
}
