//===- AttentionGradKernel.cpp - Gradients of an attention by blocks ------===//
//
// There are two kinds of tiles: first those of a block of queries, which go
// over the keys and make dq; then those of a block of keys, which go over the
// queries of all heads that read them and make dk and dv. Each recomputes the
// probabilities that it needs, so that no tile adds to what another one wrote.
//
//===----------------------------------------------------------------------===//
#include "AttentionEmitter.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/Support/MathExtras.h"

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

void AttentionEmitter::emitQueryTile(LoopBuilder &l, Value tile,
                                     HeadMatrix dq) {
  int64_t blocks = llvm::divideCeil(rows, kLanes);
  Value first = l.mul(l.mod(tile, blocks), kLanes);
  Value head = l.mod(l.div(tile, blocks), heads);
  Value batchIndex = l.div(tile, blocks * heads);
  Value kvHead = l.div(head, heads / kvHeads);
  Value queries = scratch(l, headSize), douts = scratch(l, headSize);
  Value sums = scratch(l, headSize);
  Value weights = scratch(l, kAttentionRows), dps = scratch(l, kAttentionRows);
  maskRow = scratch(l, 1);
  pack(l, {q, batchIndex, head}, first, queries);
  pack(l, {dout, batchIndex, head}, first, douts);
  // The sum over j of p[j] dp[j] is out . dout.
  pack(l, {out, batchIndex, head}, first, sums);
  Value delta =
      loop(l, l.index(0), l.index(headSize), 1, constant(l, 0.0),
           [&](LoopBuilder &l, Value d, ValueRange sum) {
             return SmallVector<Value>{math::FmaOp::create(
                 l.b, loc, load(l, sums, d), load(l, douts, d), sum[0])};
           })
          .front();
  clear(l, sums);
  Value lseAt = l.add(l.mul(l.div(tile, blocks), rows), first);
  Value logs =
      finite(l, l.loadVector(lse, lseAt, compute, lanesBelow(l, first, rows)));
  Value end = visibleKeys(l, first);
  loop(l, l.index(0), end, kAttentionRows, [&](LoopBuilder &l, Value low) {
    Value high = l.min(l.add(low, l.index(kAttentionRows)), end);
    multiply(l, {k, batchIndex, kvHead}, queries, low, high, weights);
    multiply(l, {v, batchIndex, kvHead}, douts, low, high, dps);
    loop(l, low, high, 1, [&](LoopBuilder &l, Value row) {
      Value at = arith::SubIOp::create(l.b, loc, row, low);
      Value score = finishScores(l, load(l, weights, at), batchIndex, head,
                                 first, row, /*lanesAreQueries=*/true);
      auto [p, ds] = scoreGrad(l, score, load(l, dps, at), logs, delta);
      store(l, ds, weights, at);
    });
    accumulate(l, {k, batchIndex, kvHead}, weights, low, high, sums, Value());
  });
  unpack(l, sums, {dq, batchIndex, head}, first);
}

