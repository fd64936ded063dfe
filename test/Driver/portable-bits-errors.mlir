// What has other bits on other processors is refused at the operation.
// RUN: not trainc %s --portable-bits -o %t.so 2>&1 | FileCheck %s
// RUN: not ls %t.so

train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4xf64> init(zeros) optimizer(@o)
train.step @step(%x: tensor<4xf64>) {
  %w = train.read @w : tensor<4xf64>
  // CHECK: portable-bits-errors.mlir:[[#@LINE + 1]]:8: error: expects no function of f64 that only a libm computes, with portable bits, got 'math.tanh'
  %a = nn.tanh %w : tensor<4xf64>
  %b = nn.mul %a, %x : tensor<4xf64>, tensor<4xf64>
  %loss = nn.reduce sum %b dims [0] : tensor<4xf64>
  train.yield loss(%loss) : tensor<f64>
}
