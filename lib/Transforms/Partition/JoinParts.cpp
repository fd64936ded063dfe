//===- JoinParts.cpp - What ranks have of a value, together ---------------===//
#include "JoinParts.h"
#include "trainc/Dialect/NN/NNBuilders.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::parts;
using namespace trainc::train;

LogicalResult Joiner::addUp(Operation &user, Value global) {
  Local &local = locals[global];
  RankedTensorType type = nn::getTensorType(local.value);
  Type element = type.getElementType();
  if (element.isInteger(64))
    return user.emitOpError(
        "needs a sum of i64 over ranks; expected a narrower "
        "integer or a float");
  Location loc = global.getLoc();
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointAfterValue(local.value);
  // Sums of narrow integers are exact in f64, and wrap when they are narrowed again.
  Value value = local.value;
  bool isInteger = isa<IntegerType>(element);
  if (isInteger)
    value = nn::castTo(b, loc, value, b.getF64Type());
  value = AllReduceOp::create(b, loc, value, grid.toAttr(local.layout.partial));
  if (isInteger)
    value =
        nn::castTo(b, loc, nn::castTo(b, loc, value, b.getI64Type()), element);
  remarkOn(loc, "AddedUp", value.getType(), grid.toAttr(local.layout.partial));
  local.value = value;
  local.layout.partial.clear();
  ++numReduced;
  return success();
}

Value Joiner::share(Value local, ArrayRef<unsigned> axes) {
  Location loc = local.getLoc();
  Type element = nn::getTensorType(local).getElementType();
  Type compute = nn::getComputeType(element);
  Value count = nn::scalarConstant(b, loc, compute,
                                   static_cast<double>(grid.count(axes)));
  Value quotient =
      nn::DivOp::create(b, loc, nn::castTo(b, loc, local, compute), count);
  return nn::castTo(b, loc, quotient, element);
}

/// Collectives know the order of the mesh only.
ArrayAttr Joiner::orderedAxes(ArrayRef<unsigned> axes) const {
  Axes ordered;
  insertSorted(ordered, axes);
  return grid.toAttr(ordered);
}

/// The ranks over `axes`, which are dimension 0 of `value` in the order of the mesh, in
/// that of `axes`, the first the slowest; or, from this order, in that of the mesh.
Value Joiner::reorderRanks(Location loc, Value value, ArrayRef<unsigned> axes,
                           bool toMesh) {
  if (llvm::is_sorted(axes))
    return value;
  ArrayRef<int64_t> all = nn::getTensorType(value).getShape();
  Axes from, to(axes);
  insertSorted(from, axes);
  if (toMesh)
    std::swap(from, to);
  SmallVector<int64_t> shape, order;
  for (unsigned axis : from)
    shape.push_back(grid.sizes[axis]);
  for (unsigned axis : to)
    order.push_back(llvm::find(from, axis) - from.begin());
  for (size_t i = 1; i < all.size(); ++i) {
    shape.push_back(all[i]);
    order.push_back(axes.size() + i - 1);
  }
  Value result = nn::reshapeTo(b, loc, value, shape);
  result = nn::TransposeOp::create(b, loc, result, order);
  return nn::reshapeTo(b, loc, result, all);
}

