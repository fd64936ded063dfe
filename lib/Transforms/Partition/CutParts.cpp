//===- CutParts.cpp - This rank's parts of whole values -------------------===//
#include "CutParts.h"
#include "mlir/Dialect/Utils/IndexingUtils.h"
#include "trainc/Dialect/NN/NNBuilders.h"
#include "trainc/Dialect/NN/NNRandom.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::parts;
using namespace trainc::train;

template <typename T> static std::string toText(const T &value) {
  std::string text;
  llvm::raw_string_ostream(text) << value;
  return text;
}

Attribute parts::getNumber(Type element, double value, int64_t whole) {
  Builder b(element.getContext());
  if (auto type = dyn_cast<FloatType>(element))
    return b.getFloatAttr(type, value);
  return b.getIntegerAttr(element, whole);
}

void parts::remarkOn(Location loc, StringRef what, Type type, ArrayAttr axes) {
  remark::passed(loc,
                 remark::RemarkOpts::name(what).category("train-partition"))
      << remark::metric("Type", toText(type))
      << remark::metric("Over", toText(axes));
}

Attribute parts::getPointwiseFill(Operation &op, Type element) {
  // At 1 all others and their slopes are finite, and zeros times those are zeros.
  if (!isa<nn::PointwiseOpInterface>(op) ||
      isa<nn::AddOp, nn::SubOp, nn::MulOp, nn::NegOp, nn::CastOp, nn::SelectOp,
          nn::CompareOp, nn::StopGradientOp, nn::BroadcastOp>(op))
    return {};
  return getNumber(element, 1.0, 1);
}

/// This rank's position over `axes`, as tensor<i64>.
Value Cutter::getIndex(ArrayRef<unsigned> axes, Location loc) {
  ArrayAttr names = grid.toAttr(axes);
  Value &index = indices[names];
  if (!index) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(body);
    index = ProcessIndexOp::create(
        b, loc, RankedTensorType::get({}, b.getI64Type()), names);
  }
  return index;
}

/// `stride` times the position over `axes`.
Value Cutter::getOffset(ArrayRef<unsigned> axes, int64_t stride, Location loc) {
  Value index = getIndex(axes, loc);
  if (stride == 1)
    return index;
  auto type = RankedTensorType::get({}, b.getI64Type());
  Value factor = nn::ConstantOp::create(b, loc, type,
                                        DenseElementsAttr::get(type, stride));
  return nn::MulOp::create(b, loc, index, factor);
}

/// What tells a value that is split so from others.
Cutter::Key Cutter::keyOf(Value value, const Split &split) {
  Key key{value.getAsOpaquePointer(), {}};
  for (const DimSplit &dim : split) {
    llvm::append_range(key.second, dim.axes);
    key.second.push_back(~static_cast<unsigned>(dim.blocks));
  }
  return key;
}

/// What this rank's part of a pointwise op is computed from, and computes.
Value Cutter::cutPointwise(nn::PointwiseOpInterface op, OpResult global,
                           const Split &split) {
  ArrayRef<int64_t> shape = nn::getTensorType(global).getShape();
  SmallVector<Value> operands;
  for (Value operand : op->getOperands()) {
    RankedTensorType type = nn::getTensorType(operand);
    ArrayRef<int64_t> mine = type.getShape();
    Split part(mine.size());
    size_t offset = shape.size() - mine.size();
    for (size_t dim = 0; dim < mine.size(); ++dim)
      if (mine[dim] == shape[offset + dim])
        part[dim] = split[offset + dim];
    Value value = cut(operand, part);
    if (Attribute fill = getPointwiseFill(*op, type.getElementType()))
      for (auto [dim, size] : llvm::enumerate(mine))
        if (!part[dim].isWhole() && grid.isUneven(size, part[dim]))
          value = fillUp(value, dim, size, part[dim], fill);
    operands.push_back(value);
  }
  Operation *local = b.clone(*op);
  local->setOperands(operands);
  for (auto [whole, result] :
       llvm::zip(op->getResults(), local->getResults())) {
    result.setType(grid.getLocalType(nn::getTensorType(result), split));
    cuts[keyOf(whole, split)] = result;
  }
  return local->getResult(global.getResultNumber());
}

