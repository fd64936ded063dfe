// RUN: trainc-opt %s --train-partition --split-input-file | FileCheck %s
// RUN: trainc-opt %s --train-partition --split-input-file --remarks-filter=train-partition 2>&1 | FileCheck %s --check-prefix=REMARK

// Columns and then rows: one sum over ranks; the bias behind it is added once.
// CHECK: train.param @up : tensor<6x4xf32> init(zeros) optimizer(@o) split([], [model]) of tensor<6x8xf32>
// CHECK: train.param @up.bias : tensor<4xf32> init(zeros) optimizer(@o) split([model]) of tensor<8xf32>
// CHECK: train.param @down : tensor<4x6xf32> init(zeros) optimizer(@o) split([model]) of tensor<8x6xf32>
// CHECK: train.param @down.bias : tensor<6xf32> init(zeros) optimizer(@o)
// CHECK: train.step @layers(%x: tensor<2x6xf32>
// CHECK: %[[H:.*]] = nn.linear %x, %{{.*}}, %{{.*}} : tensor<2x6xf32>, tensor<6x4xf32>, tensor<4xf32>
// CHECK-NEXT: %[[G:.*]] = nn.gelu %[[H]] tanh : tensor<2x4xf32>
// CHECK-NEXT: %[[P:.*]] = nn.linear %[[G]], %{{.*}} : tensor<2x4xf32>, tensor<4x6xf32>
// CHECK-NEXT: %[[S:.*]] = train.all_reduce %[[P]] over ["model"] : tensor<2x6xf32>
// CHECK-NEXT: nn.add %[[S]], %{{.*}} : tensor<2x6xf32>, tensor<6xf32>
// CHECK-NOT: train.all_reduce
// CHECK: train.yield
train.mesh @mesh(data = 2, model = 2)
train.optimizer @o = sgd<lr = 0.1>
train.param @up : tensor<6x8xf32> init(zeros) optimizer(@o) split([], [model])
train.param @up.bias : tensor<8xf32> init(zeros) optimizer(@o) split([model])
train.param @down : tensor<8x6xf32> init(zeros) optimizer(@o) split([model])
train.param @down.bias : tensor<6xf32> init(zeros) optimizer(@o)
train.step @layers(%x: tensor<4x6xf32> split([data])) {
  %u = train.read @up : tensor<6x8xf32>
  %ub = train.read @up.bias : tensor<8xf32>
  %d = train.read @down : tensor<8x6xf32>
  %db = train.read @down.bias : tensor<6xf32>
  %h = nn.linear %x, %u, %ub : tensor<4x6xf32>, tensor<6x8xf32>, tensor<8xf32>
  %g = nn.gelu %h tanh : tensor<4x8xf32>
  %y = nn.linear %g, %d, %db : tensor<4x8xf32>, tensor<8x6xf32>, tensor<6xf32>
  %q = nn.mul %y, %y : tensor<4x6xf32>, tensor<4x6xf32>
  %s = nn.reduce sum %q dims [0, 1] : tensor<4x6xf32>
  train.yield loss(%s) : tensor<f32>
}

// -----

