//===- Splits.h - What a source says of splits ------------------*- C++ -*-===//
//
// How inputs and parameters of a module with global shapes are split, and what the
// module says of them afterwards.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_LIB_TRANSFORMS_PARTITION_SPLITS_H
#define TRAINC_LIB_TRANSFORMS_PARTITION_SPLITS_H

#include "Parts.h"

namespace trainc::parts {

/// Checks that `what`, of `type`, divides evenly, but for `mayBeUneven` along dimensions
/// of one block.
llvm::LogicalResult verifyDivides(const Grid &grid, mlir::Operation *op,
                                  const llvm::Twine &what,
                                  mlir::RankedTensorType type,
                                  const Split &split, bool mayBeUneven);

/// How `param`, whole, is split.
Split readSplit(const Grid &grid, train::ParamOp param);

/// How the inputs of `entry` lie on the ranks.
llvm::FailureOr<llvm::SmallVector<Layout>>
getInputLayouts(const Grid &grid, mlir::Operation *entry,
                mlir::SymbolTable &symbols, mlir::ArrayAttr names,
                mlir::ArrayAttr splits);

/// Checks that each axis of several ranks splits something in the step.
llvm::LogicalResult verifyUse(const Grid &grid, train::StepOp step,
                              llvm::ArrayRef<Layout> inputs);

/// Checks that parameters in blocks divide.
llvm::LogicalResult verifyParams(const Grid &grid, mlir::ModuleOp module);

/// Gives the parameters the types of their parts.
void divideParams(const Grid &grid, mlir::ModuleOp module);

/// Says of gradients among the inputs how they are split.
void setGradientSplits(const Grid &grid, train::StepOp step,
                       llvm::ArrayRef<Layout> inputs);

/// Erases what says how tensors are split.
void eraseSplits(mlir::ModuleOp module);

} // namespace trainc::parts

#endif // TRAINC_LIB_TRANSFORMS_PARTITION_SPLITS_H
