//===- NNLossHeadOps.cpp - Logits and their cross entropy in chunks -------===//
#include "Losses.h"
#include "trainc/Dialect/NN/NNBuilders.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::nn;

/// Verifies hidden, weight, targets and weights, of an op with name `name`.
template <typename Adaptor>
static LogicalResult verifyLossHead(std::optional<Location> loc, StringRef name,
                                    Adaptor adaptor) {
  RankedTensorType hidden = getTensorType(adaptor.getHidden());
  RankedTensorType weight = getTensorType(adaptor.getWeight());
  RankedTensorType targets = getTensorType(adaptor.getTargets());
  auto error = [&](auto &&...args) {
    return emitOptionalError(loc, "'", name, "' op expects ", args...);
  };
  if (hidden.getRank() < 1 || weight.getRank() != 2 ||
      hidden.getShape().back() !=
          weight.getDimSize(adaptor.getTransposeWeight() ? 1 : 0))
    return error("the hidden's last size to be the weight's (C1), got ", hidden,
                 " and ", weight);
  if (hidden.getElementType() != weight.getElementType())
    return error("equal element types (C2), got ", hidden, " and ", weight);
  if (hidden.getShape().drop_back() != targets.getShape())
    return error("targets of the hidden's shape without the last dimension "
                 "(C3), got ",
                 hidden, " and ", targets);
  if (Value weights = adaptor.getWeights())
    if (getTensorType(weights).getShape() != targets.getShape())
      return error("weights of the targets' shape (C4), got ",
                   weights.getType(), " and ", targets);
  if (Value bias = adaptor.getBias()) {
    int64_t classes = weight.getDimSize(adaptor.getTransposeWeight() ? 0 : 1);
    auto type = RankedTensorType::get({classes}, weight.getElementType());
    if (bias.getType() != type)
      return error("a bias of type ", type, " (C7), got ", bias.getType());
  }
  return success();
}

LogicalResult LinearCrossEntropyOp::inferReturnTypes(
    MLIRContext *, std::optional<Location> loc, Adaptor adaptor,
    SmallVectorImpl<Type> &types) {
  if (failed(verifyLossHead(loc, getOperationName(), adaptor)))
    return failure();
  RankedTensorType hidden = getTensorType(adaptor.getHidden());
  types.append(
      2, RankedTensorType::get({}, getComputeType(hidden.getElementType())));
  return success();
}

LogicalResult LinearCrossEntropyGradOp::inferReturnTypes(
    MLIRContext *, std::optional<Location> loc, Adaptor adaptor,
    SmallVectorImpl<Type> &types) {
  if (failed(verifyLossHead(loc, getOperationName(), adaptor)))
    return failure();
  RankedTensorType hidden = getTensorType(adaptor.getHidden());
  Type compute = getComputeType(hidden.getElementType());
  auto ofShapeOf = [&](Value value) {
    return getTensorType(value).clone(compute);
  };
  RankedTensorType weight = ofShapeOf(adaptor.getWeight());
  int64_t classes = weight.getDimSize(adaptor.getTransposeWeight() ? 0 : 1);
  types.append({RankedTensorType::get({}, compute),
                ofShapeOf(adaptor.getTargets()), hidden, weight,
                RankedTensorType::get({classes}, compute)});
  return success();
}

LogicalResult LinearCrossEntropyOp::verify() {
  return verifyTargets(*this, countClasses(), "C5", "C6");
}

LogicalResult LinearCrossEntropyGradOp::verify() {
  if (getGrad().getType() != getLoss().getType())
    return emitOpError("expects a grad of type ")
           << getLoss().getType() << " (C1), got " << getGrad().getType();
  return verifyTargets(*this, countClasses(), "C5", "C6");
}

/// Rows of a chunk, at least, and least elements of all logits for there to be several. The more
/// rows, the seldomer weight and gradient go through memory: per row of a chunk that is
/// 6 x in x classes operations. Chunks begin where buffers may.
static constexpr int64_t kChunkRows = 512, kRowsAtOnce = 64;
static constexpr int64_t kWholeElements = 1 << 22;

