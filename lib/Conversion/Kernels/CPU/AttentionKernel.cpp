//===- AttentionKernel.cpp - Attention by blocks --------------------------===//
//
// A tile is a block of queries of one head. It goes over the keys by
// blocks and keeps the maximum and the sum of exponentials so far per query
// (the online softmax); sums so far are scaled where the maximum rises.
//
//===----------------------------------------------------------------------===//
#include "AMX/AttentionTiles.h"
#include "CPUKernels.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "trainc/Dialect/NN/NNRandom.h"
#include "llvm/Support/MathExtras.h"
#include <limits>

using namespace mlir;
using namespace trainc;

int64_t AttentionEmitter::emitForward(Value outResult, Value lseResult) {
  setBlocks(rows, columns);
  OpBuilder b = OpBuilder::atBlockEnd(&function.function.getBody().front());
  LoopBuilder l{b, loc};
  int64_t blocks = llvm::divideCeil(rows, blockLanes);
  Value tile = function.tile;
  Value first = l.mul(l.mod(tile, blocks), blockLanes);
  Value head = l.mod(l.div(tile, blocks), heads);
  Value batchIndex = l.div(tile, blocks * heads);
  Value kvHead = l.div(head, heads / kvHeads);

  Value queries = scratch(l, paddedSize()), sums = scratch(l, paddedSize());
  Value weights = scratch(l, kAttentionRows);
  Value wideKeys = scratchToWiden(l, kAttentionRows);
  Value wideValues =
      wideKeys ? wideKeys : scratchToGather(l, kAttentionRows, v);
  maskRow = scratch(l, 1);
  Value lanes = countLanes(l, first, rows);
  pack(l, rowsOf(l, q, batchIndex, head, first), lanes, queries);
  clear(l, sums, paddedSize());
  Value end = visibleKeys(l, first);
  nn::RandomCounter counter;
  Value headDraw;
  if (rate) {
    counter = loadCounter(l);
    headDraw = firstDrawOf(l, batchIndex, head);
  }
  Value infinity = constant(l, -std::numeric_limits<double>::infinity());
  auto state = l.loop(
      firstKeys(l, first), end, kAttentionRows, {infinity, constant(l, 0.0)},
      [&](LoopBuilder &l, Value low, ValueRange state) {
        Value count = l.min(arith::SubIOp::create(l.b, loc, end, low),
                            l.index(kAttentionRows));
        Rows keys =
            widen(l, rowsOf(l, k, batchIndex, kvHead, low), count, wideKeys);
        multiply(l, keys, count, queries, weights);
        Value max =
            l.loop(l.index(0), count, 1, state[0],
                   [&](LoopBuilder &l, Value at, ValueRange max) {
                     Value score = finishScores(
                         l, load(l, weights, at), batchIndex, head, first,
                         l.add(low, at), /*lanesAreQueries=*/true);
                     store(l, score, weights, at);
                     return SmallVector<Value>{
                         l.combine(nn::ReduceKind::max, max[0], score)};
                   })
                .front();
        Value shift = finite(l, max);
        Value factor = exp(l, arith::SubFOp::create(l.b, loc, state[0], shift));
        Value sum = arith::MulFOp::create(l.b, loc, state[1], factor);
        sum = l.loop(l.index(0), count, 1, sum,
                     [&](LoopBuilder &l, Value at, ValueRange sum) {
                       Value p =
                           exp(l, arith::SubFOp::create(
                                      l.b, loc, load(l, weights, at), shift));
                       store(l, p, weights, at);
                       return SmallVector<Value>{
                           l.combine(nn::ReduceKind::sum, sum[0], p)};
                     })
                  .front();
        if (rate)
          dropKeys(l, weights, count, counter, headDraw, first, low);
        Rows values =
            widen(l, rowsOf(l, v, batchIndex, kvHead, low), count, wideValues);
        accumulate(l, values, count, weights, sums, factor);
        return SmallVector<Value>{max, sum};
      });

  if (lseResult) {
    Value log = math::LogOp::create(b, loc, state[1]);
    log = arith::AddFOp::create(b, loc, finite(l, state[0]), log);
    Value at = l.add(l.mul(l.div(tile, blocks), rows), first);
    l.storeVector(log, lseResult, at, compute, lanesBelow(l, first, rows),
                  blockLanes);
  }
  if (outResult) {
    Value zero = constant(l, 0.0);
    Value isZero = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ,
                                         state[1], zero);
    Value sum =
        arith::SelectOp::create(b, loc, isZero, constant(l, 1.0), state[1]);
    l.loop(l.index(0), l.index(headSize), 1, [&](LoopBuilder &l, Value d) {
      Value value = load(l, sums, d);
      store(l, arith::DivFOp::create(l.b, loc, value, sum), sums, d);
    });
    HeadMatrix result{outResult, rows, heads * headSize, 0};
    unpack(l, sums, rowsOf(l, result, batchIndex, head, first), lanes);
  }
  func::ReturnOp::create(b, loc);
  return batch * heads * blocks;
}

int64_t trainc::emitAttention(KernelFunction &function, Operation *op,
                              Tiles tiles) {
  return dispatchAttention(
      function, op,
      [&](AttentionEmitter &e, Value out, Value lse) {
        if (fitsTiles(e, tiles))
          return emitForwardByTiles(e, out, lse);
        return e.emitForward(out, lse);
      },
      [&](AttentionEmitter &e, HeadMatrix dq, HeadMatrix dk, HeadMatrix dv) {
        if (fitsTiles(e, tiles))
          return emitBackwardByTiles(e, dq, dk, dv);
        return e.emitBackward(dq, dk, dv);
      });
}
