// RUN: trainc-opt %s --train-partition --split-input-file --verify-diagnostics

train.mesh @mesh(data = 4)
// expected-error @below {{'train.step' op expects input "x" to divide into 4 parts along dimension 0, over ["data"], got size 30}}
train.step @step(%x: tensor<30xf32> split([data])) {
  %s = nn.reduce sum %x dims [0] : tensor<30xf32>
  train.yield loss(%s) : tensor<f32>
}

// -----

train.mesh @mesh(host = 2, data = 4)
// expected-error @below {{'train.step' op expects an input or a parameter that is split over axis 'data' of 4 ranks, or a gradient among the inputs; got none}}
train.step @step(%x: tensor<8xf32> split([host])) {
  %s = nn.reduce sum %x dims [0] : tensor<8xf32>
  train.yield loss(%s) : tensor<f32>
}

// -----

train.mesh @mesh(data = 4)
// expected-error @below {{'train.param' op expects its size, in 3 blocks, to divide into 4 parts along dimension 1, over ["data"], got size 30}}
train.param @w : tensor<4x30xf32> init(zeros) frozen split([], [data]) blocks [1, 3]
train.step @step(%x: tensor<8xf32> split([data])) {
  %s = nn.reduce sum %x dims [0] : tensor<8xf32>
  train.yield loss(%s) : tensor<f32>
}

// -----

train.mesh @mesh(data = 4)
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<8xf32> init(zeros) optimizer(@o)
// expected-error @below {{'train.step' op expects a gradient among the inputs to be split as its parameter is, got input "g" with split([data])}}
train.step @step(%g: tensor<8xf32> gradient(@w) split([data])) {
  train.yield
}

// -----

train.mesh @mesh(data = 2)
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<7xf32> init(zeros) optimizer(@o) split([data])
// expected-error @below {{'train.step' op expects a gradient among the inputs to be of a parameter whose parts are equal and of one block, got input "g" of 'tensor<7xf32>' split([data])}}
train.step @step(%g: tensor<7xf32> gradient(@w)) {
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

// Something along what is split.
train.mesh @mesh(data = 2)
// expected-note @below {{operand 0 is split([], [data])}}
train.step @step(%x: tensor<8x4xf32> split([], [data])) {
  // expected-error @below {{'nn.slice' op cannot be done in parts along dimension 1 of operand 0, 'tensor<8x4xf32>', over ["data"]}}
  %a = nn.slice %x offsets [0, 1] sizes [8, 3] : tensor<8x4xf32>
  %s = nn.reduce sum %a dims [0, 1] : tensor<8x3xf32>
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

// Rows of a table in blocks are no range of rows.
train.mesh @mesh(model = 2)
train.param @w : tensor<8x4xf32> init(zeros) frozen split([model]) blocks [2, 1]
train.step @step(%x: tensor<3xi32>) {
  %w = train.read @w : tensor<8x4xf32>
  // expected-error @below {{'nn.embedding' op expects the rows of its table split as one block, got 2 blocks}}
  %a = nn.embedding %w, %x : tensor<8x4xf32>, tensor<3xi32>
  %s = nn.reduce sum %a dims [0, 1] : tensor<3x4xf32>
  train.yield loss(%s) : tensor<f32>
}

// -----

// Heads that do not come out even.
train.mesh @mesh(model = 2)
train.param @w : tensor<4x12xf32> init(zeros) frozen split([], [model])
train.step @step(%x: tensor<2x4xf32>) {
  // expected-note @below {{operand 0 is split([], [model])}}
  %w = train.read @w : tensor<4x12xf32>
  // expected-error @below {{'nn.reshape' op cannot be done in parts along dimension 1 of operand 0, 'tensor<4x12xf32>', over ["model"]}}
  %a = nn.reshape %w : tensor<4x12xf32> to tensor<4x3x4xf32>
  %s = nn.reduce sum %a dims [0, 1, 2] : tensor<4x3x4xf32>
  train.yield loss(%s) : tensor<f32>
}

// -----

// expected-error @below {{'train.mesh' op expects no axis 'pipe' of several ranks: a step is not cut into stages of a pipeline yet (see docs/Rationale.md); got 2}}
train.mesh @mesh(pipe = 2)
train.step @step(%x: tensor<4xf32> split([pipe])) {
  %s = nn.reduce sum %x dims [0] : tensor<4xf32>
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
