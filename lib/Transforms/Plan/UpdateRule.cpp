//===- UpdateRule.cpp - One element of an update --------------------------===//
//
// What an update means, element by element: the code that train-expand-updates puts
// into a map per parameter and train-fuse-optimizer into one over all.
//
//===----------------------------------------------------------------------===//
#include "trainc/Transforms/Plan/UpdateRule.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/IRMapping.h"
#include "trainc/Dialect/NN/NNBuilders.h"
#include "trainc/Dialect/NN/NNRandom.h"
#include "trainc/Dialect/Train/TrainArenas.h"
#include "llvm/Support/MathExtras.h"
#include <cmath>

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

Type trainc::stochasticType(UpdateOp update, ParamOp param) {
  Type type = param.getTensorType().getElementType();
  return update.getStochastic() && (type.isBF16() || type.isF16()) ? type
                                                                   : Type();
}

int64_t trainc::randomSite(ParamOp param) {
  auto params = param->getParentOfType<ModuleOp>().getOps<ParamOp>();
  return (int64_t{1} << 31) +
         std::distance(params.begin(), llvm::find(params, param));
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

Value trainc::buildSquareSum(OpBuilder &b, Location loc, Value value) {
  RankedTensorType type = nn::getTensorType(value);
  int64_t blocks = llvm::divideCeil(type.getNumElements(), kNormBlock);
  auto blockType = RankedTensorType::get({blocks}, b.getF64Type());
  Value sums = SquareSumOp::create(b, loc, blockType, value, kNormBlock);
  if (blocks == 1)
    return nn::reshapeTo(b, loc, sums, {});
  return nn::ReduceOp::create(b, loc, nn::ReduceKind::sum, sums,
                              ArrayRef<int64_t>{0}, /*keep=*/false);
}

Value trainc::orthogonalize(OpBuilder &b, Location loc, Value u,
                            DictionaryAttr rule) {
  RankedTensorType wide = nn::getTensorType(u);
  int64_t rows = wide.getDimSize(0), columns = wide.getDimSize(1);
  auto number = [&](StringRef name) {
    return rule.getAs<FloatAttr>(name).getValueAsDouble();
  };
  Type type = rule.getAs<BoolAttr>("bf16").getValue() ? b.getBF16Type()
                                                      : wide.getElementType();
  // `value` in the type in which elements of `stored` are computed.
  auto asResult = [&](OpBuilder &inner, Value value, Type stored) -> Value {
    Type result = nn::getComputeType(stored);
    if (value.getType() == result)
      return value;
    if (result.isF64())
      return arith::ExtFOp::create(inner, loc, result, value);
    return arith::TruncFOp::create(inner, loc, result, value);
  };
  // The sum of tensors times their factors, element by element.
  auto combine = [&](Type result, ArrayRef<std::pair<double, Value>> terms) {
    MapBuilder m(b, loc);
    OpBuilder inner = OpBuilder::atBlockEnd(m.block);
    Value sum;
    for (auto [factor, input] : terms) {
      Value element = m.add(input);
      Value weight = nn::splatConstant(inner, loc, element.getType(), factor);
      sum =
          sum ? math::FmaOp::create(inner, loc, weight, element, sum)
                    .getResult()
              : arith::MulFOp::create(inner, loc, weight, element).getResult();
    }
    return m.finish(nn::getTensorType(terms.front().second).clone(result),
                    {asResult(inner, sum, result)})[0];
  };
  auto multiply = [&](Value lhs, Value rhs, bool left, bool right) -> Value {
    return nn::MatmulOp::create(b, loc, lhs, rhs, Value(), left, right);
  };
  Value norm = nn::SqrtOp::create(b, loc, buildSquareSum(b, loc, u));
  norm = nn::MaxOp::create(
      b, loc, norm, nn::scalarConstant(b, loc, b.getF64Type(), number("eps")));
  MapBuilder divided(b, loc);
  Value element = divided.add(u);
  Value divisor = divided.add(nn::castTo(b, loc, norm, wide.getElementType()));
  OpBuilder inner = OpBuilder::atBlockEnd(divided.block);
  Value x = divided.finish(
      wide.clone(type),
      {asResult(inner, arith::DivFOp::create(inner, loc, element, divisor),
                type)})[0];
  bool tall = rows > columns;
  for (int64_t step = 0, steps = number("steps"); step < steps; ++step) {
    Value gram = multiply(x, x, /*left=*/tall, /*right=*/!tall);
    Value square = multiply(gram, gram, false, false);
    gram = combine(type, {{number("b"), gram}, {number("c"), square}});
    Value moved = tall ? multiply(x, gram, false, false)
                       : multiply(gram, x, false, false);
    x = combine(type, {{number("a"), x}, {1.0, moved}});
  }
  double ratio = static_cast<double>(rows) / columns;
  if (!rule.getAs<BoolAttr>("unclamped").getValue())
    ratio = std::max(ratio, 1.0);
  double scale = rule.getAs<BoolAttr>("match_rms").getValue()
                     ? 0.2 * std::sqrt(std::max(rows, columns))
                     : std::sqrt(ratio);
  return combine(wide.getElementType(), {{scale, x}});
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

Value trainc::buildStochasticRounding(OpBuilder &b, Location loc,
                                      const UpdateElement &e, Value value,
                                      Type stored) {
  Type i32 = b.getI32Type(), f32 = b.getF32Type();
  auto number = [&](uint32_t bits) -> Value {
    return arith::ConstantOp::create(
        b, loc, b.getI32IntegerAttr(static_cast<int32_t>(bits)));
  };
  auto bitsOf = [&](Value x) -> Value {
    return arith::BitcastOp::create(b, loc, i32, x);
  };
  auto fromBits = [&](Value x) -> Value {
    return arith::BitcastOp::create(b, loc, f32, x);
  };
  auto bitAnd = [&](Value x, uint32_t mask) -> Value {
    return arith::AndIOp::create(b, loc, x, number(mask));
  };
  // Bits of an f32 that do not fit.
  uint32_t rest = stored.isBF16() ? 0xFFFF : 0x1FFF;
  Value bits = bitsOf(value);
  Value magnitude = bitAnd(bits, 0x7FFFFFFF);
  Value isFinite = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult,
                                         magnitude, number(0x7F800000));
  // Below 2^-14 the numbers of f16 are 2^-24 apart, as are those of f32 with 10
  // bits above: there 2^-14 is added for the time of the rounding.
  Value smallest, isSmall;
  if (stored.isF16()) {
    smallest = nn::splatConstant(b, loc, f32, 0x1p-14);
    isSmall = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult,
                                    magnitude, bitsOf(smallest));
    Value moved = arith::AddFOp::create(b, loc, fromBits(magnitude), smallest);
    magnitude =
        arith::SelectOp::create(b, loc, isSmall, bitsOf(moved), magnitude);
  }
  Value word = arith::TruncIOp::create(b, loc, i32,
                                       nn::buildRandomWord(b, loc, e.random));
  Value sum = arith::AddIOp::create(b, loc, magnitude, bitAnd(word, rest));
  Value rounded = bitAnd(sum, ~rest);
  if (stored.isF16()) {
    Value moved = arith::SubFOp::create(b, loc, fromBits(rounded), smallest);
    rounded = arith::SelectOp::create(b, loc, isSmall, bitsOf(moved), rounded);
  }
  rounded = arith::OrIOp::create(b, loc, rounded, bitAnd(bits, 0x80000000));
  return arith::SelectOp::create(b, loc, isFinite, fromBits(rounded), value);
}

