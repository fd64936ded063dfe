//===- AttentionGradKernel.cpp - Gradients of an attention by blocks ------===//
//
// A tile is a head of keys and values with all the heads of queries that read
// it. It goes over blocks of kLanes keys and, inside, over the queries that see
// them: dk and dv of a block are complete when its queries are done, dq is
// summed in scratch until the tile ends. The probabilities are recomputed from
// lse.
//
//===----------------------------------------------------------------------===//
#include "AttentionEmitter.h"
#include "mlir/Dialect/Math/IR/Math.h"

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

int64_t AttentionEmitter::emitBackward(HeadMatrix dq, HeadMatrix dk,
                                       HeadMatrix dv) {
  OpBuilder b = OpBuilder::atBlockEnd(&function.function.getBody().front());
  LoopBuilder l{b, loc};
  Value kvHead = l.mod(function.tile, kvHeads);
  Value batchIndex = l.div(function.tile, kvHeads);
  int64_t group = heads / kvHeads;
  Value firstHead = l.mul(kvHead, group);
  auto inHeads = [&](LoopBuilder &l, Body body) {
    loop(l, l.index(0), l.index(group), 1, body);
  };

  int64_t padded = llvm::alignTo(headSize, rowLanes());
  Value keys = scratch(l, paddedSize()), values = scratch(l, paddedSize());
  Value keySums = scratch(l, paddedSize()),
        valueSums = scratch(l, paddedSize());
  Value weights = scratch(l, kAttentionRows), dps = scratch(l, kAttentionRows);
  Value wideKeys = scratchToWiden(l, kLanes);
  Value wideQueries = scratchToWiden(l, kAttentionRows);
  Value wideDouts = scratchToWiden(l, kAttentionRows);
  Value deltas = function.allocateScratch(l, compute, group * rows);
  Value querySums;
  int64_t querySize = llvm::alignTo(group * rows * padded, kLanes);
  if (dq.memref)
    querySums = function.allocateScratch(l, compute, querySize);
  maskRow = scratch(l, 1);

  // The sum over j of p[j] dp[j] is out . dout.
  inHeads(l, [&](LoopBuilder &l, Value member) {
    Value head = l.add(firstHead, member);
    loop(l, l.index(0), l.index(rows), 1, [&](LoopBuilder &l, Value row) {
      Value delta = dot(l, rowsOf(l, out, batchIndex, head, row),
                        rowsOf(l, dout, batchIndex, head, row));
      l.storeScalar(delta, deltas, l.add(l.mul(member, rows), row), compute);
    });
  });
  if (querySums)
    clear(l, querySums, querySize / kLanes);

  auto doQueries = [&](LoopBuilder &l, Value first, Value lanes, Value member,
                       Value low, const Rows &keyRows) {
    Value head = l.add(firstHead, member);
    Value count = l.min(arith::SubIOp::create(l.b, loc, l.index(rows), low),
                        l.index(kAttentionRows));
    Rows queryRows =
        widen(l, rowsOf(l, q, batchIndex, head, low), count, wideQueries);
    Rows doutRows =
        widen(l, rowsOf(l, dout, batchIndex, head, low), count, wideDouts);
    multiply(l, queryRows, count, keys, weights);
    multiply(l, doutRows, count, values, dps);
    Value lseBase =
        l.add(l.mul(l.add(l.mul(batchIndex, heads), head), rows), low);
    Value memberRow = l.add(l.mul(member, rows), low);
    loop(l, l.index(0), count, 1, [&](LoopBuilder &l, Value at) {
      Value score =
          finishScores(l, load(l, weights, at), batchIndex, head, first,
                       l.add(low, at), /*lanesAreQueries=*/false);
      Value log = l.splat(l.loadScalar(lse, l.add(lseBase, at), compute));
      Value delta =
          l.splat(l.loadScalar(deltas, l.add(memberRow, at), compute));
      auto [p, ds] =
          scoreGrad(l, score, load(l, dps, at), finite(l, log), delta);
      store(l, p, dps, at);
      store(l, ds, weights, at);
    });
    if (dv.memref)
      accumulate(l, doutRows, count, dps, valueSums, Value());
    if (dk.memref)
      accumulate(l, queryRows, count, weights, keySums, Value());
    if (querySums) {
      Rows sums{querySums, l.mul(memberRow, padded), padded, compute};
      addProducts(l, keyRows, lanes ? lanes : l.index(kLanes), weights, count,
                  sums);
    }
  };

  loop(l, l.index(0), l.index(columns), kLanes,
       [&](LoopBuilder &l, Value first) {
         Value lanes = countLanes(l, first, columns);
         Rows keyRows = rowsOf(l, k, batchIndex, kvHead, first);
         Rows valueRows = rowsOf(l, v, batchIndex, kvHead, first);
         pack(l, keyRows, lanes, keys);
         pack(l, valueRows, lanes, values);
         clear(l, keySums, paddedSize());
         clear(l, valueSums, paddedSize());
         if (querySums)
           keyRows =
               widen(l, keyRows, lanes ? lanes : l.index(kLanes), wideKeys);
         Value begin = l.index(0);
         if (causal) {
           begin =
               arith::SubIOp::create(l.b, loc, first, l.index(columns - rows));
           begin = arith::MaxSIOp::create(l.b, loc, begin, l.index(0));
         }
         inHeads(l, [&](LoopBuilder &l, Value member) {
           loop(l, begin, l.index(rows), kAttentionRows,
                [&](LoopBuilder &l, Value low) {
                  doQueries(l, first, lanes, member, low, keyRows);
                });
         });
         if (dk.memref)
           unpack(l, keySums, rowsOf(l, dk, batchIndex, kvHead, first), lanes);
         if (dv.memref)
           unpack(l, valueSums, rowsOf(l, dv, batchIndex, kvHead, first),
                  lanes);
       });

  if (querySums)
    inHeads(l, [&](LoopBuilder &l, Value member) {
      Value head = l.add(firstHead, member);
      Rows sums{querySums, l.mul(l.mul(member, rows), padded), padded, compute};
      Rows result = rowsOf(l, dq, batchIndex, head, l.index(0));
      int64_t lanes = rowLanes();
      loop(l, l.index(0), l.index(rows), 1, [&](LoopBuilder &l, Value row) {
        Value from = offset(l, sums, row), to = offset(l, result, row);
        loop(l, l.index(0), l.index(headSize), lanes,
             [&](LoopBuilder &l, Value d) {
               Value x = l.loadVector(querySums, l.add(from, d), compute,
                                      Value(), lanes);
               l.storeVector(x, result.memref, l.add(to, d), element,
                             insideRow(l, d, lanes));
             });
      });
    });
  func::ReturnOp::create(b, loc);
  return batch * kvHeads;
}
