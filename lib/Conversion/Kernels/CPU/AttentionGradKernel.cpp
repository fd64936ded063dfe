//===- AttentionGradKernel.cpp - Gradients of an attention by blocks ------===//
//
// A tile is a head of keys and values with all the heads of queries that read
// it. It goes over blocks of keys and, inside, over the queries that see
// them: dk and dv of a block are complete when its queries are done, dq when
// the tile ends; it is summed in scratch if its type is narrower than the sums.
// The probabilities are recomputed from lse.
//
//===----------------------------------------------------------------------===//
#include "Common/AttentionEmitter.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "trainc/Dialect/NN/NNRandom.h"

using namespace mlir;
using namespace trainc;

std::pair<Value, Value> AttentionEmitter::scoreGrad(LoopBuilder &l, Value score,
                                                    Value dp, Value lse,
                                                    Value delta) {
  Value p = exp(l, arith::SubFOp::create(l.b, loc, score, lse));
  Value ds = arith::MulFOp::create(l.b, loc, p,
                                   arith::SubFOp::create(l.b, loc, dp, delta));
  return {p, arith::MulFOp::create(l.b, loc, ds, constant(l, scale))};
}

namespace {
struct BlockBackward : AttentionEmitter {
  BlockBackward(const AttentionEmitter &emitter, HeadMatrix dq, HeadMatrix dk,
                HeadMatrix dv)
      : AttentionEmitter(emitter), dq(dq), dk(dk), dv(dv) {}

  int64_t emit();

private:
  HeadMatrix dq, dk, dv;
  int64_t group; // heads of queries
  Value kvHead, batchIndex, firstHead;
  Value keys, values, keySums, valueSums, weights, dps;
  /// Null where nothing is widened or gathered.
  Value wideKeys, wideQueries, wideDouts, wideSums;
  Value deltas;
  nn::RandomCounter counter;

  void placeTile(LoopBuilder &l);
  void allocate(LoopBuilder &l);
  void inHeads(LoopBuilder &l, LoopBuilder::Body body) {
    l.loop(l.index(0), l.index(group), 1, body);
  }

  void computeDeltas(LoopBuilder &l);
  Rows sumsOf(LoopBuilder &l, Value member, Value low);
  void clearUnseen(LoopBuilder &l);
  void weighRows(LoopBuilder &l, Value first, Value member, Value head,
                 Value low, Value count);
  void doQueries(LoopBuilder &l, Value first, Value lanes, Value member,
                 Value low, const Rows &keyRows);
  void prefetchBlocks(LoopBuilder &l, Value first, Value lanes);
  std::pair<Value, Value> visibleQueries(LoopBuilder &l, Value first);
  void doKeys(LoopBuilder &l, Value first);
  void writeQueries(LoopBuilder &l);
};
} // namespace

void BlockBackward::placeTile(LoopBuilder &l) {
  kvHead = l.mod(function.tile, kvHeads);
  batchIndex = l.div(function.tile, kvHeads);
  group = heads / kvHeads;
  firstHead = l.mul(kvHead, group);
}

void BlockBackward::allocate(LoopBuilder &l) {
  keys = scratch(l, paddedSize());
  values = scratch(l, paddedSize());
  keySums = scratch(l, paddedSize());
  valueSums = scratch(l, paddedSize());
  weights = scratch(l, kAttentionRows);
  dps = scratch(l, kAttentionRows);
  wideKeys = scratchToGather(l, blockLanes, k);
  wideQueries = scratchToGather(l, kAttentionRows, q);
  wideDouts = scratchToGather(l, kAttentionRows, dout);
  deltas = function.allocateScratch(l, compute, group * rows);
  wideSums = dq.memref ? scratchToWiden(l, group * rows) : Value();
  maskRow = scratch(l, 1);
}

