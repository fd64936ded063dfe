//===- View.cpp - A tensor as elements of another one ---------------------===//
#include "View.h"
#include "mlir/Dialect/Utils/IndexingUtils.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::nn;

/// Adds a loop inside of `loops`.
static void append(View::Loops &loops, View::Loop loop) {
  if (loop.size == 1)
    return;
  if (loops.empty() || loops.back().stride != loop.size * loop.stride) {
    loops.push_back(loop);
    return;
  }
  loops.back().size *= loop.size;
  loops.back().stride = loop.stride;
}

static View::Loops flatten(const View &view) {
  View::Loops loops;
  for (const View::Loops &dim : view.dims)
    for (View::Loop loop : dim)
      append(loops, loop);
  return loops;
}

View::View(Value value, ArrayRef<int64_t> shape) : source(value) {
  for (auto [size, stride] : llvm::zip(shape, computeStrides(shape))) {
    dims.emplace_back();
    append(dims.back(), {size, stride});
  }
}

bool View::isWhole() const {
  Loops loops = flatten(*this);
  int64_t count = getTensorType(source).getNumElements();
  if (loops.empty())
    return count == 1;
  return loops.size() == 1 && loops[0].size == count && loops[0].stride == 1;
}

bool View::hasStride(size_t dim, int64_t stride) const {
  const Loops &loops = dims[dim];
  return loops.empty() || (loops.size() == 1 && loops[0].stride == stride);
}

/// Gives `view` another shape; fails if a loop of it is in two dimensions then, and does
/// not divide.
static LogicalResult reshape(View &view, ArrayRef<int64_t> shape) {
  View::Loops loops = flatten(view);
  SmallVector<View::Loops> dims(shape.size());
  for (size_t dim = shape.size(); dim-- > 0;) {
    View::Loops taken; // innermost first
    for (int64_t left = shape[dim]; left != 1;) {
      if (loops.empty() || left == 0)
        return failure();
      View::Loop &loop = loops.back();
      int64_t size = std::min(left, loop.size);
      if (left % size != 0 || loop.size % size != 0)
        return failure();
      taken.push_back({size, loop.stride});
      left /= size;
      loop = {loop.size / size, loop.stride * size};
      if (loop.size == 1)
        loops.pop_back();
    }
    for (View::Loop loop : llvm::reverse(taken))
      append(dims[dim], loop);
  }
  view.dims = std::move(dims);
  return success();
}

View nn::permute(const View &view, ArrayRef<int64_t> permutation) {
  View result = view;
  result.dims = applyPermutation(ArrayRef<View::Loops>(view.dims), permutation);
  return result;
}

/// A slice of its input's view; fails if it cuts a dimension of several loops.
static FailureOr<View> slice(SliceOp op) {
  View view = viewOf(op.getInput());
  ArrayRef<int64_t> from = getTensorType(op.getInput()).getShape();
  for (auto [dim, size, offset] :
       llvm::enumerate(op.getSizes(), op.getOffsets())) {
    if (size == from[dim])
      continue;
    View::Loops &loops = view.dims[dim];
    if (loops.size() != 1)
      return failure();
    View::Loop loop = loops[0];
    int64_t step = op.getStrides() ? (*op.getStrides())[dim] : 1;
    view.offset += offset * loop.stride;
    loops.clear();
    append(loops, {size, step * loop.stride});
  }
  return view;
}

View nn::viewOf(Value value, ArrayRef<int64_t> shape) {
  while (auto op = value.getDefiningOp<ReshapeOp>())
    value = op.getInput();
  View view = viewOf(value);
  return succeeded(reshape(view, shape)) ? view : View(value, shape);
}

View nn::viewOf(Value value) {
  ArrayRef<int64_t> shape = getTensorType(value).getShape();
  if (auto op = value.getDefiningOp<ReshapeOp>())
    return viewOf(op.getInput(), shape);
  if (auto op = value.getDefiningOp<TransposeOp>())
    return permute(viewOf(op.getInput()), op.getPermutation());
  if (auto op = value.getDefiningOp<SliceOp>())
    if (FailureOr<View> view = slice(op); succeeded(view))
      return *view;
  return View(value, shape);
}
