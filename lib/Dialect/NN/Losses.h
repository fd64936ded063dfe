//===- Losses.h - What losses have in common --------------------*- C++ -*-===//
#ifndef TRAINC_LIB_DIALECT_NN_LOSSES_H
#define TRAINC_LIB_DIALECT_NN_LOSSES_H

#include "trainc/Dialect/NN/NNOps.h"
#include "llvm/Support/MathExtras.h"

namespace trainc::nn {

/// Verifies the attributes and that `classes` and ignore_index are numbers of
/// the targets' type.
template <typename Op>
mlir::LogicalResult verifyTargets(Op op, int64_t classes,
                                  llvm::StringRef smoothingName,
                                  llvm::StringRef rangeName) {
  double smoothing = op.getLabelSmoothing().convertToDouble();
  if (!(smoothing >= 0.0 && smoothing < 1.0))
    return op.emitOpError("expects label_smoothing in [0, 1) (")
           << smoothingName << "), got " << smoothing;
  mlir::Type type = getTensorType(op.getTargets()).getElementType();
  unsigned width = type.getIntOrFloatBitWidth();
  int64_t ignored = op.getIgnoreIndex();
  if (!llvm::isIntN(width, ignored) || !llvm::isIntN(width, classes - 1))
    return op.emitOpError(
               "expects ignore_index and the last class to be numbers "
               "of the targets' element type ")
           << type << " (" << rangeName << "), got " << ignored << " and "
           << classes - 1;
  return mlir::success();
}

/// The losses of the rows, [..., 1], before their weights.
mlir::Value rowLossesOf(mlir::OpBuilder &b, CrossEntropyOp op);

/// The sum of all elements.
mlir::Value sumAll(mlir::OpBuilder &b, mlir::Location loc, mlir::Value value);

/// The rule of a loss that sums over the first dimensions, as many as those of operand `targets`
/// and of what comes after it.
ShardingRule getRowSumRule(mlir::Operation *op, unsigned targets);

} // namespace trainc::nn

#endif // TRAINC_LIB_DIALECT_NN_LOSSES_H
