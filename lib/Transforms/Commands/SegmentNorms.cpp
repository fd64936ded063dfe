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

ParamOp trainc::lookupParam(Attribute ref, SymbolTable &symbols) {
  return symbols.lookup<ParamOp>(cast<FlatSymbolRefAttr>(ref).getValue());
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

int64_t BlockSums::add(OpBuilder &b, Value blocks, SegmentSquareSumOp op,
                       size_t params, const Sharding &sharding) {
  if (sharding.over) {
    RankedTensorType type = nn::getTensorType(blocks);
    blocks = AllGatherOp::create(
        b, blocks.getLoc(), type.clone({type.getDimSize(0) * sharding.shards}),
        blocks, sharding.over);
  }
  SmallVector<SmallVector<std::pair<int64_t, int64_t>>> ranges(params);
  int64_t at = 0, shard = 0;
  auto ends = op.getShards();
  for (auto [i, length] : llvm::enumerate(op.getLengths())) {
    while (ends && static_cast<int64_t>(i) >= (*ends)[shard + 1])
      at = ++shard * op.countBlocks();
    int64_t count = llvm::divideCeil(length, kNormBlock);
    ranges[ends ? (*op.getOwners())[i] : i].push_back({at, count});
    at += count;
  }
  for (auto [number, ofParam] : llvm::enumerate(ranges))
    for (auto [first, count] : ofParam) {
      sources.push_back(inputs.size());
      firsts.push_back(first);
      counts.push_back(count);
      owners.push_back(sums + number);
    }
  isSharded |= ends.has_value();
  inputs.push_back(blocks);
  sums += params;
  return sums - params;
}

ValueRange BlockSums::create(OpBuilder &b, Location loc,
                             ArrayRef<Attribute> sets, ArrayRef<Type> types) {
  return SumBlocksOp::create(b, named(loc, "sum_norm"), types, inputs, sources,
                             firsts, counts, b.getArrayAttr(sets),
                             isSharded ? b.getDenseI64ArrayAttr(owners)
                                       : DenseI64ArrayAttr())
      .getResults();
}

LogicalResult SegmentUpdates::expand(NormSquaredOp norm) {
  OpBuilder b(norm);
  Location loc = norm.getLoc();
  ArrayAttr over = norm.getOverAttr();
  Sharding sharding{over, countShards(over), readShard(over)};
  llvm::MapVector<StringAttr, SmallVector<ParamOp>> byArena;
  DenseSet<Attribute> seen;
  for (auto params : norm.getParams().getAsRange<ArrayAttr>())
    for (Attribute ref : params)
      if (seen.insert(ref).second) {
        ParamOp param = lookupParam(ref, symbols);
        byArena[b.getStringAttr(gradientArena(param, over != nullptr, symbols))]
            .push_back(param);
      }
  for (auto &[name, params] : byArena)
    if (failed(verifyArena(norm, name, params, sharding.shards > 1)))
      return failure();
  BlockSums sums;
  DenseMap<StringAttr, int64_t> numberOf;
  for (auto &[name, params] : byArena) {
    ElementCode code;
    Value gradient = code.addArray(readArena(b, loc, name, params));
    OpBuilder inner = code.builder();
    train::YieldOp::create(inner, loc, gradient, Value(), Value());
    SmallVector<int64_t> groups(params.size(), 0);
    auto op = sumSquares(b, loc, code, params, groups, /*members=*/1, sharding,
                         layouts);
    int64_t first = sums.add(b, op.getResult(0), op, params.size(), sharding);
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
