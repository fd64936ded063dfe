// RUN: trainc-opt %s --train-plan-gemms --verify-diagnostics --split-input-file
// RUN: not trainc-opt %s --train-plan-gemms=cores=0 2>&1 | FileCheck %s

// CHECK: expects 1 or more cores in train-plan-gemms, got 0

// expected-error @below {{expects memory that is not planned; run train-plan-gemms before train-plan-memory}}
train.list @late of @step "apply" () workspace(0) {
  train.return
}
