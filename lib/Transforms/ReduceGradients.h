//===- ReduceGradients.h - Sums of gradients over ranks ---------*- C++ -*-===//
//
// Gradients are summed over the ranks that share the pieces of buckets, piece by
// piece, then over those that have the same pieces: once per window, of what its
// micro-steps have accumulated, or in every micro-step.
//
//===----------------------------------------------------------------------===//
#ifndef TRAINC_LIB_TRANSFORMS_REDUCEGRADIENTS_H
#define TRAINC_LIB_TRANSFORMS_REDUCEGRADIENTS_H

#include "trainc/Dialect/Train/TrainOps.h"

namespace trainc {

/// This rank's number among those that share the pieces.
mlir::Value readShard(mlir::OpBuilder &b, mlir::Location loc,
                      mlir::ArrayAttr pieceAxes);

/// Inserts the sums into a plan.
struct GradientReducer {
  train::StepOp step;
  train::MeshOp mesh;
  mlir::SymbolTable &symbols;
  mlir::Block &apply; // what is done once per window
  mlir::ArrayAttr pieceAxes, otherAxes;
  bool sharded; // a rank needs its own pieces alone
  int64_t reduced = 0, gathered = 0;

  /// Once per window, at `b`.
  void reduceOnce(mlir::OpBuilder b);
  /// In every micro-step. This rank's pieces of the sums are added up over the
  /// window, in an arena of merged gradients that the first micro-step overwrites.
  void reduceEachMicroStep();

private:
  mlir::Value sumGradients(mlir::OpBuilder &b, train::ArenaOp arena);
  mlir::Value gatherGradients(mlir::OpBuilder &b, train::ArenaOp arena,
                              mlir::Value value);
  train::ArenaOp addMerged(train::ArenaOp gradients);
  mlir::Value
  mapPieces(mlir::OpBuilder &b, llvm::StringRef name,
            llvm::ArrayRef<train::ArenaOp> arenas, mlir::ValueRange arrays,
            mlir::ValueRange uniforms,
            llvm::function_ref<mlir::Value(mlir::OpBuilder &, mlir::Block &)>
                element);
  void readMerged(train::ArenaOp gradients, train::ArenaOp merged);
};

} // namespace trainc

#endif // TRAINC_LIB_TRANSFORMS_REDUCEGRADIENTS_H