// Heads of packed q, k and v: three blocks.
// CHECK: train.param @qkv : tensor<8x12xf32> {{.*}} split([], [model]) blocks [1, 3] of tensor<8x24xf32>
// CHECK-LABEL: train.step @heads
// CHECK: %[[H:.*]] = nn.linear %x, %{{.*}} : tensor<2x4x8xf32>, tensor<8x12xf32>
// CHECK-NEXT: nn.packed_attention %[[H]] heads 2 causal : tensor<2x4x12xf32>
// CHECK-NOT: train.all
// CHECK-LABEL: train.eval @packed
// CHECK: %[[A:.*]] = train.all_gather %{{.*}} over ["model"] : tensor<1x2x4x3x4xf32> -> tensor<2x2x4x3x4xf32>
// CHECK-NEXT: %[[T:.*]] = nn.transpose %[[A]] [1, 2, 3, 0, 4]
// CHECK-NEXT: %[[R:.*]] = nn.reshape %[[T]] : tensor<2x4x3x2x4xf32> to tensor<2x4x24xf32>
// CHECK-NEXT: train.yield %[[R]]
train.mesh @mesh(model = 2)
train.optimizer @o = sgd<lr = 0.1>
train.param @qkv : tensor<8x24xf32> init(zeros) optimizer(@o) split([], [model]) blocks [1, 3]
train.step @heads(%x: tensor<2x4x8xf32>) {
  %w = train.read @qkv : tensor<8x24xf32>
  %h = nn.linear %x, %w : tensor<2x4x8xf32>, tensor<8x24xf32>
  %a, %l = nn.packed_attention %h heads 4 causal : tensor<2x4x24xf32>
  %s = nn.reduce sum %a dims [0, 1, 2] : tensor<2x4x8xf32>
  train.yield loss(%s) : tensor<f32>
}
// What a rank has in three ranges is handed out whole.
train.eval @packed(%x: tensor<2x4x8xf32>) -> ("h") {
  %w = train.read @qkv : tensor<8x24xf32>
  %h = nn.linear %x, %w : tensor<2x4x8xf32>, tensor<8x24xf32>
  train.yield %h : tensor<2x4x24xf32>
}

// -----

// Sums of the rows of heads, where the gradient of an attention has them, go with the heads.
// CHECK-LABEL: train.eval @delta
// CHECK: %[[D:.*]] = nn.part %e at %{{.*}} dim 2 of 2 : tensor<2x4x4xf32>
// CHECK: nn.packed_attention_grad {{.*}} delta(%[[D]] : tensor<2x4x2xf32>) heads 2
// CHECK: nn.attention_grad {{.*}} delta(%{{.*}} : tensor<2x4x2xf32>) : tensor<2x4x2x2xf32>
train.mesh @mesh(model = 2)
train.optimizer @o = sgd<lr = 0.1>
train.param @qkv : tensor<8x24xf32> init(zeros) optimizer(@o) split([], [model]) blocks [1, 3]
train.param @q : tensor<8x8xf32> init(zeros) optimizer(@o) split([], [model])
train.step @step(%x: tensor<2x4x8xf32>) {
  %w = train.read @qkv : tensor<8x24xf32>
  %v = train.read @q : tensor<8x8xf32>
  %h = nn.linear %x, %w : tensor<2x4x8xf32>, tensor<8x24xf32>
  %g = nn.linear %x, %v : tensor<2x4x8xf32>, tensor<8x8xf32>
  %s = nn.reduce sum %h dims [0, 1, 2] : tensor<2x4x24xf32>
  %t = nn.reduce sum %g dims [0, 1, 2] : tensor<2x4x8xf32>
  %l = nn.add %s, %t : tensor<f32>, tensor<f32>
  train.yield loss(%l) : tensor<f32>
}
train.eval @delta(%x: tensor<2x4x8xf32>, %e: tensor<2x4x4xf32>) -> ("s", "t") {
  %w = train.read @qkv : tensor<8x24xf32>
  %h = nn.linear %x, %w : tensor<2x4x8xf32>, tensor<8x24xf32>
  %a, %l = nn.packed_attention %h heads 4 : tensor<2x4x24xf32>
  %d = nn.packed_attention_grad %h, %a, %l, %a delta(%e : tensor<2x4x4xf32>) heads 4 : tensor<2x4x24xf32>, tensor<2x4x8xf32>, tensor<2x4x4xf32>
  %s = nn.reduce sum %d dims [1, 2] : tensor<2x4x24xf32>
  %v = train.read @q : tensor<8x8xf32>
  %r = nn.linear %x, %v : tensor<2x4x8xf32>, tensor<8x8xf32>
  %q = nn.reshape %r : tensor<2x4x8xf32> to tensor<2x4x4x2xf32>
  %b, %m = nn.attention %q, %q, %q : tensor<2x4x4x2xf32>, tensor<2x4x4x2xf32>
  %g:3 = nn.attention_grad %q, %q, %q, %b, %m, %b delta(%e : tensor<2x4x4xf32>) : tensor<2x4x4x2xf32>, tensor<2x4x4x2xf32>, tensor<2x4x4xf32>
  %t = nn.reduce sum %g#0 dims [1, 2, 3] : tensor<2x4x4x2xf32>
  train.yield %s, %t : tensor<2xf32>, tensor<2xf32>
}

