// RUN: trainc-opt %s --train-partition --split-input-file --verify-diagnostics

train.mesh @mesh(data = 4)
// expected-error @below {{'train.step' op expects input "x" to divide into 4 parts along dimension 0, over ["data"], got size 30}}
train.step @step(%x: tensor<30xf32> split([data])) {
  %s = nn.reduce sum %x dims [0] : tensor<30xf32>
  train.yield loss(%s) : tensor<f32>
}

// -----

train.mesh @mesh(host = 2, data = 4)
// expected-error @below {{'train.step' op expects an input that is split over axis 'data' of 4 ranks, or a gradient among the inputs; got neither}}
train.step @step(%x: tensor<8xf32> split([host])) {
  %s = nn.reduce sum %x dims [0] : tensor<8xf32>
  train.yield loss(%s) : tensor<f32>
}

// -----

train.mesh @mesh(data = 4)
// expected-error @below {{'train.param' op is split over axes of several ranks (split([], [data])); expected a parameter that is whole}}
train.param @w : tensor<4x8xf32> init(zeros) frozen split([], [data])
train.step @step(%x: tensor<8xf32> split([data])) {
  %s = nn.reduce sum %x dims [0] : tensor<8xf32>
  train.yield loss(%s) : tensor<f32>
}

// -----

train.mesh @mesh(data = 4)
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<8xf32> init(zeros) optimizer(@o)
// expected-error @below {{'train.step' op expects a gradient among the inputs to be whole, got input "g" with split([data])}}
train.step @step(%g: tensor<8xf32> gradient(@w) split([data])) {
  train.yield
}

// -----

train.mesh @mesh(host = 2, data = 2)
// expected-note @+2 {{operand 0 is split([host], [])}}
// expected-note @+1 {{operand 1 is split([data], [])}}
train.step @step(%x: tensor<8x4xf32> split([host]), %y: tensor<8x4xf32> split([data])) {
  // expected-error @below {{'nn.add' op has operands whose annotations are in conflict, along dimension 0 of operand 1, 'tensor<8x4xf32>', over ["data"]}}
  %a = nn.add %x, %y : tensor<8x4xf32>, tensor<8x4xf32>
  %s = nn.reduce sum %a dims [0, 1] : tensor<8x4xf32>
  train.yield loss(%s) : tensor<f32>
}

// -----

train.mesh @mesh(data = 2)
// expected-note @+2 {{operand 0 is split([data], [])}}
// expected-note @+1 {{operand 1 is split([], [data])}}
train.step @step(%x: tensor<8x4xf32> split([data]), %y: tensor<8x4xf32> split([], [data])) {
  // expected-error @below {{'nn.add' op has operands whose annotations are in conflict: two dimensions are split over 'data'}}
  %a = nn.add %x, %y : tensor<8x4xf32>, tensor<8x4xf32>
  %s = nn.reduce sum %a dims [0, 1] : tensor<8x4xf32>
  train.yield loss(%s) : tensor<f32>
}

// -----

// What its decomposition cannot be done in parts, either: the maximum of a softmax.
train.mesh @mesh(data = 2)
// expected-note @below {{operand 0 is split([], [data])}}
train.step @step(%x: tensor<8x4xf32> split([], [data])) {
  // expected-error @below {{'nn.reduce' op cannot be done in parts along dimension 1 of operand 0, 'tensor<8x4xf32>', over ["data"]}}
  %a = nn.softmax %x dim 1 : tensor<8x4xf32>
  %s = nn.reduce sum %a dims [0, 1] : tensor<8x4xf32>
  train.yield loss(%s) : tensor<f32>
}

// -----

// What a rotary decomposes into has no gradient.
train.mesh @mesh(data = 2)
// expected-note @below {{operand 0 is split([], [data], [], [])}}
train.step @step(%x: tensor<2x4x2x8xf32> split([], [data])) {
  // expected-error @below {{'nn.rotary' op cannot be done in parts along dimension 1 of operand 0, 'tensor<2x4x2x8xf32>', over ["data"]}}
  %a = nn.rotary %x theta 100.0 : tensor<2x4x2x8xf32>
  %s = nn.reduce sum %a dims [0, 1, 2, 3] : tensor<2x4x2x8xf32>
  train.yield loss(%s) : tensor<f32>
}

// -----

// Parts of a result that would have gaps.
train.mesh @mesh(data = 2)
// expected-note @below {{operand 0 is split([], [data])}}
train.step @step(%x: tensor<3x4xf32> split([], [data])) {
  // expected-error @below {{'nn.reshape' op cannot be done in parts along dimension 0 of result 0, 'tensor<12xf32>', over ["data"]}}
  %a = nn.reshape %x : tensor<3x4xf32> to tensor<12xf32>
  %s = nn.reduce sum %a dims [0] : tensor<12xf32>
  train.yield loss(%s) : tensor<f32>
}

// -----

train.mesh @mesh(data = 2)
train.buffer @b : tensor<4xf32> init(zeros)
train.step @step(%x: tensor<4xf32> split([data])) {
  // expected-error @below {{'train.write' op expects a value that all ranks have, got one with split([data])}}
  train.write %x to @b : tensor<4xf32>
  %s = nn.reduce sum %x dims [0] : tensor<4xf32>
  train.yield loss(%s) : tensor<f32>
}

// -----

train.mesh @mesh(data = 2)
train.step @step(%x: tensor<4xf32> split([data])) {
  %s = nn.reduce sum %x dims [0] : tensor<4xf32>
  train.yield loss(%s) : tensor<f32>
}
train.eval @eval(%x: tensor<4xi64> split([data])) -> ("sum") {
  %s = nn.reduce sum %x dims [0] : tensor<4xi64>
  // expected-error @below {{'train.yield' op needs a sum of i64 over ranks; expected a narrower integer or a float}}
  train.yield %s : tensor<i64>
}
