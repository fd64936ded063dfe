//===- NNPointwiseOps.cpp - Elementwise operations ------------------------===//
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/TypeUtilities.h"
#include "trainc/Dialect/NN/NNBuilders.h"
#include "trainc/Dialect/NN/NNOps.h"
#include <cmath>

using namespace mlir;
using namespace trainc;
using namespace trainc::nn;

//===----------------------------------------------------------------------===//
// Shapes
//===----------------------------------------------------------------------===//

/// Infers the broadcast of `operands` with element type `elementType`.
static LogicalResult inferBroadcast(std::optional<Location> loc, StringRef name,
                                    ValueRange operands, Type elementType,
                                    SmallVectorImpl<Type> &types) {
  SmallVector<ArrayRef<int64_t>> shapes;
  for (Value operand : operands)
    shapes.push_back(getTensorType(operand).getShape());
  auto shape = broadcastShapes(shapes);
  if (failed(shape))
    return emitOptionalError(loc, "'", name,
                             "' op expects broadcastable shapes (C1), got ",
                             operands.getTypes());
  types.push_back(RankedTensorType::get(*shape, elementType));
  return success();
}

template <typename Adaptor>
static LogicalResult inferBinary(std::optional<Location> loc, StringRef name,
                                 Adaptor adaptor,
                                 SmallVectorImpl<Type> &types) {
  Type lhs = getTensorType(adaptor.getLhs()).getElementType();
  Type rhs = getTensorType(adaptor.getRhs()).getElementType();
  if (lhs != rhs)
    return emitOptionalError(loc, "'", name,
                             "' op expects equal element types (C2), got ", lhs,
                             " and ", rhs);
  return inferBroadcast(loc, name, adaptor.getOperands(), lhs, types);
}

#define INFER_BINARY(Op)                                                       \
  LogicalResult Op::inferReturnTypes(                                          \
      MLIRContext *, std::optional<Location> loc, Adaptor adaptor,             \
      SmallVectorImpl<Type> &types) {                                          \
    return inferBinary(loc, getOperationName(), adaptor, types);               \
  }
INFER_BINARY(AddOp)
INFER_BINARY(SubOp)
INFER_BINARY(MulOp)
INFER_BINARY(DivOp)
INFER_BINARY(MinOp)
INFER_BINARY(MaxOp)
INFER_BINARY(PowOp)
INFER_BINARY(AndOp)
INFER_BINARY(OrOp)
#undef INFER_BINARY

LogicalResult CompareOp::inferReturnTypes(MLIRContext *context,
                                          std::optional<Location> loc,
                                          Adaptor adaptor,
                                          SmallVectorImpl<Type> &types) {
  Type lhs = getTensorType(adaptor.getLhs()).getElementType();
  Type rhs = getTensorType(adaptor.getRhs()).getElementType();
  if (lhs != rhs)
    return emitOptionalError(
        loc, "'nn.compare' op expects equal element types (C2), got ", lhs,
        " and ", rhs);
  return inferBroadcast(loc, getOperationName(), adaptor.getOperands(),
                        IntegerType::get(context, 1), types);
}

LogicalResult SelectOp::inferReturnTypes(MLIRContext *,
                                         std::optional<Location> loc,
                                         Adaptor adaptor,
                                         SmallVectorImpl<Type> &types) {
  Type onTrue = getTensorType(adaptor.getOnTrue()).getElementType();
  Type onFalse = getTensorType(adaptor.getOnFalse()).getElementType();
  if (onTrue != onFalse)
    return emitOptionalError(
        loc, "'nn.select' op expects equal element types (C2), got ", onTrue,
        " and ", onFalse);
  return inferBroadcast(loc, getOperationName(), adaptor.getOperands(), onTrue,
                        types);
}

LogicalResult CastOp::inferReturnTypes(MLIRContext *, std::optional<Location>,
                                       Adaptor adaptor,
                                       SmallVectorImpl<Type> &types) {
  types.push_back(getTensorType(adaptor.getInput()).clone(adaptor.getType()));
  return success();
}

