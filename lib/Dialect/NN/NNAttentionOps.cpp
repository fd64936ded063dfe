//===- NNAttentionOps.cpp - Attention -------------------------------------===//
#include "PackedAttention.h"
#include "trainc/Dialect/NN/NNBuilders.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Dialect/NN/NNRandom.h"
#include "llvm/ADT/TypeSwitch.h"
#include <cmath>
#include <limits>

using namespace mlir;
using namespace trainc;
using namespace trainc::nn;

//===----------------------------------------------------------------------===//
// Types
//===----------------------------------------------------------------------===//

/// Verifies that the optional mask broadcasts to [B, H, Tq, Tk].
static LogicalResult verifyMask(std::optional<Location> loc, StringRef name,
                                Value mask, ArrayRef<int64_t> scores,
                                StringRef constraint) {
  if (!mask)
    return success();
  auto shape = broadcastShapes({getTensorType(mask).getShape(), scores});
  if (succeeded(shape) && ArrayRef<int64_t>(*shape) == scores)
    return success();
  return emitOptionalError(loc, "'", name,
                           "' op expects a mask that broadcasts to [", scores,
                           "] (", constraint, "), got ", mask.getType());
}

/// Verifies that the optional sums of out dout are [B, Tq, H], where lse is [B, H, Tq].
static LogicalResult verifyDelta(std::optional<Location> loc, StringRef name,
                                 Value delta, RankedTensorType lse) {
  if (!delta)
    return success();
  ArrayRef<int64_t> rows = lse.getShape();
  auto type =
      RankedTensorType::get({rows[0], rows[2], rows[1]}, lse.getElementType());
  if (delta.getType() == type)
    return success();
  return emitOptionalError(loc, "'", name, "' op expects delta of type ", type,
                           " (C9), got ", delta.getType());
}

/// Verifies q, k and the mask (C1) to (C3) and segments, and sets the type of the lse.
static LogicalResult inferAttention(std::optional<Location> loc, StringRef name,
                                    Value qValue, Value kValue, Value mask,
                                    Value segments, StringRef segmentsRule,
                                    RankedTensorType &lse) {
  RankedTensorType q = getTensorType(qValue), k = getTensorType(kValue);
  if (q.getRank() != 4 || k.getRank() != 4 ||
      q.getDimSize(0) != k.getDimSize(0) ||
      q.getDimSize(3) != k.getDimSize(3) ||
      q.getElementType() != k.getElementType())
    return emitOptionalError(
        loc, "'", name,
        "' op expects q [B, Tq, H, D] and k [B, Tk, Hk, D] "
        "of one element type (C1), got ",
        q, " and ", k);
  if (k.getDimSize(2) == 0 || q.getDimSize(2) % k.getDimSize(2) != 0)
    return emitOptionalError(loc, "'", name,
                             "' op expects the heads of q to be a multiple of "
                             "those of k (C2), got ",
                             q.getDimSize(2), " and ", k.getDimSize(2));
  SmallVector<int64_t> rows = {q.getDimSize(0), q.getDimSize(2),
                               q.getDimSize(1)};
  lse = RankedTensorType::get(rows, getComputeType(q.getElementType()));
  SmallVector<int64_t> scores = rows;
  scores.push_back(k.getDimSize(1));
  if (segments) {
    ArrayRef<int64_t> shape = getTensorType(segments).getShape();
    if (scores[2] != scores[3] ||
        shape != ArrayRef<int64_t>{scores[0], scores[2]})
      return emitOptionalError(
          loc, "'", name,
          "' op expects segments [B, T] with as many keys as queries (",
          segmentsRule, "), got ", segments.getType(), " for ", scores[2],
          " queries and ", scores[3], " keys");
  }
  return verifyMask(loc, name, mask, scores, "C3");
}

