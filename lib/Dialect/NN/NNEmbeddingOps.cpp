//===- NNEmbeddingOps.cpp - Table lookup and positions --------------------===//
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "trainc/Dialect/NN/NNBuilders.h"
#include "trainc/Dialect/NN/NNOps.h"
#include <cmath>

using namespace mlir;
using namespace trainc;
using namespace trainc::nn;

//===----------------------------------------------------------------------===//
// Embedding
//===----------------------------------------------------------------------===//

Value nn::idAsRow(OpBuilder &b, Location loc, Value id, int64_t rows,
                  Value first) {
  auto index = [&](int64_t value) -> Value {
    return arith::ConstantIndexOp::create(b, loc, value);
  };
  id = arith::IndexCastOp::create(b, loc, b.getIndexType(), id);
  id = arith::MaxSIOp::create(b, loc, id, index(0));
  id = arith::MinSIOp::create(b, loc, id, index(rows - 1));
  if (!first)
    return id;
  first = arith::IndexCastOp::create(b, loc, b.getIndexType(), first);
  return arith::SubIOp::create(b, loc, id, first);
}

Value nn::isRow(OpBuilder &b, Location loc, Value row, int64_t rows) {
  Value count = arith::ConstantIndexOp::create(b, loc, rows);
  return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, row, count);
}

/// The row where a part of a table begins, outside of loops; null without one.
static Value extractFirst(OpBuilder &b, Location loc, Value first) {
  return first ? tensor::ExtractOp::create(b, loc, first, ValueRange())
                     .getResult()
               : Value();
}

LogicalResult EmbeddingOp::inferReturnTypes(MLIRContext *,
                                            std::optional<Location> loc,
                                            Adaptor adaptor,
                                            SmallVectorImpl<Type> &types) {
  RankedTensorType table = getTensorType(adaptor.getTable());
  if (table.getRank() != 2 || table.getDimSize(0) == 0)
    return emitOptionalError(
        loc, "'nn.embedding' op expects a table of rank 2 with rows (C1), got ",
        table);
  SmallVector<int64_t> shape(getTensorType(adaptor.getIds()).getShape());
  shape.push_back(table.getDimSize(1));
  types.push_back(RankedTensorType::get(shape, table.getElementType()));
  return success();
}

FailureOr<SmallVector<Value>> EmbeddingOp::decompose(OpBuilder &b) {
  Location loc = getLoc();
  auto type = getTensorType(getResult());
  int64_t rank = type.getRank();
  AffineMap identity = b.getMultiDimIdentityMap(rank);
  AffineMap rows = AffineMap::get(rank, 0, identity.getResults().drop_back(),
                                  b.getContext());
  Value empty =
      tensor::EmptyOp::create(b, loc, type.getShape(), type.getElementType());
  Value first = extractFirst(b, loc, getFirst());
  int64_t own = getTensorType(getTable()).getDimSize(0);
  SmallVector<utils::IteratorType> loops(rank, utils::IteratorType::parallel);
  auto readElement = [&](OpBuilder &b, Location loc, ValueRange args) {
    Value row = idAsRow(b, loc, args[0], countRows(), first), isOwn;
    if (first) {
      isOwn = isRow(b, loc, row, own);
      Value zero = arith::ConstantIndexOp::create(b, loc, 0);
      row = arith::SelectOp::create(b, loc, isOwn, row, zero);
    }
    Value column = linalg::IndexOp::create(b, loc, rank - 1);
    Value element =
        tensor::ExtractOp::create(b, loc, getTable(), ValueRange{row, column});
    if (isOwn)
      element = arith::SelectOp::create(
          b, loc, isOwn, element,
          splatConstant(b, loc, type.getElementType(), 0.0));
    linalg::YieldOp::create(b, loc, element);
  };
  auto lookup =
      linalg::GenericOp::create(b, loc, type, getIds(), empty,
                                ArrayRef{rows, identity}, loops, readElement);
  return SmallVector<Value>{lookup.getResult(0)};
}

LogicalResult
EmbeddingOp::buildGradients(OpBuilder &b, ValueRange resultGrads,
                            SmallVectorImpl<Value> &operandGrads) {
  // In the compute type: the sum of bf16 and f16 then needs no room of its own.
  RankedTensorType table = getTensorType(getTable());
  Type element = table.getElementType(), compute = getComputeType(element);
  Value sum =
      EmbeddingGradOp::create(b, getLoc(), table.clone(compute), getIds(),
                              castTo(b, getLoc(), resultGrads[0], compute),
                              /*init=*/Value(), getFirst(), getRowsAttr());
  operandGrads[0] = castTo(b, getLoc(), sum, element);
  return success();
}