//===----------------------------------------------------------------------===//
// Scalar functions
//===----------------------------------------------------------------------===//

static bool isFloat(Value value) {
  return isa<FloatType>(getElementTypeOrSelf(value));
}

/// Builds FloatOp or IntOp, whichever fits the operands.
template <typename FloatOp, typename IntOp>
static Value buildBinary(OpBuilder &b, Location loc, ValueRange args) {
  if (isFloat(args[0]))
    return FloatOp::create(b, loc, args[0], args[1]);
  return IntOp::create(b, loc, args[0], args[1]);
}

/// By 0 it is -1, and the least number by -1 that number, as in XLA: no element may trap,
/// above all none of the lanes behind the last element of a row.
static Value divideIntegers(OpBuilder &b, Location loc, Value lhs, Value rhs) {
  Value divisor = guardDivisor(b, loc, lhs, rhs, /*isSigned=*/true);
  Value quotient = arith::DivSIOp::create(b, loc, lhs, divisor);
  Value isZero = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, rhs,
                                       splatConstant(b, loc, rhs.getType(), 0));
  return arith::SelectOp::create(
      b, loc, isZero, splatConstant(b, loc, rhs.getType(), -1), quotient);
}

#define SCALAR(Op, expression)                                                 \
  void Op::buildScalar(OpBuilder &b, Location loc, ValueRange args,            \
                       SmallVectorImpl<Value> &results) {                      \
    results.push_back(expression);                                             \
  }
SCALAR(AddOp, (buildBinary<arith::AddFOp, arith::AddIOp>(b, loc, args)))
SCALAR(SubOp, (buildBinary<arith::SubFOp, arith::SubIOp>(b, loc, args)))
SCALAR(MulOp, (buildBinary<arith::MulFOp, arith::MulIOp>(b, loc, args)))
SCALAR(DivOp, isFloat(args[0])
                  ? arith::DivFOp::create(b, loc, args[0], args[1]).getResult()
                  : divideIntegers(b, loc, args[0], args[1]))
SCALAR(MinOp, (buildBinary<arith::MinimumFOp, arith::MinSIOp>(b, loc, args)))
SCALAR(MaxOp, (buildBinary<arith::MaximumFOp, arith::MaxSIOp>(b, loc, args)))
SCALAR(AndOp, arith::AndIOp::create(b, loc, args[0], args[1]))
SCALAR(OrOp, arith::OrIOp::create(b, loc, args[0], args[1]))
SCALAR(NotOp,
       arith::XOrIOp::create(b, loc, args[0],
                             splatConstant(b, loc, args[0].getType(), 1.0)))
SCALAR(NegOp, arith::NegFOp::create(b, loc, args[0]))
SCALAR(ExpOp, math::ExpOp::create(b, loc, args[0]))
SCALAR(LogOp, math::LogOp::create(b, loc, args[0]))
SCALAR(SqrtOp, math::SqrtOp::create(b, loc, args[0]))
SCALAR(ReluOp,
       arith::MaximumFOp::create(b, loc, args[0],
                                 splatConstant(b, loc, args[0].getType(), 0.0)))
SCALAR(SelectOp, arith::SelectOp::create(b, loc, args[0], args[1], args[2]))
SCALAR(BroadcastOp, args[0])
SCALAR(StopGradientOp, args[0])
#undef SCALAR

// Together in both terms, in each factor, in both values of a choice.
SmallVector<SmallVector<unsigned>> AddOp::getLinearOperands() {
  return {{0, 1}};
}
SmallVector<SmallVector<unsigned>> SubOp::getLinearOperands() {
  return {{0, 1}};
}
SmallVector<SmallVector<unsigned>> MulOp::getLinearOperands() {
  return {{0}, {1}};
}
SmallVector<SmallVector<unsigned>> SelectOp::getLinearOperands() {
  return {{1, 2}};
}
SmallVector<SmallVector<unsigned>> NegOp::getLinearOperands() { return {{0}}; }
SmallVector<SmallVector<unsigned>> StopGradientOp::getLinearOperands() {
  return {{0}};
}
SmallVector<SmallVector<unsigned>> BroadcastOp::getLinearOperands() {
  return {{0}};
}