LogicalResult AttentionOp::inferReturnTypes(MLIRContext *,
                                            std::optional<Location> loc,
                                            Adaptor adaptor,
                                            SmallVectorImpl<Type> &types) {
  RankedTensorType lse;
  if (failed(inferAttention(loc, getOperationName(), adaptor.getQ(),
                            adaptor.getK(), adaptor.getMask(),
                            adaptor.getSegments(), "C7", lse)))
    return failure();
  types.append({adaptor.getQ().getType(), lse});
  return success();
}

LogicalResult AttentionGradOp::inferReturnTypes(MLIRContext *,
                                                std::optional<Location> loc,
                                                Adaptor adaptor,
                                                SmallVectorImpl<Type> &types) {
  RankedTensorType lse;
  if (failed(inferAttention(loc, getOperationName(), adaptor.getQ(),
                            adaptor.getK(), adaptor.getMask(),
                            adaptor.getSegments(), "C8", lse)))
    return failure();
  if (adaptor.getLse().getType() != lse)
    return emitOptionalError(loc, "'nn.attention_grad' op expects lse of type ",
                             lse, " (C4), got ", adaptor.getLse().getType());
  if (failed(verifyDelta(loc, getOperationName(), adaptor.getDelta(), lse)))
    return failure();
  types.append({adaptor.getQ().getType(), adaptor.getK().getType(),
                adaptor.getV().getType()});
  return success();
}

/// Verifies (C1) to (C4) and sets the types of out and lse.
template <typename Adaptor>
static LogicalResult inferPacked(std::optional<Location> loc, StringRef name,
                                 Adaptor adaptor, RankedTensorType &out,
                                 RankedTensorType &lse) {
  RankedTensorType qkv = getTensorType(adaptor.getQkv());
  if (qkv.getRank() != 3)
    return emitOptionalError(loc, "'", name,
                             "' op expects qkv of rank 3 (C1), got ", qkv);
  constexpr int64_t maxHeads = std::numeric_limits<int32_t>::max();
  int64_t heads = adaptor.getHeads();
  int64_t kvHeads = adaptor.getKvHeads().value_or(heads);
  if (heads <= 0 || heads > maxHeads || kvHeads <= 0 || heads % kvHeads != 0)
    return emitOptionalError(loc, "'", name,
                             "' op expects heads to be a multiple of kv_heads, "
                             "both above 0 (C2), got ",
                             heads, " and ", kvHeads);
  if (qkv.getDimSize(2) % (heads + 2 * kvHeads) != 0)
    return emitOptionalError(loc, "'", name,
                             "' op expects a last size that is a multiple of "
                             "heads + 2 kv_heads = ",
                             heads + 2 * kvHeads, " (C3), got ", qkv);
  PackedSizes sizes = getPackedSizes(adaptor);
  out =
      RankedTensorType::get({sizes.batch, sizes.length, heads * sizes.headSize},
                            qkv.getElementType());
  lse = RankedTensorType::get({sizes.batch, heads, sizes.length},
                              getComputeType(qkv.getElementType()));
  return verifyMask(loc, name, adaptor.getMask(),
                    {sizes.batch, heads, sizes.length, sizes.length}, "C4");
}

LogicalResult
PackedAttentionOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                    Adaptor adaptor,
                                    SmallVectorImpl<Type> &types) {
  RankedTensorType out, lse;
  if (failed(inferPacked(loc, getOperationName(), adaptor, out, lse)))
    return failure();
  types.append({out, lse});
  return success();
}

LogicalResult PackedAttentionGradOp::inferReturnTypes(
    MLIRContext *, std::optional<Location> loc, Adaptor adaptor,
    SmallVectorImpl<Type> &types) {
  RankedTensorType out, lse;
  if (failed(inferPacked(loc, getOperationName(), adaptor, out, lse)))
    return failure();
  if (adaptor.getOut().getType() != out || adaptor.getLse().getType() != lse)
    return emitOptionalError(
        loc, "'nn.packed_attention_grad' op expects out and lse of types ", out,
        " and ", lse, " (C5), got ", adaptor.getOut().getType(), " and ",
        adaptor.getLse().getType());
  if (failed(verifyDelta(loc, getOperationName(), adaptor.getDelta(), lse)))
    return failure();
  types.push_back(adaptor.getQkv().getType());
  return success();
}

