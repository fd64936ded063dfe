//===- NameSlices.h - Where parameters and buffers stand --------*- C++ -*-===//
#ifndef TRAINC_LIB_TRANSFORMS_PLAN_NAMESLICES_H
#define TRAINC_LIB_TRANSFORMS_PLAN_NAMESLICES_H

#include "mlir/IR/SymbolTable.h"

namespace trainc {

/// Makes reads and writes of parameters and buffers in `entry` name their slices; with
/// `ema` those of the parameters' averages, where they have some.
void nameSlices(mlir::Operation *entry, mlir::SymbolTable &symbols, bool ema);

} // namespace trainc

#endif // TRAINC_LIB_TRANSFORMS_PLAN_NAMESLICES_H
