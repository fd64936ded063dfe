// What each nn op computes, held against the loops that nn-to-linalg makes of it: Inputs/costs.py compares all, here
// are some counts done by hand. Sizes that are reduced innermost are multiples of the 32 lanes, which loops pad.
//
// RUN: trainc-opt %s --test-print-cost -o /dev/null > %t
// RUN: FileCheck %s < %t
// RUN: %python %S/Inputs/costs.py %trainc_src %t

// One operation of each of 32 elements, or one function; casts count nothing.
// CHECK: unary: nn.neg matrix 0 vector 32 functions 0 read 128 written 128 flops 32 vector, loops matrix 0 vector 32 functions 0
// CHECK: unary: nn.exp matrix 0 vector 0 functions 32 read 128 written 128 flops 320 vector,
// CHECK: unary: nn.sigmoid matrix 0 vector 96 functions 32 {{.*}} flops 416 vector,
// CHECK: unary: nn.cast matrix 0 vector 0 functions 0 read 128 written 64 flops 0 vector,
func.func @unary(%x: tensor<4x8xf32>) {
  %0 = nn.neg %x : tensor<4x8xf32>
  %1 = nn.abs %x : tensor<4x8xf32>
  %2 = nn.exp %x : tensor<4x8xf32>
  %3 = nn.log %x : tensor<4x8xf32>
  %4 = nn.sqrt %x : tensor<4x8xf32>
  %5 = nn.floor %x : tensor<4x8xf32>
  %6 = nn.ceil %x : tensor<4x8xf32>
  %7 = nn.round %x : tensor<4x8xf32>
  %8 = nn.rsqrt %x : tensor<4x8xf32>
  %9 = nn.sin %x : tensor<4x8xf32>
  %10 = nn.cos %x : tensor<4x8xf32>
  %11 = nn.tanh %x : tensor<4x8xf32>
  %12 = nn.erf %x : tensor<4x8xf32>
  %13 = nn.sigmoid %x : tensor<4x8xf32>
  %14 = nn.silu %x : tensor<4x8xf32>
  %15 = nn.relu %x : tensor<4x8xf32>
  %16 = nn.gelu %x tanh : tensor<4x8xf32>
  %17 = nn.gelu %x erf : tensor<4x8xf32>
  %18 = nn.clamp %x low 0.0 high 6.0 : tensor<4x8xf32>
  %19 = nn.stop_gradient %x : tensor<4x8xf32>
  %20 = nn.cast %x to bf16 : tensor<4x8xf32>
  return
}

// CHECK: binary: nn.add matrix 0 vector 32 functions 0 read 160 written 128
// CHECK: binary: nn.max matrix 0 vector 12 functions 0 read 28 written 48
func.func @binary(%x: tensor<4x8xf32>, %y: tensor<8xf32>, %h: tensor<4x8xbf16>, %i: tensor<4xi32>, %j: tensor<3x1xi32>) {
  %0 = nn.add %x, %y : tensor<4x8xf32>, tensor<8xf32>
  %1 = nn.sub %x, %y : tensor<4x8xf32>, tensor<8xf32>
  %2 = nn.mul %h, %h : tensor<4x8xbf16>, tensor<4x8xbf16>
  %3 = nn.div %x, %y : tensor<4x8xf32>, tensor<8xf32>
  %4 = nn.min %x, %y : tensor<4x8xf32>, tensor<8xf32>
  %5 = nn.max %i, %j : tensor<4xi32>, tensor<3x1xi32>
  %6 = nn.pow %x, %y : tensor<4x8xf32>, tensor<8xf32>
  return
}

func.func @logical(%x: tensor<4x8xf32>, %y: tensor<8xf32>) {
  %0 = nn.compare gt %x, %y : tensor<4x8xf32>, tensor<8xf32>
  %1 = nn.not %0 : tensor<4x8xi1>
  %2 = nn.and %0, %1 : tensor<4x8xi1>, tensor<4x8xi1>
  %3 = nn.or %0, %2 : tensor<4x8xi1>, tensor<4x8xi1>
  %4 = nn.select %3, %x, %y : tensor<4x8xi1>, tensor<4x8xf32>, tensor<8xf32>
  return
}

