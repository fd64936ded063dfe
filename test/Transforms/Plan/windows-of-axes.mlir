// RUN: trainc %s --mesh=model=2 --stop-after=plan -o - | FileCheck %s

// A window with the name of an axis has arenas of its own beside those of what is split over the axis.
// CHECK: train.arena @arena.grad.f32.model gradient {
// CHECK-NEXT: train.slice @w
// CHECK-NEXT: train.span
// CHECK-NEXT: }
// CHECK: train.arena @arena.grad.f32$model gradient {
// CHECK-NEXT: train.slice @v
// CHECK-NEXT: train.span
// CHECK-NEXT: }
train.mesh @mesh(model = 1)
train.optimizer @a = sgd<lr = 0.1>
train.optimizer @b = sgd<lr = 0.2>
train.param @w : tensor<4xf32> init(ones) optimizer(@a) split([model])
train.param @v : tensor<4xf32> init(ones) optimizer(@b)
train.step @generator(%x: tensor<4xf32>) trains([@a]) {
  %w = train.read @w : tensor<4xf32>
  %m = nn.mul %w, %x : tensor<4xf32>, tensor<4xf32>
  %l = nn.reduce sum %m dims [0] : tensor<4xf32>
  train.yield loss(%l) : tensor<f32>
}
train.step @model(%x: tensor<4xf32>) trains([@b]) {
  %v = train.read @v : tensor<4xf32>
  %m = nn.mul %v, %x : tensor<4xf32>, tensor<4xf32>
  %l = nn.reduce sum %m dims [0] : tensor<4xf32>
  train.yield loss(%l) : tensor<f32>
}