Value nn::addTo(OpBuilder &b, Location loc, Value sum, Value value) {
  auto embedding = value.getDefiningOp<EmbeddingGradOp>();
  if (!embedding || !value.use_empty() || value.getType() != sum.getType())
    return AddOp::create(b, loc, sum, value);
  Type type = value.getType();
  Value ids = embedding.getIds(), grad = embedding.getGrad(),
        init = embedding.getInit(), first = embedding.getFirst();
  IntegerAttr rows = embedding.getRowsAttr();
  Location embeddingLoc = embedding.getLoc();
  embedding.erase();
  if (init)
    sum = addTo(b, loc, sum, init);
  return EmbeddingGradOp::create(b, embeddingLoc, type, ids, grad, sum, first,
                                 rows);
}

/// Of a part of a table: where it begins, and of how many rows it is.
template <typename Op> static LogicalResult verifyRows(Op op, StringRef tag) {
  if (op.getRows().has_value() != static_cast<bool>(op.getFirst()))
    return op.emitOpError("expects rows with first, and only then (")
           << tag << ")";
  if (op.getFirst() && op.countRows() < 1)
    return op.emitOpError("expects a table of at least one row (")
           << tag << "), got " << op.countRows();
  return success();
}

LogicalResult EmbeddingOp::verify() { return verifyRows(*this, "C2"); }

LogicalResult EmbeddingGradOp::verify() {
  if (failed(verifyRows(*this, "C4")))
    return failure();
  RankedTensorType ids = getTensorType(getIds()),
                   grad = getTensorType(getGrad()),
                   result = getTensorType(getResult());
  if (result.getRank() != 2 || result.getDimSize(0) == 0 ||
      result.getElementType() != grad.getElementType())
    return emitOpError("expects a result of rank 2 with rows and the grad's "
                       "element type (C2), got ")
           << result << " for " << grad;
  SmallVector<int64_t> shape(ids.getShape());
  shape.push_back(result.getDimSize(1));
  if (grad.getShape() != ArrayRef<int64_t>(shape))
    return emitOpError("expects a grad of the ids' shape and the result's last "
                       "size (C1), got ")
           << grad << " for " << ids << " and " << result;
  if (getInit() && getInit().getType() != getResult().getType())
    return emitOpError("expects an init of the result's type (C3), got ")
           << getInit().getType() << " for " << result;
  return success();
}

FailureOr<SmallVector<Value>> EmbeddingGradOp::decompose(OpBuilder &b) {
  Location loc = getLoc();
  auto type = getTensorType(getResult());
  Type elementType = type.getElementType();
  Type compute = getComputeType(elementType);
  int64_t columns = type.getDimSize(1);
  int64_t count = getTensorType(getIds()).getNumElements();
  Value ids = reshapeTo(b, loc, getIds(), {count});
  Value grad = castTo(b, loc, getGrad(), compute);
  grad = reshapeTo(b, loc, grad, {count, columns});

  auto index = [&](int64_t value) -> Value {
    return arith::ConstantIndexOp::create(b, loc, value);
  };
  Value initial;
  if (getInit()) {
    initial = castTo(b, loc, getInit(), compute);
  } else {
    Value empty = tensor::EmptyOp::create(b, loc, type.getShape(), compute);
    Value zero = splatConstant(b, loc, compute, 0.0);
    initial = linalg::FillOp::create(b, loc, zero, empty).getResult(0);
  }
  Value first = extractFirst(b, loc, getFirst());
  int64_t own = type.getDimSize(0);
  SmallVector<OpFoldResult> sizes =
      getAsIndexOpFoldResult(b.getContext(), {1, columns});
  SmallVector<OpFoldResult> strides =
      getAsIndexOpFoldResult(b.getContext(), {1, 1});
  auto addRow = [&](OpBuilder &b, Location loc, Value i, ValueRange sums) {
    Value id = tensor::ExtractOp::create(b, loc, ids, i);
    id = idAsRow(b, loc, id, countRows(), first);
    Value isOwn;
    if (first) {
      isOwn = isRow(b, loc, id, own);
      id = arith::SelectOp::create(b, loc, isOwn, id, index(0));
    }
    SmallVector<OpFoldResult> from = {i, b.getIndexAttr(0)},
                              to = {id, b.getIndexAttr(0)};
    Value row =
        tensor::ExtractSliceOp::create(b, loc, grad, from, sizes, strides);
    Value sum =
        tensor::ExtractSliceOp::create(b, loc, sums[0], to, sizes, strides);
    SmallVector<AffineMap> maps(2, b.getMultiDimIdentityMap(2));
    SmallVector<utils::IteratorType> loops(2, utils::IteratorType::parallel);
    auto add = [&](OpBuilder &b, Location loc, ValueRange args) {
      Value value = arith::AddFOp::create(b, loc, args[1], args[0]);
      if (isOwn)
        value = arith::SelectOp::create(b, loc, isOwn, value, args[1]);
      linalg::YieldOp::create(b, loc, value);
    };
    auto added = linalg::GenericOp::create(b, loc, sum.getType(), row, sum,
                                           maps, loops, add);
    Value updated = tensor::InsertSliceOp::create(b, loc, added.getResult(0),
                                                  sums[0], to, sizes, strides);
    scf::YieldOp::create(b, loc, updated);
  };
  auto loop = scf::ForOp::create(b, loc, index(0), index(count), index(1),
                                 initial, addRow);
  return SmallVector<Value>{castTo(b, loc, loop.getResult(0), elementType)};
}

