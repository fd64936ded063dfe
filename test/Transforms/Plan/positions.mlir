// RUN: trainc-opt %s --trainc-to-plan --train-coalesce --train-outline-lists --train-expand-updates | FileCheck %s
// RUN: trainc %s --disable-pass=train-fuse-optimizer --stop-after=commands -o - | FileCheck %s --check-prefix=EACH

// A rank's position along two axes is computed of those along both, wherever it is needed: stochastic rounding numbers the
// elements of the whole parameter. With one rank along the first axis, too (after --mesh), all of them count.
// CHECK-LABEL: train.list @step.apply
// CHECK: %[[HOST:.*]] = train.read @arena.scalars::@mesh.host : tensor<f64>
// CHECK: %[[SIZE:.*]] = nn.constant dense<3.000000e+00>
// CHECK: %[[MODEL:.*]] = train.read @arena.scalars::@mesh.model : tensor<f64>
// CHECK: %[[ROW:.*]] = nn.mul %[[HOST]], %[[SIZE]]
// CHECK: %[[SUM:.*]] = nn.add %[[ROW]], %[[MODEL]]
// CHECK: %[[POSITION:.*]] = nn.cast %[[SUM]] to i64
// CHECK: nn.mul %{{.*}}, %[[POSITION]] : tensor<1xi64>, tensor<i64>
// CHECK: train.segment_map

// EACH-LABEL: train.list @step.apply
// EACH: train.address @arena.scalars::@mesh.host
// EACH: train.address @arena.scalars::@mesh.model
train.mesh @mesh(host = 2, model = 3)
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<24xf32> init(ones) optimizer(@o) split([host, model])
train.step @step(%w: tensor<24xf32> gradient(@w)) precision(master = bf16, rounding = stochastic) {
  train.yield
}
