// RUN: trainc-opt %s --train-lower-kernels | FileCheck %s
// RUN: trainc-opt %s --train-lower-kernels=register-bytes=512 | FileCheck %s --check-prefix=NARROW

// Half of the registers hold sums: scores of 8 keys in 32 registers of 64 bytes, of 2
// keys in 16 of 32 bytes.
// NARROW-LABEL: func.func @forward(
// NARROW-NOT: :8 = scf.for
// NARROW: scf.for %{{.*}} iter_args(%{{[a-z0-9]+}} = %{{[a-z0-9_]+}}, %{{[a-z0-9]+}} = %{{[a-z0-9_]+}}) -> (vector<32xf32>, vector<32xf32>)
// NARROW: scf.for %{{.*}} iter_args(%{{[a-z0-9]+}} = %{{[a-z0-9_]+}}, %{{[a-z0-9]+}} = %{{[a-z0-9_]+}}) -> (vector<32xf32>, vector<32xf32>)
// NARROW-LABEL: func.func @backward(

// Five blocks of 32 queries for each of 2 x 3 heads; scratch of a block only.
// CHECK-LABEL: func.func @forward(
// CHECK-SAME: memref<[[BYTES:[0-9]+]]xi8> {llvm.noalias}, %{{.*}}: index)
// CHECK-SAME: scratch = [[BYTES]] : i64, tiles = 30
// CHECK: memref.view {{.*}} : memref<[[BYTES]]xi8> to memref<512xf32>
// CHECK: :8 = scf.for
// CHECK: math.fma
// CHECK: arith.shli {{.*}} : vector<32xi32>
train.kernel @forward(%qkv: tensor<2x160x45xf32>) inplace [-1, -1] {
  %out, %lse = nn.packed_attention %qkv heads 3 causal : tensor<2x160x45xf32>
  train.return %out, %lse : tensor<2x160x15xf32>, tensor<2x3x160xf32>
}

// Few queries: blocks of 16 leave out more of what no query sees.
// CHECK-LABEL: func.func @few(
// CHECK-SAME: tiles = 18
// CHECK: memref.view {{.*}} to memref<256xf32>
// CHECK: :16 = scf.for
// CHECK: math.fma
// CHECK: arith.shli {{.*}} : vector<16xi32>
train.kernel @few(%qkv: tensor<2x40x45xf32>) inplace [-1, -1] {
  %out, %lse = nn.packed_attention %qkv heads 3 causal : tensor<2x40x45xf32>
  train.return %out, %lse : tensor<2x40x15xf32>, tensor<2x3x40xf32>
}

// Without causality 160 queries are five blocks, 40 three of 16 instead of two of 32.
// CHECK-LABEL: func.func @all(
// CHECK-SAME: tiles = 30
// CHECK-LABEL: func.func @all_few(
// CHECK-SAME: tiles = 18
train.kernel @all(%qkv: tensor<2x160x45xf32>) inplace [-1, -1] {
  %out, %lse = nn.packed_attention %qkv heads 3 : tensor<2x160x45xf32>
  train.return %out, %lse : tensor<2x160x15xf32>, tensor<2x3x160xf32>
}
train.kernel @all_few(%qkv: tensor<2x40x45xf32>) inplace [-1, -1] {
  %out, %lse = nn.packed_attention %qkv heads 3 : tensor<2x40x45xf32>
  train.return %out, %lse : tensor<2x40x15xf32>, tensor<2x3x40xf32>
}

// A tile for each of 2 x 2 heads of keys: five products.
// CHECK-LABEL: func.func @backward(
// CHECK-SAME: tiles = 4
// CHECK-COUNT-5: math.fma
train.kernel @backward(%q: tensor<2x40x4x5xf32>, %k: tensor<2x40x2x5xf32>, %v: tensor<2x40x2x5xf32>, %out: tensor<2x40x4x5xf32>,
                       %lse: tensor<2x4x40xf32>, %dout: tensor<2x40x4x5xf32>) inplace [-1, -1, -1] {
  %dq, %dk, %dv = nn.attention_grad %q, %k, %v, %out, %lse, %dout causal
      : tensor<2x40x4x5xf32>, tensor<2x40x2x5xf32>, tensor<2x4x40xf32>
  train.return %dq, %dk, %dv : tensor<2x40x4x5xf32>, tensor<2x40x2x5xf32>, tensor<2x40x2x5xf32>
}

// bf16 is widened once per block, to f32. The gradients of 2 x 40 queries are
// summed in scratch.
// CHECK-LABEL: func.func @bf16(
// CHECK: vector.load {{.*}} vector<16xbf16>
// CHECK: arith.extf {{.*}} : vector<16xbf16> to vector<16xf32>
train.kernel @bf16(%qkv: tensor<2x40x48xbf16>) inplace [-1, -1] {
  %out, %lse = nn.packed_attention %qkv heads 1 causal : tensor<2x40x48xbf16>
  train.return %out, %lse : tensor<2x40x16xbf16>, tensor<2x1x40xf32>
}
// CHECK-LABEL: func.func @bf16_backward(
// CHECK: memref.view {{.*}} to memref<1280xf32>
train.kernel @bf16_backward(%qkv: tensor<2x40x64xbf16>, %out: tensor<2x40x32xbf16>, %lse: tensor<2x2x40xf32>,
                            %dout: tensor<2x40x32xbf16>) inplace [-1] {
  %dqkv = nn.packed_attention_grad %qkv, %out, %lse, %dout heads 2 kv_heads 1 causal
      : tensor<2x40x64xbf16>, tensor<2x40x32xbf16>, tensor<2x2x40xf32>
  train.return %dqkv : tensor<2x40x64xbf16>
}