// A multiply-add, a product and a function of each element; f64 and bf16 beside each other are casts.
// CHECK: map: nn.map matrix 0 vector 96 functions 32 read 72 written 64 flops 416 vector,
func.func @map(%x: tensor<4x8xbf16>, %s: tensor<f64>) {
  %0 = nn.map(%x, %s) : (tensor<4x8xbf16>, tensor<f64>) -> tensor<4x8xbf16> {
  ^bb0(%a: f32, %b: f64):
    %two = arith.constant 2.0 : f32
    %c = arith.truncf %b : f64 to f32
    %d = math.fma %a, %c, %two : f32
    %e = math.exp %d : f32
    %f = arith.mulf %e, %two : f32
    nn.yield %f : f32
  }
  return
}

// 6 x 64 terms, and with an outer dimension behind a run of inner ones also those of the runs.
// CHECK: reduction: nn.reduce matrix 0 vector 384 functions 0 read 1536 written 24
// CHECK: reduction: nn.reduce matrix 0 vector 384
// CHECK: reduction: nn.reduce matrix 0 vector 384
// CHECK: reduction: nn.reduce matrix 0 vector 396
// CHECK: reduction: nn.sort matrix 0 vector 640
func.func @reduction(%x: tensor<6x64xf32>, %y: tensor<3x4x32xbf16>, %z: tensor<4x32xf32>, %i: tensor<4x32xi32>) {
  %0 = nn.reduce sum %x dims [1] : tensor<6x64xf32>
  %1 = nn.reduce max %x dims [0] keep : tensor<6x64xf32>
  %2 = nn.reduce prod %x dims [0, 1] : tensor<6x64xf32>
  %3 = nn.reduce sum %y dims [0, 2] : tensor<3x4x32xbf16>
  %4 = nn.argmax %z dim 1 : tensor<4x32xf32>
  %5 = nn.argmax %i dim 1 keep : tensor<4x32xi32>
  %6:3 = nn.sort %z dim 1 : tensor<4x32xf32>
  return
}

func.func @shape(%x: tensor<4x8xf32>) {
  %0 = nn.constant dense<1.0> : tensor<8xf32>
  %1 = nn.iota dim 1 : tensor<4x8xf32>
  %2 = nn.reshape %x : tensor<4x8xf32> to tensor<32xf32>
  %3 = nn.broadcast %x : tensor<4x8xf32> to tensor<2x4x8xf32>
  %4 = nn.transpose %x [1, 0] : tensor<4x8xf32>
  return
}

// Where elements come from is no arithmetic; a sum by index compares each index with each place.
// CHECK: indexing: nn.gather matrix 0 vector 0 functions 0 read 176 written 48
// CHECK: indexing: nn.scatter_add matrix 0 vector 3328
func.func @indexing(%x: tensor<4x8xf32>, %y: tensor<4x3xf32>, %i: tensor<4x3xi32>, %j: tensor<4x32xi32>, %u: tensor<4x32xf32>, %at: tensor<i64>) {
  %0 = nn.slice %x offsets [0, 1] sizes [4, 3] strides [1, 2] : tensor<4x8xf32>
  %1 = nn.pad %x low [0, 1] high [0, 0] interior [1, 0] value -1.0 : tensor<4x8xf32>
  %2 = nn.concat %x, %y dim 1 : tensor<4x8xf32>, tensor<4x3xf32>
  %3 = nn.gather %x, %i dim 1 : tensor<4x8xf32>, tensor<4x3xi32>
  %4 = nn.scatter_add %j, %u dim 1 : tensor<4x32xi32>, tensor<4x32xf32> to tensor<4x8xf32>
  %5 = nn.part %x at %at dim 0 of 2 : tensor<4x8xf32>
  return
}

// CHECK: linear: nn.matmul matrix 1024 vector 0 functions 0 read 640 written 256 flops 1024 matrix, loops matrix 1024 vector 0 functions 0
// CHECK: linear: nn.matmul matrix 1024 vector 64
// CHECK: linear: nn.matmul matrix 2048 vector 0 functions 0 read 640 written 256
func.func @linear(%a: tensor<4x8xf32>, %b: tensor<8x16xf32>, %c: tensor<16x8xf32>, %v: tensor<16xf32>, %d: tensor<2x8x4xbf16>, %e: tensor<2x8x16xbf16>) {
  %0 = nn.matmul %a, %b : tensor<4x8xf32>, tensor<8x16xf32>
  %1 = nn.matmul %a, %c bias %v transpose_rhs : tensor<4x8xf32>, tensor<16x8xf32>, tensor<16xf32>
  %2 = nn.matmul %d, %e transpose_lhs : tensor<2x8x4xbf16>, tensor<2x8x16xbf16>
  %3 = nn.linear %a, %b, %v : tensor<4x8xf32>, tensor<8x16xf32>, tensor<16xf32>
  return
}