//===----------------------------------------------------------------------===//
// Draws
//===----------------------------------------------------------------------===//

/// A window is a number of 32 bits where lanes are compared.
static constexpr int64_t kMostKeys = std::numeric_limits<int32_t>::max();

namespace {
/// What the dropout of an attention depends on; it has none without a rate.
struct ScoreDraws {
  template <typename Op>
  explicit ScoreDraws(Op op)
      : rate(op.getRateAttr()), site(op.getSiteAttr()), seed(op.getSeed()),
        update(op.getUpdate()), microStep(op.getMicroStep()),
        first(op.getFirst()), strides(op.getStridesAttr()) {}

  FloatAttr rate;
  IntegerAttr site;
  Value seed, update, microStep, first;
  DenseI64ArrayAttr strides;
};
} // namespace

SmallVector<int64_t> nn::getScoreStrides(const ScoreShape &shape) {
  int64_t query = llvm::alignTo(shape.columns, 4), head = shape.rows * query;
  int64_t kvHead = shape.group * head;
  return {shape.kvHeads * kvHead, kvHead, head, query};
}

/// Verifies the rate (`rateRule`), what draws (`drawRule`) and the window.
template <typename Op>
static LogicalResult verifyScores(Op op, StringRef rateRule, StringRef drawRule,
                                  StringRef windowRule) {
  if (op.getWindow() &&
      (!op.getCausal() || *op.getWindow() < 1 || *op.getWindow() > kMostKeys))
    return op.emitOpError(
               "expects a window from 1 to 2^31 - 1 with causal only (")
           << windowRule << "), got " << *op.getWindow()
           << (op.getCausal() ? "" : " without causal");
  double rate = op.getRate() ? op.getRate()->convertToDouble() : 0.0;
  if (!(rate >= 0.0 && rate < 1.0))
    return op.emitOpError("expects a rate of dropout in [0, 1) (")
           << rateRule << "), got " << rate;
  bool hasRate = op.getRate().has_value();
  unsigned scalars = llvm::count_if(
      ArrayRef<Value>{op.getSeed(), op.getUpdate(), op.getMicroStep()},
      [](Value scalar) { return scalar != nullptr; });
  ArrayRef<int64_t> strides = op.getStrides().value_or(ArrayRef<int64_t>());
  bool isPlaced = op.getFirst() != nullptr;
  bool goodSite =
      op.getSite() ? hasRate && *op.getSite() <= 0x7FFFFFFF : scalars == 0;
  bool goodStrides =
      isPlaced ? hasRate && strides.size() == 4 : !op.getStrides().has_value();
  if (goodSite && goodStrides && (scalars == 0 || scalars == 3) &&
      llvm::all_of(strides, [](int64_t stride) {
        return stride >= 0 && stride % 4 == 0;
      }))
    return success();
  InFlightDiagnostic error =
      op.emitOpError("expects a site in [0, 2^31) with a rate, seed, update "
                     "and micro_step together with a site, and four strides "
                     "that are multiples of 4 together with first (")
      << drawRule << "), got " << (hasRate ? "a" : "no") << " rate, ";
  if (op.getSite())
    error << "site " << static_cast<int64_t>(*op.getSite());
  else
    error << "no site";
  return error << ", " << scalars << " of the scalars and strides [" << strides
               << "]" << (isPlaced ? " with first" : "");
}

LogicalResult AttentionOp::verify() {
  return verifyScores(*this, "C4", "C5", "C6");
}
LogicalResult AttentionGradOp::verify() {
  return verifyScores(*this, "C5", "C6", "C7");
}
LogicalResult PackedAttentionOp::verify() {
  return verifyScores(*this, "C5", "C6", "C7");
}
LogicalResult PackedAttentionGradOp::verify() {
  return verifyScores(*this, "C6", "C7", "C8");
}

