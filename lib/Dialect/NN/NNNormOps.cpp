//===- NNNormOps.cpp - Normalizations and softmax -------------------------===//
#include "trainc/Dialect/NN/NNBuilders.h"
#include "trainc/Dialect/NN/NNOps.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::nn;

//===----------------------------------------------------------------------===//
// Softmax
//===----------------------------------------------------------------------===//

template <typename Op> static LogicalResult verifyDim(Op op) {
  if (op.getDim() >= static_cast<uint64_t>(op.getType().getRank()))
    return op.emitOpError("expects a dim within the rank (C1), got ")
           << static_cast<int64_t>(op.getDim()) << " for " << op.getType();
  return success();
}

LogicalResult LogSoftmaxOp::verify() { return verifyDim(*this); }
LogicalResult SoftmaxOp::verify() { return verifyDim(*this); }

FailureOr<SmallVector<Value>> LogSoftmaxOp::decompose(OpBuilder &b) {
  Location loc = getLoc();
  Type elementType = getType().getElementType();
  int64_t dim = getDim();
  Value x = castTo(b, loc, getInput(), getComputeType(elementType));
  Value m = ReduceOp::create(b, loc, ReduceKind::max, x, dim, true);
  Value z = SubOp::create(b, loc, x, m);
  Value e = ExpOp::create(b, loc, z);
  Value s = ReduceOp::create(b, loc, ReduceKind::sum, e, dim, true);
  Value y = SubOp::create(b, loc, z, LogOp::create(b, loc, s));
  return SmallVector<Value>{castTo(b, loc, y, elementType)};
}

LogicalResult
LogSoftmaxOp::buildGradients(OpBuilder &b, ValueRange resultGrads,
                             SmallVectorImpl<Value> &operandGrads) {
  // dx = g - exp(y) sum g.
  Location loc = getLoc();
  Type elementType = getType().getElementType();
  Type compute = getComputeType(elementType);
  Value g = castTo(b, loc, resultGrads[0], compute);
  Value y = castTo(b, loc, getResult(), compute);
  Value s =
      ReduceOp::create(b, loc, ReduceKind::sum, g, int64_t(getDim()), true);
  Value p = MulOp::create(b, loc, ExpOp::create(b, loc, y), s);
  operandGrads[0] = castTo(b, loc, SubOp::create(b, loc, g, p), elementType);
  return success();
}

FailureOr<SmallVector<Value>> SoftmaxOp::decompose(OpBuilder &b) {
  Location loc = getLoc();
  Type elementType = getType().getElementType();
  int64_t dim = getDim();
  Value x = castTo(b, loc, getInput(), getComputeType(elementType));
  Value m = ReduceOp::create(b, loc, ReduceKind::max, x, dim, true);
  Value e = ExpOp::create(b, loc, SubOp::create(b, loc, x, m));
  Value s = ReduceOp::create(b, loc, ReduceKind::sum, e, dim, true);
  Value y = DivOp::create(b, loc, e, s);
  return SmallVector<Value>{castTo(b, loc, y, elementType)};
}

LogicalResult SoftmaxOp::buildGradients(OpBuilder &b, ValueRange resultGrads,
                                        SmallVectorImpl<Value> &operandGrads) {
  // dx = y (g - sum g y).
  Location loc = getLoc();
  Type elementType = getType().getElementType();
  Type compute = getComputeType(elementType);
  Value g = castTo(b, loc, resultGrads[0], compute);
  Value y = castTo(b, loc, getResult(), compute);
  Value gy = MulOp::create(b, loc, g, y);
  Value s =
      ReduceOp::create(b, loc, ReduceKind::sum, gy, int64_t(getDim()), true);
  Value dx = MulOp::create(b, loc, y, SubOp::create(b, loc, g, s));
  operandGrads[0] = castTo(b, loc, dx, elementType);
  return success();
}

//===----------------------------------------------------------------------===//
// What the normalizations share
//===----------------------------------------------------------------------===//

