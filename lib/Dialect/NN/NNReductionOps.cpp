//===- NNReductionOps.cpp - Reductions ------------------------------------===//
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/TypeUtilities.h"
#include "trainc/Dialect/NN/NNBuilders.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "llvm/ADT/SmallSet.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::nn;

Value nn::reductionIdentity(OpBuilder &b, Location loc, ReduceKind kind,
                            Type type) {
  if (kind == ReduceKind::sum || kind == ReduceKind::prod)
    return splatConstant(b, loc, type, kind == ReduceKind::prod);
  bool isMax = kind == ReduceKind::max;
  Type elementType = getElementTypeOrSelf(type);
  if (isa<FloatType>(elementType)) {
    double infinity = std::numeric_limits<double>::infinity();
    return splatConstant(b, loc, type, isMax ? -infinity : infinity);
  }
  unsigned width = elementType.getIntOrFloatBitWidth();
  TypedAttr number =
      IntegerAttr::get(elementType, isMax ? APInt::getSignedMinValue(width)
                                          : APInt::getSignedMaxValue(width));
  if (auto shaped = dyn_cast<ShapedType>(type))
    number = DenseElementsAttr::get(shaped, Attribute(number));
  return arith::ConstantOp::create(b, loc, number);
}

Value nn::reductionCombine(OpBuilder &b, Location loc, ReduceKind kind,
                           Value lhs, Value rhs) {
  bool isFloat = isa<FloatType>(getElementTypeOrSelf(lhs));
  switch (kind) {
  case ReduceKind::sum:
    if (isFloat)
      return arith::AddFOp::create(b, loc, lhs, rhs);
    return arith::AddIOp::create(b, loc, lhs, rhs);
  case ReduceKind::max:
    if (isFloat)
      return arith::MaximumFOp::create(b, loc, lhs, rhs);
    return arith::MaxSIOp::create(b, loc, lhs, rhs);
  case ReduceKind::min:
    if (isFloat)
      return arith::MinimumFOp::create(b, loc, lhs, rhs);
    return arith::MinSIOp::create(b, loc, lhs, rhs);
  case ReduceKind::prod:
    if (isFloat)
      return arith::MulFOp::create(b, loc, lhs, rhs);
    return arith::MulIOp::create(b, loc, lhs, rhs);
  }
  llvm_unreachable("unknown reduction");
}

int64_t nn::splitReduction(ReduceOp reduce, SmallVectorImpl<int64_t> &outer) {
  ArrayRef<int64_t> shape = getTensorType(reduce.getInput()).getShape();
  outer.assign(reduce.getDims().begin(), reduce.getDims().end());
  llvm::sort(outer);
  int64_t first = shape.size();
  // Dimensions of size 1 may be part of the run.
  if (outer.empty() || reduce.getOrder() == ReduceOrder::sequence ||
      llvm::any_of(shape.drop_front(outer.back() + 1),
                   [](int64_t size) { return size != 1; }))
    return first;
  while (first > 0 &&
         (llvm::is_contained(outer, first - 1) || shape[first - 1] == 1)) {
    --first;
    if (!outer.empty() && outer.back() == first)
      outer.pop_back();
  }
  return first;
}

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
  Type compute = getComputeType(input.getElementType());
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
    Value mask = CastOp::create(b, loc, equal, compute);
    Value count =
        ReduceOp::create(b, loc, ReduceKind::sum, mask, getDims(), true);
    Value share = DivOp::create(b, loc, castTo(b, loc, g, compute), count);
    Value product = MulOp::create(b, loc, mask, share);
    operandGrads[0] = castTo(b, loc, product, input.getElementType());
    return success();
  }
  case ReduceKind::prod: {
    // Where one element of a product is 0, only it has a gradient: the product
    // of the others; where more are, none has.
    Value zero = scalarConstant(b, loc, compute, 0.0);
    Value one = scalarConstant(b, loc, compute, 1.0);
    Value x = castTo(b, loc, getInput(), compute);
    Value isZero = CompareOp::create(b, loc, CompareKind::eq, x, zero);
    Value others = SelectOp::create(b, loc, isZero, one, x);
    Value product =
        ReduceOp::create(b, loc, ReduceKind::prod, others, getDims(), true);
    Value count =
        ReduceOp::create(b, loc, ReduceKind::sum,
                         castTo(b, loc, isZero, compute), getDims(), true);
    Value none = CompareOp::create(b, loc, CompareKind::eq, count, zero);
    Value single = CompareOp::create(b, loc, CompareKind::eq, count, one);
    Value atZero = SelectOp::create(b, loc, single, product, zero);
    Value quotient = DivOp::create(b, loc, product, others);
    Value elsewhere = SelectOp::create(b, loc, none, quotient, zero);
    Value slope = SelectOp::create(b, loc, isZero, atZero, elsewhere);
    Value dx = MulOp::create(b, loc, castTo(b, loc, g, compute), slope);
    operandGrads[0] = castTo(b, loc, dx, input.getElementType());
    return success();
  }
  }
  llvm_unreachable("unknown reduction");
}

