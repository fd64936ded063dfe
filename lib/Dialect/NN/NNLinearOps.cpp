//===- NNLinearOps.cpp - Products of matrices -----------------------------===//
#include "trainc/Dialect/NN/NNBuilders.h"
#include "trainc/Dialect/NN/NNOps.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::nn;

LogicalResult MatmulOp::inferReturnTypes(MLIRContext *,
                                         std::optional<Location> loc,
                                         Adaptor adaptor,
                                         SmallVectorImpl<Type> &types) {
  RankedTensorType lhs = getTensorType(adaptor.getLhs());
  RankedTensorType rhs = getTensorType(adaptor.getRhs());
  auto error = [&](auto &&...args) {
    return emitOptionalError(loc, "'nn.matmul' op ", args..., ", got ", lhs,
                             " and ", rhs);
  };
  if (lhs.getRank() < 2 || rhs.getRank() < 2 ||
      (rhs.getRank() > 2 &&
       lhs.getShape().drop_back(2) != rhs.getShape().drop_back(2)))
    return error("expects equal batches, or none on the right (C1)");
  auto sizes = [](RankedTensorType type, bool transposed) {
    int64_t rows = type.getDimSize(type.getRank() - 2);
    int64_t columns = type.getDimSize(type.getRank() - 1);
    return transposed ? std::pair(columns, rows) : std::pair(rows, columns);
  };
  auto [m, k] = sizes(lhs, adaptor.getTransposeLhs());
  auto [k2, n] = sizes(rhs, adaptor.getTransposeRhs());
  if (k != k2)
    return error("expects equal contracted sizes (C2)");
  if (lhs.getElementType() != rhs.getElementType())
    return error("expects equal element types (C3)");
  if (Value bias = adaptor.getBias()) {
    auto expected = RankedTensorType::get({n}, lhs.getElementType());
    if (bias.getType() != expected)
      return emitOptionalError(loc, "'nn.matmul' op expects a bias of type ",
                               expected, " (C4), got ", bias.getType());
  }
  SmallVector<int64_t> shape(lhs.getShape().drop_back(2));
  shape.append({m, n});
  types.push_back(RankedTensorType::get(shape, lhs.getElementType()));
  return success();
}

LogicalResult MatmulOp::buildGradients(OpBuilder &b, ValueRange resultGrads,
                                       SmallVectorImpl<Value> &operandGrads) {
  Location loc = getLoc();
  Value g = resultGrads[0];
  bool ta = getTransposeLhs(), tb = getTransposeRhs();
  auto matmul = [&](Value x, bool tx, Value y, bool ty) -> Value {
    return MatmulOp::create(b, loc, x, y, Value(), tx, ty);
  };
  // C = A' B': dA' = G B'^T and dB' = A'^T G, each transposed where the operand
  // was.
  Value lhs = getLhs();
  int64_t rank = getTensorType(lhs).getRank();
  bool sharesRhs = rank > 2 && getTensorType(getRhs()).getRank() == 2;
  if (ta && sharesRhs) {
    // A batch stands on the left only: A' is made first.
    auto order = llvm::to_vector(llvm::seq<int64_t>(0, rank));
    std::swap(order[rank - 2], order[rank - 1]);
    Value dlhs = matmul(g, false, getRhs(), !tb);
    operandGrads[0] = TransposeOp::create(b, loc, dlhs, order);
    lhs = TransposeOp::create(b, loc, lhs, order);
    ta = false;
  } else {
    operandGrads[0] =
        ta ? matmul(getRhs(), tb, g, true) : matmul(g, false, getRhs(), !tb);
  }
  if (sharesRhs) {
    // The batch of the left is summed: it joins the rows.
    auto flatten = [&](Value value) {
      RankedTensorType type = getTensorType(value);
      int64_t columns = type.getShape().back();
      return reshapeTo(b, loc, value,
                       {type.getNumElements() / columns, columns});
    };
    lhs = flatten(lhs);
    g = flatten(g);
  }
  operandGrads[1] = tb ? matmul(g, true, lhs, ta) : matmul(lhs, !ta, g, false);
  if (getBias())
    operandGrads[2] =
        sumToShape(b, loc, resultGrads[0], getTensorType(getBias()).getShape());
  return success();
}

