// An alignment that is no power of two, or too small for an element, is refused in one line, and no file is written.
//
// DEFINE: %{refuses} = not trainc %s -o %t.so
// RUN: rm -f %t.so
// RUN: %{refuses} --align-size=6 2>&1 | FileCheck %s -DBYTES=4 -DNAME=a -DGOT=6
// RUN: %{refuses} --align-size=48 2>&1 | FileCheck %s -DBYTES=4 -DNAME=a -DGOT=48
// RUN: %{refuses} --align-size=0 2>&1 | FileCheck %s -DBYTES=4 -DNAME=a -DGOT=0
// RUN: %{refuses} --align-size=-8 2>&1 | FileCheck %s -DBYTES=4 -DNAME=a -DGOT=-8
// RUN: %{refuses} --align-size=2 2>&1 | FileCheck %s -DBYTES=4 -DNAME=a -DGOT=2
// RUN: %{refuses} --align-size=4 2>&1 | FileCheck %s -DBYTES=8 -DNAME=b -DGOT=4
// RUN: not ls %t.so
// RUN: trainc %s -o %t.so --align-size=8
//
// CHECK: odd-alignment.mlir:{{[0-9]+}}:{{[0-9]+}}: error: {{.*}}expects an align-size that is a power of two
// CHECK-SAME: not below the [[BYTES]] bytes of an element of @[[NAME]], got [[GOT]]
train.optimizer @o = sgd<lr = 0.1>
train.param @a : tensor<7xf32> init(zeros) optimizer(@o)
train.param @b : tensor<f64> init(zeros) optimizer(@o)
train.step @step(%x: tensor<7xf32>) {
  %a = train.read @a : tensor<7xf32>
  %b = train.read @b : tensor<f64>
  %p = nn.mul %a, %x : tensor<7xf32>, tensor<7xf32>
  %s = nn.reduce sum %p dims [0] : tensor<7xf32>
  %w = nn.cast %s to f64 : tensor<f32>
  %l = nn.mul %w, %b : tensor<f64>, tensor<f64>
  train.yield loss(%l) : tensor<f64>
}
