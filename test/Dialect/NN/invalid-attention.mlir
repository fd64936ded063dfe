// RUN: trainc-opt %s --verify-diagnostics --split-input-file

func.func @attention_shape(%q: tensor<2x16x8x32xf32>, %k: tensor<2x24x4x16xf32>) {
  // expected-error @+1 {{expects q [B, Tq, H, D] and k [B, Tk, Hk, D] of one element type (C1), got 'tensor<2x16x8x32xf32>' and 'tensor<2x24x4x16xf32>'}}
  %0:2 = nn.attention %q, %k, %k : tensor<2x16x8x32xf32>, tensor<2x24x4x16xf32>
  return
}

// -----

func.func @attention_type(%q: tensor<2x16x8x32xf32>, %k: tensor<2x24x4x32xf64>) {
  // expected-error @+1 {{of one element type (C1), got 'tensor<2x16x8x32xf32>' and 'tensor<2x24x4x32xf64>'}}
  %0:2 = nn.attention %q, %k, %k : tensor<2x16x8x32xf32>, tensor<2x24x4x32xf64>
  return
}

// -----

func.func @attention_heads(%q: tensor<2x16x8x32xf32>, %k: tensor<2x24x3x32xf32>) {
  // expected-error @+1 {{expects the heads of q to be a multiple of those of k (C2), got 8 and 3}}
  %0:2 = nn.attention %q, %k, %k : tensor<2x16x8x32xf32>, tensor<2x24x3x32xf32>
  return
}

// -----

func.func @attention_mask(%q: tensor<2x16x8x32xf32>, %k: tensor<2x24x4x32xf32>, %m: tensor<24x16xi1>) {
  // expected-error @+1 {{expects a mask that broadcasts to [2, 8, 16, 24] (C3), got 'tensor<24x16xi1>'}}
  %0:2 = nn.attention %q, %k, %k mask %m : tensor<2x16x8x32xf32>, tensor<2x24x4x32xf32>, tensor<24x16xi1>
  return
}

// -----

func.func @attention_grad_shape(%q: tensor<2x16x8x32xf32>, %k: tensor<2x24x4x16xf32>, %l: tensor<2x8x16xf32>, %o: tensor<2x16x8x32xf32>, %d: tensor<2x16x8x32xf32>) {
  // expected-error @+1 {{expects q [B, Tq, H, D] and k [B, Tk, Hk, D] of one element type (C1), got 'tensor<2x16x8x32xf32>' and 'tensor<2x24x4x16xf32>'}}
  %0:3 = nn.attention_grad %q, %k, %k, %o, %l, %d : tensor<2x16x8x32xf32>, tensor<2x24x4x16xf32>, tensor<2x8x16xf32>
  return
}

// -----

func.func @attention_grad_type(%q: tensor<2x16x8x32xf32>, %k: tensor<2x24x4x32xf64>, %l: tensor<2x8x16xf32>, %o: tensor<2x16x8x32xf32>, %d: tensor<2x16x8x32xf32>) {
  // expected-error @+1 {{of one element type (C1), got 'tensor<2x16x8x32xf32>' and 'tensor<2x24x4x32xf64>'}}
  %0:3 = nn.attention_grad %q, %k, %k, %o, %l, %d : tensor<2x16x8x32xf32>, tensor<2x24x4x32xf64>, tensor<2x8x16xf32>
  return
}

// -----

func.func @attention_grad_heads(%q: tensor<2x16x8x32xf32>, %k: tensor<2x24x3x32xf32>, %l: tensor<2x8x16xf32>, %o: tensor<2x16x8x32xf32>, %d: tensor<2x16x8x32xf32>) {
  // expected-error @+1 {{expects the heads of q to be a multiple of those of k (C2), got 8 and 3}}
  %0:3 = nn.attention_grad %q, %k, %k, %o, %l, %d : tensor<2x16x8x32xf32>, tensor<2x24x3x32xf32>, tensor<2x8x16xf32>
  return
}