/// The sum over j of p[j] dp[j] is out . dout.
void BlockBackward::computeDeltas(LoopBuilder &l) {
  inHeads(l, [&](LoopBuilder &l, Value member) {
    Value head = l.add(firstHead, member);
    l.loop(l.index(0), l.index(rows), 1, [&](LoopBuilder &l, Value row) {
      Value delta = dot(l, rowsOf(l, out, batchIndex, head, row),
                        rowsOf(l, dout, batchIndex, head, row));
      l.storeScalar(delta, deltas, l.add(l.mul(member, rows), row), compute);
    });
  });
}

/// Where dq of the queries of a head from row `low` on is summed.
Rows BlockBackward::sumsOf(LoopBuilder &l, Value member, Value low) {
  if (!wideSums)
    return rowsOf(l, dq, batchIndex, l.add(firstHead, member), low);
  Value row = l.add(l.mul(member, rows), low);
  return {wideSums, l.mul(row, headSize), headSize, compute};
}

/// No key is visible to the first queries if there are more of them; with a window the
/// first block of keys is visible to the first queries only.
void BlockBackward::clearUnseen(LoopBuilder &l) {
  int64_t unseen = window ? rows : rows - columns;
  if (dq.memref && causal && unseen > 0)
    inHeads(l, [&](LoopBuilder &l, Value member) {
      copyRows(l, std::nullopt, l.index(unseen), sumsOf(l, member, l.index(0)));
    });
}

/// Of the queries from row `low` on: products in `weights` become gradients of scores, those
/// in `dps` probabilities.
void BlockBackward::weighRows(LoopBuilder &l, Value first, Value member,
                              Value head, Value low, Value count) {
  Value lseBase =
      l.add(l.mul(l.add(l.mul(batchIndex, heads), head), rows), low);
  Value memberRow = l.add(l.mul(member, rows), low);
  Value headDraw = rate ? firstDrawOf(l, batchIndex, head) : Value();
  l.loop(l.index(0), count, 1, [&](LoopBuilder &l, Value at) {
    Value score = finishScores(l, load(l, weights, at), batchIndex, head, first,
                               l.add(low, at), /*lanesAreQueries=*/false);
    Value log =
        l.splat(l.loadScalar(lse, l.add(lseBase, at), compute), blockLanes);
    Value delta = l.splat(l.loadScalar(deltas, l.add(memberRow, at), compute),
                          blockLanes);
    Value dp = load(l, dps, at), words;
    if (rate) {
      words = drawKeys(l, counter, headDraw, l.add(low, at), first);
      dp = dropOut(l, dp, words);
    }
    auto [p, ds] = scoreGrad(l, score, dp, finite(l, log), delta);
    store(l, rate ? dropOut(l, p, words) : p, dps, at);
    store(l, ds, weights, at);
  });
}

void BlockBackward::doQueries(LoopBuilder &l, Value first, Value lanes,
                              Value member, Value low, const Rows &keyRows) {
  Value head = l.add(firstHead, member);
  Value count = l.min(arith::SubIOp::create(l.b, loc, l.index(rows), low),
                      l.index(kAttentionRows));
  Rows queryRows =
      widen(l, rowsOf(l, q, batchIndex, head, low), count, wideQueries);
  Rows doutRows =
      widen(l, rowsOf(l, dout, batchIndex, head, low), count, wideDouts);
  multiply(l, queryRows, count, keys, weights);
  multiply(l, doutRows, count, values, dps);
  weighRows(l, first, member, head, low, count);
  if (dv.memref)
    accumulate(l, doutRows, count, dps, valueSums, Value());
  if (dk.memref)
    accumulate(l, queryRows, count, weights, keySums, Value());
  if (dq.memref) {
    Value isFirst = arith::CmpIOp::create(l.b, loc, arith::CmpIPredicate::eq,
                                          first, l.index(window ? -1 : 0));
    addProducts(l, keyRows, lanes ? lanes : l.index(blockLanes), weights, count,
                sumsOf(l, member, low), isFirst);
  }
}

