//===- ForwardReads.h - Reads of what was written ---------------*- C++ -*-===//
#ifndef TRAINC_TRANSFORMS_FORWARDREADS_H
#define TRAINC_TRANSFORMS_FORWARDREADS_H

#include "trainc/Dialect/Train/TrainOps.h"

namespace trainc {

/// A read after a write of the same name is the value written.
inline void forwardReads(mlir::Block &block) {
  mlir::DenseMap<mlir::Attribute, mlir::Value> written;
  block.walk([&](mlir::Operation *op) {
    if (auto write = mlir::dyn_cast<train::WriteOp>(op)) {
      written[write.getTarget()] = write.getValue();
    } else if (auto read = mlir::dyn_cast<train::ReadOp>(op)) {
      if (mlir::Value value = written.lookup(read.getSource())) {
        read.replaceAllUsesWith(value);
        read.erase();
      }
    }
  });
}

} // namespace trainc

#endif // TRAINC_TRANSFORMS_FORWARDREADS_H