// -----

func.func @attention_grad_mask(%q: tensor<2x16x8x32xf32>, %k: tensor<2x24x4x32xf32>, %m: tensor<24x16xi1>, %l: tensor<2x8x16xf32>, %o: tensor<2x16x8x32xf32>, %d: tensor<2x16x8x32xf32>) {
  // expected-error @+1 {{expects a mask that broadcasts to [2, 8, 16, 24] (C3), got 'tensor<24x16xi1>'}}
  %0:3 = nn.attention_grad %q, %k, %k, %o, %l, %d mask %m : tensor<2x16x8x32xf32>, tensor<2x24x4x32xf32>, tensor<2x8x16xf32>, tensor<24x16xi1>
  return
}

// -----

func.func @attention_grad_lse(%q: tensor<2x16x8x32xf32>, %k: tensor<2x24x4x32xf32>, %o: tensor<2x16x8x32xf32>, %l: tensor<2x16x8xf32>) {
  // expected-error @+1 {{expects lse of type 'tensor<2x8x16xf32>' (C4), got 'tensor<2x16x8xf32>'}}
  %0:3 = nn.attention_grad %q, %k, %k, %o, %l, %o : tensor<2x16x8x32xf32>, tensor<2x24x4x32xf32>, tensor<2x16x8xf32>
  return
}

// -----

func.func @packed_attention_rank(%p: tensor<256x1152xf32>) {
  // expected-error @+1 {{expects qkv of rank 3 (C1), got 'tensor<256x1152xf32>'}}
  %0:2 = nn.packed_attention %p heads 12 : tensor<256x1152xf32>
  return
}

// -----

func.func @packed_attention_heads(%p: tensor<8x256x1152xf32>) {
  // expected-error @+1 {{expects heads to be a multiple of kv_heads, both above 0 (C2), got 12 and 5}}
  %0:2 = nn.packed_attention %p heads 12 kv_heads 5 : tensor<8x256x1152xf32>
  return
}

// -----

func.func @packed_attention_no_heads(%p: tensor<8x256x1152xf32>) {
  // expected-error @+1 {{expects heads to be a multiple of kv_heads, both above 0 (C2), got 0 and 0}}
  %0:2 = nn.packed_attention %p heads 0 : tensor<8x256x1152xf32>
  return
}

// -----

func.func @packed_attention_size(%p: tensor<8x256x1152xf32>) {
  // expected-error @+1 {{expects a last size that is a multiple of heads + 2 kv_heads = 33 (C3), got 'tensor<8x256x1152xf32>'}}
  %0:2 = nn.packed_attention %p heads 11 : tensor<8x256x1152xf32>
  return
}

// -----

func.func @packed_attention_mask(%p: tensor<8x256x1152xf32>, %m: tensor<255x256xi1>) {
  // expected-error @+1 {{expects a mask that broadcasts to [8, 12, 256, 256] (C4), got 'tensor<255x256xi1>'}}
  %0:2 = nn.packed_attention %p mask %m heads 12 : tensor<8x256x1152xf32>, tensor<255x256xi1>
  return
}

// -----

func.func @packed_attention_grad_rank(%p: tensor<256x1152xf32>, %o: tensor<8x256x384xf32>, %l: tensor<8x12x256xf32>, %d: tensor<8x256x384xf32>) {
  // expected-error @+1 {{expects qkv of rank 3 (C1), got 'tensor<256x1152xf32>'}}
  %0 = nn.packed_attention_grad %p, %o, %l, %d heads 12 : tensor<256x1152xf32>, tensor<8x256x384xf32>, tensor<8x12x256xf32>
  return
}

// -----

func.func @packed_attention_grad_heads(%p: tensor<8x256x1152xf32>, %o: tensor<8x256x384xf32>, %l: tensor<8x12x256xf32>, %d: tensor<8x256x384xf32>) {
  // expected-error @+1 {{expects heads to be a multiple of kv_heads, both above 0 (C2), got 12 and 5}}
  %0 = nn.packed_attention_grad %p, %o, %l, %d heads 12 kv_heads 5 : tensor<8x256x1152xf32>, tensor<8x256x384xf32>, tensor<8x12x256xf32>
  return
}