namespace {
/// A normalization: y = xhat weight + bias, xhat = (x - mean) / sqrt(variance +
/// eps), the statistics taken over `dims` of the input seen in shape `view`.
struct Norm {
  Value input, weight, bias; // bias may be null
  SmallVector<int64_t> view, dims;
  SmallVector<int64_t> paramShape; // broadcasts along the input
  double eps;
  bool centred = true; // else the mean is taken as 0
};

/// The statistics (in the view, reduced dimensions kept as 1) and xhat (in the
/// view), in the compute type.
struct Statistics {
  Value mean, variance, rstd, xhat;
};
} // namespace

static Value meanOver(OpBuilder &b, Location loc, Value x,
                      ArrayRef<int64_t> dims) {
  RankedTensorType type = getTensorType(x);
  double count = 1;
  for (int64_t dim : dims)
    count *= type.getDimSize(dim);
  Value sum = ReduceOp::create(b, loc, ReduceKind::sum, x, dims, true);
  return DivOp::create(b, loc, sum,
                       scalarConstant(b, loc, type.getElementType(), count));
}

/// 1 / sqrt(variance + eps).
static Value reciprocalRoot(OpBuilder &b, Location loc, Value variance,
                            double eps) {
  Type type = getTensorType(variance).getElementType();
  Value sum =
      AddOp::create(b, loc, variance, scalarConstant(b, loc, type, eps));
  return DivOp::create(b, loc, scalarConstant(b, loc, type, 1.0),
                       SqrtOp::create(b, loc, sum));
}

static Type computeTypeOf(Value value) {
  return getComputeType(getTensorType(value).getElementType());
}

static Statistics buildStatistics(OpBuilder &b, Location loc,
                                  const Norm &norm) {
  Value x = castTo(b, loc, norm.input, computeTypeOf(norm.input));
  x = reshapeTo(b, loc, x, norm.view);
  Statistics s;
  if (norm.centred) {
    s.mean = meanOver(b, loc, x, norm.dims);
    x = SubOp::create(b, loc, x, s.mean);
  }
  s.variance = meanOver(b, loc, MulOp::create(b, loc, x, x), norm.dims);
  s.rstd = reciprocalRoot(b, loc, s.variance, norm.eps);
  s.xhat = MulOp::create(b, loc, x, s.rstd);
  return s;
}

/// A per-channel operand, in the compute type and the shape `paramShape`.
static Value asParam(OpBuilder &b, Location loc, Value param, Type compute,
                     ArrayRef<int64_t> paramShape) {
  return reshapeTo(b, loc, castTo(b, loc, param, compute), paramShape);
}

/// xhat weight + bias, in the input's type.
static Value applyAffine(OpBuilder &b, Location loc, const Norm &norm,
                         Value xhat) {
  RankedTensorType type = getTensorType(norm.input);
  Type compute = computeTypeOf(norm.input);
  Value y = reshapeTo(b, loc, xhat, type.getShape());
  y = MulOp::create(b, loc, y,
                    asParam(b, loc, norm.weight, compute, norm.paramShape));
  if (norm.bias)
    y = AddOp::create(b, loc, y,
                      asParam(b, loc, norm.bias, compute, norm.paramShape));
  return castTo(b, loc, y, type.getElementType());
}

/// The gradient of xhat, in the input's shape; sets those of weight and bias.
static Value buildAffineGradients(OpBuilder &b, Location loc, const Norm &norm,
                                  Value xhat, Value grad,
                                  SmallVectorImpl<Value> &operandGrads) {
  Type compute = computeTypeOf(norm.input);
  Value g = castTo(b, loc, grad, compute);
  auto paramGrad = [&](Value param, Value value) {
    RankedTensorType type = getTensorType(param);
    Value sum = sumToShape(b, loc, value, norm.paramShape);
    return castTo(b, loc, reshapeTo(b, loc, sum, type.getShape()),
                  type.getElementType());
  };
  xhat = reshapeTo(b, loc, xhat, getTensorType(norm.input).getShape());
  operandGrads[1] = paramGrad(norm.weight, MulOp::create(b, loc, g, xhat));
  if (norm.bias)
    operandGrads[2] = paramGrad(norm.bias, g);
  return MulOp::create(b, loc, g,
                       asParam(b, loc, norm.weight, compute, norm.paramShape));
}

