//===- NNLossHeadOps.cpp - Logits and their cross entropy in chunks -------===//
#include "Losses.h"
#include "trainc/Dialect/NN/NNBuilders.h"
#include "llvm/Support/MathExtras.h"

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

/// Least elements of all logits for there to be several chunks, which begin where buffers may.
static constexpr int64_t kRowsAtOnce = 64, kWholeElements = 1 << 22;

/// Least elements of a chunk, and the most chunks: each is code of its own.
static constexpr int64_t kChunkElements = 1 << 20, kMostChunks = 256;

template <typename Op> static int64_t chunkRowsOf(Op op, int64_t least) {
  int64_t rows = getTensorType(op.getTargets()).getNumElements();
  least = std::max({least, kChunkElements / op.countClasses(),
                    llvm::divideCeilSigned(rows, kMostChunks)});
  if (rows * op.countClasses() <= kWholeElements || rows < 2 * least)
    return rows;
  return llvm::alignTo(llvm::divideCeil(rows, rows / least), kRowsAtOnce);
}

int64_t LinearCrossEntropyOp::getChunkRows(int64_t least) {
  return chunkRowsOf(*this, least);
}
int64_t LinearCrossEntropyGradOp::getChunkRows(int64_t least) {
  return chunkRowsOf(*this, least);
}

/// `value` with `border` behind it along dimension `dim`, `size` elements in all.
static Value extend(OpBuilder &b, Location loc, Value value, int64_t dim,
                    int64_t size, double border) {
  RankedTensorType type = getTensorType(value);
  if (type.getDimSize(dim) == size)
    return value;
  SmallVector<int64_t> none(type.getRank(), 0), high = none;
  high[dim] = size - type.getDimSize(dim);
  return PadOp::create(b, loc, value, none, high, DenseI64ArrayAttr(),
                       APFloat(border));
}