bool AttentionOp::draws() { return getRate().has_value(); }
bool AttentionGradOp::draws() { return getRate().has_value(); }
bool PackedAttentionOp::draws() { return getRate().has_value(); }
bool PackedAttentionGradOp::draws() { return getRate().has_value(); }

//===----------------------------------------------------------------------===//
// The definition
//===----------------------------------------------------------------------===//

namespace {
/// Builds the definition of an attention. Values "by head" are [B, Hk, H / Hk *
/// T, D] in the compute type: the query heads that share a head of k and v are
/// one matrix, so that all products are batched over B and Hk.
class AttentionBuilder {
public:
  AttentionBuilder(OpBuilder &b, Location loc, Value q, Value k, Value v,
                   Value mask, Value segments, bool causal,
                   std::optional<APFloat> scale, std::optional<int64_t> window,
                   const ScoreDraws &draws)
      : b(b), loc(loc), mask(mask), segments(segments), causal(causal),
        window(window), draws(draws) {
    RankedTensorType qType = getTensorType(q), kType = getTensorType(k);
    batch = qType.getDimSize(0);
    rows = qType.getDimSize(1);
    columns = kType.getDimSize(1);
    heads = qType.getDimSize(2);
    kvHeads = kType.getDimSize(2);
    elementType = qType.getElementType();
    compute = getComputeType(elementType);
    double size = qType.getDimSize(3);
    scaleValue =
        constant(scale ? scale->convertToDouble() : 1 / std::sqrt(size));
    byHeadQ = byHead(q);
    byHeadK = byHead(k);
    byHeadV = byHead(v);
  }

  void buildForward(Value &out, Value &lse) {
    Value scores = buildScores();
    Value max = finite(reduce(ReduceKind::max, scores));
    Value p = ExpOp::create(b, loc, SubOp::create(b, loc, scores, max));
    Value sum = reduce(ReduceKind::sum, p);
    Value log = AddOp::create(b, loc, max, LogOp::create(b, loc, sum));
    lse = reshapeTo(b, loc, log, {batch, heads, rows});
    // Only where all is masked is the sum 0: 0 / 1 there.
    Value isZero =
        CompareOp::create(b, loc, CompareKind::eq, sum, constant(0.0));
    sum = SelectOp::create(b, loc, isZero, constant(1.0), sum);
    p = DivOp::create(b, loc, p, sum);
    out = byToken(matmul(asProducts(dropOut(p)), false, byHeadV, false), heads,
                  rows);
  }

  void buildBackward(Value out, Value lse, Value dout) {
    Value p = buildProbabilities(lse);
    byHeadDout = byHead(dout);
    Value dp = dropOut(asScores(matmul(byHeadDout, false, byHeadV, true)));
    // sum over j of p[j] dp[j] = out . dout
    Value delta =
        reduce(ReduceKind::sum, MulOp::create(b, loc, byHead(out), byHeadDout));
    delta = reshapeTo(b, loc, delta, {batch, heads, rows, 1});
    probabilities = dropOut(p);
    scoreGrad = MulOp::create(b, loc, p, SubOp::create(b, loc, dp, delta));
  }

