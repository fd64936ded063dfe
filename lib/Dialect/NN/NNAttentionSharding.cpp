//===- NNAttentionSharding.cpp - How attention is done in parts -----------===//
#include "PackedAttention.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Dialect/NN/NNRandom.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::nn;

/// The number of an optional operand, if there is one.
static std::optional<unsigned> optionalAt(Value operand, unsigned number) {
  return operand ? std::optional<unsigned>(number) : std::nullopt;
}

/// `values` at dimension `dim`.
static SmallVector<ShardingRule::Place> at(ArrayRef<ShardingRule::Place> values,
                                           int64_t dim) {
  SmallVector<ShardingRule::Place> places(values);
  for (ShardingRule::Place &place : places)
    place.dim = dim;
  return places;
}

/// Adds dimension `dim` of [B, H, Tq, Tk] of operand `mask`, where it is not repeated.
static void addMask(ShardingRule &rule, std::optional<unsigned> mask,
                    SmallVectorImpl<ShardingRule::Place> &places, int64_t dim,
                    int64_t size) {
  if (!mask)
    return;
  int64_t rank = getTensorType(rule.op->getOperand(*mask)).getRank();
  ShardingRule::Place place = ShardingRule::in(*mask, dim - 4 + rank);
  if (place.dim >= 0 && rule.getSize(place) == size)
    places.push_back(place);
}

/// The rule of an attention or of its gradients, whose first operands are q, k and v.
/// `queries` are places of dimension 0 of what is [B, Tq, H, D], `keys` of what is [B, Tk,
/// Hk, D], `rows` of what is [B, H, Tq]; `mask` and `segments` are numbers of operands. `cut`
/// says whether queries can be apart.
static ShardingRule getAttentionRule(Operation *op, bool cut,
                                     ArrayRef<ShardingRule::Place> queries,
                                     ArrayRef<ShardingRule::Place> keys,
                                     ArrayRef<ShardingRule::Place> rows,
                                     std::optional<unsigned> mask,
                                     std::optional<unsigned> segments) {
  ShardingRule rule(op);
  using Place = ShardingRule::Place;
  auto withMask = [&](SmallVector<Place> places, int64_t dim, int64_t size) {
    addMask(rule, mask, places, dim, size);
    return places;
  };
  int64_t batch = rule.getSize(rule.in(0, 0)),
          heads = rule.getSize(rule.in(0, 2));
  int64_t kvHeads = rule.getSize(rule.in(1, 2));

  SmallVector<Place> all = at(queries, 0);
  all.append(at(keys, 0));
  all.append(at(rows, 0));
  if (segments)
    all.push_back(ShardingRule::in(*segments, 0));
  rule.share(FactorKind::Parallel, withMask(all, 0, batch));
  if (cut) {
    SmallVector<Place> positions = at(queries, 1);
    positions.append(at(rows, 2));
    rule.share(FactorKind::Parallel,
               withMask(positions, 2, rule.getSize(rule.in(0, 1))));
  }
  // Heads of q: those of k and v, times how many share one.
  SmallVector<Place> each = withMask(at(queries, 2), 1, heads);
  each.append(at(rows, 1));
  SmallVector<Place> shared = each;
  shared.append(at(keys, 2));
  rule.share(FactorKind::Parallel, shared, kvHeads);
  rule.share(cut ? FactorKind::Parallel : FactorKind::Whole, each,
             heads / kvHeads);
  return rule;
}

ShardingRule AttentionOp::getShardingRule() {
  using R = ShardingRule;
  // A causal mask counts positions from the last; segments are of queries and keys.
  return getAttentionRule(
      *this, !getCausal() && !getSegments(), {R::in(0, 0), R::out(0, 0)},
      {R::in(1, 0), R::in(2, 0)}, {R::out(1, 0)}, optionalAt(getMask(), 3),
      optionalAt(getSegments(), getMask() ? 4 : 3));
}

ShardingRule AttentionGradOp::getShardingRule() {
  using R = ShardingRule;
  SmallVector<R::Place> queries = {R::in(0, 0), R::in(3, 0), R::in(5, 0),
                                   R::out(0, 0)};
  if (getDelta())
    queries.push_back(R::in(getDeltaMutable().begin()->getOperandNumber(), 0));
  return getAttentionRule(
      *this, /*cut=*/false, queries,
      {R::in(1, 0), R::in(2, 0), R::out(1, 0), R::out(2, 0)}, {R::in(4, 0)},
      optionalAt(getMask(), 6), optionalAt(getSegments(), getMask() ? 7 : 6));
}

