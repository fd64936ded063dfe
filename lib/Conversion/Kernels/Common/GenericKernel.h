//===- GenericKernel.h - Kernels without an emitter of their own *- C++ -*-===//
#ifndef TRAINC_LIB_CONVERSION_KERNELS_COMMON_GENERICKERNEL_H
#define TRAINC_LIB_CONVERSION_KERNELS_COMMON_GENERICKERNEL_H

#include "KernelEmitter.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/PassManager.h"

namespace trainc {

/// Emits the body as linalg ops, which lowerGenericKernels lowers; returns the number of
/// tiles.
llvm::FailureOr<int64_t> emitGeneric(KernelFunction &function);

/// Lowers what emitGeneric has put into the functions of `module` to loops on memrefs;
/// `run` runs a pipeline on it. Results are computed where they belong.
llvm::LogicalResult lowerGenericKernels(
    mlir::ModuleOp module,
    llvm::function_ref<llvm::LogicalResult(mlir::OpPassManager &)> run);

/// Frees every buffer at the end of the block that allocates it.
void freeBuffers(mlir::func::FuncOp function);

/// Restricts a function that is one parallel nest to the tile in its last
/// argument; returns the number of tiles (1: it computes everything).
int64_t cutIntoTiles(mlir::func::FuncOp function);

} // namespace trainc

#endif // TRAINC_LIB_CONVERSION_KERNELS_COMMON_GENERICKERNEL_H