SmallVector<SmallVector<unsigned>> DivOp::getLinearOperands() {
  if (isa<FloatType>(getTensorType(getLhs()).getElementType()))
    return {{0}};
  return {}; // rounds
}

SmallVector<SmallVector<unsigned>> CastOp::getLinearOperands() {
  auto from = dyn_cast<FloatType>(getTensorType(getInput()).getElementType());
  auto to = dyn_cast<FloatType>(getTensorType(getResult()).getElementType());
  if (from && to && from.getWidth() < to.getWidth())
    return {{0}};
  return {}; // rounds or wraps
}

void CompareOp::buildScalar(OpBuilder &b, Location loc, ValueRange args,
                            SmallVectorImpl<Value> &results) {
  using F = arith::CmpFPredicate;
  using I = arith::CmpIPredicate;
  static constexpr std::pair<F, I> predicates[] = {
      {F::OEQ, I::eq},  {F::UNE, I::ne},  {F::OLT, I::slt},
      {F::OLE, I::sle}, {F::OGT, I::sgt}, {F::OGE, I::sge}};
  auto [f, i] = predicates[static_cast<unsigned>(getKind())];
  if (isFloat(args[0]))
    results.push_back(arith::CmpFOp::create(b, loc, f, args[0], args[1]));
  else
    results.push_back(arith::CmpIOp::create(b, loc, i, args[0], args[1]));
}

/// A float, or a vector of them, toward zero: what an integer cannot hold becomes the
/// nearest that it can, NaN 0, on every target.
static Value truncateToInteger(OpBuilder &b, Location loc, Type type,
                               Value value) {
  unsigned width = getElementTypeOrSelf(type).getIntOrFloatBitWidth();
  double bound = std::ldexp(1.0, width - 1);
  auto is = [&](arith::CmpFPredicate order, double other) -> Value {
    return arith::CmpFOp::create(b, loc, order, value,
                                 splatConstant(b, loc, value.getType(), other));
  };
  auto integer = [&](const APInt &number) -> Value {
    return arith::ConstantOp::create(b, loc, [&]() -> TypedAttr {
      auto element = b.getIntegerAttr(getElementTypeOrSelf(type), number);
      if (auto vector = dyn_cast<VectorType>(type))
        return DenseElementsAttr::get(vector, element);
      return element;
    }());
  };
  auto select = [&](Value condition, const APInt &number,
                    Value other) -> Value {
    return arith::SelectOp::create(b, loc, condition, integer(number), other);
  };
  using Order = arith::CmpFPredicate;
  Value result = arith::FPToSIOp::create(b, loc, type, value);
  APInt largest = APInt::getSignedMaxValue(width);
  result = select(is(Order::OGE, bound), largest, result);
  result = select(is(Order::OLT, -bound), -largest - 1, result);
  return select(is(Order::UNO, 0.0), APInt::getZero(width), result);
}

void CastOp::buildScalar(OpBuilder &b, Location loc, ValueRange args,
                         SmallVectorImpl<Value> &results) {
  Value value = args[0];
  Type from = getElementTypeOrSelf(value), to = getComputeType(getType());
  Type resultType = to;
  if (auto vector = dyn_cast<VectorType>(value.getType()))
    resultType = vector.clone(to);
  if (from == to) {
    results.push_back(value);
    return;
  }
  if (to.isInteger(1)) {
    Value zero = splatConstant(b, loc, value.getType(), 0.0);
    if (isFloat(value))
      results.push_back(arith::CmpFOp::create(b, loc, arith::CmpFPredicate::UNE,
                                              value, zero));
    else
      results.push_back(
          arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, value, zero));
    return;
  }
  auto build = [&]() -> Value {
    unsigned fromWidth = from.getIntOrFloatBitWidth();
    unsigned toWidth = to.getIntOrFloatBitWidth();
    if (isFloat(value)) {
      if (!isa<FloatType>(to))
        return truncateToInteger(b, loc, resultType, value);
      if (fromWidth < toWidth)
        return arith::ExtFOp::create(b, loc, resultType, value);
      return arith::TruncFOp::create(b, loc, resultType, value);
    }
    if (isa<FloatType>(to)) {
      if (from.isInteger(1))
        return arith::UIToFPOp::create(b, loc, resultType, value);
      return arith::SIToFPOp::create(b, loc, resultType, value);
    }
    if (fromWidth > toWidth)
      return arith::TruncIOp::create(b, loc, resultType, value);
    if (from.isInteger(1))
      return arith::ExtUIOp::create(b, loc, resultType, value);
    return arith::ExtSIOp::create(b, loc, resultType, value);
  };
  results.push_back(build());
}

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

