// RUN: trainc-opt %s --train-expand-optimizers --split-input-file | FileCheck %s

// Numbers are run-time scalars; those left out have their defaults.
// CHECK-LABEL: train.schedule @lr(%t: f64, %init: f64, %size: f64, %gamma: f64)
// CHECK-SAME: hyper(init = 1.000000e-01, size = 1.000000e+01, gamma = 1.000000e-01)
// CHECK: %[[X:.*]] = arith.divf %t, %size
// CHECK: %[[N:.*]] = math.floor %[[X]]
// CHECK: %[[POWER:.*]] = math.powf %gamma, %[[N]]
// CHECK: %[[LR:.*]] = arith.mulf %init, %[[POWER]]
// CHECK: train.yield %[[LR]] : f64
train.schedule @lr = step<init = 0.1, size = 10>

// -----

// CHECK-LABEL: train.schedule @lr(%t: f64, %value: f64) hyper(value = 2.500000e-01)
// CHECK-NEXT: train.yield %value : f64
train.schedule @lr = constant<value = 0.25>

// -----

// The warm-up ends where t reaches it.
// CHECK-LABEL: train.schedule @lr(%t: f64, %peak: f64, %warmup: f64, %init: f64)
// CHECK: %[[ROOT:.*]] = math.sqrt
// CHECK: %[[DECAYED:.*]] = arith.mulf %peak, %[[ROOT]]
// CHECK: %[[UP:.*]] = arith.cmpf olt, %t, %warmup
// CHECK: arith.select %[[UP]], %{{.*}}, %[[DECAYED]]
train.schedule @lr = inverse_sqrt<peak = 0.1, warmup = 10>

// -----

// A region of one's own stays as it is.
// CHECK-LABEL: train.schedule @lr(%t: f64, %base: f64) hyper(base = 1.000000e-01)
// CHECK-NEXT: %[[R:.*]] = arith.mulf %base, %t : f64
// CHECK-NEXT: train.yield %[[R]] : f64
train.schedule @lr(%t: f64, %base: f64) hyper(base = 0.1) {
  %r = arith.mulf %base, %t : f64
  train.yield %r : f64
}
