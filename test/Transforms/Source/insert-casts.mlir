// RUN: trainc-opt %s --train-insert-casts --split-input-file | FileCheck %s
// RUN: trainc-opt %s --train-insert-casts --train-insert-casts --split-input-file | FileCheck %s

train.optimizer @o = sgd<lr = 0.1>
train.param @table : tensor<7x4xf32> init(zeros) optimizer(@o)
train.param @scale : tensor<4xf32> init(ones) optimizer(@o)
train.param @w : tensor<4x3xf32> init(zeros) optimizer(@o)

// Products and embeddings in bf16, the residual stream after them; norms keep f32
// weights; the loss is f32. The tied table is cast once.
// CHECK-LABEL: train.step @step
// CHECK: %[[T:.*]] = train.read @table
// CHECK-NEXT: %[[TC:.*]] = nn.cast %[[T]] to bf16
// CHECK: %[[X:.*]] = nn.embedding %[[TC]], %{{.*}} : tensor<7x4xbf16>
// CHECK: %[[S:.*]] = train.read @scale
// CHECK: %[[N:.*]] = nn.rms_norm %[[X]], %[[S]] : tensor<2x4xbf16>, tensor<4xf32>
// CHECK: %[[HALF:.*]] = nn.constant
// CHECK-NEXT: %[[HC:.*]] = nn.cast %[[HALF]] to bf16
// CHECK: nn.mul %[[N]], %[[HC]] : tensor<2x4xbf16>, tensor<bf16>
// CHECK: %[[L:.*]] = nn.matmul %{{.*}}, %[[TC]] transpose_rhs : tensor<2x4xbf16>, tensor<7x4xbf16>
// CHECK: %[[LOSS:.*]], %[[COUNT:.*]] = nn.cross_entropy %[[L]], %{{.*}} : tensor<2x7xbf16>
// CHECK: train.yield loss(%[[LOSS]]) weight(%[[COUNT]]) : tensor<f32>, tensor<f32>
train.step @step(%ids: tensor<2xi32>, %y: tensor<2xi32>) precision(compute = bf16) {
  %table = train.read @table : tensor<7x4xf32>
  %x = nn.embedding %table, %ids : tensor<7x4xf32>, tensor<2xi32>
  %s = train.read @scale : tensor<4xf32>
  %n = nn.rms_norm %x, %s : tensor<2x4xf32>, tensor<4xf32>
  %half = nn.constant dense<0.5> : tensor<f32>
  %h = nn.mul %n, %half : tensor<2x4xf32>, tensor<f32>
  %logits = nn.matmul %h, %table transpose_rhs : tensor<2x4xf32>, tensor<7x4xf32>
  %loss, %count = nn.cross_entropy %logits, %y : tensor<2x7xf32>, tensor<2xi32>
  train.yield loss(%loss) weight(%count) : tensor<f32>, tensor<f32>
}

// An eval returns the types of its source.
// CHECK-LABEL: train.eval @eval
// CHECK: %[[WC:.*]] = nn.cast %{{.*}} to bf16 : tensor<4x3xf32>
// CHECK: %[[P:.*]] = nn.linear %{{.*}}, %[[WC]] : tensor<2x4xbf16>, tensor<4x3xbf16>
// CHECK-NEXT: %[[P32:.*]] = nn.cast %[[P]] to f32
// CHECK: train.yield %[[P32]] : tensor<2x3xf32>
train.eval @eval(%x: tensor<2x4xf32>) -> ("p") {
  %w = train.read @w : tensor<4x3xf32>
  %p = nn.linear %x, %w : tensor<2x4xf32>, tensor<4x3xf32>
  train.yield %p : tensor<2x3xf32>
}

// -----

train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4x4xf32> init(zeros) optimizer(@o)
train.param @head : tensor<4x4xf32> init(zeros) optimizer(@o)

// A kept parameter makes its product f32; what meets a bf16 activation is narrowed.
// CHECK-LABEL: train.step @kept
// CHECK: %[[R:.*]] = train.recompute -> tensor<2x4xf16>
// CHECK: nn.linear %{{.*}} : tensor<2x4xf16>, tensor<4x4xf16>
// CHECK: %[[S:.*]] = nn.add %{{.*}}, %[[R]] : tensor<2x4xf16>
// CHECK: %[[SC:.*]] = nn.cast %[[S]] to f32
// CHECK: %[[H:.*]] = train.read @head
// CHECK-NOT: nn.cast %[[H]]
// CHECK: %[[P:.*]] = nn.linear %[[SC]], %[[H]] : tensor<2x4xf32>, tensor<4x4xf32>
// CHECK: nn.mse %[[P]], %{{.*}} : tensor<2x4xf32>, tensor<2x4xf32>
train.step @kept(%x: tensor<2x4xf32>) precision(compute = f16, keep_f32 = [@head]) {
  %r = train.recompute -> tensor<2x4xf32> {
    %w = train.read @w : tensor<4x4xf32>
    %h = nn.linear %x, %w : tensor<2x4xf32>, tensor<4x4xf32>
    train.yield %h : tensor<2x4xf32>
  }
  %s = nn.add %x, %r : tensor<2x4xf32>, tensor<2x4xf32>
  %head = train.read @head : tensor<4x4xf32>
  %p = nn.linear %s, %head : tensor<2x4xf32>, tensor<4x4xf32>
  %loss, %count = nn.mse %p, %x : tensor<2x4xf32>, tensor<2x4xf32>
  train.yield loss(%loss) weight(%count) : tensor<f32>, tensor<f32>
}