template <typename Op> static int64_t chunkRowsOf(Op op) {
  int64_t rows = getTensorType(op.getTargets()).getNumElements();
  if (rows * op.countClasses() <= kWholeElements || rows < 2 * kChunkRows)
    return rows;
  return llvm::alignTo(llvm::divideCeil(rows, rows / kChunkRows), kRowsAtOnce);
}

int64_t LinearCrossEntropyOp::getChunkRows() { return chunkRowsOf(*this); }
int64_t LinearCrossEntropyGradOp::getChunkRows() { return chunkRowsOf(*this); }

namespace {
/// The logits of a range of rows, and their cross entropy.
struct LossChunk {
  MatmulOp product;
  CrossEntropyOp loss;
};

/// Builds the chunks of `op`, one of the two ops, of so many rows.
template <typename Op> class LossChunks {
public:
  LossChunks(OpBuilder &b, Op op, int64_t size)
      : b(b), op(op), rows(getTensorType(op.getTargets()).getNumElements()),
        size(size) {}

  int64_t count() const { return llvm::divideCeil(rows, size); }

  LossChunk build(int64_t index) {
    Location loc = op.getLoc();
    int64_t first = index * size;
    int64_t some = std::min(size, rows - first);
    auto take = [&](Value value, ArrayRef<int64_t> row) -> Value {
      SmallVector<int64_t> shape{rows}, offsets{first}, sizes{some};
      llvm::append_range(shape, row);
      llvm::append_range(sizes, row);
      offsets.append(row.size(), 0);
      value = reshapeTo(b, loc, value, shape);
      if (some == rows)
        return value;
      return SliceOp::create(b, loc, value, offsets, sizes,
                             DenseI64ArrayAttr());
    };
    LossChunk chunk;
    chunk.product = MatmulOp::create(
        b, loc,
        take(op.getHidden(), getTensorType(op.getHidden()).getShape().back()),
        op.getWeight(), op.getBias(), false, op.getTransposeWeight());
    Value logits = chunk.product;
    if (op.getWideLogits())
      logits =
          castTo(b, loc, logits, getTensorType(op.getLoss()).getElementType());
    chunk.loss = CrossEntropyOp::create(
        b, loc, logits, take(op.getTargets(), {}),
        op.getWeights() ? take(op.getWeights(), {}) : Value(),
        op.getIgnoreIndexAttr(), op.getLabelSmoothingAttr());
    return chunk;
  }

  Value plus(Value sum, Value value) {
    return sum ? AddOp::create(b, op.getLoc(), sum, value).getResult() : value;
  }

  /// The parts of the chunks as one tensor of type `type`.
  Value join(ArrayRef<Value> parts, Type type) {
    Value whole = parts.size() == 1
                      ? parts.front()
                      : ConcatOp::create(b, op.getLoc(), parts, 0).getResult();
    return reshapeTo(b, op.getLoc(), whole,
                     cast<RankedTensorType>(type).getShape());
  }

private:
  OpBuilder &b;
  Op op;
  int64_t rows, size;
};
} // namespace

FailureOr<SmallVector<Value>> LinearCrossEntropyOp::decompose(OpBuilder &b) {
  LossChunks chunks(b, *this, getChunkRows());
  if (chunks.count() == 1)
    return buildWhole(b);
  Value loss;
  for (int64_t i = 0; i < chunks.count(); ++i)
    loss = chunks.plus(loss, chunks.build(i).loss.getLoss());
  return SmallVector<Value>{loss, buildCount(b)};
}

SmallVector<Value> LinearCrossEntropyOp::buildWhole(OpBuilder &b) {
  int64_t rows = getTensorType(getTargets()).getNumElements();
  return llvm::to_vector_of<Value>(
      LossChunks(b, *this, rows).build(0).loss->getResults());
}

