// RUN: not trainc-opt %s --train-set-mesh="axes=data=4,tensor=2" 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// RUN: not trainc-opt %s --train-set-mesh="axes=data" 2>&1 | FileCheck %s --check-prefix=SIZE
// RUN: not trainc-opt %s --train-set-mesh="axes=data=2,data=2" 2>&1 | FileCheck %s --check-prefix=TWICE
// RUN: not trainc-opt %s --train-set-mesh="axes=data=0" 2>&1 | FileCheck %s --check-prefix=ZERO

// UNKNOWN: 'train.mesh' op has no axis 'tensor', but host, data
// SIZE: expects an axis as name=size, got 'data'
// TWICE: expects axis 'data' once
// ZERO: expects sizes of at least 1 and at most 65536 ranks in all (C2), got data = 0
train.mesh @mesh(host = 1, data = 1)
