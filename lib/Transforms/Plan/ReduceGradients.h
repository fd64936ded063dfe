//===- ReduceGradients.h - Sums of gradients over ranks ---------*- C++ -*-===//
//
// Gradients are summed over the ranks that share the pieces of buckets, piece by
// piece, then over those that have the same pieces: once per window, of what its
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
  bool sharded;       // a rank needs its own pieces alone
  int64_t reduced = 0, gathered = 0;

  /// Once per window, at `b`.
  void reduceOnce(mlir::OpBuilder b);
  /// In every micro-step. This rank's pieces of the sums are added up over the
  /// window, in an arena of merged gradients that the first micro-step overwrites.
  void reduceEachMicroStep();
  /// In every micro-step, too, each bucket as soon as its last gradient is made: in
  /// memory of its own, which is free when this rank's piece is merged. For `sharded`.
  /// Then nothing uses `gradientArenas` any more.
  void reduceByBucket();
  /// The arenas of the step's gradients that are sums over ranks.
  mlir::SmallVector<train::ArenaOp> gradientArenas();

private:
  /// Of arrays; those of shard i end at shards[i + 1].
  struct Segments {
    llvm::SmallVector<int64_t> lengths, shards{0};
    llvm::SmallVector<llvm::SmallVector<int64_t>> offsets; // by array
  };
  struct Stored;

  mlir::Value sumRange(mlir::OpBuilder &b, train::ArenaOp arena,
                       mlir::Value value, int64_t first, int64_t count);
  mlir::Value sumGradients(mlir::OpBuilder &b, train::ArenaOp arena);
  mlir::Value gatherGradients(mlir::OpBuilder &b, train::ArenaOp arena,
                              mlir::Value value);
  train::ArenaOp addMerged(train::ArenaOp gradients);
  Segments piecesOf(llvm::ArrayRef<train::ArenaOp> arenas);
  Segments piecesOf(const Stored &stored, const train::ArenaOp::Bucket &own);
  mlir::Value
  mapSegments(mlir::OpBuilder &b, mlir::Location loc, mlir::ValueRange arrays,
              mlir::ValueRange uniforms, mlir::Value shard,
              const Segments &segments,
              llvm::function_ref<mlir::Value(mlir::OpBuilder &, mlir::Block &)>
                  element);
  Stored
  takeStores(train::ArenaOp arena, const train::ArenaOp::Bucket &bucket,
             int64_t &slice,
             const llvm::DenseMap<mlir::Attribute, mlir::Operation *> &stores);
  void readMerged(train::ArenaOp gradients, train::ArenaOp merged);
};

} // namespace trainc

#endif // TRAINC_LIB_TRANSFORMS_PLAN_REDUCEGRADIENTS_H