// -----

train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4x4xf32> init(zeros) optimizer(@o)

// It does nothing without a precision.
// CHECK-LABEL: train.step @plain
// CHECK-NOT: nn.cast
train.step @plain(%x: tensor<2x4xf32>) {
  %w = train.read @w : tensor<4x4xf32>
  %p = nn.linear %x, %w : tensor<2x4xf32>, tensor<4x4xf32>
  %loss, %count = nn.mse %p, %x : tensor<2x4xf32>, tensor<2x4xf32>
  train.yield loss(%loss) weight(%count) : tensor<f32>, tensor<f32>
}

// -----

train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4x4xf32> init(zeros) optimizer(@o)

// What is stored in bf16 and computed in f32 is f32 also where nothing but parameters meet.
// CHECK-LABEL: train.step @stored
// CHECK: %[[W:.*]] = train.read @w : tensor<4x4xbf16>
// CHECK-NEXT: %[[C:.*]] = nn.cast %[[W]] to f32
// CHECK: %[[S:.*]] = nn.mul %[[C]], %[[C]] : tensor<4x4xf32>
// CHECK: nn.linear %x, %[[S]] : tensor<2x4xf32>, tensor<4x4xf32>
train.step @stored(%x: tensor<2x4xf32>) precision(compute = f32, master = bf16) {
  %w = train.read @w : tensor<4x4xf32>
  %s = nn.mul %w, %w : tensor<4x4xf32>, tensor<4x4xf32>
  %p = nn.linear %x, %s : tensor<2x4xf32>, tensor<4x4xf32>
  %loss, %count = nn.mse %p, %x : tensor<2x4xf32>, tensor<2x4xf32>
  train.yield loss(%loss) weight(%count) : tensor<f32>, tensor<f32>
}

// -----

train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4x4xf32> init(zeros) optimizer(@o)

// Constants that the type cannot hold are its largest numbers; infinities, NaN and small ones are
// what they are, and where all fit there is a cast.
// CHECK-LABEL: train.step @large
// CHECK: %[[H:.*]] = nn.matmul {{.*}} : tensor<2x4xf16>, tensor<4x4xf16>
// CHECK: nn.constant dense<-3.40282347E+38> : tensor<f32>
// CHECK-NEXT: %[[LOW:.*]] = nn.constant dense<-6.550400e+04> : tensor<f16>
// CHECK: nn.select %k, %[[H]], %[[LOW]] : tensor<4xi1>, tensor<2x4xf16>, tensor<f16>
// CHECK: nn.constant dense<[9.99999968E+37, 0x7F800000, 0x7FC00000, 5.000000e-01]> : tensor<4xf32>
// CHECK-NEXT: %[[LIST:.*]] = nn.constant dense<[6.550400e+04, 0x7C00, 0x7E00, 5.000000e-01]> : tensor<4xf16>
// CHECK: nn.add %{{.*}}, %[[LIST]] : tensor<2x4xf16>, tensor<4xf16>
// CHECK: %[[FITS:.*]] = nn.constant dense<6.551000e+04> : tensor<f32>
// CHECK-NEXT: nn.cast %[[FITS]] to f16
train.step @large(%x: tensor<2x4xf32>, %k: tensor<4xi1>) precision(compute = f16) loss_scale(16.0) {
  %w = train.read @w : tensor<4x4xf32>
  %h = nn.matmul %x, %w : tensor<2x4xf32>, tensor<4x4xf32>
  %low = nn.constant dense<-3.40282347e+38> : tensor<f32>
  %s = nn.select %k, %h, %low : tensor<4xi1>, tensor<2x4xf32>, tensor<f32>
  %list = nn.constant dense<[1.0e38, 0x7F800000, 0x7FC00000, 0.5]> : tensor<4xf32>
  %a = nn.add %s, %list : tensor<2x4xf32>, tensor<4xf32>
  %fits = nn.constant dense<6.551e4> : tensor<f32>
  %b = nn.add %a, %fits : tensor<2x4xf32>, tensor<f32>
  %loss, %count = nn.mse %b, %x : tensor<2x4xf32>, tensor<2x4xf32>
  train.yield loss(%loss) weight(%count) : tensor<f32>, tensor<f32>
}

