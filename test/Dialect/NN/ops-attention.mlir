// RUN: trainc-opt %s | trainc-opt | FileCheck %s
// RUN: trainc-opt %s --verify-roundtrip -o /dev/null

// CHECK-LABEL: @attention
func.func @attention(%q: tensor<2x16x8x32xf32>, %k: tensor<2x24x4x32xf32>, %v: tensor<2x24x4x32xf32>, %m: tensor<16x24xi1>, %f: tensor<8x1x24xf32>, %l: tensor<2x8x16xf32>, %o: tensor<2x16x8x32xf32>, %d: tensor<2x16x8x32xf32>) {
  // CHECK: nn.attention %{{.*}}, %{{.*}}, %{{.*}} : tensor<2x16x8x32xf32>, tensor<2x24x4x32xf32>
  %0:2 = nn.attention %q, %k, %v : tensor<2x16x8x32xf32>, tensor<2x24x4x32xf32>
  // CHECK: nn.attention %{{.*}}, %{{.*}}, %{{.*}} mask %{{.*}} causal scale 2.500000e-01 : tensor<2x16x8x32xf32>, tensor<2x24x4x32xf32>, tensor<16x24xi1>
  %1:2 = nn.attention %q, %k, %v mask %m causal scale 0.25 : tensor<2x16x8x32xf32>, tensor<2x24x4x32xf32>, tensor<16x24xi1>
  // CHECK: nn.attention_grad %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} mask %{{.*}} causal : tensor<2x16x8x32xf32>, tensor<2x24x4x32xf32>, tensor<2x8x16xf32>, tensor<8x1x24xf32>
  %2:3 = nn.attention_grad %q, %k, %v, %o, %l, %d mask %f causal : tensor<2x16x8x32xf32>, tensor<2x24x4x32xf32>, tensor<2x8x16xf32>, tensor<8x1x24xf32>
  return
}

// CHECK-LABEL: @drawing
func.func @drawing(%q: tensor<2x16x8x32xf32>, %k: tensor<2x24x4x32xf32>, %p: tensor<8x256x1152xf32>, %s: tensor<f64>, %i: tensor<i64>, %l: tensor<2x8x16xf32>, %t: tensor<2x16xi64>, %m: tensor<16x16xi1>) {
  // CHECK: nn.attention %{{.*}}, %{{.*}}, %{{.*}} causal dropout 1.000000e-01 : tensor<2x16x8x32xf32>, tensor<2x24x4x32xf32>
  %0:2 = nn.attention %q, %k, %k causal dropout 0.1 : tensor<2x16x8x32xf32>, tensor<2x24x4x32xf32>
  // CHECK: nn.attention_grad {{.*}} dropout 1.000000e-01 site 3 seed %{{.*}} update %{{.*}} micro_step %{{.*}} first %{{.*}} strides [3072, 768, 384, 24] :
  %1:3 = nn.attention_grad %q, %k, %k, %q, %l, %q dropout 0.1 site 3 seed %s update %s micro_step %s first %i strides [3072, 768, 384, 24] : tensor<2x16x8x32xf32>, tensor<2x24x4x32xf32>, tensor<2x8x16xf32>
  // CHECK: nn.attention %{{.*}}, %{{.*}}, %{{.*}} segments(%{{.*}} : tensor<2x16xi64>) causal window 3 dropout 2.500000e-01 : tensor<2x16x8x32xf32>, tensor<2x16x8x32xf32>
  %4:2 = nn.attention %q, %q, %q segments(%t : tensor<2x16xi64>) causal window 3 dropout 0.25 : tensor<2x16x8x32xf32>, tensor<2x16x8x32xf32>
  // CHECK: nn.attention_grad {{.*}} mask %{{.*}} segments(%{{.*}} : tensor<2x16xi64>) : tensor<2x16x8x32xf32>, tensor<2x16x8x32xf32>, tensor<2x8x16xf32>, tensor<16x16xi1>
  %5:3 = nn.attention_grad %q, %q, %q, %q, %l, %q mask %m segments(%t : tensor<2x16xi64>) : tensor<2x16x8x32xf32>, tensor<2x16x8x32xf32>, tensor<2x8x16xf32>, tensor<16x16xi1>
  // CHECK: nn.attention %{{.*}}, %{{.*}}, %{{.*}} causal window 4 : tensor<2x16x8x32xf32>, tensor<2x24x4x32xf32>
  %3:2 = nn.attention %q, %k, %k causal window 4 : tensor<2x16x8x32xf32>, tensor<2x24x4x32xf32>
  // CHECK: nn.packed_attention %{{.*}} heads 12 dropout 1.000000e-01 site 3 : tensor<8x256x1152xf32>
  %2:2 = nn.packed_attention %p heads 12 dropout 0.1 site 3 : tensor<8x256x1152xf32>
  return
}

// CHECK-LABEL: @packed
func.func @packed(%p: tensor<8x256x1152xf32>, %m: tensor<256x256xi1>, %o: tensor<8x256x384xf32>, %l: tensor<8x12x256xf32>, %d: tensor<8x256x384xf32>, %e: tensor<8x256x12xf32>) {
  // CHECK: nn.packed_attention %{{.*}} heads 12 causal : tensor<8x256x1152xf32>
  %0:2 = nn.packed_attention %p heads 12 causal : tensor<8x256x1152xf32>
  // CHECK: nn.packed_attention %{{.*}} mask %{{.*}} heads 16 kv_heads 4 : tensor<8x256x1152xf32>, tensor<256x256xi1>
  %1:2 = nn.packed_attention %p mask %m heads 16 kv_heads 4 : tensor<8x256x1152xf32>, tensor<256x256xi1>
  // CHECK: nn.packed_attention_grad %{{.*}} delta(%{{.*}} : tensor<8x256x12xf32>) heads 12 causal : tensor<8x256x1152xf32>
  %3 = nn.packed_attention_grad %p, %o, %l, %d delta(%e : tensor<8x256x12xf32>) heads 12 causal : tensor<8x256x1152xf32>, tensor<8x256x384xf32>, tensor<8x12x256xf32>
  // CHECK: nn.packed_attention_grad %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} heads 12 causal : tensor<8x256x1152xf32>, tensor<8x256x384xf32>, tensor<8x12x256xf32>
  %2 = nn.packed_attention_grad %p, %o, %l, %d heads 12 causal : tensor<8x256x1152xf32>, tensor<8x256x384xf32>, tensor<8x12x256xf32>
  return
}
