//===- Passes.h - From the source to gradients (form 0 to 1) ----*- C++ -*-===//
#ifndef TRAINC_TRANSFORMS_SOURCE_PASSES_H
#define TRAINC_TRANSFORMS_SOURCE_PASSES_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Pass/Pass.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Dialect/Train/TrainOps.h"

namespace trainc {
#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "trainc/Transforms/Source/Passes.h.inc"
} // namespace trainc

#endif // TRAINC_TRANSFORMS_SOURCE_PASSES_H