/// The shape of a value, for sumToShape.
static ArrayRef<int64_t> shapeOf(Value value) {
  return getTensorType(value).getShape();
}

LogicalResult AddOp::buildGradients(OpBuilder &b, ValueRange resultGrads,
                                    SmallVectorImpl<Value> &operandGrads) {
  Value g = resultGrads[0];
  operandGrads[0] = sumToShape(b, getLoc(), g, shapeOf(getLhs()));
  operandGrads[1] = sumToShape(b, getLoc(), g, shapeOf(getRhs()));
  return success();
}

LogicalResult SubOp::buildGradients(OpBuilder &b, ValueRange resultGrads,
                                    SmallVectorImpl<Value> &operandGrads) {
  Value g = resultGrads[0];
  operandGrads[0] = sumToShape(b, getLoc(), g, shapeOf(getLhs()));
  operandGrads[1] =
      sumToShape(b, getLoc(), NegOp::create(b, getLoc(), g), shapeOf(getRhs()));
  return success();
}

LogicalResult MulOp::buildGradients(OpBuilder &b, ValueRange resultGrads,
                                    SmallVectorImpl<Value> &operandGrads) {
  Value g = resultGrads[0];
  operandGrads[0] = sumToShape(
      b, getLoc(), MulOp::create(b, getLoc(), g, getRhs()), shapeOf(getLhs()));
  operandGrads[1] = sumToShape(
      b, getLoc(), MulOp::create(b, getLoc(), g, getLhs()), shapeOf(getRhs()));
  return success();
}

LogicalResult DivOp::buildGradients(OpBuilder &b, ValueRange resultGrads,
                                    SmallVectorImpl<Value> &operandGrads) {
  // d(a/b) = g/b, -(g/b)(a/b).
  Location loc = getLoc();
  Value quotient = DivOp::create(b, loc, resultGrads[0], getRhs());
  operandGrads[0] = sumToShape(b, loc, quotient, shapeOf(getLhs()));
  Value product = MulOp::create(b, loc, quotient, getResult());
  operandGrads[1] =
      sumToShape(b, loc, NegOp::create(b, loc, product), shapeOf(getRhs()));
  return success();
}

LogicalResult NegOp::buildGradients(OpBuilder &b, ValueRange resultGrads,
                                    SmallVectorImpl<Value> &operandGrads) {
  operandGrads[0] = NegOp::create(b, getLoc(), resultGrads[0]);
  return success();
}

LogicalResult ExpOp::buildGradients(OpBuilder &b, ValueRange resultGrads,
                                    SmallVectorImpl<Value> &operandGrads) {
  operandGrads[0] = MulOp::create(b, getLoc(), resultGrads[0], getResult());
  return success();
}

LogicalResult LogOp::buildGradients(OpBuilder &b, ValueRange resultGrads,
                                    SmallVectorImpl<Value> &operandGrads) {
  operandGrads[0] = DivOp::create(b, getLoc(), resultGrads[0], getInput());
  return success();
}

LogicalResult SqrtOp::buildGradients(OpBuilder &b, ValueRange resultGrads,
                                     SmallVectorImpl<Value> &operandGrads) {
  Value two = AddOp::create(b, getLoc(), getResult(), getResult());
  operandGrads[0] = DivOp::create(b, getLoc(), resultGrads[0], two);
  return success();
}

