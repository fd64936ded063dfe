//===- Passes.h - Conversions out of our dialects ---------------*- C++ -*-===//
#ifndef TRAINC_CONVERSION_PASSES_H
#define TRAINC_CONVERSION_PASSES_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Pass/Pass.h"

namespace trainc {

#define GEN_PASS_DECL
#include "trainc/Conversion/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "trainc/Conversion/Passes.h.inc"

} // namespace trainc

#endif // TRAINC_CONVERSION_PASSES_H
