//===- NNConvOps.cpp - Convolution of planes ------------------------------===//
//
// A convolution is a product of the weight [O, C KH KW] with the windows of all
// planes [C KH KW, N OH OW] (im2col), for each group; so are its gradients. The
// result [O, N, OH OW] is brought to [N, O, OH OW], which moves whole planes.
//
//===----------------------------------------------------------------------===//
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "trainc/Dialect/NN/NNBuilders.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Dialect/NN/Window.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::nn;

static constexpr int64_t kOnes[] = {1, 1};

//===----------------------------------------------------------------------===//
// Types
//===----------------------------------------------------------------------===//

/// The window of a convolution; (C1) and (C2) are checked.
template <typename OpOrAdaptor>
static FailureOr<Window> convWindow(std::optional<Location> loc, StringRef name,
                                    OpOrAdaptor op, RankedTensorType weight) {
  if (weight.getRank() != 4 || llvm::is_contained(weight.getShape(), 0))
    return emitOptionalError(loc, "'", name,
                             "' op expects a weight of rank 4 without a size "
                             "0 (C1), got ",
                             weight);
  return makeWindow(loc, name, weight.getShape().take_back(2), op.getStrides(),
                    kOnes, op.getPadding(), op.getDilations());
}

/// The result's type, without a look at groups.
template <typename OpOrAdaptor>
static FailureOr<RankedTensorType>
convType(std::optional<Location> loc, StringRef name, OpOrAdaptor op,
         RankedTensorType input, RankedTensorType weight) {
  FailureOr<Window> window = convWindow(loc, name, op, weight);
  if (failed(window))
    return failure();
  FailureOr<Window::Pair> sizes = outputSizes(loc, name, *window, input);
  if (failed(sizes))
    return failure();
  if (input.getElementType() != weight.getElementType())
    return emitOptionalError(loc, "'", name,
                             "' op expects equal element types (C6), got ",
                             input, " and ", weight);
  return input.clone(
      {input.getDimSize(0), weight.getDimSize(0), (*sizes)[0], (*sizes)[1]});
}

static LogicalResult verifyGroups(Operation *op, int64_t groups,
                                  RankedTensorType input,
                                  RankedTensorType weight) {
  int64_t channels = input.getDimSize(1);
  if (groups < 1 || channels % groups != 0 ||
      weight.getDimSize(0) % groups != 0 ||
      weight.getDimSize(1) != channels / groups)
    return op->emitOpError(
               "expects groups that divide the channels and outputs, "
               "and a weight of channels / groups (C4), got groups = ")
           << groups << ", " << input << " and " << weight;
  return success();
}

/// Checks a gradient's types: those of the convolution it belongs to.
template <typename Op>
static LogicalResult verifyGradient(Op op, RankedTensorType input,
                                    RankedTensorType weight) {
  FailureOr<RankedTensorType> type =
      convType(op.getLoc(), op->getName().getStringRef(), op, input, weight);
  if (failed(type) || failed(verifyGroups(op, op.getGroups(), input, weight)))
    return failure();
  if (op.getGrad().getType() != *type)
    return op.emitOpError("expects a grad of type ")
           << *type << " (C1), got " << op.getGrad().getType();
  return success();
}

LogicalResult Conv2dOp::inferReturnTypes(MLIRContext *,
                                         std::optional<Location> loc,
                                         Adaptor adaptor,
                                         SmallVectorImpl<Type> &types) {
  FailureOr<RankedTensorType> type = convType(
      loc, getOperationName(), adaptor, getTensorType(adaptor.getInput()),
      getTensorType(adaptor.getWeight()));
  if (failed(type))
    return failure();
  types.push_back(*type);
  return success();
}

LogicalResult Conv2dOp::verify() {
  RankedTensorType weight = getTensorType(getWeight());
  if (Value bias = getBias()) {
    auto expected =
        RankedTensorType::get(weight.getDimSize(0), weight.getElementType());
    if (getTensorType(bias).getElementType() != weight.getElementType())
      return emitOpError("expects equal element types (C6), got ")
             << bias.getType() << " for " << weight;
    if (bias.getType() != expected)
      return emitOpError("expects a bias of type ")
             << expected << " (C5), got " << bias.getType();
  }
  return verifyGroups(*this, getGroups(), getTensorType(getInput()), weight);
}

