train.optimizer @g = sgd<lr = 0.1>
train.param @w : tensor<4x3xf32> init(normal<0.5>) optimizer(@g)

train.step @step(%x: tensor<2x4xf32>, %y: tensor<2xi32>) {
  %w = train.read @w : tensor<4x3xf32>
  %logits = nn.linear %x, %w : tensor<2x4xf32>, tensor<4x3xf32>
  %loss, %count = nn.cross_entropy %logits, %y : tensor<2x3xf32>, tensor<2xi32>
  train.yield loss(%loss) weight(%count) : tensor<f32>, tensor<f32>
}
train.eval @logits(%x: tensor<2x4xf32>) -> ("logits") {
  %w = train.read @w : tensor<4x3xf32>
  %logits = nn.linear %x, %w : tensor<2x4xf32>, tensor<4x3xf32>
  train.yield %logits : tensor<2x3xf32>
}
