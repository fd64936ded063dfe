// RUN: trainc-opt %s --train-defer-reduce --verify-diagnostics

// expected-error @below {{expects memory that is not planned; run train-defer-reduce before train-plan-memory}}
train.list @l of @e "first" () workspace(0) alive(0) {
  train.return
}
