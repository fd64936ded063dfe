// RUN: trainc-opt %s --nn-decompose --split-input-file | FileCheck %s
// RUN: trainc-opt %s --nn-decompose=gpu --split-input-file | FileCheck %s --check-prefix=KEEP

// CHECK-LABEL: train.list @composite
// CHECK: nn.reduce max %{{.*}} dims [1] keep : tensor<4x8xf32> order lanes
// CHECK: nn.exp
// CHECK: nn.reduce sum %{{.*}} dims [1] keep : tensor<4x8xf32> order lanes
// CHECK-NOT: nn.softmax
train.list @composite of @e "first" (%x: tensor<4x8xf32>) {
  %y = nn.softmax %x dim 1 : tensor<4x8xf32>
  train.return %y : tensor<4x8xf32>
}

// -----

// A reduction over inner and outer dimensions becomes two, which keep theirs.
// CHECK-LABEL: train.list @reduce
// CHECK: %[[I:.*]] = nn.reduce sum %{{.*}} dims [2] keep : tensor<4x5x8xf32> order lanes
// CHECK: %[[O:.*]] = nn.reduce sum %[[I]] dims [0] keep : tensor<4x5x1xf32> order sequence
// CHECK: nn.reshape %[[O]]
train.list @reduce of @e "first" (%x: tensor<4x5x8xf32>) {
  %y = nn.reduce sum %x dims [0, 2] : tensor<4x5x8xf32>
  train.return %y : tensor<5xf32>
}

// -----

// A sum of all rows goes over each batch alone first, but not on a GPU, nor over a few
// rows, nor where threads divide a dimension that is kept.
// CHECK-LABEL: train.list @rows
// CHECK: %[[B:.*]] = nn.reduce sum %{{.*}} dims [1] keep : tensor<4x16x8xf32> order sequence
// CHECK-NEXT: nn.reduce sum %[[B]] dims [0] keep : tensor<4x1x8xf32> order sequence
// CHECK: nn.reduce sum %{{.*}} dims [0, 1] keep : tensor<16x4x8xf32> order sequence
// CHECK: nn.reduce sum %{{.*}} dims [1, 2] keep : tensor<2x4x16x8xf32> order sequence
// KEEP-LABEL: train.list @rows
// KEEP: nn.reduce sum %{{.*}} dims [0, 1] keep : tensor<4x16x8xf32> order threads
train.list @rows of @e "first" (%x: tensor<4x16x8xf32>, %y: tensor<16x4x8xf32>, %z: tensor<2x4x16x8xf32>) {
  %a = nn.reduce sum %x dims [0, 1] : tensor<4x16x8xf32>
  %b = nn.reduce sum %y dims [0, 1] : tensor<16x4x8xf32>
  %c = nn.reduce sum %z dims [1, 2] : tensor<2x4x16x8xf32>
  train.return %a, %b, %c : tensor<8xf32>, tensor<8xf32>, tensor<2x8xf32>
}

// -----

// It does nothing to primitives but to order them, and nothing to ops outside of lists.
// CHECK-LABEL: train.list @primitive
// CHECK-NEXT: nn.reduce sum %{{.*}} dims [1] keep : tensor<4x8xf32> order lanes
// CHECK-NEXT: nn.reduce sum %{{.*}} dims [0] keep : tensor<4x8xf32> order sequence
// CHECK-NEXT: nn.neg
// CHECK-LABEL: train.eval @e
// CHECK-NEXT: nn.softmax
train.list @primitive of @e "first" (%x: tensor<4x8xf32>) {
  %y = nn.reduce sum %x dims [1] keep : tensor<4x8xf32>
  %s = nn.reduce sum %x dims [0] keep : tensor<4x8xf32>
  %z = nn.neg %y : tensor<4x1xf32>
  train.return %z, %s : tensor<4x1xf32>, tensor<1x8xf32>
}
train.eval @e(%x: tensor<4x8xf32>) -> ("y") {
  %y = nn.softmax %x dim 1 : tensor<4x8xf32>
  train.yield %y : tensor<4x8xf32>
}

// -----

