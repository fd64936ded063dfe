train.optimizer @o = sgd<lr = 0.1, momentum = 0.9>
train.param @table : tensor<7x4xf32> init(normal<0.5>) optimizer(@o)
train.param @w : tensor<4x3xf32> init(normal<0.5>) optimizer(@o)
train.step @step(%t: tensor<8xi32>, %x: tensor<8x4xf32>, %y: tensor<8xi32>) {
  %table = train.read @table : tensor<7x4xf32>
  %w = train.read @w : tensor<4x3xf32>
  %e = nn.embedding %table, %t : tensor<7x4xf32>, tensor<8xi32>
  %h = nn.add %e, %x : tensor<8x4xf32>, tensor<8x4xf32>
  %g = nn.exp %h : tensor<8x4xf32>
  %l = nn.linear %g, %w : tensor<8x4xf32>, tensor<4x3xf32>
  %loss, %count = nn.cross_entropy %l, %y : tensor<8x3xf32>, tensor<8xi32>
  train.yield loss(%loss) weight(%count) : tensor<f32>, tensor<f32>
}
