// A collective that is not in place writes: here the gradient of a parameter that is sharded over the batch's axis, and gathered where it is used.
// RUN: trainc %s --mesh=data=2,model=1 --stop-after=commands -o - | FileCheck %s
// CHECK: train.list @step.first
// CHECK: %[[G:.*]] = train.address @arena.grad.f32.data::@w
// CHECK-NEXT: train.start reduce_scatter(%{{.*}}) outs(%[[G]]) over ["data"]

// What all ranks along `model` have of it is reduced once it is there.
// RUN: trainc %s --mesh=data=2,model=2 --stop-after=commands -o - | FileCheck %s --check-prefix=MODEL
// MODEL: train.list @step.first
// MODEL: %[[G:.*]] = train.address @arena.grad.f32.data::@w
// MODEL-NEXT: %[[T:.*]] = train.start reduce_scatter(%{{.*}}) outs(%[[G]]) over ["data"]
// MODEL-NEXT: train.wait %[[T]]
// MODEL: %[[B:.*]] = train.address @arena.grad.f32.data::@bucket
// MODEL-NEXT: train.start reduce_scatter outs(%[[B]]) over ["model"] as @
train.mesh @mesh(data = 1, model = 1)
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<8x4xf32> init(ones) optimizer(@o) split([data])
train.param @v : tensor<4x4xf32> init(ones) optimizer(@o) split([data], [model])
train.step @step(%x: tensor<8x8xf32> split([data])) {
  %w = train.read @w : tensor<8x4xf32>
  %v = train.read @v : tensor<4x4xf32>
  %g = train.constrain %w split([]) : tensor<8x4xf32>
  %p = nn.matmul %x, %g : tensor<8x8xf32>, tensor<8x4xf32>
  %c = train.constrain %v split([], [model]) : tensor<4x4xf32>
  %q = nn.matmul %p, %c : tensor<8x4xf32>, tensor<4x4xf32>
  %s = nn.mul %q, %q : tensor<8x4xf32>, tensor<8x4xf32>
  %loss = nn.reduce sum %s dims [0, 1] : tensor<8x4xf32>
  train.yield loss(%loss) : tensor<f32>
}
