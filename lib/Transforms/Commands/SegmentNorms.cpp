//===- SegmentNorms.cpp - Sums of squares of segments ---------------------===//
#include "SegmentNorms.h"
#include "SegmentUpdates.h"
#include "trainc/Dialect/NN/NNOps.h"
#include "trainc/Dialect/Train/TrainArenas.h"
#include "trainc/Transforms/Plan/PlanValues.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace trainc;
using namespace trainc::train;

Location trainc::named(Location loc, StringRef name) {
  return NameLoc::get(StringAttr::get(loc.getContext(), name), loc);
}

SegmentSquareSumOp
trainc::sumSquares(OpBuilder &b, Location loc, ElementCode &code,
                   ArrayRef<ParamOp> params, ArrayRef<int64_t> groups,
                   size_t members, const Sharding &sharding, Layouts &layouts) {
  SplitCode split = splitCode(b, loc, code, members);
  SmallVector<int64_t> ofParams(groups);
  if (split.grouped.empty())
    ofParams.assign(params.size(), 0);
  SegmentTable table =
      makeTable(code, params, ofParams, sharding.shards, layouts);
  // Of the shard that has the most.
  int64_t blocks = 0, ofShard = 0;
  for (auto [i, length] : llvm::enumerate(table.lengths)) {
    if (llvm::is_contained(table.shards, static_cast<int64_t>(i)))
      ofShard = 0;
    ofShard += llvm::divideCeil(length, kNormBlock);
    blocks = std::max(blocks, ofShard);
  }
  size_t values = code.block->getTerminator()->getNumOperands();
  SmallVector<Type> types(values,
                          RankedTensorType::get({blocks}, b.getF64Type()));
  auto op = SegmentSquareSumOp::create(
      b, named(loc, "norm"), types, code.arrays, split.uniforms, split.grouped,
      code.each, sharding.shard, table.toAttr(b), /*indexed=*/false,
      kNormBlock);
  op.getBody().takeBody(*split.region);
  return op;
}

int64_t BlockSums::add(Value blocks, SegmentSquareSumOp op, size_t params) {
  SmallVector<SmallVector<Range>> ofParams(params);
  int64_t at = 0, shard = 0, source = inputs.size();
  auto ends = op.getShards();
  for (auto [i, length] : llvm::enumerate(op.getLengths())) {
    while (ends && static_cast<int64_t>(i) >= (*ends)[shard + 1]) {
      ++shard;
      at = 0;
    }
    int64_t count = llvm::divideCeil(length, kNormBlock);
    int64_t param = ends ? (*op.getOwners())[i] : static_cast<int64_t>(i);
    ofParams[param].push_back({source, shard, at, count, sums + param});
    at += count;
  }
  for (ArrayRef<Range> ofParam : ofParams)
    llvm::append_range(ranges, ofParam);
  inputs.push_back(blocks);
  sums += params;
  return sums - params;
}

ValueRange BlockSums::create(OpBuilder &b, Location loc,
                             ArrayRef<Attribute> sets, ArrayRef<Type> types) {
  SmallVector<int64_t> bases, sources, firsts, counts, owners;
  int64_t blocks = 0; // of a shard
  for (Value input : inputs) {
    bases.push_back(blocks);
    blocks += nn::getTensorType(input).getNumElements();
  }
  SmallVector<Value> operands = inputs;
  if (sharding.over) {
    Value own = inputs.size() == 1
                    ? inputs.front()
                    : nn::ConcatOp::create(b, loc, inputs, 0).getResult();
    operands = {AllGatherOp::create(
        b, loc,
        RankedTensorType::get({blocks * sharding.shards}, b.getF64Type()), own,
        sharding.over)};
  }
  for (const Range &range : ranges) {
    sources.push_back(sharding.over ? 0 : range.source);
    firsts.push_back(sharding.over ? range.shard * blocks +
                                         bases[range.source] + range.first
                                   : range.first);
    counts.push_back(range.count);
    owners.push_back(range.owner);
  }
  return SumBlocksOp::create(b, named(loc, "sum_norm"), types, operands,
                             sources, firsts, counts, b.getArrayAttr(sets),
                             sharding.over ? b.getDenseI64ArrayAttr(owners)
                                           : DenseI64ArrayAttr())
      .getResults();
}

LogicalResult SegmentUpdates::expand(NormSquaredOp norm) {
  OpBuilder b(norm);
  Location loc = norm.getLoc();
  ArrayAttr over = norm.getOverAttr();
  Sharding sharding{over, countShards(over), readShard(over)};
  // By arena, and by bucket where the list writes buckets: what is read as a whole would not
  // follow these.
  llvm::MapVector<std::pair<StringAttr, Operation *>, SmallVector<ParamOp>>
      parts;
  DenseSet<Attribute> seen;
  for (auto params : norm.getParams().getAsRange<ArrayAttr>())
    for (Attribute ref : params)
      if (seen.insert(ref).second) {
        ParamOp param = lookupParam(ref, symbols);
        auto arena =
            b.getStringAttr(gradientArena(param, over != nullptr, symbols));
        Operation *bucket =
            written.contains(arena) ? bucketOf(param) : BucketOp();
        parts[{arena, bucket}].push_back(param);
      }
  for (auto &[part, params] : parts)
    if (failed(verifyArena(norm, part.first, params, sharding.shards > 1)))
      return failure();
  BlockSums sums(sharding);
  DenseMap<StringAttr, int64_t> numberOf;
  for (auto &[part, params] : parts) {
    ElementCode code;
    Value gradient = code.addArray(readArena(b, loc, part.first, params));
    OpBuilder inner = code.builder();
    train::YieldOp::create(inner, loc, gradient, Value(), Value());
    SmallVector<int64_t> groups(params.size(), 0);
    auto op = sumSquares(b, loc, code, params, groups, /*members=*/1, sharding,
                         layouts);
    int64_t first = sums.add(op.getResult(0), op, params.size());
    for (ParamOp param : params)
      numberOf[param.getSymNameAttr()] = first++;
  }
  SmallVector<Attribute> sets;
  for (auto params : norm.getParams().getAsRange<ArrayAttr>()) {
    SmallVector<int64_t> set;
    for (auto ref : params.getAsRange<FlatSymbolRefAttr>())
      set.push_back(numberOf.lookup(ref.getAttr()));
    sets.push_back(b.getDenseI64ArrayAttr(set));
  }
  norm->replaceAllUsesWith(
      sums.create(b, loc, sets, llvm::to_vector(norm.getResultTypes())));
  norm.erase();
  return success();
}
