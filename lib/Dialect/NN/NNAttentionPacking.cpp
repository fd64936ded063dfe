//===- NNAttentionPacking.cpp - Read q, k and v side by side --------------===//
#include "View.h"
#include "trainc/Dialect/NN/NNBuilders.h"
#include "trainc/Dialect/NN/NNOps.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::nn;

/// Where q, k and v stand side by side in one tensor: that as [B, T, (H + 2 Hk) D]; else
/// null.
static Value packOf(OpBuilder &b, AttentionOp op) {
  View q = viewOf(op.getQ()), k = viewOf(op.getK()), v = viewOf(op.getV());
  ArrayRef<int64_t> shape = getTensorType(op.getQ()).getShape();
  int64_t batch = shape[0], length = shape[1], heads = shape[2],
          size = shape[3];
  ArrayRef<int64_t> keys = getTensorType(op.getK()).getShape();
  int64_t kvHeads = keys[2], width = (heads + 2 * kvHeads) * size;
  if (q.source != k.source || q.source != v.source || keys[1] != length ||
      q.offset != 0 || k.offset != heads * size ||
      v.offset != (heads + kvHeads) * size ||
      getTensorType(q.source).getNumElements() != batch * length * width)
    return {};
  auto haveStrides = [&](int64_t ofBatch, int64_t ofRow) {
    return llvm::all_of(
        ArrayRef<const View *>{&q, &k, &v}, [&](const View *view) {
          return view->hasStride(0, ofBatch) && view->hasStride(1, ofRow) &&
                 view->hasStride(2, size) && view->hasStride(3, 1);
        });
  };
  if (haveStrides(length * width, width))
    return reshapeTo(b, op.getLoc(), q.source, {batch, length, width});
  if (!haveStrides(width, batch * width))
    return {};
  Value rows = reshapeTo(b, op.getLoc(), q.source, {length, batch, width});
  return TransposeOp::create(b, op.getLoc(), rows, ArrayRef<int64_t>{1, 0, 2});
}

/// Reads q, k and v where they stand side by side, unless something else reads them, too:
/// their gradients, if these are there.
LogicalResult AttentionOp::canonicalize(AttentionOp op, PatternRewriter &b) {
  for (Value operand : {op.getQ(), op.getK(), op.getV()})
    if (!operand.hasOneUse())
      return failure();
  if (op.getSegments())
    return failure();
  Value packed = packOf(b, op);
  if (!packed)
    return failure();
  ArrayRef<int64_t> shape = getTensorType(op.getQ()).getShape();
  int64_t heads = shape[2], kvHeads = getTensorType(op.getK()).getDimSize(2);
  auto attention = PackedAttentionOp::create(
      b, op.getLoc(), packed, op.getMask(), b.getI64IntegerAttr(heads),
      heads == kvHeads ? IntegerAttr() : b.getI64IntegerAttr(kvHeads),
      op.getCausalAttr(), op.getScaleAttr(), op.getWindowAttr(),
      op.getRateAttr(), op.getSiteAttr(), op.getSeed(), op.getUpdate(),
      op.getMicroStep(), op.getFirst(), op.getStridesAttr());
  b.replaceOp(op, {reshapeTo(b, op.getLoc(), attention.getOut(), shape),
                   attention.getLse()});
  return success();
}
