//===- NNLossOps.cpp - Losses ---------------------------------------------===//
#include "Losses.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "trainc/Dialect/NN/NNBuilders.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::nn;

//===----------------------------------------------------------------------===//
// Cross entropy
//===----------------------------------------------------------------------===//

LogicalResult CrossEntropyOp::inferReturnTypes(MLIRContext *,
                                               std::optional<Location> loc,
                                               Adaptor adaptor,
                                               SmallVectorImpl<Type> &types) {
  RankedTensorType logits = getTensorType(adaptor.getLogits());
  RankedTensorType targets = getTensorType(adaptor.getTargets());
  if (logits.getRank() < 1 ||
      logits.getShape().drop_back() != targets.getShape())
    return emitOptionalError(loc,
                             "'nn.cross_entropy' op expects targets of the "
                             "logits' shape without the last dimension (C1), "
                             "got ",
                             logits, " and ", targets);
  if (Value weights = adaptor.getWeights())
    if (getTensorType(weights).getShape() != targets.getShape())
      return emitOptionalError(loc,
                               "'nn.cross_entropy' op expects weights of the "
                               "targets' shape (C2), got ",
                               weights.getType(), " and ", targets);
  auto scalar =
      RankedTensorType::get({}, getComputeType(logits.getElementType()));
  types.append(2, scalar);
  return success();
}

LogicalResult CrossEntropyOp::verify() {
  return verifyTargets(*this, getTensorType(getLogits()).getShape().back(),
                       "C3", "C4");
}

namespace {
/// What the definition and the gradient share: per row, in the compute type.
struct CrossEntropyParts {
  Value targets;          // [..., 1], as they are
  Value logProbabilities; // [..., classes]
  Value isTarget;         // [..., classes], i1
  Value isCounted;        // [..., 1], i1: the row is not ignored
  Value weight;           // [..., 1]: the row's weight, 0 if it is ignored
};
} // namespace

static CrossEntropyParts buildParts(OpBuilder &b, CrossEntropyOp op) {
  Location loc = op.getLoc();
  RankedTensorType logits = getTensorType(op.getLogits());
  Type compute = getComputeType(logits.getElementType());
  int64_t last = logits.getRank() - 1;
  Type indexType = getTensorType(op.getTargets()).getElementType();
  SmallVector<int64_t> kept(logits.getShape());
  kept[last] = 1;

  CrossEntropyParts parts;
  Value x = castTo(b, loc, op.getLogits(), compute);
  parts.logProbabilities =
      LogSoftmaxOp::create(b, loc, x, b.getI64IntegerAttr(last));
  Value targets = parts.targets = reshapeTo(b, loc, op.getTargets(), kept);
  SmallVector<int64_t> iotaShape(logits.getRank(), 1);
  iotaShape[last] = logits.getShape()[last];
  Value classes = IotaOp::create(
      b, loc, RankedTensorType::get(iotaShape, indexType), uint64_t(last));
  parts.isTarget = CompareOp::create(b, loc, CompareKind::eq, classes, targets);
  auto ignoredType = RankedTensorType::get({}, indexType);
  Value ignored = ConstantOp::create(
      b, loc, ignoredType,
      DenseElementsAttr::get(
          ignoredType, b.getIntegerAttr(indexType, static_cast<int64_t>(
                                                       op.getIgnoreIndex()))));
  parts.isCounted =
      CompareOp::create(b, loc, CompareKind::ne, targets, ignored);
  Value zero = scalarConstant(b, loc, compute, 0.0);
  Value weight =
      op.getWeights()
          ? castTo(b, loc, reshapeTo(b, loc, op.getWeights(), kept), compute)
          : scalarConstant(b, loc, compute, 1.0);
  parts.weight = SelectOp::create(b, loc, parts.isCounted, weight, zero);
  return parts;
}

