//===- NNPoolOps.cpp - Pooling of planes ----------------------------------===//
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "trainc/Dialect/NN/NNBuilders.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Dialect/NN/Window.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::nn;

//===----------------------------------------------------------------------===//
// Types
//===----------------------------------------------------------------------===//

/// The window of a pooling op; (C2) and (C4) are checked.
template <typename OpOrAdaptor>
static FailureOr<Window> poolWindow(std::optional<Location> loc, StringRef name,
                                    OpOrAdaptor op) {
  FailureOr<Window> window =
      makeWindow(loc, name, op.getWindow(), op.getStrides(), op.getWindow(),
                 op.getPadding(), std::nullopt);
  if (failed(window))
    return failure();
  for (int64_t d = 0; d < 2; ++d)
    if (std::max(window->low[d], window->high[d]) >= window->size[d])
      return emitOptionalError(
          loc, "'", name,
          "' op expects padding less than the window (C4), got [",
          *op.getPadding(), "] for [", op.getWindow(), "]");
  return window;
}

/// The type of what is pooled from `input`.
template <typename OpOrAdaptor>
static FailureOr<RankedTensorType> poolType(std::optional<Location> loc,
                                            StringRef name, OpOrAdaptor op,
                                            RankedTensorType input) {
  FailureOr<Window> window = poolWindow(loc, name, op);
  if (failed(window))
    return failure();
  FailureOr<Window::Pair> sizes = outputSizes(loc, name, *window, input);
  if (failed(sizes))
    return failure();
  return input.clone(
      {input.getDimSize(0), input.getDimSize(1), (*sizes)[0], (*sizes)[1]});
}

static LogicalResult checkPlane(std::optional<Location> loc, StringRef name,
                                RankedTensorType input) {
  if (__int128(input.getDimSize(2)) * input.getDimSize(3) > INT32_MAX)
    return emitOptionalError(loc, "'", name,
                             "' op expects planes of less than 2^31 (C5), got ",
                             input);
  return success();
}

LogicalResult MaxPool2dOp::inferReturnTypes(MLIRContext *context,
                                            std::optional<Location> loc,
                                            Adaptor adaptor,
                                            SmallVectorImpl<Type> &types) {
  RankedTensorType input = getTensorType(adaptor.getInput());
  FailureOr<RankedTensorType> type =
      poolType(loc, getOperationName(), adaptor, input);
  if (failed(type) || failed(checkPlane(loc, getOperationName(), input)))
    return failure();
  types.append({*type, type->clone(IntegerType::get(context, 32))});
  return success();
}

LogicalResult MaxPool2dGradOp::verify() {
  RankedTensorType input = getTensorType(getResult());
  FailureOr<RankedTensorType> type =
      poolType(getLoc(), getOperationName(), *this, input);
  if (failed(type) || failed(checkPlane(getLoc(), getOperationName(), input)))
    return failure();
  Type indices = type->clone(IntegerType::get(getContext(), 32));
  if (getGrad().getType() != *type || getArgmax().getType() != indices)
    return emitOpError("expects grad and argmax of types ")
           << *type << " and " << indices << " (C1), got "
           << getGrad().getType() << " and " << getArgmax().getType();
  return success();
}

LogicalResult AvgPool2dOp::inferReturnTypes(MLIRContext *,
                                            std::optional<Location> loc,
                                            Adaptor adaptor,
                                            SmallVectorImpl<Type> &types) {
  FailureOr<RankedTensorType> type = poolType(
      loc, getOperationName(), adaptor, getTensorType(adaptor.getInput()));
  if (failed(type))
    return failure();
  types.push_back(*type);
  return success();
}

LogicalResult AvgPool2dGradOp::verify() {
  FailureOr<RankedTensorType> type =
      poolType(getLoc(), getOperationName(), *this, getTensorType(getResult()));
  if (failed(type))
    return failure();
  if (getGrad().getType() != *type)
    return emitOpError("expects a grad of type ")
           << *type << " (C1), got " << getGrad().getType();
  return success();
}

//===----------------------------------------------------------------------===//
// Maximum
//===----------------------------------------------------------------------===//

/// The flat index h W + w as i32.
static Value flatIndex(ImplicitLocOpBuilder &b, Value h, Value w,
                       int64_t width) {
  Value size = arith::ConstantIndexOp::create(b, width);
  Value index = arith::AddIOp::create(b, arith::MulIOp::create(b, h, size), w);
  return arith::IndexCastOp::create(b, b.getI32Type(), index);
}