LogicalResult Conv2dInputGradOp::verify() {
  return verifyGradient(*this, getTensorType(getResult()),
                        getTensorType(getWeight()));
}

LogicalResult Conv2dWeightGradOp::verify() {
  return verifyGradient(*this, getTensorType(getInput()),
                        getTensorType(getResult()));
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

/// The matrix [rows, rest], or [groups, rows / groups, rest], of `value`.
static Value asMatrices(OpBuilder &b, Location loc, Value value, int64_t groups,
                        int64_t rows) {
  int64_t rest = getTensorType(value).getNumElements() / rows;
  if (groups == 1)
    return reshapeTo(b, loc, value, {rows, rest});
  return reshapeTo(b, loc, value, {groups, rows / groups, rest});
}

/// Exchanges the first two of [A, B, ...], whole planes at a time, in the shape
/// [B, A, plane].
static Value exchange(OpBuilder &b, Location loc, Value value, int64_t first,
                      int64_t second) {
  int64_t plane = getTensorType(value).getNumElements() / (first * second);
  value = reshapeTo(b, loc, value, {first, second, plane});
  if (first == 1 || second == 1)
    return reshapeTo(b, loc, value, {second, first, plane});
  return TransposeOp::create(b, loc, value, ArrayRef<int64_t>{1, 0, 2});
}

/// The grad [N, O, OH, OW] as matrices [O, N OH OW].
static Value gradMatrices(OpBuilder &b, Location loc, Value grad,
                          int64_t groups) {
  RankedTensorType type = getTensorType(grad);
  int64_t outputs = type.getDimSize(1);
  Value exchanged = exchange(b, loc, grad, type.getDimSize(0), outputs);
  return asMatrices(b, loc, exchanged, groups, outputs);
}

FailureOr<SmallVector<Value>> Conv2dOp::decompose(OpBuilder &b) {
  Location loc = getLoc();
  RankedTensorType weight = getTensorType(getWeight());
  RankedTensorType type = getTensorType(getResult());
  int64_t groups = getGroups(), outputs = weight.getDimSize(0);
  if (getBias()) {
    Value result = Conv2dOp::create(b, loc, type, getInput(), getWeight(),
                                    Value(), getStridesAttr(), getPaddingAttr(),
                                    getDilationsAttr(), getGroupsAttr());
    Value bias = reshapeTo(b, loc, getBias(), {outputs, 1, 1});
    return SmallVector<Value>{AddOp::create(b, loc, result, bias)};
  }
  int64_t channels = getTensorType(getInput()).getDimSize(1);
  Value columns =
      Im2colOp::create(b, loc, getInput(), weight.getShape().take_back(2),
                       getStridesAttr(), getPaddingAttr(), getDilationsAttr());
  int64_t rows = channels * weight.getDimSize(2) * weight.getDimSize(3);
  Value product =
      MatmulOp::create(b, loc, asMatrices(b, loc, getWeight(), groups, outputs),
                       asMatrices(b, loc, columns, groups, rows), Value(),
                       /*transpose_lhs=*/false, /*transpose_rhs=*/false);
  Value result = exchange(b, loc, product, outputs, type.getDimSize(0));
  return SmallVector<Value>{reshapeTo(b, loc, result, type.getShape())};
}

FailureOr<SmallVector<Value>> Conv2dInputGradOp::decompose(OpBuilder &b) {
  Location loc = getLoc();
  RankedTensorType weight = getTensorType(getWeight());
  RankedTensorType type = getTensorType(getResult());
  RankedTensorType grad = getTensorType(getGrad());
  int64_t groups = getGroups(), outputs = weight.getDimSize(0);
  Value columns =
      MatmulOp::create(b, loc, asMatrices(b, loc, getWeight(), groups, outputs),
                       gradMatrices(b, loc, getGrad(), groups), Value(),
                       /*transpose_lhs=*/true, /*transpose_rhs=*/false);
  columns =
      reshapeTo(b, loc, columns,
                {type.getDimSize(1), weight.getDimSize(2), weight.getDimSize(3),
                 grad.getDimSize(0), grad.getDimSize(2), grad.getDimSize(3)});
  Value result = Col2imOp::create(b, loc, type, columns, getStridesAttr(),
                                  getPaddingAttr(), getDilationsAttr());
  return SmallVector<Value>{result};
}

/// The gradient of the weight of type `type` as one product: [O, C / groups KH
/// KW], or [groups, O / groups, C / groups KH KW].
template <typename Op>
static Value weightGradProduct(OpBuilder &b, Op op, Value input, Value grad,
                               ArrayRef<int64_t> window, int64_t groups) {
  Location loc = op.getLoc();
  int64_t channels = getTensorType(input).getDimSize(1);
  Value columns = Im2colOp::create(b, loc, input, window, op.getStridesAttr(),
                                   op.getPaddingAttr(), op.getDilationsAttr());
  int64_t rows = channels * window[0] * window[1];
  return MatmulOp::create(b, loc, gradMatrices(b, loc, grad, groups),
                          asMatrices(b, loc, columns, groups, rows), Value(),
                          /*transpose_lhs=*/false, /*transpose_rhs=*/true);
}

FailureOr<SmallVector<Value>> Conv2dWeightGradOp::decompose(OpBuilder &b) {
  Location loc = getLoc();
  RankedTensorType type = getTensorType(getResult());
  ArrayRef<int64_t> window = type.getShape().take_back(2);
  Value product =
      weightGradProduct(b, *this, getInput(), getGrad(), window, getGroups());
  return SmallVector<Value>{reshapeTo(b, loc, product, type.getShape())};
}

LogicalResult Conv2dWeightPartsOp::inferReturnTypes(
    MLIRContext *, std::optional<Location> loc, Adaptor adaptor,
    SmallVectorImpl<Type> &types) {
  RankedTensorType input = getTensorType(adaptor.getInput());
  RankedTensorType grad = getTensorType(adaptor.getGrad());
  FailureOr<Window> window = makeWindow(
      loc, getOperationName(), adaptor.getWindow(), adaptor.getStrides(), kOnes,
      adaptor.getPadding(), adaptor.getDilations());
  if (failed(window))
    return failure();
  FailureOr<Window::Pair> sizes =
      outputSizes(loc, getOperationName(), *window, input);
  if (failed(sizes))
    return failure();
  int64_t outputs = grad.getRank() == 4 ? grad.getDimSize(1) : 1;
  RankedTensorType expected =
      input.clone({input.getDimSize(0), outputs, (*sizes)[0], (*sizes)[1]});
  if (grad != expected || outputs == 0)
    return emitOptionalError(loc, "'", getOperationName(),
                             "' op expects a grad of type ", expected,
                             " (C1), got ", grad);
  int64_t examples = adaptor.getExamples();
  if (examples < 1)
    return emitOptionalError(loc, "'", getOperationName(),
                             "' op expects examples of at least 1 (C4), got ",
                             examples);
  int64_t parts = llvm::divideCeil(input.getDimSize(0), examples);
  types.push_back(input.clone(
      {parts, input.getDimSize(1), window->size[0], window->size[1], outputs}));
  return success();
}

/// Examples from `begin` to `end` of `value`.
static Value sliceExamples(OpBuilder &b, Location loc, Value value,
                           int64_t begin, int64_t end) {
  SmallVector<int64_t> offsets(4, 0), sizes(getTensorType(value).getShape());
  offsets[0] = begin;
  sizes[0] = end - begin;
  return SliceOp::create(b, loc, value, offsets, sizes, DenseI64ArrayAttr());
}

FailureOr<SmallVector<Value>> Conv2dWeightPartsOp::decompose(OpBuilder &b) {
  Location loc = getLoc();
  RankedTensorType type = getTensorType(getResult());
  int64_t batch = getTensorType(getInput()).getDimSize(0);
  SmallVector<int64_t> shape(type.getShape());
  shape[0] = 1;
  SmallVector<Value> parts;
  for (int64_t begin = 0; begin < batch; begin += getExamples()) {
    int64_t end = std::min<int64_t>(batch, begin + getExamples());
    Value product = weightGradProduct(
        b, *this, sliceExamples(b, loc, getInput(), begin, end),
        sliceExamples(b, loc, getGrad(), begin, end), getWindow(),
        /*groups=*/1);
    product = TransposeOp::create(b, loc, product, ArrayRef<int64_t>{1, 0});
    parts.push_back(reshapeTo(b, loc, product, shape));
  }
  if (parts.size() == 1)
    return parts;
  return SmallVector<Value>{ConcatOp::create(b, loc, parts, 0)};
}

LogicalResult Conv2dOp::buildGradients(OpBuilder &b, ValueRange resultGrads,
                                       SmallVectorImpl<Value> &operandGrads) {
  Location loc = getLoc();
  Value g = resultGrads[0];
  operandGrads[0] = Conv2dInputGradOp::create(
      b, loc, getInput().getType(), getWeight(), g, getStridesAttr(),
      getPaddingAttr(), getDilationsAttr(), getGroupsAttr());
  operandGrads[1] = Conv2dWeightGradOp::create(
      b, loc, getWeight().getType(), getInput(), g, getStridesAttr(),
      getPaddingAttr(), getDilationsAttr(), getGroupsAttr());
  if (getBias())
    operandGrads[2] =
        ReduceOp::create(b, loc, ReduceKind::sum, g, ArrayRef<int64_t>{0, 2, 3},
                         /*keep=*/false);
  return success();
}

//===----------------------------------------------------------------------===//
// Windows to columns and back
//===----------------------------------------------------------------------===//

template <typename OpOrAdaptor>
static FailureOr<Window> columnWindow(std::optional<Location> loc,
                                      StringRef name, OpOrAdaptor op,
                                      ArrayRef<int64_t> size) {
  return makeWindow(loc, name, size, op.getStrides(), kOnes, op.getPadding(),
                    op.getDilations());
}

static FailureOr<RankedTensorType> columnType(std::optional<Location> loc,
                                              StringRef name,
                                              const Window &window,
                                              RankedTensorType input) {
  FailureOr<Window::Pair> sizes = outputSizes(loc, name, window, input);
  if (failed(sizes))
    return failure();
  return input.clone({input.getDimSize(1), window.size[0], window.size[1],
                      input.getDimSize(0), (*sizes)[0], (*sizes)[1]});
}

LogicalResult Im2colOp::inferReturnTypes(MLIRContext *,
                                         std::optional<Location> loc,
                                         Adaptor adaptor,
                                         SmallVectorImpl<Type> &types) {
  FailureOr<Window> window =
      columnWindow(loc, getOperationName(), adaptor, adaptor.getWindow());
  if (failed(window))
    return failure();
  FailureOr<RankedTensorType> type = columnType(
      loc, getOperationName(), *window, getTensorType(adaptor.getInput()));
  if (failed(type))
    return failure();
  types.push_back(*type);
  return success();
}

FailureOr<SmallVector<Value>> Im2colOp::decompose(OpBuilder &b) {
  FailureOr<Window> window =
      columnWindow(getLoc(), getOperationName(), *this, getWindow());
  if (failed(window))
    return failure();
  RankedTensorType input = getTensorType(getInput());
  return buildElements(
      b, getLoc(), getResult().getType(),
      [&](ImplicitLocOpBuilder &b, ValueRange at) -> SmallVector<Value> {
        Place h = inputPlace(b, *window, 0, at[4], at[1], input.getDimSize(2));
        Place w = inputPlace(b, *window, 1, at[5], at[2], input.getDimSize(3));
        return {loadOrZero(b, getInput(), {at[3], at[0], h.index, w.index},
                           bothValid(b, h, w))};
      });
}

LogicalResult Col2imOp::verify() {
  RankedTensorType columns = getTensorType(getColumns());
  if (columns.getRank() != 6)
    return emitOpError("expects columns of rank 6 (C1), got ") << columns;
  FailureOr<Window> window = columnWindow(getLoc(), getOperationName(), *this,
                                          columns.getShape().slice(1, 2));
  if (failed(window))
    return failure();
  FailureOr<RankedTensorType> type = columnType(
      getLoc(), getOperationName(), *window, getTensorType(getResult()));
  if (failed(type))
    return failure();
  if (columns != *type)
    return emitOpError("expects columns of type ")
           << *type << " (C1), got " << columns;
  return success();
}

FailureOr<SmallVector<Value>> Col2imOp::decompose(OpBuilder &b) {
  RankedTensorType columns = getTensorType(getColumns());
  FailureOr<Window> window = columnWindow(getLoc(), getOperationName(), *this,
                                          columns.getShape().slice(1, 2));
  if (failed(window))
    return failure();
  Type compute = getComputeType(columns.getElementType());
  return buildElements(
      b, getLoc(), getResult().getType(),
      [&](ImplicitLocOpBuilder &b, ValueRange at) {
        Value zero = splatConstant(b, b.getLoc(), compute, 0.0);
        return loopOverWindow(
            b, *window, zero,
            [&](ImplicitLocOpBuilder &b, Value i, Value j,
                ValueRange sums) -> SmallVector<Value> {
              Place p =
                  outputPlace(b, *window, 0, at[2], i, columns.getDimSize(4));
              Place q =
                  outputPlace(b, *window, 1, at[3], j, columns.getDimSize(5));
              Value element = loadOrZero(b, getColumns(),
                                         {at[1], i, j, at[0], p.index, q.index},
                                         bothValid(b, p, q));
              return {arith::AddFOp::create(b, sums[0], element)};
            });
      });
}

//===----------------------------------------------------------------------===//
// How they are done in parts
//===----------------------------------------------------------------------===//

ShardingRule Conv2dOp::getShardingRule() {
  ShardingRule rule(*this);
  rule.share(FactorKind::Parallel, {rule.out(0, 0), rule.in(0, 0)});
  if (!getBias())
    rule.linear = {{0}, {1}};
  if (getGroups() != 1)
    return rule;
  SmallVector<ShardingRule::Place> outputs{rule.out(0, 1), rule.in(1, 0)};
  if (getBias())
    outputs.push_back(rule.in(2, 0));
  rule.share(FactorKind::Parallel, outputs);
  // A bias is added once, not by each part of a sum.
  rule.share(getBias() ? FactorKind::Whole : FactorKind::Sum,
             {rule.in(0, 1), rule.in(1, 1)});
  return rule;
}

ShardingRule Conv2dInputGradOp::getShardingRule() {
  ShardingRule rule(*this);
  rule.share(FactorKind::Parallel, {rule.out(0, 0), rule.in(1, 0)});
  rule.linear = {{0}, {1}};
  return rule;
}

ShardingRule Conv2dWeightGradOp::getShardingRule() {
  ShardingRule rule(*this);
  rule.share(FactorKind::Sum, {rule.in(0, 0), rule.in(1, 0)});
  rule.linear = {{0}, {1}};
  return rule;
}

ShardingRule Im2colOp::getShardingRule() {
  ShardingRule rule(*this);
  rule.share(FactorKind::Parallel, {rule.out(0, 0), rule.in(0, 1)});
  rule.share(FactorKind::Parallel, {rule.out(0, 3), rule.in(0, 0)});
  rule.linear = {{0}};
  return rule;
}

ShardingRule Col2imOp::getShardingRule() {
  ShardingRule rule(*this);
  rule.share(FactorKind::Parallel, {rule.out(0, 1), rule.in(0, 0)});
  rule.share(FactorKind::Parallel, {rule.out(0, 0), rule.in(0, 3)});
  rule.linear = {{0}};
  return rule;
}
