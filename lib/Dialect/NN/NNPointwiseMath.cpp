//===- NNPointwiseMath.cpp - Elementary functions and activations ---------===//
//
// Scalar functions and gradients of the pointwise ops that are more than one
// operation on numbers. The gradients are single `nn.map` ops, so that they too
// are rounded once.
//
//===----------------------------------------------------------------------===//

#include "trainc/Dialect/NN/Numerics.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::nn;

//===----------------------------------------------------------------------===//
// Expressions
//===----------------------------------------------------------------------===//

namespace {
/// The expressions of this file.
struct Expr : Arithmetic {
  using Predicate = Order;

  /// 1 / (1 + exp(-x)).
  Value sigmoid(Value x) const {
    Value one = number(1.0);
    return div(one, add(one, exp(neg(x))));
  }
};
} // namespace

#define SCALAR(Op, expression)                                                 \
  void Op::buildScalar(OpBuilder &b, Location loc, ValueRange args,            \
                       SmallVectorImpl<Value> &results) {                      \
    Expr e{{b, loc, args[0].getType()}};                                       \
    Value x = args[0];                                                         \
    results.push_back(expression);                                             \
  }

/// An `nn.map` of `inputs` to one tensor of the broadcast shape and the inputs'
/// float type. `build` computes an element from the inputs' elements.
static Value mapOf(OpBuilder &b, Location loc, ValueRange inputs,
                   llvm::function_ref<Value(const Expr &, ValueRange)> build) {
  SmallVector<ArrayRef<int64_t>> shapes;
  for (Value input : inputs)
    shapes.push_back(getTensorType(input).getShape());
  RankedTensorType type =
      getTensorType(inputs[0]).clone(broadcastShapes(shapes).value());
  Type compute = getComputeType(type.getElementType());
  auto map = MapOp::create(b, loc, TypeRange(type), inputs);
  OpBuilder::InsertionGuard guard(b);
  Block *block = b.createBlock(&map.getBody(), {},
                               SmallVector<Type>(inputs.size(), compute),
                               SmallVector<Location>(inputs.size(), loc));
  Value result = build(Expr{{b, loc, compute}}, block->getArguments());
  YieldOp::create(b, loc, result);
  return map.getResult(0);
}

/// The gradient of a unary op: `expression` of the gradient g of the result and
/// of v, the op's `get` (its input or its result).
#define GRADIENT(Op, get, expression)                                          \
  LogicalResult Op::buildGradients(OpBuilder &b, ValueRange resultGrads,       \
                                   SmallVectorImpl<Value> &operandGrads) {     \
    operandGrads[0] = mapOf(b, getLoc(), {resultGrads[0], get()},              \
                            [&](const Expr &e, ValueRange args) -> Value {     \
                              Value g = args[0], v = args[1];                  \
                              return expression;                               \
                            });                                                \
    return success();                                                          \
  }

//===----------------------------------------------------------------------===//
// Elementary functions
//===----------------------------------------------------------------------===//

/// C's pow; in f32 by exp and log, which have polynomials.
static Value buildPow(const Expr &e, Value x, Value y) {
  if (e.isF64())
    return math::PowFOp::create(e.b, e.loc, x, y);
  return numerics::f32::pow(e, x, y);
}

/// -1, x (a zero or NaN), 1 for x below, at and above 0.
static Value buildSign(const Expr &e, Value x) {
  Value zero = e.number(0.0);
  Value negative = e.compare(Expr::Predicate::OLT, x, zero);
  Value positive = e.compare(Expr::Predicate::OGT, x, zero);
  return e.select(positive, e.number(1.0),
                  e.select(negative, e.number(-1.0), x));
}

SCALAR(AbsOp, e.abs(x))
GRADIENT(AbsOp, getInput, e.mul(g, buildSign(e, v)))

SCALAR(RsqrtOp, e.div(e.number(1.0), e.sqrt(x)))
LogicalResult RsqrtOp::buildGradients(OpBuilder &b, ValueRange resultGrads,
                                      SmallVectorImpl<Value> &operandGrads) {
  operandGrads[0] =
      mapOf(b, getLoc(), {resultGrads[0], getInput(), getResult()},
            [](const Expr &e, ValueRange args) {
              Value slope = e.mul(e.number(-0.5), e.div(args[2], args[1]));
              return e.mul(args[0], slope);
            });
  return success();
}