// -----

func.func @packed_attention_grad_no_heads(%p: tensor<8x256x1152xf32>, %o: tensor<8x256x384xf32>, %l: tensor<8x12x256xf32>, %d: tensor<8x256x384xf32>) {
  // expected-error @+1 {{expects heads to be a multiple of kv_heads, both above 0 (C2), got 0 and 0}}
  %0 = nn.packed_attention_grad %p, %o, %l, %d heads 0 : tensor<8x256x1152xf32>, tensor<8x256x384xf32>, tensor<8x12x256xf32>
  return
}

// -----

func.func @packed_attention_grad_size(%p: tensor<8x256x1152xf32>, %o: tensor<8x256x384xf32>, %l: tensor<8x12x256xf32>, %d: tensor<8x256x384xf32>) {
  // expected-error @+1 {{expects a last size that is a multiple of heads + 2 kv_heads = 33 (C3), got 'tensor<8x256x1152xf32>'}}
  %0 = nn.packed_attention_grad %p, %o, %l, %d heads 11 : tensor<8x256x1152xf32>, tensor<8x256x384xf32>, tensor<8x12x256xf32>
  return
}

// -----

func.func @packed_attention_grad_mask(%p: tensor<8x256x1152xf32>, %m: tensor<255x256xi1>, %o: tensor<8x256x384xf32>, %l: tensor<8x12x256xf32>, %d: tensor<8x256x384xf32>) {
  // expected-error @+1 {{expects a mask that broadcasts to [8, 12, 256, 256] (C4), got 'tensor<255x256xi1>'}}
  %0 = nn.packed_attention_grad %p, %o, %l, %d mask %m heads 12 : tensor<8x256x1152xf32>, tensor<8x256x384xf32>, tensor<8x12x256xf32>, tensor<255x256xi1>
  return
}

// -----

func.func @packed_attention_grad_out(%p: tensor<8x256x1152xf32>, %o: tensor<8x256x383xf32>, %l: tensor<8x12x256xf32>) {
  // expected-error @+1 {{expects out and lse of types 'tensor<8x256x384xf32>' and 'tensor<8x12x256xf32>' (C5), got 'tensor<8x256x383xf32>' and 'tensor<8x12x256xf32>'}}
  %0 = nn.packed_attention_grad %p, %o, %l, %o heads 12 : tensor<8x256x1152xf32>, tensor<8x256x383xf32>, tensor<8x12x256xf32>
  return
}

// -----

func.func @attention_rate(%q: tensor<2x16x8x32xf32>, %k: tensor<2x24x4x32xf32>) {
  // expected-error @+1 {{expects a rate of dropout in [0, 1) (C4), got 1.000000e+00}}
  %0:2 = nn.attention %q, %k, %k dropout 1.0 : tensor<2x16x8x32xf32>, tensor<2x24x4x32xf32>
  return
}

// -----

func.func @attention_draws(%q: tensor<2x16x8x32xf32>, %k: tensor<2x24x4x32xf32>, %s: tensor<f64>) {
  // expected-error @+1 {{(C5), got a rate, site 3, 1 of the scalars and strides []}}
  %0:2 = nn.attention %q, %k, %k dropout 0.1 site 3 seed %s : tensor<2x16x8x32xf32>, tensor<2x24x4x32xf32>
  return
}

// -----

func.func @attention_grad_rate(%q: tensor<2x16x8x32xf32>, %k: tensor<2x24x4x32xf32>, %l: tensor<2x8x16xf32>) {
  // expected-error @+1 {{expects a rate of dropout in [0, 1) (C5), got 1.000000e+00}}
  %0:3 = nn.attention_grad %q, %k, %k, %q, %l, %q dropout 1.0 : tensor<2x16x8x32xf32>, tensor<2x24x4x32xf32>, tensor<2x8x16xf32>
  return
}