//===----------------------------------------------------------------------===//
// Rotary
//===----------------------------------------------------------------------===//

LogicalResult RotaryOp::verify() {
  if (getType().getRank() != 4 || getType().getShape().back() % 2 != 0)
    return emitOpError("expects an input [B, T, H, D] with even D (C1), got ")
           << getType();
  double theta = getTheta().convertToDouble();
  if (!std::isfinite(theta) || theta <= 0.0)
    return emitOpError("expects theta to be finite and above 0 (C2), got ")
           << theta;
  return success();
}

/// cos and sin of the angles, [T, D/2] of the compute type.
static ValueRange buildRotations(OpBuilder &b, RotaryOp op) {
  Location loc = op.getLoc();
  int64_t length = op.getType().getDimSize(1);
  int64_t half = op.getType().getDimSize(3) / 2;
  Type f64 = b.getF64Type();
  Type compute = getComputeType(op.getType().getElementType());
  Value position = IotaOp::create(
      b, loc, RankedTensorType::get({length, 1}, f64), uint64_t(0));
  Value pair = IotaOp::create(b, loc, RankedTensorType::get({1, half}, f64),
                              uint64_t(1));
  auto type = RankedTensorType::get({length, half}, compute);
  auto map =
      MapOp::create(b, loc, TypeRange{type, type}, ValueRange{position, pair});
  OpBuilder::InsertionGuard guard(b);
  Block *block = b.createBlock(&map.getBody(), {}, {f64, f64}, {loc, loc});
  auto constant = [&](double value) {
    return splatConstant(b, loc, f64, value);
  };
  // theta^(-i / half) = exp(-i log(theta) / half)
  double theta = op.getTheta().convertToDouble();
  Value exponent = arith::MulFOp::create(b, loc, block->getArgument(1),
                                         constant(-std::log(theta) / half));
  Value shifted = arith::AddFOp::create(
      b, loc, block->getArgument(0),
      constant(static_cast<double>(static_cast<int64_t>(op.getOffset()))));
  Value angle = arith::MulFOp::create(b, loc, shifted,
                                      math::ExpOp::create(b, loc, exponent));
  auto rounded = [&](Value value) -> Value {
    if (compute == f64)
      return value;
    return arith::TruncFOp::create(b, loc, compute, value);
  };
  Value cos = rounded(math::CosOp::create(b, loc, angle));
  Value sin = rounded(math::SinOp::create(b, loc, angle));
  YieldOp::create(b, loc, TypeRange{}, ValueRange{cos, sin});
  return map.getResults();
}

FailureOr<SmallVector<Value>> RotaryOp::decompose(OpBuilder &b) {
  ValueRange rotations = buildRotations(b, *this);
  Value rotated = RotatePairsOp::create(b, getLoc(), getInput(), rotations[0],
                                        rotations[1], getInverseAttr());
  return SmallVector<Value>{rotated};
}

LogicalResult RotaryOp::buildGradients(OpBuilder &b, ValueRange resultGrads,
                                       SmallVectorImpl<Value> &operandGrads) {
  operandGrads[0] = RotaryOp::create(
      b, getLoc(), resultGrads[0], getThetaAttr(), getOffsetAttr(),
      getInverse() ? UnitAttr() : b.getUnitAttr());
  return success();
}

LogicalResult RotatePairsOp::verify() {
  RankedTensorType input = getTensorType(getInput());
  if (input.getRank() != 4 || input.getShape().back() % 2 != 0)
    return emitOpError("expects an input [B, T, H, D] with even D (C1), got ")
           << input;
  auto expected =
      RankedTensorType::get({input.getDimSize(1), input.getDimSize(3) / 2},
                            getComputeType(input.getElementType()));
  if (getCos().getType() != expected)
    return emitOpError("expects cos and sin of type ")
           << expected << " (C2), got " << getCos().getType();
  return success();
}

