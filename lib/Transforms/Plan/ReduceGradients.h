//===- ReduceGradients.h - Sums of gradients over ranks ---------*- C++ -*-===//
//
// Gradients are summed over the ranks that share the shards of buckets, shard by
// shard, then over those that have the same shards: once per window, of what its
// micro-steps have accumulated, or in every micro-step.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_LIB_TRANSFORMS_PLAN_REDUCEGRADIENTS_H
#define TRAINC_LIB_TRANSFORMS_PLAN_REDUCEGRADIENTS_H

#include "trainc/Dialect/Train/TrainOps.h"

namespace trainc {

/// Inserts the sums into a plan.
struct GradientReducer {
  train::StepOp step;
  mlir::SymbolTable &symbols;
  mlir::Block &apply; // what is done once per window
  bool sharded;       // a rank needs its own shards alone
  int64_t reduced = 0, gathered = 0;

  /// Once per window, at `b`.
  void reduceOnce(mlir::OpBuilder b);
  /// In every micro-step. This rank's shards of the sums are accumulated over the
  /// window, in an arena of merged gradients that the first micro-step overwrites.
  void reduceEachMicroStep();
  /// In every micro-step, too, each bucket as soon as its last gradient is made: in
  /// memory of its own, which is free when this rank's shard is merged. For `sharded`.
  /// Then nothing uses `gradientArenas` any more.
  void reduceByBucket();
  /// The arenas of the step's gradients that are sums over ranks.
  mlir::SmallVector<train::ArenaOp> gradientArenas();

private:
  struct Stored;

  mlir::Value sumBucket(mlir::OpBuilder &b, train::ArenaOp arena,
                        mlir::Value value);
  void sumGradients(mlir::OpBuilder &b, train::ArenaOp arena);
  train::ArenaOp addMerged(train::ArenaOp gradients);
  Stored
  takeStores(train::ArenaOp arena, train::BucketOp bucket,
             const llvm::DenseMap<mlir::Attribute, mlir::Operation *> &stores);
};

} // namespace trainc

#endif // TRAINC_LIB_TRANSFORMS_PLAN_REDUCEGRADIENTS_H
