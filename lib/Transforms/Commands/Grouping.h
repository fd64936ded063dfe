//===- Grouping.h - Which ops become one kernel -----------------*- C++ -*-===//
#ifndef TRAINC_LIB_TRANSFORMS_COMMANDS_GROUPING_H
#define TRAINC_LIB_TRANSFORMS_COMMANDS_GROUPING_H

#include "mlir/IR/Block.h"
#include "mlir/IR/Operation.h"

namespace trainc {

/// Inputs of a kernel at most. Each is an argument, of which kernels of GPUs have 4 KB.
inline constexpr size_t kMaxInputs = 48;

/// Groups the ops of `block` that must become kernels, and reorders the block so
/// that every group is contiguous and after what it depends on. Ops that several
/// groups compute for themselves (constants, index ramps, cheap producers of
/// column reductions) are cloned. Groups are in block order; ops in no group are
/// memory accesses, reshapes and GEMMs. Without `fuse` each group is one op and
/// the constants it uses.
llvm::SmallVector<llvm::SmallVector<mlir::Operation *>>
formGroups(mlir::Block &block, bool fuse, bool gpu);

} // namespace trainc

#endif // TRAINC_LIB_TRANSFORMS_COMMANDS_GROUPING_H