// Convolutions of fitting sizes are kernels of their own; their bias is not in
// them, and the gradient of the weight is summed over parts of the batch.
// CHECK-LABEL: train.list @convolution
// CHECK-NEXT: %[[Y:.*]] = nn.conv2d %{{[^ ]*}}, %{{[^ ]*}} : tensor<8x4x9x9xf32>
// CHECK-NEXT: nn.reshape
// CHECK-NEXT: nn.add %[[Y]]
// CHECK-NEXT: nn.conv2d_input_grad
// CHECK-NEXT: %[[PARTS:.*]] = nn.conv2d_weight_parts {{.*}} examples 1
// CHECK-NEXT: nn.reduce sum %[[PARTS]] dims [0]
train.list @convolution of @e "first" (%x: tensor<8x4x9x9xf32>, %w: tensor<6x4x3x3xf32>, %b: tensor<6xf32>, %g: tensor<8x6x7x7xf32>) {
  %y = nn.conv2d %x, %w bias %b : tensor<8x4x9x9xf32>, tensor<6x4x3x3xf32>, tensor<6xf32>
  %dx = nn.conv2d_input_grad %w, %g : tensor<6x4x3x3xf32>, tensor<8x6x7x7xf32> to tensor<8x4x9x9xf32>
  %dw = nn.conv2d_weight_grad %x, %g : tensor<8x4x9x9xf32>, tensor<8x6x7x7xf32> to tensor<6x4x3x3xf32>
  train.return %y, %dx, %dw : tensor<8x6x7x7xf32>, tensor<8x4x9x9xf32>, tensor<6x4x3x3xf32>
}
train.eval @e(%x: tensor<4x8xf32>) -> ("y") {
  train.yield %x : tensor<4x8xf32>
}

// -----

// Others are commands: groups, strides, narrow types. GPUs have kernels for them.
// KEEP-LABEL: train.list @command
// KEEP-NEXT: nn.conv2d %{{.*}} groups 2
// KEEP-NEXT: nn.conv2d_input_grad %{{.*}} strides [2, 2]
// KEEP-NEXT: nn.conv2d %
// KEEP-NEXT: nn.conv2d_weight_grad
// KEEP-NEXT: train.return
// CHECK-LABEL: train.list @command
// CHECK-NEXT: train.convolution forward %{{.*}}, %{{.*}} strides [1, 1] padding [0, 0, 0, 0] dilations [1, 1] groups 2 : tensor<8x4x9x9xf32>
// CHECK-NEXT: train.convolution input_gradient %{{.*}}, %{{.*}} strides [2, 2] padding
// CHECK-NEXT: train.convolution forward {{.*}} : tensor<8x4x9x9xbf16>
// CHECK-NEXT: train.convolution weight_gradient {{.*}} groups 2
// CHECK-NEXT: train.return
train.list @command of @e "first" (%x: tensor<8x4x9x9xf32>, %w: tensor<6x2x3x3xf32>, %v: tensor<6x4x3x3xf32>, %g: tensor<8x6x4x4xf32>, %h: tensor<8x4x9x9xbf16>, %u: tensor<6x4x3x3xbf16>, %k: tensor<8x6x7x7xf32>) {
  %y = nn.conv2d %x, %w groups 2 : tensor<8x4x9x9xf32>, tensor<6x2x3x3xf32>
  %dx = nn.conv2d_input_grad %v, %g strides [2, 2] : tensor<6x4x3x3xf32>, tensor<8x6x4x4xf32> to tensor<8x4x9x9xf32>
  %z = nn.conv2d %h, %u : tensor<8x4x9x9xbf16>, tensor<6x4x3x3xbf16>
  %dw = nn.conv2d_weight_grad %x, %k groups 2 : tensor<8x4x9x9xf32>, tensor<8x6x7x7xf32> to tensor<6x2x3x3xf32>
  train.return %y, %dx, %z, %dw : tensor<8x6x7x7xf32>, tensor<8x4x9x9xf32>, tensor<8x6x7x7xbf16>, tensor<6x2x3x3xf32>
}
train.eval @e(%x: tensor<4x8xf32>) -> ("y") {
  train.yield %x : tensor<4x8xf32>
}

// -----