/// The losses of the rows, [..., 1], before their weights.
static Value buildRowLosses(OpBuilder &b, CrossEntropyOp op,
                            const CrossEntropyParts &parts) {
  Location loc = op.getLoc();
  RankedTensorType type = getTensorType(parts.logProbabilities);
  int64_t last = type.getRank() - 1;
  auto constant = [&](double value) {
    return scalarConstant(b, loc, type.getElementType(), value);
  };
  Value picked = SelectOp::create(b, loc, parts.isTarget,
                                  parts.logProbabilities, constant(0.0));
  Value row = ReduceOp::create(b, loc, ReduceKind::sum, picked, last, true);
  double smoothing = op.getLabelSmoothing().convertToDouble();
  if (smoothing != 0.0) {
    Value sum = ReduceOp::create(b, loc, ReduceKind::sum,
                                 parts.logProbabilities, last, true);
    double classes = type.getShape()[last];
    row = AddOp::create(
        b, loc, MulOp::create(b, loc, row, constant(1 - smoothing)),
        MulOp::create(b, loc, sum, constant(smoothing / classes)));
  }
  return NegOp::create(b, loc, row);
}

Value nn::sumAll(OpBuilder &b, Location loc, Value value) {
  int64_t rank = getTensorType(value).getRank();
  if (rank == 0)
    return value;
  SmallVector<int64_t> dims = llvm::to_vector(llvm::seq<int64_t>(0, rank));
  return ReduceOp::create(b, loc, ReduceKind::sum, value, dims, false);
}

Value nn::rowLossesOf(OpBuilder &b, CrossEntropyOp op) {
  return buildRowLosses(b, op, buildParts(b, op));
}

/// `weight` is 0 ? 0 : `value`: what counts nothing must not add 0 x inf.
static Value whereWeighted(OpBuilder &b, Location loc, Value weight,
                           Value value) {
  Value zero =
      scalarConstant(b, loc, getTensorType(weight).getElementType(), 0.0);
  Value counts = CompareOp::create(b, loc, CompareKind::ne, weight, zero);
  return SelectOp::create(b, loc, counts, value, zero);
}

/// Whether each of `targets` is one of the classes.
static Value buildIsClass(OpBuilder &b, Location loc, Value targets,
                          int64_t classes) {
  auto compare = [&](CompareKind kind, int64_t value) {
    Type type = getTensorType(targets).getElementType();
    return CompareOp::create(b, loc, kind, targets,
                             scalarConstant(b, loc, type, value));
  };
  return AndOp::create(b, loc, compare(CompareKind::ge, 0),
                       compare(CompareKind::le, classes - 1));
}

FailureOr<SmallVector<Value>> CrossEntropyOp::decompose(OpBuilder &b) {
  Location loc = getLoc();
  CrossEntropyParts parts = buildParts(b, *this);
  Value row = buildRowLosses(b, *this, parts);
  Value weighted = MulOp::create(b, loc, row, parts.weight);
  return SmallVector<Value>{
      sumAll(b, loc, whereWeighted(b, loc, parts.weight, weighted)),
      sumAll(b, loc, parts.weight)};
}

