//===- NNReductionOps.cpp - Reductions ------------------------------------===//
#include "trainc/Dialect/NN/NNOps.h"
#include "llvm/ADT/SmallSet.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::nn;

LogicalResult ReduceOp::inferReturnTypes(MLIRContext *,
                                         std::optional<Location> loc,
                                         Adaptor adaptor,
                                         SmallVectorImpl<Type> &types) {
  RankedTensorType input = getTensorType(adaptor.getInput());
  llvm::SmallSet<int64_t, 4> dims;
  for (int64_t dim : adaptor.getDims())
    if (dim < 0 || dim >= input.getRank() || !dims.insert(dim).second)
      return emitOptionalError(loc,
                               "'nn.reduce' op expects distinct dims within "
                               "the rank (C1), got [",
                               adaptor.getDims(), "] for ", input);
  SmallVector<int64_t> shape;
  for (auto [i, size] : llvm::enumerate(input.getShape())) {
    if (!dims.contains(i))
      shape.push_back(size);
    else if (adaptor.getKeep())
      shape.push_back(1);
  }
  types.push_back(RankedTensorType::get(shape, input.getElementType()));
  return success();
}

LogicalResult ReduceOp::buildGradients(OpBuilder &b, ValueRange resultGrads,
                                       SmallVectorImpl<Value> &operandGrads) {
  Location loc = getLoc();
  RankedTensorType input = getTensorType(getInput());
  if (!isa<FloatType>(input.getElementType()))
    return success();
  SmallVector<int64_t> kept(input.getShape());
  for (int64_t dim : getDims())
    kept[dim] = 1;
  Value g = reshapeTo(b, loc, resultGrads[0], kept);
  switch (getKind()) {
  case ReduceKind::sum:
    operandGrads[0] = BroadcastOp::create(b, loc, input, g);
    return success();
  case ReduceKind::max:
  case ReduceKind::min: {
    Value result = reshapeTo(b, loc, getResult(), kept);
    Value equal =
        CompareOp::create(b, loc, CompareKind::eq, getInput(), result);
    Value mask = CastOp::create(b, loc, equal, input.getElementType());
    Value count =
        ReduceOp::create(b, loc, ReduceKind::sum, mask, getDims(), true);
    Value share = DivOp::create(b, loc, g, count);
    operandGrads[0] = MulOp::create(b, loc, mask, share);
    return success();
  }
  case ReduceKind::prod:
    return emitOpError("has no gradient for kind 'prod'");
  }
  llvm_unreachable("unknown reduction");
}
