//===- AttentionGradKernel.cpp - Gradients of attention, on a GPU ---------===//
#include "AttentionBlock.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace trainc;

/// Threads of a multiprocessor at once: all the registers that one can have for each.
static constexpr int64_t kGradThreads = 256;

std::pair<Value, Value> AttentionBlock::scoreGrad(ThreadBuilder &t, Value score,
                                                  Value dp, Value lse,
                                                  Value delta) {
  Value p = exp(t, score, lse);
  Value ds = arith::MulFOp::create(
      t.b, loc, p, arith::SubFOp::create(t.b, loc, dp, delta).getResult());
  return {p, arith::MulFOp::create(t.b, loc, ds, constant(t, e.scale))};
}

Value AttentionBlock::loadDelta(ThreadBuilder &t, Value batchIndex, Value head,
                                Value row) {
  Value token = t.add(t.mul(batchIndex, e.rows), row);
  return t.loadScalar(e.delta, t.add(t.mul(token, e.heads), head), e.compute);
}

Value AttentionBlock::loadLse(ThreadBuilder &t, Value batchIndex, Value head,
                              Value row) {
  Value at = t.add(t.mul(batchIndex, e.heads), head);
  return finite(t,
                t.loadScalar(e.lse, t.add(t.mul(at, e.rows), row), e.compute));
}

void AttentionBlock::emitQueryGrads(ThreadBuilder &t, Value number,
                                    HeadMatrix dq) {
  int64_t blocks = llvm::divideCeil(e.rows, sizes.rows);
  AttentionOperands o;
  o.own = {e.q, e.dout};
  o.tiles = {e.k, e.v};
  o.rowsAreQueries = true;
  o.part = t.mod(number, sizes.parts);
  number = t.div(number, sizes.parts);
  o.first = t.mul(t.mod(number, blocks), sizes.rows);
  o.ownHead = t.mod(t.div(number, blocks), e.heads);
  o.tileHead = t.div(o.ownHead, e.heads / e.kvHeads);
  o.batchIndex = t.div(number, blocks * e.heads);
  Value lse[2], delta[2];
  for (int64_t half : {0, 1}) {
    Value row = t.min(ownRow(t, o, half), t.index(e.rows - 1));
    lse[half] = loadLse(t, o.batchIndex, o.ownHead, row);
    delta[half] = loadDelta(t, o.batchIndex, o.ownHead, row);
  }
  if (sizes.parts == 1)
    stageOwn(t, o, t.index(0));
  Fragment sums =
      t.loop(visibleBegin(t, o.first), visibleEnd(t, e, o.first, sizes.rows),
             sizes.tile, products.zeros(t, sizes.width),
             [&](LoopBuilder &l, Value low, ValueRange carried) {
               ThreadBuilder t(l.b, loc, sizes.threads());
               Fragment results = multiplyTile(t, o, low);
               MutableArrayRef<Value> all(results);
               auto scores = all.take_front(all.size() / 2);
               finishScores(t, o, low, o.ownHead, scores);
               for (auto [dp, words] :
                    llvm::zip(all.drop_front(scores.size()),
                              drawScores(t, o, low, o.ownHead, scores.size())))
                 dp = e.dropOut(t, dp, words);
               for (auto [i, score] : llvm::enumerate(scores)) {
                 int64_t half = i / 2 % 2;
                 score = scoreGrad(t, score, all[scores.size() + i], lse[half],
                                   delta[half])
                             .second;
               }
               return products.accumulate(t, scores, tiles[0], carried);
             });
  storeRows(t, o, sums, dq, o.ownHead);
}

