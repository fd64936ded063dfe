//===- GenericKernel.h - Kernels without an emitter of their own *- C++ -*-===//
#ifndef TRAINC_LIB_CONVERSION_LOWERKERNELS_GENERICKERNEL_H
#define TRAINC_LIB_CONVERSION_LOWERKERNELS_GENERICKERNEL_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/PassManager.h"

namespace trainc {

/// Passes from the functions of emitGeneric to linalg ops on memrefs.
void buildBufferizePipeline(mlir::OpPassManager &pm);

/// Computes results where they belong instead of copying them, and makes what
/// copies remain loops.
void removeCopies(mlir::func::FuncOp function);

/// Passes from linalg ops on memrefs to loops.
void buildLoopsPipeline(mlir::OpPassManager &pm);

/// Frees every buffer at the end of the block that allocates it.
void freeBuffers(mlir::func::FuncOp function);

/// Restricts a function that is one parallel nest to the tile in its last
/// argument; returns the number of tiles (1: it computes everything).
int64_t cutIntoTiles(mlir::func::FuncOp function);

} // namespace trainc

#endif // TRAINC_LIB_CONVERSION_LOWERKERNELS_GENERICKERNEL_H
