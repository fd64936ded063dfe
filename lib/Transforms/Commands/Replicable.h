//===- Replicable.h - Ops that kernels have of their own --------*- C++ -*-===//
#ifndef TRAINC_LIB_TRANSFORMS_COMMANDS_REPLICABLE_H
#define TRAINC_LIB_TRANSFORMS_COMMANDS_REPLICABLE_H

#include "mlir/IR/Block.h"

namespace trainc {

/// Whether it is a constant or an index ramp, which costs nothing.
bool isReplicable(mlir::Operation *op);

/// Gives each pointwise op or reduction its own of the indices that it shares with others:
/// to compute them costs less than to read them.
void cloneIndices(mlir::Block &block);

/// Gives every user of a constant or index ramp its own copy beside it.
void cloneReplicable(mlir::Block &block);

} // namespace trainc

#endif // TRAINC_LIB_TRANSFORMS_COMMANDS_REPLICABLE_H