void AttentionBlock::emitKeyGrads(ThreadBuilder &t, Value number, HeadMatrix dk,
                                  HeadMatrix dv) {
  int64_t blocks = llvm::divideCeil(e.columns, sizes.rows);
  int64_t group = e.heads / e.kvHeads;
  AttentionOperands o;
  o.own = {e.k, e.v};
  o.tiles = {e.q, e.dout};
  o.rowsAreQueries = false;
  o.part = t.mod(number, sizes.parts);
  number = t.div(number, sizes.parts);
  o.first = t.mul(t.mod(number, blocks), sizes.rows);
  o.ownHead = t.mod(t.div(number, blocks), e.kvHeads);
  o.batchIndex = t.div(number, blocks * e.kvHeads);
  if (sizes.parts == 1)
    stageOwn(t, o, t.index(0));
  // The first tile with a query that sees one of the keys.
  Value begin = t.index(0);
  if (e.causal) {
    begin =
        arith::SubIOp::create(t.b, loc, o.first, t.index(e.columns - e.rows));
    begin = arith::MaxSIOp::create(t.b, loc, begin, t.index(0));
    begin = t.mul(t.div(begin, sizes.tile), sizes.tile);
  }
  // The end of those.
  Value end = t.index(e.rows);
  if (e.window) {
    end = t.add(o.first,
                t.index(sizes.rows - 1 + *e.window - (e.columns - e.rows)));
    end = arith::MinSIOp::create(t.b, loc, end, t.index(e.rows));
  }
  // lse and delta of the queries of the tile.
  auto prepare = [&](ThreadBuilder &t, Value low) {
    for (int64_t done = 0; done < sizes.tile; done += sizes.threads()) {
      Value at = t.add(t.thread(), t.index(done));
      Value row = t.min(t.add(low, at), t.index(e.rows - 1));
      t.when(t.less(at, t.index(sizes.tile)), [&](ThreadBuilder &t) {
        Value lse = loadLse(t, o.batchIndex, o.tileHead, row);
        Value delta = loadDelta(t, o.batchIndex, o.tileHead, row);
        t.storeScalar(lse, statistics, at, e.compute);
        t.storeScalar(delta, statistics, t.add(at, t.index(sizes.tile)),
                      e.compute);
      });
    }
  };
  Fragment initial = products.zeros(t, 2 * sizes.width);
  Fragment sums = t.loop(
      t.index(0), t.index(group), 1, initial,
      [&](LoopBuilder &l, Value member, ValueRange carried) {
        Value head = l.add(l.mul(o.ownHead, group), member);
        o.tileHead = head;
        return l.loop(
            begin, end, sizes.tile, carried,
            [&](LoopBuilder &l, Value low, ValueRange carried) {
              ThreadBuilder t(l.b, loc, sizes.threads());
              Fragment results = multiplyTile(
                  t, o, low, [&](ThreadBuilder &t) { prepare(t, low); });
              MutableArrayRef<Value> all(results);
              auto scores = all.take_front(all.size() / 2);
              auto grads = all.drop_front(all.size() / 2);
              finishScores(t, o, low, head, scores);
              Fragment words = drawScores(t, o, low, head, scores.size());
              for (auto [dp, word] : llvm::zip(grads, words))
                dp = e.dropOut(t, dp, word);
              for (auto [i, score] : llvm::enumerate(scores)) {
                Value at = t.add(products.column, t.index(i / 4 * 8 + i % 2));
                Value lse = t.loadScalar(statistics, at, e.compute);
                Value delta = t.loadScalar(
                    statistics, t.add(at, t.index(sizes.tile)), e.compute);
                std::tie(score, grads[i]) =
                    scoreGrad(t, score, grads[i], lse, delta);
              }
              for (auto [p, word] : llvm::zip(scores, words))
                p = e.dropOut(t, p, word);
              size_t half = carried.size() / 2;
              Fragment next = products.accumulate(t, grads, tiles[0],
                                                  carried.take_front(half));
              next.append(products.accumulate(t, scores, tiles[1],
                                              carried.drop_front(half)));
              return next;
            });
      });
  ArrayRef<Value> all(sums);
  if (dk.memref)
    storeRows(t, o, all.take_front(all.size() / 2), dk, o.ownHead);
  if (dv.memref)
    storeRows(t, o, all.drop_front(all.size() / 2), dv, o.ownHead);
}

/// The blocks of keys come first: they have the most to do.
int64_t trainc::emitAttentionGradOnGPU(AttentionEmitter &e, HeadMatrix dq,
                                       HeadMatrix dk, HeadMatrix dv) {
  AttentionSizes sizes = chooseAttentionSizes(e.element, e.headSize, 2);
  OpBuilder b = OpBuilder::atBlockEnd(&e.function.function.getBody().front());
  ThreadBuilder t(b, e.loc, sizes.threads());
  t.setLaunch(e.function, /*resident=*/kGradThreads / t.threads);
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
