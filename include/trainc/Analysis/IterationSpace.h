//===- IterationSpace.h - The loops that a group of ops shares --*- C++ -*-===//
#ifndef TRAINC_ANALYSIS_ITERATIONSPACE_H
#define TRAINC_ANALYSIS_ITERATIONSPACE_H

#include "mlir/IR/Operation.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallVector.h"

namespace trainc {

/// The iteration space of a kernel: outer dimensions times one innermost
/// dimension, which is vectorized. Every tensor of the kernel spans each outer
/// dimension or is broadcast along it, and spans the inner dimension or has one
/// element per point of the outer ones.
///
/// In a row kernel all reductions are over the inner dimension; in a column kernel
/// they are over outer dimensions (`reduced`), and all results are reductions.
struct IterationSpace {
  /// Collapsed outer dimensions, outermost first.
  llvm::SmallVector<int64_t> outer;
  /// Which outer dimensions a column kernel reduces.
  llvm::SmallVector<bool> reduced;
  /// Elements of the inner dimension; 1 if there is none.
  int64_t inner = 1;
  bool hasReductions = false;

  /// Where a tensor varies.
  struct Extent {
    llvm::SmallVector<bool> outer; // per dimension of `outer`
    bool inner = false;
  };
  llvm::DenseMap<mlir::Value, Extent> extents;

  const Extent &extentOf(mlir::Value value) const {
    return extents.find(value)->second;
  }
  int64_t outerSize() const;

  /// The space of `ops`, pointwise ops and reductions in normal form (see
  /// nn-decompose), or failure if they share none. With `column`, reductions are
  /// over outer dimensions.
  static llvm::FailureOr<IterationSpace>
  compute(llvm::ArrayRef<mlir::Operation *> ops, bool column);
};

/// Whether recomputing `op` costs less than reading its result.
bool isCheap(mlir::Operation *op);

} // namespace trainc

#endif // TRAINC_ANALYSIS_ITERATIONSPACE_H
