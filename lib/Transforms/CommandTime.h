//===- CommandTime.h - About how long a command takes -----------*- C++ -*-===//
#ifndef TRAINC_LIB_TRANSFORMS_COMMANDTIME_H
#define TRAINC_LIB_TRANSFORMS_COMMANDTIME_H

#include "trainc/Dialect/Train/TrainOps.h"

namespace trainc {

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

#endif // TRAINC_LIB_TRANSFORMS_COMMANDTIME_H
