//===- NNBuilders.h - Values made of others ---------------------*- C++ -*-===//
#ifndef TRAINC_DIALECT_NN_NNBUILDERS_H
#define TRAINC_DIALECT_NN_NNBUILDERS_H

#include "trainc/Dialect/NN/NNOps.h"

namespace trainc::nn {

/// A constant of `type`, a number or a vector of numbers, filled with `value`.
mlir::Value splatConstant(mlir::OpBuilder &builder, mlir::Location loc,
                          mlir::Type type, double value);

/// `rhs`, and 1 where the quotient of integers `lhs / rhs` would be undefined, and may trap:
/// where `rhs` is 0 or, if they are signed, -1 and `lhs` the least number.
mlir::Value guardDivisor(mlir::OpBuilder &builder, mlir::Location loc,
                         mlir::Value lhs, mlir::Value rhs, bool isSigned);

/// `base` to a power of a whole exponent, numbers or vectors, by the power in f64; rounded
/// once.
mlir::Operation *buildWholePower(mlir::OpBuilder &builder, mlir::Location loc,
                                 mlir::Value base, mlir::Value exponent);

/// A rank-0 `nn.constant` of element type `elementType`.
mlir::Value scalarConstant(mlir::OpBuilder &builder, mlir::Location loc,
                           mlir::Type elementType, double value);

/// The NumPy broadcast of the shapes, or failure.
llvm::FailureOr<llvm::SmallVector<int64_t>>
broadcastShapes(llvm::ArrayRef<llvm::ArrayRef<int64_t>> shapes);

/// Sums `value` over the dimensions along which a tensor of shape `shape` was
/// broadcast to it, and returns it in that shape: the gradient of broadcasting.
mlir::Value sumToShape(mlir::OpBuilder &builder, mlir::Location loc,
                       mlir::Value value, llvm::ArrayRef<int64_t> shape);

/// `value` with its elements converted to `elementType`; itself if they are.
mlir::Value castTo(mlir::OpBuilder &builder, mlir::Location loc,
                   mlir::Value value, mlir::Type elementType);

/// The same, of a product or a sum before it is rounded to its own type.
mlir::Value castUnrounded(mlir::OpBuilder &builder, mlir::Location loc,
                          mlir::Value value, mlir::Type elementType);

/// What a cast to a narrower type gives back, as it was before another one widened it; null
/// if the cast rounds.
mlir::Value getUnwidened(CastOp cast);

/// `value` in shape `shape`; itself if it has it.
mlir::Value reshapeTo(mlir::OpBuilder &builder, mlir::Location loc,
                      mlir::Value value, llvm::ArrayRef<int64_t> shape);

/// `sum` + `value`. A gradient of an embedding that has no user takes the sum as
/// its init, and is erased.
mlir::Value addTo(mlir::OpBuilder &b, mlir::Location loc, mlir::Value sum,
                  mlir::Value value);

/// An id of an embedding as the index of one of `rows` rows, counted from row `first`,
/// an i64, if given.
mlir::Value idAsRow(mlir::OpBuilder &b, mlir::Location loc, mlir::Value id,
                    int64_t rows, mlir::Value first = {});

/// Whether index `row` is in [0, rows).
mlir::Value isRow(mlir::OpBuilder &b, mlir::Location loc, mlir::Value row,
                  int64_t rows);

/// The row-major index of each element of a tensor of shape `shape`, as i64; with
/// `strides`, those of the tensor of which it is a part, the index there from the part's
/// first element on.
mlir::Value buildElementIndex(mlir::OpBuilder &b, mlir::Location loc,
                              llvm::ArrayRef<int64_t> shape,
                              llvm::ArrayRef<int64_t> strides = {});

/// The identity element of a reduction, of `type`, a number or a vector of numbers.
mlir::Value reductionIdentity(mlir::OpBuilder &builder, mlir::Location loc,
                              ReduceKind kind, mlir::Type type);

/// One step of a reduction on numbers or vectors of numbers.
mlir::Value reductionCombine(mlir::OpBuilder &builder, mlir::Location loc,
                             ReduceKind kind, mlir::Value lhs, mlir::Value rhs);

/// The dimension from which on `reduce` reduces all innermost ones as one run; the rank if
/// there is no run. `outer` becomes the other dimensions that it reduces, ascending.
int64_t splitReduction(ReduceOp reduce, llvm::SmallVectorImpl<int64_t> &outer);

} // namespace trainc::nn

#endif // TRAINC_DIALECT_NN_NNBUILDERS_H
