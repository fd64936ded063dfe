//===- View.h - A tensor as elements of another one -------------*- C++ -*-===//
#ifndef TRAINC_LIB_DIALECT_NN_VIEW_H
#define TRAINC_LIB_DIALECT_NN_VIEW_H

#include "trainc/Dialect/NN/NNOps.h"

namespace trainc::nn {

/// A tensor whose elements are those of `source`, taken row-major, from `offset` on. Each
/// dimension is a list of loops, outermost first, of which none can be joined with the
/// next: [197, 4 x 12] of a transposed [4, 197, 12] has two in its second.
struct View {
  struct Loop {
    int64_t size, stride;
  };
  using Loops = llvm::SmallVector<Loop, 2>;

  mlir::Value source;
  int64_t offset = 0;
  llvm::SmallVector<Loops> dims;

  /// All elements of `value`, in order, in shape `shape`.
  View(mlir::Value value, llvm::ArrayRef<int64_t> shape);

  /// Whether it is the source, with its elements in order.
  bool isWhole() const;

  /// Whether elements of dimension `dim` are `stride` apart.
  bool hasStride(size_t dim, int64_t stride) const;
};

/// `value` as a view of what the reshapes, transposes and slices that made it are of.
View viewOf(mlir::Value value);

/// The same of a reshape of `value`.
View viewOf(mlir::Value value, llvm::ArrayRef<int64_t> shape);

/// The view of a transpose of `view`.
View permute(const View &view, llvm::ArrayRef<int64_t> permutation);

} // namespace trainc::nn

#endif // TRAINC_LIB_DIALECT_NN_VIEW_H
