// RUN: trainc-opt %s --train-set-mesh="axes=data=4,host=2" --split-input-file | FileCheck %s
// RUN: trainc-opt %s --train-set-mesh --split-input-file | FileCheck %s --check-prefix=NONE

// Sizes by name, others stay. Without sizes it does nothing (NONE).
// CHECK: train.mesh @grid(host = 2, data = 4, model = 3)
// NONE: train.mesh @grid(host = 1, data = 1, model = 3)
train.mesh @grid(host = 1, data = 1, model = 3)

// -----

// A module without one gets a mesh.
// CHECK: module
// CHECK-NEXT: train.mesh @mesh_0(data = 4, host = 2)
// CHECK-NEXT: train.param @mesh
// NONE: module
// NONE-NEXT: train.param @mesh
train.param @mesh : tensor<4xf32> init(zeros) frozen
