train.mesh @mesh(host = 1, data = 1)
train.optimizer @g = sgd<lr = 0.1>
train.param @w : tensor<4x3xf32> init(normal<0.5>) optimizer(@g)

train.step @step(%x: tensor<6x4xf32> split([host, data]), %y: tensor<6xi32> split([host, data])) {
  %w = train.read @w : tensor<4x3xf32>
  %logits = nn.linear %x, %w : tensor<6x4xf32>, tensor<4x3xf32>
  %loss, %count = nn.cross_entropy %logits, %y : tensor<6x3xf32>, tensor<6xi32>
  train.yield loss(%loss) weight(%count) : tensor<f32>, tensor<f32>
}