void AttentionEmitter::emitKeyTile(LoopBuilder &l, Value tile, HeadMatrix dk,
                                   HeadMatrix dv) {
  int64_t blocks = llvm::divideCeil(columns, kLanes);
  Value first = l.mul(l.mod(tile, blocks), kLanes);
  Value kvHead = l.mod(l.div(tile, blocks), kvHeads);
  Value batchIndex = l.div(tile, blocks * kvHeads);
  Value keys = scratch(l, headSize), values = scratch(l, headSize);
  Value keySums = scratch(l, headSize), valueSums = scratch(l, headSize);
  Value weights = scratch(l, kAttentionRows), dps = scratch(l, kAttentionRows);
  maskRow = scratch(l, 1);
  pack(l, {k, batchIndex, kvHead}, first, keys);
  pack(l, {v, batchIndex, kvHead}, first, values);
  clear(l, keySums);
  clear(l, valueSums);
  Value begin = l.index(0);
  if (causal) {
    begin = arith::SubIOp::create(l.b, loc, first, l.index(columns - rows));
    begin = arith::MaxSIOp::create(l.b, loc, begin, l.index(0));
  }
  int64_t group = heads / kvHeads;
  Value firstHead = l.mul(kvHead, group);
  loop(l, firstHead, l.add(firstHead, l.index(group)), 1,
       [&](LoopBuilder &l, Value head) {
         Value lseBase = l.mul(l.add(l.mul(batchIndex, heads), head), rows);
         loop(l, begin, l.index(rows), kAttentionRows,
              [&](LoopBuilder &l, Value low) {
                Value high =
                    l.min(l.add(low, l.index(kAttentionRows)), l.index(rows));
                multiply(l, {q, batchIndex, head}, keys, low, high, weights);
                multiply(l, {dout, batchIndex, head}, values, low, high, dps);
                loop(l, low, high, 1, [&](LoopBuilder &l, Value row) {
                  Value at = arith::SubIOp::create(l.b, loc, row, low);
                  Value score =
                      finishScores(l, load(l, weights, at), batchIndex, head,
                                   first, row, /*lanesAreQueries=*/false);
                  Value outAt = rowOffset(l, {out, batchIndex, head}, row);
                  Value doutAt = rowOffset(l, {dout, batchIndex, head}, row);
                  Value delta =
                      loop(l, l.index(0), l.index(headSize), kLanes,
                           constant(l, 0.0),
                           [&](LoopBuilder &l, Value d, ValueRange sum) {
                             Value isInside = lanesBelow(l, d, headSize);
                             Value x = l.loadVector(out.memref, l.add(outAt, d),
                                                    element, isInside);
                             Value y =
                                 l.loadVector(dout.memref, l.add(doutAt, d),
                                              element, isInside);
                             return SmallVector<Value>{
                                 math::FmaOp::create(l.b, loc, x, y, sum[0])};
                           })
                          .front();
                  delta = l.splat(l.combineLanes(nn::ReduceKind::sum, delta));
                  Value log =
                      l.splat(l.loadScalar(lse, l.add(lseBase, row), compute));
                  auto [p, ds] = scoreGrad(l, score, load(l, dps, at),
                                           finite(l, log), delta);
                  store(l, p, dps, at);
                  store(l, ds, weights, at);
                });
                accumulate(l, {dout, batchIndex, head}, dps, low, high,
                           valueSums, Value());
                accumulate(l, {q, batchIndex, head}, weights, low, high,
                           keySums, Value());
              });
       });
  if (dk.memref)
    unpack(l, keySums, {dk, batchIndex, kvHead}, first);
  if (dv.memref)
    unpack(l, valueSums, {dv, batchIndex, kvHead}, first);
}

int64_t AttentionEmitter::emitBackward(HeadMatrix dq, HeadMatrix dk,
                                       HeadMatrix dv) {
  OpBuilder b = OpBuilder::atBlockEnd(&function.function.getBody().front());
  LoopBuilder l{b, loc};
  int64_t queryTiles =
      dq.memref ? batch * heads * llvm::divideCeil(rows, kLanes) : 0;
  int64_t keyTiles = dk.memref || dv.memref
                         ? batch * kvHeads * llvm::divideCeil(columns, kLanes)
                         : 0;
  auto emit = [&](LoopBuilder &l, bool isQuery) {
    if (isQuery)
      return emitQueryTile(l, function.tile, dq);
    Value tile =
        arith::SubIOp::create(l.b, loc, function.tile, l.index(queryTiles));
    emitKeyTile(l, tile, dk, dv);
  };
  if (queryTiles == 0 || keyTiles == 0) {
    emit(l, queryTiles != 0);
  } else {
    Value isQuery = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult,
                                          function.tile, l.index(queryTiles));
    auto branch = scf::IfOp::create(b, loc, isQuery, /*withElse=*/true);
    OpBuilder then = branch.getThenBodyBuilder();
    LoopBuilder t{then, loc};
    emit(t, true);
    OpBuilder otherwise = branch.getElseBodyBuilder();
    LoopBuilder e{otherwise, loc};
    emit(e, false);
  }
  func::ReturnOp::create(b, loc);
  return queryTiles + keyTiles;
}
