//===- Kernels.h - The kernels of a processor as objects --------*- C++ -*-===//
#ifndef TRAINC_LIB_DRIVER_KERNELS_H
#define TRAINC_LIB_DRIVER_KERNELS_H

#include "Cache.h"
#include "mlir/IR/BuiltinOps.h"
#include "trainc/Dialect/Train/TrainOps.h"
#include "trainc/Pipelines/Pipelines.h"
#include "trainc/Target/Object.h"

namespace trainc {

struct KernelObjects {
  /// One per train.kernel, in order: it defines a hidden symbol of the kernel's name
  /// and may need the hidden symbol `kFunctionTable`.
  std::vector<ObjectFile> objects;
  /// How many of them were in the cache.
  size_t numCached = 0;
};

/// The pointer to the runtime's functions, in the code of kernels.
inline constexpr llvm::StringLiteral kFunctionTable = "trainc.functions";

/// The attribute that `text`, which the cache has, is; null if it is none, without a
/// diagnostic.
train::AbiAttr parseAbi(llvm::StringRef text, mlir::MLIRContext *context);

/// Compiles every kernel of `module`, which is in form 3 and for the processor, by
/// itself and in parallel, and sets its abi. A kernel's object depends on nothing else of
/// the module. `cache` may be null.
/// Diagnostics if that fails.
llvm::LogicalResult compileKernels(mlir::ModuleOp module,
                                   const PipelineOptions &options,
                                   const llvm::TargetMachine &machine,
                                   unsigned optimize, Cache *cache,
                                   KernelObjects &result);

} // namespace trainc

#endif // TRAINC_LIB_DRIVER_KERNELS_H
