// RUN: trainc-opt %s --trainc-to-plan | trainc-opt --train-coalesce --train-outline-lists --train-expand-updates --nn-decompose --train-form-kernels -o %t.mlir
// RUN: trainc-opt %t.mlir --train-merge-launches | FileCheck %s
// RUN: trainc-opt %t.mlir --train-merge-launches --train-merge-launches -o %t.twice && trainc-opt %t.mlir --train-merge-launches -o %t.once && diff %t.once %t.twice
// RUN: trainc-opt %t.mlir --train-plan-memory -o %t.planned && not grep 'launch.*update_update' %t.planned

// A list without norm and update stays as it is.
// CHECK-LABEL: train.list @step.first
// CHECK: train.launch @[[WORK:[a-z_0-9]+]](
// CHECK: train.gemm

// Norm, its sum and the scalars are one launch; so are the updates by three rules. Two are of one bucket:
// what the first of them leaves in place is written once, by the second.
// CHECK-LABEL: train.list @step.apply
// CHECK: %[[N:.*]]:{{[0-9]+}} = train.launch @[[NORM:k_norm_sum_norm_[a-z_0-9]+]](
// CHECK-NOT: tensor<{{[0-9]+}}xf32>) -> tensor<f64>
// CHECK: %[[U:.*]]:4 = train.launch @[[UPDATE:k_update_update[_0-9]*_update[_0-9]*]](%{{.*}}, %[[N]]#
// CHECK-NOT: train.launch
// CHECK: train.write %[[U]]#0 to @arena.master.f32::@bucket :
// CHECK-COUNT-1: to @arena.master.f32::@bucket_0
// CHECK-NOT: to @arena.master.f32

// CHECK: train.kernel @[[WORK]]
// CHECK: train.kernel @[[NORM]]
// CHECK: %[[S:.*]] = train.segment_square_sum
// CHECK: %[[T:.*]] = train.sum_blocks %[[S]]
// CHECK: nn.sqrt %[[T]]
// CHECK: train.kernel @[[UPDATE]](%[[W:[a-z0-9]+]]: tensor<64xf32>, {{.*}} %[[P:[a-z0-9]+]]: tensor<128xf32>, %{{[a-z0-9]+}}: tensor<128xf32>, %{{[a-z0-9]+}}: tensor<128xf32>, %{{[a-z0-9]+}}: tensor<128xf32>, {{.*}}) inplace [0, {{[0-9]+}}, {{[0-9]+}}, {{[0-9]+}}]
// CHECK: %[[A:.*]] = train.segment_map %[[W]], %{{.*}} uniforms
// CHECK: %[[B:.*]]:3 = train.segment_map %[[P]], %{{.*}} uniforms
// CHECK: %[[C:.*]]:3 = train.segment_map %[[B]]#0, %{{.*}}, %[[B]]#1, %[[B]]#2 : {{.*}} uniforms
// CHECK: train.return %[[A]], %[[C]]#0, %[[C]]#1, %[[C]]#2
train.optimizer @a = sgd<lr = 0.1>
train.optimizer @b = adamw<lr = 0.1>
train.optimizer @c = adam<lr = 0.1>
train.param @w : tensor<4x3xf32> init(ones) optimizer(@a)
train.param @n : tensor<4xf32> init(ones) optimizer(@b)
train.param @m : tensor<4xf32> init(ones) optimizer(@c)
train.step @step(%x: tensor<2x4xf32>) clip(global_norm<1.0>) {
  %w = train.read @w : tensor<4x3xf32>
  %n = train.read @n : tensor<4xf32>
  %m = train.read @m : tensor<4xf32>
  %s = nn.mul %n, %m : tensor<4xf32>, tensor<4xf32>
  %h = nn.mul %x, %s : tensor<2x4xf32>, tensor<4xf32>
  %y = nn.matmul %h, %w : tensor<2x4xf32>, tensor<4x3xf32>
  %z = nn.mul %y, %y : tensor<2x3xf32>, tensor<2x3xf32>
  %l = nn.reduce sum %z dims [0, 1] : tensor<2x3xf32>
  train.yield loss(%l) : tensor<f32>
}
