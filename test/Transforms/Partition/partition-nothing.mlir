// RUN: trainc-opt %s --split-input-file -o %t.before
// RUN: trainc-opt %s --train-partition --split-input-file -o %t.after
// RUN: diff %t.before %t.after

// It does nothing without a mesh, with one of one rank, or a second time.
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4xf32> init(ones) optimizer(@o)
train.step @step(%x: tensor<8x4xf32>) {
  %w = train.read @w : tensor<4xf32>
  %p = nn.mul %x, %w : tensor<8x4xf32>, tensor<4xf32>
  %s = nn.reduce sum %p dims [0, 1] : tensor<8x4xf32>
  train.yield loss(%s) : tensor<f32>
}

// -----

train.mesh @mesh(host = 1, data = 1)
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4xf32> init(ones) optimizer(@o)
train.step @step(%x: tensor<8x4xf32>) {
  %w = train.read @w : tensor<4xf32>
  %p = nn.mul %x, %w : tensor<8x4xf32>, tensor<4xf32>
  %s = nn.reduce sum %p dims [0, 1] : tensor<8x4xf32>
  train.yield loss(%s) : tensor<f32>
}

// -----

train.mesh @mesh(data = 2)
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4xf32> init(ones) optimizer(@o)
train.step @step(%x: tensor<8x4xf32> split([data])) attributes {over = ["data"]} {
  %w = train.read @w : tensor<4xf32>
  %p = nn.mul %x, %w : tensor<8x4xf32>, tensor<4xf32>
  %s = nn.reduce sum %p dims [0, 1] : tensor<8x4xf32>
  train.yield loss(%s) : tensor<f32>
}
