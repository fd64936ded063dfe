//===- ShardingRule.cpp - Which dimensions are split alike ----------------===//
#include "trainc/Dialect/NN/ShardingRule.h"
#include "trainc/Dialect/NN/NNOps.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::nn;

ShardingRule::ShardingRule(Operation *op) : op(op) {
  for (Value operand : op->getOperands())
    operands.emplace_back(getTensorType(operand).getRank());
  for (Value result : op->getResults())
    results.emplace_back(getTensorType(result).getRank());
}

int64_t ShardingRule::getSize(Place place) const {
  Value value = place.isResult ? Value(op->getResult(place.index))
                               : op->getOperand(place.index);
  return getTensorType(value).getDimSize(place.dim);
}

void ShardingRule::share(FactorKind kind, ArrayRef<Place> places,
                         std::optional<int64_t> size) {
  unsigned factor = factors.size();
  factors.push_back({size ? *size : getSize(places.front()), kind});
  for (Place place : places)
    dimsOf(place)[place.dim].push_back(factor);
}

void ShardingRule::shareDims(FactorKind kind, int64_t first, int64_t last,
                             ArrayRef<Place> values) {
  for (int64_t dim = first; dim < last; ++dim) {
    SmallVector<Place> places(values);
    for (Place &place : places)
      place.dim = dim;
    share(kind, places);
  }
}

/// Operands are aligned at the last dimension; one of size 1 is repeated.
static ShardingRule getPointwiseRule(PointwiseOpInterface op) {
  ShardingRule rule(op);
  int64_t rank = getTensorType(op->getResult(0)).getRank();
  for (int64_t dim = 0; dim < rank; ++dim) {
    SmallVector<ShardingRule::Place> places;
    for (unsigned i = 0; i < op->getNumResults(); ++i)
      places.push_back(ShardingRule::out(i, dim));
    int64_t size = rule.getSize(places.front());
    for (unsigned i = 0; i < op->getNumOperands(); ++i) {
      int64_t mine = dim - rank + getTensorType(op->getOperand(i)).getRank();
      auto place = ShardingRule::in(i, mine);
      if (mine >= 0 && rule.getSize(place) == size)
        places.push_back(place);
    }
    rule.share(FactorKind::Parallel, places);
  }
  rule.linear = op.getLinearOperands();
  return rule;
}

std::optional<ShardingRule> nn::getShardingRule(Operation *op) {
  if (auto shardable = dyn_cast<ShardableOpInterface>(op))
    return shardable.getShardingRule();
  if (auto pointwise = dyn_cast<PointwiseOpInterface>(op))
    return getPointwiseRule(pointwise);
  return std::nullopt;
}