FailureOr<SmallVector<Value>>
LinearCrossEntropyGradOp::decompose(OpBuilder &b) {
  Location loc = getLoc();
  LossChunks chunks(b, *this, getChunkRows());
  Type compute = getTensorType(getLoss()).getElementType();
  Value loss, weightGrad, biasGrad;
  SmallVector<Value> rowLosses, hiddenGrads;
  for (int64_t i = 0; i < chunks.count(); ++i) {
    auto [product, part] = chunks.build(i);
    loss = chunks.plus(loss, part.getLoss());
    rowLosses.push_back(rowLossesOf(b, part));
    SmallVector<Value> grads(part->getNumOperands());
    SmallVector<Value> productGrads(product->getNumOperands());
    if (failed(part.buildGradients(b, {getGrad(), Value()}, grads)))
      return failure();
    Type element = getTensorType(product.getResult()).getElementType();
    Value grad = castTo(b, loc, grads[0], element);
    if (failed(product.buildGradients(b, grad, productGrads)))
      return failure();
    hiddenGrads.push_back(productGrads[0]);
    weightGrad =
        chunks.plus(weightGrad, castTo(b, loc, productGrads[1], compute));
    Value columns =
        sumToShape(b, loc, grad, getBiasGrad().getType().getShape());
    biasGrad = chunks.plus(biasGrad, castTo(b, loc, columns, compute));
  }
  return SmallVector<Value>{loss,
                            chunks.join(rowLosses, getRowLosses().getType()),
                            chunks.join(hiddenGrads, getHiddenGrad().getType()),
                            weightGrad, biasGrad};
}

/// Per row whether it counts, in the targets' shape.
static Value buildIsCounted(OpBuilder &b, LinearCrossEntropyOp op) {
  Type element = getTensorType(op.getTargets()).getElementType();
  auto type = RankedTensorType::get({}, element);
  auto ignored = static_cast<int64_t>(op.getIgnoreIndex());
  Value value = ConstantOp::create(
      b, op.getLoc(), type,
      DenseElementsAttr::get(type, b.getIntegerAttr(element, ignored)));
  return CompareOp::create(b, op.getLoc(), CompareKind::ne, op.getTargets(),
                           value);
}

Value LinearCrossEntropyOp::buildCount(OpBuilder &b) {
  Location loc = getLoc();
  Type compute = getTensorType(getLoss()).getElementType();
  Value weight = getWeights() ? castTo(b, loc, getWeights(), compute)
                              : scalarConstant(b, loc, compute, 1.0);
  Value counted = SelectOp::create(b, loc, buildIsCounted(b, *this), weight,
                                   scalarConstant(b, loc, compute, 0.0));
  return sumAll(b, loc, counted);
}

LogicalResult
LinearCrossEntropyOp::buildGradients(OpBuilder &b, ValueRange resultGrads,
                                     SmallVectorImpl<Value> &operandGrads) {
  Location loc = getLoc();
  Type compute = getTensorType(getLoss()).getElementType();
  LinearCrossEntropyGradOp grads;
  if (resultGrads[0]) {
    grads = LinearCrossEntropyGradOp::create(
        b, loc, getHidden(), getWeight(), getBias(), getTargets(), getWeights(),
        resultGrads[0], getTransposeWeightAttr(), getWideLogitsAttr(),
        getIgnoreIndexAttr(), getLabelSmoothingAttr());
    Type element = getTensorType(getWeight()).getElementType();
    operandGrads[0] = grads.getHiddenGrad();
    operandGrads[1] = castTo(b, loc, grads.getWeightGrad(), element);
    if (getBias())
      operandGrads[2] = castTo(b, loc, grads.getBiasGrad(), element);
  }
  if (getWeights()) {
    Value zero = scalarConstant(b, loc, compute, 0.0);
    Value g = resultGrads[1] ? resultGrads[1] : zero;
    if (grads)
      g = AddOp::create(
          b, loc, MulOp::create(b, loc, grads.getRowLosses(), resultGrads[0]),
          g);
    g = SelectOp::create(b, loc, buildIsCounted(b, *this), g, zero);
    g = BroadcastOp::create(b, loc, getTensorType(getTargets()).clone(compute),
                            g);
    operandGrads.back() =
        castTo(b, loc, g, getTensorType(getWeights()).getElementType());
  }
  return success();
}

ShardingRule LinearCrossEntropyOp::getShardingRule() {
  return getRowSumRule(*this, getBias() ? 3 : 2);
}