static FailureOr<SmallVector<Value>> decomposeNorm(OpBuilder &b, Location loc,
                                                   const Norm &norm) {
  return SmallVector<Value>{
      applyAffine(b, loc, norm, buildStatistics(b, loc, norm).xhat)};
}

static LogicalResult buildNormGradients(OpBuilder &b, Location loc,
                                        const Norm &norm, Value grad,
                                        SmallVectorImpl<Value> &operandGrads) {
  // dx = rstd (g - mean(g) - xhat mean(g xhat)), g the gradient of xhat;
  // without mean(g) if x is not centred.
  RankedTensorType type = getTensorType(norm.input);
  Statistics s = buildStatistics(b, loc, norm);
  Value g = buildAffineGradients(b, loc, norm, s.xhat, grad, operandGrads);
  g = reshapeTo(b, loc, g, norm.view);
  Value along = meanOver(b, loc, MulOp::create(b, loc, g, s.xhat), norm.dims);
  Value dx = SubOp::create(b, loc, g, MulOp::create(b, loc, s.xhat, along));
  if (norm.centred)
    dx = SubOp::create(b, loc, dx, meanOver(b, loc, g, norm.dims));
  dx = reshapeTo(b, loc, MulOp::create(b, loc, dx, s.rstd), type.getShape());
  operandGrads[0] = castTo(b, loc, dx, type.getElementType());
  return success();
}

/// Verifies the operands `params`, vectors of `size` (C1) of the input's
/// element type or its compute type (C2), and eps (C3).
static LogicalResult verifyNorm(Operation *op, int64_t size, ValueRange params,
                                const APFloat &eps) {
  Type elementType = getTensorType(op->getOperand(0)).getElementType();
  for (Value param : params) {
    RankedTensorType type = getTensorType(param);
    if (type.getShape() != ArrayRef<int64_t>(size))
      return op->emitOpError("expects parameters of shape [")
             << size << "] (C1), got " << type;
    if (type.getElementType() != elementType &&
        type.getElementType() != getComputeType(elementType))
      return op->emitOpError("expects parameters of the input's element type ")
             << elementType << " or its compute type (C2), got " << type;
  }
  if (!eps.isFinite() || (eps.isNegative() && !eps.isZero()))
    return op->emitOpError(
               "expects eps to be finite and not negative (C3), got ")
           << eps.convertToDouble();
  return success();
}

//===----------------------------------------------------------------------===//
// Layer, RMS and group normalization
//===----------------------------------------------------------------------===//

/// The normalization over the last dimension.
static Norm rowNorm(Value input, Value weight, Value bias, const APFloat &eps) {
  ArrayRef<int64_t> shape = getTensorType(input).getShape();
  return {.input = input,
          .weight = weight,
          .bias = bias,
          .view = llvm::to_vector(shape),
          .dims = {static_cast<int64_t>(shape.size()) - 1},
          .paramShape = {shape.back()},
          .eps = eps.convertToDouble()};
}

static LogicalResult verifyRowNorm(Operation *op, const APFloat &eps) {
  RankedTensorType input = getTensorType(op->getOperand(0));
  if (input.getRank() == 0)
    return op->emitOpError("expects an input with a last dimension (C1), got ")
           << input;
  return verifyNorm(op, input.getShape().back(), op->getOperands().drop_front(),
                    eps);
}

static Norm getNorm(LayerNormOp op) {
  return rowNorm(op.getInput(), op.getWeight(), op.getBias(), op.getEps());
}

static Norm getNorm(RmsNormOp op) {
  Norm norm = rowNorm(op.getInput(), op.getWeight(), Value(), op.getEps());
  norm.centred = false;
  return norm;
}

/// The shape in which a vector of channels broadcasts along [N, C, ...].
static SmallVector<int64_t> channelShape(RankedTensorType input) {
  SmallVector<int64_t> shape(input.getRank() - 1, 1);
  shape[0] = input.getDimSize(1);
  return shape;
}

static Norm getNorm(GroupNormOp op) {
  RankedTensorType input = getTensorType(op.getInput());
  int64_t batch = input.getDimSize(0), groups = op.getGroups();
  return {.input = op.getInput(),
          .weight = op.getWeight(),
          .bias = op.getBias(),
          .view = {batch, groups, input.getNumElements() / (batch * groups)},
          .dims = {2},
          .paramShape = channelShape(input),
          .eps = op.getEps().convertToDouble()};
}

