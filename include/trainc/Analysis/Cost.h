//===- Cost.h - Arithmetic and time of ops and commands ---------*- C++ -*-===//
#ifndef TRAINC_ANALYSIS_COST_H
#define TRAINC_ANALYSIS_COST_H

#include "trainc/Dialect/Train/TrainOps.h"

namespace trainc {

/// Arithmetic of attention, or of its gradient, with 2 per multiply-add: two products of
/// each query with the keys, five in the gradient, and half of them if causal. 0 of
/// other ops.
double countAttentionFlops(mlir::Operation *op);

/// Arithmetic of a convolution, or of one of its gradients, with 2 per multiply-add: the
/// same for all three, and on all targets. 0 of other ops.
double countConvolutionFlops(mlir::Operation *op);

/// What commands are timed by: estimates, to compare them with each other.
struct Speed {
  double bytesPerSecond;
  double flopsPerSecond; // of f32 products; narrower ones are twice as fast

  double time(double bytes, double flops, bool narrow) const {
    return std::max(bytes / bytesPerSecond,
                    flops / (narrow ? 2 * flopsPerSecond : flopsPerSecond));
  }
};

int64_t bytesOf(mlir::Value value);
int64_t bytesOf(mlir::ValueRange values);

/// Whether products of `value` are those of bf16 or f16.
bool isNarrow(mlir::Value value);

/// The time of a kernel of `ops`, which moves `bytes`.
double secondsOf(const Speed &speed, llvm::ArrayRef<mlir::Operation *> ops,
                 int64_t bytes, bool narrow);

/// The time of a command.
double secondsOf(const Speed &speed, mlir::Operation *op,
                 mlir::SymbolTable &symbols);

} // namespace trainc

#endif // TRAINC_ANALYSIS_COST_H
