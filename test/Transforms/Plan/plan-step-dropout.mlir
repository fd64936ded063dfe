// RUN: trainc-opt %s --train-plan-step --split-input-file --verify-diagnostics | FileCheck %s

// Forward, recomputed and in the gradient: the same scalars. Windows are counted whether they were skipped or not.
// CHECK-LABEL: train.step @step
// CHECK-NEXT: %[[S:.*]] = train.read @arena.scalars::@seed : tensor<f64>
// CHECK-NEXT: %[[U:.*]] = train.read @arena.scalars::@update : tensor<f64>
// CHECK-NEXT: %[[SKIPPED:.*]] = train.read @arena.scalars::@skipped : tensor<f64>
// CHECK-NEXT: %[[CLOSED:.*]] = nn.add %[[U]], %[[SKIPPED]] : tensor<f64>, tensor<f64>
// CHECK-NEXT: %[[M:.*]] = train.read @arena.scalars::@micro_step : tensor<f64>
// CHECK: nn.dropout %{{.*}} rate 5.000000e-01 site 0 seed %[[S]] update %[[CLOSED]] micro_step %[[M]]
// CHECK: nn.dropout %{{.*}} rate 5.000000e-01 site 0 seed %[[S]] update %[[CLOSED]] micro_step %[[M]]
train.optimizer @o(%p: f32, %g: f32) {
  train.yield %g : f32
}
train.param @w : tensor<f32> init(zeros) optimizer(@o)
train.step @step() {
  %w = train.read @w : tensor<f32>
  %d = nn.dropout %w rate 0.5 site 0 : tensor<f32>
  %seed = train.seed 1.0 : tensor<f32>
  %g = nn.dropout %seed rate 0.5 site 0 : tensor<f32>
  train.store_gradient %g into @w : tensor<f32>
  train.yield loss(%d) : tensor<f32>
}

// -----

train.optimizer @o(%p: f32, %g: f32) {
  train.yield %g : f32
}
train.param @w : tensor<f32> init(zeros) optimizer(@o)
train.step @step() {
  %w = train.read @w : tensor<f32>
  // expected-error @+1 {{'nn.dropout' op expects a site; run train-assign-random first}}
  %d = nn.dropout %w rate 0.5 : tensor<f32>
  %seed = train.seed 1.0 : tensor<f32>
  train.store_gradient %seed into @w : tensor<f32>
  train.yield loss(%d) : tensor<f32>
}
