//===- PlanValues.h - What plans read and are made of -----------*- C++ -*-===//
#ifndef TRAINC_TRANSFORMS_PLAN_PLANVALUES_H
#define TRAINC_TRANSFORMS_PLAN_PLANVALUES_H

#include "trainc/Dialect/Train/TrainOps.h"

namespace trainc {

/// The parameter that `ref`, a flat symbol, names.
train::ParamOp lookupParam(mlir::Attribute ref, mlir::SymbolTable &symbols);

/// The bucket of each parameter that is in one.
using BucketMap = llvm::DenseMap<mlir::StringAttr, train::BucketOp>;
BucketMap mapBuckets(mlir::ModuleOp module);

/// Reads bucket `span` of `arena`, which is not laid out.
mlir::Value readBucket(mlir::OpBuilder &b, train::ArenaOp arena,
                       train::SpanOp span);

/// Gives every rank over `axes` all shards of bucket `span` of `arena`, in place.
void gatherBucket(mlir::OpBuilder &b, train::ArenaOp arena, train::SpanOp span,
                  mlir::ArrayAttr axes);

/// The arenas of `param`, its states and average, which its update writes.
llvm::SmallVector<std::string> updatedArenas(train::OptimizerOp optimizer,
                                             train::ParamOp param);

/// Checks that `params` of `op` are parameters that are not frozen.
llvm::LogicalResult verifyParams(mlir::Operation *op, mlir::ArrayAttr params,
                                 mlir::SymbolTable &symbols);

/// The scale of parameter number `position` of the group that `scale` is of, of rank 0.
mlir::Value readScale(mlir::OpBuilder &b, mlir::Location loc, mlir::Value scale,
                      int64_t position);

/// Parameters that one optimizer of an update updates.
struct UpdateGroup {
  mlir::FlatSymbolRefAttr optimizer;
  llvm::SmallVector<mlir::FlatSymbolRefAttr> params;
  mlir::Value scale, limit; // null: no clip by value
};
llvm::SmallVector<UpdateGroup> getGroups(train::UpdateOp update);
/// The parameters of `group` at `positions`, which ascend.
UpdateGroup pickParams(mlir::OpBuilder &b, mlir::Location loc,
                       const UpdateGroup &group,
                       llvm::ArrayRef<int64_t> positions);
/// `update` again, of other groups.
train::UpdateOp createUpdate(mlir::OpBuilder &b, train::UpdateOp update,
                             llvm::ArrayRef<UpdateGroup> groups);

/// Checks the parameters of `norm` and `update`, and that optimizers have regions.
llvm::LogicalResult verifyNorm(train::NormSquaredOp norm,
                               mlir::SymbolTable &symbols);
llvm::LogicalResult verifyUpdate(train::UpdateOp update,
                                 mlir::SymbolTable &symbols);

/// The type in which a parameter's gradient, states and average are stored.
mlir::RankedTensorType gradientType(train::ParamOp param);

/// The sum of `value` over the ranks that have the parts over `axes`; itself without axes.
mlir::Value sumOverParts(mlir::OpBuilder &b, mlir::Location loc,
                         mlir::Value value, mlir::ArrayAttr axes);

/// The arena in which norm and update find the gradient of `param`; with shards that of
/// merged gradients, where there is one.
std::string gradientArena(train::ParamOp param, bool isSharded,
                          mlir::SymbolTable &symbols);

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
