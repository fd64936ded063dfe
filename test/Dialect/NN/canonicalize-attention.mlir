// RUN: trainc-opt %s --canonicalize | FileCheck %s

// Attention reads q, k and v where they stand side by side, as GPT-2 and Llama have them.
// CHECK-LABEL: @slices
// CHECK-SAME: (%[[X:.*]]: tensor<2x16x64xf32>, %[[M:.*]]: tensor<16x16xi1>)
func.func @slices(%x: tensor<2x16x64xf32>, %m: tensor<16x16xi1>) -> tensor<32x32xf32> {
  %0 = nn.slice %x offsets [0, 0, 0] sizes [2, 16, 32] : tensor<2x16x64xf32>
  %1 = nn.slice %x offsets [0, 0, 32] sizes [2, 16, 16] : tensor<2x16x64xf32>
  %2 = nn.slice %x offsets [0, 0, 48] sizes [2, 16, 16] : tensor<2x16x64xf32>
  %q = nn.reshape %0 : tensor<2x16x32xf32> to tensor<2x16x4x8xf32>
  %k = nn.reshape %1 : tensor<2x16x16xf32> to tensor<2x16x2x8xf32>
  %v = nn.reshape %2 : tensor<2x16x16xf32> to tensor<2x16x2x8xf32>
  // CHECK-NEXT: %[[O:.*]], %{{.*}} = nn.packed_attention %[[X]] mask %[[M]] heads 4 kv_heads 2 scale 5.000000e-01 dropout 1.000000e-01
  // CHECK-NEXT: %[[R:.*]] = nn.reshape %[[O]] : tensor<2x16x32xf32> to tensor<32x32xf32>
  // CHECK-NEXT: return %[[R]]
  %o, %lse = nn.attention %q, %k, %v mask %m scale 0.5 dropout 0.1 : tensor<2x16x4x8xf32>, tensor<2x16x2x8xf32>, tensor<16x16xi1>
  %r = nn.reshape %o : tensor<2x16x4x8xf32> to tensor<32x32xf32>
  return %r : tensor<32x32xf32>
}

// As timm has them: [B, T, 3, H, D], then [3, B, H, T, D].
// CHECK-LABEL: @unbound
// CHECK-SAME: (%[[X:.*]]: tensor<2x16x96xf32>)
func.func @unbound(%x: tensor<2x16x96xf32>) -> tensor<2x16x4x8xf32> {
  %0 = nn.reshape %x : tensor<2x16x96xf32> to tensor<2x16x3x4x8xf32>
  %1 = nn.transpose %0 [2, 0, 3, 1, 4] : tensor<2x16x3x4x8xf32>
  %2 = nn.slice %1 offsets [0, 0, 0, 0, 0] sizes [1, 2, 4, 16, 8] : tensor<3x2x4x16x8xf32>
  %3 = nn.slice %1 offsets [1, 0, 0, 0, 0] sizes [1, 2, 4, 16, 8] : tensor<3x2x4x16x8xf32>
  %4 = nn.slice %1 offsets [2, 0, 0, 0, 0] sizes [1, 2, 4, 16, 8] : tensor<3x2x4x16x8xf32>
  %5 = nn.reshape %2 : tensor<1x2x4x16x8xf32> to tensor<2x4x16x8xf32>
  %6 = nn.reshape %3 : tensor<1x2x4x16x8xf32> to tensor<2x4x16x8xf32>
  %7 = nn.reshape %4 : tensor<1x2x4x16x8xf32> to tensor<2x4x16x8xf32>
  %q = nn.transpose %5 [0, 2, 1, 3] : tensor<2x4x16x8xf32>
  %k = nn.transpose %6 [0, 2, 1, 3] : tensor<2x4x16x8xf32>
  %v = nn.transpose %7 [0, 2, 1, 3] : tensor<2x4x16x8xf32>
  // CHECK-NEXT: %[[O:.*]], %{{.*}} = nn.packed_attention %[[X]] heads 4 causal :
  // CHECK-NEXT: nn.reshape %[[O]]
  %o, %lse = nn.attention %q, %k, %v causal : tensor<2x16x4x8xf32>, tensor<2x16x4x8xf32>
  return %o : tensor<2x16x4x8xf32>
}