/// The batch and, if there are as many of keys and values, the heads. `packed` are laid
/// out as q, k and v, `outs` as their heads are, `lse` as [B, H, T], `delta`, if there is
/// any, as [B, T, H].
static ShardingRule getPackedRule(Operation *op, int64_t heads, int64_t kvHeads,
                                  std::optional<unsigned> mask,
                                  ArrayRef<ShardingRule::Place> packed,
                                  ArrayRef<ShardingRule::Place> outs,
                                  ShardingRule::Place lse,
                                  ArrayRef<ShardingRule::Place> delta = {}) {
  using Place = ShardingRule::Place;
  ShardingRule rule(op);
  auto withMask = [&](SmallVector<Place> places, int64_t dim, int64_t size) {
    addMask(rule, mask, places, dim, size);
    return places;
  };
  SmallVector<Place> batch = at(packed, 0);
  batch.append(at(outs, 0));
  batch.append(at(delta, 0));
  batch.push_back(lse);
  rule.share(FactorKind::Parallel, withMask(batch, 0, rule.getSize(lse)));
  if (heads != kvHeads)
    return rule;
  rule.share(FactorKind::Whole, at(packed, 2), 3);
  SmallVector<Place> all = at(packed, 2);
  all.append(at(outs, 2));
  int64_t size = rule.getSize(at(outs, 2)[0]) / heads;
  SmallVector<Place> each = all;
  each.append(at(delta, 2));
  lse.dim = 1;
  each.push_back(lse);
  rule.share(FactorKind::Parallel, withMask(each, 1, heads), heads);
  rule.share(FactorKind::Whole, all, size);
  return rule;
}

ShardingRule PackedAttentionOp::getShardingRule() {
  using R = ShardingRule;
  return getPackedRule(*this, getHeads(), getKvHeads().value_or(getHeads()),
                       optionalAt(getMask(), 1), {R::in(0, 0)}, {R::out(0, 0)},
                       R::out(1, 0));
}
ShardingRule PackedAttentionGradOp::getShardingRule() {
  using R = ShardingRule;
  SmallVector<R::Place> delta;
  if (getDelta())
    delta.push_back(R::in(getDeltaMutable().begin()->getOperandNumber(), 0));
  return getPackedRule(*this, getHeads(), getKvHeads().value_or(getHeads()),
                       optionalAt(getMask(), 4), {R::in(0, 0), R::out(0, 0)},
                       {R::in(1, 0), R::in(3, 0)}, R::in(2, 0), delta);
}

template <typename Op> static void setHeadsOf(Op op) {
  int64_t heads = getTensorType(op.getLse()).getDimSize(1);
  if (op.getKvHeads())
    op.setKvHeads(*op.getKvHeads() * heads / op.getHeads());
  op.setHeads(heads);
}

void PackedAttentionOp::adaptToTypes() { setHeadsOf(*this); }
void PackedAttentionGradOp::adaptToTypes() { setHeadsOf(*this); }

ScoreShape nn::getScoreShape(Operation *attention) {
  auto shapeOf = [](Value lse, int64_t kvHeads, int64_t columns) {
    ArrayRef<int64_t> rows = getTensorType(lse).getShape();
    return ScoreShape{rows[0], kvHeads, rows[1] / kvHeads, rows[2], columns};
  };
  auto separate = [&](auto op) {
    ArrayRef<int64_t> keys = getTensorType(op.getK()).getShape();
    return shapeOf(op.getLse(), keys[2], keys[1]);
  };
  auto packed = [&](auto op) { // as many keys as queries
    PackedSizes sizes = getPackedSizes(op);
    return shapeOf(op.getLse(), sizes.kvHeads, sizes.length);
  };
  return TypeSwitch<Operation *, ScoreShape>(attention)
      .Case<AttentionOp, AttentionGradOp>(separate)
      .Case<PackedAttentionOp, PackedAttentionGradOp>(packed);
}