/// This rank's part of `value` along `dim`.
Value Cutter::takePart(Value value, int64_t dim, const DimSplit &split) {
  Location loc = value.getLoc();
  RankedTensorType type = nn::getTensorType(value);
  Value index = getIndex(split.axes, loc);
  int64_t parts = grid.count(split.axes), blocks = split.blocks;
  if (grid.isUneven(type.getDimSize(dim), split)) {
    SmallVector<int64_t> none(type.getRank(), 0), high = none;
    high[dim] = grid.getPartSize(type.getDimSize(dim), split) * parts -
                type.getDimSize(dim);
    Type element = type.getElementType(), padded = element;
    if (element.isInteger(1)) // nn.pad has no bits
      padded = b.getI8Type();
    value = nn::PadOp::create(b, loc, nn::castTo(b, loc, value, padded),
                              b.getDenseI64ArrayAttr(none),
                              b.getDenseI64ArrayAttr(high), DenseI64ArrayAttr(),
                              b.getF64FloatAttr(0.0));
    value = nn::castTo(b, loc, value, element);
  }
  if (blocks == 1)
    return nn::PartOp::create(b, loc, value, index, dim, parts);
  SmallVector<int64_t> shape(type.getShape());
  shape[dim] /= blocks;
  shape.insert(shape.begin() + dim, blocks);
  value = nn::ReshapeOp::create(b, loc, type.clone(shape), value);
  value = nn::PartOp::create(b, loc, value, index, dim + 1, parts);
  shape.assign(type.getShape().begin(), type.getShape().end());
  shape[dim] /= parts;
  return nn::ReshapeOp::create(b, loc, type.clone(shape), value);
}

Value Cutter::cutWhole(const Local &whole, const Split &split) {
  Value result = whole.value;
  for (auto [dim, part] : llvm::enumerate(split))
    if (!part.isWhole() && whole.layout.split[dim].isWhole()) {
      result = takePart(result, dim, part);
      remarkOn(result.getLoc(), "Cut", result.getType(),
               grid.toAttr(part.axes));
    }
  numCut += result != whole.value;
  return result;
}

/// This rank's part of `global`, which is whole along the dimensions that are not split
/// as `split` says.
Value Cutter::cut(Value global, const Split &split) {
  const Local &whole = locals[global];
  if (whole.layout.split == split)
    return whole.value;
  if (Value known = cuts[keyOf(global, split)])
    return known;
  RankedTensorType type = grid.getLocalType(nn::getTensorType(global), split);
  Location loc = global.getLoc();
  Operation *op =
      whole.layout.partial.empty() ? global.getDefiningOp() : nullptr;
  Value result;
  if (auto constant = dyn_cast_if_present<nn::ConstantOp>(op);
      constant && constant.getValue().isSplat()) {
    result = nn::ConstantOp::create(
        b, loc, type, nn::getDense(constant.getValue()).resizeSplat(type));
  } else if (auto iota = dyn_cast_if_present<nn::IotaOp>(op);
             iota && split[iota.getDim()].blocks == 1) {
    // In i64: every element gets the value that it has in the whole tensor.
    int64_t dim = iota.getDim();
    result =
        nn::IotaOp::create(b, loc, type.clone(b.getI64Type()), iota.getDim());
    if (!split[dim].isWhole())
      result = nn::AddOp::create(
          b, loc, result,
          getOffset(split[dim].axes, type.getDimSize(dim), loc));
    result = nn::castTo(b, loc, result, type.getElementType());
  } else if (auto random = dyn_cast_if_present<nn::RandomOp>(op)) {
    auto part = cast<nn::RandomOp>(b.clone(*random));
    part.getResult().setType(type);
    result = placeDraws(part, random.getType(), split);
  } else if (auto pointwise = dyn_cast_if_present<nn::PointwiseOpInterface>(op);
             pointwise && llvm::all_of(op->getOperands(), [&](Value operand) {
               return locals[operand].layout.partial.empty();
             })) {
    result = cutPointwise(pointwise, cast<OpResult>(global), split);
  }
  if (!result)
    result = cutWhole(whole, split);
  cuts[keyOf(global, split)] = result;
  return result;
}

void Cutter::cutOperands(Operation &op, ArrayRef<Split> splits,
                         MutableArrayRef<Value> operands) {
  cuts.clear();
  for (auto [value, global, split] :
       llvm::zip(operands, op.getOperands(), splits))
    if (!value)
      value = cut(global, split);
}

