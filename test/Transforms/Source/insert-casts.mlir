// RUN: trainc-opt %s --train-insert-casts --split-input-file | FileCheck %s
// RUN: trainc-opt %s --train-insert-casts --train-insert-casts --split-input-file | FileCheck %s

train.optimizer @o = sgd<lr = 0.1>
train.param @table : tensor<7x4xf32> init(zeros) optimizer(@o)
train.param @scale : tensor<4xf32> init(ones) optimizer(@o)
train.param @w : tensor<4x3xf32> init(zeros) optimizer(@o)

// Products and embeddings in bf16, the residual stream after them; norms keep f32
// weights; the loss is f32. The tied table is cast once.
// CHECK-LABEL: train.step @step
// CHECK: %[[T:.*]] = train.read @table
// CHECK-NEXT: %[[TC:.*]] = nn.cast %[[T]] to bf16
// CHECK: %[[X:.*]] = nn.embedding %[[TC]], %{{.*}} : tensor<7x4xbf16>
// CHECK: %[[S:.*]] = train.read @scale
// CHECK: %[[N:.*]] = nn.rms_norm %[[X]], %[[S]] : tensor<2x4xbf16>, tensor<4xf32>
// CHECK: %[[HALF:.*]] = nn.constant
// CHECK-NEXT: %[[HC:.*]] = nn.cast %[[HALF]] to bf16
// CHECK: nn.mul %[[N]], %[[HC]] : tensor<2x4xbf16>, tensor<bf16>
// CHECK: %[[L:.*]] = nn.matmul %{{.*}}, %[[TC]] transpose_rhs : tensor<2x4xbf16>, tensor<7x4xbf16>
// CHECK: %[[LOSS:.*]], %[[COUNT:.*]] = nn.cross_entropy %[[L]], %{{.*}} : tensor<2x7xbf16>
// CHECK: train.yield loss(%[[LOSS]]) weight(%[[COUNT]]) : tensor<f32>, tensor<f32>
train.step @step(%ids: tensor<2xi32>, %y: tensor<2xi32>) precision(compute = bf16) {
  %table = train.read @table : tensor<7x4xf32>
  %x = nn.embedding %table, %ids : tensor<7x4xf32>, tensor<2xi32>
  %s = train.read @scale : tensor<4xf32>
  %n = nn.rms_norm %x, %s : tensor<2x4xf32>, tensor<4xf32>
  %half = nn.constant dense<0.5> : tensor<f32>
  %h = nn.mul %n, %half : tensor<2x4xf32>, tensor<f32>
  %logits = nn.matmul %h, %table transpose_rhs : tensor<2x4xf32>, tensor<7x4xf32>
  %loss, %count = nn.cross_entropy %logits, %y : tensor<2x7xf32>, tensor<2xi32>
  train.yield loss(%loss) weight(%count) : tensor<f32>, tensor<f32>
}

// An eval returns the types of its source.
// CHECK-LABEL: train.eval @eval
// CHECK: %[[WC:.*]] = nn.cast %{{.*}} to bf16 : tensor<4x3xf32>
// CHECK: %[[P:.*]] = nn.linear %{{.*}}, %[[WC]] : tensor<2x4xbf16>, tensor<4x3xbf16>
// CHECK-NEXT: %[[P32:.*]] = nn.cast %[[P]] to f32
// CHECK: train.yield %[[P32]] : tensor<2x3xf32>
train.eval @eval(%x: tensor<2x4xf32>) -> ("p") {
  %w = train.read @w : tensor<4x3xf32>
  %p = nn.linear %x, %w : tensor<2x4xf32>, tensor<4x3xf32>
  train.yield %p : tensor<2x3xf32>
}

// -----

train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4x4xf32> init(zeros) optimizer(@o)
train.param @head : tensor<4x4xf32> init(zeros) optimizer(@o)

// A kept parameter makes its product f32; what meets a bf16 activation is narrowed.
// CHECK-LABEL: train.step @kept
// CHECK: %[[R:.*]] = train.recompute -> tensor<2x4xf16>
// CHECK: nn.linear %{{.*}} : tensor<2x4xf16>, tensor<4x4xf16>
// CHECK: %[[S:.*]] = nn.add %{{.*}}, %[[R]] : tensor<2x4xf16>
// CHECK: %[[SC:.*]] = nn.cast %[[S]] to f32
// CHECK: %[[H:.*]] = train.read @head
// CHECK-NOT: nn.cast %[[H]]
// CHECK: %[[P:.*]] = nn.linear %[[SC]], %[[H]] : tensor<2x4xf32>, tensor<4x4xf32>
// CHECK: nn.mse %[[P]], %{{.*}} : tensor<2x4xf32>, tensor<2x4xf32>
train.step @kept(%x: tensor<2x4xf32>) precision(compute = f16, keep_f32 = [@head]) {
  %r = train.recompute -> tensor<2x4xf32> {
    %w = train.read @w : tensor<4x4xf32>
    %h = nn.linear %x, %w : tensor<2x4xf32>, tensor<4x4xf32>
    train.yield %h : tensor<2x4xf32>
  }
  %s = nn.add %x, %r : tensor<2x4xf32>, tensor<2x4xf32>
  %head = train.read @head : tensor<4x4xf32>
  %p = nn.linear %s, %head : tensor<2x4xf32>, tensor<4x4xf32>
  %loss, %count = nn.mse %p, %x : tensor<2x4xf32>, tensor<2x4xf32>
  train.yield loss(%loss) weight(%count) : tensor<f32>, tensor<f32>
}

// -----

train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4x4xf32> init(zeros) optimizer(@o)

// It does nothing without a precision.
// CHECK-LABEL: train.step @plain
// CHECK-NOT: nn.cast
train.step @plain(%x: tensor<2x4xf32>) {
  %w = train.read @w : tensor<4x4xf32>
  %p = nn.linear %x, %w : tensor<2x4xf32>, tensor<4x4xf32>
  %loss, %count = nn.mse %p, %x : tensor<2x4xf32>, tensor<2x4xf32>
  train.yield loss(%loss) weight(%count) : tensor<f32>, tensor<f32>
}

// -----

train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4x4xf32> init(zeros) optimizer(@o)

// What is stored in bf16 and computed in f32 is f32 also where nothing but parameters meet.
// CHECK-LABEL: train.step @stored
// CHECK: %[[W:.*]] = train.read @w : tensor<4x4xbf16>
// CHECK-NEXT: %[[C:.*]] = nn.cast %[[W]] to f32
// CHECK: %[[S:.*]] = nn.mul %[[C]], %[[C]] : tensor<4x4xf32>
// CHECK: nn.linear %x, %[[S]] : tensor<2x4xf32>, tensor<4x4xf32>
train.step @stored(%x: tensor<2x4xf32>) precision(compute = f32, master = bf16) {
  %w = train.read @w : tensor<4x4xf32>
  %s = nn.mul %w, %w : tensor<4x4xf32>, tensor<4x4xf32>
  %p = nn.linear %x, %s : tensor<2x4xf32>, tensor<4x4xf32>
  %loss, %count = nn.mse %p, %x : tensor<2x4xf32>, tensor<2x4xf32>
  train.yield loss(%loss) weight(%count) : tensor<f32>, tensor<f32>
}