// On a GPU rows of logits are aligned: the weight has rows of zeros behind its classes, the bias the lowest number, and the gradient
// of the weight is of the classes alone, of as many as are aligned and of the others. Logits that are widened get that behind the product, which would be rounded else.
// No target is in the columns behind the classes, not the ignored one either.
// KEEP-LABEL: train.list @aligned
// KEEP: %[[W:.*]] = nn.pad %arg1 low [0, 0] high [61, 0] value 0.000000e+00 : tensor<67x8xbf16>
// KEEP: %[[END:.*]] = nn.constant dense<67>
// KEEP: %[[IN:.*]] = nn.compare lt %arg2, %[[END]]
// KEEP: %[[NONE:.*]] = nn.constant dense<-1>
// KEEP: %[[T:.*]] = nn.select %[[IN]], %arg2, %[[NONE]] : tensor<4xi1>, tensor<4xi32>, tensor<i32>
// KEEP: %[[B:.*]] = nn.pad %{{.*}} low [0] high [61] value -3.3895313892515355E+38 : tensor<67xbf16>
// KEEP: nn.matmul %arg0, %[[W]] bias %[[B]] transpose_rhs : tensor<4x8xbf16>, tensor<128x8xbf16>, tensor<128xbf16>
// KEEP: nn.reshape %[[T]] : tensor<4xi32> to tensor<4x1xi32>
// KEEP: nn.matmul %[[G:.*]], %[[W]] : tensor<4x128xbf16>, tensor<128x8xbf16>
// KEEP: %[[C:.*]] = nn.slice %[[G]] offsets [0, 0] sizes [4, 64]
// KEEP: nn.matmul %[[C]], %arg0 transpose_lhs : tensor<4x64xbf16>, tensor<4x8xbf16>
// KEEP: %[[REST:.*]] = nn.slice %[[G]] offsets [0, 64] sizes [4, 3]
// KEEP: nn.matmul %[[REST]], %arg0 transpose_lhs : tensor<4x3xbf16>, tensor<4x8xbf16>
// KEEP: nn.concat %{{.*}}, %{{.*}} dim 0 : tensor<64x8xf32>, tensor<3x8xf32>
// KEEP-LABEL: train.list @widened
// KEEP: %[[SET:.*]] = nn.constant dense<128>
// KEEP: nn.select %{{.*}}, %[[SET]], %{{.*}} : tensor<4xi1>, tensor<i32>, tensor<4xi32>
// KEEP: %[[B:.*]] = nn.pad %{{.*}} low [0] high [61] value -3.4028234663852886E+38 : tensor<67xf32>
// KEEP: %[[L:.*]] = nn.matmul
// KEEP-NOT: bias
// KEEP: %[[X:.*]] = nn.cast %[[L]] to f32 unrounded : tensor<4x128xbf16>
// KEEP: nn.add %[[X]], %[[B]]
// KEEP-LABEL: train.list @smoothed
// KEEP-NOT: nn.pad
// CHECK-LABEL: train.list @aligned
// CHECK-NOT: nn.pad
// CHECK-LABEL: train.list @chunks
train.list @aligned of @e "first" (%h: tensor<4x8xbf16>, %w: tensor<67x8xbf16>, %y: tensor<4xi32>, %g: tensor<f32>) {
  %l, %r, %dh, %dw, %db = nn.linear_cross_entropy_grad %h, %w, %y grad %g transpose_weight : tensor<4x8xbf16>, tensor<67x8xbf16>, tensor<4xi32>, tensor<f32>
  train.return %l, %dh, %dw : tensor<f32>, tensor<4x8xbf16>, tensor<67x8xf32>
}
train.list @widened of @e "next" (%h: tensor<4x8xbf16>, %w: tensor<67x8xbf16>, %y: tensor<4xi32>) {
  %l, %c = nn.linear_cross_entropy %h, %w, %y transpose_weight wide_logits {ignore_index = 70} : tensor<4x8xbf16>, tensor<67x8xbf16>, tensor<4xi32>
  train.return %l : tensor<f32>
}
train.list @smoothed of @e "apply" (%h: tensor<4x8xbf16>, %w: tensor<67x8xbf16>, %y: tensor<4xi32>) {
  %l, %c = nn.linear_cross_entropy %h, %w, %y transpose_weight {label_smoothing = 0.1} : tensor<4x8xbf16>, tensor<67x8xbf16>, tensor<4xi32>
  train.return %l : tensor<f32>
}
train.eval @e(%x: tensor<4x8xf32>) -> ("y") {
  train.yield %x : tensor<4x8xf32>
}

