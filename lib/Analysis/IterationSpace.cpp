//===- IterationSpace.cpp - The loops that a group of ops shares ----------===//
#include "trainc/Analysis/IterationSpace.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace trainc;

int64_t IterationSpace::outerSize() const {
  int64_t size = 1;
  for (int64_t dim : outer)
    size *= dim;
  return size;
}

FailureOr<IterationSpace> IterationSpace::compute(ArrayRef<Operation *> ops,
                                                  bool column) {
  llvm::SetVector<Value> values;
  for (Operation *op : ops) {
    values.insert(op->operand_begin(), op->operand_end());
    values.insert(op->result_begin(), op->result_end());
  }
  size_t rank = 0;
  for (Value value : values)
    rank = std::max(rank, nn::getTensorType(value).getShape().size());
  // The full shape, and per value which dimensions it spans.
  SmallVector<int64_t> full(rank, 1);
  auto sizeAt = [&](Value value, size_t dim) -> int64_t {
    ArrayRef<int64_t> shape = nn::getTensorType(value).getShape();
    size_t offset = rank - shape.size();
    return dim < offset ? 1 : shape[dim - offset];
  };
  for (Value value : values)
    for (size_t dim = 0; dim < rank; ++dim) {
      int64_t size = sizeAt(value, dim);
      if (size == 1 || size == full[dim])
        continue;
      if (full[dim] != 1)
        return failure();
      full[dim] = size;
    }

  // What is reduced: the same dimensions by every reduction, of full tensors.
  IterationSpace space;
  SmallVector<bool> reduced(rank, false);
  for (Operation *op : ops) {
    auto reduce = dyn_cast<nn::ReduceOp>(op);
    if (!reduce)
      continue;
    SmallVector<bool> mine(rank, false);
    size_t offset = rank - nn::getTensorType(reduce.getInput()).getRank();
    for (int64_t dim : reduce.getDims())
      mine[offset + dim] = full[offset + dim] != 1;
    for (size_t dim = 0; dim < rank; ++dim)
      if (sizeAt(reduce.getInput(), dim) != full[dim])
        return failure();
    if (space.hasReductions && mine != reduced)
      return failure();
    reduced = mine;
    space.hasReductions = true;
  }

  // The inner dimension: the longest run at the end along which every value
  // varies everywhere or nowhere, and which is reduced as a whole or not at all.
  SmallVector<size_t> dims; // those of size > 1
  for (size_t dim = 0; dim < rank; ++dim)
    if (full[dim] != 1)
      dims.push_back(dim);
  auto sameExtent = [&](size_t a, size_t b) {
    return reduced[a] == reduced[b] && llvm::all_of(values, [&](Value value) {
             return (sizeAt(value, a) == 1) == (sizeAt(value, b) == 1);
           });
  };
  size_t innerBegin = dims.size();
  if (!dims.empty()) {
    innerBegin = dims.size() - 1;
    while (innerBegin > 0 && sameExtent(dims[innerBegin - 1], dims.back()))
      --innerBegin;
  }
  bool innerReduced = innerBegin < dims.size() && reduced[dims.back()];
  if (space.hasReductions) {
    bool anyOuter = false;
    for (size_t i = 0; i < innerBegin; ++i)
      anyOuter |= reduced[dims[i]];
    bool any = anyOuter || innerReduced;
    if (column ? innerReduced || !anyOuter : anyOuter)
      return failure();
    // A row reduction of nothing (all sizes 1): there is no inner dimension.
    if (!column && !any)
      innerBegin = dims.size();
  }
  for (size_t i = innerBegin; i < dims.size(); ++i)
    space.inner *= full[dims[i]];

  // Outer dimensions: neighbours of equal extent are one.
  SmallVector<size_t> leaders;
  for (size_t i = 0; i < innerBegin; ++i) {
    if (!leaders.empty() && sameExtent(leaders.back(), dims[i])) {
      space.outer.back() *= full[dims[i]];
      continue;
    }
    leaders.push_back(dims[i]);
    space.outer.push_back(full[dims[i]]);
    space.reduced.push_back(reduced[dims[i]]);
  }
  for (Value value : values) {
    Extent &extent = space.extents[value];
    for (size_t dim : leaders)
      extent.outer.push_back(sizeAt(value, dim) != 1);
    extent.inner = innerBegin < dims.size() && sizeAt(value, dims.back()) != 1;
  }
  return space;
}

bool trainc::isCheap(Operation *op) {
  return isa<nn::AddOp, nn::SubOp, nn::MulOp, nn::NegOp, nn::BroadcastOp,
             nn::CastOp, nn::SelectOp, nn::CompareOp, nn::ReluOp,
             nn::ConstantOp, nn::IotaOp>(op);
}
