//===- NNShapeOps.cpp - Constants and changes of shape --------------------===//
#include "View.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/IndexingUtils.h"
#include "trainc/Dialect/NN/NNBuilders.h"
#include "trainc/Dialect/NN/NNOps.h"
#include <numeric>

using namespace mlir;
using namespace trainc;
using namespace trainc::nn;

LogicalResult ConstantOp::verify() {
  if (!isElements(getValue()))
    return emitOpError("expects the bytes of all its elements (C1), got ")
           << getValue();
  return success();
}

OpFoldResult ConstantOp::fold(FoldAdaptor) { return getValue(); }

LogicalResult IotaOp::verify() {
  if (getDim() >= static_cast<uint64_t>(getType().getRank()))
    return emitOpError("expects a dim within the rank (C1), got ")
           << static_cast<int64_t>(getDim()) << " for " << getType();
  return success();
}

LogicalResult ReshapeOp::verify() {
  auto from = getTensorType(getInput()), to = getTensorType(getResult());
  if (from.getElementType() != to.getElementType() ||
      from.getNumElements() != to.getNumElements())
    return emitOpError("expects equal element types and numbers of elements "
                       "(C1), got ")
           << from << " and " << to;
  return success();
}

OpFoldResult ReshapeOp::fold(FoldAdaptor adaptor) {
  if (auto value = dyn_cast_if_present<DenseElementsAttr>(adaptor.getInput()))
    return value.reshape(cast<ShapedType>(getResult().getType()));
  if (auto producer = getInput().getDefiningOp<ReshapeOp>()) {
    getInputMutable().assign(producer.getInput());
    return getResult();
  }
  if (getInput().getType() == getResult().getType())
    return getInput();
  return {};
}

LogicalResult ReshapeOp::buildGradients(OpBuilder &b, ValueRange resultGrads,
                                        SmallVectorImpl<Value> &operandGrads) {
  RankedTensorType input = getTensorType(getInput());
  if (isa<FloatType>(input.getElementType()))
    operandGrads[0] = reshapeTo(b, getLoc(), resultGrads[0], input.getShape());
  return success();
}

LogicalResult TransposeOp::inferReturnTypes(MLIRContext *,
                                            std::optional<Location> loc,
                                            Adaptor adaptor,
                                            SmallVectorImpl<Type> &types) {
  RankedTensorType input = getTensorType(adaptor.getInput());
  ArrayRef<int64_t> permutation = adaptor.getPermutation();
  if (static_cast<int64_t>(permutation.size()) != input.getRank() ||
      !isPermutationVector(permutation))
    return emitOptionalError(loc,
                             "'nn.transpose' op expects a permutation of the "
                             "dimensions (C1), got [",
                             permutation, "] for ", input);
  SmallVector<int64_t> shape;
  for (int64_t dim : permutation)
    shape.push_back(input.getDimSize(dim));
  types.push_back(RankedTensorType::get(shape, input.getElementType()));
  return success();
}

LogicalResult
TransposeOp::buildGradients(OpBuilder &b, ValueRange resultGrads,
                            SmallVectorImpl<Value> &operandGrads) {
  if (isa<FloatType>(getTensorType(getInput()).getElementType()))
    operandGrads[0] = TransposeOp::create(
        b, getLoc(), resultGrads[0], invertPermutationVector(getPermutation()));
  return success();
}

FailureOr<SmallVector<Value>> TransposeOp::decompose(OpBuilder &b) {
  auto type = getTensorType(getResult());
  Value empty = tensor::EmptyOp::create(b, getLoc(), type.getShape(),
                                        type.getElementType());
  auto op = linalg::TransposeOp::create(b, getLoc(), getInput(), empty,
                                        getPermutation());
  return SmallVector<Value>{op->getResult(0)};
}

