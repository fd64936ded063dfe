// RUN: trainc-opt %s --train-recompute=limit=12288 --split-input-file | FileCheck %s
// RUN: trainc-opt %s --train-recompute --split-input-file | FileCheck %s --check-prefix=NONE
// RUN: trainc-opt %s --train-recompute=limit=1000000 --split-input-file | FileCheck %s --check-prefix=NONE
// NONE-NOT: recomputed

// %a, %b, %c and %d would take 16384 bytes when %d is made. %a is not kept until then.
// CHECK-LABEL: train.list @chain
// CHECK-SAME: recomputed = {bytes_saved = 4096 : i64, time = 0.16{{.*}} : f64, values = 1 : i64}
// CHECK: train.launch @k(%[[X:.*]]) :
// CHECK: %[[D:.*]] = train.launch @two
// CHECK-NEXT: %[[A:.*]] = train.launch @k(%[[X]]) :
// CHECK-NEXT: train.launch @two(%[[D]], %[[A]])
train.kernel @k(%x: tensor<1024xf32>) inplace [-1] {
  %y = nn.neg %x : tensor<1024xf32>
  train.return %y : tensor<1024xf32>
}
train.kernel @two(%x: tensor<1024xf32>, %y: tensor<1024xf32>) inplace [-1] {
  %z = nn.add %x, %y : tensor<1024xf32>, tensor<1024xf32>
  train.return %z : tensor<1024xf32>
}
train.list @chain of @e "first" (%x: tensor<1024xf32>) {
  %a = train.launch @k(%x) : (tensor<1024xf32>) -> tensor<1024xf32>
  %b = train.launch @k(%a) : (tensor<1024xf32>) -> tensor<1024xf32>
  %c = train.launch @k(%b) : (tensor<1024xf32>) -> tensor<1024xf32>
  %d = train.launch @two(%c, %b) : (tensor<1024xf32>, tensor<1024xf32>) -> tensor<1024xf32>
  %e = train.launch @two(%d, %a) : (tensor<1024xf32>, tensor<1024xf32>) -> tensor<1024xf32>
  train.return %e : tensor<1024xf32>
}

// -----

// One result is made of the other by the operations between them, which become a kernel; what reads it
// through a reshape finds it.
// CHECK-LABEL: train.list @part
// CHECK: %[[L:.*]]:2 = train.launch @k(
// CHECK: %[[Y:.*]] = train.launch @k_again(%[[L]]#0) : (tensor<8x128xf32>) -> tensor<8x128xf32>
// CHECK-NEXT: %[[V:.*]] = nn.reshape %[[Y]]
// CHECK-NEXT: train.launch @two(%{{.*}}, %[[V]])
// CHECK: train.kernel @k_again(%[[H:.*]]: tensor<8x128xf32>) inplace [-1] {
// CHECK-NEXT: %[[E:.*]] = nn.exp %[[H]]
// CHECK-NEXT: train.return %[[E]]
train.list @part of @e "first" (%x: tensor<8x128xf32>) {
  %i = train.launch @i(%x) : (tensor<8x128xf32>) -> tensor<8x128xf32>
  %h, %y = train.launch @k(%i) : (tensor<8x128xf32>) -> (tensor<8x128xf32>, tensor<8x128xf32>)
  %v = nn.reshape %y : tensor<8x128xf32> to tensor<1024xf32>
  %u = nn.reshape %h : tensor<8x128xf32> to tensor<1024xf32>
  %a = train.launch @two(%v, %v) : (tensor<1024xf32>, tensor<1024xf32>) -> tensor<1024xf32>
  %b = train.launch @two(%a, %u) : (tensor<1024xf32>, tensor<1024xf32>) -> tensor<1024xf32>
  %c = train.launch @two(%b, %v) : (tensor<1024xf32>, tensor<1024xf32>) -> tensor<1024xf32>
  train.return %c : tensor<1024xf32>
}
train.kernel @i(%x: tensor<8x128xf32>) inplace [-1] {
  %y = nn.neg %x : tensor<8x128xf32>
  train.return %y : tensor<8x128xf32>
}
train.kernel @k(%x: tensor<8x128xf32>) inplace [-1, -1] {
  %m = nn.reduce sum %x dims [1] keep : tensor<8x128xf32>
  %h = nn.sub %x, %m : tensor<8x128xf32>, tensor<8x1xf32>
  %y = nn.exp %h : tensor<8x128xf32>
  train.return %h, %y : tensor<8x128xf32>, tensor<8x128xf32>
}
train.kernel @two(%x: tensor<1024xf32>, %y: tensor<1024xf32>) inplace [-1] {
  %z = nn.add %x, %y : tensor<1024xf32>, tensor<1024xf32>
  train.return %z : tensor<1024xf32>
}

// -----

// What a value is made from is computed again, too, where it is not there any more.
// CHECK-LABEL: train.list @block
// CHECK: train.gemm
// CHECK: %[[D:.*]] = train.launch @two
// CHECK-NEXT: %[[A:.*]] = train.launch @k(%{{.*}}) :
// CHECK-NEXT: %[[P:.*]] = train.gemm %[[A]], %{{.*}} m 32
// CHECK-NEXT: train.launch @two(%[[D]], %[[P]])
train.kernel @k(%x: tensor<32x32xf32>) inplace [-1] {
  %y = nn.neg %x : tensor<32x32xf32>
  train.return %y : tensor<32x32xf32>
}
train.kernel @two(%x: tensor<32x32xf32>, %y: tensor<32x32xf32>) inplace [-1] {
  %z = nn.add %x, %y : tensor<32x32xf32>, tensor<32x32xf32>
  train.return %z : tensor<32x32xf32>
}
train.list @block of @e "first" (%x: tensor<32x32xf32>) {
  %a = train.launch @k(%x) : (tensor<32x32xf32>) -> tensor<32x32xf32>
  %p = train.gemm %a, %x m 32 n 32 k 32 batch 1 : tensor<32x32xf32>, tensor<32x32xf32> -> tensor<32x32xf32>
  %b = train.launch @k(%p) : (tensor<32x32xf32>) -> tensor<32x32xf32>
  %c = train.launch @k(%b) : (tensor<32x32xf32>) -> tensor<32x32xf32>
  %d = train.launch @two(%c, %b) : (tensor<32x32xf32>, tensor<32x32xf32>) -> tensor<32x32xf32>
  %e = train.launch @two(%d, %p) : (tensor<32x32xf32>, tensor<32x32xf32>) -> tensor<32x32xf32>
  train.return %e : tensor<32x32xf32>
}

// -----

// Does nothing below the limit, and in a list that is planned.
// CHECK-LABEL: train.list @small
// CHECK-NOT: recomputed
// CHECK-COUNT-2: train.launch
// CHECK-NOT: train.launch
train.kernel @k(%x: tensor<1024xf32>) inplace [-1] {
  %y = nn.neg %x : tensor<1024xf32>
  train.return %y : tensor<1024xf32>
}
train.list @small of @e "first" (%x: tensor<1024xf32>) {
  %a = train.launch @k(%x) : (tensor<1024xf32>) -> tensor<1024xf32>
  %b = train.launch @k(%a) : (tensor<1024xf32>) -> tensor<1024xf32>
  train.return %b : tensor<1024xf32>
}
// CHECK: train.list @planned
train.list @planned of @e "first" () workspace(64000) {
  train.return
}
