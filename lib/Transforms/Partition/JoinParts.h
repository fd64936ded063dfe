//===- JoinParts.h - What ranks have of a value, together -------*- C++ -*-===//
#ifndef TRAINC_LIB_TRANSFORMS_PARTITION_JOINPARTS_H
#define TRAINC_LIB_TRANSFORMS_PARTITION_JOINPARTS_H

#include "CutParts.h"

namespace trainc::parts {

/// Builds the collectives, where `b` stands if nothing else is said, that make one value
/// of what the ranks have.
class Joiner {
public:
  Joiner(const Grid &grid, mlir::OpBuilder &b,
         llvm::DenseMap<mlir::Value, Local> &locals)
      : grid(grid), b(b), locals(locals) {}

  /// Makes a sum that `user` needs whole, for all users from here on; behind its terms.
  llvm::LogicalResult addUp(mlir::Operation &user, mlir::Value global);
  /// This rank's term of a sum over `axes` of equal terms, that is `local`, a float scalar.
  mlir::Value share(mlir::Value local, llvm::ArrayRef<unsigned> axes);
  /// Makes `local`, of a value of `type`, whole along the dimensions that are wanted.
  void gather(mlir::Location loc, mlir::RankedTensorType type, Local &local,
              llvm::function_ref<bool(int64_t)> isWanted);
  /// Makes a value whole along dimensions of which a rank has several ranges, or which do
  /// not come out even.
  void gatherUneven(mlir::Value global);
  /// Adds up `local`, a sum of floats, where `wanted` splits it over ranks that have terms
  /// of it, each its own part.
  void scatter(mlir::Location loc, Local &local, const Split &wanted);
  /// What `op`, of this rank's part, is of the parts of all ranks along `axes`.
  mlir::Value join(nn::ReduceOp op, llvm::ArrayRef<unsigned> axes);

  int64_t numReduced = 0, numScattered = 0, numGathered = 0, numJoined = 0;

private:
  mlir::ArrayAttr orderedAxes(llvm::ArrayRef<unsigned> axes) const;
  mlir::Value reorderRanks(mlir::Location loc, mlir::Value value,
                           llvm::ArrayRef<unsigned> axes, bool toMesh);

  const Grid &grid;
  mlir::OpBuilder &b;
  llvm::DenseMap<mlir::Value, Local> &locals;
};

} // namespace trainc::parts

#endif // TRAINC_LIB_TRANSFORMS_PARTITION_JOINPARTS_H
