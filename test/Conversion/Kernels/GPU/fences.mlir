// Without its fences, a kernel whose blocks count each other is a race at its first launch; seen late, its stores make wrong
// sums.
//
// RUN: trainc-opt %s --train-lower-kernels-to-gpu | sed -n '/^  gpu.module/,/^  }/p;/^#/p' > %t.mlir
// RUN: trainc-emulate %t.mlir -o %t.so
// RUN: sed '/llvm.fence/d' %t.mlir > %t.old.mlir && trainc-emulate %t.old.mlir -o %t.old.so
// DEFINE: %{launch} = %python %S/../../../Target/GPU/Inputs/launch.py %runtime_lib/libtrainc_emulator.so
// DEFINE: %{arguments} = columns f32:96000=1 f32:96 i32:65536=0 --grid 16 --block 256 --print 1
// RUN: %{launch} %t.so %{arguments} | FileCheck %s
// RUN: %{launch} %t.so %{arguments} --late | FileCheck %s
// CHECK: arg1:{{( 1000.0){96}$}}
// RUN: not %{launch} %t.old.so %{arguments} 2>&1 | FileCheck %s --check-prefix=OLD
// OLD: status 17: data race on global memory
// OLD-NEXT: kernel columns, block
// RUN: %{launch} %t.old.so %{arguments} --late | FileCheck %s --check-prefix=LATE
// LATE-NOT: 1000.0
// LATE: columns: no fault

train.kernel @columns(%x: tensor<1000x96xf32>) inplace [-1] {
  %s = nn.reduce sum %x dims [0] : tensor<1000x96xf32>
  train.return %s : tensor<96xf32>
}