// -----

// Rows of a table that do not divide, which are the classes of the loss: the maximum is gathered, the sums stay sums.
// REMARK: remark: [Passed] Joined | Category:train-partition | Over=["model"], Type=tensor<6x1xf32>
// CHECK: train.param @table : tensor<3x4xf32> init(zeros) optimizer(@o) split([model]) of tensor<5x4xf32>
// CHECK: train.step @tied
// CHECK-SAME: loss_terms = 6
// CHECK: %[[E:.*]] = nn.embedding %[[W:.*]], %x from %{{.*}} of 5 : tensor<3x4xf32>, tensor<6xi32>
// CHECK: train.all_reduce %[[E]] over ["model"] : tensor<6x4xf32>
// CHECK: %[[L:.*]] = nn.matmul %{{.*}}, %[[W]] transpose_rhs
// CHECK: %[[LOW:.*]] = nn.constant dense<0xFF800000> : tensor<f32>
// CHECK: %[[F:.*]] = nn.select %{{.*}}, %[[L]], %[[LOW]]
// CHECK: nn.reduce max %[[F]] dims [1] keep : tensor<6x3xf32>
// CHECK: %[[M:.*]] = train.all_gather %{{.*}} over ["model"] : tensor<1x6x1xf32> -> tensor<2x6x1xf32>
// CHECK: %[[MAX:.*]] = nn.reduce max %[[M]] dims [0]
// CHECK: nn.stop_gradient %[[MAX]]
// CHECK: %[[ONE:.*]] = nn.constant dense<1.000000e+00> : tensor<f32>
// CHECK: %[[B:.*]] = nn.select %{{.*}}, %{{.*}}, %[[ONE]]
// CHECK: nn.exp %[[B]]
// CHECK: %[[SUM:.*]] = train.all_reduce %{{.*}} over ["model"] : tensor<6x1xf32>
// CHECK-NEXT: nn.log %[[SUM]]
// CHECK-NOT: train.all
// CHECK: train.yield
train.mesh @mesh(model = 2)
train.optimizer @o = sgd<lr = 0.1>
train.param @table : tensor<5x4xf32> init(zeros) optimizer(@o) split([model])
train.step @tied(%x: tensor<6xi32>, %y: tensor<6xi32>) {
  %t = train.read @table : tensor<5x4xf32>
  %e = nn.embedding %t, %x : tensor<5x4xf32>, tensor<6xi32>
  %g = nn.tanh %e : tensor<6x4xf32>
  %l = nn.matmul %g, %t transpose_rhs : tensor<6x4xf32>, tensor<5x4xf32>
  %loss, %n = nn.cross_entropy %l, %y : tensor<6x5xf32>, tensor<6xi32>
  train.yield loss(%loss) weight(%n) : tensor<f32>, tensor<f32>
}

// -----

// A given split: a whole value is cut, and gathered before a layer that is split by columns.
// CHECK-LABEL: train.step @sequence
// CHECK: %[[C:.*]] = nn.part %x at %{{.*}} dim 1 of 2 : tensor<2x8x4xf32>
// CHECK-NEXT: nn.tanh %[[C]] : tensor<2x4x4xf32>
// CHECK: %[[G:.*]] = train.all_gather %{{.*}} over ["model"] : tensor<1x2x1x4x4xf32> -> tensor<2x2x1x4x4xf32>
// CHECK: %[[W:.*]] = nn.reshape %{{.*}} : tensor<2x1x2x4x4xf32> to tensor<2x8x4xf32>
// CHECK: nn.linear %[[W]], %{{.*}} : tensor<2x8x4xf32>, tensor<4x3xf32>
train.mesh @mesh(model = 2)
train.optimizer @o = sgd<lr = 0.1>
train.param @up : tensor<4x6xf32> init(zeros) optimizer(@o) split([], [model])
train.step @sequence(%x: tensor<2x8x4xf32>) {
  %u = train.read @up : tensor<4x6xf32>
  %c = train.constrain %x split([], [model]) : tensor<2x8x4xf32>
  %g = nn.tanh %c : tensor<2x8x4xf32>
  %w = train.constrain %g split([]) : tensor<2x8x4xf32>
  %h = nn.linear %w, %u : tensor<2x8x4xf32>, tensor<4x6xf32>
  %s = nn.reduce sum %h dims [0, 1, 2] : tensor<2x8x6xf32>
  train.yield loss(%s) : tensor<f32>
}