FailureOr<SmallVector<Value>> RotatePairsOp::decompose(OpBuilder &b) {
  Location loc = getLoc();
  Type elementType = getTensorType(getResult()).getElementType();
  Type compute = getComputeType(elementType);
  // The last dimension as (which of the pair, pair).
  SmallVector<int64_t> shape(getTensorType(getResult()).getShape());
  int64_t half = shape.pop_back_val() / 2;
  shape.append({2, half});
  auto type = RankedTensorType::get(shape, elementType);
  Value x = reshapeTo(b, loc, getInput(), shape);
  Value empty = tensor::EmptyOp::create(b, loc, shape, elementType);
  AffineMap identity = b.getMultiDimIdentityMap(5);
  AffineMap table = AffineMap::get(
      5, 0, {b.getAffineDimExpr(1), b.getAffineDimExpr(4)}, b.getContext());
  SmallVector<utils::IteratorType> loops(5, utils::IteratorType::parallel);
  auto rotate = linalg::GenericOp::create(
      b, loc, type, ValueRange{x, getCos(), getSin()}, empty,
      ArrayRef{identity, table, table, identity}, loops,
      [&](OpBuilder &b, Location loc, ValueRange args) {
        SmallVector<Value> indices;
        for (int64_t i = 0; i < 5; ++i)
          indices.push_back(linalg::IndexOp::create(b, loc, i));
        Value one = arith::ConstantIndexOp::create(b, loc, 1);
        Value isSecond = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq,
                                               indices[3], one);
        indices[3] = arith::SubIOp::create(b, loc, one, indices[3]);
        Value partner = tensor::ExtractOp::create(b, loc, x, indices);
        Value self = args[0], cos = args[1], sin = args[2];
        if (elementType != compute) {
          self = arith::ExtFOp::create(b, loc, compute, self);
          partner = arith::ExtFOp::create(b, loc, compute, partner);
        }
        // The first of the pair takes -sin, the second sin; inverse: exchanged.
        Value minus = arith::NegFOp::create(b, loc, sin);
        Value factor =
            getInverse()
                ? arith::SelectOp::create(b, loc, isSecond, minus, sin)
                : arith::SelectOp::create(b, loc, isSecond, sin, minus);
        Value product = arith::MulFOp::create(b, loc, partner, factor);
        Value sum = math::FmaOp::create(b, loc, self, cos, product);
        if (elementType != compute)
          sum = arith::TruncFOp::create(b, loc, elementType, sum);
        linalg::YieldOp::create(b, loc, sum);
      });
  return SmallVector<Value>{reshapeTo(b, loc, rotate.getResult(0),
                                      getTensorType(getResult()).getShape())};
}

//===----------------------------------------------------------------------===//
// How they are done in parts
//===----------------------------------------------------------------------===//

ShardingRule EmbeddingOp::getShardingRule() {
  ShardingRule rule(*this);
  int64_t last = getTensorType(getIds()).getRank();
  rule.shareDims(FactorKind::Parallel, 0, last,
                 {rule.out(0, 0), rule.in(1, 0)});
  rule.share(FactorKind::Parallel, {rule.out(0, last), rule.in(0, 1)});
  // A part of the table gives zeros where an id is of a row that it does not have.
  if (!getFirst())
    rule.share(FactorKind::Sum, rule.in(0, 0));
  rule.linear = {{0}};
  return rule;
}

ShardingRule EmbeddingGradOp::getShardingRule() {
  ShardingRule rule(*this);
  int64_t last = getTensorType(getIds()).getRank();
  // The init is added once, not by each part.
  rule.shareDims(getInit() ? FactorKind::Whole : FactorKind::Sum, 0, last,
                 {rule.in(0, 0), rule.in(1, 0)});
  SmallVector<ShardingRule::Place> columns{rule.out(0, 1), rule.in(1, last)};
  if (getInit())
    columns.push_back(rule.in(2, 1));
  else
    rule.linear = {{1}};
  rule.share(FactorKind::Parallel, columns);
  return rule;
}

ShardingRule RotaryOp::getShardingRule() {
  // Positions are counted from the first.
  ShardingRule rule(*this);
  for (int64_t dim : {0, 2})
    rule.share(FactorKind::Parallel, {rule.out(0, dim), rule.in(0, dim)});
  rule.linear = {{0}};
  return rule;
}

ShardingRule RotatePairsOp::getShardingRule() {
  ShardingRule rule(*this);
  for (int64_t dim : {0, 2})
    rule.share(FactorKind::Parallel, {rule.out(0, dim), rule.in(0, dim)});
  rule.share(FactorKind::Parallel,
             {rule.out(0, 1), rule.in(0, 1), rule.in(1, 0), rule.in(2, 0)});
  rule.linear = {{0}};
  return rule;
}
