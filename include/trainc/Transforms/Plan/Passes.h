//===- Passes.h - From gradients to the step plan (form 1 to 2) -*- C++ -*-===//
#ifndef TRAINC_TRANSFORMS_PLAN_PASSES_H
#define TRAINC_TRANSFORMS_PLAN_PASSES_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Pass/Pass.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Dialect/Train/TrainOps.h"

namespace trainc {
#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "trainc/Transforms/Plan/Passes.h.inc"
} // namespace trainc

#endif // TRAINC_TRANSFORMS_PLAN_PASSES_H
