// The time of what is computed again, as a part of the list's, by assumed and by measured rates.
//
// RUN: trainc-opt %s --train-recompute=limit=12288 | FileCheck %s --check-prefix=BYTES
// RUN: trainc-opt %s '--train-recompute=limit=12288 gpu=true' | FileCheck %s --check-prefix=BYTES
// RUN: trainc-opt %s '--train-recompute=limit=12288 rates=memory=1K,f32=1T' | FileCheck %s --check-prefix=BYTES
// RUN: trainc-opt %s '--train-recompute=limit=12288 rates=f32=1' | FileCheck %s --check-prefix=FLOPS
// RUN: not trainc-opt %s '--train-recompute=limit=12288 rates=speed=1' 2>&1 | FileCheck %s --check-prefix=ERROR
// RUN: not trainc-opt %s '--train-recompute=limit=12288 rates=f32=fast' 2>&1 | FileCheck %s --check-prefix=ERROR
// ERROR: error: expects rates of name=number, got '{{speed=1|f32=fast}}'

// @k moves 2 of 12 tensors, and has one of 5 times 1024 operations.
// BYTES: time = 0.16{{.*}} : f64, values = 1 : i64
// FLOPS: time = 2.0{{0*}}e-01 : f64, values = 1 : i64
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
