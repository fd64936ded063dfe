// RUN: trainc-opt %s | trainc-opt | FileCheck %s
// RUN: trainc-opt %s --verify-roundtrip -o /dev/null

// CHECK-LABEL: @unary
func.func @unary(%x: tensor<4x8xf32>) {
  // CHECK: nn.neg %{{.*}} : tensor<4x8xf32>
  %0 = nn.neg %x : tensor<4x8xf32>
  // CHECK: nn.abs
  %1 = nn.abs %x : tensor<4x8xf32>
  // CHECK: nn.exp
  %2 = nn.exp %x : tensor<4x8xf32>
  // CHECK: nn.log
  %3 = nn.log %x : tensor<4x8xf32>
  // CHECK: nn.sqrt
  %4 = nn.sqrt %x : tensor<4x8xf32>
  // CHECK: nn.floor
  %f0 = nn.floor %x : tensor<4x8xf32>
  // CHECK: nn.ceil
  %f1 = nn.ceil %x : tensor<4x8xf32>
  // CHECK: nn.round
  %f2 = nn.round %x : tensor<4x8xf32>
  // CHECK: nn.rsqrt
  %5 = nn.rsqrt %x : tensor<4x8xf32>
  // CHECK: nn.sin
  %6 = nn.sin %x : tensor<4x8xf32>
  // CHECK: nn.cos
  %7 = nn.cos %x : tensor<4x8xf32>
  // CHECK: nn.tanh
  %8 = nn.tanh %x : tensor<4x8xf32>
  // CHECK: nn.erf
  %9 = nn.erf %x : tensor<4x8xf32>
  // CHECK: nn.sigmoid
  %10 = nn.sigmoid %x : tensor<4x8xf32>
  // CHECK: nn.silu
  %11 = nn.silu %x : tensor<4x8xf32>
  // CHECK: nn.relu
  %12 = nn.relu %x : tensor<4x8xf32>
  // CHECK: nn.gelu %{{.*}} tanh : tensor<4x8xf32>
  %13 = nn.gelu %x tanh : tensor<4x8xf32>
  // CHECK: nn.gelu %{{.*}} erf : tensor<4x8xf32>
  %14 = nn.gelu %x erf : tensor<4x8xf32>
  // CHECK: nn.clamp %{{.*}} low 0.000000e+00 high 6.000000e+00 : tensor<4x8xf32>
  %15 = nn.clamp %x low 0.0 high 6.0 : tensor<4x8xf32>
  // CHECK: nn.stop_gradient
  %16 = nn.stop_gradient %x : tensor<4x8xf32>
  // CHECK: nn.cast %{{.*}} to bf16 : tensor<4x8xf32>
  %17 = nn.cast %x to bf16 : tensor<4x8xf32>
  return
}

// CHECK-LABEL: @binary
func.func @binary(%x: tensor<4x8xf32>, %y: tensor<8xf32>, %i: tensor<4xi32>, %j: tensor<3x1xi32>) -> tensor<3x4xi32> {
  // CHECK: nn.add %{{.*}}, %{{.*}} : tensor<4x8xf32>, tensor<8xf32>
  %0 = nn.add %x, %y : tensor<4x8xf32>, tensor<8xf32>
  // CHECK: nn.sub
  %1 = nn.sub %x, %y : tensor<4x8xf32>, tensor<8xf32>
  // CHECK: nn.mul
  %2 = nn.mul %x, %y : tensor<4x8xf32>, tensor<8xf32>
  // CHECK: nn.div
  %3 = nn.div %x, %y : tensor<4x8xf32>, tensor<8xf32>
  // CHECK: nn.min
  %4 = nn.min %x, %y : tensor<4x8xf32>, tensor<8xf32>
  // CHECK: nn.max
  %5 = nn.max %x, %y : tensor<4x8xf32>, tensor<8xf32>
  // CHECK: nn.pow
  %6 = nn.pow %x, %y : tensor<4x8xf32>, tensor<8xf32>
  // CHECK: nn.max %{{.*}}, %{{.*}} : tensor<4xi32>, tensor<3x1xi32>
  %7 = nn.max %i, %j : tensor<4xi32>, tensor<3x1xi32>
  return %7 : tensor<3x4xi32>
}

// CHECK-LABEL: @logical
func.func @logical(%x: tensor<4x8xf32>, %y: tensor<8xf32>) -> tensor<4x8xf32> {
  // CHECK: nn.compare gt %{{.*}}, %{{.*}} : tensor<4x8xf32>, tensor<8xf32>
  %0 = nn.compare gt %x, %y : tensor<4x8xf32>, tensor<8xf32>
  // CHECK: nn.not %{{.*}} : tensor<4x8xi1>
  %1 = nn.not %0 : tensor<4x8xi1>
  // CHECK: nn.and %{{.*}}, %{{.*}} : tensor<4x8xi1>, tensor<4x8xi1>
  %2 = nn.and %0, %1 : tensor<4x8xi1>, tensor<4x8xi1>
  // CHECK: nn.or
  %3 = nn.or %0, %2 : tensor<4x8xi1>, tensor<4x8xi1>
  // CHECK: nn.select %{{.*}}, %{{.*}}, %{{.*}} : tensor<4x8xi1>, tensor<4x8xf32>, tensor<8xf32>
  %4 = nn.select %3, %x, %y : tensor<4x8xi1>, tensor<4x8xf32>, tensor<8xf32>
  return %4 : tensor<4x8xf32>
}

// CHECK-LABEL: @map
func.func @map(%x: tensor<4x8xbf16>, %s: tensor<f64>) -> tensor<4x8xbf16> {
  // CHECK: nn.map(%{{.*}}, %{{.*}}) : (tensor<4x8xbf16>, tensor<f64>) -> tensor<4x8xbf16> {
  // CHECK-NEXT: ^bb0(%[[A:.*]]: f32, %{{.*}}: f64):
  %0 = nn.map(%x, %s) : (tensor<4x8xbf16>, tensor<f64>) -> tensor<4x8xbf16> {
  ^bb0(%a: f32, %b: f64):
    // CHECK: nn.yield %[[A]] : f32
    nn.yield %a : f32
  }
  return %0 : tensor<4x8xbf16>
}
