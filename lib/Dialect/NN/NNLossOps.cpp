//===- NNLossOps.cpp - Losses ---------------------------------------------===//
#include "trainc/Dialect/NN/NNOps.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::nn;

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
  double smoothing = getLabelSmoothing().convertToDouble();
  if (!(smoothing >= 0.0 && smoothing < 1.0))
    return emitOpError("expects label_smoothing in [0, 1) (C3), got ")
           << smoothing;
  return success();
}

namespace {
/// What the definition and the gradient share: per row, in the compute type.
struct CrossEntropyParts {
  Value logProbabilities; // [..., classes]
  Value isTarget;         // [..., classes], i1
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
  Value targets = reshapeTo(b, loc, op.getTargets(), kept);
  SmallVector<int64_t> iotaShape(logits.getRank(), 1);
  iotaShape[last] = logits.getShape()[last];
  Value classes = IotaOp::create(
      b, loc, RankedTensorType::get(iotaShape, indexType), uint64_t(last));
  parts.isTarget =
      CompareOp::create(b, loc, CompareKind::eq, classes, targets);
  Value ignore = scalarConstant(b, loc, indexType, op.getIgnoreIndex());
  Value counts =
      CompareOp::create(b, loc, CompareKind::ne, targets, ignore);
  Value zero = scalarConstant(b, loc, compute, 0.0);
  Value weight = op.getWeights()
                     ? castTo(b, loc, reshapeTo(b, loc, op.getWeights(), kept),
                              compute)
                     : scalarConstant(b, loc, compute, 1.0);
  parts.weight = SelectOp::create(b, loc, counts, weight, zero);
  return parts;
}

FailureOr<SmallVector<Value>> CrossEntropyOp::decompose(OpBuilder &b) {
  Location loc = getLoc();
  RankedTensorType logits = getTensorType(getLogits());
  Type compute = getComputeType(logits.getElementType());
  int64_t last = logits.getRank() - 1;
  CrossEntropyParts parts = buildParts(b, *this);
  Value zero = scalarConstant(b, loc, compute, 0.0);
  Value picked =
      SelectOp::create(b, loc, parts.isTarget, parts.logProbabilities, zero);
  Value row = ReduceOp::create(b, loc, ReduceKind::sum, picked, last, true);
  double smoothing = getLabelSmoothing().convertToDouble();
  if (smoothing != 0.0) {
    Value sum = ReduceOp::create(b, loc, ReduceKind::sum,
                                 parts.logProbabilities, last, true);
    double classes = logits.getShape()[last];
    row = AddOp::create(
        b, loc,
        MulOp::create(b, loc, row, scalarConstant(b, loc, compute, 1 - smoothing)),
        MulOp::create(b, loc, sum,
                      scalarConstant(b, loc, compute, smoothing / classes)));
  }
  // A row that counts nothing must not add 0 x inf.
  Value counts = CompareOp::create(b, loc, CompareKind::ne, parts.weight, zero);
  Value weighted = MulOp::create(b, loc, NegOp::create(b, loc, row), parts.weight);
  Value loss = SelectOp::create(b, loc, counts, weighted, zero);
  SmallVector<int64_t> dims = llvm::to_vector(llvm::seq<int64_t>(0, last + 1));
  auto sum = [&](Value value) -> Value {
    return ReduceOp::create(b, loc, ReduceKind::sum, value, dims, false);
  };
  return SmallVector<Value>{sum(loss), sum(parts.weight)};
}

LogicalResult
CrossEntropyOp::buildGradients(OpBuilder &b, ValueRange resultGrads,
                               SmallVectorImpl<Value> &operandGrads) {
  // d loss / d logits = w (softmax - (1 - s) onehot - s / classes); with the
  // smoothed targets summing to 1. Weights: the row's loss.
  if (!resultGrads[0])
    return success();
  Location loc = getLoc();
  RankedTensorType logits = getTensorType(getLogits());
  Type compute = getComputeType(logits.getElementType());
  double classes = logits.getShape().back();
  double smoothing = getLabelSmoothing().convertToDouble();
  CrossEntropyParts parts = buildParts(b, *this);
  auto constant = [&](double value) {
    return scalarConstant(b, loc, compute, value);
  };
  Value target = SelectOp::create(b, loc, parts.isTarget,
                                  constant(1 - smoothing + smoothing / classes),
                                  constant(smoothing / classes));
  Value softmax = ExpOp::create(b, loc, parts.logProbabilities);
  Value factor = MulOp::create(b, loc, parts.weight, resultGrads[0]);
  Value dx = MulOp::create(b, loc, SubOp::create(b, loc, softmax, target), factor);
  // Ignored rows are 0 even where the logits are not finite.
  Value zero = constant(0.0);
  Value counts = CompareOp::create(b, loc, CompareKind::ne, parts.weight, zero);
  dx = SelectOp::create(b, loc, counts, dx, zero);
  operandGrads[0] = castTo(b, loc, dx, logits.getElementType());
  if (getWeights()) {
    Value logProbability =
        MulOp::create(b, loc, target, parts.logProbabilities);
    Value row = ReduceOp::create(b, loc, ReduceKind::sum, logProbability,
                                 logits.getRank() - 1, false);
    Value g = MulOp::create(b, loc, NegOp::create(b, loc, row), resultGrads[0]);
    if (resultGrads[1])
      g = AddOp::create(b, loc, g, resultGrads[1]);
    operandGrads[2] =
        castTo(b, loc, g, getTensorType(getWeights()).getElementType());
  }
  return success();
}
