//===- AttentionGradKernel.cpp - Gradients of attention, on a GPU ---------===//
#include "AttentionBlock.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace trainc;

/// Threads of a multiprocessor at once: all the registers that one can have for each, or
/// 168 for short rows and simple scores.
static constexpr int64_t kGradThreads = 256, kShortGradThreads = 384;

std::pair<Value, Value> AttentionBlock::loadShifts(ThreadBuilder &t,
                                                   Value batchIndex, Value head,
                                                   Value row) {
  Value ofHead = t.add(t.mul(batchIndex, e.heads), head);
  Value lse = t.loadScalar(e.lse, t.add(t.mul(ofHead, e.rows), row), e.compute);
  Value token = t.add(t.mul(batchIndex, e.rows), row);
  Value delta =
      t.loadScalar(e.delta, t.add(t.mul(token, e.heads), head), e.compute);
  return {mul(t, finite(t, lse), constant(t, scalesLate ? -kLog2E : -1.0)),
          mul(t, delta, constant(t, -e.scale))};
}

Fragment AttentionBlock::loadStatistics(ThreadBuilder &t,
                                        const AttentionOperands &o,
                                        const AttentionTile &tile) {
  Fragment shifts;
  if (o.rowsAreQueries)
    return shifts;
  for (int64_t done = 0; done < sizes.tile; done += t.threads) {
    Value at = t.add(t.mod(t.thread(), sizes.tile), t.index(done));
    Value row = t.min(t.add(tile.low, at), t.index(e.rows - 1));
    auto [ofScores, ofGrads] = loadShifts(t, o.batchIndex, tile.head, row);
    shifts.append({ofScores, ofGrads});
  }
  return shifts;
}

void AttentionBlock::storeStatistics(ThreadBuilder &t,
                                     const AttentionOperands &o,
                                     const AttentionTile &tile,
                                     ValueRange shifts) {
  if (o.rowsAreQueries)
    return;
  Value start = tile.statistics ? tile.statistics : t.index(0);
  for (size_t i = 0; i < shifts.size(); i += 2) {
    Value at = t.add(t.thread(), t.index(i / 2 * t.threads));
    t.when(t.less(at, t.index(sizes.tile)), [&](ThreadBuilder &t) {
      Value to = t.add(start, at);
      t.storeScalar(shifts[i], statistics, to, e.compute);
      t.storeScalar(shifts[i + 1], statistics, t.add(to, t.index(sizes.tile)),
                    e.compute);
    });
  }
}

std::pair<Value, Value>
AttentionBlock::scoreGrad(ThreadBuilder &t, Value score, Value dp,
                          std::pair<Value, Value> shifts) {
  Value p = exp(t, score, shifts.first);
  // scale (dp - delta)
  Value grad =
      math::FmaOp::create(t.b, loc, dp, constant(t, e.scale), shifts.second);
  return {p, mul(t, p, grad)};
}

void AttentionBlock::emitQueryGrads(ThreadBuilder &t, Value number,
                                    HeadMatrix dq) {
  AttentionOperands o = queryBlock(t, number);
  o.own.push_back(e.dout);
  std::pair<Value, Value> shifts[2];
  for (int64_t half : {0, 1}) {
    Value row = t.min(ownRow(t, o, half), t.index(e.rows - 1));
    shifts[half] = loadShifts(t, o.batchIndex, o.ownHead, row);
  }
  auto body = [&](ThreadBuilder &t, const AttentionTile &tile,
                  ValueRange carried) {
    Fragment results = multiplyTiles(t, o, tile);
    MutableArrayRef<Value> all(results);
    auto scores = all.take_front(all.size() / 2);
    finishScores(t, o, tile, scores);
    for (auto [dp, words] : llvm::zip(all.drop_front(scores.size()),
                                      drawScores(t, o, tile, scores.size())))
      dp = e.dropOut(t, dp, words);
    for (auto [i, score] : llvm::enumerate(scores))
      score =
          scoreGrad(t, score, all[scores.size() + i], shifts[i / 2 % 2]).second;
    return products.accumulate(t, scores, tileRows(t, 0, tile), carried);
  };
  Fragment sums = forTiles(t, o, products.zeros(t, sizes.width), body);
  storeRows(t, o, sums, dq, o.ownHead);
}

