// RUN: trainc-opt %s --train-form-kernels --split-input-file --verify-diagnostics

train.list @not_expanded of @e "first" () {
  // expected-error @below {{cannot be made a command}}
  %due = train.window_end
  train.return
}