// -----

func.func @attention_grad_draws(%q: tensor<2x16x8x32xf32>, %k: tensor<2x24x4x32xf32>, %l: tensor<2x8x16xf32>, %s: tensor<f64>) {
  // expected-error @+1 {{(C6), got a rate, site 3, 1 of the scalars and strides []}}
  %0:3 = nn.attention_grad %q, %k, %k, %q, %l, %q dropout 0.1 site 3 seed %s : tensor<2x16x8x32xf32>, tensor<2x24x4x32xf32>, tensor<2x8x16xf32>
  return
}

// -----

func.func @packed_attention_rate(%p: tensor<8x256x1152xf32>) {
  // expected-error @+1 {{expects a rate of dropout in [0, 1) (C5), got 1.000000e+00}}
  %0:2 = nn.packed_attention %p heads 12 dropout 1.0 : tensor<8x256x1152xf32>
  return
}

// -----

func.func @packed_attention_draws(%p: tensor<8x256x1152xf32>, %s: tensor<f64>) {
  // expected-error @+1 {{(C6), got a rate, site 3, 1 of the scalars and strides []}}
  %0:2 = nn.packed_attention %p heads 12 dropout 0.1 site 3 seed %s : tensor<8x256x1152xf32>
  return
}

// -----

func.func @packed_attention_grad_rate(%p: tensor<8x256x1152xf32>, %o: tensor<8x256x384xf32>, %l: tensor<8x12x256xf32>) {
  // expected-error @+1 {{expects a rate of dropout in [0, 1) (C6), got 1.000000e+00}}
  %0 = nn.packed_attention_grad %p, %o, %l, %o heads 12 dropout 1.0 : tensor<8x256x1152xf32>, tensor<8x256x384xf32>, tensor<8x12x256xf32>
  return
}

// -----

func.func @packed_attention_grad_draws(%p: tensor<8x256x1152xf32>, %o: tensor<8x256x384xf32>, %l: tensor<8x12x256xf32>, %s: tensor<f64>) {
  // expected-error @+1 {{(C7), got a rate, site 3, 1 of the scalars and strides []}}
  %0 = nn.packed_attention_grad %p, %o, %l, %o heads 12 dropout 0.1 site 3 seed %s : tensor<8x256x1152xf32>, tensor<8x256x384xf32>, tensor<8x12x256xf32>
  return
}

// -----

func.func @attention_site_alone(%q: tensor<2x16x8x32xf32>, %k: tensor<2x24x4x32xf32>) {
  // expected-error @+1 {{expects a site in [0, 2^31) with a rate, seed, update and micro_step together with a site, and four strides that are multiples of 4 together with first (C5), got no rate, site 3, 0 of the scalars and strides []}}
  %0:2 = nn.attention %q, %k, %k site 3 : tensor<2x16x8x32xf32>, tensor<2x24x4x32xf32>
  return
}

// -----

func.func @attention_strides(%q: tensor<2x16x8x32xf32>, %k: tensor<2x24x4x32xf32>, %i: tensor<i64>) {
  // expected-error @+1 {{(C5), got a rate, site 3, 0 of the scalars and strides [8, 8, 8, 2] with first}}
  %0:2 = nn.attention %q, %k, %k dropout 0.1 site 3 first %i strides [8, 8, 8, 2] : tensor<2x16x8x32xf32>, tensor<2x24x4x32xf32>
  return
}

// -----

func.func @attention_window(%q: tensor<2x16x8x32xf32>, %k: tensor<2x24x4x32xf32>) {
  // expected-error @+1 {{expects a window from 1 to 2^31 - 1 with causal only (C6), got 3 without causal}}
  %0:2 = nn.attention %q, %k, %k window 3 : tensor<2x16x8x32xf32>, tensor<2x24x4x32xf32>
  return
}

// -----