// As torch.nn.MultiheadAttention has them: rows of positions, of each the batch.
// CHECK-LABEL: @positions_first
// CHECK-SAME: (%[[X:.*]]: tensor<16x2x96xf32>)
func.func @positions_first(%x: tensor<16x2x96xf32>) -> tensor<2x16x4x8xf32> {
  %0 = nn.slice %x offsets [0, 0, 0] sizes [16, 2, 32] : tensor<16x2x96xf32>
  %1 = nn.slice %x offsets [0, 0, 32] sizes [16, 2, 32] : tensor<16x2x96xf32>
  %2 = nn.slice %x offsets [0, 0, 64] sizes [16, 2, 32] : tensor<16x2x96xf32>
  %3 = nn.reshape %0 : tensor<16x2x32xf32> to tensor<16x8x8xf32>
  %4 = nn.reshape %1 : tensor<16x2x32xf32> to tensor<16x8x8xf32>
  %5 = nn.reshape %2 : tensor<16x2x32xf32> to tensor<16x8x8xf32>
  %6 = nn.transpose %3 [1, 0, 2] : tensor<16x8x8xf32>
  %7 = nn.transpose %4 [1, 0, 2] : tensor<16x8x8xf32>
  %8 = nn.transpose %5 [1, 0, 2] : tensor<16x8x8xf32>
  %9 = nn.reshape %6 : tensor<8x16x8xf32> to tensor<2x4x16x8xf32>
  %10 = nn.reshape %7 : tensor<8x16x8xf32> to tensor<2x4x16x8xf32>
  %11 = nn.reshape %8 : tensor<8x16x8xf32> to tensor<2x4x16x8xf32>
  %q = nn.transpose %9 [0, 2, 1, 3] : tensor<2x4x16x8xf32>
  %k = nn.transpose %10 [0, 2, 1, 3] : tensor<2x4x16x8xf32>
  %v = nn.transpose %11 [0, 2, 1, 3] : tensor<2x4x16x8xf32>
  // CHECK-NEXT: %[[T:.*]] = nn.transpose %[[X]] [1, 0, 2] : tensor<16x2x96xf32>
  // CHECK-NEXT: %[[O:.*]], %{{.*}} = nn.packed_attention %[[T]] heads 4 :
  %o, %lse = nn.attention %q, %k, %v : tensor<2x16x4x8xf32>, tensor<2x16x4x8xf32>
  return %o : tensor<2x16x4x8xf32>
}

// Not in another order, nor what has another use: it stands in memory anyway.
// CHECK-LABEL: @others
func.func @others(%x: tensor<2x16x96xf32>) -> (tensor<2x16x4x8xf32>, tensor<2x16x4x8xf32>, tensor<2x16x4x8xf32>) {
  %0 = nn.slice %x offsets [0, 0, 0] sizes [2, 16, 32] : tensor<2x16x96xf32>
  %1 = nn.slice %x offsets [0, 0, 32] sizes [2, 16, 32] : tensor<2x16x96xf32>
  %2 = nn.slice %x offsets [0, 0, 64] sizes [2, 16, 32] : tensor<2x16x96xf32>
  %3 = nn.reshape %0 : tensor<2x16x32xf32> to tensor<2x16x4x8xf32>
  %4 = nn.reshape %1 : tensor<2x16x32xf32> to tensor<2x16x4x8xf32>
  %5 = nn.reshape %2 : tensor<2x16x32xf32> to tensor<2x16x4x8xf32>
  // CHECK-NOT: nn.packed_attention
  %o1, %lse1 = nn.attention %4, %3, %5 : tensor<2x16x4x8xf32>, tensor<2x16x4x8xf32>
  %6 = nn.slice %x offsets [0, 0, 0] sizes [2, 16, 32] : tensor<2x16x96xf32>
  %7 = nn.reshape %6 : tensor<2x16x32xf32> to tensor<2x16x4x8xf32>
  %8 = nn.slice %x offsets [0, 0, 32] sizes [2, 16, 32] : tensor<2x16x96xf32>
  %9 = nn.reshape %8 : tensor<2x16x32xf32> to tensor<2x16x4x8xf32>
  %10 = nn.slice %x offsets [0, 0, 64] sizes [2, 16, 32] : tensor<2x16x96xf32>
  %11 = nn.reshape %10 : tensor<2x16x32xf32> to tensor<2x16x4x8xf32>
  %o2, %lse2 = nn.attention %7, %9, %11 : tensor<2x16x4x8xf32>, tensor<2x16x4x8xf32>
  return %o1, %o2, %7 : tensor<2x16x4x8xf32>, tensor<2x16x4x8xf32>, tensor<2x16x4x8xf32>
}
