// RUN: trainc-opt %s --train-assign-random --train-partition --split-input-file | FileCheck %s
// RUN: trainc-opt %s --train-assign-random --train-partition --split-input-file --remarks-filter=train-partition 2>&1 | FileCheck %s --check-prefix=REMARK

// Inputs become the rank's part; loss and weight are terms of sums over what splits.
// CHECK-LABEL: train.step @data_parallel
// CHECK-SAME{LITERAL}: (%x: tensor<8x16xf32> split([host, data]), %y: tensor<8xi32> split([host, data]))
// CHECK-SAME: over = ["host", "data"]
// CHECK: %[[W:.*]] = train.read @w : tensor<16x10xf32>
// CHECK: %[[H:.*]] = nn.linear %x, %[[W]] : tensor<8x16xf32>, tensor<16x10xf32>
// CHECK: %[[L:.*]], %[[N:.*]] = nn.cross_entropy %[[H]], %y : tensor<8x10xf32>, tensor<8xi32>
// CHECK-NEXT: train.yield loss(%[[L]]) weight(%[[N]])
// CHECK-NOT: train.all_reduce
train.mesh @mesh(host = 2, data = 2)
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<16x10xf32> init(zeros) optimizer(@o)
train.step @data_parallel(%x: tensor<32x16xf32> split([host, data]), %y: tensor<32xi32> split([host, data])) {
  %w = train.read @w : tensor<16x10xf32>
  %h = nn.linear %x, %w : tensor<32x16xf32>, tensor<16x10xf32>
  %loss, %n = nn.cross_entropy %h, %y : tensor<32x10xf32>, tensor<32xi32>
  train.yield loss(%loss) weight(%n) : tensor<f32>, tensor<f32>
}
// Outputs that are sums are added up; one that is split stays so.
// CHECK-LABEL: train.eval @eval
// CHECK-SAME{LITERAL}: output_splits = [[["host"], []], []]
// CHECK: %[[H:.*]] = nn.linear %x, %{{.*}} : tensor<4x16xf32>
// CHECK: %[[S:.*]] = nn.reduce sum %[[H]] dims [0, 1] : tensor<4x10xf32>
// CHECK-NEXT: %[[A:.*]] = train.all_reduce %[[S]] over ["host"] : tensor<f32>
// CHECK-NEXT: train.yield %[[H]], %[[A]] : tensor<4x10xf32>, tensor<f32>
train.eval @eval(%x: tensor<8x16xf32> split([host])) -> ("h", "sum") {
  %w = train.read @w : tensor<16x10xf32>
  %h = nn.linear %x, %w : tensor<8x16xf32>, tensor<16x10xf32>
  %s = nn.reduce sum %h dims [0, 1] : tensor<8x10xf32>
  train.yield %h, %s : tensor<8x10xf32>, tensor<f32>
}

// -----

// A loss that is no sum over an axis is shared among its ranks, as is a missing weight.
// CHECK-LABEL: train.step @shared
// CHECK: %[[R:.*]] = nn.reduce sum %{{.*}} dims [0] : tensor<4xf32>
// CHECK-DAG: %[[FOUR:.*]] = nn.constant dense<4.000000e+00> : tensor<f32>
// CHECK: %[[Q:.*]] = nn.div %[[R]], %[[FOUR]]
// CHECK: %[[L:.*]] = nn.add %{{.*}}, %[[Q]]
// CHECK: %[[ONE:.*]] = nn.constant dense<1.000000e+00> : tensor<f64>
// CHECK: %[[N:.*]] = nn.div %[[ONE]], %{{.*}} : tensor<f64>
// CHECK: train.yield loss(%[[L]]) weight(%[[N]]) : tensor<f32>, tensor<f64>
train.mesh @mesh(data = 4)
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4xf32> init(zeros) optimizer(@o)
train.step @shared(%x: tensor<8x4xf32> split([data])) {
  %w = train.read @w : tensor<4xf32>
  %p = nn.mul %x, %w : tensor<8x4xf32>, tensor<4xf32>
  %s = nn.reduce sum %p dims [0, 1] : tensor<8x4xf32>
  %q = nn.mul %w, %w : tensor<4xf32>, tensor<4xf32>
  %r = nn.reduce sum %q dims [0] : tensor<4xf32>
  %loss = nn.add %s, %r : tensor<f32>, tensor<f32>
  train.yield loss(%loss) : tensor<f32>
}

// -----

