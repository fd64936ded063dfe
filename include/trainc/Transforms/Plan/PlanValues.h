//===- PlanValues.h - What plans read and are made of -----------*- C++ -*-===//
#ifndef TRAINC_TRANSFORMS_PLAN_PLANVALUES_H
#define TRAINC_TRANSFORMS_PLAN_PLANVALUES_H

#include "trainc/Dialect/Train/TrainOps.h"

namespace trainc {

/// Checks that `params` of `op` are parameters that are not frozen.
llvm::LogicalResult verifyParams(mlir::Operation *op, mlir::ArrayAttr params,
                                 mlir::SymbolTable &symbols);

/// The scale of parameter number `position` of `update`, of rank 0.
mlir::Value readScale(mlir::OpBuilder &b, mlir::Location loc,
                      train::UpdateOp update, int64_t position);

/// Checks the parameters of `update`, and that its optimizer has a region.
llvm::LogicalResult verifyUpdate(train::UpdateOp update,
                                 mlir::SymbolTable &symbols);

/// The type in which a parameter's gradient, states and average are stored.
mlir::RankedTensorType gradientType(train::ParamOp param);

/// Reads a rank-0 f64 of the scalar block.
mlir::Value readScalar(mlir::OpBuilder &b, mlir::Location loc,
                       const llvm::Twine &name);

/// This rank's position among those that differ in `axes` of the mesh alone, numbered
/// row-major in the order of `axes`: a rank-0 i64.
mlir::Value readPosition(mlir::OpBuilder &b, mlir::Location loc,
                         mlir::ArrayAttr axes);

/// The values of the optimizer's hyperparameters, rank-0 f64, in their order; `t` is
/// the number of the update.
llvm::SmallVector<mlir::Value> readHyper(mlir::OpBuilder &b, mlir::Location loc,
                                         train::OptimizerOp optimizer,
                                         mlir::Value t);

/// Whether `target` is a stored gradient.
bool isGradient(mlir::SymbolRefAttr target, mlir::SymbolTable &symbols);

/// The arenas in which `update` keeps copies of `param`.
llvm::SmallVector<mlir::StringAttr> copiesOf(train::UpdateOp update,
                                             train::ParamOp param,
                                             mlir::SymbolTable &symbols);

} // namespace trainc

#endif // TRAINC_TRANSFORMS_PLAN_PLANVALUES_H