Value Cutter::placeDraws(nn::RandomOpInterface op, RankedTensorType whole,
                         const Split &split) {
  Location loc = op->getLoc();
  Value result = op->getResult(0);
  RankedTensorType type = nn::getTensorType(result);
  SmallVector<int64_t> wholeStrides = computeSuffixProduct(whole.getShape());
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(op);
  // A dimension of several blocks is two, each with a stride of its own.
  SmallVector<int64_t> shape, strides;
  Value first;
  for (auto [dim, part] : llvm::enumerate(split)) {
    int64_t stride = wholeStrides[dim], size = type.getDimSize(dim);
    if (int64_t blocks = part.isWhole() ? 1 : part.blocks; blocks != 1) {
      size /= blocks;
      shape.push_back(blocks);
      strides.push_back(whole.getDimSize(dim) / blocks * stride);
    }
    shape.push_back(size);
    strides.push_back(stride);
    if (part.isWhole())
      continue;
    Value offset = getOffset(part.axes, stride * size, loc);
    first =
        first ? nn::AddOp::create(b, loc, first, offset).getResult() : offset;
  }
  if (!first)
    return result;
  op.getFirstMutable().assign(first);
  op.setStrides(strides);
  if (shape.size() == split.size())
    return result;
  RankedTensorType apart = type.clone(shape);
  if (auto dropout = dyn_cast<nn::DropoutOp>(*op))
    dropout.getInputMutable().assign(
        nn::ReshapeOp::create(b, loc, apart, dropout.getInput()));
  result.setType(apart);
  b.setInsertionPointAfter(op);
  return nn::ReshapeOp::create(b, loc, type, result);
}

LogicalResult Cutter::placeScores(nn::RandomOpInterface op, Operation &global,
                                  const Split &split) {
  nn::ScoreShape local = nn::getScoreShape(op);
  SmallVector<int64_t> strides =
      nn::getScoreStrides(nn::getScoreShape(&global));
  bool inGroups = split[1].blocks != 1; // a part of each group of heads
  if (split[0].blocks != 1 || split[2].blocks != 1 ||
      (inGroups && split[1].blocks != local.kvHeads))
    return global.emitOpError("expects batch and queries that are split as one "
                              "block, and heads so or within their groups, got "
                              "blocks ")
           << split[0].blocks << ", " << split[2].blocks << " and "
           << split[1].blocks;
  int64_t heads = inGroups ? local.group : local.kvHeads * local.group;
  int64_t steps[] = {strides[0] * local.batch, strides[2] * heads,
                     strides[3] * local.rows};
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(op);
  Value first;
  for (auto [dim, step] : llvm::zip(split, steps)) {
    if (dim.isWhole())
      continue;
    Value offset = getOffset(dim.axes, step, op->getLoc());
    first = first
                ? nn::AddOp::create(b, op->getLoc(), first, offset).getResult()
                : offset;
  }
  if (first) {
    op.getFirstMutable().assign(first);
    op.setStrides(strides);
  }
  return success();
}

void Cutter::placeRows(nn::EmbeddingOp op, nn::EmbeddingOp global,
                       const DimSplit &split) {
  if (split.isWhole())
    return;
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(op);
  int64_t own = nn::getTensorType(op.getTable()).getDimSize(0);
  op.getFirstMutable().assign(getOffset(split.axes, own, op.getLoc()));
  op.setRows(nn::getTensorType(global.getTable()).getDimSize(0));
}

Value Cutter::fillUp(Value value, int64_t dim, int64_t size,
                     const DimSplit &split, Attribute fill) {
  Location loc = value.getLoc();
  RankedTensorType type = nn::getTensorType(value);
  SmallVector<int64_t> shape(type.getRank(), 1);
  shape[dim] = type.getDimSize(dim);
  Type i64 = b.getI64Type();
  Value place = nn::IotaOp::create(b, loc, RankedTensorType::get(shape, i64),
                                   static_cast<uint64_t>(dim));
  place =
      nn::AddOp::create(b, loc, place, getOffset(split.axes, shape[dim], loc));
  Value isThere = nn::CompareOp::create(b, loc, nn::CompareKind::lt, place,
                                        nn::scalarConstant(b, loc, i64, size));
  auto scalar = RankedTensorType::get({}, type.getElementType());
  Value filling = nn::ConstantOp::create(b, loc, scalar,
                                         DenseElementsAttr::get(scalar, fill));
  return nn::SelectOp::create(b, loc, isThere, value, filling);
}