OpFoldResult TransposeOp::fold(FoldAdaptor) {
  if (auto producer = getInput().getDefiningOp<TransposeOp>()) {
    SmallVector<int64_t> permutation;
    for (int64_t dim : getPermutation())
      permutation.push_back(producer.getPermutation()[dim]);
    setPermutation(permutation);
    getInputMutable().assign(producer.getInput());
    return getResult();
  }
  if (isIdentityPermutation(getPermutation()))
    return getInput();
  return {};
}

/// The rows of a product are independent of each other: a transpose of them that undoes
/// one of the operand's rows leaves the product of the rows as they were.
static LogicalResult multiplyInOrder(TransposeOp op, PatternRewriter &b) {
  Value value = op.getInput();
  while (value.hasOneUse() && value.getDefiningOp<ReshapeOp>())
    value = value.getDefiningOp<ReshapeOp>().getInput();
  auto product = value.getDefiningOp<MatmulOp>();
  if (!product || !value.hasOneUse() || product.getTransposeLhs() ||
      getTensorType(product.getRhs()).getRank() != 2)
    return failure();
  ArrayRef<int64_t> permutation = op.getPermutation();
  int64_t columns = getTensorType(value).getShape().back();
  int64_t last = static_cast<int64_t>(permutation.size()) - 1;
  ArrayRef<int64_t> from = getTensorType(op.getInput()).getShape();
  if (permutation.back() != last || from.back() != columns)
    return failure();
  SmallVector<int64_t> shape(from);
  shape.back() = getTensorType(product.getLhs()).getShape().back();
  View rows = permute(viewOf(product.getLhs(), shape), permutation);
  if (!rows.isWhole())
    return failure();
  Value lhs =
      reshapeTo(b, op.getLoc(), rows.source,
                applyPermutation(ArrayRef<int64_t>(shape), permutation));
  b.replaceOpWithNewOp<MatmulOp>(op, lhs, product.getRhs(), product.getBias(),
                                 /*transpose_lhs=*/false,
                                 product.getTransposeRhs());
  return success();
}

LogicalResult TransposeOp::canonicalize(TransposeOp op, PatternRewriter &b) {
  View view = viewOf(op);
  if (!view.isWhole())
    return multiplyInOrder(op, b);
  b.replaceOp(
      op, reshapeTo(b, op.getLoc(), view.source, getTensorType(op).getShape()));
  return success();
}

//===----------------------------------------------------------------------===//
// How they are done in parts
//===----------------------------------------------------------------------===//

ShardingRule ReshapeOp::getShardingRule() {
  ShardingRule rule(*this);
  rule.linear = {{0}};
  ArrayRef<int64_t> from = getTensorType(getInput()).getShape();
  ArrayRef<int64_t> to = getTensorType(getResult()).getShape();
  // What is left of dimension i - 1 of the input and j - 1 of the result: the number
  // of elements after it and what is left of it are equal on both sides.
  size_t i = 0, j = 0;
  int64_t left = 1, right = 1;
  while (true) {
    while (left == 1 && i < from.size())
      left = from[i++];
    while (right == 1 && j < to.size())
      right = to[j++];
    if (left == 1)
      return rule;
    auto in = rule.in(0, i - 1), out = rule.out(0, j - 1);
    int64_t common = std::gcd(left, right);
    if (common > 1) {
      rule.share(FactorKind::Parallel, {in, out}, common);
      left /= common;
      right /= common;
      continue;
    }
    // Nothing is shared before both sides end at one element.
    rule.share(FactorKind::Whole, in, left);
    rule.share(FactorKind::Whole, out, right);
    while (left != right)
      if (left < right) {
        rule.share(FactorKind::Whole, rule.in(0, i));
        left *= from[i++];
      } else {
        rule.share(FactorKind::Whole, rule.out(0, j));
        right *= to[j++];
      }
    left = right = 1;
  }
}

ShardingRule TransposeOp::getShardingRule() {
  ShardingRule rule(*this);
  for (auto [to, from] : llvm::enumerate(getPermutation()))
    rule.share(FactorKind::Parallel,
               {rule.out(0, static_cast<int64_t>(to)), rule.in(0, from)});
  rule.linear = {{0}};
  return rule;
}
