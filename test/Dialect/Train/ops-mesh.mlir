// RUN: trainc-opt %s | trainc-opt | FileCheck %s
// RUN: trainc-opt %s --verify-roundtrip -o /dev/null

// CHECK: train.mesh @mesh(host = 2, data = 4, "tensor parallel" = 1)
train.mesh @mesh(host = 2, data = 4, "tensor parallel" = 1)

train.optimizer @o = sgd<lr = 0.1>
// CHECK: train.param @w : tensor<64x10xf32> init(zeros) optimizer(@o) split([], ["tensor parallel"])
train.param @w : tensor<64x10xf32> init(zeros) optimizer(@o) split([], ["tensor parallel"])
// CHECK: train.param @qkv : tensor<64x30xf32> init(zeros) frozen split([], [host]) blocks [1, 3]
train.param @qkv : tensor<64x30xf32> init(zeros) frozen split([], [host]) blocks [1, 3]
// CHECK: train.param @part : tensor<3x12xf32> init(zeros) frozen split([host]) of tensor<5x12xf32>
train.param @part : tensor<3x12xf32> init(zeros) frozen split([host]) of tensor<5x12xf32>
// CHECK: train.param @f : tensor<64x10xf32> init(zeros) frozen split([host])
train.param @f : tensor<64x10xf32> init(zeros) frozen split([host])

// CHECK: train.step @step(%x: tensor<32x64xf32> split([host, data], []), %g: tensor<64x10xf32> gradient(@w) split([], [data]), %z: tensor<f32>) {
train.step @step(%x: tensor<32x64xf32> split([host, data], []), %g: tensor<64x10xf32> gradient(@w) split([], [data]),
                 %z: tensor<f32>) {
  train.yield loss(%z) : tensor<f32>
}

// CHECK: train.step @over(%x: tensor<f32>) attributes {over = ["host", "data"]} {
train.step @over(%x: tensor<f32>) attributes {over = ["host", "data"]} {
  train.yield loss(%x) : tensor<f32>
}

// CHECK: train.eval @eval(%x: tensor<32x64xf32>, %y: tensor<32xi32> split([data])) -> ("x")
// CHECK-SAME{LITERAL}: output_splits = [[["data"]]]
train.eval @eval(%x: tensor<32x64xf32>, %y: tensor<32xi32> split([data])) -> ("x")
    attributes {output_splits = [[["data"]]]} {
  train.yield %x : tensor<32x64xf32>
}

// CHECK-LABEL: @collectives
func.func @collectives(%x: tensor<3xf32>, %g: tensor<8192xbf16>, %b: tensor<?xf32>) {
  // CHECK: train.process_index over ["host", "data"] : tensor<i64>
  %0 = train.process_index over ["host", "data"] : tensor<i64>
  // CHECK: train.all_reduce %{{.*}} over ["data"] : tensor<3xf32>
  %1 = train.all_reduce %x over ["data"] : tensor<3xf32>
  // CHECK: train.all_reduce %{{.*}} over ["host"] in_place piece_of ["data"] : tensor<8192xbf16>
  %2 = train.all_reduce %g over ["host"] in_place piece_of ["data"] : tensor<8192xbf16>
  // CHECK: train.reduce_scatter %{{.*}} over ["data"] in_place : tensor<8192xbf16> -> tensor<8192xbf16>
  %3 = train.reduce_scatter %g over ["data"] in_place : tensor<8192xbf16> -> tensor<8192xbf16>
  // CHECK: train.all_gather %{{.*}} over ["data"] in_place : tensor<8192xbf16> -> tensor<8192xbf16>
  %4 = train.all_gather %g over ["data"] in_place : tensor<8192xbf16> -> tensor<8192xbf16>
  // CHECK: train.all_gather %{{.*}} over ["data"] : tensor<3xf32> -> tensor<12xf32>
  %5 = train.all_gather %x over ["data"] : tensor<3xf32> -> tensor<12xf32>
  // CHECK: train.reduce_scatter %{{.*}} over ["host", "data"] : tensor<8192xbf16> -> tensor<1024xbf16>
  %6 = train.reduce_scatter %g over ["host", "data"] : tensor<8192xbf16> -> tensor<1024xbf16>
  // CHECK: train.all_reduce %{{.*}} over ["host"] in_place : tensor<?xf32>
  %7 = train.all_reduce %b over ["host"] in_place : tensor<?xf32>
  // CHECK: train.reduce_scatter %{{.*}} over ["data"] in_place : tensor<?xf32> -> tensor<?xf32>
  %8 = train.reduce_scatter %b over ["data"] in_place : tensor<?xf32> -> tensor<?xf32>
  // CHECK: train.all_gather %{{.*}} over ["data"] : tensor<?xf32> -> tensor<?xf32>
  %9 = train.all_gather %b over ["data"] : tensor<?xf32> -> tensor<?xf32>
  return
}

// CHECK-LABEL: @flat
func.func @flat(%x: tensor<2x3xf32>, %y: tensor<f32>) {
  // CHECK: %[[F:.*]] = train.flatten %{{.*}}, %{{.*}} at [0, 8] : tensor<2x3xf32>, tensor<f32> -> tensor<16xf32>
  %0 = train.flatten %x, %y at [0, 8] : tensor<2x3xf32>, tensor<f32> -> tensor<16xf32>
  // CHECK: train.view %[[F]] from 10 : tensor<16xf32> -> tensor<2x3xf32>
  %1 = train.view %0 from 10 : tensor<16xf32> -> tensor<2x3xf32>
  // CHECK: %[[B:.*]] = train.flatten %{{.*}}, %{{.*}} as [@w, @v] : tensor<2x3xf32>, tensor<f32> -> tensor<?xf32>
  %2 = train.flatten %x, %y as [@w, @v] : tensor<2x3xf32>, tensor<f32> -> tensor<?xf32>
  // CHECK: train.view %[[B]] of @w : tensor<?xf32> -> tensor<2x3xf32>
  %3 = train.view %2 of @w : tensor<?xf32> -> tensor<2x3xf32>
  return
}