LogicalResult ReluOp::buildGradients(OpBuilder &b, ValueRange resultGrads,
                                     SmallVectorImpl<Value> &operandGrads) {
  Location loc = getLoc();
  Value zero = scalarConstant(b, loc, getType().getElementType(), 0.0);
  // The result serves in place of the input, which need not be kept.
  Value positive =
      CompareOp::create(b, loc, CompareKind::gt, getResult(), zero);
  operandGrads[0] = SelectOp::create(b, loc, positive, resultGrads[0], zero);
  return success();
}

LogicalResult SelectOp::buildGradients(OpBuilder &b, ValueRange resultGrads,
                                       SmallVectorImpl<Value> &operandGrads) {
  Location loc = getLoc();
  if (!isa<FloatType>(getType().getElementType()))
    return success();
  Value zero = scalarConstant(b, loc, getType().getElementType(), 0.0);
  Value g = resultGrads[0];
  operandGrads[1] =
      sumToShape(b, loc, SelectOp::create(b, loc, getCondition(), g, zero),
                 shapeOf(getOnTrue()));
  operandGrads[2] =
      sumToShape(b, loc, SelectOp::create(b, loc, getCondition(), zero, g),
                 shapeOf(getOnFalse()));
  return success();
}

LogicalResult CastOp::buildGradients(OpBuilder &b, ValueRange resultGrads,
                                     SmallVectorImpl<Value> &operandGrads) {
  Type from = getTensorType(getInput()).getElementType();
  if (isa<FloatType>(from) && isa<FloatType>(getTypeAttr().getValue()))
    operandGrads[0] = castUnrounded(b, getLoc(), resultGrads[0], from);
  return success();
}

LogicalResult
BroadcastOp::buildGradients(OpBuilder &b, ValueRange resultGrads,
                            SmallVectorImpl<Value> &operandGrads) {
  if (isa<FloatType>(getTensorType(getInput()).getElementType()))
    operandGrads[0] =
        sumToShape(b, getLoc(), resultGrads[0], shapeOf(getInput()));
  return success();
}

//===----------------------------------------------------------------------===//
// Folds, verifiers, nn.map
//===----------------------------------------------------------------------===//

/// A float in another type, by the roundings of `CastOp::buildScalar`: to bf16 and f16 by
/// way of f32.
static APFloat convertTo(FloatType type, APFloat value) {
  bool inexact = false;
  if (type.getWidth() < 32)
    value.convert(APFloat::IEEEsingle(), APFloat::rmNearestTiesToEven,
                  &inexact);
  value.convert(type.getFloatSemantics(), APFloat::rmNearestTiesToEven,
                &inexact);
  return value;
}

OpFoldResult CastOp::fold(FoldAdaptor adaptor) {
  if (getInput().getType() == getResult().getType())
    return getInput();
  auto splat = dyn_cast_or_null<SplatElementsAttr>(adaptor.getInput());
  if (auto to = dyn_cast<FloatType>(getType());
      splat && to && isa<FloatType>(splat.getElementType()))
    return SplatElementsAttr::get(
        cast<ShapedType>(getResult().getType()),
        convertTo(to, splat.getSplatValue<APFloat>()));
  // Of a wide value with other users, too, the gradients are summed in its type.
  if (Value narrow = nn::getUnwidened(*this); narrow && getInput().hasOneUse())
    return narrow;
  return {};
}

OpFoldResult BroadcastOp::fold(FoldAdaptor) {
  if (getInput().getType() == getResult().getType())
    return getInput();
  return {};
}

LogicalResult BroadcastOp::verify() {
  auto from = getTensorType(getInput()), to = getTensorType(getResult());
  auto shape = broadcastShapes({from.getShape(), to.getShape()});
  if (failed(shape) || ArrayRef<int64_t>(*shape) != to.getShape())
    return emitOpError(
               "expects an input that broadcasts to the result (C1), got ")
           << from << " and " << to;
  if (from.getElementType() != to.getElementType())
    return emitOpError("expects equal element types (C2), got ")
           << from << " and " << to;
  return success();
}

void YieldOp::build(OpBuilder &, OperationState &) {}

