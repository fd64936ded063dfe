// A collective that is not in place writes: here the gradient of a parameter that is sharded over the batch's axis, and gathered where it is used.
// RUN: trainc %s --mesh=data=2 --stop-after=commands -o - | FileCheck %s
// CHECK: train.list @step.first
// CHECK: %[[G:.*]] = train.address @arena.grad.f32.data::@w
// CHECK-NEXT: train.start reduce_scatter(%{{.*}}) outs(%[[G]]) over ["data"]
train.mesh @mesh(data = 1)
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<8x4xf32> init(ones) optimizer(@o) split([data])
train.step @step(%x: tensor<8x8xf32> split([data])) {
  %w = train.read @w : tensor<8x4xf32>
  %g = train.constrain %w split([]) : tensor<8x4xf32>
  %p = nn.matmul %x, %g : tensor<8x8xf32>, tensor<8x4xf32>
  %s = nn.mul %p, %p : tensor<8x4xf32>, tensor<8x4xf32>
  %loss = nn.reduce sum %s dims [0, 1] : tensor<8x4xf32>
  train.yield loss(%loss) : tensor<f32>
}