FailureOr<SmallVector<Value>> MaxPool2dOp::decompose(OpBuilder &b) {
  FailureOr<Window> window = poolWindow(getLoc(), getOperationName(), *this);
  if (failed(window))
    return failure();
  RankedTensorType input = getTensorType(getInput());
  int64_t height = input.getDimSize(2), width = input.getDimSize(3);
  Type compute = getComputeType(input.getElementType());
  return buildElements(
      b, getLoc(), getResultTypes(),
      [&](ImplicitLocOpBuilder &b, ValueRange at) {
        Location loc = b.getLoc();
        Value none = splatConstant(b, loc, b.getI32Type(), -1);
        Value zero = splatConstant(b, loc, compute, 0.0);
        return loopOverWindow(
            b, *window, {zero, none},
            [&](ImplicitLocOpBuilder &b, Value i, Value j,
                ValueRange best) -> SmallVector<Value> {
              Place h = inputPlace(b, *window, 0, at[2], i, height);
              Place w = inputPlace(b, *window, 1, at[3], j, width);
              Value element =
                  loadElement(b, getInput(), {at[0], at[1], h.index, w.index});
              // The first element is taken, then greater ones and a first NaN.
              using P = arith::CmpFPredicate;
              Value isFirst = arith::CmpIOp::create(b, arith::CmpIPredicate::eq,
                                                    best[1], none);
              Value isNumber =
                  arith::CmpFOp::create(b, P::ORD, best[0], best[0]);
              Value isGreater = arith::AndIOp::create(
                  b, isNumber,
                  arith::CmpFOp::create(b, P::UGT, element, best[0]));
              Value wins = arith::OrIOp::create(b, isFirst, isGreater);
              if (Value valid = bothValid(b, h, w))
                wins = arith::AndIOp::create(b, wins, valid);
              Value index = flatIndex(b, h.index, w.index, width);
              return {arith::SelectOp::create(b, wins, element, best[0]),
                      arith::SelectOp::create(b, wins, index, best[1])};
            });
      });
}

LogicalResult
MaxPool2dOp::buildGradients(OpBuilder &b, ValueRange resultGrads,
                            SmallVectorImpl<Value> &operandGrads) {
  if (resultGrads[0])
    operandGrads[0] = MaxPool2dGradOp::create(
        b, getLoc(), getInput().getType(), resultGrads[0], getArgmax(),
        getWindowAttr(), getStridesAttr(), getPaddingAttr());
  return success();
}

/// Builds the gradient of a pooling: each element of the input sums what
/// `share` gives for every output in whose window it is.
static SmallVector<Value>
sumOverOutputs(OpBuilder &b, Location loc, RankedTensorType input,
               RankedTensorType grad, const Window &window,
               function_ref<Value(ImplicitLocOpBuilder &, ValueRange at,
                                  ValueRange output)>
                   share) {
  Type compute = getComputeType(input.getElementType());
  return buildElements(
      b, loc, input, [&](ImplicitLocOpBuilder &b, ValueRange at) {
        Value zero = splatConstant(b, b.getLoc(), compute, 0.0);
        return loopOverWindow(
            b, window, zero,
            [&](ImplicitLocOpBuilder &b, Value i, Value j,
                ValueRange sums) -> SmallVector<Value> {
              Place p = outputPlace(b, window, 0, at[2], i, grad.getDimSize(2));
              Place q = outputPlace(b, window, 1, at[3], j, grad.getDimSize(3));
              Value value = share(b, at, {at[0], at[1], p.index, q.index});
              value =
                  arith::SelectOp::create(b, bothValid(b, p, q), value, zero);
              return {arith::AddFOp::create(b, sums[0], value)};
            });
      });
}

FailureOr<SmallVector<Value>> MaxPool2dGradOp::decompose(OpBuilder &b) {
  FailureOr<Window> window = poolWindow(getLoc(), getOperationName(), *this);
  if (failed(window))
    return failure();
  RankedTensorType input = getTensorType(getResult());
  return sumOverOutputs(
      b, getLoc(), input, getTensorType(getGrad()), *window,
      [&](ImplicitLocOpBuilder &b, ValueRange at, ValueRange output) -> Value {
        Value self = flatIndex(b, at[2], at[3], input.getDimSize(3));
        Value chosen = loadElement(b, getArgmax(), output);
        Value isSelf =
            arith::CmpIOp::create(b, arith::CmpIPredicate::eq, chosen, self);
        return loadOrZero(b, getGrad(), output, isSelf);
      });
}

//===----------------------------------------------------------------------===//
// Mean
//===----------------------------------------------------------------------===//

