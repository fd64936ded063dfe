//===- NNNormOps.cpp - Normalizations and softmax -------------------------===//
#include "trainc/Dialect/NN/NNOps.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::nn;

LogicalResult LogSoftmaxOp::verify() {
  if (getDim() >= static_cast<uint64_t>(getType().getRank()))
    return emitOpError("expects a dim within the rank (C1), got ")
           << getDim() << " for " << getType();
  return success();
}

FailureOr<SmallVector<Value>> LogSoftmaxOp::decompose(OpBuilder &b) {
  Location loc = getLoc();
  Type elementType = getType().getElementType();
  int64_t dim = getDim();
  Value x = castTo(b, loc, getInput(), getComputeType(elementType));
  Value m = ReduceOp::create(b, loc, ReduceKind::max, x, dim, true);
  Value z = SubOp::create(b, loc, x, m);
  Value e = ExpOp::create(b, loc, z);
  Value s = ReduceOp::create(b, loc, ReduceKind::sum, e, dim, true);
  Value y = SubOp::create(b, loc, z, LogOp::create(b, loc, s));
  return SmallVector<Value>{castTo(b, loc, y, elementType)};
}

LogicalResult LogSoftmaxOp::buildGradients(OpBuilder &b, ValueRange resultGrads,
                                           SmallVectorImpl<Value> &operandGrads) {
  // dx = g - exp(y) sum g.
  Location loc = getLoc();
  Type elementType = getType().getElementType();
  Type compute = getComputeType(elementType);
  Value g = castTo(b, loc, resultGrads[0], compute);
  Value y = castTo(b, loc, getResult(), compute);
  Value s = ReduceOp::create(b, loc, ReduceKind::sum, g, int64_t(getDim()), true);
  Value p = MulOp::create(b, loc, ExpOp::create(b, loc, y), s);
  operandGrads[0] = castTo(b, loc, SubOp::create(b, loc, g, p), elementType);
  return success();
}