// -----

// A gradient that is given is this rank's term of that of its part.
// CHECK: train.step @given(%g: tensor<6x4xf32> gradient(@w) split([], [model]))
train.mesh @mesh(data = 2, model = 2)
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<6x8xf32> init(zeros) optimizer(@o) split([], [model])
train.step @given(%g: tensor<6x8xf32> gradient(@w)) {
  train.yield
}

// -----

// Of a sum that is split each rank adds up its part, and then the bias; what is left
// of the sum is added up then. Ranks lie in the order of the mesh, parts in that of the split.
// CHECK-LABEL: train.step @sums
// CHECK: %[[P:.*]] = nn.linear %{{.*}}, %{{.*}} : tensor<8x2xf32>, tensor<2x4xf32>
// CHECK-NEXT: %[[R:.*]] = nn.reshape %[[P]] : tensor<8x4xf32> to tensor<8x2x2xf32>
// CHECK-NEXT: %[[T:.*]] = nn.transpose %[[R]] [1, 0, 2] : tensor<8x2x2xf32>
// CHECK-NEXT: %[[S:.*]] = train.reduce_scatter %[[T]] over ["model"] : tensor<2x8x2xf32> -> tensor<1x8x2xf32>
// CHECK-NEXT: %[[U:.*]] = nn.reshape %[[S]] : tensor<1x8x2xf32> to tensor<8x2xf32>
// CHECK-NEXT: %[[A:.*]] = train.all_reduce %[[U]] over ["data"] : tensor<8x2xf32>
// CHECK: nn.add %[[A]], %{{.*}} : tensor<8x2xf32>, tensor<2xf32>
// CHECK: train.reduce_scatter %{{.*}} over ["data", "model"] : tensor<4x2x4xf32> -> tensor<1x2x4xf32>
train.mesh @mesh(data = 2, model = 2)
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<8x4xf32> init(zeros) optimizer(@o) split([model, data])
train.param @v : tensor<8x4xf32> init(zeros) optimizer(@o) split([model, data])
train.param @b : tensor<4xf32> init(zeros) optimizer(@o)
train.step @sums(%x: tensor<8x8xf32>) {
  %w = train.read @w : tensor<8x4xf32>
  %b = train.read @b : tensor<4xf32>
  %p = nn.linear %x, %w, %b : tensor<8x8xf32>, tensor<8x4xf32>, tensor<4xf32>
  %c = train.constrain %p split([], [model]) : tensor<8x4xf32>
  %l = nn.reduce sum %c dims [0, 1] : tensor<8x4xf32>
  %v = train.read @v : tensor<8x4xf32>
  %q = nn.linear %x, %v : tensor<8x8xf32>, tensor<8x4xf32>
  %d = train.constrain %q split([model, data]) : tensor<8x4xf32>
  %m = nn.reduce sum %d dims [0, 1] : tensor<8x4xf32>
  %s = nn.add %l, %m : tensor<f32>, tensor<f32>
  train.yield loss(%s) : tensor<f32>
}

// -----

