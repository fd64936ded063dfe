// RUN: trainc-opt %s --train-plan-step --split-input-file | FileCheck %s

// A position in the mesh is computed, in f64, from those along its axes, which the runtime
// writes as scalars.
// CHECK-LABEL: train.step @step
// CHECK-DAG: %[[H:.*]] = train.read @arena.scalars::@mesh.host : tensor<f64>
// CHECK-DAG: %[[FOUR:.*]] = nn.constant dense<4.000000e+00> : tensor<f64>
// CHECK: %[[D:.*]] = train.read @arena.scalars::@mesh.data : tensor<f64>
// CHECK: %[[M:.*]] = nn.mul %[[H]], %[[FOUR]]
// CHECK: %[[I:.*]] = nn.add %[[M]], %[[D]]
// CHECK: %[[N:.*]] = nn.cast %[[I]] to i64
// CHECK: nn.part %{{.*}} at %[[N]]
// CHECK-LABEL: train.eval @eval
// CHECK: %[[D:.*]] = train.read @arena.scalars::@mesh.data
// CHECK: %[[N:.*]] = nn.cast %[[D]] to i64
// CHECK: nn.part %{{.*}} at %[[N]]
// CHECK-NOT: train.process_index
// CHECK: train.arena @arena.scalars
// CHECK: train.slice @mesh.host
// CHECK-NEXT: train.slice @mesh.data
// CHECK-NEXT: train.slice @mesh.model
train.mesh @mesh(host = 2, data = 4, model = 1)
train.optimizer @o(%p: f32, %g: f32) {
  train.yield %g : f32
}
train.param @w : tensor<8xf32> init(ones) optimizer(@o)
train.step @step(%x: tensor<8xf32>) {
  %i = train.process_index over ["host", "model", "data"] : tensor<i64>
  %p = nn.part %x at %i dim 0 of 8 : tensor<8xf32>
  %l = nn.reduce sum %p dims [0] : tensor<1xf32>
  train.store_gradient %x into @w : tensor<8xf32>
  train.yield loss(%l) : tensor<f32>
}
train.eval @eval(%x: tensor<8xf32>) -> ("p") {
  %i = train.process_index over ["data"] : tensor<i64>
  %p = nn.part %x at %i dim 0 of 4 : tensor<8xf32>
  train.yield %p : tensor<2xf32>
}

// -----

// A mesh of one rank has no scalars.
// CHECK-LABEL: train.step @one
// CHECK: train.arena @arena.scalars
// CHECK-NOT: @mesh.
train.mesh @mesh(host = 1)
train.optimizer @o(%p: f32, %g: f32) {
  train.yield %g : f32
}
train.param @w : tensor<8xf32> init(ones) optimizer(@o)
train.step @one(%x: tensor<8xf32>) {
  %l = nn.reduce sum %x dims [0] : tensor<8xf32>
  train.store_gradient %x into @w : tensor<8xf32>
  train.yield loss(%l) : tensor<f32>
}
