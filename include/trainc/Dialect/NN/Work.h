//===- Work.h - What an operation computes and moves ------------*- C++ -*-===//
#ifndef TRAINC_DIALECT_NN_WORK_H
#define TRAINC_DIALECT_NN_WORK_H

#include "mlir/IR/Operation.h"

namespace trainc::nn {

/// What an operation computes, by the units that compute it, and what it moves.
/// Of doubles, as products of sizes leave 64 bits.
struct Work {
  /// Of units that multiply matrices: 2 per multiply-add of a contraction, as
  /// matrix multiplications, convolutions and attention have them.
  double matrix = 0;
  /// Of those, what the forward pass has computed, too.
  double repeated = 0;
  /// Of vector units: 1 per arithmetic operation on an element, of floats or
  /// integers, 2 per fused multiply-add, 1 per combination of a reduction.
  /// Casts, constants and what decides where an element stands count nothing.
  double vector = 0;
  /// Calls of elementary functions (exp, log, tanh, erf, sin, cos, pow, ...),
  /// each a polynomial or a function of a library.
  double functions = 0;
  /// Bytes of tensors.
  double read = 0, written = 0;

  Work &operator+=(const Work &other);
};
Work operator*(double times, Work work);

/// The unit whose peak bounds how fast an operation can be.
enum class Unit { Vector, Matrix, Attention, Convolution };

/// The work of the `arith` and `math` operation `op` on one element: none of
/// other dialects, and none of what computes indices or chooses by a comparison
/// of indices.
Work countScalarWork(mlir::Operation *op);

/// That of all operations of a block, such as a scalar function.
Work countScalarWork(mlir::Block &block);

} // namespace trainc::nn

#endif // TRAINC_DIALECT_NN_WORK_H
