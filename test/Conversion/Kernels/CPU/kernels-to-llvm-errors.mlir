// RUN: trainc-opt %s --train-kernels-to-llvm --split-input-file --verify-diagnostics

// expected-error @below {{expects lowered kernels; run train-lower-kernels first}}
module {
}