namespace {
/// The logits of a range of rows, and their cross entropy.
struct LossChunk {
  Value hidden;
  MatmulOp product;
  CrossEntropyOp loss;
};

/// Builds the chunks of `op`, one of the two ops, of so many rows and columns.
template <typename Op> class LossChunks {
public:
  LossChunks(OpBuilder &b, Op op, int64_t size, int64_t columns)
      : b(b), op(op), loc(op.getLoc()),
        rows(getTensorType(op.getTargets()).getNumElements()), size(size),
        columns(columns), classes(op.countClasses()), targets(op.getTargets()),
        ignored(static_cast<int64_t>(op.getIgnoreIndex())) {
    weight = extend(b, loc, op.getWeight(), op.getTransposeWeight() ? 0 : 1,
                    columns, 0.0);
    if (columns == classes) {
      bias = op.getBias();
      return;
    }
    avoidPadding();
    Value whole = op.getBias();
    if (!whole) {
      Type element = getTensorType(op.getWeight()).getElementType();
      if (op.getWideLogits())
        element = getComputeType(element);
      auto type = RankedTensorType::get({classes}, element);
      whole = ConstantOp::create(
          b, loc, type,
          DenseElementsAttr::get(type, b.getFloatAttr(element, 0.0)));
    }
    // A product with a bias is rounded before it is widened.
    bool apart = op.getWideLogits() && !op.getBias();
    auto element = cast<FloatType>(getTensorType(whole).getElementType());
    APFloat lowest =
        APFloat::getLargest(element.getFloatSemantics(), /*Negative=*/true);
    (apart ? added : bias) =
        extend(b, loc, whole, 0, columns, lowest.convertToDouble());
  }

  int64_t count() const { return llvm::divideCeil(rows, size); }

  LossChunk build(int64_t index) {
    int64_t first = index * size;
    int64_t some = std::min(size, rows - first);
    auto ofRows = [&](Value value, ArrayRef<int64_t> row) {
      SmallVector<int64_t> shape{rows};
      llvm::append_range(shape, row);
      return take(reshapeTo(b, loc, value, shape), 0, first, first + some);
    };
    LossChunk chunk;
    chunk.hidden =
        ofRows(op.getHidden(), getTensorType(op.getHidden()).getShape().back());
    chunk.product = MatmulOp::create(b, loc, chunk.hidden, weight, bias, false,
                                     op.getTransposeWeight());
    Value logits = chunk.product;
    if (op.getWideLogits())
      logits = castUnrounded(b, loc, logits,
                             getTensorType(op.getLoss()).getElementType());
    if (added)
      logits = AddOp::create(b, loc, logits, added);
    chunk.loss = CrossEntropyOp::create(
        b, loc, logits, ofRows(targets, {}),
        op.getWeights() ? ofRows(op.getWeights(), {}) : Value(),
        b.getI64IntegerAttr(ignored), op.getLabelSmoothingAttr());
    return chunk;
  }

  /// Adds the gradients of hidden and weight from that of the logits, 0 behind the classes.
  LogicalResult multiply(LossChunk chunk, Value grad) {
    SmallVector<Value> made(chunk.product->getNumOperands());
    if (failed(chunk.product.buildGradients(b, grad, made)))
      return failure();
    hiddenGrads.push_back(made[0]);
    Type compute = getTensorType(op.getLoss()).getElementType();
    if (columns == classes) {
      ofWeight.resize(1);
      ofWeight[0] = plus(ofWeight[0], castUnrounded(b, loc, made[1], compute));
      return success();
    }
    // As many classes as make rows of the gradient aligned, and the others.
    int64_t whole = llvm::alignDown(classes, 8);
    ofWeight.resize(whole == 0 ? 1 : 2);
    for (auto [i, sum] : llvm::enumerate(ofWeight)) {
      int64_t begin = i * whole;
      int64_t end = i + 1 == ofWeight.size() ? classes : whole;
      Value part = take(grad, 1, begin, end);
      Value weight =
          take(op.getWeight(), op.getTransposeWeight() ? 0 : 1, begin, end);
      auto product = MatmulOp::create(b, loc, chunk.hidden, weight, Value(),
                                      false, op.getTransposeWeight());
      made.assign(product->getNumOperands(), Value());
      if (failed(product.buildGradients(b, part, made)))
        return failure();
      sum = plus(sum, castUnrounded(b, loc, made[1], compute));
    }
    return success();
  }

  Value joinHiddenGrads() {
    return join(hiddenGrads, op.getHidden().getType());
  }
  Value joinWeightGrads() {
    return ofWeight.size() == 1
               ? ofWeight.front()
               : ConcatOp::create(b, loc, ofWeight,
                                  op.getTransposeWeight() ? 0 : 1)
                     .getResult();
  }

  /// Elements `begin` to `end` of a dimension.
  Value take(Value value, int64_t dim, int64_t begin, int64_t end) {
    SmallVector<int64_t> sizes(getTensorType(value).getShape());
    if (sizes[dim] == end - begin)
      return value;
    SmallVector<int64_t> offsets(sizes.size(), 0);
    offsets[dim] = begin;
    sizes[dim] = end - begin;
    return SliceOp::create(b, loc, value, offsets, sizes, DenseI64ArrayAttr());
  }

  Value plus(Value sum, Value value) {
    return sum ? AddOp::create(b, loc, sum, value).getResult() : value;
  }

  /// The parts of the chunks as one tensor of type `type`.
  Value join(ArrayRef<Value> parts, Type type) {
    Value whole = parts.size() == 1
                      ? parts.front()
                      : ConcatOp::create(b, loc, parts, 0).getResult();
    return reshapeTo(b, loc, whole, cast<RankedTensorType>(type).getShape());
  }

private:
  /// Moves targets behind the classes to where no column is: computed ones may be there,
  /// and the ignored one.
  void avoidPadding() {
    RankedTensorType type = getTensorType(targets);
    auto constant = [&](int64_t value) {
      auto scalar = RankedTensorType::get({}, type.getElementType());
      auto number = b.getIntegerAttr(type.getElementType(), value);
      return ConstantOp::create(b, loc, scalar,
                                DenseElementsAttr::get(scalar, number));
    };
    Value given = targets;
    Value isClass =
        CompareOp::create(b, loc, CompareKind::lt, given, constant(classes));
    targets = SelectOp::create(b, loc, isClass, given,
                               constant(ignored == -1 ? -2 : -1));
    if (ignored < classes)
      return;
    Value isIgnored =
        CompareOp::create(b, loc, CompareKind::eq, given, constant(ignored));
    ignored = std::max(ignored, columns);
    targets = SelectOp::create(b, loc, isIgnored, constant(ignored), targets);
  }

  OpBuilder &b;
  Op op;
  Location loc;
  int64_t rows, size, columns, classes;
  /// As the logits' columns have them.
  Value targets;
  int64_t ignored;
  /// With the columns behind the classes, whose logits are the lowest number.
  Value weight, bias, added;
  SmallVector<Value> hiddenGrads; // of the chunks
  SmallVector<Value, 2> ofWeight; // of ranges of classes
};
} // namespace

