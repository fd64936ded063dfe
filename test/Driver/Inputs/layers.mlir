train.optimizer @g = adamw<lr = 0.1, weight_decay = 0.01>
train.param @first : tensor<16x24xf32> init(normal<0.5>) optimizer(@g)
train.param @second : tensor<24x40xf32> init(normal<0.5>) optimizer(@g)
train.param @bias : tensor<40xf32> init(zeros) optimizer(@g)
train.param @third : tensor<40x10xf32> init(normal<0.5>) optimizer(@g)

train.step @step(%x: tensor<8x16xf32>, %y: tensor<8xi32>) clip(global_norm<1.0>) {
  %first = train.read @first : tensor<16x24xf32>
  %second = train.read @second : tensor<24x40xf32>
  %bias = train.read @bias : tensor<40xf32>
  %third = train.read @third : tensor<40x10xf32>
  %0 = nn.linear %x, %first : tensor<8x16xf32>, tensor<16x24xf32>
  %1 = nn.silu %0 : tensor<8x24xf32>
  %2 = nn.linear %1, %second, %bias : tensor<8x24xf32>, tensor<24x40xf32>, tensor<40xf32>
  %3 = nn.clamp %2 low -1.0 high 6.0 : tensor<8x40xf32>
  %4 = nn.linear %3, %third : tensor<8x40xf32>, tensor<40x10xf32>
  %loss, %count = nn.cross_entropy %4, %y : tensor<8x10xf32>, tensor<8xi32>
  train.yield loss(%loss) weight(%count) : tensor<f32>, tensor<f32>
}