// A sum that others use whole, or whose size does not divide, is added up and cut.
// CHECK-LABEL: train.step @used
// CHECK-NOT: reduce_scatter
// CHECK: %[[A:.*]] = train.all_reduce %{{.*}} over ["model"] : tensor<8x4xf32>
// CHECK: nn.part %[[A]]
// CHECK-NOT: reduce_scatter
// CHECK: %[[B:.*]] = train.all_reduce %{{.*}} over ["model"] : tensor<8x5xf32>
// CHECK-NEXT: %[[Q:.*]] = nn.pad %[[B]]
// CHECK: nn.part %[[Q]]
train.mesh @mesh(model = 2)
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<8x4xf32> init(zeros) optimizer(@o) split([model])
train.param @v : tensor<8x5xf32> init(zeros) optimizer(@o) split([model])
train.step @used(%x: tensor<8x8xf32>) {
  %w = train.read @w : tensor<8x4xf32>
  %p = nn.linear %x, %w : tensor<8x8xf32>, tensor<8x4xf32>
  %t = nn.tanh %p : tensor<8x4xf32>
  %c = train.constrain %p split([], [model]) : tensor<8x4xf32>
  %l = nn.reduce sum %c dims [0, 1] : tensor<8x4xf32>
  %n = nn.reduce sum %t dims [0, 1] : tensor<8x4xf32>
  %v = train.read @v : tensor<8x5xf32>
  %q = nn.linear %x, %v : tensor<8x8xf32>, tensor<8x5xf32>
  %d = train.constrain %q split([], [model]) : tensor<8x5xf32>
  %m = nn.reduce sum %d dims [0, 1] : tensor<8x5xf32>
  %s = nn.add %l, %m : tensor<f32>, tensor<f32>
  %o = nn.add %s, %n : tensor<f32>, tensor<f32>
  train.yield loss(%o) : tensor<f32>
}

// -----

// What is added to a sum lies otherwise than its result: that is what is gathered.
// CHECK-LABEL: train.step @added
// CHECK: train.all_reduce %{{.*}} over ["model"] : tensor<8x4xf32>
// CHECK: %[[A:.*]] = nn.add %{{.*}}, %{{.*}} : tensor<8x2xf32>, tensor<8x2xf32>
// CHECK: nn.reshape %[[A]] :
// CHECK-NEXT: train.all_gather %{{.*}} over ["data"] :
train.mesh @mesh(data = 2, model = 2)
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<8x4xf32> init(zeros) optimizer(@o) split([model])
train.param @a : tensor<8x4xf32> init(zeros) optimizer(@o) split([], [data])
train.step @added(%x: tensor<8x8xf32>) {
  %w = train.read @w : tensor<8x4xf32>
  %a = train.read @a : tensor<8x4xf32>
  %p = nn.linear %x, %w : tensor<8x8xf32>, tensor<8x4xf32>
  %s = nn.add %p, %a : tensor<8x4xf32>, tensor<8x4xf32>
  %c = train.constrain %s split([]) : tensor<8x4xf32>
  %l = nn.reduce sum %c dims [0, 1] : tensor<8x4xf32>
  train.yield loss(%l) : tensor<f32>
}

// -----

// A part is filled up by ones also where the log of a whole value is cut: an infinity there would make its gradient NaN.
// CHECK-LABEL: train.step @filled
// CHECK: %[[PART:.*]] = nn.part %{{.*}} dim 0 of 2 : tensor<4xf32>
// CHECK: %[[FILLED:.*]] = nn.select %{{.*}}, %[[PART]], %{{.*}} : tensor<2xi1>, tensor<2xf32>, tensor<f32>
// CHECK: nn.log %[[FILLED]] : tensor<2xf32>
train.mesh @mesh(model = 2)
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4x3xf32> init(zeros) optimizer(@o) split([], [model])
train.param @b : tensor<3xf32> init(ones) optimizer(@o)
train.step @filled() {
  %w = train.read @w : tensor<4x3xf32>
  %b = train.read @b : tensor<3xf32>
  %l = nn.log %b : tensor<3xf32>
  %s = nn.add %w, %l : tensor<4x3xf32>, tensor<3xf32>
  %loss = nn.reduce sum %s dims [0, 1] : tensor<4x3xf32>
  train.yield loss(%loss) : tensor<f32>
}
