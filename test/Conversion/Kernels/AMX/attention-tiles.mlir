// RUN: trainc-opt %s --train-lower-kernels=amx=true | FileCheck %s
// RUN: trainc-opt %s --train-lower-kernels | FileCheck %s --check-prefix=NONE
// RUN: trainc-opt %s --train-lower-kernels='amx=true split-f32=false' | FileCheck %s --check-prefix=WHOLE

// NONE-NOT: amx = true

// WHOLE: train.kernel @forward({{.*}} attributes {abi = #train.abi<workgroups = {{[0-9]+}}, {{.*}}amx = true>
// WHOLE: train.kernel @pieces({{.*}} attributes {abi = #train.abi<workgroups = {{[0-9]+}}, scratch = {{[0-9]+}}>}
// WHOLE-LABEL: func.func @pieces(
// WHOLE-NOT: tdpbf16ps
// WHOLE-LABEL: func.func @f32(

// Queries stand in 32 lanes: scores of 64 keys are 4 x 2 tiles, two steps of d deep; sums of 64 d are 4 x 2, two steps of
// keys deep. Both loops hold 2 x 2 tiles.
// CHECK-LABEL: train.kernel @forward(
// CHECK-SAME: attributes {abi = #train.abi<workgroups = {{[0-9]+}}, scratch = {{[0-9]+}}, amx = true>}
// CHECK-LABEL: func.func @forward(
// CHECK-SAME: tiles = 12
// CHECK: "llvm.x86.ldtilecfg"
// CHECK: arith.shli {{.*}} : vector<16xi32>
// CHECK-COUNT-4: "llvm.x86.tilezero"
// CHECK-COUNT-8: "llvm.x86.tdpbf16ps"
// CHECK-COUNT-4: "llvm.x86.tilestored64"
// CHECK-NOT: "llvm.x86.tilezero"
// CHECK-COUNT-8: "llvm.x86.tdpbf16ps"
// CHECK-COUNT-4: "llvm.x86.tilestored64"
// CHECK-NOT: "llvm.x86.tdpbf16ps"
// CHECK-NOT: math.exp
// CHECK: "llvm.x86.tilerelease"
train.kernel @forward(%qkv: tensor<2x96x384xbf16>) inplace [-1, -1] {
  %out, %lse = nn.packed_attention %qkv heads 2 causal : tensor<2x96x384xbf16>
  train.return %out, %lse : tensor<2x96x128xbf16>, tensor<2x2x96xf32>
}

// Five products. 80 d are three steps, or two times two tiles and one more.
// CHECK-LABEL: func.func @backward(
// CHECK-SAME: tiles = 1
// CHECK-COUNT-4: "llvm.x86.tilezero"
// CHECK-COUNT-12: "llvm.x86.tdpbf16ps"
// CHECK-COUNT-4: "llvm.x86.tilezero"
// CHECK-COUNT-12: "llvm.x86.tdpbf16ps"
// CHECK-NOT: "llvm.x86.tilezero"
// CHECK-COUNT-36: "llvm.x86.tdpbf16ps"
// CHECK-NOT: "llvm.x86.tdpbf16ps"
// Six products of pieces for one of bf16. A step loads 14 tiles, since registers keep what the next product needs.
// CHECK-LABEL: func.func @pieces(
// CHECK-COUNT-4: "llvm.x86.tilezero"
// CHECK-COUNT-28: "llvm.x86.tileloadd64"
// CHECK-COUNT-4: "llvm.x86.tilestored64"
// CHECK-COUNT-32: "llvm.x86.tileloadd64"
// CHECK-COUNT-4: "llvm.x86.tilestored64"
// CHECK-NOT: math.exp
// CHECK: "llvm.x86.tilerelease"
// CHECK-LABEL: func.func @f32(
// CHECK-NOT: "llvm.x86.
train.kernel @backward(%qkv: tensor<1x64x320xbf16>, %out: tensor<1x64x160xbf16>, %lse: tensor<1x2x64xf32>,
                       %dout: tensor<1x64x160xbf16>) inplace [-1] {
  %dqkv = nn.packed_attention_grad %qkv, %out, %lse, %dout heads 2 kv_heads 1
      : tensor<1x64x320xbf16>, tensor<1x64x160xbf16>, tensor<1x2x64xf32>
  train.return %dqkv : tensor<1x64x320xbf16>
}

train.kernel @pieces(%qkv: tensor<2x128x384xf32>) inplace [-1, -1] {
  %out, %lse = nn.packed_attention %qkv heads 2 causal : tensor<2x128x384xf32>
  train.return %out, %lse : tensor<2x128x128xf32>, tensor<2x2x128xf32>
}

// Fewer tokens in f32, few queries and small heads are multiplied as before.
train.kernel @f32(%qkv: tensor<2x96x384xf32>) inplace [-1, -1] {
  %out, %lse = nn.packed_attention %qkv heads 2 causal : tensor<2x96x384xf32>
  train.return %out, %lse : tensor<2x96x128xf32>, tensor<2x2x96xf32>
}
train.kernel @few(%qkv: tensor<2x15x384xbf16>) inplace [-1, -1] {
  %out, %lse = nn.packed_attention %qkv heads 2 causal : tensor<2x15x384xbf16>
  train.return %out, %lse : tensor<2x15x128xbf16>, tensor<2x2x15xf32>
}
train.kernel @small(%qkv: tensor<2x31x96xbf16>) inplace [-1, -1] {
  %out, %lse = nn.packed_attention %qkv heads 2 causal : tensor<2x31x96xbf16>
  train.return %out, %lse : tensor<2x31x32xbf16>, tensor<2x2x31xf32>
}
