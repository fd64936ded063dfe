// RUN: trainc-opt %s --train-merge-launches --verify-diagnostics

// expected-error @below {{expects memory that is not planned; run train-merge-launches before train-plan-memory}}
train.list @late of @step "apply" () workspace(0) {
  train.return
}