void Joiner::gather(Location loc, RankedTensorType type, Local &local,
                    llvm::function_ref<bool(int64_t)> isWanted) {
  for (auto [dim, part] : llvm::enumerate(local.layout.split)) {
    if (part.isWhole() || !isWanted(dim))
      continue;
    // [ranks, .., blocks, n, ..], then the ranks behind the blocks.
    int64_t size = type.getDimSize(dim), blocks = part.blocks;
    int64_t parts = grid.count(part.axes);
    SmallVector<int64_t> whole(nn::getTensorType(local.value).getShape());
    int64_t n = whole[dim] / blocks;
    SmallVector<int64_t> shape(whole);
    shape[dim] = n;
    shape.insert(shape.begin() + dim, blocks);
    shape.insert(shape.begin(), 1);
    Value own = nn::reshapeTo(b, loc, local.value, shape);
    shape[0] = parts;
    Value all = AllGatherOp::create(b, loc, type.clone(shape), own,
                                    orderedAxes(part.axes));
    all = reorderRanks(loc, all, part.axes, /*toMesh=*/false);
    remarkOn(loc, "Gathered", type, grid.toAttr(part.axes));
    SmallVector<int64_t> order =
        llvm::to_vector(llvm::seq<int64_t>(1, shape.size()));
    order.insert(order.begin() + dim + 1, 0);
    all = nn::TransposeOp::create(b, loc, all, order);
    whole[dim] = blocks * parts * n;
    all = nn::reshapeTo(b, loc, all, whole);
    if (whole[dim] != size) {
      whole[dim] = size;
      all = nn::SliceOp::create(b, loc, all,
                                SmallVector<int64_t>(whole.size(), 0), whole,
                                DenseI64ArrayAttr());
    }
    local.value = all;
    part = DimSplit();
    ++numGathered;
  }
}

void Joiner::scatter(Location loc, Local &local, const Split &wanted) {
  for (auto [dim, part] : llvm::enumerate(wanted)) {
    RankedTensorType type = nn::getTensorType(local.value);
    if (part.isWhole() || !local.layout.split[dim].isWhole() ||
        !without(part.axes, local.layout.partial).empty() ||
        grid.isUneven(type.getDimSize(dim), part))
      continue;
    // [.., ranks, n, ..], then the ranks first.
    int64_t parts = grid.count(part.axes);
    SmallVector<int64_t> own(type.getShape());
    own[dim] /= parts;
    SmallVector<int64_t> shape(own);
    shape.insert(shape.begin() + dim, parts);
    SmallVector<int64_t> order =
        llvm::to_vector(llvm::seq<int64_t>(0, shape.size()));
    std::rotate(order.begin(), order.begin() + dim, order.begin() + dim + 1);
    Value all = nn::reshapeTo(b, loc, local.value, shape);
    all = nn::TransposeOp::create(b, loc, all, order);
    all = reorderRanks(loc, all, part.axes, /*toMesh=*/true);
    SmallVector<int64_t> piece(nn::getTensorType(all).getShape());
    piece[0] = 1;
    Value sum = ReduceScatterOp::create(b, loc, type.clone(piece), all,
                                        orderedAxes(part.axes));
    local.value = nn::reshapeTo(b, loc, sum, own);
    local.layout.split[dim] = part;
    local.layout.partial = without(local.layout.partial, part.axes);
    remarkOn(loc, "Scattered", type, grid.toAttr(part.axes));
    ++numScattered;
  }
}

void Joiner::gatherUneven(Value global) {
  Local &local = locals[global];
  RankedTensorType type = nn::getTensorType(global);
  gather(global.getLoc(), type, local, [&](int64_t dim) {
    const DimSplit &part = local.layout.split[dim];
    return part.blocks != 1 || grid.isUneven(type.getDimSize(dim), part);
  });
}

Value Joiner::join(nn::ReduceOp op, ArrayRef<unsigned> axes) {
  Location loc = op.getLoc();
  RankedTensorType type = nn::getTensorType(op.getResult());
  SmallVector<int64_t> shape(type.getShape());
  shape.insert(shape.begin(), 1);
  Value own = nn::reshapeTo(b, loc, op.getResult(), shape);
  shape[0] = grid.count(axes);
  Value all =
      AllGatherOp::create(b, loc, type.clone(shape), own, grid.toAttr(axes));
  remarkOn(loc, "Joined", type, grid.toAttr(axes));
  ++numJoined;
  return nn::ReduceOp::create(b, loc, op.getKind(), all, ArrayRef<int64_t>{0},
                              /*keep=*/false);
}