SCALAR(SinOp, e.sin(x))
GRADIENT(SinOp, getInput, e.mul(g, e.cos(v)))

SCALAR(CosOp, e.cos(x))
GRADIENT(CosOp, getInput, e.mul(e.neg(g), e.sin(v)))

/// Of steps: zeros.
#define STEPS(Op, expression)                                                  \
  SCALAR(Op, expression)                                                       \
  LogicalResult Op::buildGradients(OpBuilder &b, ValueRange,                   \
                                   SmallVectorImpl<Value> &operandGrads) {     \
    operandGrads[0] = ConstantOp::create(                                      \
        b, getLoc(), getType(), cast<ElementsAttr>(b.getZeroAttr(getType()))); \
    return success();                                                          \
  }
STEPS(FloorOp, e.floor(x))
STEPS(CeilOp, e.ceil(x))
STEPS(RoundOp, e.roundEven(x))

SCALAR(TanhOp, e.tanh(x))
GRADIENT(TanhOp, getResult, e.mul(g, e.fma(e.neg(v), v, e.number(1.0))))

SCALAR(ErfOp, e.erf(x))
GRADIENT(ErfOp, getInput,
         e.mul(g,
               e.mul(e.number(1.1283791670955126), e.exp(e.mul(e.neg(v), v)))))

SCALAR(PowOp, buildPow(e, x, args[1]))
LogicalResult PowOp::buildGradients(OpBuilder &b, ValueRange resultGrads,
                                    SmallVectorImpl<Value> &operandGrads) {
  using P = Expr::Predicate;
  Location loc = getLoc();
  Value g = resultGrads[0];
  Value lhs = mapOf(
      b, loc, {g, getLhs(), getRhs()}, [](const Expr &e, ValueRange args) {
        Value x = args[1], y = args[2];
        Value slope = e.mul(y, buildPow(e, x, e.sub(y, e.number(1.0))));
        Value isZero = e.compare(P::OEQ, y, e.number(0.0));
        return e.mul(args[0], e.select(isZero, e.number(0.0), slope));
      });
  Value rhs = mapOf(
      b, loc, {g, getLhs(), getResult()}, [](const Expr &e, ValueRange args) {
        Value x = args[1];
        Value isZero = e.compare(P::OEQ, x, e.number(0.0));
        Value log = e.log(e.select(isZero, e.number(1.0), x));
        Value slope = e.select(isZero, e.number(0.0), e.mul(args[2], log));
        return e.mul(args[0], slope);
      });
  operandGrads[0] = sumToShape(b, loc, lhs, getTensorType(getLhs()).getShape());
  operandGrads[1] = sumToShape(b, loc, rhs, getTensorType(getRhs()).getShape());
  return success();
}

//===----------------------------------------------------------------------===//
// Minimum, maximum, clamp
//===----------------------------------------------------------------------===//

/// The gradients of a choice between `lhs` and `rhs`: `predicate(lhs, rhs)`
/// says that lhs was taken. Equal ones get half each.
static void buildChoiceGradients(OpBuilder &b, Location loc,
                                 Expr::Predicate predicate, Value g, Value lhs,
                                 Value rhs,
                                 SmallVectorImpl<Value> &operandGrads) {
  if (!isa<FloatType>(getTensorType(lhs).getElementType()))
    return;
  auto build = [&](Value taken, Value other) {
    Value share =
        mapOf(b, loc, {g, taken, other}, [&](const Expr &e, ValueRange args) {
          Value x = args[1], y = args[2];
          Value tie = e.select(e.compare(Expr::Predicate::OEQ, x, y),
                               e.number(0.5), e.number(0.0));
          return e.mul(args[0], e.select(e.compare(predicate, x, y),
                                         e.number(1.0), tie));
        });
    return sumToShape(b, loc, share, getTensorType(taken).getShape());
  };
  operandGrads[0] = build(lhs, rhs);
  operandGrads[1] = build(rhs, lhs);
}

LogicalResult MinOp::buildGradients(OpBuilder &b, ValueRange resultGrads,
                                    SmallVectorImpl<Value> &operandGrads) {
  buildChoiceGradients(b, getLoc(), Expr::Predicate::OLT, resultGrads[0],
                       getLhs(), getRhs(), operandGrads);
  return success();
}