/// How many elements of an output's window are not padding, along dimension d.
static Value countInside(ImplicitLocOpBuilder &b, const Window &window,
                         int64_t d, Value output, int64_t size) {
  auto constant = [&](int64_t value) -> Value {
    return arith::ConstantIndexOp::create(b, value);
  };
  Value begin = arith::SubIOp::create(
      b, arith::MulIOp::create(b, output, constant(window.stride[d])),
      constant(window.low[d]));
  Value end = arith::AddIOp::create(b, begin, constant(window.size[d]));
  begin = arith::MaxSIOp::create(b, begin, constant(0));
  end = arith::MinSIOp::create(b, end, constant(size));
  return arith::SubIOp::create(b, end, begin);
}

/// The divisor of a mean.
static Value divisor(ImplicitLocOpBuilder &b, const Window &window,
                     bool includePadding, ValueRange output,
                     RankedTensorType input) {
  Type compute = getComputeType(input.getElementType());
  if (includePadding || (!window.isPadded(0) && !window.isPadded(1)))
    return splatConstant(b, b.getLoc(), compute,
                         double(window.size[0]) * double(window.size[1]));
  Value count = arith::MulIOp::create(
      b, countInside(b, window, 0, output[2], input.getDimSize(2)),
      countInside(b, window, 1, output[3], input.getDimSize(3)));
  count = arith::IndexCastOp::create(b, b.getI64Type(), count);
  return arith::SIToFPOp::create(b, compute, count);
}

FailureOr<SmallVector<Value>> AvgPool2dOp::decompose(OpBuilder &b) {
  FailureOr<Window> window = poolWindow(getLoc(), getOperationName(), *this);
  if (failed(window))
    return failure();
  RankedTensorType input = getTensorType(getInput());
  Type compute = getComputeType(input.getElementType());
  return buildElements(
      b, getLoc(), getResult().getType(),
      [&](ImplicitLocOpBuilder &b, ValueRange at) -> SmallVector<Value> {
        Value zero = splatConstant(b, b.getLoc(), compute, 0.0);
        SmallVector<Value> sum = loopOverWindow(
            b, *window, zero,
            [&](ImplicitLocOpBuilder &b, Value i, Value j,
                ValueRange sums) -> SmallVector<Value> {
              Place h =
                  inputPlace(b, *window, 0, at[2], i, input.getDimSize(2));
              Place w =
                  inputPlace(b, *window, 1, at[3], j, input.getDimSize(3));
              Value element =
                  loadOrZero(b, getInput(), {at[0], at[1], h.index, w.index},
                             bothValid(b, h, w));
              return {arith::AddFOp::create(b, sums[0], element)};
            });
        return {arith::DivFOp::create(
            b, sum[0], divisor(b, *window, getCountIncludePad(), at, input))};
      });
}

LogicalResult
AvgPool2dOp::buildGradients(OpBuilder &b, ValueRange resultGrads,
                            SmallVectorImpl<Value> &operandGrads) {
  operandGrads[0] = AvgPool2dGradOp::create(
      b, getLoc(), getInput().getType(), resultGrads[0], getWindowAttr(),
      getStridesAttr(), getPaddingAttr(), getCountIncludePadAttr());
  return success();
}

FailureOr<SmallVector<Value>> AvgPool2dGradOp::decompose(OpBuilder &b) {
  FailureOr<Window> window = poolWindow(getLoc(), getOperationName(), *this);
  if (failed(window))
    return failure();
  RankedTensorType input = getTensorType(getResult());
  return sumOverOutputs(
      b, getLoc(), input, getTensorType(getGrad()), *window,
      [&](ImplicitLocOpBuilder &b, ValueRange, ValueRange output) -> Value {
        return arith::DivFOp::create(
            b, loadElement(b, getGrad(), output),
            divisor(b, *window, getCountIncludePad(), output, input));
      });
}

//===----------------------------------------------------------------------===//
// How they are done in parts
//===----------------------------------------------------------------------===//

/// Planes of all operands and results are apart.
static ShardingRule getPlaneRule(Operation *op) {
  ShardingRule rule(op);
  SmallVector<ShardingRule::Place> places;
  for (unsigned i = 0; i < op->getNumResults(); ++i)
    places.push_back(rule.out(i, 0));
  for (unsigned i = 0; i < op->getNumOperands(); ++i)
    places.push_back(rule.in(i, 0));
  rule.shareDims(FactorKind::Parallel, 0, 2, places);
  return rule;
}

ShardingRule MaxPool2dOp::getShardingRule() { return getPlaneRule(*this); }

ShardingRule MaxPool2dGradOp::getShardingRule() {
  ShardingRule rule = getPlaneRule(*this);
  rule.linear = {{0}};
  return rule;
}

ShardingRule AvgPool2dOp::getShardingRule() {
  ShardingRule rule = getPlaneRule(*this);
  rule.linear = {{0}};
  return rule;
}

ShardingRule AvgPool2dGradOp::getShardingRule() {
  ShardingRule rule = getPlaneRule(*this);
  rule.linear = {{0}};
  return rule;
}