func.func @attention_grad_window(%q: tensor<2x16x8x32xf32>, %k: tensor<2x24x4x32xf32>, %l: tensor<2x8x16xf32>) {
  // expected-error @+1 {{expects a window from 1 to 2^31 - 1 with causal only (C7), got 3 without causal}}
  %0:3 = nn.attention_grad %q, %k, %k, %q, %l, %q window 3 : tensor<2x16x8x32xf32>, tensor<2x24x4x32xf32>, tensor<2x8x16xf32>
  return
}

// -----

func.func @packed_attention_window(%p: tensor<8x256x1152xf32>) {
  // expected-error @+1 {{expects a window from 1 to 2^31 - 1 with causal only (C7), got 3 without causal}}
  %0:2 = nn.packed_attention %p heads 12 window 3 : tensor<8x256x1152xf32>
  return
}

// -----

func.func @packed_attention_grad_window(%p: tensor<8x256x1152xf32>, %o: tensor<8x256x384xf32>, %l: tensor<8x12x256xf32>) {
  // expected-error @+1 {{expects a window from 1 to 2^31 - 1 with causal only (C8), got 3 without causal}}
  %0 = nn.packed_attention_grad %p, %o, %l, %o heads 12 window 3 : tensor<8x256x1152xf32>, tensor<8x256x384xf32>, tensor<8x12x256xf32>
  return
}

// -----

func.func @attention_no_window(%q: tensor<2x16x8x32xf32>, %k: tensor<2x24x4x32xf32>) {
  // expected-error @+1 {{with causal only (C6), got 0}}
  %0:2 = nn.attention %q, %k, %k causal window 0 : tensor<2x16x8x32xf32>, tensor<2x24x4x32xf32>
  return
}

// -----

func.func @segments_of_other_keys(%q: tensor<2x16x8x32xf32>, %k: tensor<2x24x8x32xf32>, %s: tensor<2x16xi32>) {
  // expected-error @+1 {{expects segments [B, T] with as many keys as queries (C7), got 'tensor<2x16xi32>' for 16 queries and 24 keys}}
  %0:2 = nn.attention %q, %k, %k segments(%s : tensor<2x16xi32>) : tensor<2x16x8x32xf32>, tensor<2x24x8x32xf32>
  return
}

// -----

func.func @segments_of_gradient(%q: tensor<2x16x8x32xf32>, %l: tensor<2x8x16xf32>, %s: tensor<16xi32>) {
  // expected-error @+1 {{expects segments [B, T] with as many keys as queries (C8), got 'tensor<16xi32>' for 16 queries and 16 keys}}
  %0:3 = nn.attention_grad %q, %q, %q, %q, %l, %q segments(%s : tensor<16xi32>) : tensor<2x16x8x32xf32>, tensor<2x16x8x32xf32>, tensor<2x8x16xf32>
  return
}

// -----

func.func @attention_grad_delta(%q: tensor<2x16x8x32xf32>, %l: tensor<2x8x16xf32>) {
  // expected-error @+1 {{expects delta of type 'tensor<2x16x8xf32>' (C9), got 'tensor<2x8x16xf32>'}}
  %0:3 = nn.attention_grad %q, %q, %q, %q, %l, %q delta(%l : tensor<2x8x16xf32>) : tensor<2x16x8x32xf32>, tensor<2x16x8x32xf32>, tensor<2x8x16xf32>
  return
}

// -----

func.func @packed_attention_grad_delta(%p: tensor<8x256x1152xbf16>, %o: tensor<8x256x384xbf16>, %l: tensor<8x12x256xf32>, %e: tensor<8x256x12xbf16>) {
  // expected-error @+1 {{expects delta of type 'tensor<8x256x12xf32>' (C9), got 'tensor<8x256x12xbf16>'}}
  %0 = nn.packed_attention_grad %p, %o, %l, %o delta(%e : tensor<8x256x12xbf16>) heads 12 : tensor<8x256x1152xbf16>, tensor<8x256x384xbf16>, tensor<8x12x256xf32>
  return
}