// A sum is added up where something is not linear in it, once.
// REMARK: remark: [Passed] AddedUp | Category:train-partition | Over=["data"], Type=tensor<4xf32>
// CHECK-LABEL: train.step @nonlinear
// CHECK: %[[S:.*]] = nn.reduce sum %x dims [0] : tensor<2x4xf32>
// CHECK-NEXT: %[[A:.*]] = train.all_reduce %[[S]] over ["data"] : tensor<4xf32>
// CHECK: nn.exp %[[A]]
// CHECK: nn.sin %[[A]]
// CHECK-NOT: train.all_reduce
// CHECK: train.yield
train.mesh @mesh(data = 4)
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4xf32> init(zeros) optimizer(@o)
train.step @nonlinear(%x: tensor<8x4xf32> split([data])) {
  %w = train.read @w : tensor<4xf32>
  %s = nn.reduce sum %x dims [0] : tensor<8x4xf32>
  %e = nn.exp %s : tensor<4xf32>
  %i = nn.sin %s : tensor<4xf32>
  %p = nn.mul %e, %w : tensor<4xf32>, tensor<4xf32>
  %q = nn.mul %p, %i : tensor<4xf32>, tensor<4xf32>
  %loss = nn.reduce sum %q dims [0] : tensor<4xf32>
  train.yield loss(%loss) : tensor<f32>
}

// -----

// Integers are added up in f64.
// CHECK-LABEL: train.eval @count
// CHECK: %[[S:.*]] = nn.reduce sum %y dims [0] : tensor<2xi32>
// CHECK-NEXT: %[[F:.*]] = nn.cast %[[S]] to f64
// CHECK-NEXT: %[[A:.*]] = train.all_reduce %[[F]] over ["data"] : tensor<f64>
// CHECK-NEXT: %[[I:.*]] = nn.cast %[[A]] to i64
// CHECK-NEXT: %[[R:.*]] = nn.cast %[[I]] to i32
// CHECK-NEXT: train.yield %[[R]]
train.mesh @mesh(data = 4)
train.step @step(%x: tensor<4xf32> split([data])) {
  %s = nn.reduce sum %x dims [0] : tensor<4xf32>
  train.yield loss(%s) : tensor<f32>
}
train.eval @count(%y: tensor<8xi32> split([data])) -> ("n") {
  %s = nn.reduce sum %y dims [0] : tensor<8xi32>
  train.yield %s : tensor<i32>
}

// -----

// Whole values beside split ones: computed in part if that is simple, else cut.
// REMARK: remark: [Passed] Cut | Category:train-partition | Over=["data"], Type=tensor<2x4xf32>
// CHECK-LABEL: train.step @cut
// CHECK: %[[P:.*]] = train.process_index over ["data"] : tensor<i64>
// CHECK: %[[R:.*]] = train.read @w : tensor<8x4xf32>
// CHECK-DAG: nn.constant dense<2.000000e+00> : tensor<2x4xf32>
// CHECK-DAG: %[[I:.*]] = nn.iota dim 0 : tensor<2x4xi64>
// CHECK: %[[TWO:.*]] = nn.constant dense<2> : tensor<i64>
// CHECK: %[[O:.*]] = nn.mul %[[P]], %[[TWO]]
// CHECK: %[[J:.*]] = nn.add %[[I]], %[[O]]
// CHECK: %[[F:.*]] = nn.cast %[[J]] to f32
// CHECK: nn.sin %[[F]] : tensor<2x4xf32>
// CHECK: nn.part %[[R]] at %[[P]] dim 0 of 4 : tensor<8x4xf32>
train.mesh @mesh(data = 4)
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<8x4xf32> init(zeros) optimizer(@o)
train.step @cut(%x: tensor<8x4xf32> split([data])) {
  %w = train.read @w : tensor<8x4xf32>
  %c = nn.constant dense<2.0> : tensor<8x4xf32>
  %i = nn.iota dim 0 : tensor<8x4xf32>
  %n = nn.sin %i : tensor<8x4xf32>
  %a = nn.mul %x, %c : tensor<8x4xf32>, tensor<8x4xf32>
  %b = nn.add %a, %n : tensor<8x4xf32>, tensor<8x4xf32>
  %p = nn.mul %b, %w : tensor<8x4xf32>, tensor<8x4xf32>
  %s = nn.reduce sum %p dims [0, 1] : tensor<8x4xf32>
  train.yield loss(%s) : tensor<f32>
}

// -----