LogicalResult LinearOp::inferReturnTypes(MLIRContext *,
                                         std::optional<Location> loc,
                                         Adaptor adaptor,
                                         SmallVectorImpl<Type> &types) {
  RankedTensorType input = getTensorType(adaptor.getInput());
  RankedTensorType weight = getTensorType(adaptor.getWeight());
  if (input.getRank() < 1 || weight.getRank() != 2 ||
      input.getShape().back() != weight.getDimSize(0))
    return emitOptionalError(loc,
                             "'nn.linear' op expects the input's last size to "
                             "be the weight's first (C1), got ",
                             input, " and ", weight);
  if (Value bias = adaptor.getBias())
    if (getTensorType(bias).getShape() != weight.getShape().drop_front())
      return emitOptionalError(loc, "'nn.linear' op expects a bias of size ",
                               weight.getDimSize(1), " (C2), got ",
                               bias.getType());
  for (Value operand : adaptor.getOperands())
    if (getTensorType(operand).getElementType() != input.getElementType())
      return emitOptionalError(loc,
                               "'nn.linear' op expects equal element types "
                               "(C3), got ",
                               input, " and ", operand.getType());
  SmallVector<int64_t> shape(input.getShape().drop_back());
  shape.push_back(weight.getDimSize(1));
  types.push_back(RankedTensorType::get(shape, input.getElementType()));
  return success();
}

/// `value` as a matrix: all but the last dimension are its rows.
static Value asMatrix(OpBuilder &b, Location loc, Value value) {
  RankedTensorType type = getTensorType(value);
  int64_t columns = type.getShape().back();
  return reshapeTo(b, loc, value, {type.getNumElements() / columns, columns});
}

FailureOr<SmallVector<Value>> LinearOp::decompose(OpBuilder &b) {
  Value product =
      MatmulOp::create(b, getLoc(), asMatrix(b, getLoc(), getInput()),
                       getWeight(), getBias(), false, false);
  return SmallVector<Value>{
      reshapeTo(b, getLoc(), product, getTensorType(getResult()).getShape())};
}

LogicalResult LinearOp::buildGradients(OpBuilder &b, ValueRange resultGrads,
                                       SmallVectorImpl<Value> &operandGrads) {
  Location loc = getLoc();
  Value g = asMatrix(b, loc, resultGrads[0]);
  Value x = asMatrix(b, loc, getInput());
  Value dx = MatmulOp::create(b, loc, g, getWeight(), Value(), false, true);
  operandGrads[0] = reshapeTo(b, loc, dx, getTensorType(getInput()).getShape());
  operandGrads[1] = MatmulOp::create(b, loc, x, g, Value(), true, false);
  if (getBias())
    operandGrads[2] =
        sumToShape(b, loc, resultGrads[0], getTensorType(getBias()).getShape());
  return success();
}

//===----------------------------------------------------------------------===//
// How they are done in parts
//===----------------------------------------------------------------------===//

/// A bias is added once, not by each part of a sum.
static FactorKind contracted(Value bias) {
  return bias ? FactorKind::Whole : FactorKind::Sum;
}

ShardingRule MatmulOp::getShardingRule() {
  ShardingRule rule(*this);
  int64_t rank = getTensorType(getLhs()).getRank();
  int64_t rhsRank = getTensorType(getRhs()).getRank();
  for (int64_t dim = 0; dim < rank - 2; ++dim) {
    SmallVector<ShardingRule::Place> places{rule.out(0, dim), rule.in(0, dim)};
    if (rhsRank > 2)
      places.push_back(rule.in(1, dim));
    rule.share(FactorKind::Parallel, places);
  }
  int64_t tl = getTransposeLhs(), tr = getTransposeRhs();
  rule.share(FactorKind::Parallel,
             {rule.out(0, rank - 2), rule.in(0, rank - 2 + tl)});
  SmallVector<ShardingRule::Place> columns{rule.out(0, rank - 1),
                                           rule.in(1, rhsRank - 1 - tr)};
  if (getBias())
    columns.push_back(rule.in(2, 0));
  rule.share(FactorKind::Parallel, columns);
  rule.share(contracted(getBias()),
             {rule.in(0, rank - 1 - tl), rule.in(1, rhsRank - 2 + tr)});
  if (!getBias())
    rule.linear = {{0}, {1}};
  return rule;
}

ShardingRule LinearOp::getShardingRule() {
  ShardingRule rule(*this);
  int64_t last = getTensorType(getInput()).getRank() - 1;
  rule.shareDims(FactorKind::Parallel, 0, last,
                 {rule.out(0, 0), rule.in(0, 0)});
  SmallVector<ShardingRule::Place> columns{rule.out(0, last), rule.in(1, 1)};
  if (getBias())
    columns.push_back(rule.in(2, 0));
  rule.share(FactorKind::Parallel, columns);
  rule.share(contracted(getBias()), {rule.in(0, last), rule.in(1, 0)});
  if (!getBias())
    rule.linear = {{0}, {1}};
  return rule;
}