LogicalResult LayerNormOp::verify() { return verifyRowNorm(*this, getEps()); }

LogicalResult RmsNormOp::verify() { return verifyRowNorm(*this, getEps()); }

LogicalResult GroupNormOp::verify() {
  RankedTensorType input = getTensorType(getInput());
  int64_t groups = getGroups();
  if (input.getRank() < 2 || groups <= 0 || input.getDimSize(1) % groups != 0)
    return emitOpError("expects an input [N, C, ...] and groups that divide C "
                       "(C4), got ")
           << input << " and " << groups;
  return verifyNorm(*this, input.getDimSize(1), getOperands().drop_front(),
                    getEps());
}

#define NORM(Op)                                                               \
  FailureOr<SmallVector<Value>> Op::decompose(OpBuilder &b) {                  \
    return decomposeNorm(b, getLoc(), getNorm(*this));                         \
  }                                                                            \
  LogicalResult Op::buildGradients(OpBuilder &b, ValueRange resultGrads,       \
                                   SmallVectorImpl<Value> &operandGrads) {     \
    return buildNormGradients(b, getLoc(), getNorm(*this), resultGrads[0],     \
                              operandGrads);                                   \
  }
NORM(LayerNormOp)
NORM(RmsNormOp)
NORM(GroupNormOp)
#undef NORM

//===----------------------------------------------------------------------===//
// Batch normalization
//===----------------------------------------------------------------------===//

static Norm getNorm(BatchNormOp op) {
  RankedTensorType input = getTensorType(op.getInput());
  SmallVector<int64_t> dims = {0};
  llvm::append_range(dims, llvm::seq<int64_t>(2, input.getRank()));
  return {.input = op.getInput(),
          .weight = op.getWeight(),
          .bias = op.getBias(),
          .view = llvm::to_vector(input.getShape()),
          .dims = dims,
          .paramShape = channelShape(input),
          .eps = op.getEps().convertToDouble()};
}

LogicalResult BatchNormOp::verify() {
  RankedTensorType input = getTensorType(getInput());
  if (input.getRank() < 2)
    return emitOpError("expects an input [N, C, ...] (C4), got ") << input;
  double momentum = getMomentum().convertToDouble();
  if (!(momentum >= 0.0 && momentum <= 1.0))
    return emitOpError("expects momentum in [0, 1] (C5), got ") << momentum;
  int64_t channels = input.getDimSize(1);
  if (getTraining() && input.getNumElements() < 2 * channels)
    return emitOpError("expects at least 2 elements per channel (C6), got ")
           << input;
  return verifyNorm(*this, channels, getOperands().drop_front(), getEps());
}

/// The running statistics as those of `norm`: xhat, and rstd as [C, 1...].
static Statistics runningStatistics(OpBuilder &b, BatchNormOp op,
                                    const Norm &norm) {
  Location loc = op.getLoc();
  Type compute = computeTypeOf(norm.input);
  auto asChannels = [&](Value value) {
    return asParam(b, loc, value, compute, norm.paramShape);
  };
  Statistics s;
  s.mean = asChannels(op.getRunningMean());
  s.variance = asChannels(op.getRunningVar());
  s.rstd = reciprocalRoot(b, loc, s.variance, norm.eps);
  Value x = castTo(b, loc, norm.input, compute);
  s.xhat = MulOp::create(b, loc, SubOp::create(b, loc, x, s.mean), s.rstd);
  return s;
}