SmallVector<PlaceStep> trainc::stepsToWhole(ParamOp param) {
  SmallVector<PlaceStep> steps;
  if (param.getPartAxes().empty())
    return steps;
  ArrayRef<int64_t> whole = param.getWholeType().getShape();
  ArrayRef<int64_t> part = param.getTensorType().getShape();
  ArrayRef<int64_t> blocks = param.getBlocks().value_or(ArrayRef<int64_t>());
  int64_t inner = 1; // elements of the whole behind the dimension
  for (int64_t dim = whole.size() - 1; dim >= 0; --dim) {
    ArrayAttr axes = ArrayAttr::get(param.getContext(), {});
    if (dim < static_cast<int64_t>(param.getSplit()->size()))
      axes = cast<ArrayAttr>((*param.getSplit())[dim]);
    if (!axes.empty()) {
      int64_t count = blocks.empty() ? 1 : blocks[dim];
      int64_t row = part[dim] / count * inner;
      steps.push_back({row, whole[dim] / count * inner, row, axes});
    }
    inner *= whole[dim];
  }
  return steps;
}

Value trainc::buildPlaceStep(OpBuilder &b, Location loc, Value index, Value row,
                             Value segment, Value start) {
  Value rows = arith::DivUIOp::create(b, loc, index, row);
  Value within = arith::RemUIOp::create(b, loc, index, row);
  Value whole = arith::MulIOp::create(b, loc, rows, segment);
  whole = arith::AddIOp::create(b, loc, whole, within);
  return arith::AddIOp::create(b, loc, whole, start);
}

bool trainc::hasPadding(ParamOp param) {
  ArrayAttr axes = param.getPartAxes();
  return !axes.empty() &&
         param.getTensorType().getNumElements() *
                 getMesh(param->getParentOfType<ModuleOp>()).getCount(axes) !=
             param.getWholeType().getNumElements();
}

Value trainc::buildPadding(OpBuilder &b, Location loc, const UpdateElement &e) {
  auto isZero = [&](Value x) {
    return arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, x,
                                 nn::splatConstant(b, loc, x.getType(), 0.0));
  };
  Value parameter = isZero(e.parameter), gradient = isZero(e.gradient);
  return arith::AndIOp::create(b, loc, parameter, gradient);
}

Value trainc::keepPadding(OpBuilder &b, Location loc, const UpdateElement &e,
                          Value value, Value old) {
  if (!e.padding)
    return value;
  // x - x is not a number where x is not finite.
  Value rest = arith::SubFOp::create(b, loc, value, value);
  Value keeps =
      arith::CmpFOp::create(b, loc, arith::CmpFPredicate::UNO, rest, rest);
  keeps = arith::AndIOp::create(b, loc, e.padding, keeps);
  return arith::SelectOp::create(b, loc, keeps, old, value);
}

Value trainc::buildGuard(OpBuilder &b, Location loc, const UpdateElement &e,
                         Value value, Value old) {
  value = keepPadding(b, loc, e, value, old);
  return arith::SelectOp::create(b, loc, e.finite, value, old);
}