LogicalResult nn::verifyScalarOps(Operation *op, Region &region,
                                  StringRef tag) {
  for (Operation &inner : region.front().without_terminator()) {
    Dialect *dialect = inner.getDialect();
    if (!isa_and_nonnull<arith::ArithDialect, math::MathDialect>(dialect) ||
        !isMemoryEffectFree(&inner) || inner.getNumRegions() != 0)
      return (op->emitOpError("expects side-effect-free scalar arith and math "
                              "ops only (")
              << tag << "), got '" << inner.getName() << "'")
                 .attachNote(inner.getLoc())
             << "here";
    for (Type type : inner.getResultTypes())
      if (!type.isIntOrIndexOrFloat())
        return op->emitOpError("expects scalars in its region (")
               << tag << "), got " << type;
  }
  return success();
}

LogicalResult MapOp::verify() {
  if (getNumResults() == 0)
    return emitOpError("expects at least one result");
  Block &block = getBody().front();
  SmallVector<Type> expected, found(block.getArgumentTypes());
  SmallVector<ArrayRef<int64_t>> shapes;
  for (Value input : getInputs()) {
    expected.push_back(getComputeType(getTensorType(input).getElementType()));
    shapes.push_back(shapeOf(input));
  }
  if (expected != found)
    return emitOpError("expects block arguments of types (C1) ")
           << expected << ", got " << found;
  expected.clear();
  for (Value output : getOutputs())
    expected.push_back(getComputeType(getTensorType(output).getElementType()));
  found.assign(block.getTerminator()->operand_type_begin(),
               block.getTerminator()->operand_type_end());
  if (expected != found)
    return emitOpError("expects yielded values of types (C2) ")
           << expected << ", got " << found;
  auto shape = broadcastShapes(shapes);
  if (failed(shape))
    return emitOpError("expects broadcastable inputs (C3), got ")
           << getInputs().getTypes();
  for (Value output : getOutputs())
    if (shapeOf(output) != ArrayRef<int64_t>(*shape))
      return emitOpError("expects results of the broadcast shape (C3), got ")
             << output.getType();
  return verifyScalarOps(*this, getBody(), "C4");
}

Operation *nn::buildWholePower(OpBuilder &b, Location loc, Value base,
                               Value exponent) {
  Type type = base.getType(), wide = b.getF64Type();
  if (auto vector = dyn_cast<VectorType>(type))
    wide = vector.clone(wide);
  if (type != wide)
    base = arith::ExtFOp::create(b, loc, wide, base);
  exponent = arith::SIToFPOp::create(b, loc, wide, exponent);
  Operation *power = math::PowFOp::create(b, loc, base, exponent);
  return type == wide
             ? power
             : arith::TruncFOp::create(b, loc, type, power->getResult(0));
}

void MapOp::buildScalar(OpBuilder &b, Location loc, ValueRange args,
                        SmallVectorImpl<Value> &results) {
  // The block's ops are elementwise mappable: on vectors they are the same ops
  // with vector types.
  auto vector =
      args.empty() ? VectorType() : dyn_cast<VectorType>(args[0].getType());
  IRMapping mapping;
  mapping.map(getBody().getArguments(), args);
  for (Operation &op : getBody().front().without_terminator()) {
    if (vector && op.hasTrait<OpTrait::ConstantLike>()) {
      auto constant = cast<arith::ConstantOp>(op);
      auto type = VectorType::get(vector.getShape(), constant.getType());
      mapping.map(
          op.getResult(0),
          arith::ConstantOp::create(
              b, loc, DenseElementsAttr::get(type, constant.getValue())));
      continue;
    }
    if (isa<math::FPowIOp>(op)) {
      Operation *power =
          buildWholePower(b, loc, mapping.lookup(op.getOperand(0)),
                          mapping.lookup(op.getOperand(1)));
      mapping.map(op.getResult(0), power->getResult(0));
      continue;
    }
    Operation *copy = b.clone(op, mapping);
    if (vector)
      for (Value result : copy->getResults())
        result.setType(VectorType::get(vector.getShape(), result.getType()));
  }
  for (Value value : getBody().front().getTerminator()->getOperands())
    results.push_back(mapping.lookup(value));
}