/// Where a block's gradients go, and the next block's keys and values.
void BlockBackward::prefetchBlocks(LoopBuilder &l, Value first, Value lanes) {
  auto of = [&](const HeadMatrix &matrix, Value first) {
    return rowsOf(l, matrix, batchIndex, kvHead, first);
  };
  for (const HeadMatrix &gradient : {dk, dv})
    if (gradient.memref)
      prefetchRows(l, of(gradient, first), lanes ? lanes : l.index(blockLanes),
                   /*isWrite=*/true);
  Value next = l.min(l.add(first, l.index(blockLanes)), l.index(columns));
  Value count = l.min(arith::SubIOp::create(l.b, loc, l.index(columns), next),
                      l.index(blockLanes));
  for (const HeadMatrix &matrix : {k, v})
    prefetchRows(l, of(matrix, next), count, /*isWrite=*/false);
}

/// From where to where queries see keys of the block from `first` on.
std::pair<Value, Value> BlockBackward::visibleQueries(LoopBuilder &l,
                                                      Value first) {
  Value begin = l.index(0);
  if (causal) {
    begin = arith::SubIOp::create(l.b, loc, first, l.index(columns - rows));
    begin = arith::MaxSIOp::create(l.b, loc, begin, l.index(0));
  }
  Value end = l.index(rows);
  if (window) {
    end = l.add(first, l.index(blockLanes - 1 + *window - (columns - rows)));
    end = arith::MinSIOp::create(l.b, loc, end, l.index(rows));
  }
  return {begin, end};
}

void BlockBackward::doKeys(LoopBuilder &l, Value first) {
  Value lanes = countLanes(l, first, columns);
  Rows keyRows = rowsOf(l, k, batchIndex, kvHead, first);
  Rows valueRows = rowsOf(l, v, batchIndex, kvHead, first);
  pack(l, keyRows, lanes, keys);
  pack(l, valueRows, lanes, values);
  prefetchBlocks(l, first, lanes);
  clear(l, keySums, paddedSize());
  clear(l, valueSums, paddedSize());
  if (dq.memref)
    keyRows = widen(l, keyRows, lanes ? lanes : l.index(blockLanes), wideKeys);
  auto [begin, end] = visibleQueries(l, first);
  inHeads(l, [&, begin = begin, end = end](LoopBuilder &l, Value member) {
    l.loop(begin, end, kAttentionRows, [&](LoopBuilder &l, Value low) {
      doQueries(l, first, lanes, member, low, keyRows);
    });
  });
  if (dk.memref)
    unpack(l, keySums, rowsOf(l, dk, batchIndex, kvHead, first), lanes);
  if (dv.memref)
    unpack(l, valueSums, rowsOf(l, dv, batchIndex, kvHead, first), lanes);
}

/// From the sums to dq, where its type is narrower.
void BlockBackward::writeQueries(LoopBuilder &l) {
  if (wideSums)
    inHeads(l, [&](LoopBuilder &l, Value member) {
      Value head = l.add(firstHead, member);
      copyRows(l, sumsOf(l, member, l.index(0)), l.index(rows),
               rowsOf(l, dq, batchIndex, head, l.index(0)));
    });
}

int64_t BlockBackward::emit() {
  setBlocks(columns, rows);
  OpBuilder b = OpBuilder::atBlockEnd(&function.function.getBody().front());
  LoopBuilder l{b, loc};
  placeTile(l);
  allocate(l);
  if (rate)
    counter = loadCounter(l);
  computeDeltas(l);
  clearUnseen(l);
  l.loop(l.index(0), l.index(columns), blockLanes,
         [&](LoopBuilder &l, Value first) { doKeys(l, first); });
  writeQueries(l);
  func::ReturnOp::create(b, loc);
  return batch * kvHeads;
}

int64_t AttentionEmitter::emitBackward(HeadMatrix dq, HeadMatrix dk,
                                       HeadMatrix dv) {
  return BlockBackward(*this, dq, dk, dv).emit();
}
