//===- SegmentUpdates.h - Norms and updates of segments ---------*- C++ -*-===//
#ifndef TRAINC_LIB_TRANSFORMS_COMMANDS_SEGMENTUPDATES_H
#define TRAINC_LIB_TRANSFORMS_COMMANDS_SEGMENTUPDATES_H

#include "trainc/Dialect/Train/TrainLayout.h"
#include "trainc/Transforms/Plan/PlanValues.h"

namespace trainc {

/// Replaces plan ops of a list by passes over arenas, segment by segment: what is fused,
/// and what each rank does a shard of. What depends on scalars alone is computed once per
/// group before. Every element goes through the same operations as one parameter at a time,
/// and sums are added in the same order.
class SegmentUpdates {
public:
  SegmentUpdates(train::ListOp list, mlir::SymbolTable &symbols,
                 train::Layouts &layouts, const BucketMap &buckets)
      : list(list), symbols(symbols), layouts(layouts), buckets(buckets) {
    for (auto write : list.getBody().getOps<train::WriteOp>()) {
      written.insert(write.getTarget());
      written.insert(write.getTarget().getRootReference());
    }
  }

  llvm::LogicalResult expand(train::NormSquaredOp norm);
  llvm::LogicalResult expand(train::UpdateOp update);
  /// Of a bucket of which a rank has a shard.
  llvm::LogicalResult expand(train::AccumulateOp accumulate);

  /// The gradient of `param`, of one parameter: of its bucket where the list writes this.
  mlir::Value readGradient(mlir::OpBuilder &b, train::ParamOp param);

private:
  friend struct SegmentUpdate;

  /// What `param` has in an arena, of `type`: of its bucket where the list has written this.
  mlir::Value readSlice(mlir::OpBuilder &b, train::ParamOp param,
                        llvm::StringRef arena, mlir::RankedTensorType type);

  /// Null where there are none.
  train::BucketOp bucketOf(train::ParamOp param) {
    return buckets.lookup(param.getSymNameAttr());
  }
  llvm::LogicalResult verifyArena(mlir::Operation *op, llvm::StringRef name,
                                  llvm::ArrayRef<train::ParamOp> params,
                                  bool isSharded);
  mlir::Value readArena(mlir::OpBuilder &b, mlir::Location loc,
                        llvm::StringRef name,
                        llvm::ArrayRef<train::ParamOp> params);
  int64_t countShards(mlir::ArrayAttr over);
  mlir::Value readShard(mlir::ArrayAttr over);
  mlir::Value readBegins();

  train::ListOp list;
  mlir::SymbolTable &symbols;
  train::Layouts &layouts;
  const BucketMap &buckets;
  /// What the list wrote before norms and updates: by its name, and that of the arena.
  llvm::DenseSet<mlir::Attribute> written;
  llvm::DenseMap<mlir::Attribute, mlir::Value> shardOf; // by axes
  mlir::Value begins;
};

} // namespace trainc

#endif // TRAINC_LIB_TRANSFORMS_COMMANDS_SEGMENTUPDATES_H
