//===- NNIndexingSharding.cpp - How slices and gathers are done in parts --===//
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "trainc/Dialect/NN/NNBuilders.h"
#include "trainc/Dialect/NN/NNOps.h"
#include <cmath>

using namespace mlir;
using namespace trainc;
using namespace trainc::nn;

ShardingRule SliceOp::getShardingRule() {
  ShardingRule rule(*this);
  for (int64_t dim = 0; dim < getTensorType(getInput()).getRank(); ++dim)
    if (getTensorType(getInput()).getDimSize(dim) == getSizes()[dim])
      rule.share(FactorKind::Parallel, {rule.out(0, dim), rule.in(0, dim)});
  rule.linear = {{0}};
  return rule;
}

void SliceOp::adaptToTypes() {
  setSizes(getTensorType(getResult()).getShape());
}

ShardingRule PadOp::getShardingRule() {
  ShardingRule rule(*this);
  RankedTensorType from = getTensorType(getInput());
  for (int64_t dim = 0; dim < from.getRank(); ++dim)
    if (getLow()[dim] == 0 && getHigh()[dim] == 0 && getSteps()[dim] == 1)
      rule.share(FactorKind::Parallel, {rule.out(0, dim), rule.in(0, dim)});
  if (getValue().isZero())
    rule.linear = {{0}};
  return rule;
}

ShardingRule ConcatOp::getShardingRule() {
  ShardingRule rule(*this);
  SmallVector<unsigned> all;
  for (unsigned i = 0; i < getInputs().size(); ++i)
    all.push_back(i);
  for (int64_t dim = 0; dim < getTensorType(getResult()).getRank(); ++dim) {
    if (dim == static_cast<int64_t>(getDim()))
      continue;
    SmallVector<ShardingRule::Place> places{rule.out(0, dim)};
    for (unsigned i : all)
      places.push_back(rule.in(i, dim));
    rule.share(FactorKind::Parallel, places);
  }
  rule.linear = {all};
  return rule;
}

ShardingRule GatherOp::getShardingRule() {
  ShardingRule rule(*this);
  for (int64_t dim = 0; dim < getTensorType(getResult()).getRank(); ++dim) {
    SmallVector<ShardingRule::Place> places{rule.out(0, dim), rule.in(1, dim)};
    if (dim != static_cast<int64_t>(getDim()))
      places.push_back(rule.in(0, dim));
    rule.share(FactorKind::Parallel, places);
  }
  rule.linear = {{0}};
  return rule;
}

ShardingRule ScatterAddOp::getShardingRule() {
  ShardingRule rule(*this);
  for (int64_t dim = 0; dim < getTensorType(getResult()).getRank(); ++dim)
    if (dim == static_cast<int64_t>(getDim()))
      rule.share(FactorKind::Sum, {rule.in(0, dim), rule.in(1, dim)});
    else
      rule.share(FactorKind::Parallel,
                 {rule.out(0, dim), rule.in(0, dim), rule.in(1, dim)});
  rule.linear = {{1}};
  return rule;
}

ShardingRule PartOp::getShardingRule() {
  ShardingRule rule(*this);
  for (int64_t dim = 0; dim < getTensorType(getInput()).getRank(); ++dim)
    if (dim != static_cast<int64_t>(getDim()))
      rule.share(FactorKind::Parallel, {rule.out(0, dim), rule.in(0, dim)});
  rule.linear = {{0}};
  return rule;
}