FailureOr<SmallVector<Value>> BatchNormOp::decompose(OpBuilder &b) {
  Location loc = getLoc();
  Norm norm = getNorm(*this);
  if (!getTraining()) {
    Value xhat = runningStatistics(b, *this, norm).xhat;
    return SmallVector<Value>{applyAffine(b, loc, norm, xhat), getRunningMean(),
                              getRunningVar()};
  }
  Statistics s = buildStatistics(b, loc, norm);
  Type compute = computeTypeOf(getInput());
  RankedTensorType input = getTensorType(getInput());
  double count = input.getNumElements() / input.getDimSize(1);
  double momentum = getMomentum().convertToDouble();
  // (1 - momentum) running + factor batch
  auto update = [&](Value running, Value batch, double factor) {
    RankedTensorType type = getTensorType(running);
    Value old = MulOp::create(b, loc, castTo(b, loc, running, compute),
                              scalarConstant(b, loc, compute, 1 - momentum));
    Value share =
        MulOp::create(b, loc, reshapeTo(b, loc, batch, type.getShape()),
                      scalarConstant(b, loc, compute, factor));
    return castTo(b, loc, AddOp::create(b, loc, old, share),
                  type.getElementType());
  };
  return SmallVector<Value>{
      applyAffine(b, loc, norm, s.xhat),
      update(getRunningMean(), s.mean, momentum),
      update(getRunningVar(), s.variance, momentum * count / (count - 1))};
}

LogicalResult
BatchNormOp::buildGradients(OpBuilder &b, ValueRange resultGrads,
                            SmallVectorImpl<Value> &operandGrads) {
  if (!resultGrads[0])
    return success();
  Location loc = getLoc();
  Norm norm = getNorm(*this);
  if (getTraining())
    return buildNormGradients(b, loc, norm, resultGrads[0], operandGrads);
  Statistics s = runningStatistics(b, *this, norm);
  Value g =
      buildAffineGradients(b, loc, norm, s.xhat, resultGrads[0], operandGrads);
  operandGrads[0] = castTo(b, loc, MulOp::create(b, loc, g, s.rstd),
                           getTensorType(getInput()).getElementType());
  return success();
}

//===----------------------------------------------------------------------===//
// How they are done in parts
//===----------------------------------------------------------------------===//

/// All dimensions of the only result but `dim`.
static ShardingRule getRuleExcept(Operation *op, int64_t dim) {
  ShardingRule rule(op);
  int64_t rank = getTensorType(op->getResult(0)).getRank();
  for (auto [first, last] : {std::pair(int64_t{0}, dim), {dim + 1, rank}})
    rule.shareDims(FactorKind::Parallel, first, last,
                   {rule.out(0, 0), rule.in(0, 0)});
  return rule;
}

ShardingRule LogSoftmaxOp::getShardingRule() {
  return getRuleExcept(*this, getDim());
}
ShardingRule SoftmaxOp::getShardingRule() {
  return getRuleExcept(*this, getDim());
}
/// Rows of equal numbers have no norm where eps is 0, or so small that it counts as 0.
static ShardingRule forEps(ShardingRule rule, const APFloat &eps) {
  rule.needsEven = eps.convertToDouble() < std::numeric_limits<float>::min();
  return rule;
}

ShardingRule LayerNormOp::getShardingRule() {
  return forEps(getRuleExcept(*this, getTensorType(getInput()).getRank() - 1),
                getEps());
}
ShardingRule RmsNormOp::getShardingRule() {
  return forEps(getRuleExcept(*this, getTensorType(getInput()).getRank() - 1),
                getEps());
}

ShardingRule GroupNormOp::getShardingRule() {
  ShardingRule rule = forEps(ShardingRule(*this), getEps());
  rule.share(FactorKind::Parallel, {rule.out(0, 0), rule.in(0, 0)});
  return rule;
}

ShardingRule BatchNormOp::getShardingRule() {
  // Statistics of the batch need all of it; its decomposition can be done in parts.
  ShardingRule rule = forEps(ShardingRule(*this), getEps());
  SmallVector<ShardingRule::Place> channels{rule.out(0, 1), rule.in(0, 1)};
  for (unsigned i = 1; i < 5; ++i)
    channels.push_back(rule.in(i, 0));
  channels.append({rule.out(1, 0), rule.out(2, 0)});
  rule.share(FactorKind::Parallel, channels);
  if (getTraining())
    return rule;
  for (int64_t dim = 0; dim < getTensorType(getInput()).getRank(); ++dim)
    if (dim != 1)
      rule.share(FactorKind::Parallel, {rule.out(0, dim), rule.in(0, dim)});
  return rule;
}
