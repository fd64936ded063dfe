//===- UpdateRule.cpp - One element of an update --------------------------===//
//
// What an update means, element by element: the code that train-expand-updates puts
// into a map per parameter and train-fuse-optimizer into one over all.
//
//===----------------------------------------------------------------------===//
#include "UpdateRule.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/IRMapping.h"
#include "trainc/Dialect/NN/NNOps.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

LogicalResult trainc::verifyParams(Operation *op, ArrayAttr params,
                                   SymbolTable &symbols) {
  for (Attribute attribute : params) {
    auto ref = dyn_cast<FlatSymbolRefAttr>(attribute);
    auto param = ref ? symbols.lookup<ParamOp>(ref.getValue()) : ParamOp();
    if (!param || param.getFrozen())
      return op->emitOpError("expects parameters that are not frozen, got ")
             << attribute;
  }
  return success();
}

LogicalResult trainc::verifyUpdate(UpdateOp update, SymbolTable &symbols) {
  if (failed(verifyParams(update, update.getParams(), symbols)))
    return failure();
  auto optimizer = symbols.lookup<OptimizerOp>(update.getOptimizer());
  if (!optimizer || optimizer.getKind())
    return update.emitOpError("expects an optimizer with a region, got ")
           << update.getOptimizerAttr();
  return success();
}

RankedTensorType trainc::gradientType(ParamOp param) {
  RankedTensorType type = param.getTensorType();
  return RankedTensorType::get(type.getShape(),
                               nn::getComputeType(type.getElementType()));
}

Value trainc::readScalar(OpBuilder &b, Location loc, const Twine &name) {
  return ReadOp::create(b, loc, RankedTensorType::get({}, b.getF64Type()),
                        sliceRef(b.getContext(), kScalarArena, name.str()));
}

SmallVector<Value> trainc::readHyper(OpBuilder &b, Location loc,
                                     OptimizerOp optimizer, Value t) {
  SmallVector<Value> values;
  for (auto [name, value] :
       llvm::zip(optimizer.getHyperNames(), optimizer.getHyperValues())) {
    if (auto schedule = dyn_cast<SymbolRefAttr>(value))
      values.push_back(
          readScalar(b, loc, schedule.getRootReference().getValue()));
    else if (isa<StringAttr>(value))
      values.push_back(t);
    else
      values.push_back(readScalar(b, loc,
                                  optimizer.getSymName() + "." +
                                      cast<StringAttr>(name).getValue()));
  }
  return values;
}

/// `scalar`, f64, rounded to `type`.
static Value roundScalar(OpBuilder &b, Location loc, Value scalar, Type type) {
  if (scalar.getType() == type)
    return scalar;
  return arith::TruncFOp::create(b, loc, type, scalar);
}

/// Copies the ops of `region`, its arguments replaced by `tensors` and the
/// hyperparameters; returns what it yields.
static SmallVector<Value> cloneRegion(OpBuilder &b, Location loc,
                                      Region &region, ArrayRef<Value> tensors,
                                      ArrayRef<Value> hyper) {
  IRMapping mapping;
  for (auto [i, argument] : llvm::enumerate(region.getArguments()))
    mapping.map(argument, i < tensors.size()
                              ? tensors[i]
                              : roundScalar(b, loc, hyper[i - tensors.size()],
                                            argument.getType()));
  for (Operation &op : region.front().without_terminator())
    b.clone(op, mapping);
  SmallVector<Value> results;
  for (Value value : region.front().getTerminator()->getOperands())
    results.push_back(mapping.lookupOrDefault(value));
  return results;
}

SmallVector<Value> trainc::buildFirstRegion(OpBuilder &b, Location loc,
                                            OptimizerOp optimizer,
                                            const UpdateElement &e) {
  Type type = e.gradient.getType();
  Value scale = roundScalar(b, loc, e.scale, type);
  Value gradient = arith::MulFOp::create(b, loc, e.gradient, scale);
  if (e.limit) {
    Value limit = roundScalar(b, loc, e.limit, type);
    gradient = arith::MinimumFOp::create(b, loc, gradient, limit);
    gradient = arith::MaximumFOp::create(b, loc, gradient,
                                         arith::NegFOp::create(b, loc, limit));
  }
  SmallVector<Value> tensors{e.parameter, gradient};
  llvm::append_range(tensors, e.states);
  return cloneRegion(b, loc, optimizer.getBody(), tensors, e.hyper);
}

SmallVector<Value> trainc::buildSecondRegion(OpBuilder &b, Location loc,
                                             OptimizerOp optimizer,
                                             const UpdateElement &e,
                                             ArrayRef<Value> first) {
  SmallVector<Value> tensors{e.parameter, first.front(), e.parameterNorm,
                             e.directionNorm};
  llvm::append_range(tensors, first.drop_front());
  return cloneRegion(b, loc, optimizer.getScaled(), tensors, e.hyper);
}

Value trainc::buildAverage(OpBuilder &b, Location loc, const UpdateElement &e,
                           Value next) {
  // e + (1 - d) (p' - e), which keeps e = p' exactly where they are equal.
  Value one = nn::splatConstant(b, loc, b.getF64Type(), 1.0);
  Value rest = arith::SubFOp::create(b, loc, one, e.decay);
  rest = roundScalar(b, loc, rest, next.getType());
  Value difference = arith::SubFOp::create(b, loc, next, e.average);
  return math::FmaOp::create(b, loc, rest, difference, e.average);
}

Value trainc::buildGuard(OpBuilder &b, Location loc, const UpdateElement &e,
                         Value value, Value old) {
  return arith::SelectOp::create(b, loc, e.finite, value, old);
}