  Value buildQueryGrad() {
    return byToken(matmul(scaledGrad(), false, byHeadK, false), heads, rows);
  }
  Value buildKeyGrad() {
    return byToken(matmul(scaledGrad(), true, byHeadQ, false), kvHeads,
                   columns);
  }
  Value buildValueGrad() {
    return byToken(matmul(asProducts(probabilities), true, byHeadDout, false),
                   kvHeads, columns);
  }
  Value buildMaskGrad() {
    RankedTensorType type = getTensorType(mask);
    return castTo(b, loc, sumToShape(b, loc, scoreGrad, type.getShape()),
                  type.getElementType());
  }

private:
  Value constant(double value) {
    return scalarConstant(b, loc, compute, value);
  }
  Value matmul(Value lhs, bool transposeLhs, Value rhs, bool transposeRhs) {
    return MatmulOp::create(b, loc, lhs, rhs, Value(), transposeLhs,
                            transposeRhs);
  }
  Value reduce(ReduceKind kind, Value value) {
    return ReduceOp::create(b, loc, kind, value, int64_t(3), true);
  }
  /// [B, T, heads, D] by head.
  Value byHead(Value value) {
    RankedTensorType type = getTensorType(value);
    value = TransposeOp::create(b, loc, castTo(b, loc, value, compute),
                                ArrayRef<int64_t>{0, 2, 1, 3});
    int64_t perHead = type.getDimSize(1) * type.getDimSize(2) / kvHeads;
    return reshapeTo(b, loc, value,
                     {batch, kvHeads, perHead, type.getDimSize(3)});
  }
  /// A value by head as [B, T, heads, D] of the operands' element type.
  Value byToken(Value value, int64_t heads, int64_t length) {
    int64_t size = getTensorType(value).getShape().back();
    value = reshapeTo(b, loc, value, {batch, heads, length, size});
    value = TransposeOp::create(b, loc, value, ArrayRef<int64_t>{0, 2, 1, 3});
    return castTo(b, loc, value, elementType);
  }
  /// [B, H, Tq, Tk] from and to [B, Hk, H / Hk * Tq, Tk].
  Value asScores(Value products) {
    return reshapeTo(b, loc, products, {batch, heads, rows, columns});
  }
  Value asProducts(Value scores) {
    return reshapeTo(b, loc, scores,
                     {batch, kvHeads, heads / kvHeads * rows, columns});
  }
  /// What is dropped out of [B, H, Tq, Tk], as of the probabilities.
  Value dropOut(Value scores) {
    if (!draws.rate)
      return scores;
    int64_t group = heads / kvHeads;
    SmallVector<int64_t> strides =
        draws.strides ? llvm::to_vector(draws.strides.asArrayRef())
                      : getScoreStrides({batch, kvHeads, group, rows, columns});
    strides.push_back(1);
    Value apart =
        reshapeTo(b, loc, scores, {batch, kvHeads, group, rows, columns});
    Value first =
        draws.first ? draws.first : scalarConstant(b, loc, b.getI64Type(), 0.0);
    Value dropped = DropoutOp::create(
        b, loc, apart.getType(), apart, draws.rate, draws.site, draws.seed,
        draws.update, draws.microStep, first, b.getDenseI64ArrayAttr(strides));
    return reshapeTo(b, loc, dropped, {batch, heads, rows, columns});
  }
  /// The gradient of q k, of which those of q and k are made.
  Value scaledGrad() {
    if (!scaled)
      scaled = asProducts(MulOp::create(b, loc, scoreGrad, scaleValue));
    return scaled;
  }
  /// A maximum or lse per row, 0 where it is -inf (all masked), so that no -inf
  /// is taken from a score of -inf.
  Value finite(Value value) {
    Value infinity = constant(-std::numeric_limits<double>::infinity());
    Value isMasked =
        CompareOp::create(b, loc, CompareKind::eq, value, infinity);
    return SelectOp::create(b, loc, isMasked, constant(0.0), value);
  }

  Value buildScores() {
    Value scores = asScores(matmul(byHeadQ, false, byHeadK, true));
    scores = MulOp::create(b, loc, scores, scaleValue);
    Value infinity = constant(-std::numeric_limits<double>::infinity());
    if (mask && getTensorType(mask).getElementType().isInteger(1))
      scores = SelectOp::create(b, loc, mask, scores, infinity);
    else if (mask)
      scores = AddOp::create(b, loc, scores, castTo(b, loc, mask, compute));
    if (segments) {
      Value ofRow = reshapeTo(b, loc, segments, {batch, 1, rows, 1});
      Value ofColumn = reshapeTo(b, loc, segments, {batch, 1, 1, columns});
      Value same = CompareOp::create(b, loc, CompareKind::eq, ofRow, ofColumn);
      scores = SelectOp::create(b, loc, same, scores, infinity);
    }
    if (!causal)
      return scores;
    Type index = b.getI64Type();
    Value row =
        IotaOp::create(b, loc, RankedTensorType::get({rows, 1}, index), 0);
    Value column =
        IotaOp::create(b, loc, RankedTensorType::get({1, columns}, index), 1);
    Value last = AddOp::create(b, loc, row,
                               scalarConstant(b, loc, index, columns - rows));
    Value visible = CompareOp::create(b, loc, CompareKind::le, column, last);
    if (window) {
      Value before =
          SubOp::create(b, loc, last, scalarConstant(b, loc, index, *window));
      visible = AndOp::create(
          b, loc, visible,
          CompareOp::create(b, loc, CompareKind::gt, column, before));
    }
    return SelectOp::create(b, loc, visible, scores, infinity);
  }

