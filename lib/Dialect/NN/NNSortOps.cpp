//===- NNSortOps.cpp - Sorting --------------------------------------------===//
#include "trainc/Dialect/NN/NNBuilders.h"
#include "trainc/Dialect/NN/NNOps.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::nn;

LogicalResult SortOp::inferReturnTypes(MLIRContext *context,
                                       std::optional<Location> loc,
                                       Adaptor adaptor,
                                       SmallVectorImpl<Type> &types) {
  RankedTensorType input = getTensorType(adaptor.getInput());
  uint64_t dim = adaptor.getDim();
  if (dim >= static_cast<uint64_t>(input.getRank()))
    return emitOptionalError(loc,
                             "'nn.sort' op expects a dim within the rank (C1), "
                             "got ",
                             static_cast<int64_t>(dim), " for ", input);
  int64_t size = input.getDimSize(dim);
  if (size < 1 || size > std::numeric_limits<int32_t>::max())
    return emitOptionalError(loc,
                             "'nn.sort' op expects a size from 1 to 2^31 - 1 "
                             "along the dim (C2), got ",
                             size);
  Type places = input.clone(IntegerType::get(context, 32));
  types.append({input, places, places});
  return success();
}

namespace {
/// Builds the definition on pairs of elements: what may come first has a dimension of
/// its own, behind that of the others.
struct SortBuilder {
  OpBuilder &b;
  Location loc;
  int64_t dim;
  bool descending;

  /// `value` with its dimension at `dim`, and 1 before it if `second`, else behind.
  Value apart(Value value, bool second) {
    SmallVector<int64_t> shape(getTensorType(value).getShape());
    shape.insert(shape.begin() + dim + !second, 1);
    return reshapeTo(b, loc, value, shape);
  }
  Value compare(CompareKind kind, Value x, Value y) {
    return CompareOp::create(b, loc, kind, x, y);
  }
  Value both(Value x, Value y) { return AndOp::create(b, loc, x, y); }
  Value either(Value x, Value y) { return OrOp::create(b, loc, x, y); }
  /// The index along dimension `at`, i32, of as many dimensions as `like`.
  Value index(Value like, int64_t at) {
    SmallVector<int64_t> shape(getTensorType(like).getRank(), 1);
    shape[at] = getTensorType(like).getDimSize(at);
    return IotaOp::create(b, loc, RankedTensorType::get(shape, b.getI32Type()),
                          static_cast<uint64_t>(at));
  }

  /// Whether each element (dimension dim + 1) comes before each (dimension dim).
  Value comesBefore(Value input) {
    Value x = apart(input, false), y = apart(input, true);
    Value low = descending ? x : y, high = descending ? y : x;
    Value before = compare(CompareKind::lt, low, high);
    Value equal = compare(CompareKind::eq, x, y);
    if (isa<FloatType>(getTensorType(input).getElementType())) {
      Value isLow = compare(CompareKind::eq, low, low);
      Value isHighNan = compare(CompareKind::ne, high, high);
      before = either(before, both(isLow, isHighNan));
      Value isLowNan = compare(CompareKind::ne, low, low);
      equal = either(equal, both(isLowNan, isHighNan));
    }
    Value isEarlier =
        compare(CompareKind::lt, index(y, dim + 1), index(x, dim));
    return either(before, both(equal, isEarlier));
  }
};
} // namespace

FailureOr<SmallVector<Value>> SortOp::decompose(OpBuilder &b) {
  Location loc = getLoc();
  int64_t dim = getDim();
  Type i32 = b.getI32Type();
  SortBuilder builder{b, loc, dim, getDescending()};
  Value before = castTo(b, loc, builder.comesBefore(getInput()), i32);
  Value positions = ReduceOp::create(b, loc, ReduceKind::sum, before, dim + 1,
                                     /*keep=*/false);
  // Of each place the only element that is there.
  Value there = builder.apart(positions, /*second=*/true);
  Value place = builder.index(builder.apart(positions, false), dim);
  Value isThere = builder.compare(CompareKind::eq, there, place);
  Value zero = scalarConstant(b, loc, i32, 0.0);
  Value number =
      SelectOp::create(b, loc, isThere, builder.index(there, dim + 1), zero);
  Value indices = ReduceOp::create(b, loc, ReduceKind::sum, number, dim + 1,
                                   /*keep=*/false);
  Value values = GatherOp::create(b, loc, getInput(), indices, getDimAttr());
  return SmallVector<Value>{values, indices, positions};
}

LogicalResult SortOp::buildGradients(OpBuilder &b, ValueRange resultGrads,
                                     SmallVectorImpl<Value> &operandGrads) {
  if (resultGrads[0])
    operandGrads[0] = GatherOp::create(b, getLoc(), resultGrads[0],
                                       getPositions(), getDimAttr());
  return success();
}

ShardingRule SortOp::getShardingRule() {
  ShardingRule rule(*this);
  for (int64_t dim = 0; dim < getTensorType(getInput()).getRank(); ++dim)
    if (dim != static_cast<int64_t>(getDim()))
      rule.share(FactorKind::Parallel, {rule.out(0, dim), rule.out(1, dim),
                                        rule.out(2, dim), rule.in(0, dim)});
  return rule;
}