// The largest, a difference, the sum, a quotient: four of each element, and a function.
// CHECK: norm: nn.softmax matrix 0 vector 1024 functions 256
func.func @norm(%x: tensor<8x32xf32>, %w: tensor<32xf32>, %b: tensor<32xf32>, %i: tensor<2x8x4x4xf32>, %j: tensor<2x8x4x8xf32>, %c: tensor<8xf32>) {
  %0 = nn.softmax %x dim 1 : tensor<8x32xf32>
  %1 = nn.log_softmax %x dim 1 : tensor<8x32xf32>
  %2 = nn.layer_norm %x, %w, %b : tensor<8x32xf32>, tensor<32xf32>, tensor<32xf32>
  %3 = nn.rms_norm %x, %w : tensor<8x32xf32>, tensor<32xf32>
  %4 = nn.group_norm %i, %c, %c groups 4 : tensor<2x8x4x4xf32>, tensor<8xf32>, tensor<8xf32>
  %5:3 = nn.batch_norm %j, %c, %c, %c, %c training : tensor<2x8x4x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
  %6:3 = nn.batch_norm %j, %c, %c, %c, %c : tensor<2x8x4x8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
  return
}

func.func @loss(%x: tensor<32x32xf32>, %y: tensor<32xi32>, %w: tensor<32xf32>, %h: tensor<32x16xf32>, %v: tensor<16x32xf32>, %g: tensor<f32>) {
  %0:2 = nn.cross_entropy %x, %y : tensor<32x32xf32>, tensor<32xi32>
  %1:2 = nn.cross_entropy %x, %y weights %w {label_smoothing = 0.5} : tensor<32x32xf32>, tensor<32xi32>, tensor<32xf32>
  %2:2 = nn.linear_cross_entropy %h, %v, %y : tensor<32x16xf32>, tensor<16x32xf32>, tensor<32xi32>
  %5:5 = nn.linear_cross_entropy_grad %h, %v, %y grad %g : tensor<32x16xf32>, tensor<16x32xf32>, tensor<32xi32>, tensor<f32>
  %3:2 = nn.bce_with_logits %x, %x : tensor<32x32xf32>, tensor<32x32xf32>
  %4:2 = nn.mse %x, %x weights %w : tensor<32x32xf32>, tensor<32x32xf32>, tensor<32xf32>
  return
}

// One sum of each element of the gradient.
// CHECK: embedding: nn.embedding matrix 0 vector 0
// CHECK: embedding: nn.embedding_grad matrix 0 vector 4096
// CHECK: embedding: nn.rotate_pairs matrix 0 vector 4096
func.func @embedding(%t: tensor<100x32xf32>, %i: tensor<8x16xi32>, %g: tensor<8x16x32xbf16>, %f: tensor<i64>, %x: tensor<2x16x4x8xf32>, %c: tensor<16x4xf32>) {
  %0 = nn.embedding %t, %i from %f of 200 : tensor<100x32xf32>, tensor<8x16xi32>
  %1 = nn.embedding_grad %i, %g : tensor<8x16xi32>, tensor<8x16x32xbf16> to tensor<100x32xbf16>
  %2 = nn.embedding_grad %i, %g from %f of 200 init %1 : tensor<100x32xbf16> : tensor<8x16xi32>, tensor<8x16x32xbf16> to tensor<100x32xbf16>
  %3 = nn.rotary %x theta 10000.0 : tensor<2x16x4x8xf32>
  %4 = nn.rotate_pairs %x, %c, %c inverse : tensor<2x16x4x8xf32>, tensor<16x4xf32>
  return
}

func.func @random(%x: tensor<4x8xf32>, %s: tensor<f64>) {
  %0 = nn.dropout %x rate 0.1 site 3 seed %s update %s micro_step %s : tensor<4x8xf32>
  %1 = nn.random uniform site 4 seed %s update %s micro_step %s : tensor<4x8xf32>
  %2 = nn.random normal site 5 seed %s update %s micro_step %s : tensor<4x8xf32>
  %3 = nn.random bernoulli p 0.3 site 6 seed %s update %s micro_step %s : tensor<4x8xbf16>
  return
}