FailureOr<SmallVector<Value>> LinearCrossEntropyOp::decompose(OpBuilder &b) {
  return decomposeInChunks(b, getChunkRows(), countClasses());
}

FailureOr<SmallVector<Value>>
LinearCrossEntropyOp::decomposeInChunks(OpBuilder &b, int64_t size,
                                        int64_t columns) {
  LossChunks chunks(b, *this, size, columns);
  if (chunks.count() == 1)
    return llvm::to_vector_of<Value>(chunks.build(0).loss->getResults());
  Value loss;
  for (int64_t i = 0; i < chunks.count(); ++i)
    loss = chunks.plus(loss, chunks.build(i).loss.getLoss());
  return SmallVector<Value>{loss, buildCount(b)};
}

SmallVector<Value> LinearCrossEntropyOp::buildWhole(OpBuilder &b) {
  int64_t rows = getTensorType(getTargets()).getNumElements();
  return llvm::to_vector_of<Value>(
      LossChunks(b, *this, rows, countClasses()).build(0).loss->getResults());
}

FailureOr<SmallVector<Value>>
LinearCrossEntropyGradOp::decompose(OpBuilder &b) {
  return decomposeInChunks(b, getChunkRows(), countClasses());
}

FailureOr<SmallVector<Value>>
LinearCrossEntropyGradOp::decomposeInChunks(OpBuilder &b, int64_t size,
                                            int64_t columns) {
  Location loc = getLoc();
  LossChunks chunks(b, *this, size, columns);
  Type compute = getTensorType(getLoss()).getElementType();
  Value loss, biasGrad;
  SmallVector<Value> rowLosses;
  for (int64_t i = 0; i < chunks.count(); ++i) {
    LossChunk chunk = chunks.build(i);
    loss = chunks.plus(loss, chunk.loss.getLoss());
    rowLosses.push_back(rowLossesOf(b, chunk.loss));
    SmallVector<Value> grads(chunk.loss->getNumOperands());
    if (failed(chunk.loss.buildGradients(b, {getGrad(), Value()}, grads)))
      return failure();
    Type element = getTensorType(chunk.product.getResult()).getElementType();
    Value grad = castTo(b, loc, grads[0], element);
    if (failed(chunks.multiply(chunk, grad)))
      return failure();
    Value sums =
        chunks.take(sumToShape(b, loc, grad, {columns}), 0, 0, countClasses());
    biasGrad = chunks.plus(biasGrad, castUnrounded(b, loc, sums, compute));
  }
  return SmallVector<Value>{
      loss, chunks.join(rowLosses, getRowLosses().getType()),
      chunks.joinHiddenGrads(), chunks.joinWeightGrads(), biasGrad};
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