LogicalResult MaxOp::buildGradients(OpBuilder &b, ValueRange resultGrads,
                                    SmallVectorImpl<Value> &operandGrads) {
  buildChoiceGradients(b, getLoc(), Expr::Predicate::OGT, resultGrads[0],
                       getLhs(), getRhs(), operandGrads);
  return success();
}

LogicalResult ClampOp::verify() {
  double low = getLow().convertToDouble(), high = getHigh().convertToDouble();
  if (!(low <= high))
    return emitOpError("expects low <= high (C1), got ")
           << low << " and " << high;
  return success();
}

SCALAR(ClampOp,
       arith::MinimumFOp::create(
           b, loc,
           arith::MaximumFOp::create(b, loc, x,
                                     e.number(getLow().convertToDouble())),
           e.number(getHigh().convertToDouble())))

LogicalResult ClampOp::buildGradients(OpBuilder &b, ValueRange resultGrads,
                                      SmallVectorImpl<Value> &operandGrads) {
  using P = Expr::Predicate;
  operandGrads[0] = mapOf(
      b, getLoc(), {resultGrads[0], getInput()},
      [&](const Expr &e, ValueRange args) {
        Value x = args[1];
        Value low = e.number(getLow().convertToDouble());
        Value high = e.number(getHigh().convertToDouble());
        // Each bound on its own: they may be equal.
        auto share = [&](P inside, Value bound) {
          Value half = e.select(e.compare(P::OEQ, x, bound), e.number(0.5),
                                e.number(0.0));
          return e.select(e.compare(inside, x, bound), e.number(1.0), half);
        };
        return e.mul(args[0], e.mul(share(P::OGT, low), share(P::OLT, high)));
      });
  return success();
}

LogicalResult StopGradientOp::buildGradients(OpBuilder &, ValueRange,
                                             SmallVectorImpl<Value> &) {
  return success();
}

//===----------------------------------------------------------------------===//
// Activations
//===----------------------------------------------------------------------===//

SCALAR(SigmoidOp, e.sigmoid(x))
GRADIENT(SigmoidOp, getResult, e.mul(g, e.mul(v, e.sub(e.number(1.0), v))))

SCALAR(SiluOp, e.div(x, e.add(e.number(1.0), e.exp(e.neg(x)))))
LogicalResult SiluOp::buildGradients(OpBuilder &b, ValueRange resultGrads,
                                     SmallVectorImpl<Value> &operandGrads) {
  // d silu = s + x s (1 - s), s = sigmoid(x).
  operandGrads[0] = mapOf(b, getLoc(), {resultGrads[0], getInput()},
                          [](const Expr &e, ValueRange args) {
                            Value s = e.sigmoid(args[1]), one = e.number(1.0);
                            Value slope =
                                e.mul(s, e.fma(args[1], e.sub(one, s), one));
                            return e.mul(args[0], slope);
                          });
  return success();
}

/// erf(x / sqrt 2).
static Value buildGeluErf(const Expr &e, Value x) {
  return e.erf(e.mul(x, e.number(0.70710678118654752440)));
}

void GeluOp::buildScalar(OpBuilder &b, Location loc, ValueRange args,
                         SmallVectorImpl<Value> &results) {
  Expr e{{b, loc, args[0].getType()}};
  Value x = args[0];
  Value t = getForm() == GeluForm::tanh ? numerics::geluTanh(e, x)
                                        : buildGeluErf(e, x);
  results.push_back(numerics::gelu(e, x, t));
}

LogicalResult GeluOp::buildGradients(OpBuilder &b, ValueRange resultGrads,
                                     SmallVectorImpl<Value> &operandGrads) {
  // y = x/2 (1 + t(x)): dy = (1 + t)/2 + x t'/2.
  operandGrads[0] =
      mapOf(b, getLoc(), {resultGrads[0], getInput()},
            [&](const Expr &e, ValueRange args) {
              Value x = args[1];
              if (getForm() == GeluForm::tanh)
                return e.mul(args[0], numerics::geluDerivative(
                                          e, x, numerics::geluTanh(e, x)));
              Value half = e.number(0.5), t = buildGeluErf(e, x);
              Value square = e.mul(e.mul(x, x), e.number(-0.5));
              Value derivative =
                  e.mul(e.number(numerics::sqrtTwoOverPi), e.exp(square));
              Value sum =
                  e.fma(e.mul(half, x), derivative, e.fma(half, t, half));
              return e.mul(args[0], sum);
            });
  return success();
}

#undef SCALAR
#undef GRADIENT