// 2 x 8 x 6 x 7 x 7 outputs of 4 x 3 x 3 terms.
// CHECK: convolution: nn.conv2d matrix 169344 vector 0 {{.*}} flops 169344 convolution, loops matrix 169344
// CHECK: convolution: nn.conv2d matrix 41472 vector 1728
// CHECK: convolution: nn.conv2d_input_grad matrix 41472 vector 0
// CHECK: convolution: nn.conv2d_weight_grad matrix 41472 vector 0
// CHECK: convolution: nn.conv2d_weight_parts matrix 169344 vector 0
// CHECK: convolution: train.convolution matrix 41472 vector 0 {{.*}} flops 41472 convolution
func.func @convolution(%x: tensor<8x4x9x9xf32>, %w: tensor<6x4x3x3xf32>, %v: tensor<6x2x3x2xf32>, %b: tensor<6xf32>, %g: tensor<8x6x4x9xf32>, %h: tensor<8x6x7x7xf32>) {
  %0 = nn.conv2d %x, %w : tensor<8x4x9x9xf32>, tensor<6x4x3x3xf32>
  %1 = nn.conv2d %x, %v bias %b strides [2, 1] padding [1, 0, 2, 1] dilations [1, 3] groups 2 : tensor<8x4x9x9xf32>, tensor<6x2x3x2xf32>, tensor<6xf32>
  %2 = nn.conv2d_input_grad %v, %g strides [2, 1] padding [1, 0, 2, 1] dilations [1, 3] groups 2 : tensor<6x2x3x2xf32>, tensor<8x6x4x9xf32> to tensor<8x4x9x9xf32>
  %3 = nn.conv2d_weight_grad %x, %g strides [2, 1] padding [1, 0, 2, 1] dilations [1, 3] groups 2 : tensor<8x4x9x9xf32>, tensor<8x6x4x9xf32> to tensor<6x2x3x2xf32>
  %4 = nn.conv2d_weight_parts %x, %h window [3, 3] examples 3 : tensor<8x4x9x9xf32>, tensor<8x6x7x7xf32>
  %c = train.convolution weight_gradient %x, %g strides [2, 1] padding [1, 0, 2, 1] dilations [1, 3] groups 2 : tensor<8x4x9x9xf32>, tensor<8x6x4x9xf32> -> tensor<6x2x3x2xf32>
  %5 = nn.im2col %x window [3, 3] strides [2, 2] padding [1, 1, 1, 1] : tensor<8x4x9x9xf32>
  %6 = nn.col2im %5 strides [2, 2] padding [1, 1, 1, 1] : tensor<4x3x3x8x5x5xf32> to tensor<8x4x9x9xf32>
  return
}

func.func @pool(%x: tensor<8x4x9x9xf32>) {
  %0, %1 = nn.max_pool2d %x window [2, 2] : tensor<8x4x9x9xf32>
  %2, %3 = nn.max_pool2d %x window [3, 3] strides [2, 2] padding [1, 1, 1, 1] : tensor<8x4x9x9xf32>
  %4 = nn.max_pool2d_grad %0, %1 window [2, 2] : tensor<8x4x4x4xf32>, tensor<8x4x4x4xi32> to tensor<8x4x9x9xf32>
  %5 = nn.avg_pool2d %x window [3, 3] strides [2, 2] padding [1, 1, 1, 1] {count_include_pad = false} : tensor<8x4x9x9xf32>
  %6 = nn.avg_pool2d_grad %5 window [3, 3] strides [2, 2] padding [1, 1, 1, 1] {count_include_pad = false} : tensor<8x4x5x5xf32> to tensor<8x4x9x9xf32>
  return
}

// 2 x 4 heads of 16 x 32 pairs, of each two multiply-adds of 32 elements, five operations and a function; five
// operations and a function of a row.
// CHECK: attention: nn.attention matrix 524288 vector 21120 functions 4224 {{.*}} flops 524288 attention, loops matrix 524288 vector 21120 functions 4224
// CHECK: attention: nn.attention_grad matrix 1310720
func.func @attention(%q: tensor<2x16x4x32xf32>, %k: tensor<2x32x2x32xf32>, %l: tensor<2x4x16xf32>, %m: tensor<16x32xi1>, %f: tensor<4x1x32xf32>, %t: tensor<2x32x4x32xf32>, %s: tensor<2x32xi32>, %n: tensor<2x4x32xf32>, %p: tensor<2x32x192xf32>, %o: tensor<2x32x64xf32>, %r: tensor<2x2x32xf32>) {
  %0:2 = nn.attention %q, %k, %k : tensor<2x16x4x32xf32>, tensor<2x32x2x32xf32>
  %1:2 = nn.attention %q, %k, %k mask %m scale 0.25 : tensor<2x16x4x32xf32>, tensor<2x32x2x32xf32>, tensor<16x32xi1>
  %2:2 = nn.attention %t, %t, %t segments(%s : tensor<2x32xi32>) : tensor<2x32x4x32xf32>, tensor<2x32x4x32xf32>
  %3:3 = nn.attention_grad %q, %k, %k, %q, %l, %q : tensor<2x16x4x32xf32>, tensor<2x32x2x32xf32>, tensor<2x4x16xf32>
  %4:3 = nn.attention_grad %q, %k, %k, %q, %l, %q mask %f : tensor<2x16x4x32xf32>, tensor<2x32x2x32xf32>, tensor<2x4x16xf32>, tensor<4x1x32xf32>
  %5:3 = nn.attention_grad %t, %t, %t, %t, %n, %t segments(%s : tensor<2x32xi32>) : tensor<2x32x4x32xf32>, tensor<2x32x4x32xf32>, tensor<2x4x32xf32>
  %6:2 = nn.packed_attention %p heads 2 : tensor<2x32x192xf32>
  %7 = nn.packed_attention_grad %p, %o, %r, %o heads 2 : tensor<2x32x192xf32>, tensor<2x32x64xf32>, tensor<2x2x32xf32>
  return
}

