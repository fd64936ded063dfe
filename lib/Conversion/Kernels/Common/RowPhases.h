//===- RowPhases.h - In what order a row is computed ------------*- C++ -*-===//
#ifndef TRAINC_LIB_CONVERSION_KERNELS_COMMON_ROWPHASES_H
#define TRAINC_LIB_CONVERSION_KERNELS_COMMON_ROWPHASES_H

#include "KernelEmitter.h"
#include "llvm/ADT/SetVector.h"

namespace trainc {

/// A row is computed in phases, each a loop over the inner dimension that ends with
/// the reductions over it which the next phases need. A value's level is the number
/// of reductions that it depends on in sequence: it is known in the phase of that
/// number, a reduction at the end of the phase before.
class RowPhases {
public:
  explicit RowPhases(train::KernelOp kernel) : kernel(kernel) {
    for (mlir::Operation &op : kernel.getBody().front().without_terminator()) {
      int64_t level = 0;
      for (mlir::Value operand : op.getOperands())
        level = std::max(level, levelOf(operand));
      if (mlir::isa<nn::ReduceOp>(op))
        ++level;
      for (mlir::Value result : op.getResults())
        levels[result] = level;
      last = std::max(last, level);
    }
  }

  int64_t levelOf(mlir::Value value) const { return levels.lookup(value); }
  /// The last phase.
  int64_t count() const { return last; }
  /// The reductions at the end of a phase.
  llvm::SmallVector<nn::ReduceOp> reductionsOf(int64_t phase) {
    llvm::SmallVector<nn::ReduceOp> result;
    for (auto op : kernel.getBody().getOps<nn::ReduceOp>())
      if (levelOf(op.getResult()) == phase + 1)
        result.push_back(op);
    return result;
  }
  /// The results of the kernel that are known in a phase, each once.
  llvm::SmallVector<mlir::Value> outputsOf(int64_t phase) {
    llvm::SetVector<mlir::Value> result;
    for (mlir::Value value :
         kernel.getBody().front().getTerminator()->getOperands())
      if (levelOf(value) == phase)
        result.insert(value);
    return result.takeVector();
  }

  /// The ops that computing `value` needs, in order, but for what `isKnown`.
  static void collect(mlir::Value value,
                      llvm::function_ref<bool(mlir::Value)> isKnown,
                      llvm::SetVector<mlir::Operation *> &ops) {
    mlir::Operation *op = value.getDefiningOp();
    if (!op || isKnown(value) || ops.contains(op))
      return;
    for (mlir::Value operand : op->getOperands())
      collect(operand, isKnown, ops);
    ops.insert(op);
  }

private:
  train::KernelOp kernel;
  llvm::DenseMap<mlir::Value, int64_t> levels;
  int64_t last = 0;
};

} // namespace trainc

#endif // TRAINC_LIB_CONVERSION_KERNELS_COMMON_ROWPHASES_H
