//===- Passes.h - What one of several ranks computes (form 0) ---*- C++ -*-===//
#ifndef TRAINC_TRANSFORMS_PARTITION_PASSES_H
#define TRAINC_TRANSFORMS_PARTITION_PASSES_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Pass/Pass.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Dialect/Train/TrainOps.h"

namespace trainc {
#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "trainc/Transforms/Partition/Passes.h.inc"
} // namespace trainc

#endif // TRAINC_TRANSFORMS_PARTITION_PASSES_H