AttentionOperands AttentionBlock::keyBlock(ThreadBuilder &t, Value number) {
  int64_t blocks = llvm::divideCeil(e.columns, sizes.rows);
  AttentionOperands o;
  o.own = {e.k, e.v};
  o.tiles = {e.q, e.dout};
  o.rowsAreQueries = false;
  o.members = e.heads / e.kvHeads;
  o.part = t.mod(number, sizes.parts);
  number = t.div(number, sizes.parts);
  o.first = t.mul(t.mod(number, blocks), sizes.rows);
  o.ownHead = t.mod(t.div(number, blocks), e.kvHeads);
  o.tileHead = t.mul(o.ownHead, o.members);
  o.batchIndex = t.div(number, blocks * e.kvHeads);
  // The first tile with a query that sees one of the keys.
  o.begin = t.index(0);
  if (e.causal) {
    o.begin =
        arith::SubIOp::create(t.b, loc, o.first, t.index(e.columns - e.rows));
    o.begin = arith::MaxSIOp::create(t.b, loc, o.begin, t.index(0));
    o.begin = t.mul(t.div(o.begin, sizes.tile), sizes.tile);
  }
  // The end of those.
  o.end = t.index(e.rows);
  if (e.window) {
    o.end = t.add(o.first,
                  t.index(sizes.rows - 1 + *e.window - (e.columns - e.rows)));
    o.end = arith::MinSIOp::create(t.b, loc, o.end, t.index(e.rows));
  }
  return o;
}

void AttentionBlock::emitKeyGrads(ThreadBuilder &t, Value number, HeadMatrix dk,
                                  HeadMatrix dv) {
  AttentionOperands o = keyBlock(t, number);
  auto body = [&](ThreadBuilder &t, const AttentionTile &tile,
                  ValueRange carried) {
    Fragment results = multiplyTiles(t, o, tile);
    MutableArrayRef<Value> all(results);
    auto scores = all.take_front(all.size() / 2);
    auto grads = all.drop_front(all.size() / 2);
    finishScores(t, o, tile, scores);
    Fragment words = drawScores(t, o, tile, scores.size());
    for (auto [dp, word] : llvm::zip(grads, words))
      dp = e.dropOut(t, dp, word);
    Value start = tile.statistics ? t.add(tile.statistics, products.column)
                                  : products.column;
    for (auto [i, score] : llvm::enumerate(scores)) {
      Value at = t.add(start, t.index(i / 4 * 8 + i % 2));
      std::pair<Value, Value> shifts = {
          t.loadScalar(statistics, at, e.compute),
          t.loadScalar(statistics, t.add(at, t.index(sizes.tile)), e.compute)};
      std::tie(score, grads[i]) = scoreGrad(t, score, grads[i], shifts);
    }
    for (auto [p, word] : llvm::zip(scores, words))
      p = e.dropOut(t, p, word);
    size_t half = carried.size() / 2;
    Fragment next = products.accumulate(t, grads, tileRows(t, 0, tile),
                                        carried.take_front(half));
    next.append(products.accumulate(t, scores, tileRows(t, 1, tile),
                                    carried.drop_front(half)));
    return next;
  };
  Fragment sums = forTiles(t, o, products.zeros(t, 2 * sizes.width), body);
  ArrayRef<Value> all(sums);
  if (dk.memref)
    storeRows(t, o, all.take_front(all.size() / 2), dk, o.ownHead);
  if (dv.memref)
    storeRows(t, o, all.drop_front(all.size() / 2), dv, o.ownHead);
}

/// The blocks of keys come first: they have the most to do.
int64_t trainc::emitAttentionGradOnGPU(AttentionEmitter &e, HeadMatrix dq,
                                       HeadMatrix dk, HeadMatrix dv) {
  AttentionSizes sizes = chooseAttentionSizes(e, 2);
  OpBuilder b = OpBuilder::atBlockEnd(&e.function.function.getBody().front());
  ThreadBuilder t(b, e.loc, sizes.threads());
  int64_t threads = sizes.width <= kShortRow && hasSimpleScores(e)
                        ? kShortGradThreads
                        : kGradThreads;
  t.setLaunch(e.function, /*resident=*/threads / t.threads);
  AttentionBlock emitter(e, t, sizes, 2);
  auto countBlocks = [&](int64_t heads, int64_t length) {
    return e.batch * heads * llvm::divideCeil(length, sizes.rows) * sizes.parts;
  };
  int64_t ofKeys =
      dk.memref || dv.memref ? countBlocks(e.kvHeads, e.columns) : 0;
  int64_t ofQueries = dq.memref ? countBlocks(e.heads, e.rows) : 0;
  Value number = e.function.tile, keys = t.index(ofKeys);
  if (ofKeys)
    t.when(t.less(number, keys),
           [&](ThreadBuilder &t) { emitter.emitKeyGrads(t, number, dk, dv); });
  if (ofQueries) {
    Value isOfQueries = arith::CmpIOp::create(
        b, e.loc, arith::CmpIPredicate::uge, number, keys);
    t.when(isOfQueries, [&](ThreadBuilder &t) {
      Value own = arith::SubIOp::create(t.b, e.loc, number, keys);
      emitter.emitQueryGrads(t, own, dq);
    });
  }
  func::ReturnOp::create(b, e.loc);
  return ofKeys + ofQueries;
}