  Value buildProbabilities(Value lse) {
    lse = reshapeTo(b, loc, lse, {batch, heads, rows, 1});
    return ExpOp::create(b, loc,
                         SubOp::create(b, loc, buildScores(), finite(lse)));
  }

  OpBuilder &b;
  Location loc;
  Value mask, segments;
  bool causal;
  std::optional<int64_t> window;
  ScoreDraws draws;
  int64_t batch, rows, columns, heads, kvHeads;
  Type elementType, compute;
  Value scaleValue, byHeadQ, byHeadK, byHeadV;
  /// Set by buildBackward.
  Value byHeadDout, probabilities, scoreGrad;
  Value scaled; // see scaledGrad
};
} // namespace

template <typename Op> static AttentionBuilder getBuilder(OpBuilder &b, Op op) {
  return AttentionBuilder(b, op.getLoc(), op.getQ(), op.getK(), op.getV(),
                          op.getMask(), op.getSegments(), op.getCausal(),
                          op.getScale(), op.getWindow(), ScoreDraws(op));
}

FailureOr<SmallVector<Value>> AttentionOp::decompose(OpBuilder &b) {
  Value out, lse;
  getBuilder(b, *this).buildForward(out, lse);
  return SmallVector<Value>{out, lse};
}

FailureOr<SmallVector<Value>> AttentionGradOp::decompose(OpBuilder &b) {
  AttentionBuilder builder = getBuilder(b, *this);
  builder.buildBackward(getOut(), getLse(), getDout());
  return SmallVector<Value>{builder.buildQueryGrad(), builder.buildKeyGrad(),
                            builder.buildValueGrad()};
}

/// Refuses a gradient of the lse.
static LogicalResult verifyResultGrads(Operation *op, ValueRange resultGrads) {
  if (resultGrads[1])
    return op->emitOpError("has no gradient through its log-sum-exp");
  return success();
}

static bool isFloatMask(Value mask) {
  return mask && isa<FloatType>(getTensorType(mask).getElementType());
}