// -----

// A loss head over many rows goes over chunks of them; each adds its gradient of the weight.
// CHECK: %[[H0:.*]] = nn.slice %arg0 offsets [0, 0] sizes [640, 8]
// CHECK: %[[L0:.*]] = nn.matmul %[[H0]], %arg1 : tensor<640x8xf32>, tensor<8x4096xf32>
// CHECK: %[[D0:.*]] = nn.matmul %[[G0:.*]], %arg1 transpose_rhs : tensor<640x4096xf32>, tensor<8x4096xf32>
// CHECK: %[[W0:.*]] = nn.matmul %[[H0]], %[[G0]] transpose_lhs
// CHECK: %[[H1:.*]] = nn.slice %arg0 offsets [640, 0] sizes [560, 8]
// CHECK: nn.matmul %[[H1]], %arg1 : tensor<560x8xf32>, tensor<8x4096xf32>
// CHECK: %[[W1:.*]] = nn.matmul %[[H1]], %{{.*}} transpose_lhs
// CHECK: %[[W:.*]] = nn.add %[[W0]], %[[W1]]
// CHECK: %[[D:.*]] = nn.concat %[[D0]], %{{.*}} dim 0
// CHECK: train.return %{{.*}}, %[[D]], %[[W]]
train.list @chunks of @e "first" (%h: tensor<1200x8xf32>, %w: tensor<8x4096xf32>, %y: tensor<1200xi32>, %g: tensor<f32>) {
  %l, %r, %dh, %dw, %db = nn.linear_cross_entropy_grad %h, %w, %y grad %g : tensor<1200x8xf32>, tensor<8x4096xf32>, tensor<1200xi32>, tensor<f32>
  train.return %l, %dh, %dw : tensor<f32>, tensor<1200x8xf32>, tensor<8x4096xf32>
}

// -----

// Of few classes a chunk has more rows.
// KEEP-LABEL: train.list @few
// CHECK-LABEL: train.list @few
// CHECK-COUNT-8: nn.matmul %{{.*}}, %arg1 : tensor<524288x4xf32>, tensor<4x2xf32>
// CHECK-NOT: nn.matmul
// CHECK: train.return
train.list @few of @e "first" (%h: tensor<4194304x4xf32>, %w: tensor<4x2xf32>, %y: tensor<4194304xi32>) {
  %l, %c = nn.linear_cross_entropy %h, %w, %y : tensor<4194304x4xf32>, tensor<4x2xf32>, tensor<4194304xi32>
  train.return %l : tensor<f32>
}
train.eval @e(%x: tensor<4x8xf32>) -> ("y") {
  train.yield %x : tensor<4x8xf32>
}

// -----

// Kernels of GPUs read the sums of out dout.
// CHECK-LABEL: train.list @attention
// CHECK-NOT: delta
// KEEP-LABEL: train.list @attention
// KEEP: %[[P:.*]] = nn.mul %{{.*}}, %{{.*}} : tensor<2x16x4x8xf32>
// KEEP-NEXT: %[[S:.*]] = nn.reduce sum %[[P]] dims [3] keep : tensor<2x16x4x8xf32> order threads
// KEEP-NEXT: %[[D:.*]] = nn.reshape %[[S]] : tensor<2x16x4x1xf32> to tensor<2x16x4xf32>
// KEEP-NEXT: nn.attention_grad {{.*}} delta(%[[D]] : tensor<2x16x4xf32>)
// KEEP: nn.packed_attention_grad {{.*}} delta(%{{.*}} : tensor<2x16x4xf32>) heads 4
train.list @attention of @e "first" (%q: tensor<2x16x4x8xbf16>, %l: tensor<2x4x16xf32>, %p: tensor<2x16x96xbf16>, %o: tensor<2x16x32xbf16>) {
  %a:3 = nn.attention_grad %q, %q, %q, %q, %l, %q : tensor<2x16x4x8xbf16>, tensor<2x16x4x8xbf16>, tensor<2x4x16xf32>
  %b = nn.packed_attention_grad %p, %o, %l, %o heads 4 : tensor<2x16x96xbf16>, tensor<2x16x32xbf16>, tensor<2x4x16xf32>
  train.return %a#0, %b : tensor<2x16x4x8xbf16>, tensor<2x16x96xbf16>
}