LogicalResult
CrossEntropyOp::buildGradients(OpBuilder &b, ValueRange resultGrads,
                               SmallVectorImpl<Value> &operandGrads) {
  // d loss / d logits = w (softmax - target), the smoothed target summing to 1:
  // 1 - s + s / classes at the class, s / classes elsewhere. d loss / d weight
  // = the row's loss, d count / d weight = 1.
  Location loc = getLoc();
  RankedTensorType logits = getTensorType(getLogits());
  Type compute = getComputeType(logits.getElementType());
  CrossEntropyParts parts = buildParts(b, *this);
  auto constant = [&](double value) {
    return scalarConstant(b, loc, compute, value);
  };
  if (resultGrads[0]) {
    double classes = logits.getShape().back();
    double smoothing = getLabelSmoothing().convertToDouble();
    Value target = SelectOp::create(
        b, loc, parts.isTarget, constant(1 - smoothing + smoothing / classes),
        constant(smoothing / classes));
    Value softmax = ExpOp::create(b, loc, parts.logProbabilities);
    // Of a row without class lp[t] is 0: what is left is the mean's share.
    Value isClass =
        buildIsClass(b, loc, parts.targets, logits.getShape().back());
    Value weight = parts.weight;
    if (smoothing == 0.0)
      weight = SelectOp::create(b, loc, isClass, weight, constant(0.0));
    else
      softmax =
          SelectOp::create(b, loc, isClass, softmax,
                           MulOp::create(b, loc, softmax, constant(smoothing)));
    Value factor = MulOp::create(b, loc, weight, resultGrads[0]);
    Value dx =
        MulOp::create(b, loc, SubOp::create(b, loc, softmax, target), factor);
    dx = whereWeighted(b, loc, weight, dx);
    operandGrads[0] = castTo(b, loc, dx, logits.getElementType());
  }
  if (getWeights()) {
    RankedTensorType type = getTensorType(getWeights());
    Value g = resultGrads[1] ? resultGrads[1] : constant(0.0);
    if (resultGrads[0]) {
      Value row = buildRowLosses(b, *this, parts);
      g = AddOp::create(b, loc, MulOp::create(b, loc, row, resultGrads[0]), g);
    }
    g = SelectOp::create(b, loc, parts.isCounted, g, constant(0.0));
    g = reshapeTo(b, loc, g, type.getShape());
    operandGrads[2] = castTo(b, loc, g, type.getElementType());
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Losses per element
//===----------------------------------------------------------------------===//

/// Verifies a loss per element and infers its results.
template <typename Adaptor>
static LogicalResult inferElementLoss(std::optional<Location> loc,
                                      StringRef name, Adaptor adaptor,
                                      SmallVectorImpl<Type> &types) {
  RankedTensorType prediction = getTensorType(adaptor.getPrediction());
  RankedTensorType targets = getTensorType(adaptor.getTargets());
  if (prediction.getShape() != targets.getShape())
    return emitOptionalError(loc, "'", name,
                             "' op expects targets of the prediction's shape "
                             "(C1), got ",
                             prediction, " and ", targets);
  if (Value weights = adaptor.getWeights()) {
    RankedTensorType type = getTensorType(weights);
    if (type.getRank() > prediction.getRank() ||
        prediction.getShape().take_front(type.getRank()) != type.getShape())
      return emitOptionalError(loc, "'", name,
                               "' op expects weights whose shape is a leading "
                               "part of the prediction's (C2), got ",
                               type, " and ", prediction);
  }
  types.append(2, RankedTensorType::get(
                      {}, getComputeType(prediction.getElementType())));
  return success();
}

namespace {
/// The operands of a loss per element in the compute type.
struct ElementLoss {
  Value prediction, targets;
  Value weights;    // [examples..., 1...]; null if there are none
  double perWeight; // elements that share a weight
};
} // namespace

template <typename Op> static ElementLoss getParts(OpBuilder &b, Op op) {
  Location loc = op.getLoc();
  RankedTensorType type = getTensorType(op.getPrediction());
  Type compute = getComputeType(type.getElementType());
  ElementLoss parts{.prediction = castTo(b, loc, op.getPrediction(), compute),
                    .targets = castTo(b, loc, op.getTargets(), compute),
                    .weights = Value(),
                    .perWeight = 1};
  if (!op.getWeights())
    return parts;
  SmallVector<int64_t> shape(getTensorType(op.getWeights()).getShape());
  for (int64_t size : type.getShape().drop_front(shape.size())) {
    parts.perWeight *= size;
    shape.push_back(1);
  }
  parts.weights =
      reshapeTo(b, loc, castTo(b, loc, op.getWeights(), compute), shape);
  return parts;
}

/// loss and count from the losses of the elements.
static FailureOr<SmallVector<Value>> sumElements(OpBuilder &b, Location loc,
                                                 const ElementLoss &parts,
                                                 Value losses) {
  RankedTensorType type = getTensorType(losses);
  auto constant = [&](double value) {
    return scalarConstant(b, loc, type.getElementType(), value);
  };
  if (!parts.weights)
    return SmallVector<Value>{
        sumAll(b, loc, losses),
        constant(static_cast<double>(type.getNumElements()))};
  Value weighted = MulOp::create(b, loc, losses, parts.weights);
  return SmallVector<Value>{
      sumAll(b, loc, whereWeighted(b, loc, parts.weights, weighted)),
      MulOp::create(b, loc, sumAll(b, loc, parts.weights),
                    constant(parts.perWeight))};
}

/// Sets the operands' gradients from the losses of the elements and their
/// derivatives by prediction and target.
static LogicalResult
buildElementGradients(OpBuilder &b, Operation *op, const ElementLoss &parts,
                      Value losses, Value byPrediction, Value byTarget,
                      ValueRange resultGrads,
                      SmallVectorImpl<Value> &operandGrads) {
  Location loc = op->getLoc();
  auto toOperand = [&](Value value, Value operand) {
    RankedTensorType type = getTensorType(operand);
    return castTo(b, loc, reshapeTo(b, loc, value, type.getShape()),
                  type.getElementType());
  };
  if (Value g = resultGrads[0]) {
    auto weighted = [&](Value derivative) -> Value {
      if (!parts.weights)
        return MulOp::create(b, loc, derivative, g);
      Value factor = MulOp::create(b, loc, parts.weights, g);
      return whereWeighted(b, loc, parts.weights,
                           MulOp::create(b, loc, derivative, factor));
    };
    operandGrads[0] = toOperand(weighted(byPrediction), op->getOperand(0));
    operandGrads[1] = toOperand(weighted(byTarget), op->getOperand(1));
  }
  if (parts.weights) {
    RankedTensorType type = getTensorType(parts.weights);
    Type compute = type.getElementType();
    Value sum = scalarConstant(b, loc, compute, 0.0);
    if (Value g = resultGrads[1])
      sum = MulOp::create(b, loc, g,
                          scalarConstant(b, loc, compute, parts.perWeight));
    Value byWeight = BroadcastOp::create(b, loc, type, sum);
    if (Value g = resultGrads[0]) {
      Value shared = sumToShape(b, loc, losses, type.getShape());
      byWeight =
          AddOp::create(b, loc, MulOp::create(b, loc, shared, g), byWeight);
    }
    operandGrads[2] = toOperand(byWeight, op->getOperand(2));
  }
  return success();
}

LogicalResult BceWithLogitsOp::inferReturnTypes(MLIRContext *,
                                                std::optional<Location> loc,
                                                Adaptor adaptor,
                                                SmallVectorImpl<Type> &types) {
  return inferElementLoss(loc, getOperationName(), adaptor, types);
}

/// max(x, 0) - x t + log(1 + exp(-|x|)).
static Value buildBceLosses(OpBuilder &b, Location loc,
                            const ElementLoss &parts) {
  RankedTensorType type = getTensorType(parts.prediction);
  Type compute = type.getElementType();
  auto map = MapOp::create(b, loc, TypeRange{type},
                           ValueRange{parts.prediction, parts.targets});
  OpBuilder::InsertionGuard guard(b);
  Block *block =
      b.createBlock(&map.getBody(), {}, {compute, compute}, {loc, loc});
  Value x = block->getArgument(0), t = block->getArgument(1);
  Value positive =
      arith::MaximumFOp::create(b, loc, x, splatConstant(b, loc, compute, 0.0));
  Value linear = arith::SubFOp::create(b, loc, positive,
                                       arith::MulFOp::create(b, loc, x, t));
  Value size = math::AbsFOp::create(b, loc, x);
  Value tail = math::ExpOp::create(b, loc, arith::NegFOp::create(b, loc, size));
  Value loss = arith::AddFOp::create(b, loc, linear,
                                     math::Log1pOp::create(b, loc, tail));
  YieldOp::create(b, loc, TypeRange{}, loss);
  return map.getResult(0);
}

FailureOr<SmallVector<Value>> BceWithLogitsOp::decompose(OpBuilder &b) {
  ElementLoss parts = getParts(b, *this);
  return sumElements(b, getLoc(), parts, buildBceLosses(b, getLoc(), parts));
}

LogicalResult
BceWithLogitsOp::buildGradients(OpBuilder &b, ValueRange resultGrads,
                                SmallVectorImpl<Value> &operandGrads) {
  // By x: sigmoid(x) - t; by t: -x.
  Location loc = getLoc();
  ElementLoss parts = getParts(b, *this);
  Value one = scalarConstant(
      b, loc, getTensorType(parts.prediction).getElementType(), 1.0);
  Value minus = NegOp::create(b, loc, parts.prediction);
  Value sigmoid = DivOp::create(
      b, loc, one, AddOp::create(b, loc, ExpOp::create(b, loc, minus), one));
  return buildElementGradients(b, *this, parts, buildBceLosses(b, loc, parts),
                               SubOp::create(b, loc, sigmoid, parts.targets),
                               minus, resultGrads, operandGrads);
}

LogicalResult MseOp::inferReturnTypes(MLIRContext *,
                                      std::optional<Location> loc,
                                      Adaptor adaptor,
                                      SmallVectorImpl<Type> &types) {
  return inferElementLoss(loc, getOperationName(), adaptor, types);
}

FailureOr<SmallVector<Value>> MseOp::decompose(OpBuilder &b) {
  ElementLoss parts = getParts(b, *this);
  Value error = SubOp::create(b, getLoc(), parts.prediction, parts.targets);
  return sumElements(b, getLoc(), parts,
                     MulOp::create(b, getLoc(), error, error));
}

LogicalResult MseOp::buildGradients(OpBuilder &b, ValueRange resultGrads,
                                    SmallVectorImpl<Value> &operandGrads) {
  Location loc = getLoc();
  ElementLoss parts = getParts(b, *this);
  Value error = SubOp::create(b, loc, parts.prediction, parts.targets);
  Value twice = AddOp::create(b, loc, error, error);
  return buildElementGradients(
      b, *this, parts, MulOp::create(b, loc, error, error), twice,
      NegOp::create(b, loc, twice), resultGrads, operandGrads);
}

//===----------------------------------------------------------------------===//
// How they are done in parts
//===----------------------------------------------------------------------===//

ShardingRule nn::getRowSumRule(Operation *op, unsigned targets) {
  ShardingRule rule(op);
  SmallVector<ShardingRule::Place> rows{rule.in(0, 0)};
  for (unsigned i = targets; i < op->getNumOperands(); ++i)
    rows.push_back(rule.in(i, 0));
  rule.shareDims(FactorKind::Sum, 0,
                 getTensorType(op->getOperand(targets)).getRank(), rows);
  if (targets + 1 < op->getNumOperands())
    rule.weights = targets + 1;
  return rule;
}

ShardingRule CrossEntropyOp::getShardingRule() {
  return getRowSumRule(*this, 1);
}

/// Sums over all elements; weights have the first dimensions.
static ShardingRule getElementSumRule(Operation *op) {
  ShardingRule rule(op);
  for (int64_t dim = 0; dim < getTensorType(op->getOperand(0)).getRank();
       ++dim) {
    SmallVector<ShardingRule::Place> places;
    for (unsigned i = 0; i < op->getNumOperands(); ++i)
      if (dim < getTensorType(op->getOperand(i)).getRank())
        places.push_back(rule.in(i, dim));
    rule.share(FactorKind::Sum, places);
  }
  if (op->getNumOperands() > 2)
    rule.weights = 2;
  return rule;
}

ShardingRule BceWithLogitsOp::getShardingRule() {
  return getElementSumRule(*this);
}
ShardingRule MseOp::getShardingRule() { return getElementSumRule(*this); }