// -----

train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<4x4xf32> init(zeros) optimizer(@o)

// So they are behind what only moves or selects elements, and as attributes.
// CHECK-LABEL: train.step @moved
// CHECK: %[[NL:.*]] = nn.constant dense<-3.389530e+38> : tensor<bf16>
// CHECK: %[[NR:.*]] = nn.reshape %[[NL]] : tensor<bf16> to tensor<1xbf16>
// CHECK: %[[NP:.*]] = nn.pad %[[NR]] low [0] high [3] value -3.3895313892515355E+38 : tensor<1xbf16>
// CHECK: %[[NZ:.*]] = nn.cast %{{.*}} to bf16 : tensor<f32>
// CHECK: %[[NM:.*]] = nn.select %k, %[[NZ]], %[[NP]] : tensor<4xi1>, tensor<bf16>, tensor<4xbf16>
// CHECK: %[[H:.*]] = nn.matmul
// CHECK: %[[S:.*]] = nn.add %[[H]], %[[NM]] : tensor<2x4xbf16>, tensor<4xbf16>
// Of a bound that is infinite in f32, too, nothing changes.
// CHECK: nn.clamp %[[S]] low -3.3895313892515355E+38 high 1.000000e+300 : tensor<2x4xbf16>
train.step @moved(%x: tensor<2x4xf32>, %k: tensor<4xi1>) precision(compute = bf16) {
  %w = train.read @w : tensor<4x4xf32>
  %low = nn.constant dense<-3.40282347e+38> : tensor<f32>
  %r = nn.reshape %low : tensor<f32> to tensor<1xf32>
  %p = nn.pad %r low [0] high [3] value -3.40282347e+38 : tensor<1xf32>
  %zero = nn.constant dense<0.0> : tensor<f32>
  %m = nn.select %k, %zero, %p : tensor<4xi1>, tensor<f32>, tensor<4xf32>
  %h = nn.matmul %x, %w : tensor<2x4xf32>, tensor<4x4xf32>
  %s = nn.add %h, %m : tensor<2x4xf32>, tensor<4xf32>
  %c = nn.clamp %s low -3.40282347e+38 high 1.0e+300 : tensor<2x4xf32>
  %loss, %count = nn.mse %c, %x : tensor<2x4xf32>, tensor<2x4xf32>
  train.yield loss(%loss) weight(%count) : tensor<f32>, tensor<f32>
}

// -----

// So does one behind nn.stop_gradient; what a region gives is bounded before.
train.optimizer @sgd = sgd<lr = 0.1>
train.param @w : tensor<4x4xf32> init(zeros) optimizer(@sgd)
// CHECK-LABEL: train.step @behind
// CHECK: %[[LOW:.*]] = nn.constant dense<-3.389530e+38> : tensor<bf16>
// CHECK: %[[STOP:.*]] = nn.stop_gradient %[[LOW]] : tensor<bf16>
// CHECK: %[[GIVEN:.*]] = train.recompute -> tensor<4xf32>
// CHECK: %[[CLAMP:.*]] = nn.clamp %[[GIVEN]] low -3.3895313892515355E+38 high 3.3895313892515355E+38 : tensor<4xf32>
// CHECK: %[[NARROW:.*]] = nn.cast %[[CLAMP]] to bf16 : tensor<4xf32>
// CHECK: nn.select %{{.*}}, %{{.*}}, %[[STOP]]
// CHECK: nn.select %{{.*}}, %{{.*}}, %[[NARROW]]
train.step @behind(%x: tensor<2x4xf32>, %k: tensor<4xi1>) precision(compute = bf16) {
  %w = train.read @w : tensor<4x4xf32>
  %low = nn.constant dense<-3.40282347e+38> : tensor<f32>
  %s = nn.stop_gradient %low : tensor<f32>
  %g = train.recompute -> tensor<4xf32> {
    %b = nn.broadcast %low : tensor<f32> to tensor<4xf32>
    train.yield %b : tensor<4xf32>
  }
  %h = nn.matmul %x, %w : tensor<2x4xf32>, tensor<4x4xf32>
  %a = nn.select %k, %h, %s : tensor<4xi1>, tensor<2x4xf32>, tensor<f32>
  %c = nn.select %k, %a, %g : tensor<4xi1>, tensor<2x4xf32>, tensor<4xf32>
  %loss, %count = nn.mse %c, %x : tensor<2x4xf32>, tensor<2x4xf32>
  train.yield loss(%loss) weight(%count) : tensor<f32>, tensor<f32>
}