// Of queries and keys as their names say: costs.py counts the pairs that are admitted, loops compute all of them.
func.func @causal_32_32_0(%q: tensor<1x32x1x32xf32>, %l: tensor<1x1x32xf32>) {
  %0:2 = nn.attention %q, %q, %q causal : tensor<1x32x1x32xf32>, tensor<1x32x1x32xf32>
  %1:3 = nn.attention_grad %q, %q, %q, %q, %l, %q causal : tensor<1x32x1x32xf32>, tensor<1x32x1x32xf32>, tensor<1x1x32xf32>
  return
}
func.func @causal_32_32_5(%q: tensor<1x32x1x32xf32>) {
  %0:2 = nn.attention %q, %q, %q causal window 5 : tensor<1x32x1x32xf32>, tensor<1x32x1x32xf32>
  return
}
func.func @causal_16_32_0(%q: tensor<1x16x1x32xf32>, %k: tensor<1x32x1x32xf32>) {
  %0:2 = nn.attention %q, %k, %k causal : tensor<1x16x1x32xf32>, tensor<1x32x1x32xf32>
  return
}
func.func @causal_16_32_20(%q: tensor<1x16x1x32xf32>, %k: tensor<1x32x1x32xf32>) {
  %0:2 = nn.attention %q, %k, %k causal window 20 : tensor<1x16x1x32xf32>, tensor<1x32x1x32xf32>
  return
}
func.func @causal_48_32_7(%q: tensor<1x48x1x32xf32>, %k: tensor<1x32x1x32xf32>) {
  %0:2 = nn.attention %q, %k, %k causal window 7 : tensor<1x48x1x32xf32>, tensor<1x32x1x32xf32>
  return
}

// Of 12 elements in segments; the rest of the array is not touched. Squares are multiply-adds.
// CHECK: commands: train.segment_map matrix 0 vector 24 functions 0
// CHECK: commands: train.square_sum matrix 0 vector 160
// CHECK: commands: train.gemm matrix 384 vector 0 functions 0 read 288 written 128 flops 384 matrix
func.func @commands(%w: tensor<80xf32>, %lr: tensor<f32>, %a: tensor<4x6xf32>, %b: tensor<6x8xf32>) {
  %0 = train.segment_map %w, %w : tensor<80xf32>, tensor<80xf32> uniforms %lr : tensor<f32>
      segments <groups = [0, 0], lengths = [4, 8], offsets = [array<i64: 0, 64>, array<i64: 0, 64>]>
      {targets = array<i64: 0>} -> tensor<80xf32> {
  ^bb0(%p: f32, %d: f32, %r: f32):
    %s = arith.mulf %d, %r : f32
    %t = arith.subf %p, %s : f32
    train.yield %t : f32
  }
  %1 = train.square_sum %w block 64 : tensor<80xf32> -> tensor<2xf64>
  %2 = train.gemm %a, %b m 4 n 8 k 6 batch 1 : tensor<4x6xf32>, tensor<6x8xf32> -> tensor<4x8xf32>
  return
}

// CHECK: both: train.kernel matrix 0 vector 32 functions 32 read 256 written 128 flops 352 vector
train.kernel @both(%x: tensor<4x8xf32>, %y: tensor<4x8xf32>) inplace [-1] {
  %0 = nn.mul %x, %y : tensor<4x8xf32>, tensor<4x8xf32>
  %1 = nn.exp %0 : tensor<4x8xf32>
  train.return %1 : tensor<4x8xf32>
}
