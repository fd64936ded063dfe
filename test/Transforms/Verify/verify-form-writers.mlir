// What a step is for has no users: MLIR's own passes leave all commands of a plan where they are, on one rank and on several.
// RUN: trainc-opt %s --trainc-to-commands -o %t.mlir
// RUN: trainc-opt %t.mlir --canonicalize --cse --train-verify-form=form=3 -o %t.after.mlir
// RUN: grep -oE "train.(launch @\w+|gemm|flatten)" %t.mlir >%t.commands && grep -oE "train.(launch @\w+|gemm|flatten)" %t.after.mlir >%t.left
// RUN: diff %t.commands %t.left && FileCheck %s --input-file=%t.left
// CHECK-DAG: train.gemm
// CHECK-DAG: train.launch @k_update

// RUN: trainc %s --mesh=data=2 --shard=gradients --stop-after=commands -o %t.ranks.mlir
// RUN: trainc-opt %t.ranks.mlir --canonicalize --cse --train-verify-form=form=3 -o %t.ranks.after.mlir
// RUN: grep -oE "train.(launch @\w+|gemm|flatten)" %t.ranks.mlir >%t.ranks.commands && grep -oE "train.(launch @\w+|gemm|flatten)" %t.ranks.after.mlir >%t.ranks.left
// RUN: diff %t.ranks.commands %t.ranks.left && FileCheck %s --input-file=%t.ranks.left --check-prefix=RANKS
// RANKS: train.flatten

// Before memory is planned a launch is as any other operation.
// RUN: trainc-opt %s --trainc-to-plan --train-coalesce --train-outline-lists --train-expand-updates --nn-decompose --train-form-kernels -o %t.tensors.mlir
// RUN: FileCheck %s --input-file=%t.tensors.mlir --check-prefix=TENSORS
// TENSORS: %{{.*}}:{{[0-9]+}} = train.launch @k_update
// RUN: sed 's/^ *train.write .*//' %t.tensors.mlir | trainc-opt --canonicalize | FileCheck %s --check-prefix=UNUSED
// UNUSED: train.list @step.apply
// UNUSED-NOT: train.launch @k_update
// UNUSED: train.return
train.mesh @mesh(data = 1)
train.optimizer @o = adamw<lr = 0.1, weight_decay = 0.1>
train.param @w : tensor<16x8xf32> init(normal<0.1>) optimizer(@o)
train.param @b : tensor<8xf32> init(zeros) optimizer(@o)
train.step @step(%x: tensor<32x16xf32> split([data]), %y: tensor<32xi32> split([data])) clip(global_norm<1.0>) {
  %w = train.read @w : tensor<16x8xf32>
  %b = train.read @b : tensor<8xf32>
  %l = nn.linear %x, %w, %b : tensor<32x16xf32>, tensor<16x8xf32>, tensor<8xf32>
  %loss, %count = nn.cross_entropy %l, %y : tensor<32x8xf32>, tensor<32xi32>
  train.yield loss(%loss) weight(%count) : tensor<f32>, tensor<f32>
}