LogicalResult
AttentionOp::buildGradients(OpBuilder &b, ValueRange resultGrads,
                            SmallVectorImpl<Value> &operandGrads) {
  if (failed(verifyResultGrads(*this, resultGrads)))
    return failure();
  auto grad = AttentionGradOp::create(
      b, getLoc(), getQ(), getK(), getV(), getOut(), getLse(), resultGrads[0],
      getMask(), getSegments(), /*delta=*/Value(), getCausalAttr(),
      getScaleAttr(), getWindowAttr(), getRateAttr(), getSiteAttr(), getSeed(),
      getUpdate(), getMicroStep(), getFirst(), getStridesAttr());
  llvm::copy(grad.getResults(), operandGrads.begin());
  if (isFloatMask(getMask())) {
    AttentionBuilder builder = getBuilder(b, *this);
    builder.buildBackward(getOut(), getLse(), resultGrads[0]);
    operandGrads[3] = builder.buildMaskGrad();
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Packed attention
//===----------------------------------------------------------------------===//

/// q, k and v, [B, T, heads, D] each.
static std::array<Value, 3> unpack(OpBuilder &b, Location loc, Value qkv,
                                   PackedSizes sizes) {
  int64_t head = 0;
  auto take = [&](int64_t heads) {
    SmallVector<int64_t> offsets = {0, 0, head * sizes.headSize};
    SmallVector<int64_t> extents = {sizes.batch, sizes.length,
                                    heads * sizes.headSize};
    head += heads;
    Value slice =
        SliceOp::create(b, loc, qkv, offsets, extents, DenseI64ArrayAttr());
    return reshapeTo(b, loc, slice,
                     {sizes.batch, sizes.length, heads, sizes.headSize});
  };
  return {take(sizes.heads), take(sizes.kvHeads), take(sizes.kvHeads)};
}

FailureOr<SmallVector<Value>> PackedAttentionOp::decompose(OpBuilder &b) {
  auto [q, k, v] = unpack(b, getLoc(), getQkv(), getPackedSizes(*this));
  auto attention = AttentionOp::create(
      b, getLoc(), q, k, v, getMask(), /*segments=*/Value(), getCausalAttr(),
      getScaleAttr(), getWindowAttr(), getRateAttr(), getSiteAttr(), getSeed(),
      getUpdate(), getMicroStep(), getFirst(), getStridesAttr());
  Value out = reshapeTo(b, getLoc(), attention.getOut(),
                        getTensorType(getOut()).getShape());
  return SmallVector<Value>{out, attention.getLse()};
}

FailureOr<SmallVector<Value>> PackedAttentionGradOp::decompose(OpBuilder &b) {
  Location loc = getLoc();
  PackedSizes sizes = getPackedSizes(*this);
  auto [q, k, v] = unpack(b, loc, getQkv(), sizes);
  ArrayRef<int64_t> shape = getTensorType(q).getShape();
  auto grad = AttentionGradOp::create(
      b, loc, q, k, v, reshapeTo(b, loc, getOut(), shape), getLse(),
      reshapeTo(b, loc, getDout(), shape), getMask(), /*segments=*/Value(),
      getDelta(), getCausalAttr(), getScaleAttr(), getWindowAttr(),
      getRateAttr(), getSiteAttr(), getSeed(), getUpdate(), getMicroStep(),
      getFirst(), getStridesAttr());
  SmallVector<Value> parts;
  for (Value part : grad.getResults())
    parts.push_back(
        reshapeTo(b, loc, part,
                  {sizes.batch, sizes.length,
                   getTensorType(part).getDimSize(2) * sizes.headSize}));
  Value packed = ConcatOp::create(b, loc, parts, b.getI64IntegerAttr(2));
  return SmallVector<Value>{packed};
}

LogicalResult
PackedAttentionOp::buildGradients(OpBuilder &b, ValueRange resultGrads,
                                  SmallVectorImpl<Value> &operandGrads) {
  if (failed(verifyResultGrads(*this, resultGrads)))
    return failure();
  Location loc = getLoc();
  operandGrads[0] = PackedAttentionGradOp::create(
      b, loc, getQkv(), getOut(), getLse(), resultGrads[0], getMask(),
      /*delta=*/Value(), getHeadsAttr(), getKvHeadsAttr(), getCausalAttr(),
      getScaleAttr(), getWindowAttr(), getRateAttr(), getSiteAttr(), getSeed(),
      getUpdate(), getMicroStep(), getFirst(), getStridesAttr());
  if (isFloatMask(getMask())) {
    auto [q, k, v] = unpack(b, loc, getQkv(), getPackedSizes(*this));
    ArrayRef<int64_t> shape = getTensorType(q).getShape();
    AttentionBuilder builder(b, loc, q, k, v, getMask(), /*segments=*/Value(),
                             getCausal(), getScale(), getWindow(),
                             ScoreDraws(*this));
    builder.buildBackward(reshapeTo(b, loc, getOut(), shape), getLse(),
                          reshapeTo(b, loc, resultGrads[0], shape));
    operandGrads[1] = builder.buildMaskGrad();
  }
  return success();
}