// Statistics of the whole batch: the decomposition counts all of it.
// CHECK-LABEL: train.step @batch_norm
// CHECK: %[[S:.*]] = nn.reduce sum %x dims [0] keep : tensor<2x3xf32>
// CHECK: %[[EIGHT:.*]] = nn.constant dense<8.000000e+00> : tensor<f32>
// CHECK: %[[M:.*]] = nn.div %[[S]], %[[EIGHT]]
// CHECK: %[[MEAN:.*]] = train.all_reduce %[[M]] over ["data"] : tensor<1x3xf32>
// CHECK: %[[X:.*]] = nn.sub %x, %[[MEAN]] : tensor<2x3xf32>, tensor<1x3xf32>
// CHECK: train.all_reduce %{{.*}} over ["data"] : tensor<1x3xf32>
// CHECK-NOT: train.all_reduce
// CHECK: train.write %{{.*}} to @mean : tensor<3xf32>
train.mesh @mesh(data = 4)
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<3xf32> init(ones) optimizer(@o)
train.buffer @mean : tensor<3xf32> init(zeros)
train.buffer @var : tensor<3xf32> init(ones)
train.step @batch_norm(%x: tensor<8x3xf32> split([data])) {
  %w = train.read @w : tensor<3xf32>
  %m = train.read @mean : tensor<3xf32>
  %v = train.read @var : tensor<3xf32>
  %y, %m1, %v1 = nn.batch_norm %x, %w, %w, %m, %v training
      : tensor<8x3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>
  train.write %m1 to @mean : tensor<3xf32>
  train.write %v1 to @var : tensor<3xf32>
  %s = nn.reduce sum %y dims [0, 1] : tensor<8x3xf32>
  train.yield loss(%s) : tensor<f32>
}

// -----

// Shapes follow through reshapes, transposes, slices and recomputed regions; dropout knows
// the places of its elements in the whole.
// CHECK-LABEL: train.step @shapes
// CHECK: nn.reshape %x : tensor<2x6x4xf32> to tensor<12x4xf32>
// CHECK: nn.reshape %{{.*}} : tensor<12x4xf32> to tensor<2x6x4xf32>
// CHECK: %[[T:.*]] = nn.transpose %{{.*}} [1, 0, 2] : tensor<2x6x4xf32>
// CHECK: train.recompute -> tensor<5x2x4xf32>
// CHECK: nn.slice %[[T]] offsets [1, 0, 0] sizes [5, 2, 4] : tensor<6x2x4xf32>
// CHECK: %[[N:.*]] = nn.constant dense<8> : tensor<i64>
// CHECK: %[[F:.*]] = nn.mul %{{.*}}, %[[N]]
// CHECK: nn.dropout %{{.*}} rate 5.000000e-01 site 0 first %[[F]] strides [32, 4, 1] : tensor<5x2x4xf32>
train.mesh @mesh(data = 4)
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4xf32> init(ones) optimizer(@o)
train.step @shapes(%x: tensor<8x6x4xf32> split([data])) {
  %w = train.read @w : tensor<4xf32>
  %a = nn.reshape %x : tensor<8x6x4xf32> to tensor<48x4xf32>
  %b = nn.mul %a, %w : tensor<48x4xf32>, tensor<4xf32>
  %c = nn.reshape %b : tensor<48x4xf32> to tensor<8x6x4xf32>
  %t = nn.transpose %c [1, 0, 2] : tensor<8x6x4xf32>
  %r = train.recompute -> tensor<5x8x4xf32> {
    %i = nn.slice %t offsets [1, 0, 0] sizes [5, 8, 4] : tensor<6x8x4xf32>
    %d = nn.dropout %i rate 0.5 : tensor<5x8x4xf32>
    train.yield %d : tensor<5x8x4xf32>
  }
  %s = nn.reduce sum %r dims [0, 1, 2] : tensor<5x8x4xf32>
  train.yield loss(%s) : tensor<f32>
}

// -----

// A gradient among the inputs is this rank's term of it.
// CHECK-LABEL: train.step @given(%g: tensor<4xf32> gradient(@w))
// CHECK-SAME: over = ["data"]
// CHECK: train.yield weight(%{{.*}}) : tensor<f64>
train.mesh @mesh(data = 4)
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4xf32> init(ones) optimizer(@o)
train.step @given(%g: tensor<4xf32> gradient(@w)) {
  train.yield
}

// -----

// In an eval anything may be decomposed: positions of a rotary are those in the whole.
// CHECK-LABEL: train.eval @rotary
// CHECK: %[[P:.*]] = train.process_index over ["data"]
// CHECK: %[[I:.*]] = nn.iota dim 0 : tensor<2x1xi64>
// CHECK: %[[O:.*]] = nn.mul %[[P]], %{{.*}} : tensor<i64>
// CHECK: nn.add %[[I]], %[[O]]
// CHECK: %[[C:.*]]:2 = nn.map
// CHECK: nn.rotate_pairs %x, %[[C]]#0, %[[C]]#1 : tensor<2x2x2x8xf32>, tensor<2x4xf32>
train.mesh @mesh(data = 2)
train.step @step(%x: tensor<4xf32> split([data])) {
  %s = nn.reduce sum %x dims [0] : tensor<4xf32>
  train.yield loss(%s) : tensor<f32>
}
train.eval @rotary(%x: tensor<2x4x2x8xf32> split([], [data])) -> ("y") {
  %a = nn.rotary %x theta 100.0 : tensor<2x4x2x8xf32>
  train.yield %a : tensor<2x4x2x8xf32>
}