LogicalResult ArgmaxOp::inferReturnTypes(MLIRContext *context,
                                         std::optional<Location> loc,
                                         Adaptor adaptor,
                                         SmallVectorImpl<Type> &types) {
  RankedTensorType input = getTensorType(adaptor.getInput());
  uint64_t dim = adaptor.getDim();
  if (dim >= static_cast<uint64_t>(input.getRank()))
    return emitOptionalError(loc,
                             "'nn.argmax' op expects a dim within the rank "
                             "(C1), got ",
                             static_cast<int64_t>(dim), " for ", input);
  int64_t size = input.getDimSize(dim);
  if (size < 1 || size > std::numeric_limits<int32_t>::max())
    return emitOptionalError(loc,
                             "'nn.argmax' op expects a size from 1 to 2^31 - 1 "
                             "along the dim (C2), got ",
                             size);
  SmallVector<int64_t> shape(input.getShape());
  if (adaptor.getKeep())
    shape[dim] = 1;
  else
    shape.erase(shape.begin() + dim);
  types.push_back(RankedTensorType::get(shape, IntegerType::get(context, 32)));
  return success();
}

FailureOr<SmallVector<Value>> ArgmaxOp::decompose(OpBuilder &b) {
  Location loc = getLoc();
  Value x = getInput();
  int64_t dim = getDim();
  Type i32 = b.getI32Type();
  Value maximum = ReduceOp::create(b, loc, ReduceKind::max, x, dim, true);
  Value isMaximum = CompareOp::create(b, loc, CompareKind::eq, x, maximum);
  if (isa<FloatType>(getTensorType(x).getElementType())) {
    // The maximum is NaN where an element is, and equal to none.
    Value isNan = CompareOp::create(b, loc, CompareKind::ne, x, x);
    isMaximum = OrOp::create(b, loc, isMaximum, isNan);
  }
  SmallVector<int64_t> shape(getTensorType(x).getRank(), 1);
  shape[dim] = getTensorType(x).getDimSize(dim);
  Value index =
      IotaOp::create(b, loc, RankedTensorType::get(shape, i32), uint64_t(dim));
  Value none = scalarConstant(b, loc, i32, std::numeric_limits<int32_t>::max());
  Value candidate = SelectOp::create(b, loc, isMaximum, index, none);
  Value first =
      ReduceOp::create(b, loc, ReduceKind::min, candidate, dim, getKeep());
  return SmallVector<Value>{first};
}

ShardingRule ReduceOp::getShardingRule() {
  ShardingRule rule(*this);
  bool isSum = getKind() == ReduceKind::sum;
  int64_t to = 0;
  for (int64_t dim = 0; dim < getTensorType(getInput()).getRank(); ++dim) {
    if (!llvm::is_contained(getDims(), dim)) {
      rule.share(FactorKind::Parallel, {rule.out(0, to++), rule.in(0, dim)});
      continue;
    }
    rule.share(isSum ? FactorKind::Sum : FactorKind::Join, rule.in(0, dim));
    to += getKeep();
  }
  if (isSum)
    rule.linear = {{0}};
  return rule;
}

ShardingRule ArgmaxOp::getShardingRule() {
  ShardingRule rule(*this);
  int64_t to = 0;
  for (int64_t dim = 0; dim < getTensorType(getInput()).getRank(); ++dim)
    if (dim != static_cast<int64_t>(getDim()))
      rule.share(FactorKind::Parallel, {rule.out(0, to++), rule.in(0, dim)});
    else
      to += getKeep();
  return rule;
}
