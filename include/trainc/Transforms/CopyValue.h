//===- CopyValue.h - A copy of a value --------------------------*- C++ -*-===//
#ifndef TRAINC_TRANSFORMS_COPYVALUE_H
#define TRAINC_TRANSFORMS_COPYVALUE_H

#include "trainc/Dialect/NN/NNBuilders.h"
#include "trainc/Dialect/Train/TrainOps.h"

namespace trainc {

/// `value` in memory of its own.
inline mlir::Value copyValue(mlir::OpBuilder &b, mlir::Location loc,
                             mlir::Value value) {
  mlir::RankedTensorType type = nn::getTensorType(value);
  mlir::Value flat = nn::reshapeTo(b, loc, value, {type.getNumElements()});
  auto copy = train::FlattenOp::create(b, loc, flat.getType(), flat, {0});
  return nn::reshapeTo(b, loc, copy.getResult(), type.getShape());
}

} // namespace trainc

#endif // TRAINC_TRANSFORMS_COPYVALUE_H
