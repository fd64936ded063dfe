//===- CutParts.cpp - This rank's parts of whole values -------------------===//
#include "CutParts.h"
#include "mlir/Dialect/Utils/IndexingUtils.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::parts;
using namespace trainc::train;

template <typename T> static std::string toText(const T &value) {
  std::string text;
  llvm::raw_string_ostream(text) << value;
  return text;
}

void parts::remarkOn(Location loc, StringRef what, Type type, ArrayAttr axes) {
  remark::passed(loc,
                 remark::RemarkOpts::name(what).category("train-partition"))
      << remark::metric("Type", toText(type))
      << remark::metric("Over", toText(axes));
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
  for (const Axes &axes : split) {
    llvm::append_range(key.second, axes);
    key.second.push_back(~0u);
  }
  return key;
}

/// What this rank's part of a pointwise op is computed from, and computes.
Value Cutter::cutPointwise(nn::PointwiseOpInterface op, OpResult global,
                           const Split &split) {
  ArrayRef<int64_t> shape = nn::getTensorType(global).getShape();
  SmallVector<Value> operands;
  for (Value operand : op->getOperands()) {
    ArrayRef<int64_t> mine = nn::getTensorType(operand).getShape();
    Split part(mine.size());
    size_t offset = shape.size() - mine.size();
    for (size_t dim = 0; dim < mine.size(); ++dim)
      if (mine[dim] == shape[offset + dim])
        part[dim] = split[offset + dim];
    operands.push_back(cut(operand, part));
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
  Operation *op = whole.layout.isWhole() ? global.getDefiningOp() : nullptr;
  Value result;
  if (auto constant = dyn_cast_if_present<nn::ConstantOp>(op);
      constant && constant.getValue().isSplat()) {
    auto value = dyn_cast<DenseElementsAttr>(constant.getValue());
    result = value
                 ? nn::ConstantOp::create(b, loc, type, value.resizeSplat(type))
                 : Value();
  } else if (auto iota = dyn_cast_if_present<nn::IotaOp>(op)) {
    // In i64: every element gets the value that it has in the whole tensor.
    int64_t dim = iota.getDim();
    result =
        nn::IotaOp::create(b, loc, type.clone(b.getI64Type()), iota.getDim());
    if (!split[dim].empty())
      result = nn::AddOp::create(
          b, loc, result, getOffset(split[dim], type.getDimSize(dim), loc));
    result = nn::castTo(b, loc, result, type.getElementType());
  } else if (auto pointwise = dyn_cast_if_present<nn::PointwiseOpInterface>(op);
             pointwise && llvm::all_of(op->getOperands(), [&](Value operand) {
               return locals[operand].layout.isWhole();
             })) {
    result = cutPointwise(pointwise, cast<OpResult>(global), split);
  }
  if (!result) {
    result = whole.value;
    for (auto [dim, axes] : llvm::enumerate(split))
      if (!axes.empty() && whole.layout.split[dim].empty()) {
        result = nn::PartOp::create(b, loc, result, getIndex(axes, loc), dim,
                                    grid.count(axes));
        remarkOn(loc, "Cut", result.getType(), grid.toAttr(axes));
      }
    ++numCut;
  }
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

void Cutter::placeDropout(nn::DropoutOp op, nn::DropoutOp global,
                          const Split &split) {
  SmallVector<int64_t> strides =
      computeSuffixProduct(global.getType().getShape());
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(op);
  Value first;
  for (auto [dim, axes] : llvm::enumerate(split)) {
    if (axes.empty())
      continue;
    Value offset = getOffset(axes, strides[dim] * op.getType().getDimSize(dim),
                             op.getLoc());
    first = first ? nn::AddOp::create(b, op.getLoc(), first, offset).getResult()
                  : offset;
  }
  if (!first)
    return;
  op.getFirstMutable().assign(first);
  op.setStrides(strides);
}
